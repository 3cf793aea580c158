package attribute

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// decide returns the event about a change on which there is a verdict.
func decide(a *Attribution, v join.Verdict) event.Event {
	v.Change = 1
	a.waiting[1], a.decided[1] = change("web", "5"), made(v)
	e, _ := eventOf(a, 1)
	return e
}

// encoded returns the data of an event as it is on the bus.
func encoded(t *testing.T, e *event.Event) []byte {
	t.Helper()
	encoder := event.Encoder{Cluster: "c", ClusterUID: "u", Format: event.Binary}
	value := encoder.Format.Append(nil, encoder.Attributes(e), e)
	if !json.Valid(value) || bytes.ContainsAny(value, "\n\x00\x1b") {
		t.Errorf("the data is no JSON, or has control characters: %.200q", value)
	}
	return value
}

// A user may have very many groups, and choose long texts. The bus must take the event, or the collection stops.
func TestEventIsBounded(t *testing.T) {
	hostile := func(n int) string { return strings.Repeat("\x01", n) } // six bytes in JSON
	texts := func(n, bytes int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprint(i, hostile(bytes)))
		}
		return list
	}
	type actor struct{ extra, groups, ips, long int } // bytes
	record := func(a actor) *audit.Record {
		r := creation("web", "5", "alice")
		u := &audit.User{Name: "alice", UID: "u", Groups: texts(10, a.groups/10), Extra: map[string][]string{"k": texts(10, a.extra/10)}}
		r.Actor = audit.Actor{User: *u, Impersonated: u, SourceIPs: append(texts(10, a.ips/10), "10.0.0.1"), UserAgent: "kubectl" + hostile(a.long)}
		r.URI, r.Reason = "/apis"+hostile(2*a.long), "RBAC"+hostile(a.long/4)
		return r
	}
	for name, c := range map[string]struct {
		actor      actor
		candidates int // 0: the request is known
		want       []string
		left       int // candidates
	}{
		"small":               {actor{10, 10, 10, 10}, 0, nil, 0},
		"small candidates":    {actor{10, 10, 10, 10}, 16, nil, 16},
		"extra":               {actor{extra: 30 << 10}, 0, []string{"extra"}, 0},
		"groups":              {actor{10, 30 << 10, 10, 10}, 0, []string{"extra", "groups"}, 0},
		"addresses":           {actor{10, 10, 30 << 10, 10}, 0, []string{"extra", "groups", "sourceips"}, 0},
		"everything":          {actor{16 << 10, 16 << 10, 16 << 10, 4 << 10}, 0, []string{"extra", "groups", "sourceips"}, 0},
		"extra of candidates": {actor{extra: 1 << 10}, 16, []string{"extra"}, 16},
		"long candidates":     {actor{4 << 10, 4 << 10, 4 << 10, 4 << 10}, 16, []string{"extra", "groups", "sourceips", "uri", "useragent"}, 16},
	} {
		var v join.Verdict
		if c.candidates == 0 {
			v.Exact = record(c.actor)
		}
		for range c.candidates {
			v.Candidates, v.Reason = append(v.Candidates, record(c.actor)), join.Incomplete
		}
		e := decide(newAttribution(), v)
		if text := encoded(t, &e); len(text) > maxBytes+200 {
			t.Errorf("%s: %d bytes", name, len(text))
		}
		if !slices.Equal(e.Attribution.LeftOut, c.want) || len(e.Attribution.Candidates) != c.left {
			t.Errorf("%s: %q are left out, and there are %d candidates", name, e.Attribution.LeftOut, len(e.Attribution.Candidates))
		}
		for _, r := range append(e.Attribution.Candidates, event.Request{}) {
			if e.Attribution.Request != nil {
				r = *e.Attribution.Request
			} else if r.User.Name == "" {
				break
			}
			if r.User.Name != "alice" || r.Impersonated.Name != "alice" || r.SourceIPs[len(r.SourceIPs)-1] != "10.0.0.1" {
				t.Errorf("%s: the user is %q, from %q", name, r.User.Name, r.SourceIPs)
			}
			if left := slices.Contains(c.want, "groups"); left != (r.User.Groups == nil) || left != (r.Impersonated.Groups == nil) {
				t.Errorf("%s: %d groups", name, len(r.User.Groups))
			}
		}
		if n := len(record(c.actor).Actor.User.Groups); v.Exact != nil && len(v.Exact.Actor.User.Groups) != n {
			t.Errorf("%s: the record has lost its groups", name)
		}
	}
}

