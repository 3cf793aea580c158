// Package bustest makes random but possible contents of a bus for tests: a cluster, the core that decides what is published about it, and the
// messages that a bridge would write, with crashes, resets, restored backups and edits.
package bustest

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Thing is an object of the cluster.
type Thing struct {
	UID, Version int
	Group        string // compared with selectors
}

// Write is one resourceVersion of the cluster.
type Write struct {
	Name string
	Now  *Thing // nil: deleted
}

// Cluster is an API server with one resource. The first write has resourceVersion 1.
type Cluster struct {
	History []Write
	UIDs    int
	Expired int // the lowest resourceVersion from which a watch can start
}

// Version returns the newest resourceVersion.
func (c *Cluster) Version() int { return len(c.History) }

// At returns the objects at a resourceVersion in a selection: "" selects everything, "12" selects groups 1 and 2.
func (c *Cluster) At(version int, selection string) map[string]*Thing {
	all := map[string]*Thing{}
	for _, w := range c.History[:min(version, len(c.History))] {
		if w.Now == nil {
			delete(all, w.Name)
		} else {
			all[w.Name] = w.Now
		}
	}
	maps.DeleteFunc(all, func(_ string, t *Thing) bool { return !selects(selection, t) })
	return all
}

func selects(selection string, t *Thing) bool {
	if selection == "" {
		return true
	}
	for _, r := range selection {
		if string(r) == t.Group {
			return true
		}
	}
	return false
}

// Store is a checkpoint store in memory.
type Store struct {
	Objects map[reconcile.Slot]*reconcile.Object
	reconcile.State
}

func newStore() *Store {
	return &Store{map[reconcile.Slot]*reconcile.Object{}, reconcile.State{
		Records: map[string]reconcile.Record{}, Progress: map[string]reconcile.Progress{}, Epochs: map[string]uint64{}, Drafts: map[string]reconcile.Draft{},
		Intents: map[reconcile.Slot][]reconcile.Intent{},
	}}
}

// Object returns an inventory entry.
func (s *Store) Object(collection, key string) *reconcile.Object {
	return s.Objects[reconcile.Slot{Collection: collection, Key: key}]
}

// After returns the next key of a collection.
func (s *Store) After(collection, key string) (next string, found bool) {
	for slot := range s.Objects {
		if slot.Collection == collection && slot.Key > key && (!found || slot.Key < next) {
			next, found = slot.Key, true
		}
	}
	return next, found
}

// before stores what must be in the store before the bus gets the items of a batch.
func (s *Store) before(b *reconcile.Batch) {
	maps.Copy(s.Drafts, b.Drafts)
	for slot, list := range b.Intents {
		for _, i := range list {
			s.settle(slot, i.UID)
			s.Intents[slot] = append(s.Intents[slot], i)
		}
	}
}

func (s *Store) settle(slot reconcile.Slot, uid string) {
	rest := slices.DeleteFunc(slices.Clone(s.Intents[slot]), func(i reconcile.Intent) bool { return i.UID == uid })
	if s.Intents[slot] = rest; len(rest) == 0 {
		delete(s.Intents, slot)
	}
}

func (s *Store) commit(b *reconcile.Batch) {
	for _, c := range b.Changes {
		if c.Object == nil {
			delete(s.Objects, c.Slot)
		} else {
			o := *c.Object // the batch's memory is used again
			s.Objects[c.Slot] = &o
		}
	}
	maps.Copy(s.Records, b.Records)
	maps.Copy(s.Progress, b.Progress)
	maps.Copy(s.Epochs, b.Epochs)
	for id := range b.Progress {
		delete(s.Drafts, id)
	}
	for slot, list := range b.Intents {
		for _, i := range list {
			s.settle(slot, i.UID)
		}
	}
	for _, i := range b.Settled {
		s.settle(i.Slot, i.UID)
	}
}

