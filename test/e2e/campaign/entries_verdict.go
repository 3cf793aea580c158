package campaign

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
)

// entriesVerdict judges what one sink has published about the resource that several entries share. It has what the API server acknowledged,
// and when the configuration was edited. Its rules:
//
//	copy       At each synced event, the copy of the collection has the objects that its entry selects at that resourceVersion, by one
//	           edition of the configuration. All synced events of one edit must fit the same edition. Each kind of difference is a rule
//	           of its own: see [differences].
//	complete   Whenever the union is complete by the consumer's rules, it has the objects that one edition selects. All such unions of
//	           one plan must fit the same edition.
//	union      At the end, the union is complete and has the objects that the last edition selects. No other collection is open.
//	living     An object that is published as deleted does not exist, or is not selected. The event says which of the two is the case.
//	invented   An object had each state that is published of it, and was selected in that state.
//	once       With exactly-once delivery, an id comes once. An id never comes with different contents.
//	order      In a collection, the runs and versions of an object ascend, and a deletion ends its last publication.
//	cause      The reason of a gap fits a fault that began before it: see [causes].
//	declared   Each gap is closed.
//
// The rule "blocked" is judged while it happens: see [nemesis.blockSecond].
type entriesVerdict struct {
	sink      string
	pair      Pair
	truth     *gadgetTruth
	resource  string
	editions  []edition // the last one is what is configured in the end
	happened  []happening
	messages  []bus.Message // of the resource
	lost      bool          // the bus may have missed events: neither copies nor gaps can be judged
	killed    bool          // a bridge was killed: unless delivery is exactly once, the bus may have events that the checkpoint does not have
	unsettled bool          // the bridge had not published everything at the end

	problems []string
	gaps     int
	edits    map[string][]edition // by collection and edit, and by plan: the editions that all copies so far fit
}

// happening is a fault, or an edit of the configuration.
type happening struct {
	name string
	at   time.Time // when it began
}

func (v *entriesVerdict) wrong(rule, format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf("[%s] %s: ", rule, v.sink)+fmt.Sprintf(format, args...))
}

func (v *entriesVerdict) judge() []string {
	v.edits = map[string][]edition{}
	parts := partitions(v.pair, v.messages)
	states := map[string]*syncState{} // by the id of the synced event
	var order []string
	for _, part := range parts {
		reader := &entriesReader{
			entriesVerdict: v, copy: &check.Copy{}, first: map[string]*bus.Message{}, last: map[string]*bus.Message{},
			latest: map[string]uint64{}, met: map[string]*bus.Message{}, opened: map[string]*bus.Message{},
		}
		for _, m := range part {
			reader.take(m)
			if m.Is("synced") && reader.first[m.ID()] == m {
				if states[m.ID()] == nil {
					states[m.ID()] = &syncState{synced: m, held: map[string]*bus.Message{}, latest: map[string]uint64{}}
					order = append(order, m.ID())
				}
				states[m.ID()].add(reader)
			}
		}
		reader.end()
	}
	if v.lost {
		return v.problems
	}
	for _, id := range order {
		if s := states[id]; s.parts == len(parts) { // else a partition ends before its synced event
			v.copied(s)
		}
	}
	for seed := range uint64(3) {
		v.read(parts, seed)
	}
	if !v.unsettled {
		v.problems = append(v.problems, v.union()...)
	}
	return v.problems
}

// partitions returns the messages by partition. A reader has an order only within each of them.
func partitions(p Pair, messages []bus.Message) [][]*bus.Message {
	var names []string
	parts := map[string][]*bus.Message{}
	for i := range messages {
		m, name := &messages[i], ""
		if p.Bus == "kafka" {
			name = fmt.Sprintf("%s/%d", m.Route, m.Partition)
		}
		if parts[name] == nil {
			names = append(names, name)
		}
		parts[name] = append(parts[name], m)
	}
	var all [][]*bus.Message
	for _, name := range names {
		all = append(all, parts[name])
	}
	return all
}

// entriesReader reads one partition or stream.
type entriesReader struct {
	*entriesVerdict
	copy   *check.Copy
	first  map[string]*bus.Message // by id
	last   map[string]*bus.Message // by collection and UID
	latest map[string]uint64       // by collection and UID: the version of the last change that was published
	met    map[string]*bus.Message // by collection that is not closed: its last gap
	opened map[string]*bus.Message // by collection: the open gap
}

