package pipeline

import (
	"errors"
	"sort"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// LaneStatus is what a lane shows of itself.
type LaneStatus struct {
	Sink        string             `json:"sink"`
	Ready       bool               `json:"ready"`
	Failing     string             `json:"failing,omitzero"` // what is being tried again, and why
	Delivered   uint64             `json:"delivered"`        // events since the start
	Lost        *uint64            `json:"lost,omitzero"`    // of those, what an at-most-once bus did not take; nil: the sink loses nothing
	LastEvent   *time.Time         `json:"lastEvent,omitzero"`
	Collections []CollectionStatus `json:"collections"`
}

// CollectionStatus is the state of one collection.
type CollectionStatus struct {
	Collection string       `json:"collection"`
	State      source.Phase `json:"state"`
	Since      time.Time    `json:"since"`
	Until      *time.Time   `json:"retryAt,omitzero"`
	Error      string       `json:"error,omitzero"`
	Kind       string       `json:"kind,omitzero"`
	Version    string       `json:"apiVersion,omitzero"`
	// Synced is when the bus was last told that it is complete.
	Synced *time.Time `json:"synced,omitzero"`
	RV     string     `json:"resourceVersion,omitzero"` // of the last delivered event
}

// serves shows what the server calls the resource now, if it serves it.
func (c *CollectionStatus) serves(r source.Resource) {
	if r.Version != "" {
		c.Kind, c.Version = r.Kind, r.APIVersion()
	}
}

// laneStatus is written by a lane's goroutines and read by anyone.
type laneStatus struct {
	mu          sync.Mutex
	failed      string
	count       uint64
	last        time.Time
	collections map[string]*CollectionStatus
	waiting     map[string]CollectionStatus // by configured name
}

func (s *laneStatus) failing(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = why
}

func (s *laneStatus) add(m *member, metrics *Metrics, sink string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.collections == nil {
		s.collections = map[string]*CollectionStatus{}
	}
	c := &CollectionStatus{Collection: m.id, State: source.Discovering, Since: time.Now()}
	c.serves(m.target.Resource)
	s.collections[m.id] = c
	metrics.state.WithLabelValues(sink, m.resource, string(source.Discovering)).Inc()
}

func (s *laneStatus) remove(m *member, metrics *Metrics, sink string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.collections[m.id]; c != nil {
		metrics.state.WithLabelValues(sink, m.resource, string(c.State)).Dec()
		delete(s.collections, m.id)
	}
}

func (s *laneStatus) retarget(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collections[m.id]
	c.serves(m.target.Resource)
}

// watching reports whether a collection's watch is open and known to be sound.
func (s *laneStatus) watching(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collections[id]
	return c != nil && c.State == source.Watching && c.Error == ""
}

// Waiting shows what is configured and cannot be watched now, by name, and why.
func (l *Lane) Waiting(why map[string]error) {
	s := &l.status
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.waiting
	s.waiting = map[string]CollectionStatus{}
	for name, err := range why {
		now := CollectionStatus{Collection: name, State: source.Discovering, Since: time.Now(), Error: err.Error()}
		if b, ok := before[name]; ok {
			now.Since = b.Since
		}
		if before[name].Error != now.Error && !errors.Is(err, errNamespacesUnknown) { // those come in a moment
			l.log.Warn("waiting for a resource", zap.String("resource", name), zap.Error(err))
		}
		s.waiting[name] = now
	}
}

func (s *laneStatus) delivered(records []event.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i := range records {
		ev := records[i].Event
		c := s.collections[ev.Collection.ID()]
		if c == nil {
			continue
		}
		c.RV = ev.ResourceVersion
		switch ev.Type {
		case event.Synced:
			c.Synced = &now
		case event.Gap:
			c.Synced = nil
		}
	}
	if len(records) > 0 {
		s.count += uint64(len(records))
		s.last = now
	}
}

// Status returns the lane's present state.
func (l *Lane) Status() LaneStatus {
	s := &l.status
	s.mu.Lock()
	defer s.mu.Unlock()
	out := LaneStatus{Sink: l.id.Sink, Ready: s.failed == "", Failing: s.failed, Delivered: s.count, Collections: []CollectionStatus{}}
	if lossy, ok := l.sink.(sink.Lossy); ok {
		lost := lossy.Lost()
		out.Lost = &lost
	}
	if !s.last.IsZero() {
		last := s.last
		out.LastEvent = &last
	}
	for _, c := range s.collections {
		out.Collections = append(out.Collections, *c)
	}
	for _, c := range s.waiting {
		out.Collections = append(out.Collections, c)
	}
	sort.Slice(out.Collections, func(i, j int) bool { return out.Collections[i].Collection < out.Collections[j].Collection })
	return out
}

// stateChanged is told by a collection's goroutine.
func (l *Lane) stateChanged(m *member, st source.State) {
	s := &l.status
	s.mu.Lock()
	c := s.collections[m.id]
	if c == nil { // it is being closed
		s.mu.Unlock()
		return
	}
	before := *c
	c.State, c.Error, c.Until = st.Phase, "", nil
	if before.State != st.Phase {
		c.Since = st.Since
	}
	if st.Err != nil {
		c.Error = st.Err.Error()
		c.Until = &st.Until
	}
	now := *c
	s.mu.Unlock()
	l.metrics.state.WithLabelValues(l.id.Sink, m.resource, string(before.State)).Dec()
	l.metrics.state.WithLabelValues(l.id.Sink, m.resource, string(st.Phase)).Inc()
	switch {
	case st.Phase == source.Gone: // said in full elsewhere
	case st.Err != nil && now.Error != before.Error:
		l.log.Warn("collection "+string(st.Phase)+"; trying again", m.field(), zap.Error(st.Err))
	case st.Err == nil && before.Error != "":
		l.log.Info("collection goes on", m.field(), zap.String("state", string(st.Phase)))
	}
}