// If even the names of all candidates are too long, there are fewer candidates, and the event says so.
func TestLongNames(t *testing.T) {
	var v join.Verdict
	for i := range 16 {
		v.Candidates, v.Reason = append(v.Candidates, creation("web", "5", fmt.Sprint(i, strings.Repeat("\x01", 4<<10-2)))), join.Incomplete
	}
	e := decide(newAttribution(), v)
	if text := encoded(t, &e); len(text) > maxBytes+200 || len(text) < maxBytes*3/4 {
		t.Errorf("%d bytes", len(text))
	}
	if n := len(e.Attribution.Candidates); n < 2 || !slices.Equal(e.Attribution.LeftOut, []string{"candidates"}) {
		t.Errorf("%d candidates, and %q are left out", n, e.Attribution.LeftOut)
	}
}

// Whatever text a user's name has, the event is valid JSON on one line, and says the same.
func TestHostileNames(t *testing.T) {
	for name, want := range map[string]string{
		"a\x00b\x1b[2J\r\n\"\\": "a\x00b\x1b[2J\r\n\"\\",
		"<b>&amp;\u2028\u202e":  "<b>&amp;\u2028\u202e",
		"bad \xff\xc3 utf-8":    "bad \ufffd\ufffd utf-8",
		"":                      "",
	} {
		r := creation("web", "5", name)
		r.ID, r.Cut = name, true
		e := decide(newAttribution(), join.Verdict{Exact: r})
		var got event.Attribution
		if err := json.Unmarshal(encoded(t, &e), &got); err != nil || got.Request.User.Name != want || !got.Request.Cut {
			t.Errorf("%q became %q, cut %t: %v", name, got.Request.User.Name, got.Request.Cut, err)
		}
	}
}

// If the bus takes less than usual, the event has less. If the bus takes nothing, the change is given up, and the collection goes on.
func TestRejected(t *testing.T) {
	s := store{}
	a := newAttribution()
	if err := a.load(s, noon); err != nil {
		t.Fatal(err)
	}
	kv := a.await(change("web", "5"), true, noon)
	if err := s.Commit(t.Context(), []event.KV{kv}); err != nil {
		t.Fatal(err)
	}
	r := creation("web", "5", "alice")
	r.Actor.User.Groups = []string{strings.Repeat("g", 20<<10)}
	a.Read(1, r, noon)
	var left [][]string
	for {
		ready := readyAt(a, noon)
		if len(ready) != 1 {
			t.Fatalf("ready: %v", numbers(ready))
		}
		if a.Silent(ready[0].Number) {
			break
		}
		e, _ := eventOf(a, ready[0].Number)
		left = append(left, e.Attribution.LeftOut)
		object, final := a.Reject(ready[0].Number)
		if object != "shop/web" || final != (len(left) == maxRejections) {
			t.Errorf("%s: final %t after %d rejections", object, final, len(left))
		}
		if err := a.Restore(s, "deployments.apps", noon); err != nil {
			t.Fatal(err)
		}
	}
	if len(left) != maxRejections || left[0] != nil || left[1] != nil || !slices.Equal(left[2], []string{"groups"}) {
		t.Errorf("left out are %q", left)
	}
	if drop := a.Drop(1); string(drop.Key) != string(kv.Key) || drop.Value != nil || a.counts.Rejected != 1 || len(a.rejected) != 0 {
		t.Errorf("the store gets %q: %q; counts %+v", drop.Key, drop.Value, a.counts)
	}
}