// Reading is the state of one read of a collection.
type Reading struct {
	Number  uint64
	At      int // the resourceVersion up to which the core has seen the collection
	Listing bool
	Ended   bool
	Names   []string // of the list, not handed on yet
	Side    []string // of the list beside the watch, not handed on yet
	SideAt  int      // resourceVersion of the list beside the watch; 0: none is running
}

// Sent is one message, with the test's knowledge about it.
type Sent struct {
	consumer.Message
	Key        string
	Collection string
	// The collection's progress after this message: incarnation, run and resourceVersion. It then holds these objects, as uids
	// and versions by name.
	Incarnation, Run, Epoch uint64
	At                      int
	Holds                   map[string]Held
	Selection               string
	Closed                  bool
	Plan, Birth             uint64 // 0: none
	What                    string // description for failure messages
}

// Held is the state of an object that a collection holds.
type Held struct {
	UID     string
	Version int
}

// Place is a partition of a topic.
type Place struct {
	Topic     string
	Partition int
}

// World is a cluster, a core with its store, and a bus.
type World struct {
	T        *rapid.T
	Exact    bool // a batch and its commit are one transaction
	Compacts bool // the topics are compacted
	Format   event.Format
	Encoder  event.Encoder

	Cluster  Cluster
	Store    *Store
	Core     *reconcile.Core
	Readings map[string]*Reading
	Flying   *reconcile.Batch

	Clock, Birth, Plan uint64
	Wanted             map[string]reconcile.Properties
	Edits              map[string]uint64
	Plans              map[uint64][]string // the collections of each plan

	Partitions map[string]int // by topic
	Bus        map[Place][]*Sent
}

// Collections are the collections that a configuration may have.
var Collections = []string{"pods", "pods:b"}

// New returns a world with a random configuration.
func New(t *rapid.T, formats ...event.Format) *World {
	w := &World{
		T: t, Format: rapid.SampledFrom(formats).Draw(t, "format"),
		Store: newStore(), Readings: map[string]*Reading{}, Clock: 1000, Birth: 1000,
		Wanted: map[string]reconcile.Properties{}, Edits: map[string]uint64{}, Plans: map[uint64][]string{},
		Partitions: map[string]int{"t1": rapid.IntRange(1, 3).Draw(t, "partitions"), "t2": 2}, Bus: map[Place][]*Sent{},
	}
	w.Exact = rapid.Bool().Draw(t, "exact")
	w.Compacts = w.Exact && rapid.Bool().Draw(t, "compacted")
	w.Encoder = event.Encoder{Cluster: "test", ClusterUID: "c", Format: w.Format}
	w.Change()
	w.start()
	w.Configure()
	return w
}

// now returns a time that is later than all runs so far.
func (w *World) now() uint64 {
	w.Clock += 100
	return w.Clock
}

func (w *World) start() {
	w.Core = reconcile.NewCore(w.Store, w.Store.State, w.now())
	w.Readings, w.Flying = map[string]*Reading{}, nil
	w.stamp()
	w.apply()
}

// Configure draws a random configuration.
func (w *World) Configure() {
	w.Plan = w.now()
	for _, id := range Collections {
		was, had := w.Wanted[id]
		if rapid.IntRange(0, 3).Draw(w.T, "unwanted") == 0 {
			delete(w.Wanted, id)
			delete(w.Edits, id)
			continue
		}
		p := reconcile.Properties{
			Selection: rapid.SampledFrom([]string{"", "1", "2", "12"}).Draw(w.T, "selection"),
			Route:     rapid.SampledFrom([]string{"t1", "t1", "t2"}).Draw(w.T, "topic"),
		}
		if w.Wanted[id] = p; !had || p != was {
			w.Edits[id] = w.Plan
		}
	}
	w.Plans[w.Plan] = slices.Sorted(maps.Keys(w.Wanted))
	w.apply()
}

