package encode_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// An object that the first list has left out is not created by its next change.
func TestAddedIsNoCreation(t *testing.T) {
	a := attribute.New(attribute.Options{
		Join:    join.Options{Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 100, MaxRequests: 100},
		Storage: func(join.Resource) (string, bool) { return "", true }, Inputs: 1,
	})
	r := newRig(t, configMaps, encode.Settings{SkipSnapshot: true}, func(o *encode.Options) { o.Witness, o.Chronicle = a, a })
	if err := a.Restore(r.store, "", start); err != nil {
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

// When a CustomResourceDefinition is deleted, the API server deletes its objects without a request: those with finalizers get a deletionTimestamp. A
// controller that then removes the finalizers is answered with the object in the version of that change, and has not made it.
func TestDeletionWithoutRequest(t *testing.T) {
	for name, test := range map[string]struct {
		target  event.Collection
		deleted bool // a user has deleted the object
		want    []string
	}{
		"CustomResourceDefinition deleted":  {event.Collection{Group: "example.com", Resource: "widgets"}, false, []string{"", ""}},
		"object deleted, custom resource":   {event.Collection{Group: "example.com", Resource: "widgets"}, true, []string{"", ""}},
		"object deleted, built-in resource": {configMaps, true, []string{"alice", "controller"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := attribute.New(attribute.Options{
				Join:    join.Options{Complete: true, Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 100, MaxRequests: 100},
				Storage: func(join.Resource) (string, bool) { return "", true }, Inputs: 1,
			})
			r := newRig(t, test.target, encode.Settings{}, func(o *encode.Options) { o.Witness, o.Chronicle = a, a })
			if err := a.Restore(r.store, "", start); err != nil {
				t.Fatal(err)
			}
			number := uint64(0)
			read := func(verb, user string, stage audit.Stage, answer *audit.Answer) {
				number++
				rec := audit.Record{
					ID: user, Stage: stage, Level: audit.RequestResponse, Verb: verb, Group: test.target.Group, Resource: test.target.Resource, Namespace: "shop", Name: "a",
					Received: start, Reached: start, Answer: answer, Actor: audit.Actor{User: audit.User{Name: user}},
				}
				if stage == audit.Complete {
					rec.Code, rec.Decision = 200, "allow"
				}
				a.Read(number, &rec, start)
			}
			object := func(version, ending string) string {
				return fmt.Sprintf(`{"apiVersion":"v1","kind":"X","metadata":{"name":"a","namespace":"shop","uid":"ua","resourceVersion":%q,"finalizers":["example.com/f"]%s}}`, version, ending)
			}
			const ending = `,"deletionTimestamp":"2026-11-26T00:00:00Z"`
			r.list("snapshot", "10", reconcile.Gone, object("5", ""))
			r.commit()
			read("patch", "nobody", audit.Received, nil)
			read("patch", "nobody", audit.Complete, &audit.Answer{Namespace: "shop", Name: "a", UID: "ua", Version: "5"})
			a.Floor(attribute.Resource{Resource: attribute.ResourceOf(&test.target)}, "10", number, start.Add(2*time.Minute), start.Add(2*time.Minute))
			if test.deleted {
				read("delete", "alice", audit.Received, nil)
				read("delete", "alice", audit.Complete, &audit.Answer{Namespace: "shop", Name: "a", UID: "ua", Version: "11", Ending: true})
			}
			r.watch(object("11", ending))
			read("patch", "controller", audit.Received, nil)
			a.Caught(start, number)
			r.deleted(object("12", ending))
			read("patch", "controller", audit.Complete, &audit.Answer{Namespace: "shop", Name: "a", UID: "ua", Version: "11", Ending: true, Bare: true})
			a.Caught(start.Add(time.Second), number)
			var got []string
			for _, c := range a.Ready(start.Add(time.Second)) {
				e := event.Event{Collection: &test.target}
				a.Complete(c.Number, &e)
				user := ""
				if e.Attribution.Request != nil {
					user = e.Attribution.Request.User.Name
				}
				got = append(got, user)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("the changes were made by %q, want %q", got, test.want)
			}
		})
	}
}

// An event that says who made a change never stops its collection: if the bus rejects it, there is less in it, and at last there is none.
func TestRejectedAttribution(t *testing.T) {
	a := attribute.New(attribute.Options{
		Join:    join.Options{Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 100, MaxRequests: 100},
		Storage: func(join.Resource) (string, bool) { return "", true }, Inputs: 1,
	})
	r := newRig(t, configMaps, encode.Settings{}, func(o *encode.Options) { o.Witness, o.Chronicle = a, a })
	if err := a.Restore(r.store, "", start); err != nil {
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
