package pipeline

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/internal/loop"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// LaneStatus is what a lane shows of itself.
type LaneStatus struct {
	Sink         string             `json:"sink"`
	Ready        bool               `json:"ready"`
	Failing      string             `json:"failing,omitzero"` // what is being tried again, and why
	FailingSince *time.Time         `json:"failingSince,omitzero"`
	LastError    *Trouble           `json:"lastError,omitzero"` // since the start
	Delivered    uint64             `json:"delivered"`          // events since the start
	Lost         *uint64            `json:"lost,omitzero"`      // of those, what an at-most-once bus did not take; nil: the sink loses nothing
	LastEvent    *time.Time         `json:"lastEvent,omitzero"`
	LastCommit   *time.Time         `json:"lastCommit,omitzero"` // when the checkpoint last moved
	Queue        Queue              `json:"queue"`
	Collections  []CollectionStatus `json:"collections"`
}

// Queue is what was read and is not yet delivered: the batch being written and
// the one that fills.
type Queue struct {
	Events   int64 `json:"events"`
	Capacity int64 `json:"capacity"` // events
	Bytes    int64 `json:"bytes"`    // of encoded events
	Room     int64 `json:"room"`     // bytes; one event may exceed it
	// Oldest is when the first of the events was read; nil: there is none.
	Oldest *time.Time `json:"oldest,omitzero"`
}

// Trouble is an error that was, or is, tried again.
type Trouble struct {
	Error  string    `json:"error"`
	Advice string    `json:"advice"` // what a person can do about it
	At     time.Time `json:"at"`
}

// CollectionStatus is the state of one collection.
type CollectionStatus struct {
	Collection string       `json:"collection"`
	Resource   string       `json:"resource,omitzero"` // with its group, as kubectl takes it
	State      source.Phase `json:"state"`
	Since      time.Time    `json:"since"`
	Until      *time.Time   `json:"retryAt,omitzero"`
	Error      string       `json:"error,omitzero"`
	LastError  *Trouble     `json:"lastError,omitzero"` // since the start
	Kind       string       `json:"kind,omitzero"`
	Version    string       `json:"apiVersion,omitzero"`
	Route      string       `json:"route,omitzero"` // its own topic, or the template of its subjects; "": the sink's
	CollectionDelivery
	// Objects is how many the inventory holds; nil: not known before a list ends.
	Objects *int64     `json:"objects,omitzero"`
	List    *ListState `json:"list,omitzero"` // under way
	Gap     *GapState  `json:"gap,omitzero"`  // the last one since the start
	// Diffs says that modified events are to show what changed.
	Diffs bool `json:"-"`
}

// CollectionDelivery is what was delivered of one collection.
type CollectionDelivery struct {
	// Synced is when it was published last that the collection is complete.
	Synced    *time.Time `json:"synced,omitzero"`
	RV        string     `json:"resourceVersion,omitzero"` // of the last delivered event (of a deletion, its deletion version), or of the checkpoint at the start
	Delivered uint64     `json:"delivered"`                // events since the start
	LastEvent *time.Time `json:"lastEvent,omitzero"`       // delivered
	// Behind is how long the last delivered watch event was in the bridge: seconds
	// from when it was read to when the bus had it. Kubernetes does not say when a
	// change happened. nil: there was none since the start.
	Behind *float64 `json:"behind,omitzero"`
}

// ListState is a list under way.
type ListState struct {
	Read      int64  `json:"read"`               // objects
	Remaining *int64 `json:"remaining,omitzero"` // objects; nil: the server does not say
}

// GapState is a gap that the bus was told of.
type GapState struct {
	Reason string     `json:"reason"`
	Detail string     `json:"detail,omitzero"`
	Opened time.Time  `json:"opened"`
	Closed *time.Time `json:"closed,omitzero"`
}

// laneStatus is written by a lane's goroutines and read by anyone.
type laneStatus struct {
	flying, filling load

	mu          sync.Mutex
	failed      string
	worked      bool      // since the start
	since       time.Time // of failed
	lastError   *Trouble
	count       uint64
	last        time.Time
	committed   time.Time
	collections map[string]*shown
	waiting     map[string]CollectionStatus // by configured name
}

