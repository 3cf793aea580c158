package model

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The invariants. A problem names the invariant that it breaks.
const (
	atSynced   = "synced"   // at a synced event, the copy of the collection equals its selection at that resourceVersion
	drained    = "drained"  // once nothing hinders the bridge, the copy equals the selection of the configuration
	buffered   = "buffered" // what the disk buffer has when an edit takes effect is published before the gap of the edit
	complete   = "complete" // outside gaps every change is published
	cause      = "cause"    // a gap opens only with a cause
	unsynced   = "unsynced" // a gap is followed by synced, once nothing hinders the bridge
	repeated   = "repeated" // an unchanged object is not published again; with exactly-once no id comes twice
	invented   = "invented" // no object that exists and is selected is published as deleted
	inOrder    = "order"    // an object's states come in order
	sameID     = "same id"  // the same id is the same event
	delayed    = "delayed"  // a fault of a sink or a topic delays no other sink or topic
	endedAlone = "ended"    // the bridge does not end on its own
	readers    = "readers"  // readers of partitions, and readers of a compacted topic, end with the same copy
	typed      = "type"     // added is for objects that are new to consumers, modified and deleted for objects that they have
	reasons    = "reason"   // a deletion says whether the object exists
	bodies     = "body"     // a deletion has the last state of the object, if the bridge can know it
	atRest     = "at rest"  // a bridge that is stopped and started again while nothing is waiting publishes nothing
	settled    = "settled"  // once nothing is waiting, the checkpoint has nothing in doubt
	counts     = "counts"   // the status has as many objects as the inventory, once nothing is waiting
)

// problem is a broken invariant.
type problem struct {
	invariant string
	text      string
}

// judge checks the messages that one sink has written.
type judge struct {
	w        *world
	s        *sinkWorld
	read     int
	copy     *consumerCopy
	first    map[string]*message // by id
	last     map[string]*message // of an object, by uid
	seen     map[string]bool     // published states: uid and resourceVersion
	of       map[string]*collectionState
	effect   []configAt      // configurations that were in effect
	flushed  received        // what is in the disk buffer
	recorded map[string]bool // collections that are read from the disk buffer: see received
	// skipped has the states that `snapshot: skip` left out, by uid and resourceVersion.
	skipped map[string]bool
	// dead are the states that became dead letters, and in which step.
	dead     map[string]int
	crashes  int  // the last step in which a process was killed
	smallest int  // the last step in which the bus had a small limit
	resets   int  // the last step in which everything may be published again
	rested   int  // the last step in which time passed and the bus accepted writes
	outage   int  // the last step in which the bus was stopped or blocked
	refusals int  // the last step in which the bus refused something
	refused  bool // at the last check, the bus was about to refuse something
	// The last restore, and the part that it undid of what collections had seen.
	rollback   rollback
	rolledBack map[string]int
	asked      bool // time has passed since the restore, and the bus worked: every collection has asked the server
	stored     bool // and the new epoch is in the checkpoint: nothing hindered the API server either
}

type configAt struct {
	step     int
	rv       int // of the cluster, in that step
	c        config
	received received // by that step
	flushed  received // and is in the disk buffer
}

// collectionState is the state of a collection according to the messages on the bus.
type collectionState struct {
	gap      *message // the open gap
	lastGap  int      // step of the last gap
	lastList int      // step of the last gap whose list decides what is published
	// gapBefore is the step of the gap before it.
	gapBefore  int
	editGap    int // step of the last gap after an edit, or with reset
	lastReason string
	everGap    bool
	synced     bool // it has synced in this history
	at         int  // complete up to this resourceVersion
	syncedStep int
	by         *selection // of the list before synced; nil: one of several
	history    int        // the history of the cluster in which it synced
	histGap    int        // the history in which the gap opened
	listed     bool       // a first list was completed
	closedAt   int        // number of its last closed event among the messages
	late       bool       // the list may have been completed in the previous history
}

func newJudge(w *world, s *sinkWorld) *judge {
	return &judge{
		w: w, s: s, copy: newCopy(), first: map[string]*message{}, last: map[string]*message{}, seen: map[string]bool{},
		of: map[string]*collectionState{}, recorded: map[string]bool{}, skipped: map[string]bool{}, dead: map[string]int{}, crashes: -1, smallest: -1, resets: -1, refusals: -1,
	}
}

