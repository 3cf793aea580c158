package bridge

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/loop"
	planning "github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// Committed implements [loop.Observer].
func (p *Pipeline) Committed(c *loop.Commit) {
	p.reporter.delivered(c.Records)
	p.status.commits()
	for i := range c.Items {
		if c.Items[i].Event != nil {
			p.logEvent(&c.Items[i])
		}
	}
	for _, id := range c.Changed {
		if counts := p.countsOf(id); counts != nil {
			counts.tally.objects.Store(p.loop.State(id).Objects)
		}
	}
	if p.delivered != nil {
		p.delivered(c.Records)
	}
}

// continued shows the checkpoint's data about a collection. It is called from the loop's goroutine.
func (p *Pipeline) continued(collection string) {
	c := p.countsOf(collection)
	if c == nil {
		return
	}
	s := p.loop.State(collection)
	if s.Run == 0 {
		return // it is new; or it is suspended, and what is shown stays
	}
	c.tally.objects.Store(s.Objects)
}

// ListBegun implements [loop.Observer].
func (p *Pipeline) ListBegun(collection string) {
	if c := p.countsOf(collection); c != nil {
		c.listBegun()
	}
}

func (p *Pipeline) logEvent(i *reconcile.Item) {
	resource, e := loop.Resource(i.Collection), i.Event
	fields := []zap.Field{zap.String("collection", i.Collection), zap.String("reason", string(e.Reason))}
	switch e.Type {
	case event.Gap:
		p.log.Info("gap", append(fields, zap.Bool("reset", e.Reset), zapRV("from", e.From))...)
	case event.Synced:
		if !slices.Contains(event.ReasonsOf(event.Gap), e.Reason) {
			return // this synced event closes no gap
		}
		p.metrics.listed.WithLabelValues(p.name, resource, string(e.Reason)).Inc()
		p.log.Info("synced", append(fields, zapRV("resourceVersion", e.Version))...)
	case event.Closed:
		p.log.Info("collection closed", zap.String("collection", i.Collection))
	}
}

// Queued implements [loop.Observer].
func (p *Pipeline) Queued(flying, filling loop.Load) {
	p.status.queued(flying, filling)
	p.buffer.Queued(flying, filling)
}

// Suspended implements [loop.Observer].
func (p *Pipeline) Suspended(collection string, until time.Time, why error) {
	key := p.routeKey(collection)
	if why == nil {
		p.reminder().works(key)
		return
	}
	p.reminder().failed(key, failure{
		message: "collection suspended: the bus refuses its records; the others go on", err: why, advice: advice(why, adviceRoute),
		lasts:  2 * loop.LastPause, // the filter may leave the refused object out by then, so a success may never follow
		fields: []zap.Field{zap.String("sink", p.name), zap.String("collection", collection), zap.Time("until", until)},
	})
	p.stateChanged(collection, source.State{Phase: source.Waiting, Since: time.Now(), Until: until, Err: why})
	p.metrics.suspended.WithLabelValues(p.name, loop.Resource(collection)).Inc()
}

// EditWaits implements [loop.Observer].
func (p *Pipeline) EditWaits(collection string, waits bool) {
	p.status.changed(collection, func(c *status.Collection) {
		c.EditWaits = nil
		if waits {
			now := time.Now()
			c.EditWaits = &now
		}
	})
}

type plannedLog struct{ skipped, unmatched, warnings []string }

// log logs a plan's skipped resources, unmatched patterns and warnings, if they have changed.
func (l *plannedLog) log(log *zap.Logger, p *planning.Plan) {
	if !slices.Equal(l.skipped, p.Skipped) {
		l.skipped = p.Skipped
		log.Info("skipped resources that patterns do not include", zap.Strings("skipped", p.Skipped))
	}
	if !slices.Equal(l.unmatched, p.Unmatched) {
		if l.unmatched = p.Unmatched; len(p.Unmatched) > 0 {
			log.Warn("found patterns that match nothing", zap.Strings("patterns", p.Unmatched))
		}
	}
	if !slices.Equal(l.warnings, p.Warnings) {
		if l.warnings = p.Warnings; len(p.Warnings) > 0 {
			log.Warn("found entries or rules that may not do what is meant", zap.Strings("warnings", p.Warnings))
		}
	}
}

// zapRV returns a field with a resourceVersion, or an empty field for "".
func zapRV(key, rv string) zap.Field {
	if rv == "" {
		return zap.Skip()
	}
	return zap.String(key, rv)
}
