package attribute

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// store is a checkpoint in memory.
type store map[string][]byte

func (s store) Get(key []byte) ([]byte, error) { return s[string(key)], nil }

func (s store) Scan(prefix []byte, fn func(key, value []byte) error) error {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if strings.HasPrefix(key, string(prefix)) {
			if err := fn([]byte(key), s[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s store) Commit(_ context.Context, changes []event.KV) error {
	for _, kv := range changes {
		if s[string(kv.Key)] = kv.Value; kv.Value == nil {
			delete(s, string(kv.Key))
		}
	}
	return nil
}

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func newAttribution() *Attribution {
	return New(Options{
		Join:    join.Options{Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 100, MaxRequests: 100},
		Storage: func(join.Resource) (string, bool) { return "", true }, Inputs: 1,
	})
}

// readyAt is Ready when all records that were written before a time are read.
func readyAt(a *Attribution, at time.Time) []*Change {
	a.Caught(at, a.read)
	return a.Ready(at)
}

// change returns a published creation.
func change(name, version string) *Change {
	return &Change{
		Collection: "deployments.apps", Type: event.Added, Run: "7", Incarnation: 7, Epoch: 1, APIVersion: "apps/v1", Kind: "Deployment",
		Namespace: "shop", Name: name, UID: "uid-" + name, Published: version, Made: version, Did: join.Created,
	}
}

// creation returns the record of a request that created an object.
func creation(name, version, user string) *audit.Record {
	return &audit.Record{
		ID: user, Stage: audit.Complete, Level: audit.RequestResponse, Verb: "create", Group: "apps", Resource: "deployments", Namespace: "shop", Name: name,
		Code: 201, Answer: &audit.Answer{Namespace: "shop", Name: name, UID: "uid-" + name, Version: version}, Received: noon, Reached: noon.Add(time.Second),
		Actor: audit.Actor{User: audit.User{Name: user}},
	}
}

// numbers returns the numbers of changes.
func numbers(list []*Change) (out []uint64) {
	for _, c := range list {
		out = append(out, c.Number)
	}
	return out
}

// A change that was published before a restart is attributed after it, once.
func TestRestart(t *testing.T) {
	s := store{}
	before := newAttribution()
	if err := before.load(s, noon); err != nil {
		t.Fatal(err)
	}
	kv := before.await(change("web", "5"), true, noon)
	if err := s.Commit(t.Context(), []event.KV{kv}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(kv.Key), prefix) {
		t.Errorf("key %q is not that of a change that waits", kv.Key)
	}

	after := newAttribution()
	if err := after.load(s, noon); err != nil {
		t.Fatal(err)
	}
	after.Read(1, creation("web", "5", "alice"), noon)
	ready := readyAt(after, noon)
	if len(ready) != 1 {
		t.Fatalf("ready: %v", numbers(ready))
	}
	e, done := eventOf(after, ready[0].Number)
	if id := e.Attribution.Explains; id != "pods:7:uid-web:5:added" {
		t.Errorf("the event explains %s", id)
	}
	if e.Attribution.Request == nil || e.Attribution.Request.User.Name != "alice" || e.Attribution.Request.Completed == "" {
		t.Errorf("attribution %+v", e.Attribution)
	}
	if n := after.Needed(); n != 1 {
		t.Errorf("records are needed from %d on, want 1: the event is not committed", n)
	}
	if err := s.Commit(t.Context(), []event.KV{done}); err != nil {
		t.Fatal(err)
	}
	after.explained(ready[0].Number)
	if n := after.Needed(); n != 2 {
		t.Errorf("records are needed from %d on, want 2", n)
	}
	if len(s) != 0 {
		t.Errorf("the store has %v", s)
	}
	if more := readyAt(after, noon); len(more) != 0 {
		t.Errorf("ready again: %v", numbers(more))
	}
}

// If the collection is suspended before an attribution is committed, the verdict is not lost with the record that it came from.
func TestSuspended(t *testing.T) {
	s := store{}
	a := newAttribution()
	if err := a.load(s, noon); err != nil {
		t.Fatal(err)
	}
	committed := a.await(change("web", "5"), true, noon)
	a.await(change("api", "6"), true, noon) // is discarded
	if err := s.Commit(t.Context(), []event.KV{committed}); err != nil {
		t.Fatal(err)
	}
	a.Read(1, creation("web", "5", "alice"), noon)
	if ready := readyAt(a, noon); len(ready) != 1 {
		t.Fatalf("ready: %v", numbers(ready))
	}
	if err := a.Restore(s, "deployments.apps", noon); err != nil {
		t.Fatal(err)
	}
	again := readyAt(a, noon)
	if len(again) != 1 || again[0].Name != "web" {
		t.Fatalf("ready after the suspension: %v", numbers(again))
	}
	a.await(change("api", "6"), true, noon)
	a.Read(2, creation("api", "6", "bob"), noon)
	if ready := readyAt(a, noon); len(ready) != 1 || ready[0].Name != "api" {
		t.Errorf("ready: %v", numbers(ready))
	}
}

// A collection is resumed before anybody has asked for the verdicts on its changes. Each change is attributed once, also if its event was not committed.
func TestSuspendedBeforeVerdictsAreTaken(t *testing.T) {
	s := store{}
	a := newAttribution()
	if err := a.load(s, noon); err != nil {
		t.Fatal(err)
	}
	a.Read(1, creation("web", "5", "alice"), noon)
	a.Read(2, creation("api", "6", "bob"), noon)
	committed := a.await(change("web", "5"), true, noon)
	a.await(change("api", "6"), true, noon) // is discarded
	if err := s.Commit(t.Context(), []event.KV{committed}); err != nil {
		t.Fatal(err)
	}
	if err := a.Restore(s, "deployments.apps", noon); err != nil {
		t.Fatal(err)
	}
	if n := a.Needed(); n != 1 {
		t.Errorf("records are needed from %d on, want 1: no verdict is committed", n)
	}
	a.await(change("api", "6"), true, noon)
	ready := readyAt(a, noon)
	if len(ready) != 2 || ready[0].Name != "web" || ready[1].Name != "api" {
		t.Fatalf("ready: %v, want each change once", numbers(ready))
	}
	for i, user := range []string{"alice", "bob"} {
		if e, _ := eventOf(a, ready[i].Number); e.Attribution.Request == nil || e.Attribution.Request.User.Name != user {
			t.Errorf("attributed to %+v, want %s", e.Attribution, user)
		}
		a.explained(ready[i].Number)
	}
	if n := a.Counts(); a.decidedBytes != 0 || n.Exact != 2 || n.Waiting != 0 {
		t.Errorf("%d bytes are counted, counts %+v", a.decidedBytes, n)
	}
}

// Several collections can have the same object. The change is attributed in each of them, whenever they publish it.
func TestSeveralCollections(t *testing.T) {
	a := newAttribution()
	if err := a.load(store{}, noon); err != nil {
		t.Fatal(err)
	}
	in := func(collection string) {
		c := change("web", "5")
		c.Collection = collection
		a.await(c, true, noon)
	}
	in("deployments.apps")
	in("deployments.apps:canary")
	a.Read(1, creation("web", "5", "alice"), noon)
	if ready := readyAt(a, noon); len(ready) != 2 || a.Silent(ready[0].Number) || a.Silent(ready[1].Number) {
		t.Errorf("ready: %v", numbers(ready))
	}
	in("deployments.apps@shop")
	if ready := readyAt(a, noon); len(ready) != 1 || !a.decided[ready[0].Number].exact() {
		t.Errorf("ready in a collection that is late: %v", numbers(ready))
	}
	for number := range a.waiting {
		a.explained(number)
	}
	of := Resource{Resource: join.Resource{Group: "apps", Resource: "deployments"}}
	a.Overlap(map[join.Resource]bool{of.Resource: true})
	if n := a.Needed(); n != 1 {
		t.Errorf("records are needed from %d on, want 1: another collection may publish the change after a restart", n)
	}
	a.Passed(of, "5")
	if n := a.Needed(); n != 2 {
		t.Errorf("records are needed from %d on, want 2: all collections have published the change", n)
	}
}

// patched publishes a change of web and reads the records of bob's patch, which made it. The change comes between the two records.
func patched(a *Attribution, at time.Time) {
	patch := creation("web", "11", "bob")
	patch.Verb, patch.Code = "patch", 200
	open := *patch
	open.Stage, open.Code, open.Answer = audit.Received, 0, nil
	a.Read(2, &open, at)
	changed := change("web", "11")
	changed.Type, changed.Did, changed.Before = event.Modified, join.Changed, "9"
	a.await(changed, true, at)
	a.Read(3, patch, at)
	a.Caught(at, 3)
}

// After a loss of the inbox, numbers begin again. Complete records are trusted again when all requests are over that were open then, as after other losses.
func TestAnotherInbox(t *testing.T) {
	a := newAttribution()
	a.options.Join.Complete = true
	if err := a.load(store{}, noon); err != nil {
		t.Fatal(err)
	}
	a.Begin(1000, noon) // the position in the store
	a.await(change("old", "5"), false, noon)
	a.Begin(0, noon) // the inbox has no such record
	a.Lost(noon)

	floorAt := noon.Add(2 * time.Minute)
	a.Read(1, creation("other", "6", "alice"), floorAt)
	a.Caught(floorAt, 1)
	a.Floor(Resource{Resource: join.Resource{Group: "apps", Resource: "deployments"}}, "10", 1, floorAt, floorAt)
	patched(a, floorAt)
	for _, c := range a.Ready(floorAt) {
		if c.Name == "web" {
			if e, _ := eventOf(a, c.Number); e.Attribution.Request == nil || e.Attribution.Request.User.Name != "bob" {
				t.Errorf("attribution %+v", e.Attribution)
			}
			return
		}
	}
	t.Error("the patch is not decided: records are not trusted again")
}

// In a quiet cluster, records are complete although none has come yet: the first change has an exact request.
func TestFirstChangeOfAQuietCluster(t *testing.T) {
	a := newAttribution()
	a.options.Join.Complete = true
	if err := a.load(store{}, noon); err != nil {
		t.Fatal(err)
	}
	a.Begin(0, noon)
	at := noon
	for range 3 {
		a.Floor(Resource{Resource: join.Resource{Group: "apps", Resource: "deployments"}}, "10", 0, at, at)
		at = at.Add(time.Minute)
	}
	patched(a, at)
	ready := a.Ready(at)
	if len(ready) != 1 {
		t.Fatalf("%d changes have a verdict, want 1", len(ready))
	}
	if e, _ := eventOf(a, ready[0].Number); e.Attribution.Request == nil || e.Attribution.Request.User.Name != "bob" {
		t.Errorf("attribution %+v, want bob", e.Attribution)
	}
}

// A record of another user proves the change as well, before the answer is published: then neither is exact, also where the first answer is stored. What is
// published stays.
func TestContradiction(t *testing.T) {
	for _, test := range []struct {
		name  string
		until func(a *Attribution, s store, list []*Change) // the second record
		exact bool
	}{
		{"it waits", func(a *Attribution, _ store, list []*Change) { a.Later(list) }, false},
		{"it is stored, because the collection is suspended", func(a *Attribution, s store, _ []*Change) {
			keep(t, a, s)
			a.Sealed()
			a.Committed(nil)
		}, false},
		{"it is in a batch that is not committed", func(a *Attribution, _ store, list []*Change) { eventOf(a, list[0].Number) }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := store{}
			a := newAttribution()
			if err := a.load(s, noon); err != nil {
				t.Fatal(err)
			}
			if err := s.Commit(t.Context(), []event.KV{a.await(change("web", "5"), true, noon)}); err != nil {
				t.Fatal(err)
			}
			a.Read(1, creation("web", "5", "alice"), noon)
			ready := readyAt(a, noon)
			if len(ready) != 1 || !a.decided[ready[0].Number].exact() {
				t.Fatalf("%d changes are ready, want one that is exact", len(ready))
			}
			test.until(a, s, ready)
			a.Read(2, creation("web", "5", "mallory"), noon)
			readyAt(a, noon)
			e, _ := eventOf(a, ready[0].Number)
			if e.Attribution.Warning != "" {
				t.Errorf("of two candidates, the event warns that %q", e.Attribution.Warning)
			}
			if exact := e.Attribution.Request != nil; exact != test.exact || !exact && len(e.Attribution.Candidates) != 2 {
				t.Errorf("attribution %+v", e.Attribution)
			}
			keep(t, a, s)
			after := newAttribution()
			if err := after.load(s, noon); err != nil {
				t.Fatal(err)
			}
			for _, c := range after.waiting {
				if c.Verdict == nil || (c.Verdict.Request != nil) != test.exact {
					t.Errorf("the store has the verdict %+v", c.Verdict)
				}
			}
		})
	}
}

// keep stores verdicts.
func keep(t *testing.T, a *Attribution, s store) {
	t.Helper()
	changes, err := a.Keep(func(*Change) bool { return true })
	if err == nil {
		err = s.Commit(t.Context(), changes)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An aggregated API server may change its objects itself, or by requests for another resource that has the same objects: a patch is not the only possible
// origin of a change.
func TestObjectsOfAnotherServer(t *testing.T) {
	for storage, exact := range map[string]bool{"": true, "apps": false} {
		a := newAttribution()
		a.options.Join.Complete = true
		a.options.Storage = func(join.Resource) (string, bool) { return storage, true }
		if err := a.load(store{}, noon); err != nil {
			t.Fatal(err)
		}
		a.Read(1, creation("other", "6", "alice"), noon)
		trusted := noon.Add(2 * time.Minute)
		a.Floor(Resource{storage, join.Resource{Group: "apps", Resource: "deployments"}}, "10", 1, trusted, trusted)
		patched(a, trusted)
		ready := a.Ready(trusted)
		if len(ready) != 1 {
			t.Fatalf("storage %q: %d changes have a verdict, want 1", storage, len(ready))
		}
		if e, _ := eventOf(a, ready[0].Number); (e.Attribution.Request != nil) != exact {
			t.Errorf("storage %q: attribution %+v, want one that is exact: %t", storage, e.Attribution, exact)
		}
	}
}

// While records are not read, for example because the bus is away, no change is given up.
func TestUnreadRecords(t *testing.T) {
	a := newAttribution()
	if err := a.load(store{}, noon); err != nil {
		t.Fatal(err)
	}
	a.Caught(noon, 0)
	a.await(change("web", "5"), true, noon)
	late := noon.Add(2 * time.Hour)
	a.Caught(late, 1) // record 1 is there, and not read
	if ready := a.Ready(late); len(ready) != 0 {
		t.Fatalf("ready before the record is read: %v", numbers(ready))
	}
	a.Read(1, creation("web", "5", "alice"), late)
	ready := readyAt(a, late)
	if len(ready) != 1 || a.Silent(ready[0].Number) {
		t.Fatalf("ready when the record is read: %v", numbers(ready))
	}
	a.Later(ready) // there was no room
	if again := a.Ready(late); len(again) != 1 || again[0] != ready[0] {
		t.Errorf("ready again: %v", numbers(again))
	}
}

// A change that waits longer than its records usually take is not given up when a record of another request for its object is read, or another change of
// its object is published: its own record may be one of the next.
func TestRecordsReadLate(t *testing.T) {
	a := newAttribution()
	if err := a.load(store{}, noon); err != nil {
		t.Fatal(err)
	}
	a.Caught(noon, 0)
	first := change("web", "5")
	a.await(first, true, noon)
	late := noon.Add(2 * time.Hour)
	a.Caught(late, 3) // the records are there, and not read
	begun := creation("web", "", "bob")
	begun.Stage, begun.Code, begun.Answer = audit.Received, 0, nil // what it has done is in a later record
	a.Read(1, begun, late)
	second := change("web", "6")
	second.Did, second.Before, second.Type = join.Changed, "5", event.Modified
	a.await(second, true, late)
	if ready := a.Ready(late); len(ready) != 0 {
		t.Fatalf("ready before the records are read: %v", numbers(ready))
	}
	ended := *begun
	ended.Stage, ended.Code = audit.Complete, 409
	a.Read(2, &ended, late)
	a.Read(3, creation("web", "5", "alice"), late)
	ready := readyAt(a, late)
	if len(ready) != 1 || ready[0] != first {
		t.Fatalf("ready when the records are read: %v", numbers(ready))
	}
	if e, _ := eventOf(a, first.Number); e.Attribution.Request == nil || e.Attribution.Request.User.Name != "alice" {
		t.Errorf("attribution %+v", e.Attribution)
	}
}

// If more requests fit than the event has, it has those around the moment when the change was noticed, also after a restart, and says that others are left out.
func TestManyCandidates(t *testing.T) {
	s := store{}
	before := newAttribution()
	if err := before.load(s, noon); err != nil {
		t.Fatal(err)
	}
	c := change("web", "5")
	c.Type, c.Did = event.Modified, join.Changed
	if err := s.Commit(t.Context(), []event.KV{before.await(c, true, noon.Add(17*time.Second))}); err != nil {
		t.Fatal(err)
	}
	after := newAttribution()
	if err := after.load(s, noon.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		r := creation("web", "5", fmt.Sprint("user-", i))
		r.Level, r.Answer, r.Verb, r.Code = audit.Metadata, nil, "patch", 200
		r.Received = noon.Add(time.Duration(i) * time.Second)
		r.Reached = r.Received.Add(time.Millisecond)
		after.Read(uint64(i+1), r, noon.Add(time.Minute))
	}
	ready := readyAt(after, noon.Add(2*time.Minute))
	if len(ready) != 1 {
		t.Fatalf("ready: %v", numbers(ready))
	}
	e, _ := eventOf(after, ready[0].Number)
	got := e.Attribution
	if first := got.Candidates[0].User.Name; len(got.Candidates) != 16 || first != "user-17" || !slices.Equal(got.LeftOut, []string{"candidates"}) {
		t.Errorf("%d candidates, the first is %s, and %q are left out", len(got.Candidates), first, got.LeftOut)
	}
}

// A change without a record leaves the store, and nothing is published about it.
func TestNoRecord(t *testing.T) {
	a := newAttribution()
	if err := a.load(store{}, noon); err != nil {
		t.Fatal(err)
	}
	kv := a.await(change("web", "5"), true, noon)
	if ready := readyAt(a, noon.Add(time.Minute)); len(ready) != 0 {
		t.Fatalf("ready after a minute: %v", numbers(ready))
	}
	ready := readyAt(a, noon.Add(time.Hour))
	if len(ready) != 1 || !a.Silent(ready[0].Number) {
		t.Fatalf("ready after an hour: %v", numbers(ready))
	}
	if drop := a.Drop(ready[0].Number); string(drop.Key) != string(kv.Key) || drop.Value != nil {
		t.Errorf("the store gets %q: %q", drop.Key, drop.Value)
	}
	if n := a.Counts(); n.Unknown != 1 || n.Waiting != 0 {
		t.Errorf("counts %+v", n)
	}
}

// After a restore of etcd, resourceVersions are used again: a request of one history says nothing about a change of another one, before and after a
// restart.
func TestHistories(t *testing.T) {
	update := func(name, user string, received time.Time) *audit.Record {
		r := creation(name, "5", user)
		r.Verb, r.Code, r.Expected, r.Received, r.Reached = "update", 200, "4", received, received
		return r
	}
	updated := func(epoch uint64, name string) *Change {
		c := change(name, "5")
		c.Type, c.Did, c.Before, c.Epoch = event.Modified, join.Changed, "4", epoch
		return c
	}
	users := func(a *Attribution, now time.Time) (names []string) {
		for _, c := range readyAt(a, now) {
			e, _ := eventOf(a, c.Number)
			if r := e.Attribution.Request; r != nil {
				names = append(names, r.User.Name)
			} else {
				names = append(names, e.Attribution.Reason)
			}
		}
		return names
	}
	restored := noon.Add(10 * time.Second)
	for _, restart := range []bool{false, true} {
		s := store{}
		a := newAttribution()
		if err := a.load(s, noon); err != nil {
			t.Fatal(err)
		}
		if kvs := a.setEpochs(map[string]uint64{"": 1}, noon); len(kvs) != 0 {
			t.Errorf("%v is stored of the first history", kvs)
		}
		if err := s.Commit(t.Context(), []event.KV{a.await(updated(1, "api"), true, noon)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), a.setEpochs(map[string]uint64{"": 2}, restored)); err != nil {
			t.Fatal(err)
		}
		if restart {
			a = newAttribution()
			if err := a.load(s, restored); err != nil {
				t.Fatal(err)
			}
		}
		later := restored.Add(2 * clocksDiffer)
		a.Read(1, update("api", "mallory", later), later)
		if got := users(a, later); len(got) != 1 || got[0] != string(join.History) {
			t.Errorf("restart %v: a change before the restore is attributed to %v, want the reason history", restart, got)
		}
		a.await(updated(2, "web"), true, later)
		a.Read(2, update("web", "alice", restored), later)
		if got := users(a, later); len(got) != 0 {
			t.Errorf("restart %v: a change after the restore is attributed to %v, by a request before it", restart, got)
		}
		a.Read(3, update("web", "bob", later), later)
		if got := users(a, later); len(got) != 1 || got[0] != "bob" {
			t.Errorf("restart %v: a change after the restore is attributed to %v, want bob", restart, got)
		}
		if kvs := a.setEpochs(map[string]uint64{"": 2}, later); len(kvs) != 0 {
			t.Errorf("restart %v: the histories are stored again", restart)
		}
	}
}

// What the checkpoint has is complete: a change is the same after a restart.
func TestStoredChange(t *testing.T) {
	c := *change("web", "5")
	c.Before, c.Unrequested, c.Storage, c.Epoch = "4", true, "example.com", 3
	text, err := json.Marshal(&c)
	if err != nil {
		t.Fatal(err)
	}
	read := Change{Collection: c.Collection}
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if read.Made != c.Made || read.Before != c.Before || read.Did != c.Did || !read.Unrequested || read.Storage != c.Storage || read.Epoch != c.Epoch || read.UID != c.UID || read.Type != c.Type {
		t.Errorf("%+v was read as %+v", c, read)
	}
}

// Batches of records come again, for example if the API server did not get the answer. A change is attributed once, and a later change of
// the object is not attributed to the repeated request.
func TestRepeatedRecords(t *testing.T) {
	s := store{}
	a := newAttribution()
	if err := a.load(s, noon); err != nil {
		t.Fatal(err)
	}
	commit := func(kv event.KV) {
		t.Helper()
		if err := s.Commit(t.Context(), []event.KV{kv}); err != nil {
			t.Fatal(err)
		}
	}
	attributed := func(user string) {
		t.Helper()
		ready := readyAt(a, noon)
		if len(ready) != 1 {
			t.Fatalf("ready: %v, want one", numbers(ready))
		}
		e, done := eventOf(a, ready[0].Number)
		if r := e.Attribution.Request; r == nil || r.User.Name != user {
			t.Errorf("attributed to %+v, want %s", e.Attribution, user)
		}
		commit(done)
		a.explained(ready[0].Number)
	}
	number := uint64(0)
	read := func(r *audit.Record) {
		copied := *r
		number++
		a.Read(number, &copied, noon)
	}
	created := creation("web", "5", "alice")
	commit(a.await(change("web", "5"), true, noon))
	read(created)
	read(created)
	attributed("alice")
	read(created)

	changed := change("web", "6")
	changed.Type, changed.Did, changed.Before = event.Modified, join.Changed, "5"
	commit(a.await(changed, true, noon))
	read(created)
	if early := readyAt(a, noon); len(early) != 0 {
		t.Fatalf("ready before its record: %v", numbers(early))
	}
	update := creation("web", "6", "bob")
	update.Verb, update.Code, update.Expected = "update", 200, "5"
	read(update)
	attributed("bob")
	read(update)
	read(created)
	if more := readyAt(a, noon); len(more) != 0 {
		t.Errorf("ready again: %v", numbers(more))
	}
}

// RBAC objects may have names of any length. A record has a long one shortened, and is joined with the change all the same.
func TestLongName(t *testing.T) {
	a := newAttribution()
	name := strings.Repeat("n", 5000)
	a.await(change(name, "9"), true, noon)
	r := creation(audit.Shortened(name), "9", "alice")
	r.Answer.UID = "uid-" + name
	a.Read(1, r, noon)
	if ready := readyAt(a, noon); len(ready) != 1 || !a.decided[ready[0].Number].exact() {
		t.Errorf("got %d verdicts, want an exact one", len(ready))
	}
}

// A single candidate is not taken for the one who made the change: the event says in words that it is no proof.
func TestOneCandidate(t *testing.T) {
	a := newAttribution()
	if err := a.load(store{}, noon); err != nil {
		t.Fatal(err)
	}
	changed := change("web", "11")
	changed.Type, changed.Did = event.Modified, join.Changed
	a.await(changed, true, noon)
	patch := creation("web", "11", "alice")
	patch.Verb, patch.Code = "patch", 200
	a.Read(1, patch, noon)
	for _, c := range readyAt(a, noon.Add(time.Hour)) {
		if e, _ := eventOf(a, c.Number); len(e.Attribution.Candidates) == 1 && e.Attribution.Warning == event.OneCandidate {
			return
		}
	}
	t.Error("there is no event with one candidate and a warning")
}