func (j *judge) wrong(invariant, format string, args ...any) {
	j.w.problems = append(j.w.problems, problem{invariant, fmt.Sprintf("step %d, sink %s: ", j.w.step, j.s.name) + fmt.Sprintf(format, args...)})
}

// inEffect records a configuration that a process has received.
func (j *judge) inEffect(c config) {
	j.effect = append(j.effect, configAt{j.w.step, j.w.cluster.now().rv, slices.Clone(c), j.received(), j.flushed})
}

// now is the configuration in effect.
func (j *judge) now() config {
	if len(j.effect) == 0 {
		return nil
	}
	return j.effect[len(j.effect)-1].c
}

// hadRefused reports whether an earlier configuration of an entry had a topic that is refused now.
func (j *judge) hadRefused(e entry) bool {
	return slices.ContainsFunc(j.effect, func(at configAt) bool {
		return slices.ContainsFunc(at.c, func(was entry) bool { return was.x == e.x && j.s.bus.refuses(topic(was.topic)) })
	})
}

// closedLater reports whether a collection that was removed may wait for its topic, which is refused now.
func (j *judge) closedLater() bool {
	return slices.ContainsFunc(j.effect, func(at configAt) bool {
		return slices.ContainsFunc(at.c, func(was entry) bool { return j.s.bus.refuses(topic(was.topic)) })
	})
}

