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

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// changes returns the changes of the pod x: type, version, collection, and the number of lines that differ.
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

// A state that two entries publish is shown as one change, and an object that leaves one of two entries is not shown as deleted.
func TestChanges(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"pods:a": "1", "pods:b": ""})
	w.Cluster.Set("x", "1") // 1
	w.settle()
	w.Cluster.Set("x", "1") // 2
	w.settle()
	since := w.mark()
	w.Cluster.Set("x", "2") // 3
	w.settle()
	w.demand(reconcile.Demand, "pods:b")
	w.reset("pods:b")
	w.settle()
	until := w.mark()
	w.Cluster.Remove("x") // 4
	w.settle()
	w.Cluster.Set("x", "1") // 5
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

// An object that no entry selects for a while is shown as deleted for that time, with the reason "left".
func TestChangesMove(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods:a": "1", "pods:b": "2"})
	w.Cluster.Set("x", "1") // 1
	w.settle()
	w.paused["pods:b"] = true
	w.Cluster.Set("x", "2") // 2
	w.settle()
	w.paused["pods:b"] = false
	w.settle()
	want := []string{"present 1 pods:a", "deleted 2 pods:a left", "added 2 pods:b"}
	if diff := cmp.Diff(want, w.changes(time.Time{}, time.Time{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Two entries may publish events of an object to different partitions. They are shown in the order of time, not of partitions.
func TestChangesOfTwoPartitions(t *testing.T) {
	w := newWorld(t, 3, map[string]string{"pods:a": "1", "pods:b": "2"})
	for i := range 6 {
		w.Cluster.Set("x", []string{"1", "2"}[i%2])
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

// If the clock of the bus is behind the bridge's, events after Since are still shown.
func TestChangesSince(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": ""})
	w.Cluster.Set("x", "1") // 1
	w.settle()
	w.late = -9 * time.Minute
	since := w.mark()
	w.Cluster.Set("x", "1") // 2
	w.settle()
	if diff := cmp.Diff([]string{"modified 2 pods"}, w.changes(since, time.Time{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A diff contains only the differences of its own change, not those of another change that is outside the times of the
// query.
func TestChangesAfterTheClockWasSetBack(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": ""})
	w.Cluster.Set("x", "1") // 1
	w.settle()
	since := w.mark()
	w.Cluster.Set("x", "1") // 2
	w.settle()
	w.clock = w.clock.Add(-time.Hour)
	w.Cluster.Set("x", "2") // 3
	w.settle()
	w.clock = w.clock.Add(time.Hour)
	w.Cluster.Set("x", "3") // 4
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

// Two clusters with one name are an error, not one mixed state.
func TestTwoClusters(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": ""})
	w.Cluster.Set("a", "1")
	w.settle()
	w.clusterUID = "c2"
	w.Cluster.Set("b", "1")
	w.settle()
	if _, err := w.answer(stamp(w.mark())); !errors.Is(err, history.ErrClusters) {
		t.Errorf("the error is %v", err)
	}
}

// A foreign message does not prevent an answer. It is reported once, with its place.
func TestForeign(t *testing.T) {
	for _, text := range []string{
		"hello", `{"type":"io.nats.jetstream.api.v1.stream_info_response"}`,
		`{"specversion":"1.0","type":"com.example.created","id":"1","source":"x"}`,
		`{"specversion":"1.0","type":"io.kubebridge.resource.added.v1","id":"1","source":"x","collection":"pods","time":"2026-01-02T03:04:05Z","run":"0"}`,
	} {
		w := newWorld(t, 1, map[string]string{"pods": ""})
		w.settle()
		w.Cluster.Set("a", "1")
		at := len(w.bus[0])
		w.bus[0] = append(w.bus[0], message{value: []byte(text), time: w.mark()})
		w.Cluster.Set("b", "1")
		w.settle()
		var ignored []error
		note := func(err error) { ignored = append(ignored, err) }
		check := func(err error) {
			t.Helper()
			if err != nil || len(ignored) != 1 || !errors.Is(ignored[0], history.ErrForeign) || !strings.Contains(ignored[0].Error(), fmt.Sprintf("message %d of t/0", at)) {
				t.Errorf("%s: %v; ignored: %v", text, err, ignored)
			}
			ignored = nil
		}
		s, err := history.Rebuild(t.Context(), history.Query{
			Reader: w, Cluster: "prod", At: history.Point{Time: w.mark()}, Resources: discovery.ParseAll([]string{"pods"}), Ignored: note,
		})
		if check(err); err == nil && len(s.Objects) != 2 {
			t.Errorf("%s: the state has %d objects, want 2", text, len(s.Objects))
		}
		n := 0
		_, err = history.Changes(t.Context(), history.ChangesQuery{
			Reader: w, Cluster: "prod", Resource: discovery.Parse("pods"), Object: history.ParseName("ns/b"), Ignored: note,
		}, func(history.Change) error { n++; return nil })
		if check(err); n != 1 {
			t.Errorf("%s: the history has %d changes, want 1", text, n)
		}
	}
}

// If the bus shows which messages are foreign, the content of a foreign message never prevents an answer, even if it
// is the first message. Otherwise a user who cannot write as the bridge could block all queries.
func TestForeignWhereItStands(t *testing.T) {
	other := newWorld(t, 1, map[string]string{"pods": ""})
	other.clusterUID = "c2"
	other.Cluster.Set("z", "1")
	other.settle()
	same := newWorld(t, 1, map[string]string{"pods": ""})
	same.Cluster.Set("z", "1")
	same.settle()
	for what, foreign := range map[string][]message{
		"a newer type":    {{value: []byte(`{"specversion":"1.0","type":"io.kubebridge.x.v9","id":"1"}`)}},
		"another cluster": other.bus[0],
		"copies":          same.bus[0],
	} {
		for _, first := range []bool{true, false} {
			w := newWorld(t, 1, map[string]string{"pods": ""})
			w.Cluster.Set("a", "1")
			if !first {
				w.settle()
			}
			at := len(w.bus[0])
			for _, m := range foreign {
				m.time, m.foreign = w.mark(), true
				w.bus[0] = append(w.bus[0], m)
			}
			w.Cluster.Set("b", "1")
			w.settle()
			var ignored []error
			s, err := history.Rebuild(t.Context(), history.Query{
				Reader: w, Cluster: "prod", At: history.Point{Time: w.mark()}, Resources: discovery.ParseAll([]string{"pods"}),
				Ignored: func(err error) { ignored = append(ignored, err) },
			})
			if err != nil || len(s.Objects) != 2 {
				t.Errorf("%s, first %t: the state has not 2 objects: %+v, %v", what, first, s, err)
			}
			if len(ignored) != len(foreign) || !errors.Is(ignored[0], history.ErrForeign) || !strings.Contains(ignored[0].Error(), fmt.Sprintf("message %d of t/0", at)) {
				t.Errorf("%s, first %t: ignored are %v, want %d", what, first, ignored, len(foreign))
			}
			n := 0
			_, err = history.Changes(t.Context(), history.ChangesQuery{
				Reader: w, Cluster: "prod", Resource: discovery.Parse("pods"), Object: history.ParseName("ns/b"),
			}, func(history.Change) error { n++; return nil })
			if err != nil || n != 1 {
				t.Errorf("%s, first %t: the history has %d changes, want 1; %v", what, first, n, err)
			}
		}
	}
}

// An event of a newer bridge may have any meaning, so there is no answer without it.
func TestNewerEvent(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": ""})
	w.settle()
	w.bus[0] = append(w.bus[0], message{value: []byte(`{"specversion":"1.0","type":"io.kubebridge.resource.added.v2","id":"1"}`), time: w.mark()})
	if _, err := w.answer(stamp(w.mark())); !errors.Is(err, history.ErrNewer) || !strings.Contains(err.Error(), "message 2 of t/0") {
		t.Errorf("the error is %v", err)
	}
}
