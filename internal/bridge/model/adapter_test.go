package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// collectionID names a selection in events.
func collectionID(s selection) string {
	c := event.Collection{Group: group, Resource: resource, Namespace: s.namespace, Entry: s.entry.name}
	return c.ID()
}

// driftReason is the reason of a gap that is opened because consumers received something wrong, or nothing. This never
// happens in the model. Messages that an emptied bus has lost are published again by a reset.
const driftReason = "drift"

// delivery says how the writes of a sink and of its store are related.
type delivery int

const (
	transaction delivery = iota // the bus commits records and checkpoint in one transaction
	log                         // the bus can be read back
	intents                     // neither
)

func (d delivery) String() string { return [...]string{"transaction", "log", "intents"}[d] }

// sinkWorld is the bus and the store of one sink. Both outlive processes.
type sinkWorld struct {
	name      string
	mode      delivery
	mayRepeat bool // a crash may have repeated what the bus has: mode is intents, or was
	bus       *bus
	store     *memory
	dead      bool // records that do not fit go to the dead letters
	window    bool // the bus drops repeats within its duplicate window, as NATS does
	records   []event.Record
	emptied   int    // how often the bus has lost everything
	previous  config // before the last edit
	config    config
	away      bool    // the sink cannot be opened
	reset     bool    // requested by `bridge checkpoint reset`
	edited    *edited // the configuration, if it has more than an entry of this package can express
}

// resources returns the resources that the sink publishes.
func (s *sinkWorld) resources() bridge.SinkResources {
	if s.edited != nil {
		return bridge.SinkResources{Sink: s.name, Entries: s.edited.entries()}
	}
	return resources(s.name, s.config)
}

// process is a running bridge.
type process struct {
	*life
	bridge *bridge.Bridge
	stop   context.CancelFunc
	done   chan struct{}
	err    error
	client *source.Client

	candidate *candidate // nil: there is no leader election
}

// start starts a bridge over the sinks. With a board it is a candidate, and waits as a standby.
func start(api *server, sinks []*sinkWorld, disk *disk, b *board, logger *zap.Logger) (*process, error) {
	p := &process{life: newLife(), done: make(chan struct{})}
	var err error
	p.client, err = source.NewClient(&rest.Config{Host: "http://model", WrapTransport: func(http_ roundTripper) roundTripper { return api }})
	if err != nil {
		return nil, err
	}
	var specs []bridge.SinkSpec
	for _, s := range sinks {
		specs = append(specs, bridge.SinkSpec{
			SinkResources: s.resources(),
			Open: func(ctx context.Context, _ event.Identity) (sink.Sink, bridge.OpenStore, encode.Config, error) {
				if s.away {
					<-ctx.Done()
					return nil, nil, encode.Config{}, ctx.Err()
				}
				return s.open(p.life)
			},
		})
	}
	options := bridge.Options{
		Name: "b", Cluster: "c", Client: p.client, Sinks: specs, Log: logger, Metrics: bridge.NewMetrics(prometheus.NewRegistry()),
		Buffer: disk.spec(),
	}
	if b != nil {
		p.candidate = b.candidate(p.life)
		options.Elector, options.Buffer.Note = p.candidate, p.candidate
	}
	p.bridge = bridge.New(options)
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() {
		defer close(p.done)
		p.err = p.bridge.Run(ctx)
		p.client.Close()
	}()
	return p, nil
}

// edit gives another configuration to a running bridge, as a reload does.
func (p *process) edit(s *sinkWorld) {
	p.bridge.Reconfigure([]bridge.SinkResources{s.resources()})
}

// resync requests that every object is published again. The request may have to wait for the loop.
func (p *process) resync(s *sinkWorld) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, _ = p.bridge.Resync(ctx, s.name, resource+"."+group)
}

// endedBy returns the reason why a bridge ended on its own, or nil if it was asked to end.
func (p *process) endedBy() error {
	select {
	case <-p.done:
		if p.err == nil {
			return errors.New("it returned nil")
		}
		return p.err
	default:
		return nil
	}
}

func topic(n int) string { return "topic-" + strconv.Itoa(n+1) }

