package campaign

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// entriesVerdict judges what one sink has published of the resource that entries share. It knows what the API server acknowledged and
// when the configuration was edited; what it asks of a collection is in contract.go. Its rules:
//
//	copy       at each synced, the copy is what the collection selects at that resourceVersion. Each kind of difference is a rule of its
//	           own, for example "copy missing": see [differences]
//	union      in the end, the copies together are what the entries select on the API server: the same kinds
//	living     what is published as deleted is gone, or was not selected
//	invented   what is published of an object was so, and was selected
//	once       an id comes once, where delivery is exactly once, and never with another content
//	order      an object's versions in one collection ascend
//	cause      a gap has a reason that has happened
//	declared   a gap ends
//
// The rule "blocked" is judged while it happens: see [nemesis.blockSecond].
type entriesVerdict struct {
	sink      string
	pair      Pair
	truth     *gadgetTruth
	editions  []edition // the last one is what is configured in the end
	happened  []happening
	messages  []bus.Message // of the resource
	lost      bool          // the bus may have missed events: neither copies nor gaps can be judged
	unsettled bool          // the bridge is not in step

	problems []string
	gaps     int
}

// happening is something that was done to the bridge, or to what is around it.
type happening struct {
	name string
	at   time.Time // when it began
}

func (v *entriesVerdict) wrong(rule, format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf("[%s] %s: ", rule, v.sink)+fmt.Sprintf(format, args...))
}

func (v *entriesVerdict) judge() []string {
	parts := partitions(v.pair, v.messages)
	states := map[string]*syncState{} // by the id of a synced
	var order []string
	for _, part := range parts {
		reader := &entriesReader{entriesVerdict: v, replica: newReplica(), first: map[string]*bus.Message{}, last: map[string]*bus.Message{}, met: map[string]bool{}}
		for _, m := range part {
			reader.take(m)
			if m.Is("synced") && reader.first[m.ID()] == m {
				if states[m.ID()] == nil {
					states[m.ID()] = &syncState{synced: m, held: map[string]*bus.Message{}, seen: map[string]*memory{}}
					order = append(order, m.ID())
				}
				states[m.ID()].add(reader.replica)
			}
		}
		reader.end()
	}
	if v.lost || v.partial() {
		return v.problems
	}
	for _, id := range order {
		if s := states[id]; s.parts == len(parts) { // one that a partition does not have was cut off there
			v.copied(s)
		}
	}
	if !v.unsettled {
		v.problems = append(v.problems, v.union()...)
	}
	return v.problems
}

// partial: an entry left out types of events for a while, and nothing made up for it.
func (v *entriesVerdict) partial() bool {
	return !typesAreHealed && slices.ContainsFunc(v.editions, func(e edition) bool {
		return slices.ContainsFunc(e.entries, func(one entry) bool { return one.types != nil })
	})
}

// partitions are the messages that a reader has in order.
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
	replica *replica
	first   map[string]*bus.Message // by id
	last    map[string]*bus.Message // by collection and UID
	met     map[string]bool         // collections that had a gap, and are not closed
}

func (r *entriesReader) take(m *bus.Message) {
	if first := r.first[m.ID()]; first != nil {
		if r.pair.exact() {
			r.wrong("once", "%s; first: %s", m, first)
		}
		if m.UID() != first.UID() || m.Type() != first.Type() || !m.Is("deleted") && (m.RV() != first.RV() || string(m.Data.Object) != string(first.Data.Object)) {
			r.wrong("once", "another event with the same id: %s; first: %s", m, first)
		}
	} else {
		r.first[m.ID()] = m
	}
	collection := m.Attributes["collection"]
	if !m.OfCollection() {
		r.object(m)
		r.replica.apply(m)
		return
	}
	switch {
	case m.Is("gap"):
		r.gaps++
		if !caused(m, !r.met[collection], r.happened) && !r.lost {
			r.wrong("cause", "nothing that happened explains it: %s", m)
		}
		r.met[collection] = true
	case m.Is("closed"):
		delete(r.met, collection)
	}
	r.replica.apply(m)
	if m.Is("gap") && m.Data.Reset || m.Is("closed") {
		for key := range r.last {
			if strings.HasPrefix(key, collection+" ") {
				delete(r.last, key)
			}
		}
	}
}

