package api

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// sendObject sends an object with fields after its metadata, such as `"spec":{}`.
func (b *bus) sendObject(collection string, t event.Type, origin event.Origin, x thing, kind, apiVersion, fields string) {
	b.t.Helper()
	body := strings.TrimSuffix(string(x.body(apiVersion, kind)), "}") + "," + fields + "}"
	b.send(collection, event.Event{
		Type: t, Origin: origin, APIVersion: apiVersion, Kind: kind, Namespace: x.namespace, Name: x.name, UID: x.uid, ResourceVersion: strconv.Itoa(x.version), Object: []byte(body),
	})
}

// TestFieldSelectors: clients that select by fields, such as kubectl describe, get the objects that the API server would select. A watch shows
// objects that enter and leave the selection.
func TestFieldSelectors(t *testing.T) {
	b := newBus(t)
	pod := func(typ event.Type, origin event.Origin, x thing, fields string) {
		b.sendObject("pods", typ, origin, x, "Pod", "v1", fields)
	}
	b.gap("pods", event.ReasonReset)
	pod(event.Present, event.Snapshot, web, `"spec":{"nodeName":"n1","hostNetwork":true},"status":{"phase":"Running","podIP":"10.0.0.1"}`)
	pod(event.Present, event.Snapshot, cart, `"spec":{"nodeName":"n2"},"status":{"phase":"Pending"}`)
	pod(event.Present, event.Snapshot, log, `"spec":null,"status":{"phase":"Failed"}`)
	b.synced("pods", 50, event.ReasonReset)
	b.gap("events", event.ReasonReset)
	for i, source := range []string{`"source":{"component":"kubelet"}`, `"source":{},"reportingComponent":"kubelet"`, `"reportingComponent":"other"`} {
		x := thing{"shop", fmt.Sprint("e", i), fmt.Sprint("u-e", i), 44 + i, ""}
		b.sendObject("events", event.Present, event.Snapshot, x, "Event", "v1", `"involvedObject":{"kind":"Pod","name":"web"},"type":"Normal",`+source)
	}
	b.synced("events", 50, event.ReasonReset)
	const crds = "customresourcedefinitions.apiextensions.k8s.io"
	b.gap(crds, event.ReasonReset)
	b.sendObject(crds, event.Present, event.Snapshot, thing{"", "widgets.example.com", "u-8", 40, ""}, "CustomResourceDefinition", "apiextensions.k8s.io/v1",
		`"spec":{"names":{"kind":"Widget","categories":["all"]},"scope":"Namespaced","versions":[{"name":"v1","selectableFields":[{"jsonPath":".spec.size"},{"jsonPath":".spec.sold"}]}]}`)
	b.synced(crds, 50, event.ReasonReset)
	b.gap("widgets.example.com", event.ReasonReset)
	b.sendObject("widgets.example.com", event.Present, event.Snapshot, thing{"shop", "small", "u-9", 47, ""}, "Widget", "example.com/v1", `"spec":{"size":3,"sold":true}`)
	b.sendObject("widgets.example.com", event.Present, event.Snapshot, thing{"shop", "large", "u-10", 48, ""}, "Widget", "example.com/v1", `"spec":{"size":30}`)
	b.synced("widgets.example.com", 50, event.ReasonReset)

	events := schema.GroupVersionResource{Version: "v1", Resource: "events"}
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	for _, c := range []struct {
		resource schema.GroupVersionResource
		selector string
		want     []string
	}{
		{podsResource, "spec.nodeName=n1", []string{"web"}},
		{podsResource, "spec.nodeName!=n1", []string{"log", "cart"}},
		{podsResource, "spec.nodeName=", []string{"log"}},
		{podsResource, "status.phase=Running,spec.hostNetwork=true", []string{"web"}},
		{podsResource, "spec.hostNetwork=false", []string{"log", "cart"}},
		{podsResource, "status.podIP=10.0.0.1,metadata.namespace=shop", []string{"web"}},
		{podsResource, "status.phase=Running,metadata.name=cart", nil},
		{events, "involvedObject.kind=Pod,source=kubelet", []string{"e0", "e1"}},
		{events, "reportingComponent=other", []string{"e2"}},
		{widgets, "spec.size=3", []string{"small"}},
		{widgets, "spec.sold!=true", []string{"large"}},
	} {
		l, err := b.client("").Resource(c.resource).List(t.Context(), metav1.ListOptions{FieldSelector: c.selector})
		if err != nil {
			t.Errorf("%s: %v", c.selector, err)
			continue
		}
		var got []string
		for _, x := range l.Items {
			got = append(got, x.GetName())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s selects %v, want %v", c.selector, got, c.want)
		}
	}
	for _, c := range []struct {
		resource        schema.GroupVersionResource
		selector, known string
	}{{podsResource, "spec.none=a", "spec.nodeName"}, {widgets, "spec.none=a", "of widgets.example.com that bridge serve knows are spec.size, spec.sold, metadata.name"}} {
		_, err := b.client("").Resource(c.resource).List(t.Context(), metav1.ListOptions{FieldSelector: c.selector})
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), c.known) {
			t.Errorf("%s: %v", c.selector, err)
		}
	}
	w, err := b.client("").Resource(podsResource).Watch(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running", ResourceVersion: "50"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	cart, web := cart, web
	cart.version, web.version = 51, 52
	pod(event.Modified, event.Watch, cart, `"status":{"phase":"Running"}`)
	wantNext(t, w, "ADDED cart@51")
	pod(event.Modified, event.Watch, web, `"status":{"phase":"Failed"}`)
	wantNext(t, w, "DELETED web@52")
}

// TestLongNameSelected: a field selector with a name that is too long for an event compares it as the bus has it.
func TestLongNameSelected(t *testing.T) {
	b := newBus(t)
	long := strings.Repeat("n", event.MaxName+1)
	x := thing{"shop", event.BoundName(long), "u-1", 41, ""}
	b.snapshot("pods", 50, x, cart)
	for selector, want := range map[string]string{"metadata.name=": x.name, "metadata.name!=": "cart", "metadata.namespace=shop,metadata.name=": x.name} {
		l, err := b.client("").Resource(podsResource).List(t.Context(), metav1.ListOptions{FieldSelector: selector + long})
		if err != nil || len(l.Items) != 1 || l.Items[0].GetName() != want {
			t.Errorf("%s: %d objects (%v)", selector, len(l.Items), err)
		}
	}
}
