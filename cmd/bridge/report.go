package main

import (
	"time"

	"github.com/kubebridge/kubebridge/internal/pipeline"
	"github.com/kubebridge/kubebridge/internal/recent"
	"github.com/kubebridge/kubebridge/internal/status"
)

// reporter adds facts that the program has to the status of a bridge.
type reporter struct {
	bridge  *pipeline.Bridge
	last    *recent.Changes // nil: changes are not kept
	digest  func() string
	started time.Time
}

func (r *reporter) report() status.Report {
	out := r.bridge.Status()
	out.Version, out.Started, out.ConfigDigest = currentVersion().Version, r.started, r.digest()
	return out
}

// changes returns the last changes of a collection. The bool is false if there is no such collection.
func (r *reporter) changes(sink, collection string) ([]status.Change, bool) {
	report := r.bridge.Status()
	for _, e := range report.Entries() {
		if e.Sink.Name == sink && e.Collection.ID == collection {
			return r.last.Of(sink, collection, e.Collection.Diffs), true
		}
	}
	return nil, false
}
