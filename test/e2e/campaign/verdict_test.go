package campaign

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// history is a right one: an object that is made, changed and deleted, one that stays, and one that is made in a gap.
type history struct {
	ledger   *ledger
	messages []bus.Message
	cluster  map[string]map[string]map[string]any
}

const resource = "configmaps"

func rightHistory() *history {
	h := &history{ledger: newLedger(), cluster: map[string]map[string]map[string]any{resource: {}}}
	t := target{Type: kube.ConfigMaps}
	for _, o := range []*object{
		{uid: "u1", name: "n/a", versions: []version{{rv: 11}, {rv: 12}}, deleted: true, after: 12, before: 14},
		{uid: "u2", name: "n/b", versions: []version{{rv: 14}, {rv: 25}}},
		{uid: "u3", name: "n/c", versions: []version{{rv: 21}, {rv: 22}}, deleted: true, after: 22, before: 25},
	} {
		o.typ = t
		for i := range o.versions {
			o.versions[i].in, o.versions[i].body = true, bodyAt(o.uid, o.name, o.versions[i].rv)
		}
		h.ledger.objects[o.uid] = o
	}
	h.cluster[resource]["u2"] = bodyAt("u2", "n/b", 25)
	h.of("gap", "", "", bus.Data{})
	h.of("synced", "", "10", bus.Data{})
	h.about("added", "u1", "n/a", 11)
	h.about("modified", "u1", "n/a", 12)
	h.about("deleted", "u1", "n/a", 13)
	h.about("added", "u2", "n/b", 14)
	h.of("gap", "14", "14", bus.Data{From: "14"})
	h.of("synced", "14", "24", bus.Data{From: "14"})
	h.about("modified", "u2", "n/b", 25)
	return h
}

func bodyAt(uid, name string, rv uint64) map[string]any {
	return map[string]any{"metadata": map[string]any{"uid": uid, "name": name, "resourceVersion": fmt.Sprint(rv)}, "data": map[string]any{"at": fmt.Sprint(rv)}}
}

func (h *history) of(typ, from, rv string, data bus.Data) {
	data.From = from
	h.add(bus.Message{Data: data, Attributes: map[string]string{
		"type": "io.kubebridge.collection." + typ + ".v1", "resourceversion": rv, "id": resource + ":1:" + rv + ":" + typ,
	}})
}

func (h *history) about(typ, uid, name string, rv uint64) {
	body := bodyAt(uid, name, rv)
	if typ == "deleted" {
		body["data"] = map[string]any{"at": fmt.Sprint(rv - 1)}
	}
	text, _ := json.Marshal(body)
	h.add(bus.Message{Data: bus.Data{Object: text}, Raw: text, Attributes: map[string]string{
		"type": "io.kubebridge.resource." + typ + ".v1", "uid": uid, "subject": name, "resourceversion": fmt.Sprint(rv),
		"id": fmt.Sprintf("%s:%d:%s", uid, rv, typ), "origin": "watch",
	}})
}

func (h *history) add(m bus.Message) {
	m.Place = fmt.Sprintf("nats:%d", len(h.messages)+1)
	m.Attributes["collection"] = resource
	h.messages = append(h.messages, m)
}

func (h *history) judge(pair string) []string {
	p, err := FindPair(pair)
	if err != nil {
		return []string{err.Error()}
	}
	v := &verdict{pair: p, ledger: h.ledger, messages: h.messages, cluster: h.cluster}
	return v.judge()
}

// A checker that finds nothing wrong with a wrong history would be worth nothing: each rule is broken once.
func TestVerdict(t *testing.T) {
	const strict = "nats-eo/nats"
	if problems := rightHistory().judge(strict); len(problems) > 0 {
		t.Fatalf("the right history: %v", problems)
	}
	take := func(h *history, at ...int) {
		slices.Reverse(at)
		for _, i := range at {
			h.messages = slices.Delete(h.messages, i, i+1)
		}
	}
	for name, c := range map[string]struct {
		rule string
		do   func(h *history)
	}{
		"an update is lost":              {"complete", func(h *history) { take(h, 3) }},
		"a deletion is lost":             {"complete", func(h *history) { take(h, 4) }},
		"an object's life is lost":       {"complete", func(h *history) { take(h, 2, 3, 4) }},
		"the last state is lost":         {"state", func(h *history) { take(h, 8) }},
		"a gap is not declared":          {"complete", func(h *history) { take(h, 6, 7) }},
		"a gap is not closed":            {"declared", func(h *history) { take(h, 7) }},
		"closed without a gap":           {"declared", func(h *history) { take(h, 6) }},
		"two events change places":       {"order", func(h *history) { h.messages[2], h.messages[3] = h.messages[3], h.messages[2] }},
		"an event comes twice":           {"once", func(h *history) { h.messages = append(h.messages, h.messages[8]) }},
		"an object that never was":       {"invented", func(h *history) { h.about("added", "u9", "n/z", 26) }},
		"a version that never was":       {"invented", func(h *history) { h.about("modified", "u2", "n/b", 26) }},
		"a deletion that never was":      {"invented", func(h *history) { h.about("deleted", "u2", "n/b", 26) }},
		"not selected":                   {"invented", func(h *history) { h.ledger.objects["u1"].versions[1].in = false }},
		"another object's body":          {"body", func(h *history) { h.messages[8].Data.Object = h.messages[5].Data.Object }},
		"another object's body, deleted": {"body", func(h *history) { h.messages[4].Data.Object = h.messages[5].Data.Object }},
		"another object's name":          {"body", func(h *history) { h.messages[8].Attributes["subject"] = "n/a" }},
		"the value of a Secret":          {"leak", func(h *history) { h.messages[8].Raw = []byte(planted) }},
		"an earlier writer writes again": {"fenced", func(h *history) { h.messages[3].Term = 1 }},
		"announced again":                {"order", func(h *history) { h.messages[8].Attributes["type"] = "io.kubebridge.resource.added.v1" }},
		"its name's former holder remains": {"order", func(h *history) {
			take(h, 4)
			h.messages[4].Attributes["subject"] = "n/a"
			h.ledger.objects["u2"].name = "n/a"
		}},
	} {
		h := rightHistory()
		for i := range h.messages {
			h.messages[i].Attributes = maps.Clone(h.messages[i].Attributes)
		}
		c.do(h)
		if problems := h.judge(strict); !slices.ContainsFunc(problems, func(s string) bool { return strings.HasPrefix(s, "["+c.rule+"]") }) {
			t.Errorf("%s: %v, want [%s]", name, problems, c.rule)
		}
	}
}

// What is no fault: a repeat where events may come more than once, and whatever a declared reset makes consumers drop.
func TestVerdictExcuses(t *testing.T) {
	h := rightHistory()
	h.messages = append(h.messages, h.messages[8])
	if problems := h.judge("kafka-alo/file"); len(problems) > 0 {
		t.Errorf("a repeat with at-least-once: %v", problems)
	}
	h = rightHistory()
	h.messages = h.messages[:2] // a stream that was lost; all that followed is in the reset
	h.messages = append(h.messages, rightHistory().messages[2:4]...)
	h.of("gap", "", "", bus.Data{Reset: true})
	h.messages[len(h.messages)-1].Attributes["id"] += ":run"
	h.about("present", "u2", "n/b", 25)
	h.of("synced", "", "30", bus.Data{})
	if problems := h.judge("nats-eo/nats"); len(problems) > 0 {
		t.Errorf("a declared reset: %v", problems)
	}
}
