package history_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/internal/history"
	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// changes are those of the pod x: type, version and collection, and how many lines differ from before.
func (w *world) changes(since, until time.Time) []string {
	w.t.Helper()
	out := []string{}
	q := history.ChangesQuery{Reader: w, Cluster: "prod", Resource: discovery.Parse("pods"), Object: history.Name{Namespace: "ns", Name: "x"}, Since: since, Until: until}
	_, err := history.Changes(w.t.Context(), q, func(c history.Change) error {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Type, c.ResourceVersion, c.Collection, c.Reason)))
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// A state that two entries publish is one change, and an object that leaves one of two entries is not deleted.
func TestChanges(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"pods:a": "1", "pods:b": ""})
	w.set("x", "1") // 1
	w.settle()
	w.set("x", "1") // 2
	w.settle()
	since := w.mark()
	w.set("x", "2") // 3
	w.settle()
	w.demand(reconcile.Demand, "pods:b")
	w.reset("pods:b")
	w.settle()
	until := w.mark()
	w.remove("x") // 4
	w.settle()
	w.set("x", "1") // 5
	w.settle()
	want := []string{
		"present 1 pods:a", "modified 2 pods:a", "modified 3 pods:b", "deleted 4 pods:b", "added 5 pods:a",
	}
	if diff := cmp.Diff(want, w.changes(time.Time{}, time.Time{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[2:3], w.changes(since, until)); diff != "" {
		t.Errorf("between two times (-want +got):\n%s", diff)
	}
}

// An object that is in no entry for a while is deleted from the bus for that while, and the reason says so.
func TestChangesMove(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods:a": "1", "pods:b": "2"})
	w.set("x", "1") // 1
	w.settle()
	w.paused["pods:b"] = true
	w.set("x", "2") // 2
	w.settle()
	w.paused["pods:b"] = false
	w.settle()
	want := []string{"present 1 pods:a", "deleted 2 pods:a left", "added 2 pods:b"}
	if diff := cmp.Diff(want, w.changes(time.Time{}, time.Time{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Two entries' events of an object may be in different partitions, which are read one after the other.
func TestChangesOfTwoPartitions(t *testing.T) {
	w := newWorld(t, 3, map[string]string{"pods:a": "1", "pods:b": "2"})
	for i := range 6 {
		w.set("x", []string{"1", "2"}[i%2])
		w.settle()
	}
	var versions []int
	shown := map[int]bool{}
	for _, line := range w.changes(time.Time{}, time.Time{}) {
		version, err := strconv.Atoi(strings.Fields(line)[1])
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, version)
		shown[version] = true
	}
	if !slices.IsSorted(versions) || len(shown) != 6 {
		t.Errorf("the versions are %v", versions)
	}
}

// A bus whose clock is behind that of the bridge must not hide events that were asked for.
func TestChangesSince(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": ""})
	w.set("x", "1") // 1
	w.settle()
	w.late = -9 * time.Minute
	since := w.mark()
	w.set("x", "1") // 2
	w.settle()
	if diff := cmp.Diff([]string{"modified 2 pods"}, w.changes(since, time.Time{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// No diff holds what another change did whose time was not asked for.
func TestChangesAfterTheClockWasSetBack(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": ""})
	w.set("x", "1") // 1
	w.settle()
	since := w.mark()
	w.set("x", "1") // 2
	w.settle()
	w.clock = w.clock.Add(-time.Hour)
	w.set("x", "2") // 3
	w.settle()
	w.clock = w.clock.Add(time.Hour)
	w.set("x", "3") // 4
	w.settle()
	q := history.ChangesQuery{Reader: w, Cluster: "prod", Resource: discovery.Parse("pods"), Object: history.Name{Namespace: "ns", Name: "x"}, Since: since}
	var got []string
	if _, err := history.Changes(t.Context(), q, func(c history.Change) error {
		got = append(got, c.ResourceVersion)
		if c.ResourceVersion == "4" && (!strings.Contains(c.Diff, `-group: "2"`) || !strings.Contains(c.Diff, `+group: "3"`)) {
			t.Errorf("the last change is\n%s", c.Diff)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"2", "4"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// One name of two clusters must not make one state of both.
func TestTwoClusters(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": ""})
	w.set("a", "1")
	w.settle()
	w.clusterUID = "c2"
	w.set("b", "1")
	w.settle()
	if _, err := w.answer(stamp(w.mark())); !errors.Is(err, history.ErrClusters) {
		t.Errorf("the error is %v", err)
	}
}

// What is not the bridge's is named with its place, and never taken for an object.
func TestForeign(t *testing.T) {
	for text, want := range map[string]error{
		"hello": history.ErrForeign,
		`{"specversion":"1.0","type":"com.example.created","id":"1","source":"x"}`: history.ErrForeign,
		`{"specversion":"1.0","type":"io.kubebridge.resource.added.v2","id":"1"}`:  history.ErrNewer,
	} {
		w := newWorld(t, 1, map[string]string{"pods": ""})
		w.settle()
		w.bus[0] = append(w.bus[0], message{value: []byte(text), time: w.mark()})
		p := history.Point{Time: w.mark()}
		_, err := history.Rebuild(t.Context(), history.Query{Reader: w, Cluster: "prod", At: p, Resources: discovery.ParseAll([]string{"pods"})})
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "message 2 of t/0") {
			t.Errorf("%s: the error is %v", text, err)
		}
	}
}
