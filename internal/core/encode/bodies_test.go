package encode_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/shape/patch"
)

var both = encode.Settings{Before: true, Patch: true}

// differences returns the changes that modified events describe, as "base→version", or as "version" without a base. It
// fails if an event has a patch or a previous body that does not fit the body that was published last, which is the
// one that consumers have.
func (r *rig) differences() string {
	r.t.Helper()
	var out []string
	have := map[string][]byte{}
	for _, e := range r.values {
		switch {
		case e.Type.OfCollection():
			continue
		case e.Type == event.Deleted:
			delete(have, e.UID)
			continue
		case e.DeadLetter != nil:
			continue
		case e.Type == event.Modified && e.Base == "":
			out = append(out, e.ResourceVersion)
		case e.Type == event.Modified:
			out = append(out, e.Base+"→"+e.ResourceVersion)
		}
		if e.Patch != nil {
			if got, err := patch.Apply(have[e.UID], e.Patch); err != nil || !sameJSON(got, e.Object) {
				r.t.Errorf("%s: %s makes %s of %s (%v), not %s", e.ID, e.Patch, got, have[e.UID], err, e.Object)
			}
		}
		if e.Before != nil && !sameJSON(e.Before, have[e.UID]) {
			r.t.Errorf("%s: before is %s, consumers have %s", e.ID, e.Before, have[e.UID])
		}
		have[e.UID] = e.Object
	}
	return strings.Join(out, " ")
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// An update describes what has changed since the state that consumers have: within a batch, from one batch to the
// next, across an ignored change, after a restart and in a list. The body of a deleted object is no longer kept.
func TestDifferences(t *testing.T) {
	s := both
	s.Ignore = []string{"data.none"} // and metadata.resourceVersion
	r := newRig(t, configMaps, s, nil)
	r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "1"), configMap("b", "ub", "6", "1"))
	r.watch(configMap("a", "ua", "11", "2"))
	r.commit()
	r.watch(configMap("a", "ua", "12", "3"))
	r.watch(configMap("a", "ua", "13", "3"))
	r.watch(configMap("a", "ua", "14", "4"))
	r.deleted(configMap("b", "ub", "15", "2"))
	r.commit()
	r.restart()
	r.watch(configMap("a", "ua", "16", "5"))
	r.commit()
	r.list("expired", "20", reconcile.Gone, configMap("a", "ua", "19", "6"))
	r.commit()
	if got, want := r.differences(), "5→11 11→12 12→14 14→16 16→19"; got != want {
		t.Errorf("differences %s, want %s", got, want)
	}
	if n := r.bodies(); n != 1 || r.counted[encode.Ignored] != 1 {
		t.Errorf("%d bodies are kept, %d changes are ignored", n, r.counted[encode.Ignored])
	}
}

// A body that was decided on and then given up does not count as one that consumers have.
func TestDifferencesWhenDropped(t *testing.T) {
	r := newRig(t, configMaps, both, nil)
	r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "1"))
	r.commit()
	r.watch(configMap("a", "ua", "11", "2"))
	r.records, r.values = r.records[:len(r.records)-1], r.values[:len(r.values)-1]
	r.core.Drop(r.id)
	r.encoder.Dropped(r.id)
	r.load()
	r.watch(configMap("a", "ua", "12", "3"))
	r.commit()
	r.watch(configMap("a", "ua", "13", "4"))
	if got, want := r.differences(), "5→12 12→13"; got != want {
		t.Errorf("differences %s, want %s", got, want)
	}
}

// After a crash it is not known whether consumers have the events that were in flight. The next event of the object
// does not describe what changed. The event after that does.
func TestDifferencesInDoubt(t *testing.T) {
	for name, again := range map[string]func(r *rig){
		"watch": func(r *rig) { r.watch(configMap("a", "ua", "11", "2")) },
		"list":  func(r *rig) { r.list("expired", "20", reconcile.Gone, configMap("a", "ua", "11", "2")) },
		"later": func(r *rig) { r.list("expired", "20", reconcile.Gone, configMap("a", "ua", "12", "9")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, configMaps, both, nil)
			r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "1"))
			r.commit()
			r.watch(configMap("a", "ua", "11", "2"))
			r.crash()
			before := len(r.values)
			again(r)
			for _, e := range r.values[before:] {
				if e.Base != "" || e.Patch != nil || e.Before != nil {
					t.Errorf("%s refers to %s", e.ID, e.Base)
				}
			}
			r.commit()
			r.watch(configMap("a", "ua", "21", "3"))
			if e := r.last(); e.Base == "" || e.Base == "5" {
				t.Errorf("%s refers to %q", e.ID, e.Base)
			}
			r.differences()
		})
	}
}

