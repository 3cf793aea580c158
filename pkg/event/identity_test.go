package event_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// A deletion that the watch reported and one that a list proved must have the same id, and no two events of a run may share an
// id.
func TestEventID(t *testing.T) {
	pods := &event.Collection{Resource: "pods", LabelSelector: "a=b", MetadataOnly: true}
	some := &event.Collection{Group: "apps", Resource: "deployments", Entry: "canary", Namespace: "shop"}
	for _, c := range []struct {
		name string
		e    event.Event
		want string
	}{
		{"added", event.Event{Type: event.Added, Collection: pods, UID: "u", ResourceVersion: "5"}, "pods:7:u:5:added"},
		{"modified", event.Event{Type: event.Modified, Collection: some, UID: "u", ResourceVersion: "8"}, "deployments.apps:canary@shop:7:u:8:modified"},
		{"deleted, seen", event.Event{Type: event.Deleted, Origin: event.Watch, Collection: pods, UID: "u", ResourceVersion: "5", DeletionVersion: "9", Object: []byte(`{}`)}, "pods:7:u:5:deleted"},
		{"deleted, proved", event.Event{Type: event.Deleted, Origin: event.Reconcile, Collection: pods, UID: "u", ResourceVersion: "5", DeletionVersion: "40", Reason: "unknown"}, "pods:7:u:5:deleted"},
		{"present", event.Event{Type: event.Present, Collection: pods, Epoch: 2, UID: "u", ResourceVersion: "5"}, "pods:7:u:5:present"},
		{"gap", event.Event{Type: event.Gap, Collection: pods, ResourceVersion: "100"}, "pods:7:gap"},
		{"synced", event.Event{Type: event.Synced, Collection: pods, Nth: 2, ResourceVersion: "100"}, "pods:7:2:synced"},
		{"closed", event.Event{Type: event.Closed, Collection: some}, "deployments.apps:canary@shop:7:closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.e.Run, c.e.Incarnation = "7", 3
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
		{event.Collection{Resource: "pods", Namespace: "shop"}, "pods@shop", "pods", "core"},
		{event.Collection{Group: "stable.example.com", Resource: "crontabs"}, "crontabs.stable.example.com", "crontabs.stable.example.com", "stable.example.com"},
		{event.Collection{Group: "apps", Resource: "deployments", Entry: "canary"}, "deployments.apps:canary", "deployments.apps", "apps"},
		{event.Collection{Group: "apps", Resource: "deployments", Entry: "canary", Namespace: "shop"}, "deployments.apps:canary@shop", "deployments.apps", "apps"},
	} {
		t.Run(c.id, func(t *testing.T) {
			if got := c.collection.ResourceID(); got != c.resource {
				t.Errorf("ResourceID: got %s, want %s", got, c.resource)
			}
			if got := c.collection.GroupOrCore(); got != c.in {
				t.Errorf("GroupOrCore: got %s, want %s", got, c.in)
			}
			if got := event.ParseCollection(c.id); got != c.collection {
				t.Errorf("ParseCollection: got %+v, want %+v", got, c.collection)
			}
			if got := event.ParseCollection(c.resource); got != (event.Collection{Group: c.collection.Group, Resource: c.collection.Resource}) {
				t.Errorf("ParseCollection of the resource: got %+v", got)
			}
			c.collection.LabelSelector, c.collection.FieldSelector, c.collection.MetadataOnly = "a=b", "metadata.name=c", true
			if got := c.collection.ID(); got != c.id {
				t.Errorf("ID: got %s, want %s", got, c.id)
			}
		})
	}
}

// A collection that the configuration no longer has can only be identified by its ID, and two collections with the same ID
// would share a position.
func TestCollectionIDRoundTrip(t *testing.T) {
	optional := func(form string) *rapid.Generator[string] {
		return rapid.OneOf(rapid.Just(""), rapid.StringMatching(form))
	}
	rapid.Check(t, func(t *rapid.T) {
		c := event.Collection{
			Resource:  rapid.StringMatching(`[a-z][a-z0-9-]{0,8}`).Draw(t, "resource"),
			Group:     optional(`[a-z]{1,5}(\.[a-z]{1,5}){0,2}`).Draw(t, "group"),
			Entry:     optional(`[a-z][a-z0-9-]{0,8}`).Draw(t, "entry"),
			Namespace: optional(`[a-z][a-z0-9-]{0,8}`).Draw(t, "namespace"),
		}
		if got := event.ParseCollection(c.ID()); got != c {
			t.Fatalf("%q: got %+v, want %+v", c.ID(), got, c)
		}
	})
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
