package pipeline

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// modified is a watch event that tells a new state.
func modified(o *source.Object, resume string) source.Signal {
	return source.Signal{Kind: source.Modified, Object: o, Resume: resume}
}

func deleted(o *source.Object, resume string) source.Signal {
	return source.Signal{Kind: source.Deleted, Object: o, Resume: resume}
}

// TestFilterOnAWatch: consumers have exactly what passes: entering is added, leaving
// is deleted, the real end of what was told passes any filter, and of what was not
// nothing is said (design rule 5).
func TestFilterOnAWatch(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	s.set([]Wanted{optioned(CollectionOptions{Filter: `object.data.x == "in"`})}, nil)
	c := s.collection("configmaps", nil)
	c.lists("", source.ReasonSnapshot, "10", objectAt("n", "a", "ua", "5", "in"), objectAt("n", "b", "ub", "6", "out"))
	c.says(
		modified(objectAt("n", "b", "ub", "11", "in"), "10"),  // enters
		modified(objectAt("n", "b", "ub", "12", "in"), "11"),  // changes
		modified(objectAt("n", "b", "ub", "13", "out"), "12"), // leaves
		modified(objectAt("n", "b", "ub", "14", "out"), "13"),
		deleted(objectAt("n", "b", "ub", "15", "out"), "14"),
		modified(objectAt("n", "a", "ua", "16", "out"), "15"), // leaves
		modified(objectAt("n", "a", "ua", "17", "in"), "16"),  // and comes back
		deleted(objectAt("n", "a", "ua", "18", "out"), "17"),
	)
	s.told("configmaps:1:0:gap snapshot", "ua:5:added", "configmaps:1:10:synced snapshot",
		"ub:11:added", "ub:12:modified", "ub:11:deleted body left",
		"ua:5:deleted body left", "ua:17:added", "ua:17:deleted body")
	if n := testutil.ToFloat64(s.lane.metrics.filtered.WithLabelValues("s", "configmaps", "added")); n != 2 { // once listed, once changed
		t.Errorf("%v changes are counted as left out", n)
	}
}

// TestFilterChanged: what the new filter leaves out has left, what it lets in is
// added, what both let pass is silent; also when it is changed between two runs; and
// an object that comes back unchanged has an id of its own (design rules 7 and 10).
func TestFilterChanged(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(map[bool]string{true: "restarted", false: "running"}[restart], func(t *testing.T) {
			s := newScript(t, openMem(t))
			defer func() { s.finish() }()
			var last *collectionScript
			step := func(filter string, want ...string) {
				t.Helper()
				s.forgetTold()
				if restart && last != nil {
					s.finish()
					s.run()
				}
				s.set([]Wanted{optioned(CollectionOptions{Filter: filter})}, nil)
				c := s.collection("configmaps", last)
				from, reason := "", source.ReasonSnapshot
				if last != nil {
					if c.from.Resumable() {
						t.Fatalf("resumes from %+v", c.from)
					}
					from, reason = "10", source.ReasonInterrupted
				}
				c.lists(from, reason, "10", objectAt("n", "a", "ua", "5", "1"), objectAt("n", "b", "ub", "6", "2"), objectAt("n", "c", "uc", "7", "3"))
				s.told(want...)
				last = c
			}
			step(`object.data.x in ["1", "2"]`, "configmaps:1:0:gap snapshot", "ua:5:added", "ub:6:added", "configmaps:1:10:synced snapshot")
			step(`object.data.x in ["2", "3"]`, "configmaps:1:10:gap:RUN filter", "ua:5:deleted body left", "uc:7:added", "configmaps:1:10:synced:RUN filter")
			step("", "configmaps:1:10:gap:RUN filter", "ua:5.2:added", "configmaps:1:10:synced:RUN filter")
			s.finish()
			s.run()
			s.set([]Wanted{optioned(CollectionOptions{})}, nil)
			if c := s.collection("configmaps", last); !c.from.Resumable() {
				t.Errorf("the next start begins from %+v", c.from)
			}
		})
	}
}

// TestFilterOnAList: after a 410 what had been left out is still silent, also in a
// resync, and one that left meanwhile is deleted.
func TestFilterOnAList(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	s.set([]Wanted{optioned(CollectionOptions{Filter: `object.data.x == "in"`})}, nil)
	c := s.collection("configmaps", nil)
	in, out := objectAt("n", "a", "ua", "5", "in"), objectAt("n", "b", "ub", "6", "out")
	c.lists("", source.ReasonSnapshot, "10", in, out)
	c.lists("10", source.ReasonExpired, "11", in, out)
	c.lists("11", source.ReasonExpired, "12", objectAt("n", "a", "ua", "12", "out"), out)
	s.told("configmaps:1:0:gap snapshot", "ua:5:added", "configmaps:1:10:synced snapshot",
		"configmaps:1:10:gap expired", "configmaps:1:11:synced expired",
		"configmaps:1:11:gap expired", "ua:5:deleted body left", "configmaps:1:12:synced expired")
	s.bus.mu.Lock()
	counts := *s.bus.records[len(s.bus.records)-1].Event.Report.Counts
	s.bus.mu.Unlock()
	if want := (event.Counts{Listed: 2, Deleted: 1, Unchanged: 0, Filtered: 1}); counts != want {
		t.Errorf("counts %+v, want %+v", counts, want)
	}
}

