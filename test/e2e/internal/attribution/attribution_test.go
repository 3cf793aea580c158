package attribution

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

func change(id string) bus.Message {
	return bus.Message{Route: "t", Writer: "1", Attributes: map[string]string{"type": "io.kubebridge.resource.added.v1", "id": id, "origin": "watch"}}
}

func explanation(of string, data bus.Data) bus.Message {
	data.Explains = of
	return bus.Message{Route: "t", Writer: "1", Attributes: map[string]string{"type": "io.kubebridge.resource.attributed.v1", "id": of + ":attributed"}, Data: data}
}

// Each rule is broken once, and found.
func TestRead(t *testing.T) {
	alice := json.RawMessage(`{"user":{"name":"alice"}}`)
	exact := bus.Data{Request: alice}
	candidates := bus.Data{Candidates: json.RawMessage(`[{"user":{"name":"bob"}}]`), Reason: "incomplete"}
	right := []bus.Message{change("a"), explanation("a", exact), change("b"), explanation("b", candidates)}
	for name, c := range map[string]struct {
		change func(all []bus.Message) []bus.Message
		o      Options
		want   string // the rule that is broken; "": none
	}{
		"right":                {func(all []bus.Message) []bus.Message { return all }, Options{Exact: true}, ""},
		"twice":                {func(all []bus.Message) []bus.Message { return append(all, all[1]) }, Options{Exact: true}, "[twice]"},
		"twice, at least once": {func(all []bus.Message) []bus.Message { return append(all, all[1]) }, Options{}, ""},
		"again, after it was lost": {func(all []bus.Message) []bus.Message {
			all[1].Forgotten = true
			return append(all, explanation("a", exact))
		}, Options{Exact: true}, ""},
		"twice after it was lost": {func(all []bus.Message) []bus.Message {
			all[1].Forgotten = true
			return append(all, explanation("a", exact), explanation("a", exact))
		}, Options{Exact: true}, "[twice]"},
		"an actor, and an answer":      {func(all []bus.Message) []bus.Message { all[0].Data.Actor = alice; return all }, Options{Exact: true}, "[twice]"},
		"no such event":                {func(all []bus.Message) []bus.Message { return all[1:] }, Options{}, "[unknown]"},
		"no such event, and some lost": {func(all []bus.Message) []bus.Message { return all[1:] }, Options{Lost: true}, ""},
		"an event of a list": {func(all []bus.Message) []bus.Message {
			all[0].Attributes = map[string]string{"type": "io.kubebridge.resource.added.v1", "id": "a", "origin": "snapshot"}
			return all
		}, Options{}, "[unknown]"},
		"before the change":    {func(all []bus.Message) []bus.Message { all[0], all[1] = all[1], all[0]; return all }, Options{}, "[behind]"},
		"another partition":    {func(all []bus.Message) []bus.Message { all[1].Partition = 1; return all }, Options{}, "[behind]"},
		"another subject":      {func(all []bus.Message) []bus.Message { all[1].Route = "u"; return all }, Options{}, "[behind]"},
		"no reason":            {func(all []bus.Message) []bus.Message { all[3].Data.Reason = ""; return all }, Options{}, "[reason]"},
		"no request":           {func(all []bus.Message) []bus.Message { all[3].Data.Candidates = nil; return all }, Options{}, "[reason]"},
		"a request of no form": {func(all []bus.Message) []bus.Message { all[1].Data.Request = json.RawMessage(`"alice"`); return all }, Options{}, "[form]"},
	} {
		t.Run(name, func(t *testing.T) {
			answers, problems := Read(c.change(slices.Clone(right)), c.o)
			if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.HasPrefix(problems[0], c.want)) {
				t.Errorf("got %q, want one of %q", problems, c.want)
			}
			if name == "right" && (answers["a"][0].Request.EffectiveUser().Name != "alice" || answers["b"][0].Candidates[0].User.Name != "bob") {
				t.Errorf("got %+v", answers)
			}
		})
	}
}
