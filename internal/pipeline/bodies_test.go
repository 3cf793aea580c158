package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/shape/patch"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// differences are what modified events say of the state before: "base→rv patched",
// with "before" where that is there, or "rv" alone. A patch that does not lead from
// the last body told to the next fails.
func differences(t rapidOrT, records []event.Record) (out []string) {
	last := map[string][]byte{}
	for _, r := range records {
		e, err := event.Parse(r.Value)
		if err != nil {
			t.Fatalf("%s: %v", r.Value, err)
		}
		if e.Type.OfCollection() {
			continue
		}
		if e.Type == event.Modified {
			line := e.ResourceVersion
			if e.Base != "" {
				line = e.Base + "→" + line
			}
			if e.Patch != nil {
				if got, err := patch.Apply(last[e.UID], e.Patch); err != nil || !sameJSON(got, e.Object) {
					t.Fatalf("%s: %s of %s is %s (%v), not %s", e.ID, e.Patch, last[e.UID], got, err, e.Object)
				}
				line += " patched"
			}
			if e.Before != nil {
				if !sameJSON(e.Before, last[e.UID]) {
					t.Fatalf("%s: before is %s, not %s", e.ID, e.Before, last[e.UID])
				}
				line += " before"
			}
			out = append(out, line)
		}
		last[e.UID] = bytes.Clone(e.Object)
	}
	return out
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

func (s *script) wantDifferences(want ...string) {
	s.t.Helper()
	s.handled()
	s.awaitIdle()
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	if got := differences(s.t, s.bus.records); !reflect.DeepEqual(got, want) {
		s.t.Errorf("differences %q, want %q", got, want)
	}
}

// awaitIdle waits until everything enqueued is committed.
func (s *script) awaitIdle() {
	s.t.Helper()
	idle := false
	for deadline := time.Now().Add(endsHang); !idle; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("something is never committed")
		}
		if err := s.lane.do(s.t.Context(), func(context.Context) error {
			idle = !s.lane.writing && s.lane.idle()
			return nil
		}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// keptBodies counts what the store keeps.
func keptBodies(t *testing.T, s checkpoint.Store) (n int) {
	t.Helper()
	if err := s.Scan(checkpoint.AllBodies(), func(_, _ []byte) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

var both = CollectionOptions{Before: true, Patch: true}

// TestDiff: an update says what changed since the last one told: at once, across a
// change that was ignored, after a restart and in a reconcile; what ends is no longer
// kept.
func TestDiff(t *testing.T) {
	s := newScript(t, openMem(t))
	defer func() { s.finish() }()
	o := both
	o.Ignore = []string{"data.none"} // and resourceVersion
	s.set([]Wanted{optioned(o)}, nil)
	c := s.collection("configmaps", nil)
	c.lists("", source.ReasonSnapshot, "10", objectAt("n", "a", "ua", "5", "1"), objectAt("n", "b", "ub", "6", "1"))
	c.says(modified(objectAt("n", "a", "ua", "11", "2"), "10"), // of the committed, or of what is under way
		modified(objectAt("n", "a", "ua", "12", "3"), "11"), // of what is enqueued
		modified(objectAt("n", "a", "ua", "13", "3"), "12"), // ignored
		modified(objectAt("n", "a", "ua", "14", "4"), "13"),
		deleted(objectAt("n", "b", "ub", "15", "2"), "14"))
	s.wantDifferences("5→11 patched before", "11→12 patched before", "12→14 patched before")
	s.finish()
	s.run()
	s.set([]Wanted{optioned(o)}, nil)
	c = s.collection("configmaps", c)
	c.says(modified(objectAt("n", "a", "ua", "16", "5"), "15"))
	c.lists("16", source.ReasonExpired, "20", objectAt("n", "a", "ua", "19", "6"))
	s.wantDifferences("5→11 patched before", "11→12 patched before", "12→14 patched before", "14→16 patched before", "16→19 patched before")
	if n := keptBodies(t, s.store); n != 1 {
		t.Errorf("%d bodies are kept", n)
	}
	s.set([]Wanted{optioned(CollectionOptions{})}, nil)
	s.awaitIdle()
	if n := keptBodies(t, s.store); n != 0 {
		t.Errorf("%d bodies are kept that nobody wants", n)
	}
}

// TestDiffNeedsWhatWasTold: where the last body told is not known, nothing is made up:
// the event before was cut down, went to the dead letters, was not wanted, or was told
// before bodies were kept. The one after says what changed again.
func TestDiffNeedsWhatWasTold(t *testing.T) {
	large := strings.Repeat("x", 5000)
	for _, x := range []struct {
		name    string
		policy  Oversize
		options CollectionOptions
		say     func(c *collectionScript)
		want    []string
	}{
		{"truncated", Truncate, both, nil, []string{"11", "12", "12→13 patched before", "13→14 patched before"}},
		{"dead letter", ToDeadLetters, both, nil, []string{"12", "12→13 patched before", "13→14 patched before"}},
		{"added is not wanted", Truncate, CollectionOptions{Patch: true, Types: []event.Type{event.Modified}}, func(c *collectionScript) {
			c.says(modified(objectAt("n", "a", "ua", "11", "1"), "10"), modified(objectAt("n", "a", "ua", "12", "2"), "11"))
		}, []string{"11", "11→12 patched"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := &script{t: t, store: openMem(t), bus: &bus{}, started: map[string]*collectionScript{}, done: make(chan error, 1), policy: x.policy}
			s.bus.limit = func(r *event.Record) int {
				if r.Route == deadTopic {
					return 1 << 20
				}
				return 4000
			}
			s.run()
			defer s.finish()
			s.set([]Wanted{optioned(x.options)}, nil)
			c := s.collection("configmaps", nil)
			c.lists("", source.ReasonSnapshot, "10", objectAt("n", "a", "ua", "5", "0"))
			if x.say == nil {
				x.say = func(c *collectionScript) {
					c.says(modified(objectAt("n", "a", "ua", "11", large), "10"))
					for i := 2; i < 5; i++ {
						c.says(modified(objectAt("n", "a", "ua", fmt.Sprint(10+i), fmt.Sprint(i)), fmt.Sprint(9+i)))
					}
				}
			}
			x.say(c)
			s.handled()
			s.awaitIdle()
			s.bus.mu.Lock()
			told, _ := split(s.bus.records)
			s.bus.mu.Unlock()
			got := differences(t, told)
			// Which events share a batch is open: the one after may have been made when
			// the fate of the one before was known.
			if x.name == "dead letter" && len(got) == 3 && got[0] == "5→12 patched before" {
				got[0] = "12"
			}
			if !reflect.DeepEqual(got, x.want) {
				t.Errorf("differences %q, want %q", got, x.want)
			}
		})
	}
}

// TestNothingHiddenIsKept: what is kept, and what events say of the state before, has
// no more than what was told.
func TestNothingHiddenIsKept(t *testing.T) {
	store := openMem(t)
	s := newScript(t, store)
	defer s.finish()
	o := both
	o.Redact = []shape.Rule{{Paths: []string{"data.*"}}}
	o.ChangedBy = true
	s.set([]Wanted{optioned(o)}, nil)
	c := s.collection("configmaps", nil)
	c.lists("", source.ReasonSnapshot, "10", objectAt("n", "a", "ua", "5", "planted-1"))
	c.says(modified(objectAt("n", "a", "ua", "11", "planted-2"), "10"))
	s.wantDifferences("5→11 patched before")
	for _, r := range s.bus.records {
		if bytes.Contains(r.Value, []byte("planted")) {
			t.Errorf("told %s", r.Value)
		}
	}
	n := 0
	if err := s.lane.do(t.Context(), func(context.Context) error {
		return store.Scan(checkpoint.AllBodies(), func(_, value []byte) error {
			n++
			body, err := s.lane.keeping().decoder.DecodeAll(value[1+int(value[0]):], nil)
			if err != nil || bytes.Contains(body, []byte("planted")) || !bytes.Contains(body, []byte("redacted")) {
				t.Errorf("kept %s, %v", body, err)
			}
			return nil
		})
	}); err != nil || n != 1 {
		t.Errorf("%d bodies, %v", n, err)
	}
}

// TestBodyTooLargeToKeep: it is told, and not kept.
func TestBodyTooLargeToKeep(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	s.set([]Wanted{optioned(both)}, nil)
	c := s.collection("configmaps", nil)
	var random strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&random, "%x", uint32(i)*2654435761)
	}
	c.lists("", source.ReasonSnapshot, "10", objectAt("n", "a", "ua", "5", random.String()))
	c.says(modified(objectAt("n", "a", "ua", "11", "2"), "10"), modified(objectAt("n", "a", "ua", "12", "3"), "11"))
	s.wantDifferences("11", "11→12 patched before")
	if n := testutil.ToFloat64(s.lane.metrics.unkept.WithLabelValues("s", "configmaps")); n != 1 {
		t.Errorf("%v bodies are counted", n)
	}
}

// TestDeletionHasTheKeptBody: a deletion that no watch event came for says what the object was, where its last
// published body is kept: for an object that a list lacks, one whose name has another object now, one that left,
// one of a collection that is gone, and after a restart. What was cut down to fit the bus is not kept.
func TestDeletionHasTheKeptBody(t *testing.T) {
	s := &script{t: t, store: openMem(t), bus: &bus{}, started: map[string]*collectionScript{}, done: make(chan error, 1), policy: Truncate}
	s.bus.limit = func(*event.Record) int { return 4000 }
	s.run()
	defer func() { s.finish() }()
	before, after := configMapsOf(event.Collection{LabelSelector: "a"}), configMapsOf(event.Collection{LabelSelector: "b"})
	before.Options, after.Options = both, both
	before.Options.Redact = []shape.Rule{{Paths: []string{"data.secret"}}}
	s.set([]Wanted{before}, nil)
	c := s.collection("configmaps?labels=a", nil)
	c.lists("", source.ReasonSnapshot, "10", objectAt("n", "absent", "u1", "1", "one"), objectAt("n", "again", "u2", "2", "two"),
		objectAt("n", "cut", "u3", "3", strings.Repeat("x", 5000)), objectAt("n", "leaves", "u4", "4", "four"))
	c.says(modified(objectAt("n", "absent", "u1", "11", "one more"), "10"))
	s.handled()
	s.awaitIdle()
	s.finish()
	s.run()
	s.set([]Wanted{before}, nil)
	s.collection("configmaps?labels=a", c).lists("11", source.ReasonExpired, "20", objectAt("n", "again", "u5", "15", "five"), objectAt("n", "leaves", "u4", "4", "four"))
	s.set([]Wanted{after}, map[string]Fate{"configmaps?labels=a": Unselected})
	s.collection("configmaps?labels=b", nil).lists("", source.ReasonSnapshot, "21", objectAt("n", "again", "u5", "15", "five"))
	s.handled()
	s.awaitIdle()
	s.set(nil, map[string]Fate{"configmaps?labels=b": Vanished})
	s.handled()
	s.awaitIdle()
	got := map[string]string{}
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	for _, r := range s.bus.records {
		e, err := event.Parse(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != event.Deleted {
			continue
		}
		var object struct {
			Data struct{ X string }
		}
		if err := json.Unmarshal(e.Object, &object); err != nil {
			t.Fatal(err)
		}
		got[e.UID] = fmt.Sprintf("%t %s", e.BodyKnown, object.Data.X)
	}
	want := map[string]string{"u1": "true one more", "u2": "true two", "u3": "false ", "u4": "true four", "u5": "true five"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("deletions have the bodies %v, want %v", got, want)
	}
}

// TestDeletionHasNoBodyOfOtherRules: a kept body was published under the redaction rules of its time. With other
// rules it is not published again, also where the collection is gone before it could begin with them.
func TestDeletionHasNoBodyOfOtherRules(t *testing.T) {
	s := newScript(t, openMem(t))
	defer func() { s.finish() }()
	w := optioned(both)
	s.set([]Wanted{w}, nil)
	s.collection("configmaps", nil).lists("", source.ReasonSnapshot, "10", objectAt("n", "a", "ua", "5", "planted"))
	s.handled()
	s.awaitIdle()
	s.finish()
	s.forgetTold()
	s.run()
	w.Options.Redact = []shape.Rule{{Paths: []string{"data.*"}}}
	s.set([]Wanted{w}, nil)
	s.set(nil, map[string]Fate{"configmaps": Vanished})
	s.handled()
	s.awaitIdle()
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	if len(s.bus.records) == 0 {
		t.Error("nothing is published of the collection that is gone")
	}
	for _, r := range s.bus.records {
		if bytes.Contains(r.Value, []byte("planted")) {
			t.Errorf("published %s", r.Value)
		}
	}
}
