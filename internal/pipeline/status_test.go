package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// shows waits until the only collection of a lane is as it should be.
func (s *script) shows(what string, is func(l LaneStatus, c CollectionStatus) bool) {
	s.t.Helper()
	var l LaneStatus
	for deadline := time.Now().Add(endsHang); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if l = s.lane.Status(); len(l.Collections) == 1 && is(l, l.Collections[0]) {
			return
		}
	}
	s.t.Fatalf("%s: the status is\n%+v", what, l)
}

func objects(c CollectionStatus, n int64) bool { return c.Objects != nil && *c.Objects == n }

// TestStatusFollowsACollection: an operator decides by these numbers, so they must
// be the inventory's and the bus's, and absent for as long as nobody knows them.
func TestStatusFollowsACollection(t *testing.T) {
	store := openMem(t)
	s := newScript(t, store)
	s.set([]Wanted{configMapsOf(event.Collection{})}, nil)
	c := s.collection("configmaps", nil)
	s.shows("before the first list", func(l LaneStatus, c CollectionStatus) bool {
		return l.Ready && c.Objects == nil && c.Behind == nil && c.Gap == nil && c.LastEvent == nil && c.List == nil
	})
	left := int64(7)
	s.lane.stateChanged(c.h.member.id, c.h.member.resource, source.State{Phase: source.Reconciling, Since: time.Now()})
	c.says(source.Signal{Kind: source.ListBegun, Reason: source.ReasonSnapshot})
	s.lane.stateChanged(c.h.member.id, c.h.member.resource, source.State{Phase: source.Reconciling, Since: time.Now(), Left: &left})
	for i := range 3 {
		c.says(source.Signal{Kind: source.Listed, Object: objectAt("a", fmt.Sprint(i), fmt.Sprint("u", i), "5", "")})
	}
	s.shows("in a list", func(_ LaneStatus, c CollectionStatus) bool {
		return c.Objects == nil && c.List != nil && c.List.Read == 3 && *c.List.Remaining == 7 && c.Gap != nil && c.Gap.Closed == nil
	})
	c.says(source.Signal{Kind: source.ListEnded, RV: "10", Resume: "10"})
	s.lane.stateChanged(c.h.member.id, c.h.member.resource, source.State{Phase: source.Watching, Since: time.Now()})
	s.shows("after a list", func(l LaneStatus, c CollectionStatus) bool {
		return objects(c, 3) && c.List == nil && c.Gap.Closed != nil && c.Gap.Reason == source.ReasonSnapshot && c.Delivered == 5 &&
			l.LastCommit != nil && l.Queue.Events == 0 && l.Queue.Oldest == nil && c.Behind == nil
	})
	c.says(source.Signal{Kind: source.Added, Object: objectAt("a", "new", "v", "11", ""), Resume: "10"})
	c.says(source.Signal{Kind: source.Modified, Object: objectAt("a", "0", "u0", "12", ""), Resume: "11"})
	c.says(source.Signal{Kind: source.Deleted, Object: objectAt("a", "1", "u1", "13", ""), Resume: "12"})
	c.says(source.Signal{Kind: source.Deleted, Object: objectAt("a", "2", "u2", "14", ""), Resume: "13"})
	s.shows("watching", func(_ LaneStatus, c CollectionStatus) bool {
		return objects(c, 2) && c.RV == "14" && c.Behind != nil && *c.Behind >= 0 && *c.Behind < 10
	})
	s.lane.stateChanged(c.h.member.id, c.h.member.resource, source.State{Phase: source.Waiting, Since: time.Now(), Until: time.Now(), Err: source.ErrNoResource})
	s.lane.stateChanged(c.h.member.id, c.h.member.resource, source.State{Phase: source.Watching, Since: time.Now()})
	s.shows("after a failure", func(_ LaneStatus, c CollectionStatus) bool {
		return c.Error == "" && c.LastError != nil && strings.Contains(c.LastError.Advice, "install")
	})
	s.finish()

	again := &script{t: t, store: store, bus: s.bus, started: map[string]*collectionScript{}, done: make(chan error, 1)}
	again.run()
	defer again.finish()
	again.set([]Wanted{configMapsOf(event.Collection{})}, nil)
	again.collection("configmaps", nil)
	again.shows("resumed without a list", func(_ LaneStatus, c CollectionStatus) bool { return objects(c, 2) })
}

