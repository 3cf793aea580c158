package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// visited is a store that counts the inventory entries that scans hand out.
type visited struct {
	checkpoint.Store
	entries atomic.Int64
}

func (s *visited) Scan(prefix []byte, fn func(key, value []byte) error) error {
	return s.Store.Scan(prefix, func(key, value []byte) error {
		if bytes.HasPrefix(key, checkpoint.AllEntries()) {
			s.entries.Add(1)
		}
		return fn(key, value)
	})
}

// asked is what is found out about vanished objects: nothing, but how many are asked for.
type asked struct{ most atomic.Int64 }

func (a *asked) Alive(context.Context, string, string, string) (alive, known bool) {
	return false, true
}

func (a *asked) Recall(_ context.Context, _ string, objects []source.Name, _ func(*source.Object) error) error {
	a.most.Store(max(a.most.Load(), int64(len(objects))))
	return nil
}

// known commits a collection at resourceVersion 10 with n objects, which were published.
func known(tb testing.TB, store checkpoint.Store, target source.Target, n int) {
	tb.Helper()
	m := newMember(target.Collection)
	changes := []event.KV{{Key: m.at, Value: checkpoint.EncodePosition(event.Position{RV: "10"})}}
	for i := range n {
		uid := fmt.Sprintf("ffd2cab6-2033-4dcb-a16f-%012x", i)
		changes = append(changes, event.KV{
			Key:   bytes.Clone(m.entryKey("namespace", fmt.Sprintf("object-%07d", i))),
			Value: checkpoint.EncodeEntry(checkpoint.Entry{UID: uid, RV: "5", Hash: 1, Told: true, Entry: "5", APIVersion: "v1", Kind: "ConfigMap", Owner: m.owner}),
		})
		if len(changes) >= batchRecords || i == n-1 {
			if err := store.Commit(tb.Context(), changes); err != nil {
				tb.Fatal(err)
			}
			changes = nil
		}
	}
}

// TestVanishedObjectsAreNotCollected: a namespace, or all objects of a resource, may
// vanish while the bridge is down. What a list lacks is looked up and published in
// portions, however much it is; else the process is killed for its memory, and again
// after each start.
func TestVanishedObjectsAreNotCollected(t *testing.T) {
	const (
		objects = 30_000
		// The most that are handed out and not published yet: those that the server's past
		// is searched for, two batches with what is committed last, and one that fills.
		most = 10_000 + 4*batchRecords
	)
	store := &visited{Store: openMem(t)}
	known(t, store, configMaps, objects)
	b := &choosy{}
	published, worst := 0, 0
	var scanned atomic.Int64 // before the list's end
	b.answer = func(batch *event.Batch) error {
		for i := range batch.Records {
			if batch.Records[i].Event.Type == event.Deleted {
				published++
			}
		}
		if before := scanned.Load(); before > 0 {
			worst = max(worst, int(store.entries.Load()-before)-published)
		}
		return nil
	}
	s := &script{t: t, store: store, bus: &b.bus, sink: b, started: map[string]*collectionScript{}, done: make(chan error, 1)}
	s.run()
	s.set(wantConfigMaps, nil)
	c := s.collection("configmaps", nil)
	names := &asked{}
	c.h.last = names
	c.says(source.Signal{Kind: source.ListBegun, RV: "10", Reason: source.ReasonExpired})
	s.settle()
	scanned.Store(store.entries.Load())
	c.says(source.Signal{Kind: source.ListEnded, RV: "20", Resume: "20"})
	s.settle()
	s.finish()
	if published != objects {
		t.Errorf("%d of %d vanished objects were published as deleted", published, objects)
	}
	if worst > most {
		t.Errorf("%d objects were handed out at once, at most %d may be", worst, most)
	}
	if n := names.most.Load(); n == 0 || n > 10_000 {
		t.Errorf("the server's past was searched for %d objects at once", n)
	}
}