// shown is a member as the status has it.
type shown struct {
	CollectionStatus
	tally *tally
	left  *int64 // objects on the pages to come of the list under way
	own   bool   // Error is not one of the server, see outage
}

// failing shows what is being tried again; "" is nothing.
func (s *laneStatus) failing(why, advice string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == "" || why == "" {
		s.since = time.Now()
	}
	s.failed = why
	s.worked = s.worked || why == ""
	if why != "" {
		s.lastError = &Trouble{Error: why, Advice: advice, At: time.Now()}
	}
}

// advice says what a person can do about an error of the bus or the checkpoint.
func (s *laneStatus) advice(err error) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.worked && !errors.As(err, new(*sink.RouteError)) {
		return "check the sink's addresses, credentials and network: it has not worked since the start, and is tried again"
	}
	return advice(err)
}

func (s *laneStatus) commits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = time.Now()
}

// add shows a collection. route is its own, "" if it has none.
func (s *laneStatus) add(c CollectionStatus, t *tally) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.collections == nil {
		s.collections = map[string]*shown{}
	}
	t.objects.Store(-1)
	c.State, c.Since = source.Discovering, time.Now()
	s.collections[c.Collection] = &shown{CollectionStatus: c, tally: t}
}

// remove ends what is shown of a collection, and returns the state that it was in, "" if it was
// not shown.
func (s *laneStatus) remove(id string) source.Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collections[id]
	if c == nil {
		return ""
	}
	delete(s.collections, id)
	return c.State
}

// changed changes what is shown of a collection.
func (s *laneStatus) changed(id string, change func(*CollectionStatus)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.collections[id]; c != nil {
		change(&c.CollectionStatus)
	}
}

func (s *laneStatus) delivered(records []event.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	behind := map[*shown]time.Duration{}
	var (
		last *event.Collection
		c    *shown
	)
	for i := range records {
		ev := records[i].Event
		if ev.Collection != last {
			last, c = ev.Collection, s.collections[ev.Collection.ID()]
		}
		if c == nil {
			continue
		}
		c.RV = cmp.Or(ev.DeletionVersion, ev.ResourceVersion)
		c.Delivered++
		c.LastEvent = &now
		if ev.Origin == event.Watch && !ev.Type.OfCollection() {
			behind[c] = now.Sub(ev.Time)
		}
		switch ev.Type {
		case event.Synced:
			c.Synced = &now
			if c.Gap != nil && c.Gap.Closed == nil {
				closed := *c.Gap
				closed.Closed = &now
				c.Gap = &closed
			}
		case event.Gap:
			c.Synced = nil
			c.Gap = &GapState{Reason: ev.Report.Reason, Detail: ev.Report.Detail, Opened: ev.Time}
		}
	}
	for c, d := range behind {
		seconds := d.Seconds()
		c.Behind = &seconds
	}
	if len(records) > 0 {
		s.count += uint64(len(records))
		s.last = now
	}
}

// ifAny is nil for the zero time.
func ifAny(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (s *laneStatus) queue() Queue {
	q := Queue{
		Events: s.flying.records.Load() + s.filling.records.Load(), Capacity: 2 * loop.BatchRecords,
		Bytes: s.flying.bytes.Load() + s.filling.bytes.Load(), Room: 2 * loop.BatchBytes,
	}
	for _, w := range []*load{&s.filling, &s.flying} { // which is the older one
		if at := w.oldest.Load(); at != 0 {
			q.Oldest = ifAny(time.Unix(0, at))
		}
	}
	return q
}

// status is a copy that nobody writes to.
func (c *shown) status() CollectionStatus {
	out := c.CollectionStatus
	if n := c.tally.objects.Load(); n >= 0 {
		out.Objects = &n
	}
	if c.State == source.Reconciling {
		out.List = &ListState{Read: c.tally.read.Load(), Remaining: c.left}
	}
	return out
}