// If consumers do not have the whole last body, no event refers to it. Such a body was truncated, went to the dead
// letters, or was too large to keep.
func TestDifferencesNeedTheWholeBody(t *testing.T) {
	for _, x := range []struct {
		name     string
		oversize encode.Oversize
		want     string
	}{
		{"truncated", encode.Truncate, "11 12 12→13"},
		{"dead letter", encode.ToDeadLetters, "5→12 12→13"},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, configMaps, both, func(o *encode.Options) { o.Oversize, o.DeadLetters = x.oversize, template(t, "dead") })
			r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "1"))
			r.commit()
			for range 2 {
				r.watch(configMap("a", "ua", "11", "2"))
				r.reject(tooLarge)
				r.records, r.values = r.records[:len(r.records)-1], r.values[:len(r.values)-1]
			}
			r.watch(configMap("a", "ua", "11", "2"))
			r.commit()
			r.watch(configMap("a", "ua", "12", "3"))
			r.watch(configMap("a", "ua", "13", "4"))
			if got := r.differences(); got != x.want {
				t.Errorf("differences %s, want %s", got, x.want)
			}
		})
	}
	t.Run("too large", func(t *testing.T) {
		r := newRig(t, configMaps, both, nil)
		var random strings.Builder
		for i := range 60_000 {
			fmt.Fprintf(&random, "%x", uint32(i)*2654435761)
		}
		r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", random.String()))
		r.commit()
		r.watch(configMap("a", "ua", "11", "1"))
		r.watch(configMap("a", "ua", "12", "2"))
		if got := r.differences(); got != "11 11→12" || r.counted[encode.NotKept] != 1 {
			t.Errorf("differences %s, %d bodies are not kept", got, r.counted[encode.NotKept])
		}
	})
}

// A patch leads from the body that consumers have to the body that they get, whatever is written, committed, given up
// or in doubt in between.
func TestPatchesAreCorrect(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	r := newRig(t, configMaps, both, nil)
	r.list("snapshot", "1", reconcile.Gone)
	r.commit()
	named := 0
	for version := 2; version < 2000; version++ {
		v, n := fmt.Sprint(version), random.IntN(3)
		name, uid := fmt.Sprint("n", n), fmt.Sprint("u", n)
		switch random.IntN(12) {
		case 0:
			r.deleted(configMap(name, uid, v, ""))
		case 1:
			r.commit()
		case 2:
			r.commit()
			r.restart()
		case 3: // the events that are given up have not reached consumers
			lost := r.core.Pending()
			r.core.Drop(r.id)
			r.encoder.Dropped(r.id)
			r.records, r.values = r.records[:len(r.records)-lost], r.values[:len(r.values)-lost]
			r.load()
		case 4:
			if r.core.Pending() > 0 { // all pending events have reached consumers
				r.crash()
			}
		default:
			r.watch(configMap(name, uid, v, fmt.Sprint(random.Uint64())))
			if r.last().Patch != nil {
				named++
			}
		}
	}
	r.differences()
	if named < 500 {
		t.Errorf("%d events have a patch: this test shows nothing", named)
	}
}

// Kept bodies, and the previous state in events, contain no more than what was published.
func TestNothingRedactedIsKept(t *testing.T) {
	s := both
	s.ChangedBy, s.Redact = true, []shape.Rule{{Paths: []string{"data.*"}}}
	r := newRig(t, configMaps, s, nil)
	r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "planted-1"))
	r.commit()
	r.watch(strings.Replace(configMap("a", "ua", "11", "planted-2"), `"data"`, `"immutable":true,"data"`, 1))
	r.commit()
	if got := r.differences(); got != "5→11" {
		t.Errorf("differences %s", got)
	}
	for _, e := range r.values {
		if bytes.Contains(e.Data, []byte("planted")) || e.Type == event.Modified && !bytes.Contains(e.Before, []byte("redacted")) {
			t.Errorf("published %s", e.Data)
		}
	}
	if err := r.store.Scan(nil, func(key, value []byte) error {
		if bytes.Contains(value, []byte("planted")) {
			t.Errorf("%s is kept as %q", key, value)
		}
		return nil
	}); err != nil || r.bodies() != 1 {
		t.Errorf("%d bodies, %v", r.bodies(), err)
	}
}