// inDoubt reports whether a killed bridge may not have known that it had written a gap with reset: it writes another one then.
func (r *entriesReader) inDoubt(former, m *bus.Message) bool {
	return !r.pair.exact() && former.Data.Reset && slices.ContainsFunc(r.happened, func(h happening) bool {
		return strings.Contains(h.name, "kill") && !h.at.After(timeOf(m))
	})
}

func (r *entriesReader) take(m *bus.Message) {
	if m.OfAudit() { // see [auditVerdict]
		return
	}
	collection := m.Collection()
	if first := r.first[m.ID()]; first != nil {
		if r.pair.exact() {
			r.wrong("once", "the event was published twice: %s; the first time: %s", m, first)
		}
		if m.UID() != first.UID() || m.Type() != first.Type() || m.RV() != first.RV() || m.Run() != first.Run() || !m.Is("deleted") && string(m.Data.Object) != string(first.Data.Object) {
			r.wrong("once", "another event with the same id: %s; first: %s", m, first)
		}
		r.copy.Apply(m)
		return
	}
	r.first[m.ID()] = m
	if !m.OfCollection() {
		r.object(m)
		r.copy.Apply(m)
		return
	}
	switch {
	case m.Is("gap"):
		r.gaps++
		if !caused(m, r.met[collection] == nil || r.inDoubt(r.met[collection], m), r.happened) && !r.lost {
			r.wrong("cause", "no fault or edit before the gap, at %s, has its reason: %s", timeOf(m).Format(time.TimeOnly+".000"), m)
		}
		r.met[collection], r.opened[collection] = m, m
	case m.Is("synced"):
		delete(r.opened, collection)
	case m.Is("closed"):
		delete(r.met, collection)
		delete(r.opened, collection)
	}
	r.copy.Apply(m)
	if m.Is("gap") && m.Data.Reset || m.Is("closed") {
		for key := range r.last {
			if strings.HasPrefix(key, collection+" ") {
				delete(r.last, key)
				delete(r.latest, key)
			}
		}
	}
}

// end reports gaps that were never closed.
func (r *entriesReader) end() {
	for collection, gap := range r.opened {
		if !r.unsettled && !r.lost {
			r.wrong("declared", "%s: at the end, a gap is open, want a synced event after it: %s", collection, gap)
		}
	}
}

// worlds returns the objects of the histories to which an event may belong.
func (v *entriesVerdict) worlds(m *bus.Message) []map[string]*gadget {
	switch {
	case v.truth.former == nil || m.Epoch() > 1:
		return []map[string]*gadget{v.truth.objects}
	case timeOf(m).Before(v.truth.back):
		return []map[string]*gadget{v.truth.former}
	}
	return []map[string]*gadget{v.truth.former, v.truth.objects}
}

func (r *entriesReader) object(m *bus.Message) {
	fits := false
	for _, world := range r.worlds(m) {
		o := world[m.UID()]
		if m.Is("deleted") {
			fits = fits || r.ended(o, m)
		} else {
			fits = fits || o != nil && r.was(o, m)
		}
	}
	if !fits {
		rule := "invented"
		if m.Is("deleted") {
			rule = "living"
		}
		r.wrong(rule, "no state of the object allows the event %s; the object: %s", m, r.known(m))
	}
	key := m.Collection() + " " + m.UID()
	r.order(r.last[key], m)
	r.last[key], r.latest[key] = m, laterThan(m)
}

// order checks an event against the previous event of its object.
func (r *entriesReader) order(last, m *bus.Message) {
	if last == nil || r.lost {
		return
	}
	run, version := m.Run(), number(m.RV())
	// Some events may be missing between the two: lost with a bridge that was killed, or left out by types.
	missing := r.killed && !r.pair.exact() || partial(r.editions, m.Collection(), timeOf(m))
	later := run > last.Run() || run == last.Run() && version > number(last.RV())
	switch same := run == last.Run() && version == number(last.RV()); {
	case m.Is("deleted") && last.Is("deleted") && !(missing && later):
		r.wrong("order", "a second deletion of the object: %s follows %s", m, last)
	case m.Is("deleted") && !same && !(missing && later):
		r.wrong("order", "the deletion %s does not end the last publication, %s", m, last)
	case !m.Is("deleted") && !later:
		r.wrong("order", "neither run nor resourceVersion increases: %s follows %s", m, last)
	}
}

