package campaign

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// audit is a correct history: alice creates an object, bob changes it, carol deletes it, and mallory is refused. All but the deletion have an exact
// answer.
type audit struct {
	verdict  auditVerdict
	ledger   *ledger
	messages []bus.Message
}

func rightAudit() *audit {
	a := &audit{ledger: newLedger()}
	a.ledger.objects["u"] = &object{
		typ: target{Type: kube.ConfigMaps}, name: "n/a", uid: "u", deleted: true, after: 12, before: 14, by: "carol",
		versions: []version{{rv: 11, in: true, by: "alice"}, {rv: 12, in: true, by: "bob"}},
	}
	var s script
	s.configure(resource)
	a.messages = []bus.Message{s.collection("gap", resource, resource, "", bus.Data{}), s.collection("synced", resource, resource, "10", bus.Data{})}
	for _, one := range []struct {
		typ, rv string
		data    bus.Data
	}{
		{"added", "11", bus.Data{Request: requestBy("create", "alice")}},
		{"modified", "12", bus.Data{Request: requestBy("patch", "bob")}},
		{"deleted", "13", bus.Data{Candidates: json.RawMessage("[" + string(requestBy("patch", "bob")) + "," + string(requestBy("delete", "carol")) + "]"), Reason: "several"}},
	} {
		m := s.about(one.typ, resource, resource, "u", "n/a", one.rv)
		one.data.Explains = m.ID()
		a.messages = append(a.messages, m, bus.Message{Data: one.data, Attributes: map[string]string{
			"type": "io.kubebridge.resource.attributed.v1", "id": m.ID() + ":attributed", "collection": resource, "uid": "u", "subject": "n/a", "resourceversion": m.RV(), "origin": "audit",
		}})
	}
	a.messages = append(a.messages, bus.Message{Data: bus.Data{Request: requestBy("patch", "mallory")}, Attributes: map[string]string{
		"type": "io.kubebridge.request.denied.v1", "id": "1:denied", "collection": resource, "subject": "n/a",
	}})
	a.verdict = auditVerdict{
		form: auditForm{input: inputLog, denied: true}, makers: a.ledger.makers, users: map[string]bool{"alice": true, "bob": true, "carol": true}, bridge: "bridge",
		refused: map[string]*refusal{"mallory": {resource: resource, verb: "patch", certain: true, asked: time.Now()}}, exact: true, whole: true,
	}
	return a
}

// leave makes the object leave the selection by a change of bob, instead of its deletion.
func (a *audit) leave(origin string) {
	a.ledger.objects["u"].deleted = false
	a.ledger.objects["u"].versions = append(a.ledger.objects["u"].versions, version{rv: 13, by: "bob"})
	a.messages[theDeleted].Data.Reason = "left"
	a.messages[theDeleted].Attributes["origin"] = origin
}

// list adds a gap that begins at a position, on a sink without exactly-once delivery.
func (a *audit) list(from string) {
	var s script
	s.configure(resource)
	s.of[resource] = &scripted{}
	gap := s.collection("gap", resource, resource, "", bus.Data{From: from})
	gap.Attributes["resourceversion"] = from
	a.messages = append(a.messages, gap)
	a.verdict.exact = false
}

// selected makes a list find the object, whose gap begins at a position.
func (a *audit) selected(from string) {
	a.messages[0].Data.Reset, a.messages[0].Attributes["resourceversion"] = false, from
	a.messages[theAdded].Attributes["origin"] = "reconcile"
}

// found makes a list find the modification and the deletion. Its end is at version 12.
func (a *audit) found() {
	for _, i := range []int{theModified, theDeleted} {
		a.messages[i].Attributes["origin"] = "reconcile"
	}
	var s script
	s.configure(resource)
	s.of[resource] = &scripted{}
	a.messages = append(a.messages, s.collection("synced", resource, resource, "12", bus.Data{}))
}

// requestBy is a request that the admin has sent as a user.
func requestBy(verb, user string) json.RawMessage {
	text, _ := json.Marshal(event.Request{User: event.User{Name: "admin"}, Impersonated: &event.User{Name: user}, Verb: verb}) // strings always encode
	return text
}

// indexes of the messages of rightAudit.
const (
	theAdded = iota + 2
	ofAdded
	theModified
	ofModified
	theDeleted
	ofDeleted
	theDenied
)

