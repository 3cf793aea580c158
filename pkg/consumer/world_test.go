package consumer_test

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

// thing is an object of the cluster.
type thing struct {
	uid, version int
	group        string // compared with selectors
}

// write is one resourceVersion of the cluster.
type write struct {
	name string
	now  *thing // nil: deleted
}

// cluster is an API server with one resource. The first write has resourceVersion 1.
type cluster struct {
	history []write
	uids    int
	expired int // the lowest resourceVersion from which a watch can start
}

func (c *cluster) version() int { return len(c.history) }

// at returns the objects at a resourceVersion in a selection: "" selects everything, "12" selects groups 1 and 2.
func (c *cluster) at(version int, selection string) map[string]*thing {
	all := map[string]*thing{}
	for _, w := range c.history[:min(version, len(c.history))] {
		if w.now == nil {
			delete(all, w.name)
		} else {
			all[w.name] = w.now
		}
	}
	maps.DeleteFunc(all, func(_ string, t *thing) bool { return !selects(selection, t) })
	return all
}

func selects(selection string, t *thing) bool {
	if selection == "" {
		return true
	}
	for _, r := range selection {
		if string(r) == t.group {
			return true
		}
	}
	return false
}

// store is a checkpoint store in memory.
type store struct {
	objects map[reconcile.Slot]*reconcile.Object
	reconcile.State
}

