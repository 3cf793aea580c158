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
	// Synced is when the bus was last told that it is complete.
	Synced    *time.Time `json:"synced,omitzero"`
	RV        string     `json:"resourceVersion,omitzero"` // of the last delivered event
	Delivered uint64     `json:"delivered"`                // events since the start
	LastEvent *time.Time `json:"lastEvent,omitzero"`       // delivered
	// Behind is how long the last delivered watch event was in the bridge: seconds
	// from when it was read to when the bus had it. Kubernetes does not say when a
	// change happened. nil: there was none since the start.
	Behind *float64 `json:"behind,omitzero"`
	// Objects is how many the inventory holds; nil: not known before a list ends.
	Objects *int64     `json:"objects,omitzero"`
	List    *ListState `json:"list,omitzero"` // under way
	Gap     *GapState  `json:"gap,omitzero"`  // the last one since the start
	// Diffs says that modified events are to tell what changed.
	Diffs bool `json:"-"`
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

// goesBy shows what a member's options ask for, and what the server calls the resource
// now, if it serves it.
func (c *CollectionStatus) goesBy(m *member) {
	c.Diffs = m.options.Before || m.options.Patch
	if r := m.target.Resource; r.Version != "" {
		c.Kind, c.Version = r.Kind, r.APIVersion()
	}
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

func (s *laneStatus) add(m *member, route string, metrics *Metrics, sink string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.collections == nil {
		s.collections = map[string]*shown{}
	}
	m.tally.objects.Store(unknownObjects)
	c := &shown{tally: &m.tally}
	c.Collection, c.Resource, c.State, c.Since = m.id, m.resource, source.Discovering, time.Now()
	c.Route = route
	c.goesBy(m)
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

// changed shows that a member's options or target have changed.
func (s *laneStatus) changed(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collections[m.id].goesBy(m)
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
		now.LastError = &Trouble{Error: now.Error, Advice: advice(err), At: now.Since}
		s.waiting[name] = now
		if errors.Is(err, errNamespacesUnknown) { // they come in a moment
			l.reminder().works(l.absenceKey(name))
			continue
		}
		l.reminder().failed(l.absenceKey(name), failure{
			message: "waiting for a resource", every: remindAbsence, err: err, advice: now.LastError.Advice,
			fields: []zap.Field{zap.String("sink", l.id.Sink), zap.String("resource", name)},
		})
	}
	for name := range before {
		if _, ok := why[name]; !ok {
			l.reminder().works(l.absenceKey(name))
		}
	}
}

// absenceKey is what the reminder has a resource under that is waited for.
func (l *Lane) absenceKey(name string) string { return l.id.Sink + ": resource " + name }

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
		c.RV = ev.ResourceVersion
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
	out.LastError, out.LastEvent, out.LastCommit = s.lastError, ifAny(s.last), ifAny(s.committed)
	if s.failed != "" {
		out.FailingSince = ifAny(s.since)
	}
	out.Queue = s.queue()
	for _, c := range s.collections {
		out.Collections = append(out.Collections, c.status())
	}
	for _, c := range s.waiting {
		out.Collections = append(out.Collections, c)
	}
	sort.Slice(out.Collections, func(i, j int) bool { return out.Collections[i].Collection < out.Collections[j].Collection })
	return out
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
		Events: s.flying.records.Load() + s.filling.records.Load(), Capacity: 2 * batchRecords,
		Bytes: s.flying.bytes.Load() + s.filling.bytes.Load(), Room: 2 * batchBytes,
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
	route := errors.As(st.Err, new(*sink.RouteError)) // said in full elsewhere
	var met error
	if !route {
		met = st.Err
	}
	// The begin of another attempt to list proves nothing; its first page does.
	attempt := st.Err == nil && st.Phase == source.Reconciling && before.State != source.Reconciling
	if !attempt {
		c.own = l.outage.met(l.id.Sink+": "+m.id, met)
	}
	c.State, c.Error, c.Until = st.Phase, "", nil
	c.left = st.Left
	if before.State != st.Phase {
		c.Since = st.Since
		c.tally.read.Store(0)
	}
	if st.Err != nil {
		c.Error = st.Err.Error()
		c.Until = ifAny(st.Until)
		c.LastError = &Trouble{Error: c.Error, Advice: advice(st.Err), At: st.Since}
	}
	now := *c
	s.mu.Unlock()
	l.metrics.state.WithLabelValues(l.id.Sink, m.resource, string(before.State)).Dec()
	l.metrics.state.WithLabelValues(l.id.Sink, m.resource, string(st.Phase)).Inc()
	switch key := l.collectionKey(m); {
	case route, attempt:
	case st.Phase == source.Gone:
		l.reminder().works(key)
	case now.own:
		l.reminder().failed(key, failure{
			message: "collection " + string(st.Phase) + "; trying again", err: st.Err, advice: advice(st.Err),
			fields: []zap.Field{zap.String("sink", l.id.Sink), m.field()},
		})
	default:
		if after := l.reminder().works(key); after > 0 && st.Err == nil {
			l.log.Info("collection goes on", m.field(), zap.String("state", string(st.Phase)), zap.Duration("after", after))
		}
	}
}