// Each rule is broken once, and found.
func TestAuditVerdict(t *testing.T) {
	without := func(a *audit, i int) { a.messages = slices.Delete(a.messages, i, i+1) }
	lost := bus.Message{Attributes: map[string]string{"type": "io.kubebridge.audit.lost.v1", "id": "l", "collection": resource}}
	for name, c := range map[string]struct {
		change func(a *audit)
		want   string // the rule that is broken; "": none
	}{
		"right":        {func(*audit) {}, ""},
		"another user": {func(a *audit) { a.messages[ofModified].Data.Request = requestBy("patch", "carol") }, "user"},
		"another user, records disturbed": {func(a *audit) {
			a.verdict.whole = false
			a.messages[ofModified].Data.Request = requestBy("patch", "carol")
		}, "user"},
		"another user of a deletion": {func(a *audit) {
			a.messages[ofDeleted].Data = bus.Data{Explains: a.messages[theDeleted].ID(), Request: requestBy("patch", "bob")}
		}, "user"},
		"the right user of a deletion": {func(a *audit) {
			a.messages[ofDeleted].Data = bus.Data{Explains: a.messages[theDeleted].ID(), Request: requestBy("delete", "carol")}
		}, ""},
		"a user who writes nothing": {func(a *audit) { a.messages[ofAdded].Data.Request = requestBy("create", "mallory") }, "user"},
		"the deletion is nobody's": {func(a *audit) {
			a.ledger.objects["u"].by = nobody
			a.messages[ofDeleted].Data.Request = requestBy("delete", "carol")
		}, "user"},
		"the object had left the selection, and was deleted later": {func(a *audit) {
			a.ledger.objects["u"].versions = append(a.ledger.objects["u"].versions, version{rv: 13, by: "bob"})
		}, ""},
		"left, seen by a watch": {func(a *audit) {
			a.leave("watch")
			a.messages[ofDeleted].Data = bus.Data{Explains: a.messages[theDeleted].ID(), Request: requestBy("patch", "carol")}
		}, "user"},
		"left, found by a list":             {func(a *audit) { a.leave("reconcile"); without(a, ofDeleted) }, ""},
		"an answer about what a list found": {func(a *audit) { a.leave("reconcile") }, "user"},
		"an event is repeated when more is known": {func(a *audit) {
			a.verdict.exact = false
			first := a.messages[theDeleted]
			first.Data.Reason = "unknown"
			a.messages = slices.Insert(a.messages, theDeleted, first)
		}, ""},
		"a change that the test cannot know": {func(a *audit) {
			a.ledger.objects["u"].versions[1].by = ""
			a.messages[ofModified].Data.Request = requestBy("patch", "carol")
		}, ""},
		"an actor": {func(a *audit) {
			a.messages[theAdded].Data.Actor = requestBy("create", "alice")
			without(a, ofAdded)
		}, ""},
		"another actor": {func(a *audit) {
			a.messages[theAdded].Data.Actor = requestBy("create", "bob")
			without(a, ofAdded)
		}, "user"},
		"an actor and an answer":      {func(a *audit) { a.messages[theAdded].Data.Actor = requestBy("create", "alice") }, "twice"},
		"twice":                       {func(a *audit) { a.messages = append(a.messages, a.messages[ofModified]) }, "twice"},
		"twice, at least once":        {func(a *audit) { a.verdict.exact = false; a.messages = append(a.messages, a.messages[ofModified]) }, ""},
		"before its change":           {func(a *audit) { a.messages[theAdded], a.messages[ofAdded] = a.messages[ofAdded], a.messages[theAdded] }, "behind"},
		"about nothing":               {func(a *audit) { without(a, theModified) }, "unknown"},
		"about nothing, lost":         {func(a *audit) { a.verdict.lost = true; without(a, theModified) }, ""},
		"candidates without a reason": {func(a *audit) { a.messages[ofDeleted].Data.Reason = "" }, "reason"},
		"the right candidate is missing": {func(a *audit) {
			a.messages[ofDeleted].Data.Candidates = json.RawMessage("[" + string(requestBy("patch", "bob")) + "]")
		}, "candidates"},
		"the right candidate may be left out": {func(a *audit) {
			a.messages[ofDeleted].Data.Candidates = json.RawMessage("[" + string(requestBy("patch", "bob")) + "]")
			a.messages[ofDeleted].Data.LeftOut = []string{"candidates"}
		}, ""},
		"the right candidate is missing, records disturbed": {func(a *audit) {
			a.verdict.whole = false
			a.messages[ofDeleted].Data.Candidates = json.RawMessage("[" + string(requestBy("patch", "bob")) + "]")
		}, ""},
		"a creation has candidates": {func(a *audit) {
			a.messages[ofAdded].Data = bus.Data{Explains: a.messages[theAdded].ID(), Candidates: json.RawMessage("[" + string(requestBy("create", "alice")) + "]"), Reason: "incomplete"}
		}, "exact"},
		"no answer":                    {func(a *audit) { without(a, ofModified) }, "silent"},
		"no answer, records disturbed": {func(a *audit) { a.verdict.whole = false; without(a, ofModified) }, ""},
		"no answer, then a reset": {func(a *audit) {
			without(a, ofModified)
			var s script
			s.configure(resource)
			a.messages = append(a.messages, s.collection("gap", resource, resource, "", bus.Data{}))
		}, ""},
		"no answer, and in doubt when the collection was listed again":              {func(a *audit) { without(a, ofModified); a.list("11") }, ""},
		"no answer, and in doubt, with exactly-once delivery":                       {func(a *audit) { without(a, ofModified); a.list("11"); a.verdict.exact = true }, "silent"},
		"no answer, and committed when the collection was listed again":             {func(a *audit) { without(a, ofModified); a.list("12") }, "silent"},
		"no answer, and a later event was committed when the collection was listed": {func(a *audit) { without(a, ofAdded); a.list("12") }, "silent"},
		"no answer to what a list found, whose end was not committed":               {func(a *audit) { a.found(); without(a, ofModified); a.list("11") }, ""},
		"no answer to what a list found, whose end was committed":                   {func(a *audit) { a.found(); without(a, ofModified); a.list("12") }, "silent"},
		"no answer to what a list found, which found something else when it was made again": {func(a *audit) {
			a.found()
			a.messages[1] = a.messages[0] // the list of this gap has not ended
			without(a, ofModified)
			a.verdict.exact = false
		}, ""},
		"no answer to what a list found, with exactly-once delivery": {func(a *audit) {
			a.found()
			a.messages[1] = a.messages[0]
			without(a, ofModified)
		}, "silent"},
		"no answer, in doubt, and the same event again when the collection was read": {func(a *audit) {
			without(a, ofModified)
			a.list("11")
			a.messages = append(a.messages, a.messages[theModified])
		}, "silent"},
		"no answer to what an edit has selected, and a list has found": {func(a *audit) { a.selected("11"); without(a, ofAdded) }, ""},
		"no answer to what was created, and a list has found":          {func(a *audit) { a.selected("10"); without(a, ofAdded) }, "silent"},
		"no answer to a deletion":                                      {func(a *audit) { without(a, ofDeleted) }, "silent"},
		"no answer to a deletion with the version at which the object has left": {func(a *audit) {
			a.ledger.objects["u"].versions = append(a.ledger.objects["u"].versions, version{rv: 13, by: "bob"})
			without(a, ofDeleted)
		}, ""},
		"a loss":                    {func(a *audit) { a.messages = append(a.messages, lost) }, "loss"},
		"a loss, records disturbed": {func(a *audit) { a.verdict.whole = false; a.messages = append(a.messages, lost) }, ""},
		"a refusal of another user": {func(a *audit) { a.messages[theDenied].Data.Request = requestBy("patch", "alice") }, "denied"},
		"a refusal of another verb": {func(a *audit) { a.messages[theDenied].Data.Request = requestBy("delete", "mallory") }, "denied"},
		"a refusal of the bridge": {func(a *audit) {
			a.messages[theDenied].Data.Request = requestBy("list", "bridge")
			a.verdict.refused = nil
		}, ""},
		"a refusal is published twice":       {func(a *audit) { a.messages = append(a.messages, a.messages[theDenied]) }, "denied"},
		"a refusal, its record came twice":   {func(a *audit) { a.verdict.repeated = true; a.messages = append(a.messages, a.messages[theDenied]) }, ""},
		"a refusal is not published":         {func(a *audit) { without(a, theDenied) }, "denied"},
		"a refusal before the first event":   {func(a *audit) { a.verdict.refused["mallory"].asked = time.Time{}; without(a, theDenied) }, ""},
		"refusals are not to be published":   {func(a *audit) { a.verdict.form.denied = false }, "denied"},
		"a refusal without a certain answer": {func(a *audit) { a.verdict.refused["mallory"].certain = false; without(a, theDenied) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := rightAudit()
			c.change(a)
			a.verdict.messages = a.messages
			problems := a.verdict.judge()
			if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) == 0 || slices.ContainsFunc(problems, func(p string) bool { return !strings.HasPrefix(p, "["+c.want+"]") })) {
				t.Errorf("got %q, want only problems of rule %q", problems, c.want)
			}
		})
	}
}

// All forms are drawn, and complete records only where no relay is between the API server and the bridge.
func TestAuditForms(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(300) {
		for _, always := range []bool{false, true} {
			f := auditFormOf(seed, always)
			seen[fmt.Sprint(always, " ", f.input)]++
			for name, is := range map[string]bool{"wait": f.wait, "complete": f.complete, "denied": f.denied, "disturbed": f.disturbed} {
				if is {
					seen[name]++
				}
			}
			if f.complete && f.input != inputLog {
				t.Errorf("seed %d: %s", seed, f)
			}
		}
	}
	for _, name := range []string{"false ", "false log", "false file", "false webhook", "true log", "true file", "true webhook", "wait", "complete", "denied", "disturbed"} {
		if seen[name] < 20 {
			t.Errorf("%q was drawn %d times: %v", name, seen[name], seen)
		}
	}
	if seen["true "] > 0 {
		t.Errorf("%d seeds have no audit input, want one in each", seen["true "])
	}
}
