package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/leader"
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

// reporter says what a bridge shows of itself.
type reporter struct {
	config  *config.Config
	bridge  *pipeline.Bridge
	last    *recent.Changes // nil: none are kept
	digest  func() string
	started time.Time
}

func (r *reporter) report() status.Report {
	s := r.bridge.Status()
	out := status.Report{
		Ready: s.Ready, Waiting: s.Waiting, Name: r.config.Name, Version: currentVersion().Version,
		Cluster: s.Cluster, ClusterUID: s.ClusterUID, Started: r.started, At: time.Now(), ConfigDigest: r.digest(), Sinks: []status.Sink{},
	}
	if e := s.Election; e != nil {
		out.Leader = &status.Leader{Holder: e.Holder, Self: e.Role == leader.Leader, Lease: e.Lease, Problem: e.Problem}
	}
	for i := range s.Lanes {
		sink := sinkReport(&s.Lanes[i])
		for j := range r.config.Sinks {
			if c := &r.config.Sinks[j]; c.Name == sink.Name {
				sink.Bus, sink.Address, sink.Delivery = busOf(c)
			}
		}
		out.Sinks = append(out.Sinks, sink)
	}
	return out
}

// changes are the last ones of a collection, if there is such a one.
func (r *reporter) changes(sink, collection string) ([]status.Change, bool) {
	for _, l := range r.bridge.Status().Lanes {
		for i := range l.Collections {
			if c := &l.Collections[i]; l.Sink == sink && c.Collection == collection {
				return r.last.Of(sink, collection, c.Diffs), true
			}
		}
	}
	return nil, false
}

func sinkReport(l *pipeline.LaneStatus) status.Sink {
	q := l.Queue
	out := status.Sink{
		Name: l.Sink, Ready: l.Ready, Failing: l.Failing, Since: l.FailingSince, LastError: (*status.Trouble)(l.LastError),
		Delivered: l.Delivered, LastEvent: l.LastEvent, LastCommit: l.LastCommit,
		Queue:       status.Queue{Events: q.Events, EventCapacity: q.Capacity, Bytes: q.Bytes, ByteCapacity: q.Room, Oldest: q.Oldest},
		Collections: []status.Collection{},
	}
	for i := range l.Collections {
		c := &l.Collections[i]
		out.Collections = append(out.Collections, status.Collection{
			ID: c.Collection, Route: c.Route, APIVersion: c.Version, Kind: c.Kind, State: string(c.State), Since: c.Since, RetryAt: c.Until,
			Error: c.Error, LastError: (*status.Trouble)(c.LastError), Position: c.RV, Synced: c.Synced, Delivered: c.Delivered,
			LastEvent: c.LastEvent, Lag: c.Behind, Objects: c.Objects, List: (*status.List)(c.List), Gap: (*status.Gap)(c.Gap),
		})
	}
	return out
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
