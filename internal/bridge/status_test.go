package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution"
	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	planning "github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// endsHang ends a test that waits for a condition that never holds.
const endsHang = time.Minute

var identity = event.Identity{Bridge: "b", Cluster: "c", ClusterUID: "u", Sink: "s"}

// scripted is a reader that does what the test scripts.
type scripted struct {
	do chan func(ctx context.Context, h *loop.Handler) error
}

// Read implements [loop.Reader].
func (s *scripted) Read(ctx context.Context, _ string, _ reconcile.Read, h *loop.Handler) error {
	for {
		select {
		case f := <-s.do:
			if err := f(ctx, h); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Side implements [loop.Reader].
func (*scripted) Side(context.Context, string, reconcile.Read, *loop.Handler) error { return nil }

// rig is a pipeline of ConfigMaps with a scripted reader.
type rig struct {
	*Pipeline
	t      *testing.T
	reader *scripted
	stop   func()
}

// newRig starts a rig with the options of its collection. They are set once, before anything is read: other options
// would stop the reader, perhaps within a function of the test.
func newRig(t *testing.T, bus sink.Sink, store checkpoint.Store, o CollectionOptions) *rig {
	t.Helper()
	return newAuditedRig(t, bus, store, o, nil)
}

// newAuditedRig starts a rig that says who made changes.
func newAuditedRig(t *testing.T, bus sink.Sink, store checkpoint.Store, o CollectionOptions, spec *attribution.Spec) *rig {
	t.Helper()
	r := newUnplannedRig(t, bus, store, spec)
	r.set(o)
	return r
}

// newUnplannedRig is newAuditedRig without a plan.
func newUnplannedRig(t *testing.T, bus sink.Sink, store checkpoint.Store, spec *attribution.Spec) *rig {
	t.Helper()
	r := &rig{t: t, reader: &scripted{make(chan func(context.Context, *loop.Handler) error)}}
	r.Pipeline = newPipeline(pipelineOptions{
		Identity: identity, Sink: bus, Store: store, Log: zap.NewNop(), Metrics: NewMetrics(prometheus.NewRegistry()), Audit: spec, reader: r.reader,
	})
	stopping, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context(), stopping) }()
	r.stop = func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return r
}

// set makes the pipeline publish ConfigMaps with other options.
func (r *rig) set(o CollectionOptions) {
	r.t.Helper()
	r.setCollection(event.Collection{Resource: "configmaps"}, o)
}

// setCollection makes the pipeline publish a collection.
func (r *rig) setCollection(of event.Collection, o CollectionOptions) {
	r.t.Helper()
	r.setCollections(o, of)
}

func (r *rig) setCollections(o CollectionOptions, all ...event.Collection) {
	r.t.Helper()
	next := loop.Plan{Outcomes: &planning.Outcomes{}}
	for _, of := range all {
		c := planning.Collection{Options: o}
		c.Target.Collection = of
		r.show(&c)
		next.Outcomes.Wanted, next.Wanted = append(next.Outcomes.Wanted, c), append(next.Wanted, r.wanted(&c))
	}
	if err := r.loop.Set(r.t.Context(), next); err != nil {
		r.t.Fatal(err)
	}
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
		case r.reader.do <- f:
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

// object returns the sighting of a ConfigMap.
func object(origin reconcile.Origin, form reconcile.Form, name, version string) *reconcile.Sighting {
	o, err := source.ParseObject(fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"a","name":%q,"uid":"uid-%s","resourceVersion":%q}}`, name, name, version))
	if err != nil {
		panic(err)
	}
	return &reconcile.Sighting{
		Form: form, Origin: origin, Key: durable.ObjectKey("a", name), UID: o.UID, Version: version, APIVersion: "v1", Kind: "ConfigMap", Body: &o,
	}
}

func listed(name, version string) *reconcile.Input {
	return &reconcile.Input{Kind: reconcile.Sighted, Sighting: object(reconcile.List, reconcile.Seen, name, version)}
}

func watched(form reconcile.Form, name, version, resume string) *reconcile.Input {
	return &reconcile.Input{Kind: reconcile.Sighted, Sighting: object(reconcile.Watch, form, name, version), Resume: resume}
}

func listEnd(version string) []*reconcile.Input {
	return []*reconcile.Input{{Kind: reconcile.ListEnded, Version: version}, {Kind: reconcile.ListDone}}
}

// shows waits until the status of the pipeline's only collection fulfils a condition.
func (r *rig) shows(what string, is func(l status.Sink, c status.Collection) bool) {
	r.t.Helper()
	r.showsSink(what, func(l status.Sink) bool { return len(l.Collections) == 1 && is(l, l.Collections[0]) })
}

// showsSink waits until the status of the pipeline fulfils a condition.
func (r *rig) showsSink(what string, is func(l status.Sink) bool) {
	r.t.Helper()
	var l status.Sink
	for deadline := time.Now().Add(endsHang); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if l = r.Status(); is(l) {
			return
		}
	}
	r.t.Fatalf("%s: the status is\n%+v", what, l)
}

func objects(c status.Collection, n int64) bool { return c.Objects != nil && *c.Objects == n }

// TestStatusFollowsACollection: operators decide by these numbers. They must equal those of the inventory and of the
// bus, and must be absent as long as they are unknown.
func TestStatusFollowsACollection(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := newRig(t, &nowhere{}, store, CollectionOptions{})
	const id = "configmaps"
	r.shows("before the first list", func(l status.Sink, c status.Collection) bool {
		return l.Ready && c.Objects == nil && c.Lag == nil && c.Gap == nil && c.LastEvent == nil && c.List == nil
	})
	left := int64(7)
	r.stateChanged(id, source.State{Phase: source.Reconciling, Since: time.Now()})
	r.reads(&reconcile.Input{Kind: reconcile.ListBegun, Reason: source.ReasonSnapshot})
	r.stateChanged(id, source.State{Phase: source.Reconciling, Since: time.Now(), Left: &left})
	r.reads(listed("0", "5"), listed("1", "5"), listed("2", "5"))
	r.shows("in a list", func(_ status.Sink, c status.Collection) bool {
		return c.Position == "" && c.Objects == nil && c.List != nil && c.List.Read == 3 && *c.List.Remaining == 7 && c.Gap != nil && c.Gap.Closed == nil
	})
	r.reads(listEnd("10")...)
	r.stateChanged(id, source.State{Phase: source.Watching, Since: time.Now()})
	r.shows("after a list", func(l status.Sink, c status.Collection) bool {
		return objects(c, 3) && c.List == nil && c.Gap.Closed != nil && c.Gap.Reason == string(event.ReasonReset) && c.Delivered == 5 &&
			l.LastCommit != nil && l.Queue.Events == 0 && l.Queue.Oldest == nil && c.Lag == nil
	})
	r.reads(
		watched(reconcile.Seen, "new", "11", "10"), watched(reconcile.Seen, "0", "12", "11"),
		watched(reconcile.Ended, "1", "13", "12"), watched(reconcile.Ended, "2", "14", "13"),
	)
	r.shows("watching", func(_ status.Sink, c status.Collection) bool {
		return objects(c, 2) && c.Position == "14" && c.Lag != nil && *c.Lag >= 0 && *c.Lag < 10
	})
	r.reads(&reconcile.Input{Kind: reconcile.Bookmark, Resume: "20"})
	r.shows("after a bookmark", func(_ status.Sink, c status.Collection) bool { return c.Position == "20" })
	r.stateChanged(id, source.State{Phase: source.Waiting, Since: time.Now(), Until: time.Now(), Err: discovery.ErrNoResource})
	r.stateChanged(id, source.State{Phase: source.Watching, Since: time.Now()})
	r.shows("after a failure", func(_ status.Sink, c status.Collection) bool {
		return c.Error == "" && c.LastError != nil && strings.Contains(c.LastError.Advice, "install")
	})
	r.stop()

	again := newRig(t, &nowhere{}, store, CollectionOptions{})
	defer again.stop()
	again.shows("resumed without a list", func(_ status.Sink, c status.Collection) bool {
		return objects(c, 2) && c.Position == "20" && c.Route == ""
	})
	topic, err := shape.ParseTemplate("own.{resource}", shape.TopicNames)
	if err != nil {
		t.Fatal(err)
	}
	again.set(CollectionOptions{Settings: encode.Settings{Route: encode.Route{Topic: topic}}})
	again.shows("with a topic of its own", func(_ status.Sink, c status.Collection) bool { return c.Route == "own.configmaps" })
}

// failing is a bus that rejects all writes until it is repaired.
type failing struct {
	nowhere
	repaired chan struct{}
}

// Write implements [sink.Sink].
func (f *failing) Write(context.Context, *event.Batch) ([]byte, error) {
	select {
	case <-f.repaired:
		return nil, nil
	default:
		return nil, errors.New("broken pipe")
	}
}

// TestStatusOfABusThatIsLost: the status shows how much is waiting, since when, and the error of the sink.
func TestStatusOfABusThatIsLost(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	bus := &failing{repaired: make(chan struct{})}
	s := newRig(t, bus, store, CollectionOptions{})
	defer s.stop()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(NewCollector(func() status.Report { return status.Report{Sinks: []status.Sink{s.Status()}} }))
	before := time.Now()
	s.reads(append([]*reconcile.Input{{Kind: reconcile.ListBegun, Reason: source.ReasonSnapshot}, listed("x", "5")}, listEnd("10")...)...)
	s.shows("lost", func(l status.Sink, _ status.Collection) bool {
		return !l.Ready && strings.Contains(l.Failing, "broken pipe") && l.Since != nil && l.Queue.Events == 3 &&
			l.Queue.Bytes > 0 && !l.Queue.Oldest.Before(before.Add(-time.Second)) && l.LastError.Advice != ""
	})
	want := "# HELP kubebridge_sink_up 1 while the bus and the checkpoint work; 0 while a write or a check of the bus fails, or has had no answer for 15 seconds.\n" +
		"# TYPE kubebridge_sink_up gauge\nkubebridge_sink_up{sink=%q} %d\n"
	if err := testutil.GatherAndCompare(r, strings.NewReader(fmt.Sprintf(want, identity.Sink, 0)), "kubebridge_sink_up"); err != nil {
		t.Error(err)
	}
	close(bus.repaired)
	s.shows("back", func(l status.Sink, _ status.Collection) bool {
		return l.Ready && l.Failing == "" && l.Queue.Events == 0 && l.LastError != nil && l.Delivered == 3
	})
	if err := testutil.GatherAndCompare(r, strings.NewReader(fmt.Sprintf(want, identity.Sink, 1)), "kubebridge_sink_up"); err != nil {
		t.Error(err)
	}
	if n := testutil.ToFloat64(s.metrics.outages); n != 1 {
		t.Errorf("%v outages, though it was lost once", n)
	}
}

// TestStates: the status has a word for every phase of a reader. Otherwise collections in a phase would not be
// counted.
func TestStates(t *testing.T) {
	var got []status.State
	for _, phase := range []source.Phase{source.Discovering, source.Reconciling, source.Watching, source.Waiting, source.Stalled, source.Gone, source.Buffered} {
		got = append(got, status.State(phase))
	}
	if !slices.Equal(got, status.States()) {
		t.Errorf("the status has %v, readers have %v", status.States(), got)
	}
}

// TestCollectorSums: a resource has one collection per namespace. A sum of values of which one is unknown is unknown.
func TestCollectorSums(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	behind := func(v float64) *float64 { return &v }
	report := status.Report{Sinks: []status.Sink{{Name: "s", Collections: []status.Collection{
		{Resource: "pods", State: status.Watching, Objects: n(3), Lag: behind(0.5), EditWaits: &time.Time{}},
		{Resource: "pods", State: status.Watching, Objects: n(4), Lag: behind(2)},
		{Resource: "nodes", State: status.Reconciling, List: &status.List{Read: 5, Remaining: n(6)}},
		{Resource: "jobs.batch", State: status.Reconciling, List: &status.List{Read: 1}},
		{ID: "only configured", State: status.Discovering},
	}}}}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(NewCollector(func() status.Report { return report }))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "kubebridge_")
			switch l := m.GetLabel(); { // the label resource comes before sink
			case len(l) == 2:
				got[name+" "+l[0].GetValue()] = m.GetGauge().GetValue()
			case len(l) == 3 && m.GetGauge().GetValue() > 0:
				got[name+" "+l[0].GetValue()+" "+l[2].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	want := map[string]float64{
		"source_collections pods watching": 2, "source_collections nodes reconciling": 1, "source_collections jobs.batch reconciling": 1,
		"source_edits_waiting pods": 1, "source_edits_waiting nodes": 0, "source_edits_waiting jobs.batch": 0,
		"behind_source_seconds pods": 2, "inventory_objects pods": 7,
		"snapshot_running pods": 0, "snapshot_running nodes": 1, "snapshot_running jobs.batch": 1,
		"snapshot_read_objects nodes": 5, "snapshot_read_objects jobs.batch": 1, "snapshot_remaining_objects nodes": 6,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestStatusShowsDiffs: the status says whether events should describe what changed, so that users know why an event
// does not. A reload of the configuration may change the setting.
func TestStatusShowsDiffs(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := newRig(t, &nowhere{}, store, CollectionOptions{})
	defer r.stop()
	for i, o := range []encode.Settings{{}, {Patch: true}, {}, {Before: true}, {Filter: "true", Before: true}, {Filter: "true"}} {
		r.set(CollectionOptions{Settings: o})
		if got := r.Status().Collections[0].Diffs; got != (o.Before || o.Patch) {
			t.Errorf("%d: the status says %t of diffs", i, got)
		}
	}
}

// TestMetricsOfTheBus: alerts use these metrics. A bus that lost acknowledged messages counts as a reset, and objects
// that a verification found different count as drift. Other metrics have the duration of calls of the bus and the
// checkpoint.
func TestMetricsOfTheBus(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	bus := &forgetful{}
	r := newRig(t, bus, store, CollectionOptions{})
	defer r.stop()
	list := append([]*reconcile.Input{{Kind: reconcile.ListBegun, Reason: source.ReasonSnapshot}, listed("x", "5")}, listEnd("10")...)
	r.reads(list...)
	r.shows("after a list", func(_ status.Sink, c status.Collection) bool { return objects(c, 1) })
	for _, operation := range []string{delivery.WriteToBus, delivery.CommitCheckpoint} {
		if n := testutil.CollectAndCount(r.metrics.seconds[operation]); n != 1 {
			t.Errorf("%s: %d series of durations, want one", operation, n)
		}
	}
	resets := func() float64 { return testutil.ToFloat64(r.metrics.resets.WithLabelValues(identity.Sink)) }
	if n := resets(); n != 0 {
		t.Errorf("%v resets of a bus that keeps everything", n)
	}
	bus.lost.Store(true)
	r.reads(watched(reconcile.Seen, "x", "11", "10"))
	r.shows("a reset", func(status.Sink, status.Collection) bool { return resets() == 1 })
	c := &event.Collection{Resource: "configmaps"}
	r.reporter.delivered([]event.Record{{Event: &event.Event{
		Type: event.Synced, Collection: c, Report: &event.Report{Reason: event.ReasonDrift, Counts: &event.Counts{Listed: 9, Added: 1, Modified: 2, Deleted: 4, Unchanged: 6}},
	}}})
	if n := testutil.ToFloat64(r.metrics.drift.WithLabelValues(identity.Sink, "configmaps")); n != 7 {
		t.Errorf("%v objects drifted, want 7", n)
	}
}

// forgetful is a bus that loses all messages on request.
type forgetful struct {
	nowhere
	lost atomic.Bool
}

// Write implements [sink.Sink].
func (f *forgetful) Write(context.Context, *event.Batch) ([]byte, error) {
	if f.lost.CompareAndSwap(true, false) {
		return nil, fmt.Errorf("%w: the topic was made again", sink.ErrReset)
	}
	return nil, nil
}

// TestCountsOfIncompleteEvents: these counters show operators which events consumers do not have, or do not have
// completely.
func TestCountsOfIncompleteEvents(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := newRig(t, &nowhere{}, store, CollectionOptions{})
	defer r.stop()
	c := &event.Collection{Resource: "configmaps"}
	r.reporter.delivered([]event.Record{
		{Event: &event.Event{Type: event.Added, Collection: c, DeadLetter: &event.DeadLetter{Reason: event.Oversize}}},
		{Event: &event.Event{Type: event.Added, Collection: c, DeadLetter: &event.DeadLetter{Reason: event.Rejected}}},
		{Event: &event.Event{Type: event.Added, Collection: c, DeadLetter: &event.DeadLetter{Reason: event.Oversize}}},
	})
	if lost := r.Status().Lost; lost != nil {
		t.Errorf("%d events are lost before any is", *lost)
	}
	r.count("configmaps", encode.Lost, 0)
	if lost := r.Status().Lost; lost == nil || *lost != 1 {
		t.Errorf("one event is lost, and the status has %v", lost)
	}
	r.count("configmaps", encode.NotKept, event.Modified)
	r.count("configmaps", encode.Truncated, event.Modified)
	r.count("configmaps", encode.Truncated, event.Modified)
	for what, x := range map[string]struct{ got, want float64 }{
		"dead letters that are too large":     {testutil.ToFloat64(r.metrics.dead.WithLabelValues(identity.Sink, event.Oversize)), 2},
		"dead letters that are rejected":      {testutil.ToFloat64(r.metrics.dead.WithLabelValues(identity.Sink, event.Rejected)), 1},
		"dead letters among the added events": {testutil.ToFloat64(r.metrics.delivered.WithLabelValues(identity.Sink, "configmaps", "added")), 0},
		"bodies that are not kept":            {testutil.ToFloat64(r.metrics.other[encode.NotKept].WithLabelValues(identity.Sink, "configmaps")), 1},
		"events that are truncated":           {testutil.ToFloat64(r.metrics.other[encode.Truncated].WithLabelValues(identity.Sink, "configmaps")), 2},
	} {
		if x.got != x.want {
			t.Errorf("%s: %v, want %v", what, x.got, x.want)
		}
	}

	lost := uint64(7)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(func() status.Report {
		return status.Report{Sinks: []status.Sink{{Name: "lossy", Lost: &lost}, {Name: "other"}}}
	}))
	want := "# HELP kubebridge_events_lost_total Events that are lost: the bus refused them even as dead letters, or they were sent with delivery at-most-once and the bus did not, or may not, have received them.\n" +
		"# TYPE kubebridge_events_lost_total counter\nkubebridge_events_lost_total{sink=\"lossy\"} 7\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubebridge_events_lost_total"); err != nil {
		t.Error(err)
	}
}
