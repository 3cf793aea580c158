package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// mode is how a batch becomes durable.
type mode uint8

const (
	transaction mode = iota // items and checkpoint are committed together
	journal                 // the items carry the checkpoint; after a crash, the bus may have only the first of them
	intents                 // drafts and intents are stored, then the items are published, then the checkpoint is stored
)

func (m mode) String() string { return [...]string{"transaction", "log", "intents"}[m] }

// thing is an object of the cluster.
type thing struct {
	uid   int
	group int  // what selectors and filters look at
	body  int  // each write has another one
	major int  // the body of the last write that is not minor
	large bool // it does not fit the bus
	at    int  // the version of the last write
}

// write is one version of the cluster's history. It has the objects that it changed, by name.
type write struct {
	changed map[string]*thing // nil: deleted
}

// cluster is an API server with one resource.
type cluster struct {
	history   []write // the first one makes version 1; version 0 has no objects
	compacted int     // a watch cannot start before it
	absent    bool    // the resource does not exist
	absentAt  int     // the version at which the resource became absent
	floor     int     // no restore goes back further
	epoch     int     // number of restores
	uids      int
	bodies    int
	defaults  int // how often a default was changed, which changes all bodies without a write
}

// minor reports whether the last write of the object was a minor one.
func (t *thing) minor() bool { return t.major != t.body }

func (c *cluster) clone() *cluster {
	d := *c
	d.history = slices.Clip(c.history)
	return &d
}

func (c *cluster) version() int { return len(c.history) }

// at returns the objects that exist at a version, by name.
func (c *cluster) at(version int) map[string]*thing {
	all := map[string]*thing{}
	for _, w := range c.history[:min(version, len(c.history))] {
		for name, t := range w.changed {
			if t == nil {
				delete(all, name)
			} else {
				all[name] = t
			}
		}
	}
	return all
}

func (c *cluster) write(changed map[string]*thing) {
	for _, t := range changed {
		if t != nil {
			c.bodies++
			t.body, t.at = c.bodies, len(c.history)+1
			if t.major == 0 {
				t.major = t.body
			}
		}
	}
	c.history = append(c.history, write{changed})
}

// frame is one event of a watch with a selector.
type frame struct {
	name  string
	now   *thing // nil: deleted
	was   *thing // nil: no object of the name was selected before
	at    int
	left  bool // the object exists and is not selected any more
	ended bool // the watch reports a deletion
}

// frames returns the events of a watch that starts at a version.
func (c *cluster) frames(selection string, after int) []frame {
	var list []frame
	state := c.at(after)
	for v := after; v < len(c.history); v++ {
		for _, name := range sorted(c.history[v].changed) {
			t, was := c.history[v].changed[name], state[name]
			if was != nil && !selects(selection, was) {
				was = nil
			}
			switch {
			case t != nil && selects(selection, t):
				list = append(list, frame{name: name, now: t, was: was, at: v + 1})
			case was != nil:
				list = append(list, frame{name: name, now: t, was: was, at: v + 1, ended: true, left: t != nil})
			}
		}
		for name, t := range c.history[v].changed {
			if t == nil {
				delete(state, name)
			} else {
				state[name] = t
			}
		}
	}
	return list
}

// selects reports whether a selection has an object: "" selects everything, "12" selects groups 1 and 2.
func selects(selection string, t *thing) bool {
	if selection == "" {
		return true
	}
	for _, r := range selection {
		if int(r-'0') == t.group {
			return true
		}
	}
	return false
}

// store is a checkpoint store.
type store struct {
	records  map[string]Record
	progress map[string]Progress
	objects  map[Slot]*Object
	epochs   map[string]uint64
	drafts   map[string]Draft
	intents  map[Slot][]Intent
	asked    int // calls of After since the last action
}

func newStore() *store {
	return &store{map[string]Record{}, map[string]Progress{}, map[Slot]*Object{}, map[string]uint64{}, map[string]Draft{}, map[Slot][]Intent{}, 0}
}

func (s *store) clone() *store {
	return &store{maps.Clone(s.records), maps.Clone(s.progress), maps.Clone(s.objects), maps.Clone(s.epochs), maps.Clone(s.drafts), maps.Clone(s.intents), 0}
}

func (s *store) Object(collection, key string) *Object { return s.objects[Slot{collection, key}] }

func (s *store) Each(collection string, do func(key string, o *Object)) {
	for slot, o := range s.objects {
		if slot.Collection == collection {
			do(slot.Key, o)
		}
	}
}

func (s *store) After(collection, key string) (next string, found bool) {
	if s.asked++; s.asked > 10_000 {
		panic("the core does not stop asking for keys")
	}
	for slot := range s.objects {
		if slot.Collection == collection && slot.Key > key && (!found || slot.Key < next) {
			next, found = slot.Key, true
		}
	}
	return next, found
}

func (s *store) state() State { return State{s.records, s.progress, s.epochs, s.drafts, s.intents} }

// reset resets every collection in the store, as durable.ResetChanges does.
func (s *store) reset() {
	next := s.state().Reset()
	s.records, s.progress, s.drafts = next.Records, next.Progress, map[string]Draft{}
}

func (s *store) change(list []Change) {
	for _, c := range list {
		if c.Object == nil {
			delete(s.objects, c.Slot)
		} else {
			s.objects[c.Slot] = c.copied().Object
		}
	}
}

