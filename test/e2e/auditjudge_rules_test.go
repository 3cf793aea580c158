package e2e

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

// ruleRun is a run with four calls about one ConfigMap: alice creates it, bob updates it, carol patches it without a change, dave deletes it.
func ruleRun(t *testing.T) *auditRun {
	a := &auditRun{world: &world{t: t, widgets: kube.Widgets("audited.kubebridge.io")}, truth: newAuditTruth(), first: time.Now().Add(time.Hour)}
	call := func(who, what string, kind callKind, code int) *call {
		c := a.truth.begin(&call{who: &identity{name: who}, what: what, kind: kind, name: "configmaps/m", provable: kind == kindOther})
		c.code, c.ended = code, time.Now()
		return c
	}
	a.truth.made["u/1"] = call("alice", "create", kindOther, 201)
	update := call("bob", "PUT with version", kindOther, 200)
	update.conditions = true
	a.truth.made["u/2"] = update
	call("carol", "patch of the same", kindOther, 200)
	call("dave", "delete", kindDelete, 200).uid = "u"
	return a
}

func ruleChange(typ, rv string) bus.Message {
	return bus.Message{
		Place: "bus:" + typ, Attributes: map[string]string{
			"type": "io.kubebridge.resource." + typ + ".v1", "id": "configmaps:1:u:" + rv + ":" + typ, "uid": "u", "resourceversion": rv,
			"collection": "configmaps@ns", "subject": "ns/m", "origin": "watch",
		},
		Data: bus.Data{Object: json.RawMessage(`{"metadata":{"name":"m"}}`)},
	}
}

// ruleAnswer says who made a change. A user "" is left out: there are candidates.
func ruleAnswer(of bus.Message, user string, number int) bus.Message {
	m := ruleChange("attributed", of.RV())
	m.Attributes["id"] = of.ID() + ":attributed"
	m.Data = bus.Data{Explains: of.ID()}
	r := event.Request{User: event.User{Name: user}, UserAgent: fmt.Sprintf("call/%d", number)}
	text, _ := json.Marshal(r) // strings always encode
	if user != "" {
		m.Data.Request = text
		return m
	}
	m.Data.Candidates, m.Data.Reason = json.RawMessage("["+string(text)+"]"), "incomplete"
	return m
}

// Each rule of the verdict over attributed events is broken once, and found.
func TestAuditVerdict(t *testing.T) {
	added, modified, deleted := ruleChange("added", "1"), ruleChange("modified", "2"), ruleChange("deleted", "3")
	right := []bus.Message{added, modified, deleted, ruleAnswer(added, "alice", 1), ruleAnswer(modified, "bob", 2), ruleAnswer(deleted, "dave", 4)}
	for name, c := range map[string]struct {
		change func(all []bus.Message) []bus.Message
		form   auditForm
		want   string // the rule that is broken; "": none
	}{
		"right":                 {func(all []bus.Message) []bus.Message { return all }, auditForm{}, ""},
		"another user":          {func(all []bus.Message) []bus.Message { all[4] = ruleAnswer(modified, "carol", 3); return all }, auditForm{}, "[wrong]"},
		"another user, dropped": {func(all []bus.Message) []bus.Message { all[4] = ruleAnswer(modified, "carol", 3); return all }, auditForm{dropped: 10}, "[wrong]"},
		"another name":          {func(all []bus.Message) []bus.Message { all[4] = ruleAnswer(modified, "mallory", 2); return all }, auditForm{}, "[wrong]"},
		"another request":       {func(all []bus.Message) []bus.Message { all[3] = ruleAnswer(added, "bob", 2); return all }, auditForm{}, "[wrong]"},
		"nobody's request":      {func(all []bus.Message) []bus.Message { all[3] = ruleAnswer(added, "alice", 99); return all }, auditForm{}, "[wrong]"},
		"a deletion":            {func(all []bus.Message) []bus.Message { all[5] = ruleAnswer(deleted, "carol", 3); return all }, auditForm{}, "[wrong]"},
		"twice":                 {func(all []bus.Message) []bus.Message { return append(all, all[3]) }, auditForm{}, "[twice]"},
		"about nothing": {func(all []bus.Message) []bus.Message {
			return append(all, ruleAnswer(ruleChange("modified", "7"), "bob", 2))
		}, auditForm{}, "[unknown]"},
		"a change is repeated":   {func(all []bus.Message) []bus.Message { return append(all, all[1]) }, auditForm{}, "[once]"},
		"lost":                   {func(all []bus.Message) []bus.Message { return all[:5] }, auditForm{}, "[silent]"},
		"lost, dropped":          {func(all []bus.Message) []bus.Message { return all[:5] }, auditForm{dropped: 10}, ""},
		"no reason":              {func(all []bus.Message) []bus.Message { all[5].Data.Request = nil; return all }, auditForm{}, "[reason]"},
		"candidates for a proof": {func(all []bus.Message) []bus.Message { all[4] = ruleAnswer(modified, "", 2); return all }, auditForm{}, "[exact]"},
		"candidates, dropped":    {func(all []bus.Message) []bus.Message { all[4] = ruleAnswer(modified, "", 2); return all }, auditForm{dropped: 10}, ""},
		"the test contradicts itself": {func(all []bus.Message) []bus.Message {
			all[1].Data.Object = json.RawMessage(`{"metadata":{"annotations":{"stamp":"s3"}}}`)
			return all
		}, auditForm{}, "[test]"},
	} {
		t.Run(name, func(t *testing.T) {
			a := ruleRun(t)
			a.form = c.form
			problems := a.verdict(c.change(slices.Clone(right))).problems
			if len(problems) == 0 && c.want == "" {
				return
			}
			if len(problems) != 1 || c.want == "" || !strings.HasPrefix(problems[0], c.want) {
				t.Errorf("got %q, want one of %q", problems, c.want)
			}
		})
	}
}
