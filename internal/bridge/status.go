package bridge

import (
	"cmp"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// sinkStatus is the state of a sink with its pipeline. The pipeline's goroutines write it, any goroutine may read it.
type sinkStatus struct {
	mu          sync.Mutex
	batches     [2]loop.Load // the one that fills, and the older one on its way
	operation   operation    // that is retried until it succeeds
	check       operation    // the check of the bus between two writes
	lastError   *status.Trouble
	count       uint64
	last        time.Time
	committed   time.Time
	collections map[string]*shown
	waiting     map[string]status.Collection // by configured name
}

// shown is a collection in the status.
type shown struct {
	status.Collection
	tally *tally
	left  *int64 // objects on the pages that the running list has not read
	own   bool   // Error concerns only this collection: see outage
}

// operation is the state of what a sink does with its bus and its checkpoint.
type operation struct {
	failing string    // what fails, and why; "": nothing
	since   time.Time // of failing

	what  string    // what is under way; "": nothing
	began time.Time // of what
}

// silent is how long an operation may have no result before it counts as failing.
const silent = 15 * time.Second

// failure returns what fails, and since when; "": nothing.
func (o *operation) failure() (failing string, since time.Time) {
	if o.failing == "" && o.what != "" && time.Since(o.began) > silent {
		return o.what + ": no answer yet", o.began
	}
	return o.failing, o.since
}

// begins shows an operation that is under way; "": none is.
func (s *sinkStatus) begins(o *operation, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.what, o.began = what, time.Now()
}

// ends shows the result of an operation: why it fails and is done again, "" if it does not fail.
func (s *sinkStatus) ends(o *operation, why, advice string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case why == "":
		o.since = time.Time{}
	case o.failing == "":
		o.since = time.Now()
	}
	o.failing = why
	if why != "" {
		s.lastError = &status.Trouble{Error: why, Advice: advice, At: time.Now()}
	}
}

func (s *sinkStatus) commits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = time.Now()
}

// add shows a collection. route is its own, "" if it has none.
func (s *sinkStatus) add(c status.Collection, t *tally) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.collections == nil {
		s.collections = map[string]*shown{}
	}
	t.objects.Store(-1)
	c.State, c.Since = status.Discovering, time.Now()
	s.collections[c.ID] = &shown{Collection: c, tally: t}
}

func (s *sinkStatus) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.collections, id)
}

func (s *sinkStatus) changed(id string, change func(*status.Collection)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.collections[id]; c != nil {
		change(&c.Collection)
	}
}

func (s *sinkStatus) delivered(records []event.Record) {
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
		c.Delivered++
		c.LastEvent = &now
		if ev.Origin == event.Watch && !ev.Type.OfCollection() {
			behind[c] = now.Sub(ev.Time)
			c.Position = cmp.Or(ev.DeletionVersion, ev.ResourceVersion)
		}
		switch ev.Type {
		case event.Synced:
			c.Synced = &now
			if c.InGap() {
				closed := *c.Gap
				closed.Closed = &now
				c.Gap = &closed
			}
		case event.Gap:
			c.Synced, c.Position = nil, ""
			c.Gap = &status.Gap{Reason: string(ev.Report.Reason), Detail: ev.Report.Detail, Opened: ev.Time}
		}
	}
	for c, d := range behind {
		seconds := d.Seconds()
		c.Lag, c.LagAt = &seconds, now
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

func (s *sinkStatus) queued(flying, filling loop.Load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = [2]loop.Load{filling, flying}
}

// queue returns what waits. The caller holds mu.
func (s *sinkStatus) queue() status.Queue {
	q := status.Queue{EventCapacity: 2 * loop.BatchRecords, ByteCapacity: 2 * loop.BatchBytes}
	for _, b := range s.batches {
		q.Events += int64(b.Records)
		q.Bytes += int64(b.Bytes)
		if b.Records > 0 {
			q.Oldest = ifAny(time.Unix(0, b.Since.UnixNano()))
		}
	}
	return q
}

// status returns a copy that does not change.
func (c *shown) status() status.Collection {
	out := c.Collection
	if n := c.tally.objects.Load(); n >= 0 {
		out.Objects = &n
	}
	if c.State == status.Reconciling {
		out.List = &status.List{Read: c.tally.read.Load(), Remaining: c.left}
	}
	return out
}
