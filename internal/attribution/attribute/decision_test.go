package attribute

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

func isSuspended(*Change) bool { return true }

// While the bus refuses a route, verdicts on its changes are in the checkpoint, so their records are not needed, and the user is known after a restart
// that reads none of them.
func TestVerdictsAreStored(t *testing.T) {
	w := newWorld(t)
	w.commit(w.await(change("web", "5"), true, noon))
	w.await(change("api", "6"), true, noon) // its event is not committed
	w.Read(1, creation("web", "5", "alice"), noon)
	w.Read(2, creation("api", "6", "bob"), noon)
	if n := w.Needed(); n != 1 {
		t.Errorf("records are needed from %d on, want 1: nothing is published yet", n)
	}
	if ready := readyAt(w.Attribution, noon); len(ready) != 2 {
		t.Fatalf("ready: %v", numbers(ready))
	}
	keep := func() []event.KV {
		t.Helper()
		changes, err := w.Keep(isSuspended)
		if err != nil {
			t.Fatal(err)
		}
		return changes
	}
	if none, err := w.Keep(func(*Change) bool { return false }); err != nil || len(none) != 0 {
		t.Errorf("of a collection that is not suspended, %v is stored, %v", none, err)
	}
	kept := keep()
	if len(kept) != 1 || len(keep()) != 0 {
		t.Fatalf("stored are %d verdicts, want one, once: the other change would come back, although its event was not published", len(kept))
	}
	if n := w.Needed(); n != 1 {
		t.Errorf("records are needed from %d on, want 1: the verdict is not durable yet", n)
	}
	w.commit(kept...)
	if n := w.Needed(); n != 2 {
		t.Errorf("records are needed from %d on, want 2", n)
	}

	w.start()
	w.Begin(2, noon)
	ready := readyAt(w.Attribution, noon)
	if len(ready) != 1 || ready[0].Name != "web" || w.Silent(ready[0].Number) {
		t.Fatalf("ready after the restart: %v", numbers(ready))
	}
	if n := w.Needed(); n != 3 {
		t.Errorf("records are needed from %d on, want 3", n)
	}
	if err := w.Restore(w.store, "deployments.apps", noon); err != nil { // suspended and resumed
		t.Fatal(err)
	}
	if ready = readyAt(w.Attribution, noon); len(ready) != 1 {
		t.Fatalf("ready after the suspension: %v", numbers(ready))
	}
	e, done := eventOf(w, ready[0].Number)
	if e.Attribution.Request == nil || e.Attribution.Request.User.Name != "alice" {
		t.Errorf("attribution %+v", e.Attribution)
	}
	w.commit(done)
	w.explained(ready[0].Number)
	if n := w.Counts(); len(w.store) != 0 || n.Exact != 1 || n.Waiting != 0 {
		t.Errorf("the store has %v, counts %+v", w.store, n)
	}
}

// halfRead is a store that fails the second read.
type halfRead struct {
	store
	reads int
}

var errBroken = errors.New("broken")

func (s *halfRead) Get(key []byte) ([]byte, error) {
	if s.reads++; s.reads == 2 {
		return nil, errBroken
	}
	return s.store.Get(key)
}

// If the checkpoint cannot be read for one of two verdicts, the other one is stored, and the next call stores that one.
func TestVerdictsAreStoredAfterAnError(t *testing.T) {
	w := newWorld(t)
	w.commit(w.await(change("web", "5"), true, noon), w.await(change("api", "6"), true, noon))
	w.Read(1, creation("web", "5", "alice"), noon)
	w.Read(2, creation("api", "6", "bob"), noon)
	if ready := readyAt(w.Attribution, noon); len(ready) != 2 {
		t.Fatalf("ready: %v", numbers(ready))
	}
	w.Attribution.store = &halfRead{store: w.store}
	for i := range 2 {
		changes, err := w.Keep(isSuspended)
		if failed := errors.Is(err, errBroken); failed != (i == 0) {
			t.Fatalf("call %d: %v", i, err)
		}
		w.commit(changes...)
	}
	for key, value := range w.store {
		if !bytes.Contains(value, []byte(`"request"`)) {
			t.Errorf("the verdict is not stored: %s has %s", key, value)
		}
	}
	if n := w.Needed(); n != 3 {
		t.Errorf("records are needed from %d on, want 3", n)
	}
}

// If the event of a change is not committed, because the route is refused, its request is that of the same change again, also if the memory for verdicts is
// almost full.
func TestVerdictIsGivenBackInFullMemory(t *testing.T) {
	w := newWorld(t)
	w.options.Join.MaxChanges, w.options.Join.MaxRequests = 10_000, 10_000 // of joins that begin later
	long := strings.Repeat("x", 64<<10)
	number := uint64(0)
	decide := func(name string) event.KV {
		number++
		version := fmt.Sprint(number + 10)
		change := w.await(change(name, version), true, noon)
		r := creation(name, version, "mallory")
		r.Actor.User.Extra = map[string][]string{"e": {long}}
		w.Read(number, r, noon)
		return change
	}
	many := func(name string) {
		for i := range maxDecidedBytes / (64 << 10) {
			w.commit(decide(fmt.Sprint(name, i)))
			readyAt(w.Attribution, noon)
		}
	}
	many("before")
	decide("web")
	web := fmt.Sprint(number + 10)
	readyAt(w.Attribution, noon)
	many("after") // and the join does not remember the verdict any more
	if err := w.Restore(w.store, "deployments.apps", noon); err != nil {
		t.Fatal(err)
	}
	readyAt(w.Attribution, noon)
	w.await(change("web", web), true, noon)
	ready := readyAt(w.Attribution, noon)
	if len(ready) != 1 {
		t.Fatalf("ready is %v", numbers(ready))
	}
	if e, _ := eventOf(w, ready[0].Number); e.Name != "web" || e.Attribution.Request == nil {
		t.Errorf("%s has %+v", e.Name, e.Attribution)
	}
}

// Changes of a suspended collection whose users have very long texts do not fill the memory: their events leave out more.
func TestVerdictsAreBoundedByBytes(t *testing.T) {
	a := newAttribution()
	a.options.Join.MaxChanges, a.options.Join.MaxRequests = 10_000, 10_000
	if err := a.load(store{}, noon); err != nil {
		t.Fatal(err)
	}
	const n = 2 * maxDecidedBytes / (64 << 10)
	long := strings.Repeat("x", 64<<10)
	for i := range n {
		name, version := fmt.Sprint("o", i), fmt.Sprint(i+10)
		a.await(change(name, version), true, noon)
		r := creation(name, version, "mallory")
		r.Actor.User.Extra = map[string][]string{"e": {long}}
		a.Read(uint64(i+1), r, noon)
	}
	ready := readyAt(a, noon)
	if len(ready) != n {
		t.Fatalf("%d changes are ready", len(ready))
	}
	if limit := maxDecidedBytes + n*crowdedBytes; a.decidedBytes > limit {
		t.Errorf("%d bytes are in memory, want at most %d", a.decidedBytes, limit)
	}
	e, _ := eventOf(a, ready[n-1].Number)
	if r := e.Attribution.Request; r == nil || r.User.Name != "mallory" || strings.Join(e.Attribution.LeftOut, " ") != "extra" {
		t.Errorf("attribution %+v", e.Attribution)
	}
	if needed := a.Needed(); needed != 1 {
		t.Errorf("records are needed from %d on, want 1: the verdicts are not durable", needed)
	}
	for _, c := range ready {
		a.explained(c.Number)
	}
	if a.decidedBytes != 0 {
		t.Errorf("without verdicts, %d bytes are counted", a.decidedBytes)
	}
}
