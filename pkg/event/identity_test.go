package event_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Consumers drop what they have seen by its id (design rule 7): the real and the
// synthesised deletion must be one, and no two changes may be.
func TestEventID(t *testing.T) {
	pods := &event.Collection{Resource: "pods"}
	some := &event.Collection{Group: "apps", Resource: "deployments", Namespace: "shop", LabelSelector: "a=b", FieldSelector: "metadata.name=web"}
	for _, c := range []struct {
		name string
		e    event.Event
		want string
	}{
		{"added", event.Event{Type: event.Added, Collection: pods, UID: "u", ResourceVersion: "5", Entry: "5"}, "u:5:added"},
		{"modified", event.Event{Type: event.Modified, Collection: pods, UID: "u", ResourceVersion: "7", Entry: "5"}, "u:7:modified"},
		{"deleted, seen", event.Event{Type: event.Deleted, Origin: event.Watch, Collection: pods, UID: "u", ResourceVersion: "9", Entry: "5", Object: []byte(`{}`)}, "u:5:deleted"},
		{"deleted, concluded", event.Event{Type: event.Deleted, Origin: event.Reconcile, Collection: pods, UID: "u", ResourceVersion: "40", Entry: "5"}, "u:5:deleted"},
		{"left", event.Event{Type: event.Deleted, Collection: pods, UID: "u", ResourceVersion: "9", Entry: "5", Reason: "left"}, "u:5:deleted"},
		{"an entry with a counter", event.Event{Type: event.Deleted, Collection: pods, UID: "u", ResourceVersion: "9", Entry: "5.1"}, "u:5.1:deleted"},
		{"present", event.Event{Type: event.Present, Collection: pods, UID: "u", ResourceVersion: "5", Run: "r1"}, "u:5:present:r1"},
		{"the first epoch", event.Event{Type: event.Added, Collection: pods, Epoch: 1, UID: "u", ResourceVersion: "5"}, "u:5:added"},
		{"a later epoch", event.Event{Type: event.Added, Collection: pods, Epoch: 2, UID: "u", ResourceVersion: "5"}, "e2:u:5:added"},
		{"a later epoch, modified", event.Event{Type: event.Modified, Collection: pods, Epoch: 3, UID: "u", ResourceVersion: "5"}, "e3:u:5:modified"},
		{"a later epoch, deleted", event.Event{Type: event.Deleted, Collection: pods, Epoch: 2, UID: "u", ResourceVersion: "9", Entry: "5"}, "e2:u:5:deleted"},
		{"a later epoch, present", event.Event{Type: event.Present, Collection: pods, Epoch: 2, UID: "u", ResourceVersion: "5", Run: "r1"}, "e2:u:5:present:r1"},
		{"gap", event.Event{Type: event.Gap, Collection: pods, ResourceVersion: "100"}, "pods:1:100:gap"},
		{"the first gap", event.Event{Type: event.Gap, Collection: pods}, "pods:1:0:gap"},
		{"synced", event.Event{Type: event.Synced, Collection: pods, Epoch: 4, ResourceVersion: "100"}, "pods:4:100:synced"},
		{"closed", event.Event{Type: event.Closed, Collection: some, Epoch: 1}, "deployments.apps?namespace=shop&labels=a=b&fields=metadata.name=web:1:0:closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.e.ID(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestCollectionNames(t *testing.T) {
	for _, c := range []struct {
		collection       event.Collection
		id, resource, in string
	}{
		{event.Collection{Resource: "pods"}, "pods", "pods", "core"},
		{event.Collection{Group: "apps", Resource: "deployments"}, "deployments.apps", "deployments.apps", "apps"},
		{event.Collection{Group: "stable.example.com", Resource: "crontabs"}, "crontabs.stable.example.com", "crontabs.stable.example.com", "stable.example.com"},
		{event.Collection{Resource: "secrets", Namespace: "payments", LabelSelector: "audit=true"}, "secrets?namespace=payments&labels=audit=true", "secrets", "core"},
		{event.Collection{Resource: "pods", FieldSelector: "spec.nodeName=n1"}, "pods?fields=spec.nodeName=n1", "pods", "core"},
		{event.Collection{Resource: "pods", LabelSelector: "a in (b,c)", FieldSelector: "x=a&labels=b&fields=c"}, "pods?labels=a in (b,c)&fields=x=a&labels=b&fields=c", "pods", "core"},
	} {
		t.Run(c.id, func(t *testing.T) {
			if got := c.collection.ID(); got != c.id {
				t.Errorf("ID: got %s, want %s", got, c.id)
			}
			if got := c.collection.ResourceID(); got != c.resource {
				t.Errorf("ResourceID: got %s, want %s", got, c.resource)
			}
			if got := c.collection.GroupOrCore(); got != c.in {
				t.Errorf("GroupOrCore: got %s, want %s", got, c.in)
			}
			if got := event.ParseCollection(c.id); got != c.collection {
				t.Errorf("ParseCollection: got %+v, want %+v", got, c.collection)
			}
		})
	}
}

// A collection that the configuration no longer has is known by its ID alone, and
// two that share an ID would share a position.
func TestCollectionIDRoundTrip(t *testing.T) {
	optional := func(form string) *rapid.Generator[string] {
		return rapid.OneOf(rapid.Just(""), rapid.StringMatching(form))
	}
	rapid.Check(t, func(t *rapid.T) {
		c := event.Collection{
			Resource:      rapid.StringMatching(`[a-z][a-z0-9-]{0,8}`).Draw(t, "resource"),
			Group:         optional(`[a-z]{1,5}(\.[a-z]{1,5}){0,2}`).Draw(t, "group"),
			Namespace:     optional(`[a-z][a-z0-9-]{0,8}`).Draw(t, "namespace"),
			LabelSelector: optional(`(namespace=|labels=|fields=)?[a-z./]{1,6}( in | notin |=|!=)[(]?[a-zA-Z0-9,._-]{1,9}[)]?`).Draw(t, "labels"),
			MetadataOnly:  rapid.Bool().Draw(t, "metadata"),
			FieldSelector: optional(`(&|=|\?|namespace=|&labels=|&fields=|fields=)?[ -~]{1,12}(&labels=x)?`).Draw(t, "fields"),
		}
		if got := event.ParseCollection(c.ID()); got != c {
			t.Fatalf("%q: got %+v, want %+v", c.ID(), got, c)
		}
	})
}

func TestPositionResumable(t *testing.T) {
	for _, c := range []struct {
		p    event.Position
		want bool
	}{
		{event.Position{}, false},
		{event.Position{Epoch: 2}, false},
		{event.Position{RV: "5"}, true},
		{event.Position{RV: "5", Void: true}, false},
		{event.Position{Void: true}, false},
	} {
		if got := c.p.Resumable(); got != c.want {
			t.Errorf("%+v: got %t", c.p, got)
		}
	}
}

func TestTypeNames(t *testing.T) {
	for typ, want := range map[event.Type]string{
		event.Added:    "io.kubebridge.resource.added.v1",
		event.Modified: "io.kubebridge.resource.modified.v1",
		event.Deleted:  "io.kubebridge.resource.deleted.v1",
		event.Present:  "io.kubebridge.resource.present.v1",
		event.Gap:      "io.kubebridge.collection.gap.v1",
		event.Synced:   "io.kubebridge.collection.synced.v1",
		event.Closed:   "io.kubebridge.collection.closed.v1",
	} {
		if got := typ.CloudEvent(); got != want {
			t.Errorf("%d: got %s, want %s", typ, got, want)
		}
	}
	if got := event.Type(99).String(); got != "unknown" {
		t.Errorf("got %q", got)
	}
}
