package campaign

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/e2e/internal/attribution"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// auditVerdict judges what one sink has published about the users of changes and about refused requests. Its rules, besides those of
// [attribution.Read]:
//
//	user        A request that is named as that of a change is by the user who made it. Nobody is named who does not write.
//	candidates  The user who made a change is among the candidates.
//	exact       A creation has an exact answer, if its record has a body.
//	silent      Each change has an answer, unless its event was in doubt when its collection was listed again: see inDoubt.
//	denied      A denied event names a user whose request was refused, and the request. It comes once, and each refused request has one.
//	loss        A lost event is published, and no record was lost.
//
// The rules candidates, exact, silent and loss are judged only if all records came, and each in time.
type auditVerdict struct {
	sink     string
	form     auditForm
	messages []bus.Message
	makers   func(*bus.Message) makers
	users    map[string]bool     // who write
	bridge   string              // the user of the bridge, whose requests are refused for a time
	refused  map[string]*refusal // by user
	exact    bool                // the sink delivers exactly once
	lost     bool                // the bus may have lost messages
	whole    bool                // all records came, each in time, and the same bridge has got them
	repeated bool                // records may have come twice
	taken    map[string]bool     // resources that were removed from the configuration for a while
	secrets  string              // the resource whose records have no bodies

	doubted  map[string]bool // what inDoubt returns
	problems []string
	answered auditCounts
}

// makers are the users of whom one made the change of an event; none: that is not known.
type makers struct {
	users   []string
	created bool // the change is the creation of the object
	left    bool // the event has the version at which the object left the selection, and was deleted before the bridge asked for it
}

// auditCounts are numbers of changes.
type auditCounts struct {
	Exact      int  `json:"exact"`  // with a request
	Carried    int  `json:"actors"` // of these, in the event of the change itself
	Candidates int  `json:"candidates"`
	Crowded    int  `json:"crowded"` // of these, with more candidates than the event has
	Named      int  `json:"named"`   // of these, with the right user among those that it has
	Silent     int  `json:"silent"`  // without an answer
	Denied     int  `json:"denied"`  // denied events
	Whole      bool `json:"whole"`   // all rules were judged
}

func (c *auditCounts) String() string {
	s := fmt.Sprintf("changes with an exact user %d (%d of them in the event of the change), with candidates %d (%d of them leave candidates out, and %d of these have the right one), "+
		"without an answer %d; %d refused requests", c.Exact, c.Carried, c.Candidates, c.Crowded, c.Named, c.Silent, c.Denied)
	if !c.Whole {
		s += "; records were disturbed"
	}
	return s
}

func (v *auditVerdict) wrong(rule, format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf("[%s] %s: ", rule, v.sink)+fmt.Sprintf(format, args...))
}

func (v *auditVerdict) judge() []string {
	answers, problems := attribution.Read(v.messages, attribution.Options{Exact: v.exact, Lost: v.lost})
	for _, p := range problems {
		rule, text, _ := strings.Cut(p, "] ")
		v.problems = append(v.problems, rule+"] "+v.sink+": "+text)
	}
	v.answered.Whole = v.whole
	v.doubted = inDoubt(v.messages)
	gone, known := v.lastEnds(), map[string]bool{} // known: ids of changes of which one message says what happened
	for i := range v.messages {
		m := &v.messages[i]
		known[m.ID()] = known[m.ID()] || !notMade(m)
	}
	seen, from := map[string]bool{}, map[string]string{} // from: where the last gap of a collection begins
	for i := range v.messages {
		m := &v.messages[i]
		if m.Is("gap") {
			from[m.Collection()] = m.RV()
		}
		switch {
		case m.Is("denied"):
			v.denied(m)
			continue
		case m.OfAudit() && m.Is("lost"):
			if v.whole {
				v.wrong("loss", "no record was lost: %s: %.300s", m, m.Raw)
			}
			continue
		}
		if m.OfAudit() || m.OfCollection() || seen[m.ID()] || !m.Is("added", "modified", "deleted") || m.Attributes["origin"] == string(event.Snapshot) {
			continue
		}
		if notMade(m) && known[m.ID()] { // without exactly-once delivery, the event may be repeated when the bridge has found out more
			continue
		}
		seen[m.ID()] = true
		// What a list adds at a version before its gap has not changed since: it is selected now, for example by an edit. The records of its last change
		// may be gone.
		former := m.Is("added") && m.Attributes["origin"] != string(event.Watch) && !event.Newer(m.RV(), from[m.Collection()])
		v.change(m, answers[m.ID()], former || i < gone[m.Collection()])
	}
	v.refusals()
	return v.problems
}

// lastEnds returns for each collection the index of the last event behind which consumers have no copy of what was before. Answers to
// earlier changes may have been dropped.
func (v *auditVerdict) lastEnds() map[string]int {
	last := map[string]int{}
	for i := range v.messages {
		if m := &v.messages[i]; m.Is("closed") || m.Is("gap") && m.Data.Reset {
			last[m.Collection()] = i
		}
	}
	return last
}

