package durable_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
)

func open(t *testing.T) checkpoint.Store {
	t.Helper()
	store, err := file.OpenMem(event.Identity{Bridge: "b", ClusterUID: "c", Sink: "s"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func commit(t *testing.T, store checkpoint.Store, kvs []event.KV) {
	t.Helper()
	if err := store.Commit(t.Context(), kvs); err != nil {
		t.Fatal(err)
	}
}

const uid = "5b8f1c34-7a2e-4c8a-9f39-0e1f8f2f4a11"

func objects() *rapid.Generator[reconcile.Object] {
	versions := rapid.SampledFrom([]string{"", "0", "7", "1042", "18446744073709551615", "007", "W/\"a\""})
	return rapid.Custom(func(t *rapid.T) reconcile.Object {
		o := reconcile.Object{
			UID:     rapid.SampledFrom([]string{uid, "node/1", "", strings.ToUpper(uid)}).Draw(t, "uid"),
			Version: versions.Draw(t, "version"), Digest: reconcile.Digest(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "digest")),
			Status: rapid.SampledFrom([]reconcile.Status{reconcile.Published, reconcile.Outdated, reconcile.Unpublished, reconcile.Skipped}).Draw(t, "status"),
			Judged: rapid.Uint64().Draw(t, "judged"), APIVersion: "apps/v1", Kind: rapid.SampledFrom([]string{"Deployment", "", "Größe"}).Draw(t, "kind"),
		}
		if rapid.Bool().Draw(t, "published") {
			o.Run = rapid.SampledFrom([]uint64{0, 1, o.Judged}).Draw(t, "run")
			o.At = rapid.SampledFrom([]string{o.Version, "3", ""}).Draw(t, "at")
			o.AtDigest = rapid.SampledFrom([]reconcile.Digest{{}, {5}, o.Digest}).Draw(t, "digest at")
			o.Significant = rapid.SampledFrom([]reconcile.Digest{{}, {9}}).Draw(t, "significant digest")
		}
		return o
	})
}

// The next start reads the state that a batch commits.
func TestRoundTrip(t *testing.T) {
	store := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		o, intended := objects().Draw(rt, "object"), objects().Draw(rt, "intent")
		slot := reconcile.Slot{Collection: "deployments.apps:canary@shop", Key: durable.ObjectKey("shop", "web")}
		node := reconcile.Slot{Collection: "nodes", Key: durable.ObjectKey("", "worker-7")}
		r := reconcile.Record{
			Phase: reconcile.InStep, Run: 7, Incarnation: 5, Epoch: 2, Reason: "expired", Syncs: 3,
			Resync: true, LastList: reconcile.LastList{SyncedEpoch: 2, ListedSelection: "a=b"}, Properties: reconcile.Properties{Selection: "a=b", Types: event.Types(0).Without(event.Added), Contents: event.Selection{Labels: "a=b", Filtered: true}}, Route: "k8s", Unwanted: true,
		}
		p := reconcile.Progress{Position: "1042", Seen: "1043"}
		b := &reconcile.Batch{
			Changes:  []reconcile.Change{{Slot: slot, Object: &o}, {Slot: node, Object: &o}},
			Records:  map[string]reconcile.Record{slot.Collection: r, "nodes": {Phase: reconcile.Absent}},
			Progress: map[string]reconcile.Progress{slot.Collection: p, "nodes": {}},
			Epochs:   map[string]uint64{"": 2, "metrics.k8s.io": 1},
			Drafts:   map[string]reconcile.Draft{"nodes": {Record: r, Progress: p, Gap: true, Synced: true}},
			Intents:  map[reconcile.Slot][]reconcile.Intent{slot: {{Object: intended, Deleted: true, Epoch: 2}}},
		}
		commit(t, store, durable.NewMemory().Before(b))
		commit(t, store, durable.NewMemory().Changes(b, false))
		got, err := durable.Load(store)
		if err != nil {
			rt.Fatal(err)
		}
		want := reconcile.State{Records: b.Records, Progress: b.Progress, Epochs: b.Epochs, Drafts: b.Drafts, Intents: b.Intents}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatalf("(-want +got):\n%s", diff)
		}
		v := durable.NewInventory(store)
		for _, s := range []reconcile.Slot{slot, node} {
			if diff := cmp.Diff(&o, v.Object(s.Collection, s.Key)); diff != "" || v.Err() != nil {
				rt.Fatalf("%v (-want +got):\n%s", v.Err(), diff)
			}
		}
		commit(t, store, durable.NewMemory().Changes(b, true))
		if got, err = durable.Load(store); err != nil || len(got.Drafts) != 0 || len(got.Intents) != 0 {
			rt.Fatalf("%v: %d drafts and %d intents are left", err, len(got.Drafts), len(got.Intents))
		}
	})
}

