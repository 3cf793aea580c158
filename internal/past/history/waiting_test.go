package history

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Changes that wait for their users take a bounded amount of memory. What is shown without waiting says so.
func TestWaitingIsBounded(t *testing.T) {
	var shown []Change
	w := newChangeQueue(func(c Change) error { shown = append(shown, c); return nil }, 10<<10)
	for i := range 100 {
		if err := w.add(&Change{ID: fmt.Sprint(i), Diff: strings.Repeat("+", 2<<10), Note: "note"}); err != nil {
			t.Fatal(err)
		}
		if w.bytes > w.limit || len(w.changes) > 3 {
			t.Fatalf("%d changes of %d bytes wait", len(w.changes), w.bytes)
		}
	}
	if len(shown) != 97 || shown[0].Note != "note; "+notAwaited {
		t.Errorf("%d changes are shown, the first one with the note %q", len(shown), shown[0].Note)
	}
	if err := w.flush(true); err != nil || len(shown) != 100 || shown[99].Note != "note" || w.bytes != 0 || len(w.byID) != 0 {
		t.Errorf("%d changes are shown, %v", len(shown), err)
	}
}

// The user is the one in whose name the request was made. Only the last address is from the API server.
func TestUsers(t *testing.T) {
	for want, a := range map[string]*event.Attribution{
		"user alice via system:serviceaccount:ci:deployer, from 10.0.0.1, with kubectl/v1": {Request: &event.Request{
			User: event.User{Name: "system:serviceaccount:ci:deployer"}, Impersonated: &event.User{Name: "alice"},
			SourceIPs: []string{"1.2.3.4", "10.0.0.1"}, UserAgent: "kubectl/v1 (linux/amd64)",
		}},
		"user without a name": {Request: &event.Request{}},
		"":                    nil,
		"user not certain (several); candidates:\n  alice\n  bob, with curl/8": {
			Reason: "several", Candidates: []event.Request{{User: event.User{Name: "alice"}}, {User: event.User{Name: "bob"}, UserAgent: "curl/8"}},
		},
		"user not certain (incomplete); one candidate, which is no proof:\n  alice": {
			Reason: "incomplete", Candidates: []event.Request{{User: event.User{Name: "alice"}}}, LeftOut: []string{"extra"},
		},
		"user not certain (incomplete); candidates:\n  alice\n  others are left out": {
			Reason: "incomplete", Candidates: []event.Request{{User: event.User{Name: "alice"}}}, LeftOut: []string{"extra", "candidates"},
		},
	} {
		if got := strings.Join(Users(a), "\n"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
