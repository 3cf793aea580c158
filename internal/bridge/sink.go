package bridge

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution"
	"github.com/kubebridge/kubebridge/internal/buffer"
	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/feed"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	planning "github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// replanAfter is how long after a plan with unserved or ended collections the next plan is made.
const replanAfter = 10 * time.Second

// pipelineOptions are the options of a pipeline. Shown, Linger and Delivered are optional.
type pipelineOptions struct {
	Identity  event.Identity
	Shown     status.Sink // see [SinkSpec.Shown]; may be zero
	Sink      sink.Sink
	Store     checkpoint.Store
	Encode    encode.Config
	Client    *source.Client
	Lists     *feed.Lists   // limits the lists that run at once; shared by all pipelines
	Linger    time.Duration // how long a batch waits for more records; 0: not at all
	Log       *zap.Logger
	Metrics   *Metrics
	Delivered func([]event.Record) // called with the records of each batch that is committed; it may not keep them
	Outage    *outage              // shared by all pipelines; nil: the pipeline makes its own
	Buffer    openBuffer           // shared by all pipelines; zero: nothing is buffered on disk
	Audit     *attribution.Spec    // nil: nobody asks who made changes

	reader loop.Reader // for tests; nil: the pipeline reads from Client
}

// Pipeline is one sink with its watches, its batches and its checkpoint.
type Pipeline struct {
	*reporter
	identity  event.Identity
	delivery  *delivery.Delivery
	store     *retryingReader
	loop      *loop.Loop
	encoder   *encode.Encoder
	delivered func([]event.Record)

	unpublishable atomic.Uint64     // events that the bus refused, also as dead letters
	audit         *attribution.Sink // nil: nobody asks who made changes
	denied        bool              // refused requests are published

	mu      sync.Mutex
	targets map[string]target // the targets that collections read
	changed chan struct{}     // closed when targets changes
	unnamed map[string]bool   // the collections in the checkpoint that no plan has named since the start or an edit: see nameLater
	shown   map[string]*collectionCounts
	again   func() // requests another plan; nil: the pipeline does not follow a plan yet

	// Only the goroutine that follows the plan uses these.
	planned plannedLog
	last    map[string]planning.Collection // see [planning.Known].Last
	replans *time.Timer                    // requests the next plan; nil: not yet
	buffer  *buffer.Sink
}

// newPipeline returns a pipeline that is not running yet.
func newPipeline(o pipelineOptions) *Pipeline {
	o.Shown.Name = o.Identity.Sink
	p := &Pipeline{
		reporter: newReporter(o.Shown, o.Log, o.Metrics, o.Outage), identity: o.Identity, delivered: o.Delivered,
		targets: map[string]target{}, unnamed: map[string]bool{}, changed: make(chan struct{}), last: map[string]planning.Collection{}, shown: map[string]*collectionCounts{},
	}
	p.buffer = buffer.NewSink(o.Buffer.Buffer, o.Identity.Sink, p.log)
	p.store = &retryingReader{Store: o.Store, reminder: p.reminder(), sink: p.name}
	var reader loop.Reader = feed.New(feed.Options{
		Client: o.Client, Lists: o.Lists, Target: p.target, Changed: p.targetsChanged, OnState: p.stateChanged, Log: p.log,
		Backlog: p.buffer.Backlogs(),
	})
	if o.reader != nil {
		reader = o.reader
	}
	encoding := p.encoderOptions(&o)
	var delayer loop.Delayer
	var chronicle loop.Chronicle
	if o.Audit != nil {
		p.denied = o.Audit.Denied
		p.audit = attribution.NewSink(attribution.SinkOptions{
			Spec: o.Audit, Name: p.name, Plain: encoding.Encoder.Format == event.Plain, Scope: p.scope, Log: p.log,
		})
		encoding.Witness, encoding.Chronicle, delayer, chronicle = p.audit, p.audit, p.audit, p.audit
	}
	p.encoder = encode.New(encoding)
	p.delivery = delivery.New(delivery.Options{Sink: o.Sink, Store: o.Store, Retry: p.retry, Once: p.once})
	p.loop = loop.New(loop.Options{
		Delivery: p.delivery,
		Store:    p.store, Reader: reader, Encoder: counting{p.encoder, p}, Observer: p, Linger: o.Linger, Replan: p.replan, Delayer: delayer, Chronicle: chronicle, Log: p.log,
	})
	p.store.pings = p.loop.Pings()
	return p
}

