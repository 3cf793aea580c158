package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/loop"
	planning "github.com/kubebridge/kubebridge/internal/plan"
	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// Committed implements [loop.Observer].
func (p *Pipeline) Committed(items []reconcile.Item, records []event.Record) {
	p.reporter.delivered(records)
	p.metrics.lastCommit.WithLabelValues(p.name).SetToCurrentTime()
	p.status.commits()
	for n := range items {
		i := &items[n]
		if i.Event != nil {
			p.logEvent(i)
		}
	}
	if p.delivered != nil {
		p.delivered(records)
	}
}

// Counted implements [loop.Observer].
func (p *Pipeline) Counted(collection string, objects int64, known bool) {
	if !known {
		objects = unknownObjects
	}
	if c := p.countsOf(collection); c != nil {
		c.tally.objects.Store(objects)
	}
}

// logEvent logs an event about a collection.
func (p *Pipeline) logEvent(i *reconcile.Item) {
	resource, e := loop.Resource(i.Collection), i.Event
	fields := []zap.Field{zap.String("collection", i.Collection), zap.String("reason", e.Reason)}
	switch e.Type {
	case event.Gap:
		p.metrics.lists.WithLabelValues(p.name, resource, e.Reason).Inc()
		p.log.Info("gap", append(fields, zap.Bool("reset", e.Reset), zapRV("from", e.From))...)
	case event.Synced:
		if e.Reason == reconcile.ReasonPeriodic {
			return
		}
		p.metrics.listed.WithLabelValues(p.name, resource, e.Reason).Inc()
		p.log.Info("synced", append(fields, zapRV("resourceVersion", e.Version))...)
	case event.Closed:
		p.log.Info("collection closed", zap.String("collection", i.Collection))
	}
}

// Queued implements [loop.Observer].
func (p *Pipeline) Queued(flying, filling loop.Load) {
	p.status.flying.set(flying)
	p.status.filling.set(filling)
}

// set shows a batch.
func (w *load) set(b loop.Load) {
	w.records.Store(int64(b.Records))
	w.bytes.Store(int64(b.Bytes))
	if b.Records == 0 {
		w.oldest.Store(0)
		return
	}
	w.oldest.Store(b.Since.UnixNano())
}

// Suspended implements [loop.Observer].
func (p *Pipeline) Suspended(collection string, until time.Time, why error) {
	key := p.routeKey(collection)
	if why == nil {
		p.reminder().works(key)
		return
	}
	p.reminder().failed(key, failure{
		message: "collection suspended: the bus refuses its records; the others go on", err: why, advice: advice(why),
		lasts:  2 * suspendMost, // what was refused may be filtered out by then
		fields: []zap.Field{zap.String("sink", p.name), zap.String("collection", collection), zap.Time("until", until)},
	})
	p.state(collection, source.State{Phase: source.Waiting, Since: time.Now(), Until: until, Err: why})
	p.metrics.suspended.WithLabelValues(p.name, loop.Resource(collection)).Inc()
}

// retryingStore is the store that the loop reads. It retries reads that fail, for example while the disk
// is full.
type retryingStore struct{ patient }

var _ checkpoint.Store = (*retryingStore)(nil)

// plannedLog has what was logged about the last plan.
type plannedLog struct{ skipped, unmatched, warnings []string }

// log logs what a plan leaves out and warns about, if that has changed.
func (l *plannedLog) log(log *zap.Logger, p *planning.Plan) {
	if !slices.Equal(l.skipped, p.Skipped) {
		l.skipped = p.Skipped
		log.Info("resources that patterns leave out", zap.Strings("skipped", p.Skipped))
	}
	if !slices.Equal(l.unmatched, p.Unmatched) {
		if l.unmatched = p.Unmatched; len(p.Unmatched) > 0 {
			log.Warn("patterns that match nothing now", zap.Strings("patterns", p.Unmatched))
		}
	}
	if !slices.Equal(l.warnings, p.Warnings) {
		if l.warnings = p.Warnings; len(p.Warnings) > 0 {
			log.Warn("entries that may select the same objects", zap.Strings("entries", p.Warnings))
		}
	}
}

// follow implements runner.
func (p *Pipeline) follow(ctx context.Context, b *Bridge) error {
	f := planning.NewFollower(planning.FollowerOptions{
		Cluster: b.cluster,
		Apply: func(ctx context.Context, made *planning.Plan) error {
			return p.apply(ctx, made, func(namespace string) bool { return b.cluster.Absent(ctx, namespace) })
		},
		Rejected: func(err error) { p.log.Error("new configuration rejected; keeping the previous one", zap.Error(err)) },
	})
	p.mu.Lock()
	p.again = f.Replan
	p.mu.Unlock()
	b.mu.Lock()
	b.followers[p.name] = f
	wanted := b.entries[p.name]
	b.mu.Unlock()
	f.Set(planEntries(wanted.Resources), wanted.Exclude)
	return classifyPlan(f.Run(ctx))
}

// classifyPlan converts an error of internal/plan to one of this package.
func classifyPlan(err error) error {
	var (
		config      *planning.ConfigError
		environment *planning.EnvironmentError
	)
	switch {
	case errors.As(err, &config):
		return &ConfigError{err}
	case errors.As(err, &environment):
		return &EnvironmentError{err}
	}
	return err
}

// planEntries converts configured resources for internal/plan.
func planEntries(resources []ResourceSpec) (all []planning.Entry) {
	for _, r := range resources {
		all = append(all, planning.Entry{
			Resource: r.Name, Name: r.Entry, Namespaces: r.Namespaces, NamespaceSelector: r.NamespaceSelector, ExcludeNamespaces: r.ExcludeNamespaces,
			LabelSelector: r.LabelSelector, FieldSelector: r.FieldSelector, MetadataOnly: r.MetadataOnly, Required: r.Required,
			Options: r.CollectionOptions,
		})
	}
	return all
}

func resourcesOf(lanes []LaneSpec) (all []LaneResources) {
	for _, l := range lanes {
		all = append(all, l.LaneResources)
	}
	return all
}

// planTrouble logs an error that keeps plans from being up to date, repeatedly until it is over.
func (b *Bridge) planTrouble(what string, err error) {
	if b.outage.met(what, err) {
		b.outage.reminder.failed(what, failure{message: "plan may be out of date; asking again", err: err, advice: advice(err), fields: []zap.Field{zap.String("what", what)}})
		return
	}
	if err == nil {
		b.outage.reminder.works(what)
	}
}