// TestStatusOfABusThatIsLost: what waits, since when, and what the sink says.
func TestStatusOfABusThatIsLost(t *testing.T) {
	failing := make(chan struct{})
	bus := &choosy{}
	bus.answer = func(*event.Batch) error {
		select {
		case <-failing:
			return nil
		default:
			return errors.New("broken pipe")
		}
	}
	s := &script{t: t, store: openMem(t), bus: &bus.bus, sink: bus, started: map[string]*collectionScript{}, done: make(chan error, 1)}
	s.run()
	defer s.finish()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(NewCollector(func() []LaneStatus { return []LaneStatus{s.lane.Status()} }))
	s.set([]Wanted{configMapsOf(event.Collection{})}, nil)
	c := s.collection("configmaps", nil)
	before := time.Now()
	c.lists("", source.ReasonSnapshot, "10", objectAt("a", "x", "u", "5", ""))
	s.shows("lost", func(l LaneStatus, _ CollectionStatus) bool {
		return !l.Ready && strings.Contains(l.Failing, "broken pipe") && l.FailingSince != nil && l.Queue.Events == 3 &&
			l.Queue.Bytes > 0 && !l.Queue.Oldest.Before(before.Add(-time.Second)) && l.LastError.Advice != ""
	})
	want := "# HELP kubebridge_sink_up 1 when the bus and the checkpoint take what they are given, 0 while a failure is tried again.\n" +
		"# TYPE kubebridge_sink_up gauge\nkubebridge_sink_up{sink=%q} %d\n"
	if err := testutil.GatherAndCompare(r, strings.NewReader(fmt.Sprintf(want, identity.Sink, 0)), "kubebridge_sink_up"); err != nil {
		t.Error(err)
	}
	close(failing)
	s.shows("back", func(l LaneStatus, _ CollectionStatus) bool {
		return l.Ready && l.Failing == "" && l.Queue.Events == 0 && l.LastError != nil && l.Delivered == 3
	})
	if err := testutil.GatherAndCompare(r, strings.NewReader(fmt.Sprintf(want, identity.Sink, 1)), "kubebridge_sink_up"); err != nil {
		t.Error(err)
	}
	if n := testutil.ToFloat64(s.lane.metrics.outages); n != 1 {
		t.Errorf("%v outages, though it was lost once", n)
	}
}

// TestCollectorSums: a resource has one collection per namespace, and a sum with
// an unknown in it is unknown.
func TestCollectorSums(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	behind := func(v float64) *float64 { return &v }
	lanes := []LaneStatus{{Sink: "s", Collections: []CollectionStatus{
		{Resource: "pods", State: source.Watching, Objects: n(3), Behind: behind(0.5)},
		{Resource: "pods", State: source.Watching, Objects: n(4), Behind: behind(2)},
		{Resource: "nodes", State: source.Reconciling, List: &ListState{Read: 5, Remaining: n(6)}},
		{Resource: "jobs.batch", State: source.Reconciling, List: &ListState{Read: 1}},
		{Collection: "only configured", State: source.Discovering},
	}}}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(NewCollector(func() []LaneStatus { return lanes }))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if l := m.GetLabel(); len(l) == 2 { // resource comes before sink
				got[strings.TrimPrefix(f.GetName(), "kubebridge_")+" "+l[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	want := map[string]float64{
		"behind_source_seconds pods": 2, "inventory_objects pods": 7,
		"snapshot_running pods": 0, "snapshot_running nodes": 1, "snapshot_running jobs.batch": 1,
		"snapshot_read_objects nodes": 5, "snapshot_read_objects jobs.batch": 1, "snapshot_remaining_objects nodes": 6,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestStatusTellsOfDiffs: why an event says nothing of what changed depends on whether
// it was to, now that the configuration has been reloaded.
func TestStatusTellsOfDiffs(t *testing.T) {
	s := newScript(t, openMem(t))
	defer func() { s.finish() }()
	for i, o := range []CollectionOptions{{}, {Patch: true}, {}, {Before: true}, {Filter: "true", Before: true}, {Filter: "true"}} {
		s.set([]Wanted{optioned(o)}, nil)
		if got := s.lane.Status().Collections[0].Diffs; got != (o.Before || o.Patch) {
			t.Errorf("%d: diffs are told: %t", i, got)
		}
	}
}
