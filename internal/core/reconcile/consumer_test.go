package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// consumer keeps a copy of each collection by the consumer's rules in docs/events.md.
type consumer struct {
	collections map[string]*copied
	crashed     bool // in mode intents, the program was killed or a route refused a batch: events may be repeated
	back        int  // the lowest version that a restore went back to; -1: there was no restore
}

// copied is a consumer's copy of one collection.
type copied struct {
	run, incarnation, closed uint64
	open                     bool   // a gap is open
	synced                   uint64 // number of synced events in the run
	upTo                     int    // the highest version of a synced event
	route                    string
	settled                  bool              // the collection has synced in this incarnation
	syncedAt                 synced            // the last synced event
	last                     map[string]order  // the last event, by name
	dead                     map[string]order  // the last dead letter, by name
	objects                  map[string]object // by uid
	// table is the copy of a reader of a compacted topic, which keeps the last message of each key and removes a key at
	// a deletion or a null value. It has the incarnation of the message, by route and name.
	table map[string]uint64
}

// synced describes the list of a synced event.
type synced struct {
	properties Properties
	route      string
	epoch      uint64
	version    int
}

// order has the fields by which consumers compare the events of one name. The fields below the empty line are not part
// of the comparison: they describe the event.
type order struct {
	run     uint64
	version string
	deleted bool

	epoch uint64
	uid   string
	body  int
}

func (a order) before(b order) bool {
	switch {
	case a.run != b.run:
		return a.run < b.run
	case a.version != b.version:
		return event.Newer(b.version, a.version)
	}
	return !a.deleted && b.deleted
}

// object is an object of a copy.
type object struct {
	name, version string
	body          int
	run           uint64
}

func newConsumer() *consumer { return &consumer{collections: map[string]*copied{}, back: -1} }

func (c *consumer) clone() *consumer {
	d := *c
	d.collections = map[string]*copied{}
	for id, x := range c.collections {
		y := *x
		y.last, y.dead, y.objects, y.table = maps.Clone(x.last), maps.Clone(x.dead), maps.Clone(x.objects), maps.Clone(x.table)
		d.collections[id] = &y
	}
	return &d
}

func (c *consumer) restored(version int) {
	if c.back < 0 || version < c.back {
		c.back = version
	}
}

func (w *world) fail(format string, args ...any) {
	if w.failed == "" {
		w.failed = fmt.Sprintf(format, args...)
	}
}

func runKey(collection string, run uint64) string {
	return collection + "/" + strconv.FormatUint(run, 10)
}

// emitted checks an item when the core emits it, because the cluster may change before the item is on the bus.
func (w *world) emitted(i *Item) {
	c := w.core.collections[i.Collection]
	if i.Epoch > 1+uint64(w.cluster.epoch) {
		w.fail("history: an event has epoch %d, want at most %d, because the cluster was restored %d times", i.Epoch, 1+w.cluster.epoch, w.cluster.epoch)
	}
	if e := i.Event; e != nil {
		switch e.Type {
		case event.Gap:
			w.runs[runKey(i.Collection, i.Run)] = c.Properties
			w.reasons[runKey(i.Collection, i.Run)] = e.Reason
		case event.Synced:
			if e.Reason != event.ReasonResync && e.Nth == 1 {
				w.expected[runKey(i.Collection, i.Run)] = w.promised(c, e.Version)
			}
		}
		return
	}
	if e := i.Object; e.Type == event.Deleted {
		w.ended(c, e)
	}
}

// skip records which bodies are in the first list of an incarnation, if the configuration says that this list is not
// published.
func (w *world) skip(c *Collection) {
	if !c.Properties.Skip || c.SyncedEpoch != 0 {
		return
	}
	found := map[int]bool{}
	for _, t := range w.cluster.at(max(number(c.list.version), 0)) {
		found[w.body(t)] = w.passes(c.Properties, t)
	}
	w.skipped[c.ID+"/"+strconv.FormatUint(c.Incarnation, 10)] = found
}