func template(text string) *shape.Template {
	t, err := shape.ParseTemplate(text, shape.TopicNames)
	if err != nil {
		panic(err)
	}
	return t
}

func resources(sinkName string, c config) bridge.SinkResources {
	out := bridge.SinkResources{Sink: sinkName}
	for _, e := range c {
		r := plan.Entry{Resource: resource + "." + group, Name: e.name, LabelSelector: e.x.selector(), MetadataOnly: e.metadata}
		var o bridge.CollectionOptions
		if e.version != "" {
			r.Resource = resource + "." + e.version + "." + group
		}
		if e.exclude {
			r.ExcludeNamespaces = []string{"n2"}
		}
		if e.team {
			r.NamespaceSelector = "team=a"
		}
		if e.filter {
			o.Filter = "object.?spec.?keep.orValue(true) == true"
		}
		for _, t := range []event.Type{event.Added, event.Modified, event.Deleted} {
			if strings.Contains(e.types, t.String()[:1]) {
				o.Types = append(o.Types, t)
			}
		}
		o.SkipSnapshot = e.skip
		if e.redact {
			o.Redact = []shape.Rule{{Paths: []string{"spec.padding"}}}
		}
		if e.verify {
			o.VerifyEvery = time.Minute
		}
		o.Route.Topic = template(topic(e.topic))
		r.Options = o
		out.Entries = append(out.Entries, r)
	}
	return out
}

func (s *sinkWorld) open(l *life) (sink.Sink, bridge.OpenStore, encode.Config, error) {
	form := encode.Config{Oversize: encode.Truncate, Route: encode.Route{Topic: template(topic(0))}}
	if s.dead {
		form.Oversize, form.DeadLetters = encode.ToDeadLetters, template("dead")
	}
	if s.edited != nil {
		form = s.edited.form
	}
	w := &writer{sinkWorld: s, life: l}
	store := &lifeStore{memory: s.store, world: s, life: l}
	switch s.mode {
	case transaction:
		return transactional{w}, store, form, nil
	case log:
		return readable{w}, store, form, nil
	default:
		return w, store, form, nil
	}
}

// askReset does what `bridge checkpoint reset` does while the bridge does not run.
func (s *sinkWorld) askReset() {
	s.store.apply([]event.KV{{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()}})
	s.store.sync()
}

// writer implements sink.Sink for one process.
type writer struct {
	*sinkWorld
	life *life
	seq  uint64
	done int // records of the batch seq that are durable
	// Messages that a predecessor may have written without a commit have numbers above committed and up to opened.
	// Messages of the batch seq have numbers above begun.
	committed, opened, begun int
	emptied                  int // the last value of sinkWorld.emptied that the writer has seen
}

// empty makes the bus lose all messages, like a stream that is deleted and created again. Consumers keep what they
// have read.
func (s *sinkWorld) empty() {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	s.emptied++
	s.records, s.bus.sent, s.bus.kept = nil, map[string]sent{}, len(s.bus.messages)
}

// mark returns the present end of the bus.
func (s *sinkWorld) mark() []byte { return fmt.Appendf(nil, "%d %d", s.emptied, len(s.records)) }

// parseMark parses a mark. nil is the beginning of the present content.
func (s *sinkWorld) parseMark(mark []byte) (number int, err error) {
	emptied := s.emptied
	if _, err := fmt.Sscan(string(mark), &emptied, &number); err != nil && mark != nil {
		panic(err)
	}
	if emptied != s.emptied {
		return 0, errEmptied
	}
	return number, nil
}

var errEmptied = fmt.Errorf("%w: the bus was emptied", sink.ErrReset)

func (w *writer) Open(ctx context.Context, mark []byte) error {
	if err := w.bus.ready(ctx, w.life); err != nil {
		return err
	}
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	w.opened, w.emptied = len(w.records), w.sinkWorld.emptied
	var err error
	if w.committed, err = w.parseMark(mark); w.mode == log {
		return nil // Tail receives the mark, too
	}
	return err
}

func (w *writer) Close() error { return nil }