// apply passes the configuration to the core.
func (w *World) apply() {
	for _, id := range w.Core.IDs() {
		if _, ok := w.Wanted[id]; !ok {
			w.Step(&reconcile.Input{Kind: reconcile.Remove, Collection: id})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.Wanted)) {
		w.Step(&reconcile.Input{Kind: reconcile.Configure, Collection: id, Properties: w.Wanted[id]})
	}
}

// Step passes an input to the core.
func (w *World) Step(in *reconcile.Input) {
	in.Now = w.now()
	w.Core.Step(in)
	w.stamp()
}

// stamp makes messages of the items that were emitted since the last call.
func (w *World) stamp() {
	items := w.Core.Items()
	for i := range items {
		if items[i].Payload == nil {
			items[i].Payload = w.encode(&items[i])
		}
	}
}

// encode makes the messages of one item: the event and, in a compacted topic, the null value that follows a deletion.
func (w *World) encode(i *reconcile.Item) []*Sent {
	col := event.ParseCollection(i.Collection)
	e := event.Event{
		Collection: &col, Origin: event.Reconcile, Time: time.Unix(int64(w.now()), 0), Epoch: i.Epoch,
		Run: strconv.FormatUint(i.Run, 10), Incarnation: i.Incarnation,
	}
	if r := w.Readings[i.Collection]; r != nil && !r.Listing {
		e.Origin = event.Watch
	}
	m := &Sent{Collection: i.Collection, Incarnation: i.Incarnation, Run: i.Run, Epoch: i.Epoch}
	if o := i.Object; o != nil {
		w.ofObject(&e, o)
		m.Key = o.Key + "/" + col.Entry
	} else {
		w.ofCollection(&e, i.Event, cmp.Or(w.Edits[i.Collection], w.Plan))
		m.Plan, m.Birth, m.Closed = w.Plan, w.Birth, e.Type == event.Closed
		m.Key = "_collection/" + i.Collection + "/" + e.Type.String()
		if e.Type == event.Closed || i.Event.Reset {
			m.Key = "_collection/" + i.Collection + "/reset"
		}
	}
	c := w.Core.Collection(i.Collection)
	if m.At, _ = strconv.Atoi(c.Position); w.Readings[i.Collection] != nil {
		m.At = w.Readings[i.Collection].At
	}
	if e.Type == event.Gap { // a gap promises no state
		m.At = 0
	}
	m.Holds, m.Selection = map[string]Held{}, c.Properties.Selection
	for name, t := range w.Cluster.At(m.At, c.Properties.Selection) {
		m.Holds[name] = Held{strconv.Itoa(t.UID), t.Version}
	}
	m.What = fmt.Sprintf("%s@%s edit %d plan %d at %d", e.ID(), e.ResourceVersion, w.Edits[i.Collection], w.Plan, m.At)
	attributes := w.Encoder.Attributes(&e)
	m.Headers = map[string]string{"content-type": w.Format.ContentType()}
	for _, a := range attributes {
		m.Headers["ce_"+a.Name] = a.Value
	}
	m.Topic, m.Partitions, m.Partition = i.Route, w.Partitions[i.Route], -1
	if i.Object != nil {
		m.Partition = w.Partition(i.Route, i.Object.Key)
	}
	m.Value = w.Format.Append(nil, attributes, &e)
	list := []*Sent{m}
	if w.Compacts && e.Type == event.Deleted {
		null := *m
		null.Value = nil
		list = append(list, &null)
	}
	return list
}