func newStore() *store {
	return &store{map[reconcile.Slot]*reconcile.Object{}, reconcile.State{
		Records: map[string]reconcile.Record{}, Progress: map[string]reconcile.Progress{}, Epochs: map[string]uint64{}, Drafts: map[string]reconcile.Draft{},
		Intents: map[reconcile.Slot][]reconcile.Intent{},
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

// before stores what must be in the store before the bus gets the items of a batch.
func (s *store) before(b *reconcile.Batch) {
	maps.Copy(s.Drafts, b.Drafts)
	for slot, list := range b.Intents {
		for _, i := range list {
			s.settle(slot, i.UID)
			s.Intents[slot] = append(s.Intents[slot], i)
		}
	}
}

func (s *store) settle(slot reconcile.Slot, uid string) {
	rest := slices.DeleteFunc(slices.Clone(s.Intents[slot]), func(i reconcile.Intent) bool { return i.UID == uid })
	if s.Intents[slot] = rest; len(rest) == 0 {
		delete(s.Intents, slot)
	}
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

// reading is the state of one read of a collection.
type reading struct {
	number  uint64
	at      int // the resourceVersion up to which the core has seen the collection
	listing bool
	ended   bool
	names   []string // of the list, not handed on yet
	side    []string // of the list beside the watch, not handed on yet
	sideAt  int      // resourceVersion of the list beside the watch; 0: none is running
}

// sent is one message, with the test's knowledge about it.
type sent struct {
	consumer.Message
	key        string
	collection string
	// The collection's progress after this message: incarnation, run and resourceVersion. It then holds these objects, as uids
	// and versions by name.
	incarnation, run, epoch uint64
	at                      int
	holds                   map[string]held
	closed                  bool
	plan, birth             uint64 // 0: none
	what                    string // description for failure messages
}

type held struct {
	uid     string
	version int
}

type place struct {
	topic     string
	partition int
}

// world is a cluster, a core with its store, and a bus.
type world struct {
	t        *rapid.T
	exact    bool // a batch and its commit are one transaction
	compacts bool // the topics are compacted
	format   event.Format
	encoder  event.Encoder

	cluster  cluster
	store    *store
	core     *reconcile.Core
	readings map[string]*reading
	flying   *reconcile.Batch

	clock, birth, plan uint64
	wanted             map[string]reconcile.Properties
	edits              map[string]uint64
	plans              map[uint64][]string // the collections of each plan

	partitions map[string]int // by topic
	bus        map[place][]*sent
}

var collections = []string{"pods", "pods:b"}

func newWorld(t *rapid.T, formats ...event.Format) *world {
	w := &world{
		t: t, format: rapid.SampledFrom(formats).Draw(t, "format"),
		store: newStore(), readings: map[string]*reading{}, clock: 1000, birth: 1000,
		wanted: map[string]reconcile.Properties{}, edits: map[string]uint64{}, plans: map[uint64][]string{},
		partitions: map[string]int{"t1": rapid.IntRange(1, 3).Draw(t, "partitions"), "t2": 2}, bus: map[place][]*sent{},
	}
	w.exact = rapid.Bool().Draw(t, "exact")
	w.compacts = w.exact && rapid.Bool().Draw(t, "compacted")
	w.encoder = event.Encoder{Cluster: "test", ClusterUID: "c", Format: w.format}
	w.change()
	w.start()
	w.configure()
	return w
}

// now returns a time that is later than all runs so far.
func (w *world) now() uint64 {
	w.clock += 100
	return w.clock
}

func (w *world) start() {
	w.core = reconcile.NewCore(w.store, w.store.State, w.now())
	w.readings, w.flying = map[string]*reading{}, nil
	w.stamp()
	w.apply()
}

// configure draws a random configuration.
func (w *world) configure() {
	w.plan = w.now()
	for _, id := range collections {
		was, had := w.wanted[id]
		if rapid.IntRange(0, 3).Draw(w.t, "unwanted") == 0 {
			delete(w.wanted, id)
			delete(w.edits, id)
			continue
		}
		p := reconcile.Properties{
			Selection: rapid.SampledFrom([]string{"", "1", "2", "12"}).Draw(w.t, "selection"),
			Route:     rapid.SampledFrom([]string{"t1", "t1", "t2"}).Draw(w.t, "topic"),
		}
		if w.wanted[id] = p; !had || p != was {
			w.edits[id] = w.plan
		}
	}
	w.plans[w.plan] = slices.Sorted(maps.Keys(w.wanted))
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

func (w *world) step(in *reconcile.Input) {
	in.Now = w.now()
	w.core.Step(in)
	w.stamp()
}

// stamp makes messages of the items that were emitted since the last call.
func (w *world) stamp() {
	items := w.core.Items()
	for i := range items {
		if items[i].Payload == nil {
			items[i].Payload = w.encode(&items[i])
		}
	}
}

// encode makes the messages of one item: the event and, in a compacted topic, the null value that follows a deletion.
func (w *world) encode(i *reconcile.Item) []*sent {
	col := event.ParseCollection(i.Collection)
	e := event.Event{
		Collection: &col, Origin: event.Reconcile, Time: time.Unix(int64(w.now()), 0), Epoch: i.Epoch,
		Run: strconv.FormatUint(i.Run, 10), Incarnation: i.Incarnation,
	}
	m := &sent{collection: i.Collection, incarnation: i.Incarnation, run: i.Run, epoch: i.Epoch}
	if o := i.Object; o != nil {
		w.ofObject(&e, o)
		m.key = o.Key + "/" + col.Entry
	} else {
		w.ofCollection(&e, i.Event, cmp.Or(w.edits[i.Collection], w.plan))
		m.plan, m.birth, m.closed = w.plan, w.birth, e.Type == event.Closed
		m.key = "_collection/" + i.Collection + "/" + e.Type.String()
		if e.Type == event.Closed || i.Event.Reset {
			m.key = "_collection/" + i.Collection + "/reset"
		}
	}
	c := w.core.Collection(i.Collection)
	if m.at, _ = strconv.Atoi(c.Position); w.readings[i.Collection] != nil {
		m.at = w.readings[i.Collection].at
	}
	if e.Type == event.Gap { // a gap promises no state
		m.at = 0
	}
	m.holds = map[string]held{}
	for name, t := range w.cluster.at(m.at, c.Properties.Selection) {
		m.holds[name] = held{strconv.Itoa(t.uid), t.version}
	}
	m.what = fmt.Sprintf("%s@%s edit %d plan %d at %d", e.ID(), e.ResourceVersion, w.edits[i.Collection], w.plan, m.at)
	attributes := w.encoder.Attributes(&e)
	m.Headers = map[string]string{"content-type": w.format.ContentType()}
	for _, a := range attributes {
		m.Headers["ce_"+a.Name] = a.Value
	}
	m.Topic, m.Partitions, m.Partition = i.Route, w.partitions[i.Route], -1
	if i.Object != nil {
		m.Partition = w.partition(i.Route, i.Object.Key)
	}
	m.Value = w.format.Append(nil, attributes, &e)
	list := []*sent{m}
	if w.compacts && e.Type == event.Deleted {
		null := *m
		null.Value = nil
		list = append(list, &null)
	}
	return list
}

func (w *world) ofObject(e *event.Event, o *reconcile.ObjectEvent) {
	e.Type, e.APIVersion, e.Kind, e.Namespace, e.Name, e.UID = o.Type, "v1", "Pod", "ns", o.Key, o.Object.UID
	e.ResourceVersion = o.Version
	if o.Type == event.Deleted {
		e.Run, e.ResourceVersion, e.DeletionVersion = strconv.FormatUint(o.Object.Run, 10), o.Object.At, o.Version
		e.Reason = [...]string{"", "left", "unknown"}[o.Fate]
		return
	}
	e.Object = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"ns","uid":%q,"resourceVersion":%q}}`, o.Key, o.Object.UID, o.Version)
}

func (w *world) ofCollection(e *event.Event, c *reconcile.CollectionEvent, edit uint64) {
	e.Type, e.ResourceVersion, e.Nth = c.Type, c.Version, c.Nth
	e.Report = &event.Report{Reason: c.Reason, Reset: c.Reset, From: c.From, To: c.Version}
	if c.Reason == "" {
		e.Report.Reason = "removed"
	}
	e.Plan = &event.Plan{Number: w.plan, Digest: event.PlanDigest(w.edits), Edit: edit, Birth: w.birth}
}

func (w *world) partition(topic, name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() % uint32(w.partitions[topic]))
}

// deliver publishes the first n items of the batch that is on its way.
func (w *world) deliver(n int) {
	for i := range w.flying.Items[:n] {
		for _, m := range w.flying.Items[i].Payload.([]*sent) {
			for p := range w.partitions[m.Topic] {
				if m.Partition < 0 || m.Partition == p {
					c := *m
					c.Partition = p
					w.bus[place{m.Topic, p}] = append(w.bus[place{m.Topic, p}], &c)
				}
			}
		}
	}
}

// seal delivers and commits the batch that is filling.
func (w *world) seal() {
	if w.flying == nil {
		w.flying = w.core.Seal()
		return
	}
	if !w.exact {
		w.store.before(w.flying)
	}
	w.deliver(len(w.flying.Items))
	w.store.commit(w.flying)
	w.flying = nil
	w.core.Committed()
}

// crash ends the program. In at-least-once delivery, a part of the batch on its way may be published.
func (w *world) crash() {
	if w.flying != nil && !w.exact {
		w.store.before(w.flying)
		w.deliver(rapid.IntRange(0, len(w.flying.Items)).Draw(w.t, "delivered"))
	}
	w.start()
}

// reset discards the published state, and starts without it.
func (w *world) reset() {
	next := w.store.Reset()
	w.store.Records, w.store.Progress, w.store.Drafts = next.Records, next.Progress, map[string]reconcile.Draft{}
	w.start()
}

// forget loses the checkpoint.
func (w *world) forget() {
	w.store, w.birth, w.plan = newStore(), w.now(), w.now()
	for id := range w.edits {
		w.edits[id] = w.plan
	}
	w.plans[w.plan] = slices.Sorted(maps.Keys(w.wanted))
	w.start()
}

// change writes to the cluster.
func (w *world) change() {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.t, "name")
	now := w.cluster.at(w.cluster.version(), "")[name]
	if now != nil && rapid.IntRange(0, 2).Draw(w.t, "delete") == 0 {
		w.cluster.history = append(w.cluster.history, write{name, nil})
		return
	}
	next := thing{group: rapid.SampledFrom([]string{"1", "2"}).Draw(w.t, "group"), version: w.cluster.version() + 1}
	if now != nil {
		next.uid = now.uid
	} else {
		w.cluster.uids++
		next.uid = w.cluster.uids
	}
	w.cluster.history = append(w.cluster.history, write{name, &next})
}

// restore sets the cluster back by some versions, as from a backup, and lets a collection notice it.
func (w *world) restore() {
	for _, id := range w.core.IDs() {
		c := w.core.Collection(id)
		if inStep := c.Phase == reconcile.InStep && c.Position == strconv.Itoa(w.cluster.version()); !inStep && c.Phase != reconcile.Closed {
			return
		}
	}
	if len(w.wanted) == 0 || !w.core.Idle() || w.cluster.version() < 3 || len(w.store.Intents) > 0 {
		return
	}
	w.cluster.history = slices.Clip(w.cluster.history[:w.cluster.version()-rapid.IntRange(1, 2).Draw(w.t, "back")])
	w.cluster.expired = w.cluster.version()
	w.readings = map[string]*reading{}
	w.read(slices.Min(slices.Collect(maps.Keys(w.wanted))))
	for !w.core.Idle() {
		w.seal()
	}
}

// read does the next step of a collection, and reports whether there was one.
func (w *world) read(id string) bool {
	c := w.core.Collection(id)
	switch {
	case c == nil:
		return false
	case c.Phase == reconcile.Ending:
		return w.end(id)
	case c.Phase == reconcile.Leaving:
		for id := range w.wanted {
			if !w.core.Settled(id) {
				return false
			}
		}
		w.step(&reconcile.Input{Kind: reconcile.Release, Collection: id})
		return true
	}
	want := w.core.Reading(id)
	if want.Stop {
		return false
	}
	r := w.readings[id]
	switch {
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
	default:
		return false
	}
	return true
}

// open starts a watch or a list.
func (w *world) open(id string, want reconcile.Read) {
	r := &reading{number: want.Number}
	w.readings[id] = r
	from, _ := strconv.Atoi(want.From)
	seen, _ := strconv.Atoi(want.Seen)
	if older := w.cluster.version() < seen; want.From == "" || from < w.cluster.expired || older {
		r.listing, r.at = true, w.cluster.version()
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
	return w.cluster.at(version, w.core.Collection(id).Properties.Selection)
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
			r.listing = false
			w.step(&reconcile.Input{Kind: reconcile.ListDone, Collection: id})
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
		r.sideAt = max(w.cluster.version(), 1)
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

// watch hands on the next event of a watch, or a bookmark.
func (w *world) watch(id string, r *reading) bool {
	if r.at >= w.cluster.version() {
		at := strconv.Itoa(r.at)
		if w.core.Collection(id).Position == at {
			return false
		}
		w.step(&reconcile.Input{Kind: reconcile.Bookmark, Collection: id, Read: r.number, Resume: at})
		return true
	}
	before := w.selected(id, r.at)
	r.at++
	change := w.cluster.history[r.at-1]
	now := w.selected(id, r.at)[change.name]
	was := before[change.name]
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

// drain does all remaining steps.
func (w *world) drain() {
	for w.advance() {
	}
	// An edit that was undone and lost in a crash is in no event, and neither is a plan without a collection.
	for _, id := range slices.Sorted(maps.Keys(w.wanted)) {
		w.step(&reconcile.Input{Kind: reconcile.Confirm, Collection: id})
	}
	for w.advance() {
	}
}

func (w *world) advance() bool {
	for _, id := range w.core.IDs() {
		if w.read(id) {
			return true
		}
	}
	if w.flying != nil || !w.core.Idle() {
		w.seal()
		return true
	}
	return false
}

// compact removes those of the first n messages of a partition that later messages replace. If gone is set, it also removes
// null values. It returns how many messages before pos are left.
func (w *world) compact(at place, n, pos int, gone bool) (left int) {
	log := w.bus[at]
	last := map[string]int{}
	for i, m := range log[:n] {
		last[m.key] = i
	}
	var kept []*sent
	for i, m := range log {
		if i < n && (last[m.key] != i || gone && m.Value == nil) {
			continue
		}
		if i < pos {
			left++
		}
		kept = append(kept, m)
	}
	w.bus[at] = kept
	return left
}