// inDoubt returns the ids of events that the bridge may not have committed before it listed their collection again. Without exactly-once delivery, such an
// event is on the bus if the bridge was killed then, and has no answer: the list repeats its change with another id, or publishes a later one. The gap
// of the list begins at the committed position, and the bridge commits events of a collection in their order, so an event was committed if it is
// before one that the position covers:
//
//	event                           is covered by a position from
//	of an object, seen by a watch   its version on, or deletionversion
//	of an object, found by a list   -
//	synced                          its version on
//
// A list that was interrupted before its end is made again without another gap. A list finds an object once: so if lists between a gap and its synced have
// found different things of an object, all but the last event are in doubt.
func inDoubt(messages []bus.Message) map[string]bool {
	type place struct{ collection, part string }
	type one struct{ id, cover string }
	since, seen := map[place][]one{}, map[string]bool{} // since: events since the last gap
	found := map[place]map[string]string{}              // by uid: the event of an object that a list has found between a gap and its synced
	doubted, committed, replaced := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range messages {
		m := &messages[i]
		at := place{m.Collection(), m.Part()}
		switch list := found[at]; {
		case m.Is("gap"):
			found[at] = map[string]string{}
		case m.Is("synced"):
			delete(found, at)
		case list != nil && m.Attributes["origin"] == string(event.Reconcile):
			if former := list[m.UID()]; former != "" && former != m.ID() {
				replaced[former] = true
			}
			list[m.UID()] = m.ID()
		}
		switch {
		case m.OfAudit() || m.Is("attributed", "denied"):
		case m.Is("gap"):
			covered := -1
			for n, e := range since[at] {
				if e.cover != "" && m.RV() != "" && !event.Newer(e.cover, m.RV()) {
					covered = n
				}
			}
			for n, e := range since[at] {
				if n <= covered {
					committed[e.id] = true
				} else {
					doubted[e.id] = true
				}
			}
			delete(since, at)
		default:
			e := one{m.ID(), coverOf(m)}
			if seen[e.id] { // a copy that comes late says nothing about the events before it
				e.cover = ""
			}
			since[at], seen[e.id] = append(since[at], e), true
		}
	}
	for _, list := range since {
		for _, e := range list {
			committed[e.id] = true
		}
	}
	maps.DeleteFunc(doubted, func(id string, _ bool) bool { return committed[id] })
	maps.Copy(doubted, replaced)
	return doubted
}

// coverOf returns the position from which on an event is committed; "": that is not known.
func coverOf(m *bus.Message) string {
	switch {
	case m.Is("synced"):
		return m.RV()
	case m.Attributes["origin"] != string(event.Watch):
		return ""
	case m.Is("deleted"):
		return m.Attributes["deletionversion"]
	}
	return m.RV()
}

// change judges the answers to a change. ended says that consumers have dropped their copy since, or that nothing has changed lately.
func (v *auditVerdict) change(m *bus.Message, answers []attribution.Answer, ended bool) {
	by := v.makers(m)
	makers := by.users
	judged := v.whole && !ended && !by.left && len(makers) > 0 && !slices.Contains(makers, nobody) && !v.taken[m.Resource()]
	// The record of a creation is a proof, whatever else is missing. An object that only a list has found may have been created before the bridge began to read records.
	provable := by.created && m.Is("added") && m.Attributes["origin"] == string(event.Watch) && m.Resource() != v.secrets
	if notMade(m) {
		if len(answers) > 0 {
			v.wrong("user", "there is an answer to %s, of which it is not known what happened: %s", m, &answers[0])
		}
		return
	}
	if len(answers) == 0 {
		v.answered.Silent++
		if judged && (v.exact || !v.doubted[m.ID()]) {
			v.wrong("silent", "nothing is said about %s, which %v made", m, makers)
		}
		return
	}
	for i := range answers {
		a := &answers[i]
		switch {
		case a.Request != nil:
			if v.answered.Exact++; !a.Is("attributed") {
				v.answered.Carried++
			}
			v.user(m, a, makers)
			continue
		case judged && provable:
			v.wrong("exact", "%s, which %v made, has candidates only (%s): %.600s", m, makers, a.Data.Reason, a.Data.Candidates)
		}
		v.answered.Candidates++
		among := func(user string) bool {
			return slices.ContainsFunc(a.Candidates, func(r event.Request) bool { return r.EffectiveUser().Name == user })
		}
		right := slices.ContainsFunc(makers, among)
		if judged && a.LeftOut {
			v.answered.Crowded++
			if right {
				v.answered.Named++
			}
		}
		if judged && !a.LeftOut && !right {
			v.wrong("candidates", "%s was made by %v, who is not among the %d candidates (%s): %.600s", m, makers, len(a.Candidates), a.Data.Reason, a.Data.Candidates)
		}
	}
}

