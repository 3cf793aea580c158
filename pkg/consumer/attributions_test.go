package consumer_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// attributionOf returns the event that says who made the change of e.
func attributionOf(e *event.Received, users ...string) *event.Received {
	a := *e
	a.Type, a.ID, a.Object = event.Attributed, e.ID+":attributed", nil
	a.Attribution = &event.Attribution{Explains: e.ID}
	for _, u := range users {
		a.Attribution.Candidates = append(a.Attribution.Candidates, event.Request{User: event.User{Name: u}})
	}
	if len(users) == 1 {
		a.Attribution.Request, a.Attribution.Candidates = &a.Attribution.Candidates[0], nil
	} else {
		a.Attribution.Reason = "incomplete"
	}
	a.Data = []byte(strings.Repeat("x", 100))
	return &a
}

// pod returns an event about a pod.
func pod(typ event.Type, collection string, run uint64, uid, version string) *event.Received {
	e := event.Event{Type: typ, Collection: &event.Collection{Resource: "pods", Entry: collection}, Run: strconv.FormatUint(run, 10), UID: uid, ResourceVersion: version}
	return &event.Received{Type: typ, ID: e.ID(), ClusterUID: "c1", Collection: "pods:" + collection, Resource: "pods", Run: run, UID: uid, ResourceVersion: version, Epoch: 1}
}

func user(a *event.Attribution) string {
	switch {
	case a == nil:
		return ""
	case a.Request == nil:
		return a.Reason
	}
	return a.Request.User.Name
}

// The answer is about the state of an object, whichever event publishes it, and about one deletion.
func TestAttributions(t *testing.T) {
	var a consumer.Attributions
	first := pod(event.Modified, "a", 1, "u", "5")
	a.Take(nil)
	a.Take(first) // is no attribution
	a.Take(attributionOf(first, "bob", "carol"))
	if got := user(a.Of(first)); got != "incomplete" {
		t.Errorf("with two candidates: %q", got)
	}
	a.Take(attributionOf(first, "alice"))
	a.Take(attributionOf(first, "bob", "carol")) // again
	a.Take(attributionOf(pod(event.Deleted, "a", 1, "u", "5"), "dave"))
	epoch := pod(event.Present, "a", 3, "u", "5")
	epoch.Epoch = 2
	other := pod(event.Modified, "a", 1, "u", "5")
	other.ClusterUID = "c2"
	for _, c := range []struct {
		what, want string
		e          *event.Received
	}{
		{"the change", "alice", first},
		{"a resync", "alice", pod(event.Present, "a", 2, "u", "5")},
		{"another collection", "alice", pod(event.Modified, "b", 1, "u", "5")},
		{"the attribution", "alice", attributionOf(first, "alice")},
		{"the deletion", "dave", pod(event.Deleted, "a", 1, "u", "5")},
		{"the deletion in another collection", "", pod(event.Deleted, "b", 1, "u", "5")},
		{"the next version", "", pod(event.Modified, "a", 1, "u", "6")},
		{"another object", "", pod(event.Modified, "a", 1, "v", "5")},
		{"a restored cluster", "", epoch},
		{"another cluster", "", other},
		{"a collection event", "", pod(event.Synced, "a", 1, "", "5")},
		{"nothing", "", nil},
	} {
		if got := user(a.Of(c.e)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
}

// A consumer that runs for months must not run out of memory.
func TestAttributionsAreBounded(t *testing.T) {
	a := consumer.Attributions{MaxBytes: 10_000}
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			for i := range 1000 {
				e := pod(event.Modified, "a", 1, "u", fmt.Sprint(i))
				a.Take(attributionOf(e, "alice"))
				a.Of(e)
			}
		})
	}
	wait.Wait()
	known := 0
	for i := range 1000 {
		if a.Of(pod(event.Modified, "a", 1, "u", fmt.Sprint(i))) != nil {
			known++
		}
	}
	if known == 0 || known > 20 {
		t.Errorf("%d are known", known)
	}
	if got := user(a.Of(pod(event.Modified, "a", 1, "u", "999"))); got != "alice" {
		t.Errorf("the last one is by %q", got)
	}
}

// Of two answers about one change, the one with candidates may be forgotten first, but the memory stays bounded.
func TestAttributionsReplaced(t *testing.T) {
	a := consumer.Attributions{MaxBytes: 3_000}
	for i := range 100 {
		e := pod(event.Modified, "a", 1, "u", fmt.Sprint(i))
		a.Take(attributionOf(e, "bob", "carol"))
		a.Take(attributionOf(e, "alice"))
		if got := user(a.Of(e)); got != "alice" {
			t.Fatalf("%d: got %q", i, got)
		}
	}
	if a.Of(pod(event.Modified, "a", 1, "u", "0")) != nil {
		t.Error("the first one is still known")
	}
}

// An event that says itself who made its change needs no other one, also for later events about the same state.
func TestActor(t *testing.T) {
	var a consumer.Attributions
	e := pod(event.Modified, "a", 1, "u", "5")
	e.Actor = &event.Request{User: event.User{Name: "alice"}}
	if got := user(a.Of(e)); got != "alice" {
		t.Errorf("of the event: %q", got)
	}
	resynced := pod(event.Present, "a", 2, "u", "5")
	if got := user(a.Of(resynced)); got != "" {
		t.Errorf("before it was taken: %q", got)
	}
	a.Take(e)
	a.Take(attributionOf(e, "bob", "carol"))
	if got := user(a.Of(resynced)); got != "alice" {
		t.Errorf("of a resync: %q", got)
	}
	if got := a.Of(resynced); got.Explains != e.ID {
		t.Errorf("it explains %q", got.Explains)
	}
}
