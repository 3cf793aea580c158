package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/pipeline"
	"github.com/kubebridge/kubebridge/internal/recent"
	"github.com/kubebridge/kubebridge/internal/status"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// fileDigest is the SHA-256 of a configuration file in hex, "" if it can be read
// only once, or not at all.
func fileDigest(path string) string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// reporter adds to the status of a bridge what the program knows.
type reporter struct {
	bridge  *pipeline.Bridge
	last    *recent.Changes // nil: none are kept
	digest  func() string
	started time.Time
}

func (r *reporter) report() status.Report {
	out := r.bridge.Status()
	out.Version, out.Started, out.ConfigDigest = currentVersion().Version, r.started, r.digest()
	return out
}

// changes are the last ones of a collection, if there is such a one.
func (r *reporter) changes(sink, collection string) ([]status.Change, bool) {
	report := r.bridge.Status()
	for _, e := range report.Entries() {
		if e.Sink.Name == sink && e.Collection.ID == collection {
			return r.last.Of(sink, collection, e.Collection.Diffs), true
		}
	}
	return nil, false
}

// shownOf is what the status shows of a sink's configuration.
func shownOf(s *config.Sink) (shown status.Sink) {
	shown.Bus, shown.Address, shown.Delivery = busOf(s)
	return shown
}

// busOf says where a sink writes, without credentials.
func busOf(s *config.Sink) (bus, address, delivery string) {
	switch {
	case s.Kafka != nil:
		return "kafka", strings.Join(s.Kafka.Brokers, ", "), cmp.Or(s.Kafka.Delivery, "exactly-once")
	case s.NATS != nil && s.NATS.Embedded != nil:
		return "nats", "embedded, " + s.NATS.Embedded.Listen, cmp.Or(s.NATS.Delivery, "exactly-once")
	case s.NATS != nil:
		var servers []string
		for _, server := range strings.Split(s.NATS.URL, ",") {
			servers = append(servers, nats.WithoutCredentials(server))
		}
		return "nats", strings.Join(servers, ", "), cmp.Or(s.NATS.Delivery, "exactly-once")
	case s.File != nil:
		return "file", s.File.Path, ""
	default:
		return "stdout", "", ""
	}
}