// laterThan returns the version of an event's change. For a deletion without a known version, it returns the highest possible version.
func laterThan(m *bus.Message) uint64 {
	if version := versionOf(m); version > 0 {
		return version
	}
	return math.MaxUint64
}

func (v *entriesVerdict) known(m *bus.Message) string {
	for _, world := range v.worlds(m) {
		if o := world[m.UID()]; o != nil {
			return o.String()
		}
	}
	return "an object that never existed"
}

// was reports whether the object had the state that the event has, and the collection selected that state.
func (r *entriesReader) was(o *gadget, m *bus.Message) bool {
	s, ok := o.find(number(m.RV()))
	if !ok || m.Name() != s.namespace+"/"+s.name {
		return false
	}
	selected := slices.ContainsFunc(until(r.editions, m.Collection(), timeOf(m)), func(e edition) bool { return e.holds(m.Collection(), s) })
	body := m.Body()
	metadata, _ := body["metadata"].(map[string]any)
	labelled, _ := metadata["labels"].(map[string]any)
	spec, whole := body["spec"].(map[string]any)
	return selected && labelled[gadgetLabel] == s.value && (!whole || spec["stamp"] == s.stamp)
}

// ended reports whether a deletion is right. By the time of the event, the object did not exist or the collection did not select it; the
// reason of the event says which.
func (r *entriesReader) ended(o *gadget, m *bus.Message) bool {
	if o == nil {
		return r.truth.former != nil && r.truth.former[m.UID()] != nil && m.Data.Reason != "left" // undone by a restore
	}
	known := timeOf(m)
	if m.Attributes["origin"] == "reconcile" && m.At.After(known) { // that is the time of the list, and the server was asked later what became of the object
		known = m.At
	}
	gone := o.deleted && !known.Before(o.asked)
	left := slices.ContainsFunc(o.states, func(s gadgetState) bool {
		if s.rv < number(m.RV()) && r.truth.former == nil || s.asked.After(timeOf(m)) {
			return false // the object had this state before the publication that the event ends, or after the event
		}
		return slices.ContainsFunc(until(r.editions, m.Collection(), timeOf(m)), func(e edition) bool { return !e.holds(m.Collection(), s) })
	})
	switch m.Data.Reason {
	case "left":
		return left
	case "unknown":
		return left || gone
	}
	return gone
}

// syncState is a consumer's copy of a collection, from all partitions, at a synced event.
type syncState struct {
	synced *bus.Message
	parts  int
	held   map[string]*bus.Message // by UID
	latest map[string]uint64       // by UID
}

func (s *syncState) add(r *entriesReader) {
	s.parts++
	maps.Copy(s.held, r.copy.Held(s.synced.Collection()))
	for key, version := range r.latest {
		if collection, uid, _ := strings.Cut(key, " "); collection == s.synced.Collection() {
			s.latest[uid] = max(s.latest[uid], version)
		}
	}
}

// copied checks that the copy equals the collection's selection, object by object, at the version of the synced event.
func (v *entriesVerdict) copied(s *syncState) {
	m := s.synced
	if partial(v.editions, m.Collection(), timeOf(m)) {
		return
	}
	key := m.Collection() + " " + m.Attributes["edit"]
	v.fits("copy", key, m, until(v.editions, m.Collection(), timeOf(m)), func(e edition, world map[string]*gadget) differences {
		return v.differences(s.held, s.latest, number(m.RV()), number(m.RV()), m, world, func(state gadgetState) bool { return e.holds(m.Collection(), state) })
	})
}