// If values are redacted, the paths in changedby quote none: managedFields contains the elements of a set.
func TestChangedByQuotesNothing(t *testing.T) {
	for hidden, want := range map[bool]string{false: `"paths":["metadata.finalizers[=\"planted\"]"]`, true: `"paths":["metadata.finalizers[*]"]`} {
		s := both
		s.ChangedBy = true
		if hidden {
			s.Redact = []shape.Rule{{Paths: []string{"data.*"}}}
		}
		r := newRig(t, configMaps, s, nil)
		r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "1"))
		r.commit()
		r.watch(strings.Replace(configMap("a", "ua", "11", "1"), `"metadata":{`, `"metadata":{"finalizers":["planted"],"managedFields":[{"manager":"x","operation":"Update",
			"time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:finalizers":{"v:\"planted\"":{}}}}}],`, 1))
		r.commit()
		if got := string(r.last().ChangedBy); !strings.Contains(got, want) {
			t.Errorf("hidden %t: %s", hidden, got)
		}
	}
}

// A deletion that no watch has seen carries the last published body if it is kept, and otherwise the identity of the
// object. It never carries the body of a later object of that name, nor a body that was published with other redaction
// rules.
func TestBodyOfADeletion(t *testing.T) {
	for name, x := range map[string]struct {
		settings, then encode.Settings
		known          bool
	}{
		"kept":         {both, both, true},
		"not kept":     {encode.Settings{}, encode.Settings{}, false},
		"other redact": {both, encode.Settings{Before: true, Redact: []shape.Rule{{Paths: []string{"data.*"}}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, configMaps, x.settings, func(o *encode.Options) { o.Secrets.Key = []byte("key") })
			r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "one"), configMap("b", "ub", "6", "two"))
			r.commit()
			if _, err := configure(r.encoder, configMaps, x.then); err != nil { // the core does not have the new configuration yet
				t.Fatal(err)
			}
			before := len(r.values)
			r.list("expired", "20", reconcile.Gone, configMap("a", "uc", "15", "three"))
			if got, want := r.said(before), "deleted a@5, added a@15, deleted b@6"; got != want {
				t.Fatalf("%s, want %s", got, want)
			}
			for _, e := range r.values[before:] {
				value := map[string]string{"ua": "one", "ub": "two"}[e.UID]
				if e.Type == event.Deleted && (e.BodyKnown != x.known || bytes.Contains(e.Object, []byte(value)) != x.known || bytes.Contains(e.Object, []byte("three"))) {
					t.Errorf("%s is deleted with %s", e.Name, e.Object)
				}
			}
		})
	}
}

// A kept body that was changed in the store by somebody else is not used. Reading it takes no more memory than a body
// does.
func TestDamagedBodies(t *testing.T) {
	for name, value := range map[string][]byte{"empty": {}, "short": {1, '5'}, "long version": {200, 1, '5'}, "no zstd": append([]byte{1, '5'}, make([]byte, 40)...)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, configMaps, both, nil)
			r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "one"))
			r.commit()
			if err := r.store.Commit(t.Context(), []event.KV{{Key: durable.BodyKey(r.id, "shop/a"), Value: value}}); err != nil {
				t.Fatal(err)
			}
			r.watch(configMap("a", "ua", "11", "two"))
			if e := r.last(); e.Type != event.Modified || e.Base != "" {
				t.Errorf("%s refers to %q", e.ID, e.Base)
			}
		})
	}
}