// unfit is the expected body of an object that a copy may have with any body, or not at all. There are three kinds of such
// objects:
//   - The bus rejects the object.
//   - The first list skipped the object, and an event in doubt, a restore or another selection may have published it.
//   - After a crash, and where `modified` is not published, the bus rejected the object at an earlier version.
const unfit = -1

// promised returns what a copy of a collection must have at a resourceVersion: bodies by name.
func (w *world) promised(c *Collection, version string) map[string]int {
	bodies := map[string]int{}
	if c.Phase == Absent {
		return bodies
	}
	for name, t := range w.cluster.at(number(version)) {
		skipped := c.Properties.Skip && w.skipped[c.ID+"/"+strconv.FormatUint(c.Incarnation, 10)][w.body(t)]
		if !w.passes(c.Properties, t) || skipped && w.mode != intents && w.cluster.epoch == 0 && !w.reselected(c) {
			continue
		}
		bodies[name] = w.seen(c.Properties, t)
		if w.unfit(t) || skipped || !w.exact() && !c.Properties.Types.Has(event.Modified) && w.wasUnfit(t) {
			bodies[name] = unfit
		}
	}
	return bodies
}

// reselected reports whether the collection had another selection in its incarnation. An object that left the collection
// then and is back is published, although the first list skipped it.
func (w *world) reselected(c *Collection) bool {
	for run := c.Incarnation; run <= c.Run; run++ {
		if p, begun := w.runs[runKey(c.ID, run)]; begun && p.Selection != c.Properties.Selection {
			return true
		}
	}
	return false
}

// unfit reports whether the bus rejects the object.
func (w *world) unfit(t *thing) bool { return t.large || w.dead[w.body(t)] }

// everUnfit reports whether the bus rejects the object with any of the bodies that changes of defaults have given it.
func (w *world) everUnfit(t *thing) bool {
	for d := range w.cluster.defaults + 1 {
		if w.dead[t.body+1000*d] {
			return true
		}
	}
	return t.large
}

// wasUnfit reports whether the bus rejects any state of the object so far. If an event of the object was in doubt when
// such a state became a dead letter, the object counts as published, and its next change is a `modified`.
func (w *world) wasUnfit(t *thing) bool {
	return slices.ContainsFunc(w.cluster.history, func(x write) bool {
		for _, was := range x.changed {
			if was != nil && was.uid == t.uid && w.everUnfit(was) {
				return true
			}
		}
		return false
	})
}

// passes reports whether a collection publishes an object.
func (w *world) passes(p Properties, t *thing) bool {
	return selects(p.Selection, t) && (p.Filter == ignoring || selects(p.Filter, t))
}

// ignoring is a filter that ignores minor writes.
const ignoring = "ignore"

// seen returns the body that a copy must have of an object: that of the last write that the filter does not ignore.
func (w *world) seen(p Properties, t *thing) int {
	if p.Filter == ignoring {
		return t.major + 1000*w.cluster.defaults
	}
	return w.body(t)
}

// agrees compares a copy with what is promised.
func agrees(types event.Types, got, want map[string]int) bool {
	for name := range got {
		if _, ok := want[name]; !ok && types.Has(event.Deleted) {
			return false
		}
	}
	for name, body := range want {
		have, ok := got[name]
		switch {
		case body == unfit, have == body, !ok && !types.Has(event.Added), ok && !types.Has(event.Modified):
		default:
			return false
		}
	}
	return true
}

// ended checks that the object of a deletion does not exist or, if its fate is Left, was outside the selection or the
// filter at some version.
func (w *world) ended(c *Collection, e *ObjectEvent) {
	holds := func(t *thing) bool {
		return t != nil && strconv.Itoa(t.uid) == e.Object.UID
	}
	exists := holds(w.cluster.at(w.cluster.version())[e.Key])
	switch {
	case e.Fate == Gone && exists:
		w.fail("invented: the object with uid %s and name %s is published as deleted, but exists", e.Object.UID, e.Key)
	case e.Fate == Left:
		for v := range w.cluster.version() + 1 {
			if t := w.cluster.at(v)[e.Key]; holds(t) && !w.passes(c.Properties, t) {
				return
			}
		}
		w.fail("invented: the object with uid %s and name %s is published as left, but was always selected", e.Object.UID, e.Key)
	}
}