func (w *writer) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	if err := w.bus.ready(ctx, w.life); err != nil {
		return nil, err
	}
	w.bus.mu.Lock()
	if w.life.dead() { // the process was killed in the meantime
		w.bus.mu.Unlock()
		return nil, hang(ctx, w.life)
	}
	mark, crash, err := w.write(b)
	w.bus.mu.Unlock()
	if crash {
		return nil, hang(ctx, w.life)
	}
	return mark, err
}

// write does the work of Write while the bus is locked.
func (w *writer) write(b *event.Batch) (mark []byte, crash bool, err error) {
	a := &w.bus.armed
	if due(&a.crashBeforeWrite) {
		return nil, true, nil
	}
	if w.emptied != w.sinkWorld.emptied && len(b.Records) > 0 {
		w.emptied = w.sinkWorld.emptied
		return nil, false, errEmptied
	}
	if w.seq != b.Seq || b.Seq == 0 {
		w.seq, w.done, w.begun = b.Seq, 0, len(w.records)
	}
	upTo, err := w.check(b)
	if err != nil && w.mode == transaction {
		return nil, false, err
	}
	if err == nil && w.mode == transaction {
		w.store.apply(b.Commit.Changes)
		w.store.sync()
	}
	if w.done < upTo && (err == nil || w.mode != transaction) {
		for i := range b.Records[w.done:upTo] {
			if t := b.Records[w.done+i].Route; w.bus.refused[t] > 0 {
				w.bus.refused[t]--
			}
		}
		w.keep(b.Records[w.done:upTo])
		w.done = upTo
	}
	if err != nil {
		return nil, false, err
	}
	switch {
	case due(&a.crashAfterWrite):
		return nil, true, nil
	case a.loseAnswer:
		a.loseAnswer = false
		if w.mode == intents {
			w.done = 0 // the whole batch is sent again
		}
		if w.mode != transaction { // with transactions, the outcome is looked up
			return nil, false, errNoAnswer
		}
	}
	return w.mark(), false, nil
}

// check returns how many records may be written, and the reason if some may not.
func (w *writer) check(b *event.Batch) (int, error) {
	taken := map[string]int{} // number of records, by topic
	for i := w.done; i < len(b.Records); i++ {
		r := &b.Records[i]
		taken[r.Route]++
		if n, refused := w.bus.refused[r.Route]; refused && taken[r.Route] > n {
			w.bus.refused[r.Route] = 0
			return i, &sink.RouteError{Index: i, Route: r.Route, Err: fmt.Errorf("topic %q: not authorized", r.Route)}
		}
		if w.bus.limit > 0 && len(r.Value) > w.bus.limit && r.Route != "dead" {
			return i, &sink.RecordError{Index: i, Size: len(r.Value), Limit: w.bus.limit, Err: errors.New("too large")}
		}
		if w.bus.armed.refuse == i+1 {
			w.bus.armed.refuse = 0
			return i, &sink.RecordError{Index: i, Err: errors.New("invalid record")}
		}
	}
	return len(b.Records), nil
}

// keep makes records durable.
func (w *writer) keep(records []event.Record) {
	for i := range records {
		r := records[i]
		if w.window && w.mode == intents && w.repeats(&r) {
			continue
		}
		m, err := parse(r.Route, r.Value)
		if err != nil {
			panic(fmt.Sprintf("the value of a record is no event: %v: %s", err, r.Value))
		}
		var state []event.KV
		for _, kv := range r.State {
			state = append(state, event.KV{Key: bytes.Clone(kv.Key), Value: bytes.Clone(kv.Value)})
		}
		w.records = append(w.records, event.Record{State: state})
		m.Key, m.Broadcast, m.Value = r.Key, r.Broadcast, bytes.Clone(r.Value)
		if m.Broadcast { // with the key that it has on a compacted topic
			m.Key = "_collection/" + m.Collection + "/" + compactionClass(&m)
		}
		w.bus.append(m)
	}
}

// repeats reports whether the server drops a record as a repeat. If not, it stores the id. As in the NATS sink, the id
// contains everything that distinguishes messages. If the server drops a message as a repeat of one that cannot be in
// doubt, it is sent again under another id.
func (w *writer) repeats(r *event.Record) bool {
	if r.Broadcast { // a broadcast record has a new id each time
		return false
	}
	id := strings.Join([]string{r.Event.Collection.ID(), r.ID, r.Route, form(r.Event)}, " ")
	number, drops := w.bus.dropped(id)
	if drops && (number > w.begun || w.committed < number && number <= w.opened) {
		return true
	}
	w.bus.sent[id] = sent{time.Now(), len(w.records) + 1}
	return false
}