func (p *Pipeline) encoderOptions(o *pipelineOptions) encode.Options {
	return encode.Options{
		Config: o.Encode, Store: p.store, Log: p.log, Count: p.count,
		Reports: encode.Reports{
			Plan:   func(collection string) *event.Plan { return p.loop.Numbers(collection) },
			Counts: func(i *reconcile.Item) *event.Counts { return p.countsOf(i.Collection).synced() },
		},
		Run: func(collection string) (run, incarnation uint64) {
			s := p.loop.State(collection)
			return s.Run, s.Incarnation
		},
	}
}

// Run opens the sink and delivers until stop ends. Then it delivers the emitted events, until ctx
// ends. It returns nil when everything is committed. It closes the sink; it neither opens nor closes
// the store.
func (p *Pipeline) Run(ctx, stop context.Context) error {
	p.store.ctx = ctx
	if err := p.loop.Run(ctx, stop); err != nil {
		return err
	}
	p.log.Info("stopped: everything published is committed")
	return nil
}

// Alive reports whether the pipeline's loop answers before ctx ends. It also answers while it waits for
// the bus or the store.
func (p *Pipeline) Alive(ctx context.Context) bool { return p.loop.Alive(ctx) }

// Status returns the pipeline's present state.
func (p *Pipeline) Status() status.Sink {
	out := p.present()
	for i := range out.Collections {
		c := &out.Collections[i]
		committed, _, err := durable.Position(p.store.Store, c.ID)
		// Behind the last event, bookmarks move the position. While a list is under way there is none.
		if err != nil || !event.Older(committed, c.Position) {
			c.Position = committed
		}
	}
	out.Lost, out.Foreign = p.delivery.Lost(), p.delivery.Foreign()
	if p.audit != nil {
		if n := p.audit.Counts(); n != nil {
			out.Attribution = attributionStatus(*n, p.denied)
		}
	}
	if n := p.unpublishable.Load(); n > 0 {
		if out.Lost == nil {
			out.Lost = new(uint64)
		}
		*out.Lost += n
	}
	return out
}

// Resync publishes the present state of a resource, or of one collection by its ID, again. It
// returns the IDs of the collections.
func (p *Pipeline) Resync(ctx context.Context, resource string) ([]string, error) {
	return p.loop.Resync(ctx, func(id string) bool { return id == resource || loop.Resource(id) == resource })
}

func (p *Pipeline) replan() {
	p.mu.Lock()
	again := p.again
	p.mu.Unlock()
	if again != nil {
		again()
	}
}

// replanLater requests another plan after a time, instead of the one that was requested by the last call.
func (p *Pipeline) replanLater(needed bool) {
	if p.replans != nil {
		p.replans.Stop()
	}
	if needed {
		p.replans = time.AfterFunc(replanAfter, p.replan)
	}
}

// target implements [feed.Options.Target].
func (p *Pipeline) target(collection, selection string) (source.Target, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, ok := p.targets[collection]
	return t.Target, ok && t.selection == selection
}

// target is a source target with its selection.
type target struct {
	source.Target
	selection string // of its properties
}

func (p *Pipeline) targetsChanged() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

func (p *Pipeline) setTarget(collection string, t target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.targets[collection] == t {
		return
	}
	p.targets[collection] = t
	delete(p.unnamed, collection)
	close(p.changed)
	p.changed = make(chan struct{})
}

