package attribution

import (
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// A refused request is among the events of a collection that can have what it was for. What the configuration leaves out is not published.
func TestWhatRefusedRequestsConcern(t *testing.T) {
	everywhere := event.Collection{Resource: "pods"}
	shop := event.Collection{Resource: "pods", Namespace: "shop"}
	without := event.Collection{Resource: "pods", FieldSelector: "metadata.namespace!=shop,metadata.namespace!=kube-system"}
	named := event.Collection{Resource: "pods", FieldSelector: "metadata.name=web,spec.nodeName=a"}
	for _, c := range []struct {
		name       string
		collection event.Collection
		r          audit.Record
		want       bool
	}{
		{"a name", everywhere, audit.Record{Resource: "pods", Namespace: "shop", Name: "web"}, true},
		{"a subresource", everywhere, audit.Record{Resource: "pods", Subresource: "exec", Namespace: "shop", Name: "web"}, true},
		{"another resource", everywhere, audit.Record{Resource: "secrets", Namespace: "shop"}, false},
		{"another group", everywhere, audit.Record{Group: "metrics.k8s.io", Resource: "pods", Namespace: "shop"}, false},
		{"the namespace", shop, audit.Record{Resource: "pods", Namespace: "shop"}, true},
		{"another namespace", shop, audit.Record{Resource: "pods", Namespace: "bank", Name: "web"}, false},
		{"all namespaces", shop, audit.Record{Resource: "pods"}, true},
		{"an excluded namespace", without, audit.Record{Resource: "pods", Namespace: "kube-system"}, false},
		{"a namespace that is not excluded", without, audit.Record{Resource: "pods", Namespace: "bank"}, true},
		{"all but the excluded namespaces", without, audit.Record{Resource: "pods"}, true},
		{"the selected name", named, audit.Record{Resource: "pods", Namespace: "shop", Name: "web"}, true},
		{"another name", named, audit.Record{Resource: "pods", Namespace: "shop", Name: "api"}, false},
		{"any name", named, audit.Record{Resource: "pods", Namespace: "shop"}, true},
		{"events in their other group", event.Collection{Group: "events.k8s.io", Resource: "events"}, audit.Record{Resource: "events"}, true},
		{"no object", everywhere, audit.Record{}, false},
	} {
		if got := concerns(&c.collection, &c.r); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

// Refused requests are published once, also after a restart that reads their records again. Others are not, nor those of another resource.
func TestRefusedRequestsFollow(t *testing.T) {
	a, store := newDenying(t)
	requests := func(user string) {
		t.Helper()
		r := audit.Record{
			ID: user, Stage: audit.Complete, Level: audit.Metadata, Verb: "get", Resource: "configmaps", Namespace: "a", Name: "x", Code: 403, Decision: "forbid",
			Received: time.Now(), Reached: time.Now(), Actor: audit.Actor{User: audit.User{Name: user}},
		}
		other, allowed, open := r, r, r
		other.Resource, other.ID = "secrets", user+"-other"
		allowed.Decision, allowed.ID = "allow", user+"-allowed"
		open.Stage, open.ID = audit.Received, user+"-open"
		if err := a.Append([]audit.Record{other, allowed, open, r, r}); err != nil {
			t.Fatal(err)
		}
	}
	run := func(do func(r *rig)) {
		t.Helper()
		r := newRig(t, &nowhere{}, store, a.spec, configMaps)
		defer r.stop()
		defer r.followsAudit(a)()
		do(r)
	}
	published := func(r *rig, n uint64) {
		t.Helper()
		r.shows("refused requests", func(s shown) bool {
			return s.Denied == n && s.DeniedWaiting == 0
		})
	}
	requests("alice")
	run(func(r *rig) {
		r.snapshot("10")
		published(r, 1)
		requests("bob")
		published(r, 2)
	})
	requests("carol")
	run(func(r *rig) { published(r, 1) })
}