// consume takes one item from the bus.
func (w *world) consume(i *Item) {
	c := w.reader.collections[i.Collection]
	if c == nil {
		c = &copied{last: map[string]order{}, dead: map[string]order{}, objects: map[string]object{}, table: map[string]uint64{}}
		w.reader.collections[i.Collection] = c
	}
	if w.tabulate(c, i); i.Object != nil && i.Object.Null {
		return
	}
	switch {
	case i.Incarnation == 0:
		w.fail("an event without an incarnation")
	case i.Incarnation < c.incarnation, i.Incarnation <= c.closed:
		w.ignored(i, "its incarnation has ended")
		return
	case i.Incarnation > c.incarnation:
		if c.incarnation > c.closed && c.route != i.Route {
			w.fail("closed: incarnation %d of %s has another route than the previous incarnation, which has no closed event", i.Incarnation, i.Collection)
		}
		if e := i.Event; e == nil || !e.Reset && e.Type != event.Closed {
			w.fail("unsynced: the first event of incarnation %d of %s is not its gap", i.Incarnation, i.Collection)
		}
		*c = copied{incarnation: i.Incarnation, route: i.Route, closed: c.closed, last: map[string]order{}, dead: map[string]order{}, objects: map[string]object{}, table: c.table}
	}
	if i.Object != nil {
		w.consumeObject(c, i)
		return
	}
	switch e := i.Event; e.Type {
	case event.Gap:
		if i.Run < c.run || i.Run == c.run && (w.mode != intents || c.synced > 0) {
			w.ignored(i, "the gap, or a later event of its collection, was published before")
			return
		}
		if e.Reason == "" || c.settled && w.exact() && number(e.From) < c.syncedAt.version && w.reader.back < 0 {
			w.fail("gap: %s has the reason %q and From %s, want a reason and at least %d, the version of the last synced event", describe(i), e.Reason, e.From, c.syncedAt.version)
		}
		if e.Reset && e.From != "" {
			w.fail("gap: %s is a reset with From %s, want no From", describe(i), e.From)
		}
		if e.Reason != event.ReasonResync && !e.Reset {
			w.completeTo(c, i)
		}
		if w.runs[runKey(i.Collection, i.Run)] != c.syncedAt.properties {
			c.syncedAt.epoch = 0 // the last list had other properties, so it does not prove which objects did not exist
		}
		c.open, c.run, c.synced = true, i.Run, 0
		if e.Reason == event.ReasonResync {
			c.open = false
		}
	case event.Synced:
		switch {
		case i.Run < c.run, e.Nth <= c.synced:
			w.ignored(i, "the synced event, or a later event of its collection, was published before")
			return
		case i.Run > c.run:
			w.fail("unsynced: a synced event of run %d, but the gap of the run is not on the bus", i.Run)
		}
		if reason := w.reasons[runKey(i.Collection, i.Run)]; e.Nth != c.synced+1 && w.exact() || e.Reason != reason && e.Reason != event.ReasonPeriodic {
			w.fail("unsynced: %s has number %d, want %d, and the reason periodic or that of the gap, %s", describe(i), e.Nth, c.synced+1, reason)
		}
		c.open, c.synced, c.upTo = false, e.Nth, max(c.upTo, number(e.Version))
		c.settled, c.syncedAt = true, synced{w.runs[runKey(i.Collection, i.Run)], i.Route, i.Epoch, number(e.Version)}
		w.check(i, c)
		w.resynced(i, c)
	case event.Closed:
		c.closed, c.open = i.Incarnation, false
		clear(c.objects)
		clear(c.last)
	}
}