// user judges an exact answer.
func (v *auditVerdict) user(m *bus.Message, a *attribution.Answer, makers []string) {
	name := a.Request.EffectiveUser().Name
	switch {
	case !v.users[name]:
		v.wrong("user", "%s names %q, who writes nothing: %s", m, name, a)
	case len(makers) > 0 && !slices.Contains(makers, name):
		v.wrong("user", "%s names %q, but %v made the change: %s %s", m, name, makers, a.Request.Verb, a.Request.URI)
	}
}

// denied judges a denied event.
func (v *auditVerdict) denied(m *bus.Message) {
	v.answered.Denied++
	var d event.Denial
	if err := json.Unmarshal(m.Data.Request, &d.Request); err != nil {
		v.wrong("denied", "%s: %v", m, err)
		return
	}
	user := d.Request.EffectiveUser().Name
	r := v.refused[user]
	switch {
	case !v.form.denied:
		v.wrong("denied", "audit.denied is not configured: %s", m)
	case user == v.bridge:
	case r == nil:
		v.wrong("denied", "nobody has refused a request of %q: %s", user, m)
	case m.Resource() != r.resource || d.Request.Verb != r.verb:
		v.wrong("denied", "%q was refused %s of %s: %s: %s %s", user, r.verb, r.resource, m, d.Request.Verb, d.Request.URI)
	}
}

// refusals checks that refused requests are published, once. Before a bridge has found the cluster at its first start it reads no records, so those that
// were asked before its first event may be missing.
func (v *auditVerdict) refusals() {
	if !v.form.denied {
		return
	}
	times, ids := map[string]int{}, map[string]bool{}
	var begun time.Time
	for i := range v.messages {
		m := &v.messages[i]
		if at := timeOf(m); begun.IsZero() || at.Before(begun) && !at.IsZero() {
			begun = at
		}
		if !m.Is("denied") {
			continue
		}
		var r event.Request
		if json.Unmarshal(m.Data.Request, &r) == nil {
			times[r.EffectiveUser().Name]++
		}
		if v.exact && !v.repeated && ids[m.ID()] {
			v.wrong("denied", "the refusal was published twice: %s", m)
		}
		ids[m.ID()] = true
	}
	for user, r := range v.refused {
		if v.whole && !v.lost && r.certain && !r.asked.Before(begun) && times[user] == 0 && !v.taken[r.resource] {
			v.wrong("denied", "the refused %s of %s by %s was not published", r.verb, r.resource, user)
		}
	}
}

// makers returns who made the change of an event.
func (l *ledger) makers(m *bus.Message) makers {
	var all makers
	for era, objects := range l.eras() {
		if era == 0 && l.former != nil && m.Epoch() > 1 {
			continue
		}
		if o := objects[m.UID()]; o != nil {
			all.add(o.makers(m))
		}
	}
	return all.known()
}

func (all *makers) add(other makers) {
	all.users, all.created, all.left = append(all.users, other.users...), all.created || other.created, all.left || other.left
}

// known returns the makers, and none if one of them is not known.
func (all makers) known() makers {
	if slices.Contains(all.users, "") {
		return makers{}
	}
	return all
}

// makers returns who made the change of an event in the history of the object. A deletion that says that the object does not exist any more is by the user who
// deleted it, also if the object had left the selection before: the bridge may have been away meanwhile. Then the version does not fit the
// request, and there may be no answer.
func (o *object) makers(m *bus.Message) makers {
	switch v, ok := o.find(versionOf(m)); {
	case notMade(m):
		return makers{}
	case m.Is("deleted") && m.Data.Reason == "":
		return removal(o.deleted, o.by, ok)
	case ok:
		return makers{users: []string{v.by}, created: o.versions[0].rv == v.rv}
	}
	return makers{}
}

// makers returns who made the change of an event.
func (t *gadgetTruth) makers(m *bus.Message) makers {
	var all makers
	for era, objects := range []map[string]*gadget{t.former, t.objects} {
		if o := objects[m.UID()]; o != nil && (era > 0 || m.Epoch() == 1) {
			all.add(o.makers(m))
		}
	}
	return all.known()
}

func (g *gadget) makers(m *bus.Message) makers {
	switch s, ok := g.find(versionOf(m)); {
	case notMade(m):
		return makers{}
	case m.Is("deleted") && m.Data.Reason == "":
		return removal(g.deleted, g.by, ok)
	case ok:
		return makers{users: []string{s.by}, created: g.states[0].rv == s.rv}
	}
	return makers{}
}

// notMade reports whether an event has no answer because it does not say what happened: it is not known whether the object was deleted, or a list
// has found that it is not selected any more.
func notMade(m *bus.Message) bool {
	return m.Is("deleted") && (m.Data.Reason == "unknown" || m.Data.Reason == "left" && m.Attributes["origin"] != string(event.Watch))
}

// removal returns who deleted an object. left is set if the event has the version of a write.
func removal(deleted bool, by string, left bool) makers {
	if !deleted {
		return makers{}
	}
	return makers{users: []string{by}, left: left}
}
