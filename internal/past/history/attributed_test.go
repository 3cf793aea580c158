package history_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// published returns the event of a type and a version of the pod x that a part has.
func (w *world) published(part int, typ event.Type, version string) *event.Received {
	w.t.Helper()
	for _, m := range w.bus[part] {
		headers := map[string]string{}
		for _, h := range m.headers {
			headers[h.Name] = string(h.Value)
		}
		e, err := consumer.Decode(consumer.Message{Topic: "t", Headers: headers, Value: m.value})
		if err != nil {
			w.t.Fatal(err)
		}
		if e.Type == typ && e.Name == "x" && (e.ResourceVersion == version || e.DeletionVersion == version) {
			return e
		}
	}
	w.t.Fatalf("part %d has no %s of version %s", part, typ, version)
	return nil
}

// attribute publishes who made a change.
func (w *world) attribute(part int, of *event.Received, a event.Attribution) {
	w.now()
	col := event.ParseCollection(of.Collection)
	a.Explains = of.ID
	w.put(&event.Event{
		Type: event.Attributed, Explained: of.Type, Origin: event.Audit, Time: w.clock, Collection: &col, Run: fmt.Sprint(of.Run), Incarnation: of.Incarnation, Epoch: of.Epoch,
		APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: of.Name, UID: of.UID, ResourceVersion: of.ResourceVersion, Attribution: &a,
	}, part)
}

func by(user string) event.Attribution {
	return event.Attribution{Request: &event.Request{User: event.User{Name: user, Groups: []string{"g"}}, SourceIPs: []string{"9.9.9.9", "10.0.0.1"}, UserAgent: "kubectl/v1 (linux)", Verb: "update"}}
}

func maybe(users ...string) event.Attribution {
	a := event.Attribution{Reason: "incomplete"}
	for _, u := range users {
		a.Candidates = append(a.Candidates, *by(u).Request)
	}
	return a
}

