package encode_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribute"
	"github.com/kubebridge/kubebridge/internal/audit"
	"github.com/kubebridge/kubebridge/internal/audit/join"
	"github.com/kubebridge/kubebridge/internal/encode"
	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// An object that the first list has left out is not created by its next change.
func TestAddedIsNoCreation(t *testing.T) {
	a := attribute.New(attribute.Options{
		Join:    join.Options{Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 100, MaxRequests: 100},
		Storage: func(string) (string, bool) { return "", true }, Inputs: 1,
	})
	r := newRig(t, configMaps, encode.Settings{SkipSnapshot: true}, func(o *encode.Options) { o.Attribution = a })
	if err := a.Load(r.store, start); err != nil {
		t.Fatal(err)
	}
	r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "1"))
	r.commit()
	r.watch(configMap("a", "ua", "11", "2"))
	if e := r.last(); e.Type != event.Added {
		t.Fatalf("the event is %s", e.Type)
	}
	a.Read(1, &audit.Record{
		Stage: audit.Complete, Level: audit.RequestResponse, Verb: "update", Resource: "configmaps", Namespace: "shop", Name: "a", Code: 200, Expected: "5",
		Answer: &audit.Answer{Namespace: "shop", Name: "a", UID: "ua", Version: "11"}, Received: start, Reached: start,
	}, start)
	if ready := a.Ready(start); len(ready) != 1 {
		t.Errorf("the update that led to the event is not found")
	}
}

// An event that says who made a change never stops its collection: if the bus rejects it, there is less in it, and at last there is none.
func TestRejectedAttribution(t *testing.T) {
	a := attribute.New(attribute.Options{
		Join:    join.Options{Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 100, MaxRequests: 100},
		Storage: func(string) (string, bool) { return "", true }, Inputs: 1,
	})
	r := newRig(t, configMaps, encode.Settings{}, func(o *encode.Options) { o.Attribution = a })
	if err := a.Load(r.store, start); err != nil {
		t.Fatal(err)
	}
	r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "1"))
	r.commit()
	r.watch(configMap("a", "ua", "11", "2"))
	change := r.last()
	r.commit()
	a.Read(1, &audit.Record{
		Stage: audit.Complete, Level: audit.RequestResponse, Verb: "update", Resource: "configmaps", Namespace: "shop", Name: "a", Code: 200, Expected: "5",
		Answer: &audit.Answer{Namespace: "shop", Name: "a", UID: "ua", Version: "11"}, Received: start, Reached: start,
		Actor: audit.Actor{User: audit.User{Name: "alice", Groups: []string{strings.Repeat("g", 10<<10)}}},
	}, start)
	var got []string
	for {
		ready := a.Ready(start)
		if len(ready) != 1 {
			t.Fatalf("%d changes have a verdict", len(ready))
		}
		c := ready[0]
		if a.Silent(c.Number) {
			a.Drop(c.Number)
			break
		}
		if !r.core.Attribute(c.Collection, c.Incarnation, reconcile.Attribution{ID: c.Number}) {
			t.Fatal("the core does not take the attribution")
		}
		r.step(&reconcile.Input{Kind: reconcile.Bookmark, Resume: "12"})
		e := r.last()
		if e.Type != event.Attributed || e.Attribution.Explains != change.ID || e.Attribution.Request.User.Name != "alice" {
			t.Fatalf("the event is %s %s", e.Type, e.Data)
		}
		got = append(got, strings.Join(e.Attribution.LeftOut, ","))
		items := r.core.Items()
		n := slices.IndexFunc(items, func(i reconcile.Item) bool { return i.Attribution != nil })
		if err := r.encoder.Reject(&items[n], tooLarge); err != nil {
			t.Fatal(err)
		}
		r.core.Drop(r.id)
		r.encoder.Dropped(r.id)
		r.load()
		if err := a.Restore(r.store, r.id, start); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"", "", "groups", "groups"}; !slices.Equal(got, want) {
		t.Errorf("left out are %q, want %q", got, want)
	}
}
