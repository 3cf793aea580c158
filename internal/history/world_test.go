package history_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// thing is an object of the cluster.
type thing struct {
	uid, version int
	group        string // the value that selections select by
}

// write is one resourceVersion of the cluster.
type write struct {
	name string
	now  *thing // nil: deleted
}

// store is a checkpoint store in memory, which is atomic with the bus.
type store struct {
	objects map[reconcile.Slot]*reconcile.Object
	reconcile.State
}

func newStore() *store {
	return &store{map[reconcile.Slot]*reconcile.Object{}, reconcile.State{
		Records: map[string]reconcile.Record{}, Progress: map[string]reconcile.Progress{}, Epochs: map[string]uint64{},
	}}
}

func (s *store) Object(collection, key string) *reconcile.Object {
	return s.objects[reconcile.Slot{Collection: collection, Key: key}]
}

func (s *store) After(collection, key string) (next string, found bool) {
	for slot := range s.objects {
		if slot.Collection == collection && slot.Key > key && (!found || slot.Key < next) {
			next, found = slot.Key, true
		}
	}
	return next, found
}

func (s *store) commit(b *reconcile.Batch) {
	for _, c := range b.Changes {
		if c.Object == nil {
			delete(s.objects, c.Slot)
		} else {
			o := *c.Object // the batch's memory is used again
			s.objects[c.Slot] = &o
		}
	}
	maps.Copy(s.Records, b.Records)
	maps.Copy(s.Progress, b.Progress)
	maps.Copy(s.Epochs, b.Epochs)
}

// reading is the read of one collection.
type reading struct {
	number         uint64
	at             int // the resourceVersion that the core has seen of the collection
	listing, ended bool
	names          []string // remaining objects of the list
	side           []string // remaining objects of a list beside the watch
	sideAt         int
	sideListed     int // the resourceVersion of the last list beside the watch
}

// message is a message on the bus.
type message struct {
	headers []sink.Header
	value   []byte
	key     string    // on a compacted topic
	time    time.Time // the time of the bus
	foreign bool
}

// world is a cluster, a core with its store, and a bus whose first topic is "t". Versions of the cluster begin at 1.
type world struct {
	t       *testing.T
	history []write
	uids    int
	expired int            // a watch cannot start before this version
	present map[string]int // present events since the last gap, by collection

	store    *store
	core     *reconcile.Core
	readings map[string]*reading
	paused   map[string]bool // collections that do not read

	wanted      map[string]reconcile.Properties
	edits       map[string]uint64
	plan, birth uint64
	clock       time.Time
	late        time.Duration // how long after the event the bus accepts it
	lose        string        // an object whose events become dead letters
	format      event.Format  // structured at first
	clusterUID  string

	bus    [][]message
	topics []string // of each part of the bus
	latest bool     // the topics are compacted
	first  []int64  // by part: retention has removed earlier messages
	read   int      // number of messages that were read
}

var start = time.Date(2026, 3, 14, 9, 0, 0, 0, time.UTC)

// newWorld returns a world with collections. selections has the groups that each of them selects; "" selects all objects.
func newWorld(t *testing.T, parts int, selections map[string]string) *world {
	w := &world{
		t: t, store: newStore(), clock: start, clusterUID: "c1",
		readings: map[string]*reading{}, paused: map[string]bool{}, wanted: map[string]reconcile.Properties{}, edits: map[string]uint64{}, present: map[string]int{},
	}
	w.addTopic("t", parts)
	w.birth = w.now()
	w.core = reconcile.NewCore(w.store, w.store.State, w.birth)
	w.configure(selections)
	return w
}

// now advances the clock by a second.
func (w *world) now() uint64 {
	w.clock = w.clock.Add(time.Second)
	return uint64(w.clock.UnixMilli())
}

// mark returns a time between two actions.
func (w *world) mark() time.Time {
	w.now()
	return w.clock.Add(500 * time.Millisecond)
}