// end judges what is left open.
func (r *entriesReader) end() {
	for collection, gap := range r.replica.opened {
		if !r.unsettled && !r.lost {
			r.wrong("declared", "%s: a gap has no end: %s", collection, gap)
		}
	}
}

// worlds are the objects of the histories that an event may speak of.
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
	v, fits := viewOf(m.Attributes["collection"]), false
	for _, world := range r.worlds(m) {
		o := world[m.UID()]
		if m.Is("deleted") {
			fits = fits || r.ended(v, o, m)
		} else {
			fits = fits || o != nil && r.was(v, o, m)
		}
	}
	if !fits {
		rule := map[bool]string{true: "living", false: "invented"}[m.Is("deleted")]
		r.wrong(rule, "%s; it is %s", m, r.known(m))
	}
	if m.Is("deleted") {
		return
	}
	key := m.Attributes["collection"] + " " + m.UID()
	if last := r.last[key]; last != nil && r.pair.exact() && !r.lost && m.Epoch() == last.Epoch() && number(m.RV()) < number(last.RV()) {
		r.wrong("order", "%s follows %s", m, last)
	}
	r.last[key] = m
}

func (v *entriesVerdict) known(m *bus.Message) string {
	for _, world := range v.worlds(m) {
		if o := world[m.UID()]; o != nil {
			return o.String()
		}
	}
	return "an object that never was"
}

// was reports whether the object had this state, and the collection selected it.
func (r *entriesReader) was(v view, o *gadget, m *bus.Message) bool {
	s, ok := o.find(number(m.RV()))
	if !ok || !v.selects(s) || m.Name() != s.namespace+"/"+s.name {
		return false
	}
	if all, _ := filtersOf(v, r.editions, timeOf(m)); !s.shown && !all {
		return false
	}
	body := m.Body()
	metadata, _ := body["metadata"].(map[string]any)
	labelled, _ := metadata["labels"].(map[string]any)
	spec, whole := body["spec"].(map[string]any)
	return labelled[gadgetLabel] == s.value && (!whole || spec["stamp"] == s.stamp)
}

// ended reports whether a deletion has a reason: by the time of the event the object was gone, the collection did not select it, or the
// configuration had no entry for it.
func (r *entriesReader) ended(v view, o *gadget, m *bus.Message) bool {
	if o == nil {
		return r.truth.former != nil && r.truth.former[m.UID()] != nil // undone by a restore
	}
	if o.deleted && !timeOf(m).Before(o.asked) {
		return true // at whatever version: one that ends with its collection has its own
	}
	s, exists, known := o.at(number(m.RV()))
	if !exists || !known {
		return true
	}
	_, filtered := filtersOf(v, r.editions, timeOf(m))
	return slices.ContainsFunc(o.states, func(one gadgetState) bool {
		if one.rv < s.rv || one.rv > s.rv && one.asked.After(timeOf(m)) {
			return false // it was so before, or later than the event
		}
		return !v.selects(one) || filtered && !one.shown ||
			slices.ContainsFunc(r.editions, func(e edition) bool { return !e.at.After(timeOf(m)) && !e.selects(one) })
	})
}

// syncState is a consumer's copy when it reads a synced, of all partitions.
type syncState struct {
	synced *bus.Message
	parts  int
	held   map[string]*bus.Message
	seen   map[string]*memory
}

func (s *syncState) add(r *replica) {
	s.parts++
	for uid, m := range r.held {
		s.held[uid] = m
	}
	for uid, known := range r.seen {
		copied := *known
		s.seen[uid] = &copied
	}
}

// last is the newest event of an object, nil without one.
func (s *syncState) last(uid string) *bus.Message {
	if s.seen[uid] == nil {
		return nil
	}
	return s.seen[uid].last
}

