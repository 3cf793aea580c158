package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// A watch from resourceVersion 0, or without one, begins with the existing objects. Deletions between two such watches would
// never be published. A list that returns only such a resourceVersion is refused, and the state says why.
func TestListWithoutAVersion(t *testing.T) {
	for _, rv := range []string{"", "0"} {
		t.Run(fmt.Sprintf("%q", rv), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, answers(40, pageOf(rv, "", item("a", "3"), item("b", "4"))), []answer{
					closed(frame("ADDED", "a", "3"), frame("ADDED", "b", "4")),
					open(frame("ADDED", "a", "3")), // b was deleted
				})
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{}, nil)
				pass(time.Minute)
				r.stop()
				compare(t, r.received(), nil)
				if err := r.awaitState(Waiting, 1).Err; !errors.Is(err, listwatch.ErrNoVersion) {
					t.Errorf("it waits for %v", err)
				}
			})
		})
	}
	t.Run("streamed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStub(t, []answer{pageOf("9", "", item("a", "3"))}, nil)
			s.initial.answers = []answer{closed(frame("ADDED", "a", "3"), initialEnd("0"))}
			r := run(t, Options{Client: inMemory(t, s), Target: selected()}, event.Position{}, nil)
			pass(time.Minute)
			r.stop()
			compare(t, r.received(), []string{"begun snapshot from ", "listed a@3", "begun interrupted from ", "listed a@3", "ended 9 >9"})
		})
	})
}

// A position from which no watch could continue is not resumed.
func TestPositionWithoutAVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, []answer{pageOf("9", "", item("a", "3"))}, nil)
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "0"}, nil)
		pass(time.Minute)
		r.stop()
		compare(t, r.received(), []string{"begun snapshot from 0", "listed a@3", "ended 9 >9"})
	})
}

// The resourceVersions of an aggregated API need not be numbers. No change is lost: a watch continues from the last one before
// the newest.
func TestVersionsThatAreNoNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, []answer{pageOf("v-e", "", item("a", "v-d"), item("b", "v-c"))}, []answer{
			closed(frame("MODIFIED", "a", "v-b"), frame("DELETED", "b", "v-a")),
			open(frame("DELETED", "b", "v-a"), frame("ADDED", "c", "v-Z")),
		})
		s.probes = answers(99, pageOf("v-Z", ""))
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{}, nil)
		pass(30 * time.Second)
		watches := s.await(2, true)
		r.stop()
		compare(t, r.received(), []string{
			"begun snapshot from ", "listed a@v-d", "listed b@v-c", "ended v-e >v-e",
			"modified a@v-b >v-e", "deleted b@v-a >v-b", "deleted b@v-a >v-b", "added c@v-Z >v-a",
		})
		if rv := watches[1].Get("resourceVersion"); rv != "v-b" {
			t.Errorf("the second watch is from %s", rv)
		}
	})
}

// OpenShift shows users the projects to which they have access. When a project becomes visible, the watch reports it with the
// resourceVersion of its last write, which may be years old. When a project is no longer visible, the watch reports an object
// with only a name.
func TestVisibilityDependsOnPermissions(t *testing.T) {
	for _, c := range []struct {
		name    string
		lists   []answer
		watches []answer
		want    []string
	}{
		{
			"a list shows less at the same resourceVersion: no new history",
			[]answer{pageOf("100", "", item("a", "30"))},
			append(answers(1+otherServers, failing(410)), open()),
			[]string{"begun expired from 100", "listed a@30", "ended 100 >100"},
		},
		{
			"an object becomes visible: taken for a new history",
			[]answer{pageOf("101", "", item("a", "30"), item("b", "20"), item("x", "101"))},
			[]answer{open(frame("MODIFIED", "x", "101"), frame("ADDED", "b", "20"))},
			[]string{"modified x@101 >100", newHistory, "listed a@30", "listed b@20", "listed x@101", "ended 101 >101"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, c.lists, c.watches)
				s.probes = answers(99, pageOf("101", ""))
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "100"}, nil)
				pass(time.Minute)
				r.stop()
				compare(t, r.received(), c.want)
			})
		})
	}
}

// etcdutl snapshot restore --bump-revision --mark-compacted: resourceVersions go on above
// all that were ever given, and watches from before get 410. Nothing here shows that the
// history is another one: the list has objects of the backup, with their old resourceVersions.
func TestRestoreWithBumpedRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, []answer{pageOf("1000000100", "", item("a", "30"))}, answers(1+otherServers, closed(errorFrame(410, "Expired"))))
		s.probes = answers(99, pageOf("1000000100", ""))
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "100"}, nil)
		pass(time.Minute)
		watches := s.await(2+otherServers, true)
		r.stop()
		compare(t, r.received(), []string{"begun expired from 100", "listed a@30", "ended 1000000100 >1000000100"})
		if rv := watches[len(watches)-1].Get("resourceVersion"); rv != "1000000100" {
			t.Errorf("the last watch is from %s", rv)
		}
	})
}

// Two API servers, each with its own etcd, share one address, so each request may find another history. There is at most one
// new epoch per minute.
func TestTwoHistoriesBehindOneAddress(t *testing.T) {
	for name, restarts := range map[string]bool{"one read": false, "reads that end after every list": true} {
		t.Run(name, func(t *testing.T) { twoHistories(t, restarts) })
	}
}

func twoHistories(t *testing.T, restarts bool) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		turn, rv := 0, [2]int{1000, 50}
		h := func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			turn++
			n := turn % 2
			rv[n]++
			now := fmt.Sprint(rv[n])
			mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.URL.Path != "/api/v1/configmaps":
				status(http.StatusForbidden, "Forbidden")(w, r)
			case r.URL.Query().Get("watch") == "true":
				afterASecond(closed(frame("MODIFIED", "x", now), frame("MODIFIED", "x", now+"0")))(w, r)
			default:
				pageOf(now, "", item("a", "30"))(w, r)
			}
		}
		var epochs []time.Time
		errRestart := errors.New("the read is to begin again")
		handler := HandlerFunc(func(_ context.Context, s Signal) error {
			switch {
			case s.NewEpoch:
				epochs = append(epochs, time.Now())
			case s.Kind == ListEnded && restarts:
				return errRestart
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		o := Options{Client: inMemory(t, http.HandlerFunc(h)), Target: configMaps(event.Collection{}), Handler: handler, Epochs: new(Epochs)}
		for from := ""; ctx.Err() == nil; from = "1000000" { // a server of the other history is behind that
			if err := NewCollection(o).Run(ctx, event.Position{RV: from}); !errors.Is(err, errRestart) && ctx.Err() == nil {
				t.Fatal(err)
			}
		}
		if len(epochs) < 10 {
			t.Fatalf("%d new epochs in an hour: the histories do not alternate", len(epochs))
		}
		for i, at := range epochs[1:] {
			if after := at.Sub(epochs[i]); after < time.Minute {
				t.Fatalf("a new epoch %s after another one", after)
			}
		}
	})
}