// fits checks that a copy has the objects that an edition selects. All copies of a key must fit the same edition. If none fits, fits reports
// the differences from the edition that fits best.
func (v *entriesVerdict) fits(rule, key string, m *bus.Message, editions []edition, differ func(edition, map[string]*gadget) differences) {
	if known, ok := v.edits[key]; ok {
		editions = known
	}
	var best differences
	var fit []edition
	for _, e := range editions {
		for _, world := range v.worlds(m) {
			found := differ(e, world)
			if best == nil || found.count() < best.count() {
				best = found
			}
			if found.count() == 0 {
				fit = append(fit, e)
				break
			}
		}
	}
	if len(fit) > 0 {
		v.edits[key] = fit
		return
	}
	if best == nil {
		v.wrong(rule+" unknown", "no edition of the configuration has this collection at the time of %s", m)
	}
	for _, kind := range slices.Sorted(maps.Keys(best)) {
		v.wrong(rule+" "+kind, "%d objects differ at %s: %s", len(best[kind]), m, some(best[kind]))
	}
}

// differences has the objects in which a copy differs from the API server, by the kind of difference.
type differences map[string][]string

const (
	missing = "missing" // selected, but not held
	stale   = "stale"   // held at another version
	held    = "held"    // held, but not selected
)

func (d differences) add(kind, format string, args ...any) {
	d[kind] = append(d[kind], fmt.Sprintf(format, args...))
}

func (d differences) count() (n int) {
	for _, all := range d {
		n += len(all)
	}
	return n
}

// some returns the first three texts in sorted order.
func some(all []string) string {
	slices.Sort(all)
	return strings.Join(all[:min(len(all), 3)], "; ")
}

// differences compares a copy with a world at the version rv. It leaves out an object of which a later change was read, or which has changed
// between rv and until: the object is judged at the next synced event. A synced event without a version means that the resource does not
// exist.
func (v *entriesVerdict) differences(copied map[string]*bus.Message, latest map[string]uint64, rv, until uint64, m *bus.Message, world map[string]*gadget, selects func(gadgetState) bool) differences {
	found := differences{}
	for uid, o := range world {
		kept := copied[uid]
		if rv == 0 {
			if kept != nil && o.deleted && !timeOf(m).Before(o.asked) {
				found.add(held, "the copy has rv=%s of %s", kept.RV(), o)
			}
			continue
		}
		state, exists, known := o.at(rv)
		if now, still, sure := o.at(until); !known || latest[uid] > rv || !sure || now.rv != state.rv || still != exists {
			continue // it has changed meanwhile: a collection may have read that
		}
		switch selected := exists && selects(state); {
		case selected && kept == nil:
			found.add(missing, "%s", o)
		case selected && number(kept.RV()) != state.rv:
			found.add(stale, "the copy has rv=%s of %s", kept.RV(), o)
		case !selected && kept != nil:
			found.add(held, "the copy has rv=%s of %s", kept.RV(), o)
		}
	}
	for uid, kept := range copied {
		if world[uid] == nil {
			found.add(held, "the copy has an object of another history: %s", kept)
		}
	}
	return found
}

// read reads the partitions as a consumer may, in an order that the seed chooses, and judges each time that the union is complete.
func (v *entriesVerdict) read(parts [][]*bus.Message, seed uint64) {
	r := newChance(seed, 7)
	left := slices.Clone(parts)
	u := newUnionReader(v.pair, v.resource)
	for len(left) > 0 {
		i := r.IntN(len(left))
		if seed == 0 {
			i = 0 // one partition after the other
		}
		m := left[i][0]
		if left[i] = left[i][1:]; len(left[i]) == 0 {
			left = slices.Delete(left, i, i+1)
		}
		if err := u.apply(m); err != nil {
			v.wrong("complete", "pkg/consumer returns an error for %s: %v", m, err)
			return
		}
		if m.Is("synced") || m.Is("closed") {
			v.completed(u, m)
		}
	}
}

// completed judges the union if it is complete.
func (v *entriesVerdict) completed(u *unionReader, m *bus.Message) {
	at, ok := u.state.Complete(m.Attributes["cluster"], v.resource)
	if !ok || partial(v.editions, "", timeOf(m)) || int(at.Epoch) < u.epoch { // the last one: a collection is still in the earlier history
		return
	}
	union := u.copy.Union(v.resource)
	if shown := u.shown(); !maps.Equal(shown, versions(union)) {
		v.wrong("complete", "pkg/consumer has %d objects, want the %d objects and versions by the rules of docs/events.md: %s", len(shown), len(union), m)
	}
	if number(at.ResourceVersion) == 0 && u.exists() { // a collection has no version, so that the union has none
		return
	}
	v.fits("complete", fmt.Sprint("plan ", u.plan), m, until(v.editions, "", timeOf(m)), func(e edition, world map[string]*gadget) differences {
		return v.differences(union, u.latest, number(at.ResourceVersion), u.highest, m, world, e.selects)
	})
}

