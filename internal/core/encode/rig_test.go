package encode_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// start is the time at which the first run of a test begins, and the time of its events.
var start = time.UnixMilli(1790000000000).UTC()

// rig uses an encoder as the loop does: it passes inputs to a core, and commits to a store in memory.
type rig struct {
	t       *testing.T
	options encode.Options
	store   *file.Store
	core    *reconcile.Core
	encoder *encode.Encoder
	now     uint64
	id      string
	counted map[encode.Count]int
	lost    atomic.Int64 // counted in a loop

	settings encode.Settings
	target   event.Collection

	records []event.Record // all, in order
	values  []*event.Received
	unread  bool // values are not parsed, because they have another format
	repeats bool // an item is encoded a second time
}

type payload struct {
	at      int // index in rig.records
	changes []event.KV
}

func newRig(t *testing.T, target event.Collection, s encode.Settings, change func(o *encode.Options)) *rig {
	t.Helper()
	store, err := file.OpenMem(event.Identity{Bridge: "b", ClusterUID: "c", Sink: "s"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	r := &rig{t: t, store: store, now: uint64(start.UnixMilli()), target: target, settings: s, counted: map[encode.Count]int{}}
	r.options = encode.Options{
		Config: encode.Config{
			Encoder: event.Encoder{Cluster: "prod", ClusterUID: "1f0b1a3c-0000-4000-8000-000000000001"},
			Route:   encode.Route{Topic: template(t, "k8s.{cluster}.{resource}")},
		},
		Store: store, Log: zaptest.NewLogger(t), Reports: encode.Reports{Plan: reports().Plan},
		Count: func(_ string, what encode.Count, _ event.Type) {
			if !r.repeats {
				r.counted[what]++
			}
		},
	}
	if change != nil {
		change(&r.options)
	}
	r.id = target.ID()
	r.restart()
	return r
}

// newEncoder returns an encoder as a loop has it. All tests use the same key.
func newEncoder(o encode.Options) *encode.Encoder {
	e := encode.New(o)
	e.Key(bytes.Repeat([]byte{7}, 32))
	return e
}

func template(t testing.TB, text string) *shape.Template {
	parsed, err := shape.ParseTemplate(text, append(shape.SubjectNames, shape.HeaderNames...))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// restart discards what is not committed, and continues from the store with another encoder.
func (r *rig) restart() {
	r.t.Helper()
	r.encoder = newEncoder(r.options)
	r.load()
}

// reset commits everything, and then resets the store as `bridge checkpoint reset` does.
func (r *rig) reset() {
	r.t.Helper()
	r.commit()
	state, err := durable.Load(r.store)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.store.Commit(r.t.Context(), durable.ResetChanges(state)); err != nil {
		r.t.Fatal(err)
	}
	r.load()
}

// load continues from the store with the same encoder.
func (r *rig) load() {
	r.t.Helper()
	state, err := durable.Load(r.store)
	if err != nil {
		r.t.Fatal(err)
	}
	r.core = reconcile.NewCore(durable.NewInventory(r.store), state, r.now)
	r.configure(r.settings)
}

func (r *rig) configure(s encode.Settings) {
	r.t.Helper()
	properties, err := configure(r.encoder, r.target, s)
	if err != nil {
		r.t.Fatal(err)
	}
	r.settings = s
	r.step(&reconcile.Input{Kind: reconcile.Configure, Properties: properties})
}

func (r *rig) step(in *reconcile.Input) {
	r.t.Helper()
	r.now++
	in.Collection, in.Now, in.Read = r.id, r.now, r.core.Reading(r.id).Number
	if s := in.Sighting; s != nil {
		if s.Origin == reconcile.Resync {
			in.Read, in.Side = 0, r.core.Reading(r.id).Side
		}
		known, inDoubt := r.core.Object(r.id, s.Key)
		r.encoder.Prepare(r.id, s, known, inDoubt)
	}
	r.core.Step(in)
	items := r.core.Items()
	for n := range items {
		if items[n].Payload != nil {
			continue
		}
		detail := ""
		if e := items[n].Event; e != nil && e.Reason == event.ReasonExpired {
			detail = "the API server no longer has what followed resourceVersion 113"
		}
		record, changes := r.encoder.Encode(&items[n], detail, start)
		r.again(&items[n], detail, record, changes)
		items[n].Payload = &payload{len(r.records), changes}
		r.records = append(r.records, copied(record))
		if record.Value == nil || r.unread {
			r.values = append(r.values, &event.Received{Type: record.Event.Type})
			continue
		}
		value, err := event.Parse(record.Value)
		if err != nil {
			r.t.Fatalf("%s: %v", record.Value, err)
		}
		r.values = append(r.values, value)
	}
}

// again encodes an item a second time: the record and its changes are the same. A kept body is the encoder's state that the first time changes.
func (r *rig) again(i *reconcile.Item, detail string, record event.Record, changes []event.KV) {
	r.t.Helper()
	if r.options.Witness != nil || slices.ContainsFunc(changes, func(kv event.KV) bool { return durable.IsBody(kv.Key) }) {
		return
	}
	r.repeats = true
	defer func() { r.repeats = false }()
	want := copied(record)
	got, changed := r.encoder.Encode(i, detail, start)
	sameBytes := cmp.Comparer(func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }) // element by element, long ones take seconds
	if d := cmp.Diff(want, got, sameBytes); d != "" || !reflect.DeepEqual(changes, changed) {
		r.t.Errorf("an item is encoded otherwise the second time (-first +second):\n%s", d)
	}
}

// copied returns a copy of a record that shares no memory with it.
func copied(r event.Record) event.Record {
	e := *r.Event
	r.Event, r.Value, r.Attributes, r.Headers = &e, bytes.Clone(r.Value), slices.Clone(r.Attributes), slices.Clone(r.Headers)
	return r
}

// tooLarge is the error of a record that is rejected.
var tooLarge = &sink.RecordError{Size: 2_000_000, Limit: 1_000_000, Err: errors.New("too large")}

// reject makes the bus reject the last item. The collection continues from the store.
func (r *rig) reject(e *sink.RecordError) {
	r.t.Helper()
	items := r.core.Items()
	if err := r.encoder.Reject(&items[len(items)-1], e); err != nil {
		r.t.Fatal(err)
	}
	r.core.Drop(r.id)
	r.encoder.Dropped(r.id)
	r.load()
}

// commit commits everything that was decided.
func (r *rig) commit() {
	r.t.Helper()
	b := r.core.Seal()
	if b == nil {
		return
	}
	removed := r.encoder.Sealed()
	changes := durable.NewMemory().Changes(b, false)
	for _, slot := range durable.Removed(changes) {
		removed = append(removed, r.encoder.Forgotten(slot.Collection, slot.Key)...)
	}
	for i := range b.Items {
		changes = append(changes, b.Items[i].Payload.(*payload).changes...)
	}
	if err := r.store.Commit(r.t.Context(), append(changes, removed...)); err != nil {
		r.t.Fatal(err)
	}
	r.core.Committed()
	r.encoder.Committed(b.Items)
}

// crash stops after the intents of a batch are written, and before the batch is committed.
func (r *rig) crash() {
	r.t.Helper()
	if err := r.store.Commit(r.t.Context(), durable.NewMemory().Before(r.core.Seal())); err != nil {
		r.t.Fatal(err)
	}
	r.restart()
}

// sighting returns the sighting of an object.
func sighting(raw string, origin reconcile.Origin) *reconcile.Sighting {
	o, err := source.ParseObject([]byte(raw))
	if err != nil {
		panic(err)
	}
	return &reconcile.Sighting{Origin: origin, Key: durable.ObjectKey(o.Namespace, o.Name), UID: o.UID, Version: o.ResourceVersion, Body: &o}
}

func (r *rig) watch(raw string) {
	r.t.Helper()
	s := sighting(raw, reconcile.Watch)
	r.step(&reconcile.Input{Kind: reconcile.Sighted, Sighting: s})
}

// deleted passes a deletion event of the watch to the core.
func (r *rig) deleted(raw string) {
	r.t.Helper()
	s := sighting(raw, reconcile.Watch)
	s.Form = reconcile.Ended
	r.step(&reconcile.Input{Kind: reconcile.Sighted, Sighting: s})
}

// list reads a list. Objects that are missing from the list have the given fate.
func (r *rig) list(reason event.Reason, version string, fate reconcile.Fate, objects ...string) {
	r.t.Helper()
	r.step(&reconcile.Input{Kind: reconcile.ListBegun, Reason: reason})
	for _, raw := range objects {
		r.step(&reconcile.Input{Kind: reconcile.Sighted, Sighting: sighting(raw, reconcile.List)})
	}
	r.step(&reconcile.Input{Kind: reconcile.ListEnded, Version: version})
	for _, a := range r.core.Missing(r.id, 100) {
		r.step(&reconcile.Input{Kind: reconcile.ListLacks, Key: a.Key, Sighting: &reconcile.Sighting{
			Form: reconcile.Lacking, Origin: reconcile.List, Key: a.Key, Version: version, Fates: func(string) reconcile.Fate { return fate },
		}})
	}
	r.step(&reconcile.Input{Kind: reconcile.ListDone})
}

// said returns the object events after the given number of records, as "type name@version".
func (r *rig) said(since int) string {
	var lines []string
	for _, e := range r.values[since:] {
		if e.Type.OfCollection() {
			continue
		}
		line := fmt.Sprintf("%s %s@%s", e.Type, e.Name, e.ResourceVersion)
		if e.Reason != "" {
			line += " " + e.Reason
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, ", ")
}

func (r *rig) last() *event.Received { return r.values[len(r.values)-1] }

func (r *rig) bodies() int {
	r.t.Helper()
	n := 0
	err := r.store.Scan(durable.BodyKey(r.id, ""), func(_, _ []byte) error {
		n++
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

var configMaps = event.Collection{Resource: "configmaps"}

// configMap returns an object with one value under data.x.
func configMap(name, uid, version, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":%q},"data":{"x":%q}}`, name, uid, version, value)
}

// configure compiles the settings of a collection and uses them. It returns their properties.
func configure(e *encode.Encoder, c event.Collection, s encode.Settings) (reconcile.Properties, error) {
	compiled, err := e.Compile(c, s)
	if err != nil {
		return reconcile.Properties{}, err
	}
	e.Use(compiled)
	return compiled.Properties(), nil
}
