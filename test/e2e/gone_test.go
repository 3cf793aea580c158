package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// The numbers of changes that makeUnseen makes while no watch is open, and that a reconciliation must find.
const (
	unseenPatched = 30
	unseenDeleted = 20
	unseenNew     = 10
)

// makeUnseen changes some of 1,000 objects "o-…", and replaces one by another object of the same name. It returns the expected counts.
func (w *world) makeUnseen() (listed bus.Counts) {
	w.t.Helper()
	t := w.widgets
	w.bulkPatch(t, "o", "unseen", 0, unseenPatched)
	w.bulkPatch(t, "o", "unseen again", 0, unseenPatched)
	w.bulkDelete(t, "o", unseenPatched, unseenPatched+unseenDeleted)
	w.bulk(t, "n", unseenNew)
	w.delete(t, "renewed")
	w.create(t, "renewed")
	w.create(t, "brief") // created and deleted in between, so no list can find it
	w.delete(t, "brief")
	return bus.Counts{
		Added: unseenNew + 1, Modified: unseenPatched, Deleted: unseenDeleted + 1,
	}
}

// The server loses its history after an edit of a CRD, a compaction of etcd or its restart. The bridge must then publish exactly the
// difference, including deletions, whether it was running or down.
func TestGonePublishesTheExactDifference(t *testing.T) {
	t.Parallel()
	const objects = 1000
	for name, down := range map[string]bool{"while running": false, "while down": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{})
			w.install()
			w.bridges(w.widgets)
			w.bulk(w.widgets, "o", objects)
			w.create(w.widgets, "renewed")
			w.start()
			before := w.settle(w.widgets)
			w.committed()
			if down {
				w.stop()
				w.expire()
			} else {
				w.bridge.Signal(syscall.SIGSTOP)
				w.expire() // ends the open watch before the changes
			}
			want := w.makeUnseen()
			if down {
				w.start()
			} else {
				w.bridge.Signal(syscall.SIGCONT)
			}
			w.onBus("the end of the comparison", func(all []bus.Message) bool {
				return slices.ContainsFunc(after(all, len(before)), isSynced)
			})
			all := w.verify(check.Options{Types: []kube.Type{w.widgets}, Gap: true})
			w.exactDifference(after(all, len(before)), want, objects+2) // with "renewed" and a marker
		})
	}
}

// exactDifference checks the events since the last settle against the counts of a reconciliation. had is the number of objects before.
func (w *world) exactDifference(since []bus.Message, want bus.Counts, had int) {
	w.t.Helper()
	want.Listed = had + want.Added - want.Deleted
	want.Unchanged = want.Listed - want.Added - want.Modified
	said := check.Collections(since, w.collection(w.widgets))
	if len(said) != 2 || !said[0].Is("gap") || !said[1].Is("synced") {
		w.t.Fatalf("want one gap and one synced, got:\n%s", bus.Tail(said, 10))
	}
	gap, synced := &said[0], &said[1]
	if gap.Data.Reason != "expired" || gap.Data.From == "" || gap.Data.From != gap.RV() {
		w.t.Errorf("the gap says %+v", gap.Data)
	}
	if synced.Data.To == "" || synced.Data.To != synced.RV() || synced.Data.From != "" || synced.Data.Since == "" {
		w.t.Errorf("synced says %+v", synced.Data)
	}
	if got := synced.Data.Counts; got == nil || *got != want {
		w.t.Errorf("counts are %+v, want %+v", got, want)
	}
	published := bus.Counts{Listed: want.Listed, Unchanged: want.Unchanged}
	for i := range since {
		m := &since[i]
		if m.OfCollection() || m.Attributes["origin"] != "reconcile" {
			continue
		}
		switch m.Type() {
		case "added":
			published.Added++
		case "modified":
			published.Modified++
		case "deleted":
			published.Deleted++
			if known := m.Data.BodyKnown; known != nil && !*known { // etcd still has the last body, although the API server's cache does not
				w.t.Errorf("nobody saw this deletion, but its last state can be asked for: %s", m)
			}
		}
	}
	if published != want {
		w.t.Errorf("published %+v, want %+v", published, want)
	}
	if n := len(since) - 2 - want.Added - want.Modified - want.Deleted; n != 2 {
		w.t.Errorf("%d events beside the difference, want the marker's two:\n%s", n, bus.Tail(since, 100))
	}
}