// When an incarnation ends, the kept bodies of its objects are removed, and no others.
func TestBodiesOfAnEnding(t *testing.T) {
	hidden := both
	hidden.Redact = []shape.Rule{{Paths: []string{"data.x"}}}
	for what, end := range map[string]func(r *rig){
		"removed": func(r *rig) {
			r.step(&reconcile.Input{Kind: reconcile.Remove})
			r.step(&reconcile.Input{Kind: reconcile.Release})
		},
		"reset":                         func(r *rig) { r.reset() },
		"another redaction":             func(r *rig) { r.configure(hidden) },
		"another redaction and no diff": func(r *rig) { r.configure(encode.Settings{Redact: hidden.Redact}) },
		"a restart without diff":        func(r *rig) { r.settings = encode.Settings{}; r.restart() },
	} {
		r := newRig(t, configMaps, both, nil)
		r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "one"), configMap("b", "ub", "6", "two"))
		r.commit()
		other := durable.BodyKey("configmaps@shop", "shop/a")
		if err := r.store.Commit(t.Context(), []event.KV{{Key: other, Value: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
		if n := r.bodies(); n != 2 {
			t.Fatalf("%d bodies are kept, want 2", n)
		}
		end(r)
		if r.core.Collection(r.id).Phase != reconcile.Ending {
			r.reset()
		}
		for range 5 {
			r.commit()
			keys, _ := r.core.Forgettable(r.id, 1)
			for _, key := range keys {
				r.step(&reconcile.Input{Kind: reconcile.Forget, Key: key})
			}
		}
		if value, err := r.store.Get(other); err != nil || value == nil || r.bodies() != 0 {
			t.Errorf("%s: %d bodies are left, the one of another collection is %q, %v", what, r.bodies(), value, err)
		}
	}
}

// After a value is configured to be redacted, it is not published from a kept body, and no kept body contains it.
func TestBodiesAndAnotherRedaction(t *testing.T) {
	r := newRig(t, configMaps, both, nil)
	r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "secret-one"))
	r.commit()
	before, hidden := len(r.records), both
	hidden.Redact = []shape.Rule{{Paths: []string{"data.x"}}}
	r.configure(hidden)
	r.commit()
	keys, _ := r.core.Forgettable(r.id, 10)
	for _, key := range keys {
		r.step(&reconcile.Input{Kind: reconcile.Forget, Key: key})
	}
	r.step(&reconcile.Input{Kind: reconcile.Forgot})
	r.commit()
	r.list("reset", "20", reconcile.Gone, configMap("a", "ua", "5", "secret-one"))
	r.watch(configMap("a", "ua", "21", "secret-two"))
	r.commit()
	for _, x := range r.records[before:] {
		if bytes.Contains(x.Value, []byte("secret-")) {
			t.Errorf("published: %s", x.Value)
		}
	}
	if e := r.last(); e.Type != event.Modified || e.Base != "5" {
		t.Errorf("%s %s refers to %q: the bodies with the new redaction are not kept", e.Type, e.ID, e.Base)
	}
}

// If a collection no longer keeps bodies, its kept bodies are removed with the next batches. If it keeps bodies again,
// the old ones are not used.
func TestBodiesWithoutDiff(t *testing.T) {
	r := newRig(t, configMaps, both, nil)
	r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "one"), configMap("b", "ub", "6", "two"))
	r.commit()
	r.watch(configMap("a", "ua", "11", "three")) // its body is in the batch that is being filled
	r.configure(encode.Settings{})
	for n := 12; n < 14; n++ {
		r.commit()
		r.step(&reconcile.Input{Kind: reconcile.Bookmark, Resume: strconv.Itoa(n)})
	}
	if n := r.bodies(); n != 0 {
		t.Errorf("%d bodies are left", n)
	}
	r.configure(both)
	r.watch(configMap("a", "ua", "15", "four"))
	if e := r.last(); e.Base != "" {
		t.Errorf("%s refers to %q", e.ID, e.Base)
	}
	r.commit()
	r.watch(configMap("a", "ua", "16", "five"))
	if e := r.last(); e.Base != "15" {
		t.Errorf("%s refers to %q, want 15", e.ID, e.Base)
	}
	r.commit()
	if n := r.bodies(); n != 1 {
		t.Errorf("%d bodies are kept, want 1", n)
	}
}

// If deletions are not published, the kept body of an object is removed with the object.
func TestBodiesOfUnpublishedDeletions(t *testing.T) {
	s := both
	s.Types = []event.Type{event.Added, event.Modified}
	r := newRig(t, configMaps, s, nil)
	r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "one"), configMap("b", "ub", "6", "two"))
	r.commit()
	for _, name := range []string{"a", "c"} { // c is added and deleted within one batch
		if name == "c" {
			r.watch(configMap("c", "uc", "11", "three"))
		}
		r.step(&reconcile.Input{Kind: reconcile.Sighted, Sighting: &reconcile.Sighting{Form: reconcile.Ended, Key: "shop/" + name, UID: "u" + name, Version: "12"}})
		r.commit()
	}
	if n := r.bodies(); n != 1 {
		t.Errorf("%d bodies are kept, want that of b alone", n)
	}
}