// known returns the collections that are in the checkpoint or wanted.
func (p *Pipeline) known(ctx context.Context) ([]planning.Known, error) {
	known, err := p.loop.Known(ctx)
	for i := range known {
		if last, read := p.last[known[i].ID]; read {
			known[i].Last = &last
		}
	}
	return known, err
}

// apply passes a plan on to the loop, and shows its collections in the status.
func (p *Pipeline) apply(ctx context.Context, made *planning.Plan, out planning.Outcomes, known []planning.Known) error {
	p.planned.log(p.log, made)
	for _, id := range out.Outdated {
		p.readNoMore(id)
	}
	allNamed := p.nameLater(known, slices.Concat(out.Undecided, out.Outdated))
	next := loop.Plan{Outcomes: &out}
	for _, c := range slices.Concat(out.Wanted, out.Unserved, out.Ended) {
		p.last[c.ID()] = c
		p.show(&c)
		next.Wanted = append(next.Wanted, p.wanted(&c))
	}
	for _, id := range out.Removed {
		p.hide(id)
	}
	waiting := map[string]error{}
	for _, list := range []map[string]error{made.Unknown, made.Waiting} {
		for what, why := range list {
			waiting[what] = why
		}
	}
	p.Waiting(waiting)
	p.replanLater(len(out.Ended)+len(out.Unserved) > 0)
	if allNamed { // else what was recorded of a collection waits for a later plan
		p.buffer.Come()
	}
	err := p.loop.Set(ctx, next)
	for _, id := range out.Outdated { // the loop may have set it again before it took the plan, for example when a pause has ended
		p.dropTarget(id, true)
	}
	return err
}

// readNoMore ends the reading of a collection by settings that are not those of its entry any more. What is recorded of it on disk may have values
// in clear that the entry hides.
func (p *Pipeline) readNoMore(id string) {
	delete(p.last, id)
	p.dropTarget(id, true)
	p.buffer.Allow(id, true, true)
}

