package campaign

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// entriesVerdict judges what one sink has published of the resource that entries share. It knows what the API server acknowledged and
// when the configuration was edited; what it asks of a collection is in contract.go. Its rules:
//
//	copy       at each synced, the copy is what the collection selects at that resourceVersion
//	union      in the end, the copies together are what the entries select on the API server
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

// ended reports whether a deletion has a reason: the object was gone, the collection did not select it, or the configuration had
// no entry for it.
func (r *entriesReader) ended(v view, o *gadget, m *bus.Message) bool {
	if o == nil {
		return r.truth.former != nil && r.truth.former[m.UID()] != nil // undone by a restore
	}
	s, exists, known := o.at(number(m.RV()))
	if !exists || !known || !v.selects(s) {
		return true
	}
	if _, some := filtersOf(v, r.editions, timeOf(m)); some && !s.shown {
		return true
	}
	return slices.ContainsFunc(r.editions, func(e edition) bool { return !e.at.After(timeOf(m)) && !e.selects(s) })
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

// copied: the copy is what the collection selects, object by object, at the version of the synced or of what came later.
func (v *entriesVerdict) copied(s *syncState) {
	var best []string
	for i, world := range v.worlds(s.synced) {
		problems := v.differences(s, world)
		if i == 0 || len(problems) < len(best) {
			best = problems
		}
	}
	if len(best) > 0 {
		v.wrong("copy", "%d objects differ at %s: %s", len(best), s.synced, strings.Join(best[:min(len(best), 3)], "; "))
	}
}

func (v *entriesVerdict) differences(s *syncState, world map[string]*gadget) (problems []string) {
	collection := s.synced.Attributes["collection"]
	what := viewOf(collection)
	all, some := filtersOf(what, v.editions, timeOf(s.synced))
	for uid, o := range world {
		rv := number(s.synced.RV())
		if known := s.seen[uid]; known != nil && known.last.Epoch() == s.synced.Epoch() {
			rv = max(rv, number(known.last.RV()))
		}
		state, exists, known := o.at(rv)
		if !known {
			continue
		}
		selected := exists && what.selects(state)
		held := s.held[uid]
		mine := held != nil && (inherited || held.Attributes["collection"] == collection)
		switch {
		case selected && (state.shown || !some) && !mine:
			problems = append(problems, fmt.Sprintf("missing: %s", o))
		case selected && mine && number(held.RV()) != state.rv && (state.shown || !some):
			problems = append(problems, fmt.Sprintf("stale, at %s: %s", held.RV(), o))
		case held != nil && held.Attributes["collection"] == collection && (!selected || !state.shown && !all):
			problems = append(problems, fmt.Sprintf("held at %s: %s", held.RV(), o))
		}
	}
	for uid, held := range s.held {
		if world[uid] == nil && held.Attributes["collection"] == collection {
			problems = append(problems, "of another history: "+held.String())
		}
	}
	slices.Sort(problems)
	return problems
}

// union: the copies together are what the last edition selects of what exists.
func (v *entriesVerdict) union() (problems []string) {
	kept := map[string]*bus.Message{}
	for _, part := range partitions(v.pair, v.messages) {
		r := newReplica()
		for _, m := range part {
			r.apply(m)
		}
		for uid, m := range r.keptUp() {
			kept[uid] = m
		}
	}
	last, missing, stale, ghosts := v.editions[len(v.editions)-1], []string{}, []string{}, []string{}
	for uid, o := range v.truth.objects {
		state, held := o.states[len(o.states)-1], kept[uid]
		selected := !o.deleted && last.selects(state)
		switch {
		case selected && held == nil:
			missing = append(missing, o.String())
		case selected && number(held.RV()) != state.rv:
			stale = append(stale, fmt.Sprintf("at %s: %s", held.RV(), o))
		case !selected && held != nil:
			ghosts = append(ghosts, fmt.Sprintf("at %s: %s", held.RV(), o))
		}
	}
	for uid, held := range kept {
		if v.truth.objects[uid] == nil {
			ghosts = append(ghosts, held.String())
		}
	}
	for _, one := range []struct {
		what string
		all  []string
	}{{"selected and not in the copies", missing}, {"in the copies at another version", stale}, {"in the copies and not selected", ghosts}} {
		if n := len(one.all); n > 0 {
			slices.Sort(one.all)
			problems = append(problems, fmt.Sprintf("[union] %s: %d objects are %s: %s", v.sink, n, one.what, strings.Join(one.all[:min(n, 3)], "; ")))
		}
	}
	return problems
}