// TestFilterThatFails: what it cannot judge is told, and that is counted.
func TestFilterThatFails(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	s.set([]Wanted{optioned(CollectionOptions{Filter: `object.spec.replicas > 1`})}, nil)
	s.collection("configmaps", nil).lists("", source.ReasonSnapshot, "10", objectAt("n", "a", "ua", "5", ""))
	s.told("configmaps:1:0:gap snapshot", "ua:5:added", "configmaps:1:10:synced snapshot")
	if n := testutil.ToFloat64(s.lane.metrics.filterErrors.WithLabelValues("s", "configmaps")); n != 1 {
		t.Errorf("%v errors are counted", n)
	}
}

// TestIgnored: a change of what does not matter is silent, and stays so after a 410
// and a restart; a later one that matters is told; other rules do not judge by what
// was kept for the old ones.
func TestIgnored(t *testing.T) {
	s := newScript(t, openMem(t))
	defer func() { s.finish() }()
	o := CollectionOptions{Ignore: []string{"data.x"}}
	s.set([]Wanted{optioned(o)}, nil)
	c := s.collection("configmaps", nil)
	c.lists("", source.ReasonSnapshot, "10", objectAt("n", "a", "ua", "5", "1"))
	c.says(modified(objectAt("n", "a", "ua", "11", "2"), "10"))
	c.lists("11", source.ReasonExpired, "12", objectAt("n", "a", "ua", "12", "3"))
	s.handled()
	if n := testutil.ToFloat64(s.lane.metrics.ignored.WithLabelValues("s", "configmaps")); n != 2 {
		t.Errorf("%v changes are counted as ignored", n)
	}
	s.finish()
	s.run()
	s.set([]Wanted{optioned(o)}, nil)
	c = s.collection("configmaps", c)
	if c.from.RV != "12" {
		t.Errorf("resumes from %+v", c.from)
	}
	c.says(modified(objectAt("n", "a", "ua", "13", "4"), "12"), modified(objectAt("n", "other", "ub", "14", "4"), "13"))
	s.set([]Wanted{optioned(CollectionOptions{Ignore: []string{"data.x", "data.y"}})}, nil)
	c.says(modified(objectAt("n", "a", "ua", "15", "5"), "14"), modified(objectAt("n", "a", "ua", "16", "6"), "15"),
		deleted(objectAt("n", "a", "ua", "17", "6"), "16"))
	s.told("configmaps:1:0:gap snapshot", "ua:5:added", "configmaps:1:10:synced snapshot",
		"configmaps:1:11:gap expired", "configmaps:1:12:synced expired",
		"ub:14:added", "ua:15:modified", "ua:5:deleted body")
}

// TestInDoubt kills a lane whose last events of an object reached the bus. What the next
// one's watch says of the time before is not told behind them where it does not matter;
// and a list that comes before the watch is there again cannot know what consumers have.
func TestInDoubt(t *testing.T) {
	said := func(rv, data string) *source.Object { return objectAt("n", "a", "ua", rv, data) }
	for name, c := range map[string]struct {
		options  CollectionOptions
		inFlight []*source.Object // and on the bus
		again    []*source.Object // what the watch tells of it before it breaks
		listed   *source.Object
		told     []string
	}{
		"ignored": {
			options:  CollectionOptions{Ignore: []string{"data.noise"}},
			inFlight: []*source.Object{said("12", "new")},
			again:    []*source.Object{said("11", "as it was")},
			listed:   said("14", "as it was"),
			told:     []string{"configmaps:1:11:gap expired", "ua:14:modified"},
		},
		"told before": {
			options:  CollectionOptions{Ignore: []string{"data.noise"}},
			inFlight: []*source.Object{said("11", "new"), said("12", "newer")},
			again:    []*source.Object{said("11", "new")},
			listed:   said("14", "new"),
			told:     []string{"ua:11:modified", "configmaps:1:11:gap expired", "ua:14:modified"},
		},
		"left out": {
			options:  CollectionOptions{Filter: `object.data.x != "as it was"`},
			inFlight: []*source.Object{said("11", "as it was"), said("12", "new")},
			again:    []*source.Object{said("11", "as it was")},
			listed:   said("14", "as it was"),
			told:     []string{"configmaps:1:11:gap expired", "ua:12:deleted body left"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, openMem(t))
			defer func() { s.finish() }()
			want := []Wanted{optioned(c.options)}
			s.set(want, nil)
			collection := s.collection("configmaps", nil)
			collection.lists("", source.ReasonSnapshot, "10", said("5", "as it was"))
			s.await("the list", func(id string) bool { return id == "configmaps:1:10:synced" })
			s.settle()
			s.bus.mu.Lock()
			s.bus.crashed, s.bus.crashAfter = make(chan struct{}), 1
			s.bus.mu.Unlock()
			err := s.lane.do(t.Context(), func(ctx context.Context) error { // in one batch
				for _, o := range c.inFlight {
					if err := s.lane.observe(ctx, s.lane.members["configmaps"], modified(o, "10")); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			<-s.bus.crashed
			s.kill()
			<-s.done
			s.forgetTold()
			s.run()
			s.set(want, nil)
			collection = s.collection("configmaps", collection)
			for _, o := range c.again {
				collection.says(modified(o, o.ResourceVersion))
			}
			from := c.again[len(c.again)-1].ResourceVersion
			collection.lists(from, source.ReasonExpired, "20", c.listed)
			s.told(append(c.told, "configmaps:1:20:synced expired")...)
		})
	}
}