// Applying the changes of all items gives a store the same records, positions and inventory entries as their batch.
func TestItemChanges(t *testing.T) {
	store := open(t)
	o := reconcile.Object{UID: uid, Version: "7", Status: reconcile.Published, Judged: 3, Run: 3, At: "7"}
	slot := reconcile.Slot{Collection: "pods", Key: durable.ObjectKey("shop", "web")}
	r := reconcile.Record{Phase: reconcile.Listing, Run: 3, Incarnation: 3, Epoch: 1}
	p := reconcile.Progress{Position: "6", Seen: "7"}
	commit(t, store, durable.NewMemory().ItemChanges(&reconcile.Item{Collection: "pods", Record: &r}))
	commit(t, store, durable.NewMemory().ItemChanges(&reconcile.Item{Collection: "pods", Changes: []reconcile.Change{{Slot: slot, Object: &o}}, Progress: p}))
	got, err := durable.Load(store)
	if err != nil {
		t.Fatal(err)
	}
	want := reconcile.State{Records: map[string]reconcile.Record{"pods": r}, Progress: map[string]reconcile.Progress{"pods": p}}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&o, durable.NewInventory(store).Object("pods", slot.Key)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// filteredOut is what is known of a sighting that no filter lets through.
type filteredOut struct{ reconcile.Prepared }

func (filteredOut) Passes(event.Type) bool { return false }

func (filteredOut) Minor(*reconcile.Object) bool { return false }

// If the bus is the log, a start applies the changes of the items to a store that has the silent changes of each
// batch. Decisions of an operator or of the plan after the last event of a batch are not lost.
func TestSilent(t *testing.T) {
	const list, watch = reconcile.List, reconcile.Watch
	seen := func(from reconcile.Origin, name, version string) reconcile.Input {
		s := &reconcile.Sighting{Origin: from, Key: durable.ObjectKey("shop", name), UID: name, Version: version, Digest: reconcile.Digest{1}}
		return reconcile.Input{Kind: reconcile.Sighted, Sighting: s, Resume: map[reconcile.Origin]string{watch: version}[from]}
	}
	unseen := seen(watch, "d", "17")
	unseen.Sighting.Prepared = filteredOut{}
	begun := []reconcile.Input{{Kind: reconcile.Configure}, {Kind: reconcile.ListBegun}, seen(list, "a", "5")}
	synced := append(begun[:3:3], reconcile.Input{Kind: reconcile.ListEnded, Version: "10"}, reconcile.Input{Kind: reconcile.ListDone})
	for what, batches := range map[string][][]reconcile.Input{
		"the begin of a list":               {begun},
		"a list":                            {synced},
		"an event":                          {synced, {seen(watch, "b", "11")}},
		"a resync that is asked for":        {synced, {seen(watch, "b", "11"), {Kind: reconcile.Demand}}, {seen(watch, "c", "12")}},
		"a removal":                         {synced, {seen(watch, "b", "11"), {Kind: reconcile.Remove}}},
		"an ending":                         {synced, {seen(watch, "b", "11"), {Kind: reconcile.Configure, Properties: reconcile.Properties{Shape: "other"}}}},
		"an object without an event":        {synced, {seen(watch, "b", "11"), unseen}},
		"a bookmark alone":                  {synced, {{Kind: reconcile.Bookmark, Resume: "18"}}},
		"a storage that has not been read":  {{{Kind: reconcile.Configure, Properties: reconcile.Properties{Storage: "other"}}}},
		"another storage behind the events": {synced, {seen(watch, "b", "11"), {Kind: reconcile.Configure, Properties: reconcile.Properties{Storage: "other"}}}},
	} {
		whole, alone := open(t), open(t)
		v := durable.NewInventory(whole)
		k := reconcile.NewCore(v, reconcile.State{}, 1)
		k.Omit(true, false)
		for _, inputs := range batches {
			for _, in := range inputs {
				in.Collection, in.Read = "pods", k.Reading("pods").Number
				k.Step(&in)
			}
			b := k.Seal()
			for i := range b.Items {
				commit(t, alone, durable.NewMemory().ItemChanges(&b.Items[i]))
			}
			commit(t, alone, durable.NewMemory().Silent(b))
			commit(t, whole, durable.NewMemory().Changes(b, false))
			k.Committed()
		}
		want, got := contents(t, whole), contents(t, alone)
		if what == "an object without an event" {
			want["p/pods"] = "11 11" // the watch repeats the object
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// A bridge whose store was not atomic with its sink is started with one that is. Each later start would continue from the drafts and the
// intents that it finds, so the batch that settles them removes them in every mode.
func TestSettledInEveryMode(t *testing.T) {
	for mode, changes := range map[string]func(b *reconcile.Batch) []event.KV{
		"transaction": func(b *reconcile.Batch) []event.KV { return durable.NewMemory().Changes(b, false) },
		"intents":     func(b *reconcile.Batch) []event.KV { return durable.NewMemory().Changes(b, true) },
		"log": func(b *reconcile.Batch) (all []event.KV) {
			for i := range b.Items {
				all = append(all, durable.NewMemory().ItemChanges(&b.Items[i])...)
			}
			return append(all, durable.NewMemory().Silent(b)...)
		},
	} {
		store := open(t)
		begun := func() *reconcile.Core {
			state, err := durable.Load(store)
			if err != nil {
				t.Fatal(err)
			}
			k := reconcile.NewCore(durable.NewInventory(store), state, 1)
			give := func(in reconcile.Input) {
				in.Collection, in.Read = "pods", k.Reading("pods").Number
				k.Step(&in)
			}
			give(reconcile.Input{Kind: reconcile.Configure})
			give(reconcile.Input{Kind: reconcile.ListBegun})
			give(reconcile.Input{Kind: reconcile.Sighted, Sighting: &reconcile.Sighting{
				Origin: reconcile.List, Key: durable.ObjectKey("shop", "a"), UID: "a", Version: "5", Digest: reconcile.Digest{1},
			}})
			give(reconcile.Input{Kind: reconcile.ListEnded, Version: "10"})
			give(reconcile.Input{Kind: reconcile.ListDone})
			return k
		}
		commit(t, store, durable.NewMemory().Before(begun().Seal())) // the bridge is killed
		if state, err := durable.Load(store); err != nil || len(state.Drafts) != 1 || len(state.Intents) != 1 {
			t.Fatalf("%s: %v: %d drafts and %d intents, want 1 and 1", mode, err, len(state.Drafts), len(state.Intents))
		}
		k := begun()
		k.Omit(mode != "intents", mode != "log")
		commit(t, store, changes(k.Seal()))
		if state, err := durable.Load(store); err != nil || len(state.Drafts) != 0 || len(state.Intents) != 0 {
			t.Errorf("%s: %v: %d drafts and %d intents are left", mode, err, len(state.Drafts), len(state.Intents))
		}
	}
}

// A reset removes drafts, because a start would continue from them. It also resets events in doubt.
func TestResetChanges(t *testing.T) {
	store, slot := open(t), reconcile.Slot{Collection: "pods", Key: durable.ObjectKey("shop", "a")}
	draft := reconcile.Draft{Record: reconcile.Record{Phase: reconcile.Listing, Run: 3, Incarnation: 3, Epoch: 1, Reason: "reset"}, Gap: true}
	commit(t, store, durable.NewMemory().Before(&reconcile.Batch{
		Drafts:  map[string]reconcile.Draft{"pods": draft},
		Intents: map[reconcile.Slot][]reconcile.Intent{slot: {{Object: reconcile.Object{UID: uid, Status: reconcile.Published, Version: "5", At: "5", Run: 3, Judged: 3}, Epoch: 1}}},
	}))
	commit(t, store, durable.NewMemory().Changes(&reconcile.Batch{
		Records:  map[string]reconcile.Record{"nodes": {Phase: reconcile.InStep, Run: 2, Incarnation: 2, Epoch: 1}},
		Progress: map[string]reconcile.Progress{"nodes": {Position: "10", Seen: "10"}},
	}, true))
	state, err := durable.Load(store)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, store, durable.ResetChanges(state))
	got, err := durable.Load(store)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(state.Reset(), got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, id := range []string{"pods", "nodes"} {
		if got.Records[id].Phase != reconcile.Ending || got.Records[id].Incarnation != state.Records[id].Incarnation+state.Drafts[id].Incarnation {
			t.Errorf("%s: %+v", id, got.Records[id])
		}
	}
	if len(got.Intents[slot]) != 1 {
		t.Error("an object in doubt would not be forgotten")
	}
}

func contents(t *testing.T, store checkpoint.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := store.Scan(nil, func(key, value []byte) error {
		all[string(key)] = string(value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A typical inventory entry is small: a million of them fit in memory and on disk.
func TestObjectSize(t *testing.T) {
	o := reconcile.Object{
		UID: uid, Version: "123456", Digest: reconcile.Digest{7, 15: 1}, Status: reconcile.Published, Judged: 1_790_000_000_000, Run: 1_790_000_000_000,
		At: "123456", AtDigest: reconcile.Digest{7, 15: 1}, APIVersion: "v1", Kind: "Pod",
	}
	b := &reconcile.Batch{Changes: []reconcile.Change{{Object: &o}}}
	if n := len(durable.NewMemory().Changes(b, false)[0].Value); n > 54 {
		t.Errorf("the usual inventory entry has %d bytes, want at most 54", n)
	}
}

// At the end of a list, the inventory is read in order while batches are committed. Reading begins again after another
// collection was read.
func TestAfter(t *testing.T) {
	store := open(t)
	want := map[string][]string{}
	var b reconcile.Batch
	for _, collection := range []string{"pods", "pods:canary", "pods@shop", "secrets"} {
		for _, name := range []string{"a", "b", "c"} {
			slot := reconcile.Slot{Collection: collection, Key: durable.ObjectKey("shop", collection[:1]+name)}
			want[collection] = append(want[collection], slot.Key)
			b.Changes = append(b.Changes, reconcile.Change{Slot: slot, Object: &reconcile.Object{UID: name, Status: reconcile.Skipped}})
		}
	}
	commit(t, store, durable.NewMemory().Changes(&b, false))
	v := durable.NewInventory(store)
	for _, collection := range slices.Sorted(maps.Keys(want)) {
		var got []string
		for key, ok := v.After(collection, ""); ok; key, ok = v.After(collection, key) {
			got = append(got, key)
			commit(t, store, durable.NewMemory().Changes(&reconcile.Batch{Changes: []reconcile.Change{{Slot: reconcile.Slot{Collection: collection, Key: key}}}}, false))
		}
		if diff := cmp.Diff(want[collection], got); diff != "" || v.Err() != nil {
			t.Errorf("%s: %v (-want +got):\n%s", collection, v.Err(), diff)
		}
		if key, ok := v.After(collection, ""); ok {
			t.Errorf("%s is still there", key)
		}
		if _, ok := v.After(collection, "shop/z"); ok {
			t.Error("there is something behind the last key")
		}
	}
}

// Keys that lie between two entries do not begin the scan again.
func TestAfterBetween(t *testing.T) {
	counting := &countingStore{Store: open(t)}
	var b reconcile.Batch
	for _, name := range []string{"b", "d"} {
		b.Changes = append(b.Changes, reconcile.Change{Slot: reconcile.Slot{Collection: "pods", Key: name}, Object: &reconcile.Object{UID: name, Status: reconcile.Skipped}})
	}
	b.Changes[0].Key, b.Changes[1].Key = "shop/b", "shop/d"
	commit(t, counting, durable.NewMemory().Changes(&b, false))
	v := durable.NewInventory(counting)
	for _, c := range []struct{ key, want string }{{"", "shop/b"}, {"shop/a", "shop/b"}, {"shop/b", "shop/d"}, {"shop/c", "shop/d"}, {"shop/c", "shop/d"}, {"shop/d", ""}, {"shop/e", ""}} {
		if got, _ := v.After("pods", c.key); got != c.want {
			t.Errorf("after %q comes %q, want %q", c.key, got, c.want)
		}
	}
	if counting.scans != 1 {
		t.Errorf("%d scans, want 1", counting.scans)
	}
	if got, _ := v.After("pods", "shop/a"); got != "shop/b" {
		t.Errorf("after a smaller key comes %q", got)
	}
	commit(t, counting, durable.NewMemory().Changes(&reconcile.Batch{Changes: []reconcile.Change{
		{Slot: reconcile.Slot{Collection: "pods", Key: "shop/a"}, Object: &reconcile.Object{UID: "a", Status: reconcile.Skipped}},
	}}, false))
	for range 2 { // another list sees what was committed in the meantime
		if got, _ := v.After("pods", ""); got != "shop/a" {
			t.Errorf("the first key is %q, want shop/a", got)
		}
	}
}

type countingStore struct {
	checkpoint.Store
	scans int
	open  int // scans that have not returned
}

func (c *countingStore) Scan(prefix []byte, fn func(key, value []byte) error) error {
	c.scans++
	c.open++
	defer func() { c.open-- }()
	return c.Store.Scan(prefix, fn)
}

// No scan of the store is open between two calls. A store whose disk has failed is only opened again when no call uses
// it, and an open scan keeps deleted files on the disk. Even so, a large inventory does not need one scan per key.
func TestAfterHoldsNothing(t *testing.T) {
	counting := &countingStore{Store: open(t)}
	var b reconcile.Batch
	var want []string
	for n := range 60_000 {
		key := durable.ObjectKey("shop", fmt.Sprintf("n%05d", n))
		want = append(want, key)
		b.Changes = append(b.Changes, reconcile.Change{Slot: reconcile.Slot{Collection: "pods", Key: key}, Object: &reconcile.Object{UID: key, Status: reconcile.Skipped}})
	}
	commit(t, counting, durable.NewMemory().Changes(&b, false))
	v := durable.NewInventory(counting)
	var got []string
	for key, ok := v.After("pods", ""); ok; key, ok = v.After("pods", key) {
		if got = append(got, key); counting.open > 0 {
			t.Fatalf("a scan is open behind %s", key)
		}
	}
	if !slices.Equal(got, want) || v.Err() != nil {
		t.Errorf("%d of %d keys, %v", len(got), len(want), v.Err())
	}
	if counting.scans > 12 {
		t.Errorf("%d scans", counting.scans)
	}
}

// A damaged checkpoint is an error. It is never read as an empty one.
func TestDamaged(t *testing.T) {
	for _, kv := range []event.KV{
		{Key: []byte("c/pods"), Value: []byte("{")},
		{Key: []byte("c/pods"), Value: []byte(`{"phase":"asleep"}`)},
		{Key: []byte("p/pods"), Value: []byte("1042")},
		{Key: []byte("d/pods"), Value: []byte("[]")},
		{Key: []byte("s/etcd"), Value: []byte("one")},
		{Key: []byte("i/pods/shop/web"), Value: []byte{1, 0, 1}},
		{Key: []byte("i/pods/shop/web/" + uid), Value: []byte{1, 0, 1}},
	} {
		t.Run(string(kv.Key), func(t *testing.T) {
			store := open(t)
			commit(t, store, []event.KV{kv})
			if _, err := durable.Load(store); !errors.Is(err, checkpoint.ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
		})
	}
	t.Run("inventory", func(t *testing.T) {
		store := open(t)
		commit(t, store, []event.KV{{Key: []byte("o/pods/shop/web"), Value: []byte{9}}})
		v := durable.NewInventory(store)
		if v.Object("pods", "shop/web") != nil || !errors.Is(v.Err(), checkpoint.ErrCorrupt) {
			t.Errorf("got %v, want ErrCorrupt", v.Err())
		}
		commit(t, store, []event.KV{{Key: []byte("o/pods/web"), Value: []byte{9}}})
		v = durable.NewInventory(store)
		if _, ok := v.After("pods", ""); ok || !errors.Is(v.Err(), checkpoint.ErrCorrupt) {
			t.Errorf("got %v, want ErrCorrupt", v.Err())
		}
	})
}