// before stores what must be in the store before the bus gets the items of a batch.
func (s *store) before(b *Batch) {
	maps.Copy(s.drafts, b.Drafts)
	for slot, list := range b.Intents {
		all := slices.Clone(s.intents[slot])
		for _, i := range list {
			all = slices.DeleteFunc(all, func(x Intent) bool { return x.UID == i.UID })
			all = append(all, i)
		}
		s.intents[slot] = all
	}
}

func (s *store) settle(slot Slot, uid string) {
	all := slices.DeleteFunc(slices.Clone(s.intents[slot]), func(x Intent) bool { return x.UID == uid })
	if s.intents[slot] = all; len(all) == 0 {
		delete(s.intents, slot)
	}
}

func (s *store) commit(b *Batch) {
	s.change(b.Changes)
	maps.Copy(s.records, b.Records)
	maps.Copy(s.progress, b.Progress)
	maps.Copy(s.epochs, b.Epochs)
	for id := range b.Progress {
		delete(s.drafts, id)
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

// fold stores what an item on the bus carries, as a restart in mode journal does.
func (s *store) fold(i *Item) {
	s.change(i.Changes)
	if i.Record != nil {
		s.records[i.Collection] = *i.Record
	}
	s.progress[i.Collection] = i.Progress
}

// reader reads one collection, as pkg/source does.
type reader struct {
	number  uint64
	begun   bool
	listing bool
	listed  []*thing // the objects of the list that were not passed on yet
	names   []string // their names
	version int      // the version of the list; -1: the resource is absent
	resume  int      // a watch may start from this version
	last    int      // the version of the last frame that was passed on
	next    int      // how many frames of version last were passed on
	sides   *sideReader
}

type sideReader struct {
	listed  []*thing
	names   []string
	version int  // the version of the list; -1: the list has ended
	old     bool // the list began before the last drift, or while something was not committed
}

func (r *reader) clone() *reader {
	d := *r
	if r.sides != nil {
		s := *r.sides
		d.sides = &s
	}
	return &d
}

// begun is a read that the core wants, and the selection that the collection had when it began.
type begun struct {
	number    uint64
	selection string
}

// world is a cluster, a core, a store, a bus and a consumer.
type world struct {
	mode    mode
	configs []map[string]Properties // each has the wanted collections
	config  int                     // the index of the present configuration
	cluster *cluster
	store   *store
	core    *Core
	readers map[string]*reader
	reads   map[string]begun
	flying  *Batch
	reader  *consumer

	narrow               bool            // only name a is written, and no write is large or minor
	plain                bool            // in a narrow world, all writes are in group 1
	writes, disturbances int             // how many more can happen
	kinds                map[string]bool // the kinds of disturbances that can happen; nil: all
	noticed              int             // the number of the restore that the core has noticed last
	unnoticed            int             // restores that Seen can prove and the core has not noticed
	failed               string
	logs                 bool                    // whether log is kept
	log                  []Item                  // everything that was emitted
	coverage             *coverage               // of all worlds of an exploration
	majors               map[int]int             // the major body of each minor body
	skipped              map[string]map[int]bool // by collection and incarnation: bodies of the first list; true: selected, and not published
	suspended            map[string]bool
	resets, resyncs      map[string]uint64         // demanded ones: the collection's incarnation, or run, at that time
	drifted              map[string]bool           // collections in which a verification will find a difference
	dead                 map[int]bool              // bodies that the bus has rejected
	runs                 map[string]Properties     // the properties of each run: see runKey
	reasons              map[string]event.Reason   // the reason of the gap of each run: see runKey
	expected             map[string]map[string]int // what the synced event of each run promises: bodies by name
}

func newWorld(m mode, writes, disturbances int, configs ...map[string]Properties) *world {
	w := &world{
		mode: m, configs: configs, cluster: &cluster{}, store: newStore(), readers: map[string]*reader{}, reader: newConsumer(),
		writes: writes, disturbances: disturbances,
		majors: map[int]int{}, skipped: map[string]map[int]bool{}, suspended: map[string]bool{}, drifted: map[string]bool{}, resets: map[string]uint64{}, resyncs: map[string]uint64{}, dead: map[int]bool{}, runs: map[string]Properties{}, reasons: map[string]event.Reason{}, expected: map[string]map[string]int{},
	}
	w.coverage = &coverage{}
	w.start()
	return w
}

// start starts the program.
func (w *world) start() {
	w.core = NewCore(w.store, w.store.state(), 0)
	w.core.coverage = w.coverage
	w.readers, w.flying, w.suspended = map[string]*reader{}, nil, map[string]bool{}
	w.reads = map[string]begun{}    // another core counts its reads from the beginning
	w.resyncs = map[string]uint64{} // a restart may lose a demand
	w.look(0)
	w.configure()
}

// follow begins and ends reads as the core says. A read keeps the selection with which it began.
func (w *world) follow() {
	for id, c := range w.core.collections {
		want := w.core.Reading(id)
		switch {
		case want.Stop:
			delete(w.reads, id)
		case w.reads[id].number != want.Number:
			w.reads[id] = begun{want.Number, c.Properties.Selection}
		}
	}
}

// configure passes the present configuration to the core.
func (w *world) configure() {
	wanted := w.configs[w.config]
	for _, id := range sorted(w.core.collections) {
		if _, ok := wanted[id]; !ok {
			w.step(&Input{Kind: Remove, Collection: id})
		}
	}
	for _, id := range sorted(wanted) {
		if !w.suspended[id] {
			w.step(&Input{Kind: Configure, Collection: id, Properties: wanted[id]})
		}
	}
}

func (w *world) clone() *world {
	d := *w
	d.cluster, d.store, d.reader = w.cluster.clone(), w.store.clone(), w.reader.clone()
	d.core = w.core.clone(d.store)
	d.majors, d.skipped = maps.Clone(w.majors), maps.Clone(w.skipped)
	d.reads = maps.Clone(w.reads)
	d.suspended, d.drifted, d.dead = maps.Clone(w.suspended), maps.Clone(w.drifted), maps.Clone(w.dead)
	d.resets, d.resyncs = maps.Clone(w.resets), maps.Clone(w.resyncs)
	d.runs, d.reasons, d.expected = maps.Clone(w.runs), maps.Clone(w.reasons), maps.Clone(w.expected)
	d.readers = map[string]*reader{}
	for id, r := range w.readers {
		d.readers[id] = r.clone()
	}
	if w.flying != nil {
		d.flying = d.core.sealed
	}
	return &d
}

func (k *Core) clone(s Storage) *Core {
	d := *k
	d.storage, d.collections, d.epochs, d.intents = s, map[string]*Collection{}, maps.Clone(k.epochs), maps.Clone(k.intents)
	for id, c := range k.collections {
		e := *c
		e.core, e.batch.silent = &d, slices.Clone(c.batch.silent)
		if c.list != nil {
			l := *c.list
			l.seen, l.keys = maps.Clone(l.seen), slices.Clone(l.keys)
			e.list = &l
		}
		if c.forgetting != nil {
			e.forgetting = &forgetting{slices.Clone(c.forgetting.keys), c.forgetting.cursor}
		}
		if c.side != nil {
			e.side = &side{c.side.number, maps.Clone(c.side.seen), maps.Clone(c.side.open), maps.Clone(c.side.touched), c.side.since, c.side.version, c.side.samples}
		}
		d.collections[id] = &e
	}
	d.current, d.inFlight, d.recycled = k.current.clone(), k.inFlight.clone(), k.recycled.clone()
	if k.sealed != nil {
		d.sealed = k.sealed.without("nothing")
	}
	return &d
}

func (p *pending) clone() *pending {
	if p == nil {
		return nil
	}
	p.memory = &memory{} // both batches refer to objects in the memory before, so neither may use it again
	return &pending{slices.Clone(p.items), slices.Clone(p.changes), maps.Clone(p.places), slices.Clone(p.dirty), maps.Clone(p.epochs), slices.Clone(p.settled), &memory{}}
}

// action is something that can happen in a world.
type action struct {
	name string
	do   func(w *world)
}

const batchItems = 2

// actions returns everything that can happen next.
func (w *world) actions() []action {
	w.store.asked = 0
	var list []action
	add := func(name string, do func(w *world)) { list = append(list, action{name, do}) }
	for _, id := range sorted(w.core.collections) {
		if w.readable(id) {
			add("read "+id, func(w *world) { w.read(id) })
		}
		if r := w.readers[id]; w.streams(id) {
			add("stream "+id, func(w *world) { w.stream(id, w.readers[id]) })
		} else if want := w.core.Reading(id); w.beside(r, want) && want.Samples != nil {
			add("sample "+id, func(w *world) { w.sample(id, want) })
		} else if w.beside(r, want) {
			add("side "+id, func(w *world) { w.side(id, w.readers[id], want) })
		} else if w.drifted[id] && w.core.collections[id].Phase == InStep && w.core.Idle() {
			add("audit "+id, func(w *world) { w.verify(id) })
		}
	}
	if w.core.inFlight == nil && !w.core.Idle() {
		add("seal", func(w *world) { w.seal() })
	}
	if w.flying != nil {
		add("deliver", func(w *world) { w.deliver() })
	}
	for _, id := range sorted(w.suspended) {
		add("resume "+id, func(w *world) { w.resume(id) })
	}
	if w.writes > 0 && !w.cluster.absent && w.canWrite() {
		for _, change := range w.changes() {
			if w.narrow && !w.inNarrow(change.name) {
				continue
			}
			add(change.name, func(w *world) { w.writes--; change.do(w) })
		}
	}
	if w.disturbances > 0 {
		for _, d := range w.disturb() {
			if w.kinds != nil && !w.kinds[kindOf(d.name)] {
				continue
			}
			add(d.name, func(w *world) { w.disturbances--; d.do(w) })
		}
	}
	return list
}

// inNarrow reports whether a write can happen in a narrow world.
func (w *world) inNarrow(name string) bool {
	switch {
	case strings.Contains(name, "b"), strings.Contains(name, "large"), strings.Contains(name, "minor"):
		return false
	}
	return !w.plain || !strings.HasSuffix(name, "2")
}

// objectNames are the names that objects can have.
var objectNames = [...]string{"a", "b"}

// changes returns the writes to the cluster that can happen next.
func (w *world) changes() []action {
	var list []action
	now := w.cluster.at(w.cluster.version())
	for _, name := range objectNames {
		if name == "b" && now["a"] == nil && now["b"] == nil {
			continue // the first object is a: another name would make no difference
		}
		t := now[name]
		if t == nil {
			for _, g := range []int{1, 2} {
				list = append(list, action{fmt.Sprintf("create %s in %d", name, g), func(w *world) {
					w.cluster.uids++
					w.cluster.write(map[string]*thing{name: {uid: w.cluster.uids, group: g}})
				}})
			}
			list = append(list, action{"create large " + name, func(w *world) {
				w.cluster.uids++
				w.cluster.write(map[string]*thing{name: {uid: w.cluster.uids, group: 1, large: true}})
			}})
			continue
		}
		for _, g := range []int{1, 2} {
			list = append(list, action{fmt.Sprintf("write %s in %d", name, g), func(w *world) {
				w.cluster.write(map[string]*thing{name: {uid: t.uid, group: g}})
			}})
		}
		list = append(list, action{"write minor " + name, func(w *world) {
			w.cluster.write(map[string]*thing{name: {uid: t.uid, group: t.group, large: t.large, major: t.major}})
			w.majors[w.cluster.bodies] = t.major
		}})
		list = append(list, action{"write large " + name, func(w *world) {
			w.cluster.write(map[string]*thing{name: {uid: t.uid, group: t.group, large: true}})
		}})
		list = append(list, action{"delete " + name, func(w *world) { w.cluster.write(map[string]*thing{name: nil}) }})
	}
	if now["a"] != nil && now["b"] != nil {
		list = append(list, action{"delete a and b", func(w *world) { w.cluster.write(map[string]*thing{"a": nil, "b": nil}) }})
	}
	return list
}

// canWrite reports whether a write can happen. While a restore is not noticed, the cluster must stay behind what was seen:
// otherwise the core could not notice the restore.
func (w *world) canWrite() bool {
	if w.unnoticed == 0 {
		return true
	}
	for _, list := range w.store.intents {
		for i := range list {
			if w.cluster.version()+1 >= number(list[i].Version) {
				return false
			}
		}
	}
	behind := func(p Phase, seen string) bool {
		return seen == "" || p == Closed || w.cluster.version()+1 < number(seen)
	}
	for id, r := range w.store.records {
		if !behind(r.Phase, w.store.progress[id].Seen) {
			return false
		}
		if w.flying == nil {
			continue
		}
		if later, ok := w.flying.Records[id]; ok {
			r = later
		}
		if !behind(r.Phase, w.flying.Progress[id].Seen) {
			return false
		}
	}
	for id, c := range w.core.collections {
		if !behind(c.Phase, c.Seen) || !behind(c.Phase, w.store.progress[id].Seen) {
			return false
		}
	}
	return true
}

// disturb returns the disturbances that can happen next.
func (w *world) disturb() []action {
	list := []action{
		{"restart", func(w *world) { w.crash(0, w.config) }},
		{"reset", func(w *world) { w.reset() }},
	}
	if w.flying != nil {
		n := len(w.flying.Items)
		for i := range n {
			id := w.flying.Items[i].Collection
			list = append(list, action{fmt.Sprintf("refuse item %d", i), func(w *world) { w.refuse(i); w.suspended[id] = true }})
			if o := w.flying.Items[i].Object; o != nil && o.Type != event.Deleted && !o.DeadLetter {
				list = append(list, action{fmt.Sprintf("reject item %d", i), func(w *world) {
					w.dead[o.Body.(int)] = true
					w.refuse(i)
					w.resume(id)
				}})
			}
		}
		switch w.mode {
		case transaction:
			list = append(list, action{"crash behind the transaction", func(w *world) { w.bus(n); w.commit(); w.crash(0, w.config) }})
		case journal:
			for i := 1; i <= n; i++ {
				list = append(list, action{fmt.Sprintf("crash behind %d items", i), func(w *world) { w.crash(i, w.config) }})
			}
		case intents:
			for i := 0; i <= n; i++ {
				list = append(list, action{fmt.Sprintf("crash behind the intents and %d items", i), func(w *world) {
					w.store.before(w.flying)
					w.crash(i, w.config)
				}})
			}
		}
	}
	for i := range w.configs {
		if i != w.config {
			list = append(list,
				action{fmt.Sprintf("configure %d", i), func(w *world) { w.config = i; w.configure() }},
				action{fmt.Sprintf("restart with %d", i), func(w *world) { w.crash(0, i) }})
		}
	}
	if w.cluster.version() > w.cluster.compacted {
		list = append(list, action{"expire", func(w *world) { w.cluster.compacted = w.cluster.version(); w.readers = map[string]*reader{} }})
	}
	for v := max(w.cluster.floor, w.cluster.version()-2); v < w.cluster.version(); v++ {
		list = append(list, action{fmt.Sprintf("restore %d", v), func(w *world) { w.restore(v) }})
	}
	for _, id := range sorted(w.core.collections) {
		c := w.core.collections[id]
		switch c.Phase {
		case Resyncing, Verifying:
			list = append(list, action{"break side list " + id, func(w *world) {
				w.step(&Input{Kind: SideBroken, Collection: id, Side: c.side.number})
				if r := w.readers[id]; r != nil {
					r.sides = nil
				}
			}})
		case InStep:
			list = append(list,
				action{"confirm " + id, func(w *world) { w.confirm(id) }},
				action{"resync " + id, func(w *world) { w.resync(id) }},
				action{"verify " + id, func(w *world) { w.verify(id) }})
		case Listing:
			list = append(list, action{"break list " + id, func(w *world) { delete(w.readers, id) }})
		}
		if c.Phase == Listing || c.Phase == Verifying {
			list = append(list, action{"resync " + id, func(w *world) { w.resync(id) }})
		}
	}
	if len(w.cluster.at(w.cluster.version())) > 0 && w.unnoticed == 0 {
		list = append(list, action{"change a default", func(w *world) {
			w.cluster.defaults++
			w.cluster.history = append(w.cluster.history, write{}) // a write of the resource's definition
			w.cluster.floor = w.cluster.version()
			w.cluster.compacted = w.cluster.version()
			w.readers = map[string]*reader{}
		}})
	}
	if w.canDrift() {
		list = append(list, action{"drift", func(w *world) { w.drift() }})
	}
	if w.unnoticed == 0 {
		for v := max(w.cluster.floor, w.cluster.version()-2); v < w.cluster.version(); v++ {
			list = append(list, action{fmt.Sprintf("rewrite from %d", v), func(w *world) { w.rewrite(v) }})
		}
	}
	for v := max(w.cluster.floor, w.cluster.version()-2); v < w.cluster.version(); v++ {
		if w.canOvertake(v) {
			list = append(list, action{fmt.Sprintf("overtake from %d", v), func(w *world) { w.overtake(v) }})
		}
	}
	if !w.cluster.absent {
		if w.unnoticed > 0 {
			return list // otherwise the core could not notice the restore
		}
		list = append(list, action{"remove resource", func(w *world) { w.vanish() }})
	} else {
		list = append(list, action{"return resource", func(w *world) { w.cluster.absent = false }})
	}
	return list
}

// canDrift reports whether bodies can change without a write. Every collection must be in step or closed, so that only a
// verification, or a watch that repeats an event in doubt, can find the change.
func (w *world) canDrift() bool {
	for _, c := range w.core.collections {
		if c.Phase != InStep && c.Phase != Closed {
			return false
		}
	}
	return w.unnoticed == 0 && len(w.suspended) == 0 && !w.cluster.absent && len(w.cluster.at(w.cluster.version())) > 0
}

// drift changes all bodies without a write and without a watch event.
func (w *world) drift() {
	w.cluster.defaults++
	w.cluster.floor = w.cluster.version()
	for id := range w.core.collections {
		w.drifted[id] = true
	}
	for _, r := range w.readers {
		if r.sides != nil {
			r.sides.old = true
		}
	}
}

// rewrite brings the cluster back to an earlier resourceVersion, and writes other resources until the cluster is ahead of
// all that was seen. The cluster's resourceVersion does not prove such a restore. Only an object does.
func (w *world) rewrite(version int) {
	next := w.cluster.version() + 1
	w.restore(version)
	w.unnoticed--
	for w.cluster.version() < next {
		w.cluster.history = append(w.cluster.history, write{})
	}
	w.cluster.compacted, w.cluster.floor = next, next
}

// canOvertake reports whether a restore to a version can be noticed although later writes pass what was seen: everything is committed, and the
// restore undoes a write to an object that is in an inventory. Nobody can notice that only deletions are undone.
func (w *world) canOvertake(version int) bool {
	if w.unnoticed > 0 || w.cluster.absent || !w.core.Idle() || len(w.suspended) > 0 || len(w.store.intents) > 0 {
		return false
	}
	known := false
	for id, c := range w.core.collections {
		if c.Phase == Closed {
			continue
		}
		if c.Phase != InStep || number(c.Position) != w.cluster.version() {
			return false
		}
		for slot, o := range w.store.objects {
			known = known || slot.Collection == id && number(o.Version) > version-1
		}
	}
	for _, change := range w.cluster.history[version:] {
		for _, t := range change.changed {
			if t == nil {
				return false
			}
		}
	}
	return known
}

// overtake brings the cluster back to an earlier resourceVersion, and writes other resources until it is ahead of all that was seen. A watch from
// the position goes on as if nothing had happened.
func (w *world) overtake(version int) {
	next := w.cluster.version() + 1
	w.restore(version)
	w.unnoticed--
	for w.cluster.version() < next {
		w.cluster.history = append(w.cluster.history, write{})
	}
	w.cluster.floor = next
}

// vanish removes the resource: first its objects, then its definition.
func (w *world) vanish() {
	all := map[string]*thing{}
	for name := range w.cluster.at(w.cluster.version()) {
		all[name] = nil
	}
	if len(all) > 0 {
		w.cluster.write(all)
	}
	w.cluster.history = append(w.cluster.history, write{}) // the removal of the definition
	w.cluster.absent, w.cluster.absentAt = true, w.cluster.version()
	w.cluster.compacted = w.cluster.version()
	w.readers = map[string]*reader{}
}

// restore brings the cluster back to an earlier resourceVersion, as from a backup.
func (w *world) restore(version int) {
	w.cluster.history = slices.Clip(w.cluster.history[:version])
	w.cluster.compacted = version
	w.cluster.absent = w.cluster.absent && version >= w.cluster.absentAt
	w.cluster.epoch++
	w.unnoticed++
	w.readers = map[string]*reader{}
	w.reader.restored(version)
}

// crash restarts the program with a configuration, after the bus has received the first n items of the batch in flight.
func (w *world) crash(n, config int) {
	if n > 0 {
		w.bus(n)
		if w.mode == journal {
			for i := range n {
				w.store.fold(&w.flying.Items[i])
			}
		}
	}
	w.config = config
	w.start()
	if w.mode == intents {
		w.reader.crashed = true
	}
}

// refuse lets the bus refuse the route of an item, so that the item's collection is dropped. The bus has the items before
// that item, unless the batch is a transaction.
func (w *world) refuse(i int) {
	id := w.flying.Items[i].Collection
	if w.mode == intents {
		w.store.before(w.flying)
	}
	if w.mode != transaction {
		w.bus(i)
		for n := range i {
			if w.mode == journal {
				w.store.fold(&w.flying.Items[n])
			}
		}
		w.core.Published(i)
	}
	w.core.Drop(id)
	delete(w.readers, id)
	delete(w.resyncs, id)
	w.flying = w.core.Sealed()
	if w.mode == intents {
		w.reader.crashed = true // the bus may receive items a second time
	}
}

func (w *world) resume(id string) {
	delete(w.suspended, id)
	before := len(w.core.current.items)
	w.core.Restore(id, w.store.state(), 0)
	w.look(before)
	w.configure()
}

func (w *world) seal() {
	w.flying = w.core.Seal()
	for _, c := range w.flying.Changes {
		if was := w.store.objects[c.Slot]; was != nil && c.Object != nil && was.Status == Published && was.At == was.Version {
			now := *c.Object
			if now.Judged = was.Judged; now == *was {
				w.fail("repeated: the inventory entry of %s is written again without a change", c.Key)
			}
		}
	}
}

func (w *world) bus(n int) {
	for i := range n {
		w.consume(&w.flying.Items[i])
	}
}

func (w *world) commit() {
	w.store.commit(w.flying)
	if len(w.flying.Epochs) > 0 && w.noticed == w.cluster.epoch {
		w.unnoticed = 0
	}
	w.flying = nil
	w.core.Committed()
	w.follow()
}

func (w *world) deliver() {
	if w.mode == intents {
		w.store.before(w.flying)
	}
	w.bus(len(w.flying.Items))
	w.commit()
}

// readable reports whether the next step of a collection's reader has an effect.
func (w *world) readable(id string) bool {
	c := w.core.collections[id]
	if w.core.Pending() >= batchItems {
		return false
	}
	if c.Phase == Ending {
		keys, done := w.core.Forgettable(id, 1)
		return len(keys) > 0 || done
	}
	if c.Phase == Leaving {
		return w.settled(id)
	}
	want, r := w.core.Reading(id), w.readers[id]
	if want.Stop {
		return false
	}
	if w.cluster.absent {
		return c.Phase != Absent
	}
	if c.Phase == InStep && (c.Resync || c.SamplesDue()) {
		return true
	}
	if r == nil || r.number != want.Number || r.listing || !r.begun {
		return true
	}
	_, ok := w.frame(id, r)
	return ok || r.resume < w.cluster.version()
}

// beside reports whether a list beside the watch has something to read.
func (w *world) beside(r *reader, want Read) bool {
	return want.Side != 0 && !w.cluster.absent && w.core.Pending() < batchItems &&
		r != nil && r.number == want.Number && r.begun && !r.listing && (r.sides == nil || r.sides.version >= 0)
}

// streams reports whether a streamed list that reconciles can go on to another version. The API server sends what happens
// during such a list before it says that the list is complete.
func (w *world) streams(id string) bool {
	r, c := w.readers[id], w.core.collections[id]
	return r != nil && r.listing && r.version >= 0 && len(r.listed) == 0 && !w.cluster.absent && w.core.Pending() < batchItems &&
		r.number == w.core.Reading(id).Number && c.list != nil && !c.list.ended && w.cluster.version() > r.version
}

// stream passes on the events of the next version within a list.
func (w *world) stream(id string, r *reader) {
	c := w.core.collections[id]
	r.version++
	for _, f := range w.cluster.frames(w.reads[id].selection, r.version-1) {
		if f.at == r.version && w.readers[id] == r && c.list != nil {
			w.step(&Input{Kind: Sighted, Collection: id, Read: r.number, Sighting: w.frameSighting(c, List, f)})
		}
	}
}

// reset resets every collection in the store, and restarts the program.
func (w *world) reset() {
	for id, r := range w.store.records {
		if r.Phase != New && r.Phase != Ending && r.Phase != Closed && r.Incarnation > 0 {
			w.resets[id] = r.Incarnation
		}
	}
	w.store.reset()
	w.crash(0, w.config)
}

func (w *world) resync(id string) {
	if c := w.core.collections[id]; !c.Resync || c.broken != c.Run { // otherwise the resync that broke off goes on in its run
		w.resyncs[id] = c.Run
	}
	w.step(&Input{Kind: Demand, Collection: id})
}

// confirm makes a periodic synced event due. A collection must emit it, unless a resync or samples are due.
func (w *world) confirm(id string) {
	before, due := w.core.Pending(), w.core.collections[id].Resync || w.core.collections[id].SamplesDue()
	w.step(&Input{Kind: Confirm, Collection: id})
	if due == (w.core.Pending() > before) {
		w.fail("confirmed: %s emits %d events, want some exactly if no resync and no samples are due; some are: %t", id, w.core.Pending()-before, due)
	}
}

// verify begins a verification.
func (w *world) verify(id string) {
	w.step(&Input{Kind: SideBegun, Collection: id})
	if r := w.readers[id]; r != nil {
		r.sides = nil
	}
}

// settled reports whether every wanted collection has synced, or is absent.
func (w *world) settled(string) bool {
	for id := range w.configs[w.config] {
		if !w.core.Settled(id) {
			return false
		}
	}
	return true
}

// read does the next step of a collection's reader.
func (w *world) read(id string) {
	c := w.core.collections[id]
	switch c.Phase {
	case Ending:
		if keys, done := w.core.Forgettable(id, 1); done {
			w.step(&Input{Kind: Forgot, Collection: id})
		} else {
			w.step(&Input{Kind: Forget, Collection: id, Key: keys[0]})
		}
		return
	case Leaving:
		w.step(&Input{Kind: Release, Collection: id})
		return
	}
	want := w.core.Reading(id)
	r := w.readers[id]
	if r == nil || r.number != want.Number {
		r = &reader{number: want.Number}
		w.readers[id] = r
	}
	switch {
	case !r.begun:
		w.open(id, r, want)
	case r.listing:
		w.list(id, r)
	case c.Phase == InStep && (c.Resync || c.SamplesDue()):
		w.step(&Input{Kind: SideBegun, Collection: id})
		r.sides = nil
	default:
		w.watch(id, r)
	}
}

// open begins a read, with a list or a watch.
func (w *world) open(id string, r *reader, want Read) {
	r.begun = true
	from := number(want.From)
	seen := number(want.Seen)
	in := &Input{Kind: ListBegun, Collection: id, Read: r.number, Reason: "expired"}
	switch {
	case w.cluster.absent:
		in.Absent, in.Reason = true, event.ReasonGone
		r.version = -1
		r.listing = true
	case w.cluster.version() < seen:
		in.NewEpoch, in.Reason = true, event.ReasonHistory
		w.noticed = w.cluster.epoch
		w.begin(id, r)
	case want.From == "" || from < w.cluster.compacted:
		w.begin(id, r)
	default:
		r.resume, r.last = from, from
		w.step(&Input{Kind: Reconnected, Collection: id, Read: r.number})
		return
	}
	w.step(in)
	if in.Absent && w.core.collections[id].list == nil {
		delete(w.readers, id) // the collection needs no list, because nothing was published
	}
}

func (w *world) begin(id string, r *reader) {
	r.listing, r.version = true, w.cluster.version()
	r.names, r.listed = w.selected(id)
}

func (w *world) selected(id string) (names []string, list []*thing) {
	now := w.cluster.at(w.cluster.version())
	for _, name := range sorted(now) {
		if selects(w.reads[id].selection, now[name]) {
			names, list = append(names, name), append(list, now[name])
		}
	}
	return names, list
}

// list does the next step of a list.
func (w *world) list(id string, r *reader) {
	c := w.core.collections[id]
	switch {
	case len(r.listed) > 0:
		name, t := r.names[0], r.listed[0]
		r.names, r.listed = r.names[1:], r.listed[1:]
		w.step(&Input{Kind: Sighted, Collection: id, Read: r.number, Sighting: w.sighting(c, List, name, t)})
	case c.list == nil:
	case !c.list.ended:
		version := ""
		if r.version >= 0 {
			version = rv(r.version)
		}
		w.step(&Input{Kind: ListEnded, Collection: id, Read: r.number, Version: version})
	default:
		missing := w.core.Missing(id, 1)
		if len(missing) == 0 {
			w.skip(c)
			w.step(&Input{Kind: ListDone, Collection: id})
			r.listing, r.resume, r.last = false, r.version, r.version
			if r.version < 0 {
				delete(w.readers, id)
			}
			return
		}
		key := missing[0].Key
		s := &Sighting{Form: Lacking, Origin: List, Key: key, Version: rv(max(r.version, 0)), Fates: w.fates(id, key)}
		w.step(&Input{Kind: ListLacks, Collection: id, Key: key, Sighting: s})
	}
}

// fates returns a function that asks the cluster whether an object that a list with a selector lacks was deleted or has
// left the selection.
func (w *world) fates(id, key string) func(uid string) Fate {
	if w.reads[id].selection == "" {
		return nil
	}
	now := w.cluster.at(w.cluster.version())[key]
	return func(uid string) Fate {
		if now != nil && strconv.Itoa(now.uid) == uid {
			return Left
		}
		return Gone
	}
}

func (w *world) sighting(c *Collection, from Origin, name string, t *thing) *Sighting {
	p := c.Properties
	s := &Sighting{
		Form: Seen, Origin: from, Key: name, UID: strconv.Itoa(t.uid), Version: rv(t.at), Digest: digestOf(w.body(t)), Body: w.body(t),
		DeadLetter: w.unfit(t), Significant: digestOf(w.seen(p, t)),
	}
	if p.Filter != "" {
		preparedOf(s).passes = func(event.Type) bool { return w.passes(p, t) }
	}
	if p.Filter == ignoring {
		preparedOf(s).minor = func(known *Object) bool { return known.Significant == s.Significant }
	}
	return s
}

// body returns the body of an object with the present defaults.
func (w *world) body(t *thing) int { return t.body + 1000*w.cluster.defaults }

// frame returns the next event of a reader's watch.
func (w *world) frame(id string, r *reader) (frame, bool) {
	if r.next > 0 { // more frames of the same version
		n := 0
		for _, f := range w.cluster.frames(w.reads[id].selection, r.last-1) {
			if f.at != r.last {
				break
			}
			if n++; n > r.next {
				return f, true
			}
		}
	}
	list := w.cluster.frames(w.reads[id].selection, r.last)
	if len(list) == 0 {
		return frame{}, false
	}
	return list[0], true
}

// watch passes on the next frame, or a bookmark if there is none.
func (w *world) watch(id string, r *reader) {
	c := w.core.collections[id]
	f, ok := w.frame(id, r)
	if !ok {
		r.last, r.next = w.cluster.version(), 0
		r.resume = r.last
		w.step(&Input{Kind: Bookmark, Collection: id, Read: r.number, Resume: rv(r.resume)})
		return
	}
	if f.at > r.last {
		r.resume, r.last, r.next = r.last, f.at, 0
	}
	r.next++
	w.step(&Input{Kind: Sighted, Collection: id, Read: r.number, Sighting: w.frameSighting(c, Watch, f), Resume: rv(r.resume)})
}

func (w *world) frameSighting(c *Collection, from Origin, f frame) *Sighting {
	if !f.ended {
		return w.sighting(c, from, f.name, f.now)
	}
	s := &Sighting{Form: Ended, Origin: from, Key: f.name, Version: rv(f.at), UID: strconv.Itoa(f.was.uid)}
	if f.left {
		s.Fate = Left
	}
	return s
}

// side does the next step of a list beside the watch.
func (w *world) side(id string, r *reader, want Read) {
	c := w.core.collections[id]
	if r.sides == nil {
		r.sides = &sideReader{version: w.cluster.version(), old: !w.core.Idle()}
		r.sides.names, r.sides.listed = w.selected(id)
		return
	}
	s := r.sides
	if len(s.listed) > 0 {
		name, t := s.names[0], s.listed[0]
		s.names, s.listed = s.names[1:], s.listed[1:]
		w.step(&Input{Kind: Sighted, Collection: id, Side: want.Side, Sighting: w.sighting(c, Resync, name, t)})
		return
	}
	verified := c.Phase == Verifying && !s.old
	w.step(&Input{Kind: SideEnded, Collection: id, Side: want.Side, Version: rv(s.version)})
	s.version = -1
	if verified && c.side == nil && c.Phase == InStep {
		delete(w.drifted, id)
	}
}

// sample reads the samples of a collection: the states at their positions, unless these are compacted.
func (w *world) sample(id string, want Read) {
	last := 0
	for _, x := range want.Samples {
		c, version := w.core.collections[id], number(x.Position)
		if version < w.cluster.compacted {
			version = w.cluster.version()
		}
		last = max(last, version)
		s := &Sighting{Form: Lacking, Origin: Resync, Key: x.Key, Version: rv(version)}
		if t := w.cluster.at(version)[x.Key]; t != nil && selects(w.reads[id].selection, t) {
			s = w.sighting(c, Resync, x.Key, t)
		}
		w.step(&Input{Kind: Sighted, Collection: id, Side: want.Side, Sighting: s, Version: rv(version)})
	}
	w.step(&Input{Kind: SideEnded, Collection: id, Side: want.Side, Version: rv(last)})
}

// step passes an input to the core, and checks the result.
func (w *world) step(in *Input) {
	before, watched := len(w.core.current.items), false
	if c := w.core.collections[in.Collection]; c != nil {
		watched = c.Phase.watching()
	}
	w.core.Step(in)
	w.follow()
	w.look(before)
	c := w.core.collections[in.Collection]
	if open := slices.Contains(w.core.Open(), in.Collection); open != (c.Phase != Closed) {
		w.fail("open: %s is %s, and it is %t that it is open", in.Collection, c.Phase, open)
	}
	switch now := w.core.epochOf(c.Properties.Storage); {
	case c.Phase == Listing && c.Epoch != now:
		w.fail("history: %s lists in epoch %d, want epoch %d of its storage", in.Collection, c.Epoch, now)
	case watched && in.Resume != "" && c.Position != in.Resume:
		w.fail("position: the position of %s is %s, want %s, from which a watch may start", in.Collection, c.Position, in.Resume)
	case in.Kind == SideBroken && (c.Phase != InStep || c.side != nil):
		w.fail("side: the phase of %s is %s after its list beside the watch failed, want %s without a list", in.Collection, c.Phase, InStep)
	}
}

// useless passes inputs to the core that have no effect in the phases of the collections, or belong to a read that is
// over. The state must stay as it is.
func (w *world) useless() {
	before := w.hash()
	for _, id := range sorted(w.core.collections) {
		c := w.core.collections[id]
		for k := range inputs {
			in := &Input{Kind: k, Collection: id, Read: c.read, Reason: "expired", Version: "99", Resume: "99", Properties: c.Properties}
			in.Key, in.Sighting = "a", &Sighting{Form: Seen, Origin: Watch, Key: "a", UID: "99", Version: "99", Digest: digestOf(99), Body: 99}
			switch {
			case !slices.Contains(effects[c.Phase], k):
			case k == ListEnded && c.list == nil, k == ListDone && !c.list.comparing(), k == Sighted && c.Phase == Listing:
			case k == ListLacks && (!c.list.comparing() || c.list.cursor >= "a"):
			case k == SideEnded || k == SideBroken:
				in.Side = c.read + 1000
			case k == ListBegun || k == Sighted || k == ListEnded || k == Bookmark:
				in.Read += 1000
			case k == Confirm && c.Resync:
			default:
				continue
			}
			was := c.Phase
			w.core.Step(in)
			if w.hash() != before {
				w.fail("useless: the input %s changes a collection in phase %s, want no change", k, was)
				return
			}
		}
	}
}

// look checks what the core has emitted, from item n of the filling batch on.
func (w *world) look(n int) {
	for i := n; i < len(w.core.current.items); i++ {
		w.emitted(&w.core.current.items[i])
		if w.logs {
			w.log = append(w.log, w.core.current.items[i])
		}
	}
}

// rv returns the resourceVersion of a version of the history. It adds 1, because no resourceVersion is 0. number is the
// inverse; number("") is -1.
func rv(version int) string { return strconv.Itoa(version + 1) }

func number(rv string) int {
	n, _ := strconv.Atoi(rv)
	return n - 1
}