// form returns a text that distinguishes the messages that one event can become.
func form(e *event.Event) string {
	switch {
	case e.DeadLetter != nil:
		return "dead letter"
	case e.Type == event.Deleted:
		return ""
	case e.Object == nil:
		return "no body"
	case e.Truncated != nil:
		return "truncated"
	}
	return "whole"
}

// transactional is a sink whose transactions include the checkpoint.
type transactional struct{ *writer }

func (t transactional) Commit(ctx context.Context, seq uint64, changes []event.KV) error {
	_, err := t.Write(ctx, &event.Batch{Seq: seq, Commit: event.Commit{Changes: changes}})
	return err
}

// readable is a sink that can be read back.
type readable struct{ *writer }

func (r readable) Tail(_ context.Context, from []byte, fn func([]event.KV, []byte) error) error {
	r.bus.mu.Lock()
	records, emptied := slices.Clone(r.records), r.sinkWorld.emptied
	n, err := r.parseMark(from)
	r.bus.mu.Unlock()
	if err != nil {
		return err
	}
	for i, rec := range records[n:] {
		if err := fn(rec.State, fmt.Appendf(nil, "%d %d", emptied, n+i+1)); err != nil {
			return err
		}
	}
	return nil
}

func (r readable) Mark() []byte {
	r.bus.mu.Lock()
	defer r.bus.mu.Unlock()
	return r.mark()
}

// memory is a checkpoint store that outlives processes.
type memory struct {
	mu sync.Mutex
	kv map[string][]byte
	// synced is the part of kv that a crash leaves.
	synced map[string][]byte
}

func newMemory() *memory { return &memory{kv: map[string][]byte{}} }

// sync makes kv durable. crash undoes changes that are not durable.
func (m *memory) sync() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.synced = maps.Clone(m.kv)
}

func (m *memory) crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kv = maps.Clone(m.synced); m.kv == nil {
		m.kv = map[string][]byte{}
	}
}

// settled returns the content of the checkpoint without positions, because the server moves these.
func (m *memory) settled() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	kv := maps.Clone(m.kv)
	maps.DeleteFunc(kv, func(key string, _ []byte) bool { return strings.HasPrefix(key, "p/") })
	return kv
}

func (m *memory) apply(changes []event.KV) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		if c.Value == nil {
			delete(m.kv, string(c.Key))
		} else {
			m.kv[string(c.Key)] = bytes.Clone(c.Value)
		}
	}
}

// lifeStore is the store as it is used by one process.
type lifeStore struct {
	*memory
	world *sinkWorld
	life  *life
}

func (s *lifeStore) Close() error {
	if !s.life.dead() {
		s.sync()
	}
	return nil
}

func (s *lifeStore) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.kv[string(key)]), nil
}

func (s *lifeStore) Scan(prefix []byte, fn func(key, value []byte) error) error {
	s.mu.Lock()
	snapshot := maps.Clone(s.kv)
	s.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(snapshot)) {
		if strings.HasPrefix(k, string(prefix)) {
			if err := fn([]byte(k), snapshot[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *lifeStore) Commit(ctx context.Context, changes []event.KV) error {
	b := s.world.bus
	b.mu.Lock()
	a := &b.armed
	switch {
	case s.life.dead(), due(&a.crashBeforeCommit):
		b.mu.Unlock()
		return hang(ctx, s.life)
	case a.failCommit:
		a.failCommit = false
		b.mu.Unlock()
		return errStore
	}
	s.apply(changes)
	// With a log, a commit with a mark need not be durable at once: if a crash loses it, it is restored from the log.
	if s.world.mode != log || !slices.ContainsFunc(changes, func(kv event.KV) bool { return string(kv.Key) == string(checkpoint.MarkKey()) }) {
		s.sync()
	}
	crash := due(&a.crashAfterCommit)
	b.mu.Unlock()
	if crash {
		return hang(ctx, s.life)
	}
	return nil
}