// tabulate updates the table of a collection. A null value must come behind the closed event, and must
// not remove what a later incarnation has published.
func (w *world) tabulate(c *copied, i *Item) {
	e := i.Object
	if e == nil || e.DeadLetter || !w.compacts() {
		return
	}
	key := i.Route + "/" + e.Key
	switch {
	case e.Type != event.Deleted:
		c.table[key] = i.Incarnation
		return
	case e.Null && i.Incarnation > c.closed:
		w.fail("null: %s comes before the closed event of incarnation %d", describe(i), i.Incarnation)
	case e.Null && c.table[key] > i.Incarnation:
		w.fail("null: %s removes an object of incarnation %d", describe(i), c.table[key])
	}
	delete(c.table, key)
}

// compacts reports whether the topic of a world is compacted.
func (w *world) compacts() bool {
	return slices.ContainsFunc(w.configs, func(c map[string]Properties) bool { return c["x"].Tombstones })
}

// tidy checks that a compacted topic has only what the present incarnation has published.
func (w *world) tidy(id string, have *copied) {
	for key, incarnation := range have.table {
		if incarnation <= max(have.closed, have.incarnation-1) {
			w.fail("null: the topic still has key %s of incarnation %d of %s, which has ended", key, incarnation, id)
		}
	}
}

// ignored fails if consumers ignore an event although no event may be repeated.
func (w *world) ignored(i *Item, why string) {
	if w.exact() {
		w.fail("repeated: %s: %s", describe(i), why)
	}
}

func (w *world) consumeObject(c *copied, i *Item) {
	e := i.Object
	o := order{run: i.Run, version: e.Version, deleted: e.Type == event.Deleted, epoch: i.Epoch, uid: e.Object.UID}
	if o.deleted {
		o.run, o.version = e.Object.Run, e.Object.At
	}
	if e.DeadLetter {
		if last, ok := c.dead[e.Key]; ok && !last.before(o) {
			w.ignored(i, "the dead letter, or a later one of its name, was published before")
		}
		listing := c.open || c.synced == 0
		if c.refused(e) && w.exact() && !listing {
			w.fail("repeated: %s: the object has not changed since its last dead letter", describe(i))
		}
		c.dead[e.Key] = o
		return
	}
	if !o.deleted {
		o.body = e.Body.(int)
	}
	last, ok := c.last[e.Key]
	if ok && !last.before(o) {
		w.ignored(i, "it is not later than the last event of its name")
		if !o.deleted && !o.before(last) && last.uid == o.uid && last.body%1000 != o.body%1000 { // a default may have changed
			w.fail("repeated: %s has another body than the last event of the same version", describe(i))
		}
		return
	}
	if ok && !o.deleted && !last.deleted && last.epoch == o.epoch && event.Newer(last.version, o.version) && w.exact() {
		w.fail("history: %s has a lower resourceVersion than the last event of its name, which is at %s of the same epoch", describe(i), last.version)
	}
	if c.run == 0 {
		w.fail("an object event before the first gap of its collection")
	}
	if i.Run > c.run {
		w.fail("unsynced: an object event of run %d, but the gap of the run is not on the bus", i.Run)
	}
	c.last[e.Key] = o
	before, had := c.objects[e.Object.UID]
	if o.deleted {
		if !had && w.exact() && w.runs[runKey(i.Collection, i.Run)].Types.Has(event.Added) {
			w.fail("invented: a deletion of uid %s, which the copy does not have", e.Object.UID)
		}
		w.complete(c, i, before, had, e.Version)
		delete(c.objects, e.Object.UID)
		return
	}
	body := e.Body.(int)
	w.typed(c, i, had, had && before.body == body)
	w.complete(c, i, before, had, e.Version)
	c.objects[e.Object.UID] = object{e.Key, e.Version, body, i.Run}
	for uid, x := range c.objects {
		switch {
		case x.name != e.Key || uid == e.Object.UID:
		case !w.runs[runKey(i.Collection, i.Run)].Types.Has(event.Deleted):
			delete(c.objects, uid) // a name has at most one object
		default:
			w.fail("the copy has two objects named %s: %s and %s", e.Key, uid, e.Object.UID)
		}
	}
}

// exact reports whether no event may be repeated.
func (w *world) exact() bool { return w.mode != intents || !w.reader.crashed }