// asked returns the changes of the pod x: type, version, and who made it.
func (w *world) asked(q history.ChangesQuery, each func()) []string {
	w.t.Helper()
	out := []string{}
	q.Reader, q.Cluster, q.Resource, q.Object = w, "prod", discovery.Parse("pods"), history.Name{Namespace: "ns", Name: "x"}
	if _, err := history.Changes(w.t.Context(), q, func(c history.Change) error {
		out = append(out, strings.Join(append([]string{c.Type + " " + c.ResourceVersion}, history.Users(c.Attribution)...), "; "))
		if each != nil {
			each()
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// Each change is shown with the user who made it, in the order of the changes, in whatever order and however late the users are known. The
// state at a time is the same as without users.
func TestChangesShowUsers(t *testing.T) {
	for _, format := range []event.Format{event.Structured, event.Binary, event.Plain} {
		w := newWorld(t, 1, map[string]string{"pods": ""})
		w.format = format
		w.settle()
		w.Cluster.Set("x", "1") // 1
		w.settle()
		since := w.mark()
		w.Cluster.Set("x", "2") // 2
		w.Cluster.Set("x", "3") // 3
		w.settle()
		w.attribute(0, w.published(0, event.Modified, "3"), by("carol"))
		until := w.mark()
		w.Cluster.Remove("x") // 4
		w.Cluster.Set("y", "1")
		w.settle()
		w.attribute(0, w.published(0, event.Deleted, "4"), maybe("dave", "erin"))
		w.attribute(0, w.published(0, event.Modified, "2"), by("bob"))
		w.attribute(0, w.published(0, event.Modified, "2"), by("bob")) // after a crash, with delivery: at-least-once

		const seen = ", from 10.0.0.1, with kubectl/v1"
		want := []string{
			"added 1", "modified 2; user bob" + seen, "modified 3; user carol" + seen,
			"deleted 4; user not certain (incomplete); candidates:;   dave" + seen + ";   erin" + seen,
		}
		if diff := cmp.Diff(want, w.asked(history.ChangesQuery{}, nil)); diff != "" {
			t.Errorf("format %d (-want +got):\n%s", format, diff)
		}
		if diff := cmp.Diff(want[1:3], w.asked(history.ChangesQuery{Since: since, Until: until}, nil)); diff != "" {
			t.Errorf("format %d, between two times (-want +got):\n%s", format, diff)
		}
		s, err := w.answer(stamp(w.mark()))
		if err != nil || len(s.Objects) != 1 {
			t.Errorf("format %d: the state is %+v, %v", format, s, err)
		}
	}
}

// A change is shown as soon as its user is known: the command does not read the whole topic before it shows the first change.
func TestChangesDoNotWaitLonger(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": ""})
	w.Cluster.Set("x", "0") // present: this is nobody's change
	w.settle()
	begin, read := len(w.bus[0]), []int{}
	for i := range 3 {
		w.Cluster.Set("x", fmt.Sprint(i))
		w.settle()
		w.attribute(0, w.published(0, event.Modified, fmt.Sprint(i+2)), by("alice"))
	}
	w.asked(history.ChangesQuery{}, func() { read = append(read, w.read-begin) })
	if diff := cmp.Diff([]int{-1, 2, 4, 6}, read); diff != "" {
		t.Errorf("messages that were read before each change (-want +got):\n%s", diff)
	}
}

// In a compacted topic a change and its user may be in different partitions, of which either may be read first. An exact answer is
// preferred, and an event about another object is not believed.
func TestChangesOfPartitionsShowUsers(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"pods": ""})
	w.settle()
	w.Cluster.Set("x", "1") // 1
	w.settle()
	home := (int('x') + int('s')) % 2 // see world.encode
	added := w.published(home, event.Added, "1")
	other := *added
	other.UID = "other"
	w.attribute(0, &other, by("mallory"))
	w.attribute(0, added, maybe("bob"))
	w.attribute(0, added, by("alice"))
	w.attribute(1, added, maybe("bob"))
	w.Cluster.Set("x", "2") // 2
	w.settle()
	w.attribute(1, w.published(home, event.Modified, "2"), by("carol"))
	const seen = ", from 10.0.0.1, with kubectl/v1"
	want := []string{"added 1; user alice" + seen, "modified 2; user carol" + seen}
	if diff := cmp.Diff(want, w.asked(history.ChangesQuery{}, nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// If the output breaks, no further change is written to it. If reading breaks, what is known is shown.
func TestChangesEndEarly(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": ""})
	w.settle()
	for i := range 3 {
		w.Cluster.Set("x", fmt.Sprint(i))
		w.settle()
	}
	q := history.ChangesQuery{Reader: w, Cluster: "prod", Resource: discovery.Parse("pods"), Object: history.ParseName("ns/x")}
	n, broken := 0, errors.New("broken pipe")
	if _, err := history.Changes(t.Context(), q, func(history.Change) error { n++; return broken }); !errors.Is(err, broken) || n != 1 {
		t.Errorf("%d changes, %v", n, err)
	}
	w.bus[0] = append(w.bus[0], message{value: []byte(`{"specversion":"1.0","type":"io.kubebridge.resource.added.v2","id":"1"}`), time: w.mark()})
	n = 0
	if _, err := history.Changes(t.Context(), q, func(history.Change) error { n++; return nil }); !errors.Is(err, history.ErrNewer) || n != 3 {
		t.Errorf("%d changes, %v", n, err)
	}
}

// JSON has all of the request.
func TestChangeAsJSON(t *testing.T) {
	a := by("alice")
	a.Explains = "id"
	text, err := json.Marshal(history.Change{Time: time.Unix(0, 0), Attribution: &a})
	if err != nil {
		t.Fatal(err)
	}
	const want = `"attribution":{"explains":"id","request":{"user":{"name":"alice","groups":["g"]},"sourceips":["9.9.9.9","10.0.0.1"],"useragent":"kubectl/v1 (linux)","verb":"update"}}`
	if !strings.Contains(string(text), want) {
		t.Errorf("%s", text)
	}
	if text, err = json.Marshal(history.Change{}); err != nil || strings.Contains(string(text), "attribution") {
		t.Errorf("%s, %v", text, err)
	}
}