// dropTarget removes the target of a collection. unnamed says whether another plan may name the collection again: see nameLater.
func (p *Pipeline) dropTarget(id string, unnamed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if unnamed {
		p.unnamed[id] = true
	} else {
		delete(p.unnamed, id)
	}
	if _, had := p.targets[id]; had {
		delete(p.targets, id)
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// nameLater notes the collections of the checkpoint of which the first plans after a start or an edit cannot say what becomes of them. Audit records
// are read before later plans can, and a list may find changes of these collections then. It returns whether there are no such collections.
func (p *Pipeline) nameLater(known []planning.Known, undecided []string) (allNamed bool) {
	later := map[string]bool{}
	for _, id := range undecided {
		later[id] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	allNamed = true
	for _, k := range known {
		if _, named := p.targets[k.ID]; named || !later[k.ID] {
			continue
		}
		allNamed = false
		p.unnamed[k.ID] = true
		if c := event.ParseCollection(k.ID); p.audit != nil {
			p.audit.KeepStorage(&c, k.Storage)
		}
	}
	return allNamed
}

func (p *Pipeline) wanted(c *planning.Collection) loop.Wanted {
	o, _ := c.Options.(CollectionOptions)
	if o.Types == nil && planning.Expires(&c.Target.Collection) {
		o.Types = []event.Type{event.Added, event.Modified}
	}
	t := c.Target
	if t.Resource.Version == "" { // it is not served; what was recorded of it in the version before is published first
		if recorded, ok := p.buffer.Recorded(&t.Collection, c.Selection); ok {
			t = recorded
		}
	}
	s := &settings{p: p, id: c.ID(), options: o, target: target{t, c.Selection}, storage: c.Storage}
	if v := t.Resource.Version; v != "" { // objects have other bodies in another version
		s.target.selection = planning.InVersion(c.Selection, v)
	}
	return loop.Wanted{
		ID: s.id, SyncedEvery: o.SyncedEvery, ResyncEvery: o.ResyncEvery, VerifyEvery: o.VerifyEvery,
		Properties: s.properties, Use: s.use, Keep: s.keep,
	}
}

// settings are what a plan says of a collection, for [loop.Wanted].
type settings struct {
	p        *Pipeline
	id       string
	options  CollectionOptions
	target   target
	storage  string
	compiled encode.Compiled
}

func (s *settings) properties() (properties reconcile.Properties, err error) {
	s.compiled, err = s.p.encoder.Compile(s.target.Collection, s.options.Settings)
	if err != nil {
		return properties, &planning.ConfigError{Err: err}
	}
	properties = s.compiled.Properties()
	properties.Selection, properties.Storage = s.target.selection, s.storage
	properties.Contents.Labels, properties.Contents.Fields = planning.Selectors(s.target.selection) // a recorded selection has its own
	return properties, nil
}

// use makes the reader and the encoder use the settings.
func (s *settings) use() { s.uses(s.target, s.compiled) }

func (s *settings) uses(t target, compiled encode.Compiled) {
	s.p.encoder.Use(compiled)
	s.p.buffer.Allow(s.id, !s.options.Unbuffered, compiled.Hides())
	s.p.setTarget(s.id, t)
	if s.p.audit != nil {
		s.p.audit.SetStorage(&t.Collection, s.storage)
	}
	s.p.continued(s.id)
}

// keep makes the reader and the encoder use the selection, the filter and the ignore rules that are in effect, as long as there is a recording
// by this selection. What else the settings say does not make a list necessary, and is used.
func (s *settings) keep(present reconcile.Properties) bool {
	if s.options.Unbuffered {
		return false
	}
	t, ok := s.p.buffer.Recorded(&s.target.Collection, present.Selection)
	if !ok {
		return false
	}
	before, ok := s.options.WithFilter(present)
	if !ok {
		return false
	}
	compiled, err := s.p.encoder.Compile(t.Collection, before)
	if err != nil { // it was compiled by another release
		return false
	}
	s.uses(target{t, present.Selection}, compiled)
	return true
}

func (p *Pipeline) show(c *planning.Collection) {
	id := c.ID()
	o, _ := c.Options.(CollectionOptions)
	describe := func(s *status.Collection) {
		s.Diffs, s.Route = o.Before || o.Patch, p.ownRoute(&c.Target.Collection, o.Route)
		if r := c.Target.Resource; r.Version != "" {
			s.Kind, s.APIVersion = r.Kind, r.APIVersion()
		}
	}
	if p.countsOf(id) != nil {
		p.status.changed(id, describe)
		return
	}
	counts := &collectionCounts{}
	p.mu.Lock()
	p.shown[id] = counts
	p.mu.Unlock()
	s := status.Collection{ID: id, Resource: c.Target.Collection.ResourceID()}
	describe(&s)
	p.status.add(s, &counts.tally)
}

// ownRoute returns the route of a collection's events, as [status.Collection] shows it.
func (p *Pipeline) ownRoute(c *event.Collection, own encode.Route) string {
	switch {
	case own.Topic != nil:
		return own.Topic.Topic(shape.Values{Cluster: p.encoder.Encoder.Cluster, Group: c.Group, Resource: c.Resource, Entry: c.Entry})
	case own.Subject != nil:
		return own.Subject.String()
	}
	return ""
}

// hide removes a collection from the status, and drops the data of its reader and encoder.
func (p *Pipeline) hide(id string) {
	p.mu.Lock()
	delete(p.shown, id)
	p.mu.Unlock()
	delete(p.last, id)
	p.dropTarget(id, false)
	p.buffer.Forget(id)
	p.encoder.Remove(id)
	p.remove(id)
}

// countsOf returns the counts of a collection; nil if the status does not show it.
func (p *Pipeline) countsOf(id string) *collectionCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown[id]
}

// shows reports whether the status shows a collection of a resource.
func (p *Pipeline) shows(resource string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.shown {
		if loop.Resource(id) == resource {
			return true
		}
	}
	return false
}