// typed checks the type of an event about an object that exists.
func (w *world) typed(c *copied, i *Item, had, repeats bool) {
	p, e := w.runs[runKey(i.Collection, i.Run)], i.Object
	resync := w.reasons[runKey(i.Collection, i.Run)] == event.ReasonResync
	switch {
	case e.Type == event.Added && !c.settled, e.Type == event.Present && c.settled && !resync && w.exact():
		w.fail("type: %s has the wrong type: the first list of the incarnation is complete: %t", describe(i), c.settled)
	case !w.exact():
	case repeats && !resync && p.Types.Has(event.Deleted):
		w.fail("repeated: %s: the object has not changed since its last event", describe(i))
	case (e.Type == event.Added || e.Type == event.Present && !resync) && had && p.Types.Has(event.Deleted):
		w.fail("type: %s has the wrong type: the copy has the object", describe(i))
	case e.Type == event.Modified && !had && p.Types.Has(event.Added):
		w.fail("type: %s has the wrong type: the copy does not have the object", describe(i))
	case e.Type == event.Added && !p.Skip && i.Epoch == c.syncedAt.epoch && p == c.syncedAt.properties && number(e.Version) <= c.syncedAt.version && !c.refused(e):
		w.fail("history: %s is in the same epoch as the list at %d, which did not have the object", describe(i), c.syncedAt.version)
	}
}

// refused reports whether the event was a dead letter before.
func (c *copied) refused(e *ObjectEvent) bool {
	dead, ok := c.dead[e.Key]
	return ok && dead.version == e.Version && dead.uid == e.Object.UID
}

// complete checks that, outside gaps, no state of an object between the copy and the event is missing.
func (w *world) complete(c *copied, i *Item, before object, had bool, version string) {
	p := w.runs[runKey(i.Collection, i.Run)]
	if c.open || !had || w.reader.back >= 0 || before.version == version || p.Types != 0 {
		return
	}
	from := max(number(before.version), c.upTo)
	to := number(version)
	for v := from + 1; v < to; v++ {
		t, changed := w.cluster.history[v-1].changed[i.Object.Key]
		if !changed || t == nil || w.everUnfit(t) || p.Filter == ignoring && t.minor() {
			continue
		}
		if strconv.Itoa(t.uid) == i.Object.Object.UID && w.passes(p, t) {
			w.fail("incomplete: resourceVersion %d of object %s was not published", v, i.Object.Key)
		}
	}
}

// completeTo checks that no state is missing up to the resourceVersion in From of a gap.
func (w *world) completeTo(c *copied, i *Item) {
	p, from := w.runs[runKey(i.Collection, c.run)], number(i.Event.From)
	// If the resource was absent, the last synced event has no version, and the gap is from the position before that.
	nothing := c.syncedAt.version == number("")
	if c.open || !c.settled || nothing || i.Event.From == "" || w.reader.back >= 0 || w.cluster.epoch > 0 || p.Types != 0 || p.Skip {
		return
	}
	for name, t := range w.cluster.at(from) {
		if t.at <= c.upTo || !w.passes(p, t) || w.everUnfit(t) || p.Filter == ignoring && t.minor() {
			continue
		}
		uid := strconv.Itoa(t.uid)
		o, had := c.objects[uid]
		last := c.last[name]
		// The copy has received its deletion, and perhaps a later object of the name.
		ended := number(last.version) >= t.at && (last.deleted || !had && last.uid != uid)
		if !ended && (!had || number(o.version) < t.at) {
			w.fail("incomplete: at %s, resourceVersion %d of object %s was not published", describe(i), t.at, name)
		}
	}
}

// check compares the copy with what a synced event promises.
func (w *world) check(i *Item, c *copied) {
	want, ok := w.expected[runKey(i.Collection, i.Run)]
	if !ok || i.Event.Nth > 1 || i.Event.Reason == event.ReasonResync {
		return
	}
	if p, got := w.runs[runKey(i.Collection, i.Run)], w.bodies(w.runs[runKey(i.Collection, i.Run)], c); !agrees(p.Types, got, want) {
		w.fail("synced: the copy of %s has %v, want %v as in the cluster", i.Collection, got, want)
	}
}

