// Package attribution reads from the messages of a bus who made the changes, and checks what holds for these answers for every user.
// Whether the users are right is for its callers to judge.
package attribution

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// Answer says who made a change.
type Answer struct {
	*bus.Message                 // an attributed event, or the event of the change itself if that has an actor
	Request      *event.Request  // made the change; nil: it is not known which request did
	Candidates   []event.Request // may have made the change, if Request is nil
	LeftOut      bool            // some of the candidates are left out
}

// Options of [Read]. The zero value is a bus without exactly-once delivery that has lost nothing.
type Options struct {
	Exact bool // no message comes twice, so a change has at most one answer
	Lost  bool // the bus has lost messages, so the event of a change may be missing
}

// Read returns the answers by the id of the event that has the change, and the broken rules:
//
//	twice    The change has two answers. Judged with exactly-once delivery; an answer that the bus was made to lose may come again.
//	unknown  The event that an attributed event explains is not on the bus, or is not a change.
//	behind   An attributed event is not in the same topic and partition, or on the same subject, as the event that it explains, or is before it.
//	reason   There is no request, and there are no candidates with a reason.
//	form     An answer does not parse.
func Read(all []bus.Message, o Options) (answers map[string][]Answer, problems []string) {
	wrong := func(rule, format string, args ...any) {
		problems = append(problems, "["+rule+"] "+fmt.Sprintf(format, args...))
	}
	answers = map[string][]Answer{}
	everywhere := map[string]*bus.Message{} // the changes of the whole bus, by id
	for i := range all {
		everywhere[all[i].ID()] = &all[i]
	}
	before := map[string][]*bus.Message{} // the events so far, by id
	for i := range all {
		m := &all[i]
		explains, a, err := answer(m)
		before[m.ID()] = append(before[m.ID()], m)
		switch {
		case err != nil:
			wrong("form", "%s: %v", m, err)
			continue
		case explains == "":
			continue
		}
		if earlier := answers[explains]; o.Exact && len(earlier) > 0 && !earlier[len(earlier)-1].Forgotten {
			wrong("twice", "%s is attributed twice: %s and %s", explains, earlier[len(earlier)-1].Place, m.Place)
		}
		answers[explains] = append(answers[explains], a)
		if !m.Is("attributed") {
			continue
		}
		switch of := everywhere[explains]; {
		case of == nil && o.Lost:
		case of == nil:
			wrong("unknown", "%s explains %s, which is not on the bus", m, explains)
		case !of.Is("added", "modified", "deleted") || of.Attributes["origin"] == "snapshot":
			wrong("unknown", "%s explains %s, which is not a change", m, of)
		case !o.Lost && !slices.ContainsFunc(before[explains], func(e *bus.Message) bool { return e.Route == m.Route && e.Part() == m.Part() }):
			wrong("behind", "%s is not behind the event that it explains, on the same route: %s", m, of)
		}
		if a.Request == nil && (m.Data.Reason == "" || len(a.Candidates) == 0) {
			wrong("reason", "%s has no request, and no candidates with a reason", m)
		}
	}
	return answers, problems
}

// answer returns the answer that a message has, and the id of the event that it is about; "": the message has none.
func answer(m *bus.Message) (explains string, a Answer, err error) {
	a.Message = m
	if !m.Is("attributed") {
		if len(m.Data.Actor) == 0 {
			return "", a, nil
		}
		return m.ID(), a, json.Unmarshal(m.Data.Actor, &a.Request)
	}
	a.LeftOut = slices.Contains(m.Data.LeftOut, "candidates")
	if len(m.Data.Request) > 0 {
		return m.Data.Explains, a, json.Unmarshal(m.Data.Request, &a.Request)
	}
	if len(m.Data.Candidates) == 0 {
		return m.Data.Explains, a, nil
	}
	return m.Data.Explains, a, json.Unmarshal(m.Data.Candidates, &a.Candidates)
}
