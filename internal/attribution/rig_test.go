package attribution

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// endsHang ends a test that waits for a condition that never holds.
const endsHang = time.Minute

var (
	identity   = event.Identity{Bridge: "b", Cluster: "c", ClusterUID: "u", Sink: "s"}
	configMaps = event.Collection{Resource: "configmaps"}
)

// nowhere is a bus that accepts all batches.
type nowhere struct{}

func (*nowhere) Open(context.Context, []byte) error                  { return nil }
func (*nowhere) Write(context.Context, *event.Batch) ([]byte, error) { return nil, nil }
func (*nowhere) Close() error                                        { return nil }

// scripted is a reader that does what the test scripts.
type scripted chan func(ctx context.Context, h *loop.Handler) error

func (s scripted) Read(ctx context.Context, _ string, _ reconcile.Read, h *loop.Handler) error {
	for {
		select {
		case f := <-s:
			if err := f(ctx, h); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (scripted) Side(context.Context, string, reconcile.Read, *loop.Handler) error { return nil }

// blind is an observer that does not look.
type blind struct{}

func (blind) ListBegun(string)                   {}
func (blind) Committed(*loop.Commit)             {}
func (blind) Queued(loop.Load, loop.Load)        {}
func (blind) Suspended(string, time.Time, error) {}
func (blind) EditWaits(string, bool)             {}

// rig is a loop with a scripted reader, of which audit records say who made changes.
type rig struct {
	*Sink
	t       *testing.T
	reader  scripted
	encoder *encode.Encoder
	loop    *loop.Loop
	scope   Scope
	stop    func()
}

// newRig starts a rig that publishes collections.
func newRig(t *testing.T, bus sink.Sink, store checkpoint.Store, spec *Spec, all ...event.Collection) *rig {
	t.Helper()
	r := &rig{t: t, reader: make(scripted), scope: Scope{Read: map[string]source.Target{}}}
	for _, c := range all {
		r.scope.Read[c.ID()] = source.Target{Collection: c}
	}
	r.Sink = NewSink(SinkOptions{Spec: spec, Name: "sink", Scope: func() Scope { return r.scope }, Log: zap.NewNop()})
	topic, err := shape.ParseTemplate("{resource}", shape.TopicNames)
	if err != nil {
		t.Fatal(err)
	}
	r.encoder = encode.New(encode.Options{
		Config: encode.Config{Encoder: event.Encoder{Cluster: "c", ClusterUID: "u"}, Route: encode.Route{Topic: topic}},
		Store:  store, Witness: r.Sink, Chronicle: r.Sink, Log: zap.NewNop(),
	})
	r.loop = loop.New(loop.Options{
		Delivery: delivery.New(delivery.Options{Sink: bus, Store: store}), Store: store, Reader: r.reader, Encoder: r.encoder, Observer: blind{},
		Delayer: r.Sink, Chronicle: r.Sink, Log: zap.NewNop(),
	})
	stopping, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.loop.Run(t.Context(), stopping) }()
	r.stop = func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	next := loop.Plan{Outcomes: &plan.Outcomes{}}
	for _, c := range all {
		r.SetStorage(&c, "")
		next.Outcomes.Wanted = append(next.Outcomes.Wanted, plan.Collection{Target: source.Target{Collection: c}})
		next.Wanted = append(next.Wanted, loop.Wanted{ID: c.ID(), Properties: func() (reconcile.Properties, error) {
			compiled, err := r.encoder.Compile(c, encode.Settings{})
			if err != nil {
				return reconcile.Properties{}, err
			}
			r.encoder.Use(compiled)
			return compiled.Properties(), nil
		}})
	}
	if err := r.loop.Set(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	return r
}

// reads makes the reader pass inputs on. If the reader is replaced meanwhile (the bus lost its messages), the next one passes on all of them.
func (r *rig) reads(inputs ...*reconcile.Input) {
	r.t.Helper()
	done := make(chan error)
	f := func(ctx context.Context, h *loop.Handler) error {
		for _, in := range inputs {
			if err := h.Input(ctx, in, 100, nil); err != nil {
				done <- err
				return err
			}
		}
		done <- nil
		return nil
	}
	for {
		select {
		case r.reader <- f:
		case <-time.After(endsHang):
			r.t.Fatal("the collection is not read")
		}
		err := <-done
		if err == nil {
			return
		}
		if !errors.Is(err, context.Canceled) {
			r.t.Fatal(err)
		}
	}
}

// snapshot makes the reader pass on a list without objects.
func (r *rig) snapshot(version string) {
	r.t.Helper()
	r.reads(
		&reconcile.Input{Kind: reconcile.ListBegun, Reason: source.ReasonSnapshot}, &reconcile.Input{Kind: reconcile.ListEnded, Version: version},
		&reconcile.Input{Kind: reconcile.ListDone},
	)
}

// watched is the sighting of a ConfigMap by a watch.
func watched(name, version, resume string) *reconcile.Input {
	o, err := source.ParseObject(fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"a","name":%q,"uid":"uid-%s","resourceVersion":%q}}`, name, name, version))
	if err != nil {
		panic(err)
	}
	return &reconcile.Input{Kind: reconcile.Sighted, Resume: resume, Sighting: &reconcile.Sighting{
		Form: reconcile.Seen, Origin: reconcile.Watch, Key: durable.ObjectKey("a", name), UID: o.UID, Version: version, APIVersion: "v1", Kind: "ConfigMap", Body: &o,
	}}
}

// shown is what is known of the rig's changes.
type shown struct {
	Waiting, DeniedWaiting  int
	Exact, NoRecord, Denied uint64
	Objects                 int64 // of ConfigMaps, in the store; below 0: their first list is not complete
}

// shows waits until a condition holds.
func (r *rig) shows(what string, is func(s shown) bool) {
	r.t.Helper()
	s := shown{}
	for deadline := time.Now().Add(endsHang); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if n := r.Counts(); n != nil {
			s = shown{n.Waiting, n.Refusals.Waiting, n.Exact, n.Unknown, n.Refusals.Published, 0}
		}
		if _, err := r.loop.Page(r.t.Context(), 0, func(loop.Page) { s.Objects = r.loop.State(configMaps.ID()).Objects }); err != nil {
			r.t.Fatal(err)
		}
		if is(s) {
			return
		}
	}
	r.t.Fatalf("%s: %+v", what, s)
}

// followsAudit lets the rig read audit records until the returned function is called.
func (r *rig) followsAudit(in *Inputs) (end func()) {
	ctx, stop := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Follow(ctx, in, r.loop) }()
	return func() {
		stop()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	}
}
