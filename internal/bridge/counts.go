package bridge

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// tally has the counts of a collection for the status. Any goroutine may read it.
type tally struct {
	objects atomic.Int64 // in the inventory; below 0: not known
	read    atomic.Int64 // by the list under way
}

// collectionCounts are the counts of one collection. Only the loop's goroutine uses the fields other than tally.
type collectionCounts struct {
	tally tally // for the status
	// since has the counts of the synced event of a list: events since the last gap, and objects of the list
	// that began last.
	since event.Counts
	run   uint64 // of the last gap; 0: no gap since the start
	// quiet is how many objects of the list have led to no event since the gap, and were not filtered out.
	quiet        int
	undecided    bool // the current object is counted in quiet
	unpublished  int  // objects of the list that the first list skipped and that have not changed since
	skips        bool // objects of the list are not published
	seen, repeat prometheus.Counter
}

// synced returns the counts since the last gap, or nil for a collection that is not shown.
func (c *collectionCounts) synced() *event.Counts {
	if c == nil {
		return nil
	}
	out := c.since
	if c.skips {
		out.Skipped = c.quiet
	} else {
		out.Skipped, out.Unchanged = c.unpublished, c.quiet
	}
	return &out
}

func (c *collectionCounts) gap(run uint64, skips bool) {
	c.since, c.run, c.skips = event.Counts{}, run, skips
	c.listBegun()
}

// listBegun begins the counts of a list. A list that begins again has the run of its predecessor.
func (c *collectionCounts) listBegun() {
	c.since.Listed, c.quiet, c.unpublished, c.undecided = 0, 0, 0, false
	c.tally.read.Store(0)
}

func (c *collectionCounts) sighted(s *reconcile.Sighting, known *reconcile.Object) {
	c.undecided = false
	if s.Origin == reconcile.Watch || s.Form != reconcile.Seen {
		return
	}
	c.since.Listed++
	c.tally.read.Add(1)
	switch {
	case known != nil && known.UID == s.UID && known.Status == reconcile.Skipped && known.Version == s.Version && known.Digest == s.Digest && !c.skips:
		c.unpublished++
	case known == nil || known.UID != s.UID || known.Run != c.run: // otherwise its event is counted already
		c.undecided = true
		c.quiet++
	}
}

// decided records that the current object is published or filtered out.
func (c *collectionCounts) decided() {
	if c.undecided {
		c.undecided = false
		c.quiet--
	}
}

// counted counts an event of an object since the last gap. Only the synced event of a list shows the
// counts, so events after it do not matter.
func (c *collectionCounts) counted(t event.Type) {
	switch t {
	case event.Added:
		c.since.Added++
	case event.Modified:
		c.since.Modified++
	case event.Deleted:
		c.since.Deleted++
		return
	case event.Present:
		c.since.Present++
	}
	c.decided()
}

// counting is the loop's encoder. It also counts the objects and events that it gets, for the pipeline.
type counting struct {
	*encode.Encoder
	p *Pipeline
}

// answer answers a waiting call of [Pipeline.Alive]. Without it the loop would answer only after all objects of a batch,
// and each object may take a large part of a second.
func (p *Pipeline) answer() {
	select {
	case p.store.pings <- struct{}{}:
	default:
	}
}

// Prepare implements [loop.Encoder].
func (e counting) Prepare(collection string, s *reconcile.Sighting, known *reconcile.Object, inDoubt bool) {
	e.p.answer()
	e.Encoder.Prepare(collection, s, known, inDoubt)
	c := e.p.countsOf(collection)
	if c == nil || s.Form == reconcile.Lacking {
		return
	}
	if c.seen == nil {
		c.seen = e.p.metrics.seen.WithLabelValues(e.p.name, loop.Resource(collection))
		c.repeat = e.p.metrics.repeated.WithLabelValues(e.p.name, loop.Resource(collection))
	}
	c.seen.Inc()
	if s.Form == reconcile.Seen && known != nil && known.UID == s.UID && known.Version == s.Version && known.Digest == s.Digest {
		c.repeat.Inc()
	}
	c.sighted(s, known)
}

// Encode implements [loop.Encoder].
func (e counting) Encode(i *reconcile.Item, detail string, at time.Time) (event.Record, []event.KV) {
	e.p.answer()
	c := e.p.countsOf(i.Collection)
	switch {
	case c == nil:
	case i.Object != nil:
		c.counted(i.Object.Type)
	case i.Attribution != nil:
	case i.Event.Type == event.Gap:
		c.gap(i.Run, i.Event.Reset && e.p.loop.State(i.Collection).Skips)
	}
	return e.Encoder.Encode(i, detail, at)
}

// count counts an action of the encoder.
func (p *Pipeline) count(collection string, what encode.Count, t event.Type) {
	resource := loop.Resource(collection)
	switch what {
	case encode.Filtered:
		p.metrics.filtered.WithLabelValues(p.name, resource, t.String()).Inc()
		if c := p.countsOf(collection); c != nil {
			c.since.Filtered++
			c.decided()
		}
	case encode.Lost:
		p.unpublishable.Add(1)
	case encode.CostlyPatch:
		p.metrics.costly.WithLabelValues(p.name, resource, "diff").Inc()
	case encode.CostlyChangedBy:
		p.metrics.costly.WithLabelValues(p.name, resource, "changedBy").Inc()
	default:
		p.metrics.other[what].WithLabelValues(p.name, resource).Inc()
	}
}