// copied: the copy is what the collection selects, object by object, at the version of the synced or of what came later.
func (v *entriesVerdict) copied(s *syncState) {
	var best differences
	for i, world := range v.worlds(s.synced) {
		found := v.differences(s, world)
		if i == 0 || found.count() < best.count() {
			best = found
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(best)) {
		v.wrong("copy "+kind, "%d objects differ at %s: %s", len(best[kind]), s.synced, some(best[kind]))
	}
}

// differences are objects of a copy that are not as the API server has them, by how they differ.
type differences map[string][]string

const (
	missing = "missing" // selected, and never published
	taken   = "taken"   // selected, and published as deleted by a collection that does not select it
	ended   = "ended"   // selected, and published as deleted by a collection that selects it
	stale   = "stale"   // held at another version
	held    = "held"    // not selected
)

func (d differences) add(kind, format string, args ...any) {
	d[kind] = append(d[kind], fmt.Sprintf(format, args...))
}

// lacks enters an object that a copy lacks, which was last in a state. last is the newest event of it, nil without one.
func (d differences) lacks(o *gadget, state gadgetState, last *bus.Message) {
	kind := missing
	switch {
	case last == nil:
	case viewOf(last.Attributes["collection"]).selects(state):
		kind = ended
	default:
		kind = taken
	}
	d.add(kind, "%s", o)
}

func (d differences) count() (n int) {
	for _, all := range d {
		n += len(all)
	}
	return n
}

// some are the first three, in a steady order.
func some(all []string) string {
	slices.Sort(all)
	return strings.Join(all[:min(len(all), 3)], "; ")
}

func (v *entriesVerdict) differences(s *syncState, world map[string]*gadget) differences {
	found := differences{}
	collection := s.synced.Attributes["collection"]
	what := viewOf(collection)
	all, filtered := filtersOf(what, v.editions, timeOf(s.synced))
	for uid, o := range world {
		kept := s.held[uid]
		if emptied(s.synced) && o.deleted && !timeOf(s.synced).Before(o.asked) {
			if kept != nil && kept.Attributes["collection"] == collection {
				found.add(held, "at %s: %s", kept.RV(), o)
			}
			continue
		}
		rv, behind, last := number(s.synced.RV()), false, s.last(uid)
		if last != nil && last.Epoch() == s.synced.Epoch() && number(last.RV()) > rv {
			// Another collection is ahead of this one. If it has ended the object, which moved here, this one has not read the move yet.
			rv, behind = number(last.RV()), last.Is("deleted")
		}
		state, exists, known := o.at(rv)
		if !known {
			continue
		}
		selected := exists && what.selects(state)
		mine := kept != nil && (inherited || kept.Attributes["collection"] == collection)
		switch {
		case selected && (state.shown || !filtered) && !mine && !behind:
			found.lacks(o, state, last)
		case selected && mine && number(kept.RV()) != state.rv && (state.shown || !filtered):
			found.add(stale, "at %s: %s", kept.RV(), o)
		case kept != nil && kept.Attributes["collection"] == collection && (!selected || !state.shown && !all):
			found.add(held, "at %s: %s", kept.RV(), o)
		}
	}
	for uid, kept := range s.held {
		if world[uid] == nil && kept.Attributes["collection"] == collection {
			found.add(held, "of another history: %s", kept)
		}
	}
	return found
}

// union: the copies together are what the last edition selects of what exists.
func (v *entriesVerdict) union() (problems []string) {
	kept, seen := map[string]*bus.Message{}, map[string]*bus.Message{}
	for _, part := range partitions(v.pair, v.messages) {
		r := newReplica()
		for _, m := range part {
			r.apply(m)
		}
		for uid, m := range r.keptUp() {
			kept[uid] = m
		}
		for uid, known := range r.seen {
			seen[uid] = known.last
		}
	}
	last, found := v.editions[len(v.editions)-1], differences{}
	for uid, o := range v.truth.objects {
		state, has := o.states[len(o.states)-1], kept[uid]
		selected := !o.deleted && last.selects(state)
		switch {
		case selected && has == nil:
			found.lacks(o, state, seen[uid])
		case selected && number(has.RV()) != state.rv:
			found.add(stale, "at %s: %s", has.RV(), o)
		case !selected && has != nil:
			found.add(held, "at %s: %s", has.RV(), o)
		}
	}
	for uid, has := range kept {
		if v.truth.objects[uid] == nil {
			found.add(held, "of an object that never was: %s", has)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		problems = append(problems, fmt.Sprintf("[union %s] %s: %d objects: %s", kind, v.sink, len(found[kind]), some(found[kind])))
	}
	return problems
}