// unionReader keeps two copies of a resource: state is that of pkg/consumer, which also says when the union is complete, and copy follows
// the rules of the contract alone.
type unionReader struct {
	pair     Pair
	resource string
	state    consumer.State
	copy     check.Copy
	latest   map[string]uint64 // by UID, in any collection
	highest  uint64            // the highest version that was read
	epoch    int
	plan     uint64
}

func newUnionReader(p Pair, resource string) *unionReader {
	return &unionReader{pair: p, resource: resource, latest: map[string]uint64{}}
}

func (u *unionReader) apply(m *bus.Message) error {
	message := consumer.Message{Topic: "stream", Value: m.Raw}
	if u.pair.Bus == "kafka" {
		message.Topic, message.Partition, message.Partitions = m.Route, m.Partition, 3
	}
	_, err := u.state.Apply(message)
	if m.OfAudit() {
		return err
	}
	u.copy.Apply(m)
	u.plan = max(u.plan, m.Number("plan"))
	if m.Epoch() > u.epoch {
		u.epoch = m.Epoch()
		u.highest = 0
		clear(u.latest)
	}
	u.highest = max(u.highest, versionOf(m))
	if !m.OfCollection() {
		u.latest[m.UID()] = max(u.latest[m.UID()], laterThan(m))
	}
	return err
}

// exists reports whether a collection is open in which the resource existed at the last synced event.
func (u *unionReader) exists() bool {
	return slices.ContainsFunc(u.state.Collections(), func(c consumer.Collection) bool {
		id := event.ParseCollection(c.ID)
		return id.ResourceID() == u.resource && c.Phase != consumer.Closed && number(c.AsOf.ResourceVersion) != 0
	})
}

// shown returns the versions of the objects that pkg/consumer shows, by UID.
func (u *unionReader) shown() map[string]string {
	shown := map[string]string{}
	for name, e := range u.state.All() {
		if name.Resource == u.resource {
			shown[e.UID] = e.ResourceVersion
		}
	}
	return shown
}

func versions(union map[string]*bus.Message) map[string]string {
	all := map[string]string{}
	for uid, m := range union {
		all[uid] = m.RV()
	}
	return all
}

// union checks the end: the union is complete, it has the objects that exist and that the last edition selects, and the open collections
// are those of the last edition.
func (v *entriesVerdict) union() (problems []string) {
	u := newUnionReader(v.pair, v.resource)
	for i := range v.messages {
		_ = u.apply(&v.messages[i])
	}
	last, found := v.editions[len(v.editions)-1], differences{}
	kept := u.copy.Union(v.resource)
	for uid, o := range v.truth.objects {
		state, has := o.states[len(o.states)-1], kept[uid]
		selected := !o.deleted && last.selects(state)
		switch {
		case selected && has == nil:
			found.add(missing, "%s", o)
		case selected && number(has.RV()) != state.rv:
			found.add(stale, "the union has rv=%s of %s", has.RV(), o)
		case !selected && has != nil:
			found.add(held, "the union has rv=%s of %s", has.RV(), o)
		}
	}
	for uid, has := range kept {
		if v.truth.objects[uid] == nil {
			found.add(held, "the union has an object that never existed: %s", has)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		problems = append(problems, fmt.Sprintf("[union %s] %s: %d objects differ at the end: %s", kind, v.sink, len(found[kind]), some(found[kind])))
	}
	if open, want := slices.Sorted(maps.Keys(u.copy.Open())), last.collections(v.resource); !slices.Equal(open, want) {
		problems = append(problems, fmt.Sprintf("[union collections] %s: the open collections are %v, want %v", v.sink, open, want))
	}
	if len(v.messages) > 0 {
		if _, ok := u.state.Complete(v.messages[0].Attributes["cluster"], v.resource); !ok {
			problems = append(problems, fmt.Sprintf("[union complete] %s: the union is not complete: %+v", v.sink, u.state.Collections()))
		}
	}
	return problems
}