// A bridge that is killed during a reconciliation has published a part of the difference. It must publish the rest, and must not resume
// from the old position, because that would bring deleted objects back.
func TestKilledWhileComparing(t *testing.T) {
	t.Parallel()
	for _, name := range buses {
		t.Run(name, func(t *testing.T) { killWhileComparing(t, name) })
	}
}

func killWhileComparing(t *testing.T, busName string) {
	w := newWorld(t, options{bus: busName})
	w.install()
	w.bridges(w.widgets)
	// The objects are large, so that the difference takes many batches, and a kill can fall between two of them.
	w.bulkOf(w.widgets, "o", 600, kube.Fields{"spec": map[string]any{"pad": strings.Repeat("x", 80<<10)}})
	w.start()
	before := len(w.settle(w.widgets))
	w.stop()
	w.expire()
	w.bulkPatch(w.widgets, "o", "unseen", 0, 400)
	w.bulkDelete(w.widgets, "o", 400, 550)
	w.bulk(w.widgets, "p", 100)

	n := before
	if busName == busNATS { // not on Kafka: its client makes requests before it sends, and would wait for these answers
		// The bus has the events, but the bridge gets no acknowledgement. linger delays the first batch, so that there is time for the hold.
		w.config.Sinks[0].Linger = "500ms"
		w.run()
		w.awaitStatus(func(s bridge.Status) bool { return len(s.Sinks) > 0 && len(s.Sinks[0].Collections) > 0 })
		w.proxy.Hold()
		n = w.killedAfter(n, 1)
		w.proxy.Pass()
		w.config.Sinks[0].Linger = ""
	}
	w.proxy.Slow(50 * time.Millisecond) // so that the reconciliation takes longer than the kills, also on a busy machine
	for i, more := range []int{1, 10, 20} {
		w.delete(w.widgets, fmt.Sprintf("o-%d", 50*i)) // may be published already
		w.delete(w.widgets, fmt.Sprintf("p-%d", i))
		w.run()
		n = w.killedAfter(n, more)
	}
	if said := check.Collections(w.since(before), w.collection(w.widgets)); slices.ContainsFunc(said, isSynced) {
		t.Fatal("the comparison ended before the last kill")
	}
	w.proxy.Pass()
	w.start()
	w.verify(check.Options{Types: []kube.Type{w.widgets}, Gap: true, Repeats: busName == busKafka})
	said := check.Collections(w.since(before), w.collection(w.widgets))
	if last := said[len(said)-1]; !isSynced(last) || slices.ContainsFunc(said[:len(said)-1], isSynced) {
		t.Errorf("want gaps and in the end one synced, got:\n%s", bus.Tail(said, 20))
	}
}

func isSynced(m bus.Message) bool { return m.Is("synced") }

// killedAfter kills the bridge when the bus has more events about objects after the first n messages, and returns the
// number of messages on the bus.
func (w *world) killedAfter(n, more int) int {
	w.t.Helper()
	w.onBus("some differences", func(all []bus.Message) bool {
		count := 0
		for _, m := range after(all, n) {
			if !m.OfCollection() {
				count++
			}
		}
		return count >= more
	})
	w.bridge.Kill()
	all, err := w.log.Messages()
	w.must(err)
	w.t.Logf("killed when the bus held %d events more", len(all)-n)
	return len(all)
}

// since returns the messages from the n-th on.
func (w *world) since(n int) []bus.Message {
	w.t.Helper()
	all, err := w.log.Messages()
	w.must(err)
	return after(all, n)
}