// configure changes the configuration.
func (w *world) configure(selections map[string]string) {
	w.plan = w.now()
	for id := range w.wanted {
		if _, ok := selections[id]; !ok {
			delete(w.wanted, id)
			delete(w.edits, id)
		}
	}
	for id, selection := range selections {
		p := reconcile.Properties{Selection: selection, Route: "t"}
		if w.wanted[id] != p {
			w.wanted[id], w.edits[id] = p, w.plan
		}
	}
	w.apply()
}

// apply passes the configuration to the core.
func (w *world) apply() {
	for _, id := range w.core.IDs() {
		if _, ok := w.wanted[id]; !ok {
			w.step(&reconcile.Input{Kind: reconcile.Remove, Collection: id})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.wanted)) {
		w.step(&reconcile.Input{Kind: reconcile.Configure, Collection: id, Properties: w.wanted[id]})
	}
}

func (w *world) addTopic(name string, parts int) {
	for range parts {
		w.bus, w.topics, w.first = append(w.bus, nil), append(w.topics, name), append(w.first, 0)
	}
}

// move moves a collection to another topic.
func (w *world) move(id, topic string) {
	w.plan = w.now()
	p := w.wanted[id]
	p.Route = topic
	w.wanted[id], w.edits[id] = p, w.plan
	w.apply()
}

// parts returns the parts of a topic.
func (w *world) parts(topic string) (out []int) {
	for i, t := range w.topics {
		if t == topic {
			out = append(out, i)
		}
	}
	return out
}

// forget loses the checkpoint.
func (w *world) forget() {
	w.store, w.readings = newStore(), map[string]*reading{}
	w.birth = w.now()
	w.core = reconcile.NewCore(w.store, w.store.State, w.birth)
	w.plan = w.now()
	for id := range w.edits {
		w.edits[id] = w.plan
	}
	w.apply()
}

// set creates or updates an object.
func (w *world) set(name, group string) {
	next := thing{group: group, version: len(w.history) + 1}
	if now := w.at(len(w.history), "")[name]; now != nil {
		next.uid = now.uid
	} else {
		w.uids++
		next.uid = w.uids
	}
	w.history = append(w.history, write{name, &next})
}

func (w *world) remove(name string) { w.history = append(w.history, write{name, nil}) }

// at returns the objects of a selection at a resourceVersion.
func (w *world) at(version int, selection string) map[string]*thing {
	all := map[string]*thing{}
	for _, x := range w.history[:min(version, len(w.history))] {
		if x.now == nil {
			delete(all, x.name)
		} else {
			all[x.name] = x.now
		}
	}
	maps.DeleteFunc(all, func(_ string, t *thing) bool {
		return selection != "" && !slices.Contains([]byte(selection), t.group[0])
	})
	return all
}

// expire makes the API server forget its history: all watches end with 410, and lists follow.
func (w *world) expire() { w.expired, w.readings = len(w.history), map[string]*reading{} }

// back restores the cluster from a backup that is the given number of versions older.
func (w *world) back(versions int) {
	w.history = slices.Clip(w.history[:len(w.history)-versions])
	w.expire()
}

// demand requests a resync of a collection (reconcile.Demand), or a synced event (reconcile.Confirm).
func (w *world) demand(kind reconcile.InputKind, id string) {
	w.step(&reconcile.Input{Kind: kind, Collection: id})
}

// reset resets the stored state of one collection, and restarts the core.
func (w *world) reset(id string) {
	w.store.Records[id] = w.store.Reset().Records[id]
	w.core.Drop(id)
	w.core.Restore(id, w.store.State, w.now())
	w.apply()
}

func (w *world) step(in *reconcile.Input) {
	in.Now = w.now()
	w.core.Step(in)
	w.publish()
}

// publish writes the emitted events to the bus, and commits them.
func (w *world) publish() {
	for !w.core.Idle() {
		b := w.core.Seal()
		for i := range b.Items {
			w.encode(&b.Items[i])
		}
		w.store.commit(b)
		w.core.Committed()
	}
}