// selections returns the selections that a collection has had in the configurations since a step. An edit may wait for the disk buffer.
func (j *judge) selections(id string, since int) (out []selection) {
	first := 0
	for first+1 < len(j.effect) && j.effect[first+1].step < since {
		first++
	}
	for first > 0 && j.waits(&j.effect[first], id) {
		first--
	}
	for _, e := range j.effect[min(first, len(j.effect)):] {
		for _, en := range e.c {
			for _, s := range en.possible() {
				if collectionID(s) == id && !slices.Contains(out, s) {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// decidedSince returns the first step in which an event that was published in a step may have been decided. The event
// may have waited for the bus while its collection had another selection.
func (j *judge) decidedSince(step int) int {
	return min(step, j.rested)
}

// wanted reports whether the configuration in effect has a collection.
func (j *judge) wanted(id string) bool {
	for _, e := range j.now() {
		for _, s := range e.selections(j.w.cluster) {
			if collectionID(s) == id {
				return true
			}
		}
	}
	return false
}

func stateKey(uid string, rv int) string { return fmt.Sprintf("%s@%d", uid, rv) }

// judgeNew checks the messages that were written since the last call. It is called when everything is idle.
func (j *judge) judgeNew() {
	j.s.bus.mu.Lock()
	for i := j.read; i < len(j.s.bus.messages); i++ {
		j.s.bus.messages[i].Step, j.s.bus.messages[i].Number = j.w.step, i
	}
	fresh := slices.Clone(j.s.bus.messages[j.read:])
	j.s.bus.mu.Unlock()
	j.read += len(fresh)
	if j.s.bus.limit > 0 {
		j.smallest = j.w.step
	}
	refuses := j.s.bus.armed.refuse > 0 || j.s.bus.limit > 0 || len(j.s.bus.refused) > 0
	if refuses || j.refused {
		j.refusals = j.w.step
	}
	j.refused = refuses
	if j.s.bus.stopped || j.s.bus.blocked {
		j.outage = j.w.step
	}
	for i := range fresh {
		m := &fresh[i]
		j.w.trace("%s  %s", j.s.name, m)
		j.message(m)
	}
}

func (j *judge) message(m *message) {
	if first := j.first[m.ID]; first != nil && first.DeadLetter == m.DeadLetter {
		if first.Type != m.Type || first.UID != m.UID || m.short() != "deleted" && first.Version != m.Version {
			j.wrong(sameID, "%s was %s", m, first)
		}
		if !j.s.mayRepeat && !m.DeadLetter { // the record is written again under its id
			j.wrong(repeated, "id twice: %s, first %s", m, first)
		}
		if m.ofCollection() && m.short() != "gap" {
			j.collection(m)
		}
		j.copy.apply(m, whole)
		return
	} else if first == nil {
		j.first[m.ID] = m
	}
	if m.ofCollection() {
		j.collection(m)
		return
	}
	j.object(m)
	j.copy.apply(m, whole)
}

func (j *judge) object(m *message) {
	key := stateKey(m.UID, m.Version)
	j.typed(m)
	if m.DeadLetter {
		j.dead[key] = m.Step
		j.seen[key] = true
		return
	}
	j.seen[key] = true
	last := j.last[m.UID]
	j.last[m.UID] = m
	if m.short() == "deleted" {
		j.reason(m)
		j.lastBody(m)
		j.deletion(m)
		return
	}
	if last == nil || m.short() == "present" || j.of[m.Collection] == nil {
		return
	}
	now, was := version{m.Epoch, m.Version}, version{last.Epoch, last.Version}
	if last.Collection == m.Collection && now.less(was) && last.Step > j.resets && last.short() != "deleted" && !j.rollback.overtaken[m.Collection] {
		j.wrong(inOrder, "%s after %s", m, last)
	}
	if now == was && last.short() != "deleted" && last.Collection == m.Collection && string(last.Data.Object) == string(m.Data.Object) &&
		last.Step > j.resets && last.Number > j.of[m.Collection].closedAt && (!j.s.mayRepeat || j.crashes < last.Step && !j.givenUp(last.Step)) {
		j.wrong(repeated, "unchanged: %s after %s", m, last)
	}
}

// givenUp reports whether a batch may have been given up since a step because the bus refused a record or a topic.
// With at-least-once delivery, the part of it that the bus has may then be written again, as after a crash.
func (j *judge) givenUp(since int) bool { return j.refusals >= since }

// typed checks whether the type of an event fits the copy of consumers. If an event may be written again after a
// crash, or may never arrive, consumers may or may not have the object.
func (j *judge) typed(m *message) {
	plain := !j.s.mayRepeat && !m.DeadLetter && !slices.ContainsFunc(j.selections(m.Collection, 0), func(s selection) bool { return s.entry.types != "" })
	have, there := j.copy.of(m.Collection, m.UID)
	switch {
	case !plain:
	case m.short() == "added" && there && have.collection == m.Collection:
		j.wrong(typed, "%s, which consumers have as of rv %d", m, have.at.rv)
	case (m.short() == "modified" || m.short() == "deleted") && !there:
		j.wrong(typed, "%s, which consumers do not have", m)
	}
}

// reason checks the reason of a deletion.
func (j *judge) reason(m *message) {
	there, gone := false, false // at any time from the deletion on
	for i, h := range j.w.cluster.histories {
		there = there || h.exists(m.UID, h.rv) || h.has(m.Version) && h.exists(m.UID, m.Version)
		gone = gone || !h.exists(m.UID, h.rv) && (i == j.w.cluster.lastHistory() || h.existed(m.UID))
	}
	switch {
	case m.Data.Reason == "" && !gone:
		j.wrong(reasons, "%s, which exists", m)
	case m.Data.Reason == "left" && !there:
		j.wrong(reasons, "%s, which did not exist", m)
	case m.Data.Reason == "unknown" && !j.w.obstructed:
		j.wrong(reasons, "%s, and nothing was in the way of finding out", m)
	}
}

// lastBody checks whether a deletion has the last state of the object, if the bridge could know that state: from the
// watch, or because the server has the state from before the gap.
func (j *judge) lastBody(m *message) {
	if m.Data.BodyKnown == nil || j.w.obstructed || j.smallest >= 0 || j.refusals >= 0 {
		return
	}
	if m.Origin == "watch" {
		j.wrong(bodies, "%s without a body, which the watch had", m)
		return
	}
	state, h := j.of[m.Collection], j.w.cluster.now()
	if state == nil || state.gap == nil || state.gap.Version < j.w.api.forgotten {
		return
	}
	for _, s := range j.selections(m.Collection, j.decidedSince(state.gap.Step)) { // the server is asked with the new selection
		if !h.keeps(m.UID, state.gap.Version, s) {
			return
		}
	}
	j.wrong(bodies, "%s without a body, which the server has as of rv %d", m, state.gap.Version)
}

// deletion checks whether an object was really deleted, or left the selection.
func (j *judge) deletion(m *message) {
	state := j.of[m.Collection]
	if m.Version == 0 || state == nil {
		return
	}
	since := m.Step
	if state.gap != nil {
		since = state.gap.Step
	}
	selections := j.selections(m.Collection, j.decidedSince(since))
	if !j.wanted(m.Collection) || state.gap != nil && state.lastReason == "gone" {
		return // the collection is being closed, or the whole resource is gone: the copies are compared instead
	}
	for _, h := range j.w.cluster.histories { // the bridge may have read the deletion before a restore
		for _, s := range selections {
			if _, there := s.of(h.at(m.Version))[m.UID]; !there && h.has(m.Version) {
				return
			}
		}
	}
	j.wrong(invented, "%s, which exists and is selected", m)
}

func (j *judge) collection(m *message) {
	state := j.of[m.Collection]
	if state == nil {
		state = &collectionState{lastGap: -1, gapBefore: -1, editGap: -1, closedAt: -1}
		j.of[m.Collection] = state
	}
	switch m.short() {
	case "gap":
		j.everyChange(m.Collection, state, m.Version)
		if m.Data.Reason == "selection" || m.Data.Reason == "filter" {
			j.everyFrame(m.Collection, state)
			state.editGap = m.Step
		}
		if m.Data.Reset {
			state.editGap = m.Step
		}
		asked := m.Data.Reason == "resync" && j.w.resyncs > 0
		// The cause may have happened before the last gap was published.
		if state.everGap && state.gap == nil && !asked && !j.w.caused(min(state.gapBefore, j.rested)) {
			j.wrong(cause, "%s, and nothing has happened since step %d", m, state.gapBefore)
		}
		if m.Data.Reason == driftReason && !j.rollback.overtaken[m.Collection] {
			j.wrong(cause, "%s, and nothing was lost", m)
		}
		state.gapBefore = state.lastGap
		if state.gap == nil || m.Data.Reset {
			if state.histGap = j.w.cluster.lastHistory(); j.rested <= j.w.restored {
				state.histGap = 0 // the gap may have been decided before the restore
			}
		}
		if state.gap == nil || m.Data.Reset {
			state.gap = m
		}
		if m.Data.Reason != "resync" {
			state.lastList = m.Step
		}
		if m.Data.Reset || m.Data.Reason == "resync" {
			j.resets = m.Step
		}
		state.lastReason = m.Data.Reason
		state.lastGap, state.everGap, state.synced = m.Step, true, false
		j.copy.apply(m, whole)
	case "synced":
		opened := state.gap
		j.copy.apply(m, whole)
		if opened == nil {
			return
		}
		state.gap = nil
		j.synced(m, state, opened)
	case "closed":
		state.gap, state.synced, state.closedAt = nil, false, m.Number
		j.copy.apply(m, whole)
	}
}

// synced compares the copy with the selection at the resourceVersion of a synced event.
func (j *judge) synced(m *message, state *collectionState, opened *message) {
	if opened.Data.Reason == "resync" {
		state.synced = false // states from before the gap are checked by comparing the copies
		return
	}
	since := j.decidedSince(opened.Step)
	if j.outage > j.rested { // synced may have been decided before the outage, and written after an edit
		since = min(since, j.rested)
	}
	selections := j.selections(m.Collection, since)
	if !j.wanted(m.Collection) {
		return // the collection is no longer configured
	}
	for _, s := range selections {
		j.skips(s, m.Version, opened, state)
	}
	var why string
	for h := j.w.cluster.lastHistory(); h >= state.histGap; h-- {
		if m.Version != 0 && !j.w.cluster.histories[h].has(m.Version) {
			continue
		}
		for _, s := range selections {
			problem := j.differs(s, m, opened, j.w.cluster.histories[h], state)
			if problem == "" {
				state.synced, state.at, state.history = m.Version != 0, m.Version, h // 0: the resource does not exist
				state.late = j.rested <= j.w.restored
				state.listed, state.syncedStep, state.by = true, m.Step, nil
				if len(selections) == 1 {
					state.by = &selections[0]
				}
				return
			}
			why = problem
		}
	}
	if why == "" {
		return // its resourceVersion is in no known history: a crash repeated the event
	}
	state.listed = true
	j.wrong(atSynced, "%s: %s", m, why)
}

// skips records the states that `snapshot: skip` leaves out of a list that was complete at a resourceVersion.
func (j *judge) skips(s selection, rv int, opened *message, state *collectionState) {
	if !s.entry.skip || state.listed && !opened.Data.Reset {
		return
	}
	for _, h := range j.w.cluster.histories[state.histGap:] {
		if rv != 0 && h.has(rv) {
			for _, o := range h.at(rv) {
				if s.selects(&o) { // those that a filter leaves out are not published after an edit of it, either
					j.skipped[stateKey(o.uid, o.rv)] = true
				}
			}
		}
	}
}

// differs describes how the copy differs from a selection at a resourceVersion.
func (j *judge) differs(s selection, m, opened *message, h *history, state *collectionState) string {
	rv := m.Version
	if m.Version == 0 || m.Data.Reason == "gone" {
		return "" // no object is left; this is checked when drained
	}
	selected := s.of(h.at(rv))
	for _, uid := range slices.Sorted(maps.Keys(selected)) {
		o := selected[uid]
		have, there := j.copy.of(m.Collection, uid)
		switch {
		case there && have.at.rv == o.rv && have.body.of(&o, s.entry), there && have.at.rv > rv:
		case j.excused(s.entry, o, opened.Step):
		case !there && j.last[uid] != nil && j.last[uid].Version > rv: // the object's deletion was published by another list or watch
		case !there:
			return fmt.Sprintf("%s (%s, rv %d) is selected and not there", o.key(), uid, o.rv)
		default:
			return fmt.Sprintf("%s (%s) is there as of rv %d with %+v, not as %+v", o.key(), uid, have.at.rv, have.body, o)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(j.copy.all())) {
		have, there := j.copy.of(m.Collection, uid)
		if !there || have.collection != m.Collection || have.at.rv > rv {
			continue
		}
		if _, there := selected[uid]; !there && (s.entry.types == "" || strings.Contains(s.entry.types, "d")) {
			return fmt.Sprintf("%s is there as of rv %d and not selected", uid, have.at.rv)
		}
	}
	return ""
}

// excused reports whether consumers need not have a state of an object.
func (j *judge) excused(e entry, o object, since int) bool {
	key := stateKey(o.uid, o.rv)
	switch {
	case e.types != "":
		return true
	case j.skipped[key]:
		return true
	}
	step, dead := j.dead[key]
	return dead && (step >= since || o.big && j.s.bus.limit > 0 || o.big && j.smallest >= since)
}

// everyChange checks the time in which a collection was in step: from its synced event up to a resourceVersion, each
// change was published.
func (j *judge) everyChange(id string, state *collectionState, upTo int) {
	if !state.synced || state.late || state.history != j.w.cluster.lastHistory() {
		return
	}
	selections := j.selections(id, 0)
	if len(selections) != 1 || selections[0].entry.filter || selections[0].entry.types != "" {
		return
	}
	for _, c := range j.w.cluster.histories[state.history].changes {
		if c.rv <= state.at || c.rv > upTo || !selections[0].passes(c.after) || j.seen[stateKey(c.after.uid, c.rv)] {
			continue
		}
		j.wrong(complete, "%s: %s (%s) at rv %d was not published, and the collection was in step from %d to %d",
			id, c.after.key(), c.after.uid, c.rv, state.at, upTo)
	}
}

// caughtUp compares the copy with the present configuration, for the collections that nothing hinders.
func (j *judge) caughtUp(invariant string) {
	if j.w.process == nil {
		return
	}
	live, healthy := j.w.cluster.live(), !j.w.hindered(j.s, entry{x: all}) && !j.closedLater()
	var selected []selection
	for _, e := range j.now() {
		if j.w.hindered(j.s, e) {
			healthy = false
			continue
		}
		for _, s := range e.selections(j.w.cluster) {
			if j.rollback.overtaken[collectionID(s)] {
				healthy = false
				continue
			}
			selected = append(selected, s)
			if state := j.of[collectionID(s)]; state != nil && state.gap != nil && j.w.cluster.crd != "" {
				j.wrong(unsynced, "%s: no synced after %s", collectionID(s), state.gap)
			}
		}
	}
	expected := map[string]bool{}
	for _, s := range selected {
		for _, o := range s.of(live) {
			expected[o.uid] = true
			have, there := j.copy.of(collectionID(s), o.uid)
			switch {
			case there && have.at.rv == o.rv && have.body.of(&o, s.entry):
			case j.excused(s.entry, o, j.listedSince(s)):
			case !there:
				j.wrong(invariant, "%s (%s, rv %d) is selected by %s and not in the copy", o.key(), o.uid, o.rv, s.entry)
			default:
				j.wrong(invariant, "%s (%s) is in the copy as of rv %d with %+v, not as %+v", o.key(), o.uid, have.at.rv, have.body, o)
			}
		}
	}
	if kept := j.s.bus.kept; !healthy || kept > 0 && kept == len(j.s.bus.messages) { // no event shows yet that the bus was emptied
		return
	}
	whole := j.copy.all()
	for _, uid := range slices.Sorted(maps.Keys(whole)) {
		have := whole[uid]
		if expected[uid] || j.mayLinger(have) {
			continue
		}
		j.wrong(invariant, "%s is in the copy (rv %d, of %s), and nothing selects it or it does not exist", uid, have.at.rv, have.collection)
	}
}

// rests checks a start while nothing is waiting. before is the content of the checkpoint before the start.
func (j *judge) rests(before map[string][]byte) {
	if noticed := j.noticed(j.w.step - 1); j.w.restored >= 0 && slices.ContainsFunc(j.reading(), func(id string) bool { return !noticed[id] }) {
		return // the bridge may notice only now that etcd was restored
	}
	if kept := j.s.bus.kept; kept > 0 && (kept == len(j.s.bus.messages) || j.s.bus.messages[kept].Step == j.w.step) {
		return // the bridge notices only now that the bus was emptied, because it had nothing to write before
	}
	if last := &j.s.bus.messages[len(j.s.bus.messages)-1]; last.Step == j.w.step {
		j.wrong(atRest, "%s", last)
	}
	after := j.s.store.settled()
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for _, key := range sortedKeys(keys) {
		if !bytes.Equal(after[key], before[key]) {
			j.wrong(atRest, "the checkpoint had %q for %s, and has %q", before[key], key, after[key])
		}
	}
}

// listedSince returns the step in which the last list of a collection began.
func (j *judge) listedSince(s selection) int {
	if state := j.of[collectionID(s)]; state != nil {
		return state.lastList
	}
	return 0
}

// agree compares the copies of consumers that read the same messages in different orders.
func (j *judge) agree() {
	if kept := j.s.bus.kept; kept > 0 && kept == len(j.s.bus.messages) {
		return // no event shows that the bus was emptied, so consumers keep their copies
	}
	for _, r := range []struct {
		name string
		copy *consumerCopy
	}{
		{"partition by partition", byPartition(j.s.bus.messages)},
		{"from a compacted topic", compacted(j.s.bus.messages)},
		{"from what the bus holds", byPartition(j.s.bus.messages[j.s.bus.kept:])},
	} {
		if j.s.mayRepeat && r.name == "from a compacted topic" {
			continue // the contract excludes compaction with at-least-once delivery
		}
		mine, theirs := j.copy.all(), r.copy.all()
		for _, uid := range slices.Sorted(maps.Keys(mine)) {
			if have, there := theirs[uid]; !there || have.at != mine[uid].at {
				j.wrong(readers, "%s: %s is there %t as of %v, in one order as of %v", r.name, uid, there, have.at, mine[uid].at)
			}
		}
		for _, uid := range slices.Sorted(maps.Keys(theirs)) {
			if _, there := mine[uid]; !there {
				j.wrong(readers, "%s: %s is there as of %v, in one order it is not", r.name, uid, theirs[uid].at)
			}
		}
	}
}

// mayLinger reports whether consumers receive no deletions for a collection, so that they keep its objects.
func (j *judge) mayLinger(h held) bool {
	return slices.ContainsFunc(j.selections(h.collection, 0), func(s selection) bool {
		return s.entry.types != "" && !strings.Contains(s.entry.types, "d")
	})
}