func (w *World) ofObject(e *event.Event, o *reconcile.ObjectEvent) {
	e.Type, e.APIVersion, e.Kind, e.Namespace, e.Name, e.UID = o.Type, "v1", "Pod", "ns", o.Key, o.Object.UID
	e.ResourceVersion = o.Version
	if o.Type == event.Present && e.Origin == event.Watch {
		e.Origin = event.Resync
	}
	if o.Type == event.Deleted {
		e.Run, e.ResourceVersion, e.DeletionVersion = strconv.FormatUint(o.Object.Run, 10), o.Object.At, o.Version
		e.Reason = [...]string{"", "left", "unknown"}[o.Fate]
		return
	}
	e.Object = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"ns","uid":%q,"resourceVersion":%q}}`, o.Key, o.Object.UID, o.Version)
}

func (w *World) ofCollection(e *event.Event, c *reconcile.CollectionEvent, edit uint64) {
	e.Type, e.ResourceVersion, e.Nth = c.Type, c.Version, c.Nth
	e.Report = &event.Report{Reason: c.Reason, Reset: c.Reset, From: c.From, To: c.Version}
	if c.Reason == "" {
		e.Report.Reason = "removed"
	}
	e.Plan = &event.Plan{Number: w.Plan, Digest: event.PlanDigest(w.Edits), Edit: edit, Birth: w.Birth}
}

// Partition returns the partition of an object's events.
func (w *World) Partition(topic, name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() % uint32(w.Partitions[topic]))
}

// deliver publishes the first n items of the batch that is on its way.
func (w *World) deliver(n int) {
	for i := range w.Flying.Items[:n] {
		for _, m := range w.Flying.Items[i].Payload.([]*Sent) {
			for p := range w.Partitions[m.Topic] {
				if m.Partition < 0 || m.Partition == p {
					c := *m
					c.Partition = p
					w.Bus[Place{m.Topic, p}] = append(w.Bus[Place{m.Topic, p}], &c)
				}
			}
		}
	}
}

// Seal delivers and commits the batch that is filling.
func (w *World) Seal() {
	if w.Flying == nil {
		w.Flying = w.Core.Seal()
		return
	}
	if !w.Exact {
		w.Store.before(w.Flying)
	}
	w.deliver(len(w.Flying.Items))
	w.Store.commit(w.Flying)
	w.Flying = nil
	w.Core.Committed()
}

// Crash ends the program. In at-least-once delivery, a part of the batch on its way may be published.
func (w *World) Crash() {
	if w.Flying != nil && !w.Exact {
		w.Store.before(w.Flying)
		w.deliver(rapid.IntRange(0, len(w.Flying.Items)).Draw(w.T, "delivered"))
	}
	w.start()
}

// Reset discards the published state, and starts without it.
func (w *World) Reset() {
	next := w.Store.Reset()
	w.Store.Records, w.Store.Progress, w.Store.Drafts = next.Records, next.Progress, map[string]reconcile.Draft{}
	w.start()
}

// Forget loses the checkpoint.
func (w *World) Forget() {
	w.Store, w.Birth, w.Plan = newStore(), w.now(), w.now()
	for id := range w.Edits {
		w.Edits[id] = w.Plan
	}
	w.Plans[w.Plan] = slices.Sorted(maps.Keys(w.Wanted))
	w.start()
}

// Change writes to the cluster.
func (w *World) Change() {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.T, "name")
	now := w.Cluster.At(w.Cluster.Version(), "")[name]
	if now != nil && rapid.IntRange(0, 2).Draw(w.T, "delete") == 0 {
		w.Cluster.History = append(w.Cluster.History, Write{name, nil})
		return
	}
	next := Thing{Group: rapid.SampledFrom([]string{"1", "2"}).Draw(w.T, "group"), Version: w.Cluster.Version() + 1}
	if now != nil {
		next.UID = now.UID
	} else {
		w.Cluster.UIDs++
		next.UID = w.Cluster.UIDs
	}
	w.Cluster.History = append(w.Cluster.History, Write{name, &next})
}

// Restore sets the cluster back by some versions, as from a backup, and lets a collection notice it.
func (w *World) Restore() {
	for _, id := range w.Core.IDs() {
		c := w.Core.Collection(id)
		if inStep := c.Phase == reconcile.InStep && c.Position == strconv.Itoa(w.Cluster.Version()); !inStep && c.Phase != reconcile.Closed {
			return
		}
	}
	if len(w.Wanted) == 0 || !w.Core.Idle() || w.Cluster.Version() < 3 || len(w.Store.Intents) > 0 {
		return
	}
	w.Cluster.History = slices.Clip(w.Cluster.History[:w.Cluster.Version()-rapid.IntRange(1, 2).Draw(w.T, "back")])
	w.Cluster.Expired = w.Cluster.Version()
	w.Readings = map[string]*Reading{}
	w.Read(slices.Min(slices.Collect(maps.Keys(w.Wanted))))
	for !w.Core.Idle() {
		w.Seal()
	}
}

// Read does the next step of a collection, and reports whether there was one.
func (w *World) Read(id string) bool {
	c := w.Core.Collection(id)
	switch {
	case c == nil:
		return false
	case c.Phase == reconcile.Ending:
		return w.end(id)
	case c.Phase == reconcile.Leaving:
		for id := range w.Wanted {
			if !w.Core.Settled(id) {
				return false
			}
		}
		w.Step(&reconcile.Input{Kind: reconcile.Release, Collection: id})
		return true
	}
	want := w.Core.Reading(id)
	if want.Stop {
		return false
	}
	r := w.Readings[id]
	switch {
	case r == nil || r.Number != want.Number:
		w.open(id, want)
	case r.Listing:
		w.list(id, r)
	case want.Side != 0:
		w.side(id, r, want)
	case c.Resync && c.Phase == reconcile.InStep:
		r.Side, r.SideAt = nil, 0
		w.Step(&reconcile.Input{Kind: reconcile.SideBegun, Collection: id})
	default:
		return w.watch(id, r)
	}
	return true
}

func (w *World) end(id string) bool {
	keys, done := w.Core.Forgettable(id, 1)
	switch {
	case done:
		w.Step(&reconcile.Input{Kind: reconcile.Forgot, Collection: id})
	case len(keys) > 0:
		w.Step(&reconcile.Input{Kind: reconcile.Forget, Collection: id, Key: keys[0]})
	default:
		return false
	}
	return true
}

// open starts a watch or a list.
func (w *World) open(id string, want reconcile.Read) {
	r := &Reading{Number: want.Number}
	w.Readings[id] = r
	from, _ := strconv.Atoi(want.From)
	seen, _ := strconv.Atoi(want.Seen)
	if older := w.Cluster.Version() < seen; want.From == "" || from < w.Cluster.Expired || older {
		r.Listing, r.At = true, w.Cluster.Version()
		r.Names = slices.Sorted(maps.Keys(w.selected(id, r.At)))
		in := &reconcile.Input{Kind: reconcile.ListBegun, Collection: id, Read: r.Number, Reason: "expired", NewEpoch: older}
		if older {
			in.Reason = event.ReasonHistory
		}
		w.Step(in)
		return
	}
	r.At = from
}

func (w *World) selected(id string, version int) map[string]*Thing {
	return w.Cluster.At(version, w.Core.Collection(id).Properties.Selection)
}

// list does the next step of a list.
func (w *World) list(id string, r *Reading) {
	switch {
	case len(r.Names) > 0:
		name := r.Names[0]
		r.Names = r.Names[1:]
		w.Step(&reconcile.Input{Kind: reconcile.Sighted, Collection: id, Read: r.Number, Sighting: sighting(reconcile.List, name, w.selected(id, r.At)[name])})
	case !r.Ended:
		r.Ended = true
		w.Step(&reconcile.Input{Kind: reconcile.ListEnded, Collection: id, Read: r.Number, Version: strconv.Itoa(r.At)})
	default:
		missing := w.Core.Missing(id, 1)
		if len(missing) == 0 {
			r.Listing = false
			w.Step(&reconcile.Input{Kind: reconcile.ListDone, Collection: id})
			return
		}
		s := &reconcile.Sighting{Form: reconcile.Lacking, Origin: reconcile.List, Key: missing[0].Key, Version: strconv.Itoa(r.At)}
		s.Fates = func(string) reconcile.Fate { return reconcile.Unknown }
		w.Step(&reconcile.Input{Kind: reconcile.ListLacks, Collection: id, Key: s.Key, Sighting: s})
	}
}

func sighting(from reconcile.Origin, name string, t *Thing) *reconcile.Sighting {
	return &reconcile.Sighting{Origin: from, Key: name, UID: strconv.Itoa(t.UID), Version: strconv.Itoa(t.Version), Digest: reconcile.Digest(fmt.Appendf(nil, "%016d", t.Version))}
}

// side does the next step of a list beside the watch.
func (w *World) side(id string, r *Reading, want reconcile.Read) {
	if r.SideAt == 0 {
		r.SideAt = max(w.Cluster.Version(), 1)
		r.Side = slices.Sorted(maps.Keys(w.selected(id, r.SideAt)))
	}
	if len(r.Side) == 0 {
		in := &reconcile.Input{Kind: reconcile.SideEnded, Collection: id, Side: want.Side, Version: strconv.Itoa(r.SideAt)}
		r.SideAt = 0
		w.Step(in)
		return
	}
	name := r.Side[0]
	r.Side = r.Side[1:]
	w.Step(&reconcile.Input{Kind: reconcile.Sighted, Collection: id, Side: want.Side, Sighting: sighting(reconcile.Resync, name, w.selected(id, r.SideAt)[name])})
}

// watch hands on the next event of a watch, or a bookmark.
func (w *World) watch(id string, r *Reading) bool {
	if r.At >= w.Cluster.Version() {
		at := strconv.Itoa(r.At)
		if w.Core.Collection(id).Position == at {
			return false
		}
		w.Step(&reconcile.Input{Kind: reconcile.Bookmark, Collection: id, Read: r.Number, Resume: at})
		return true
	}
	before := w.selected(id, r.At)
	r.At++
	change := w.Cluster.History[r.At-1]
	now := w.selected(id, r.At)[change.Name]
	was := before[change.Name]
	in := &reconcile.Input{Kind: reconcile.Sighted, Collection: id, Read: r.Number, Resume: strconv.Itoa(max(r.At-1, 1))}
	switch {
	case now != nil:
		in.Sighting = sighting(reconcile.Watch, change.Name, now)
	case was != nil:
		in.Sighting = &reconcile.Sighting{Form: reconcile.Ended, Key: change.Name, UID: strconv.Itoa(was.UID), Version: strconv.Itoa(r.At)}
		if change.Now != nil {
			in.Sighting.Fate = reconcile.Left
		}
	default:
		return true
	}
	w.Step(in)
	return true
}

// Drain does all remaining steps.
func (w *World) Drain() {
	for w.advance() {
	}
	// An edit that was undone and lost in a crash is in no event, and neither is a plan without a collection.
	for _, id := range slices.Sorted(maps.Keys(w.Wanted)) {
		w.Step(&reconcile.Input{Kind: reconcile.Confirm, Collection: id})
	}
	for w.advance() {
	}
}

func (w *World) advance() bool {
	for _, id := range w.Core.IDs() {
		if w.Read(id) {
			return true
		}
	}
	if w.Flying != nil || !w.Core.Idle() {
		w.Seal()
		return true
	}
	return false
}

// Compact removes those of the first n messages of a partition that later messages replace. If gone is set, it also removes
// null values. It returns how many messages before pos are left.
func (w *World) Compact(at Place, n, pos int, gone bool) (left int) {
	log := w.Bus[at]
	last := map[string]int{}
	for i, m := range log[:n] {
		last[m.Key] = i
	}
	var kept []*Sent
	for i, m := range log {
		if i < n && (last[m.Key] != i || gone && m.Value == nil) {
			continue
		}
		if i < pos {
			left++
		}
		kept = append(kept, m)
	}
	w.Bus[at] = kept
	return left
}