func (w *world) encode(i *reconcile.Item) {
	w.now()
	col := event.ParseCollection(i.Collection)
	e := event.Event{
		Collection: &col, Origin: event.Reconcile, Time: w.clock, Epoch: i.Epoch, Run: strconv.FormatUint(i.Run, 10), Incarnation: i.Incarnation,
	}
	if r := w.readings[i.Collection]; r != nil && !r.listing {
		e.Origin = event.Watch
	}
	if o := i.Object; o != nil {
		e.Type, e.APIVersion, e.Kind, e.Namespace, e.Name, e.UID = o.Type, "v1", "Pod", "ns", o.Key, "u"+o.Object.UID
		e.ResourceVersion = o.Version
		if o.Type == event.Deleted {
			e.Run, e.ResourceVersion, e.DeletionVersion = strconv.FormatUint(o.Object.Run, 10), o.Object.At, o.Version
			e.Reason = [...]string{"", "left", "unknown"}[o.Fate]
		}
		group := ""
		if n, _ := strconv.Atoi(e.ResourceVersion); n <= len(w.history) && w.history[n-1].now != nil {
			group = w.history[n-1].now.group
		}
		e.Object = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"ns","uid":%q,"resourceVersion":%q},"group":%q}`,
			o.Key, e.UID, e.ResourceVersion, group)
		if w.lose == o.Key {
			e.DeadLetter = &event.DeadLetter{Reason: event.Rejected}
		}
		if e.Type == event.Present {
			w.present[i.Collection]++
		}
		parts := w.parts(i.Route)
		w.put(&e, parts[(int(o.Key[0])+int(i.Collection[len(i.Collection)-1]))%len(parts)]) // keys have the name of the entry
		return
	}
	x := i.Event
	e.Type, e.ResourceVersion, e.Nth = x.Type, x.Version, x.Nth
	e.Report = &event.Report{Reason: x.Reason, Reset: x.Reset, From: x.From, To: x.Version}
	if x.Type == event.Gap {
		w.present[i.Collection] = 0
	}
	switch {
	case x.Type == event.Gap && x.Reason != event.ReasonHistory:
		e.ResourceVersion = x.From
	case x.Type == event.Closed:
		e.Report.Reason = "removed"
	case x.Type == event.Synced && x.Reason != event.ReasonPeriodic:
		e.Report.Counts = w.counts(i.Collection, x)
	}
	edits := maps.Clone(w.edits) // of the resource
	maps.DeleteFunc(edits, func(id string, _ uint64) bool { return event.ParseCollection(id).Resource != col.Resource })
	e.Plan = &event.Plan{Number: w.plan, Digest: event.PlanDigest(edits), Edit: cmp.Or(w.edits[i.Collection], w.plan), Birth: w.birth}
	for _, p := range w.parts(i.Route) {
		w.put(&e, p)
	}
}

// counts returns the counts of a list. A resync does not count objects that the watch has changed since the resync's
// gap.
func (w *world) counts(id string, x *reconcile.CollectionEvent) *event.Counts {
	version, _ := strconv.Atoi(x.Version)
	if x.Reason != event.ReasonResync {
		return &event.Counts{Listed: len(w.selected(id, version))}
	}
	return &event.Counts{Listed: len(w.selected(id, w.readings[id].sideListed)), Present: w.present[id]}
}

func (w *world) put(e *event.Event, part int) {
	encoder := event.Encoder{Cluster: "prod", ClusterUID: w.clusterUID, Format: w.format}
	attributes := encoder.Attributes(e)
	m := message{key: e.Collection.ID() + "/" + e.Name, value: w.format.Append(nil, attributes, e), time: e.Time.Add(w.late)}
	m.headers = append(m.headers, sink.Header{Name: "content-type", Value: []byte(w.format.ContentType())})
	for _, a := range attributes {
		m.headers = append(m.headers, sink.Header{Name: "ce_" + a.Name, Value: []byte(a.Value)})
	}
	if e.Name == "" {
		m.key = "_collection/" + e.Collection.ID() + "/" + e.CollectionKind()
	}
	w.bus[part] = append(w.bus[part], m)
}

// compact compacts all but the newest messages of each part.
func (w *world) compact(newest int) {
	for p, all := range w.bus {
		last := map[string]int{}
		for i, m := range all {
			last[m.key] = i
		}
		w.bus[p] = nil
		for i, m := range all {
			if i >= len(all)-newest || last[m.key] == i {
				w.bus[p] = append(w.bus[p], m)
			}
		}
	}
}

// settle reads all collections that are not paused to their ends, and publishes the events.
func (w *world) settle() {
	for w.advance() {
	}
}

func (w *world) advance() bool {
	for _, id := range w.core.IDs() {
		if !w.paused[id] && w.reads(id) {
			return true
		}
	}
	return false
}

// reads does the next step of reading a collection, and reports whether there was one.
func (w *world) reads(id string) bool {
	c := w.core.Collection(id)
	switch c.Phase {
	case reconcile.Ending:
		return w.end(id)
	case reconcile.Leaving:
		for other := range w.wanted {
			if !w.core.Settled(other) {
				return false
			}
		}
		w.step(&reconcile.Input{Kind: reconcile.Release, Collection: id})
		return true
	}
	want, r := w.core.Reading(id), w.readings[id]
	switch {
	case want.Stop:
		return false
	case r == nil || r.number != want.Number:
		w.open(id, want)
	case r.listing:
		w.list(id, r)
	case want.Side != 0:
		w.side(id, r, want)
	case c.Resync && c.Phase == reconcile.InStep:
		r.side, r.sideAt = nil, 0
		w.step(&reconcile.Input{Kind: reconcile.SideBegun, Collection: id})
	default:
		return w.watch(id, r)
	}
	return true
}

func (w *world) end(id string) bool {
	keys, done := w.core.Forgettable(id, 1)
	switch {
	case done:
		w.step(&reconcile.Input{Kind: reconcile.Forgot, Collection: id})
	case len(keys) > 0:
		w.step(&reconcile.Input{Kind: reconcile.Forget, Collection: id, Key: keys[0]})
	}
	return done || len(keys) > 0
}

// open begins to read with a watch or a list.
func (w *world) open(id string, want reconcile.Read) {
	r := &reading{number: want.Number}
	w.readings[id] = r
	from, _ := strconv.Atoi(want.From)
	seen, _ := strconv.Atoi(want.Seen)
	if older := len(w.history) < seen; want.From == "" || from < w.expired || older {
		r.listing, r.at = true, len(w.history)
		r.names = slices.Sorted(maps.Keys(w.selected(id, r.at)))
		in := &reconcile.Input{Kind: reconcile.ListBegun, Collection: id, Read: r.number, Reason: "expired", NewEpoch: older}
		if older {
			in.Reason = event.ReasonHistory
		}
		w.step(in)
		return
	}
	r.at = from
}

func (w *world) selected(id string, version int) map[string]*thing {
	return w.at(version, w.core.Collection(id).Properties.Selection)
}

// list does the next step of a list.
func (w *world) list(id string, r *reading) {
	switch {
	case len(r.names) > 0:
		name := r.names[0]
		r.names = r.names[1:]
		w.step(&reconcile.Input{Kind: reconcile.Sighted, Collection: id, Read: r.number, Sighting: sighting(reconcile.List, name, w.selected(id, r.at)[name])})
	case !r.ended:
		r.ended = true
		w.step(&reconcile.Input{Kind: reconcile.ListEnded, Collection: id, Read: r.number, Version: strconv.Itoa(r.at)})
	default:
		missing := w.core.Missing(id, 1)
		if len(missing) == 0 {
			w.step(&reconcile.Input{Kind: reconcile.ListDone, Collection: id})
			r.listing = false
			return
		}
		s := &reconcile.Sighting{Form: reconcile.Lacking, Origin: reconcile.List, Key: missing[0].Key, Version: strconv.Itoa(r.at)}
		s.Fates = func(string) reconcile.Fate { return reconcile.Unknown }
		w.step(&reconcile.Input{Kind: reconcile.ListLacks, Collection: id, Key: s.Key, Sighting: s})
	}
}

func sighting(from reconcile.Origin, name string, t *thing) *reconcile.Sighting {
	return &reconcile.Sighting{Origin: from, Key: name, UID: strconv.Itoa(t.uid), Version: strconv.Itoa(t.version), Digest: reconcile.Digest(fmt.Appendf(nil, "%016d", t.version))}
}

// side does the next step of a list beside the watch.
func (w *world) side(id string, r *reading, want reconcile.Read) {
	if r.sideAt == 0 {
		r.sideAt, r.sideListed = len(w.history), len(w.history)
		r.side = slices.Sorted(maps.Keys(w.selected(id, r.sideAt)))
	}
	if len(r.side) == 0 {
		in := &reconcile.Input{Kind: reconcile.SideEnded, Collection: id, Side: want.Side, Version: strconv.Itoa(r.sideAt)}
		r.sideAt = 0
		w.step(in)
		return
	}
	name := r.side[0]
	r.side = r.side[1:]
	w.step(&reconcile.Input{Kind: reconcile.Sighted, Collection: id, Side: want.Side, Sighting: sighting(reconcile.Resync, name, w.selected(id, r.sideAt)[name])})
}

// watch passes the next event of a watch, or a bookmark, to the core.
func (w *world) watch(id string, r *reading) bool {
	if r.at >= len(w.history) {
		at := strconv.Itoa(r.at)
		if w.core.Collection(id).Position == at {
			return false
		}
		w.step(&reconcile.Input{Kind: reconcile.Bookmark, Collection: id, Read: r.number, Resume: at})
		return true
	}
	before := w.selected(id, r.at)
	r.at++
	change := w.history[r.at-1]
	now, was := w.selected(id, r.at)[change.name], before[change.name]
	in := &reconcile.Input{Kind: reconcile.Sighted, Collection: id, Read: r.number, Resume: strconv.Itoa(max(r.at-1, 1))}
	switch {
	case now != nil:
		in.Sighting = sighting(reconcile.Watch, change.name, now)
	case was != nil:
		in.Sighting = &reconcile.Sighting{Form: reconcile.Ended, Key: change.name, UID: strconv.Itoa(was.uid), Version: strconv.Itoa(r.at)}
		if change.now != nil {
			in.Sighting.Fate = reconcile.Left
		}
	default:
		return true
	}
	w.step(in)
	return true
}

// The methods of [sink.Reader].

func (w *world) Parts() (out []sink.Part) {
	for i := range w.bus {
		out = append(out, sink.Part{Name: fmt.Sprintf("%s/%d", w.topics[i], i), Log: w.topics[i], Latest: w.latest, First: w.first[i], End: int64(len(w.bus[i]))})
	}
	return out
}

func (w *world) At(_ context.Context, t time.Time) (out []int64, _ error) {
	for i := range w.bus {
		at := slices.IndexFunc(w.bus[i], func(m message) bool { return !m.time.Before(t) })
		if at < 0 {
			at = len(w.bus[i])
		}
		out = append(out, max(int64(at), w.first[i]))
	}
	return out, nil
}

func (w *world) Read(_ context.Context, ranges []sink.Range, _ bool, fn func(*sink.Message) error) error {
	for i, r := range ranges {
		for at := r.From; at < r.To; at++ {
			w.read++
			m := w.bus[i][at]
			err := fn(&sink.Message{Part: i, Offset: at, Headers: m.headers, Value: m.value, Foreign: m.foreign})
			if errors.Is(err, sink.ErrEnough) {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) Refresh(context.Context) error { return nil }

func (w *world) Close() {}