// resynced checks that a resync has published every object.
func (w *world) resynced(i *Item, c *copied) {
	p := w.runs[runKey(i.Collection, i.Run)]
	if i.Event.Reason != event.ReasonResync || !w.exact() || p.Types != 0 {
		return
	}
	for uid, o := range c.objects {
		_, refused := c.dead[o.name]
		if o.run != i.Run && !refused {
			w.fail("resync: the object with uid %s and name %s was not published in run %d", uid, o.name, i.Run)
		}
	}
}

// done checks that the copy has synced with the configured properties, and that each reset and resync that was demanded
// has happened.
func (w *world) done(id string, c *Collection, have *copied) {
	p, want := have.syncedAt.properties, w.configs[w.config][id]
	p.Skip, want.Skip = false, false
	began := w.runs[runKey(id, have.incarnation)]
	switch {
	case c.Phase != InStep:
	case p != want || have.syncedAt.route != want.Route:
		w.fail("drained: %s synced with the properties %v on route %q, want %v", id, p, have.syncedAt.route, want)
	case began.Shape != want.Shape || began.Types != want.Types:
		w.fail("drained: the incarnation of %s began with the properties %v, want %v", id, began, want)
	case c.Resync:
		w.fail("drained: a resync of %s is still due", id)
	}
	if reset, ok := w.resets[id]; ok && max(have.incarnation, have.closed+1) <= reset {
		w.fail("drained: %s has incarnation %d, want one later than the reset at %d", id, have.incarnation, reset)
	}
	if run, ok := w.resyncs[id]; ok && c.Phase == InStep && have.run <= run {
		w.fail("drained: a resync of %s was requested, and the last run is %d, want one later than %d", id, have.run, run)
	}
}

func (w *world) bodies(p Properties, c *copied) map[string]int {
	got := map[string]int{}
	for _, o := range c.objects {
		got[o.name] = o.body
		if major, ok := w.majors[o.body%1000]; ok && p.Filter == ignoring {
			got[o.name] += major - o.body%1000
		}
	}
	return got
}

// drained checks the copies, the core and the store when nothing is left to do.
func (w *world) drained() {
	wanted := w.configs[w.config]
	for _, id := range sorted(w.core.collections) {
		c, have := w.core.collections[id], w.reader.collections[id]
		if _, ok := wanted[id]; !ok {
			if c.Phase != Closed {
				w.fail("drained: %s is not configured, and its phase is %s, want %s", id, c.Phase, Closed)
			}
			if have != nil && have.incarnation > have.closed {
				w.fail("drained: the bus has no closed event of the last incarnation of %s", id)
			}
			if have != nil {
				w.tidy(id, have)
			}
			continue
		}
		want := w.promised(c, rv(w.cluster.version()))
		switch {
		case c.Phase != InStep && c.Phase != Absent:
			w.fail("drained: the phase of %s is %s, want %s or %s", id, c.Phase, InStep, Absent)
		}
		if have == nil {
			have = &copied{}
		}
		w.done(id, c, have)
		w.tidy(id, have)
		switch got := w.bodies(wanted[id], have); {
		case have.open:
			w.fail("unsynced: %s has an open gap at the end", id)
		case !agrees(wanted[id].Types, got, want):
			w.fail("drained: the copy of %s has %v, want %v as in the cluster", id, got, want)
		}
	}
	if len(w.store.drafts) > 0 || len(w.store.intents) > 0 {
		w.fail("drained: the store has %d drafts and %d intents, want none", len(w.store.drafts), len(w.store.intents))
	}
}

func describe(i *Item) string {
	if e := i.Event; e != nil {
		return fmt.Sprintf("%s/%d %s %s at %s", i.Collection, i.Run, e.Type, e.Reason, e.Version)
	}
	e := i.Object
	return fmt.Sprintf("%s/%d %s %s/%s at %s (published %d/%s)", i.Collection, i.Run, e.Type, e.Key, e.Object.UID, e.Version, e.Object.Run, e.Object.At)
}
