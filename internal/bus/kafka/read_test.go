package kafka

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every topic that may have events of a resource is read.
func TestTopics(t *testing.T) {
	for _, c := range []struct {
		route    route
		resource string
		topic    string
		want     bool
	}{
		{route{template: "k8s.{cluster}.{group}.{resource}"}, "pods", "k8s.prod.core.pods", true},
		{route{template: "k8s.{cluster}.{group}.{resource}"}, "pods", "k8s.prod.metrics.k8s.io.pods", true},
		{route{template: "k8s.{cluster}.{group}.{resource}"}, "pods", "k8s.dev.core.pods", false},
		{route{template: "k8s.{cluster}.{group}.{resource}"}, "deployments.apps", "k8s.prod.extensions.deployments", false},
		{route{template: "k8s.{cluster}.{group}.{resource}"}, "pods.core", "k8s.prod.core.pods", true},
		{route{template: "k8s.{cluster}.{group}.{resource}"}, "pods.core", "k8s.prod.metrics.k8s.io.pods", false},
		{route{template: "k8s.{cluster}.{group}.{resource}"}, "things.coreos.com", "k8s.prod.coreos.com.things", true},
		{route{template: "k8s.{cluster}.{group}.{resource}"}, "deployments.v1.apps", "k8s.prod.apps.deployments", true},
		{route{template: "k8s.{resource}.{entry}"}, "pods", "k8s.pods.canary", true},
		{route{template: "k8s.{resource}.{entry}"}, "pods", "k8s.nodes.canary", false},
		{route{template: "audit.{cluster}", resource: "secrets"}, "secrets", "audit.prod", true},
		{route{template: "audit.{cluster}", resource: "secrets"}, "pods", "audit.prod", false},
		{route{template: "audit.{group}", resource: "secrets"}, "secrets", "audit.core", true},
		{route{template: "audit.{group}", resource: "secrets"}, "secrets", "audit.apps", false},
	} {
		if got := matchTopics([]route{c.route}, "prod", []discovery.Name{discovery.Parse(c.resource)})(c.topic); got != c.want {
			t.Errorf("%+v: %s of %s: %t", c.route, c.topic, c.resource, got)
		}
	}
}

// The topics of all entries are read, and no others. A collection that has moved between two topics is complete in each while it was there.
func TestTopicsOfEntries(t *testing.T) {
	s := &bus.Setup{}
	for _, r := range []bus.Resource{
		{Name: "pods"},
		{Name: "pods", Entry: "canary", Topic: "canary.{resource}"},
		{Name: "deploy", Topic: "rollouts.{entry}"},
		{Name: "deploy", Entry: "two", Topic: "rollouts.{entry}"},
		{Name: "*.apps", Topic: "apps.{resource}"},
		{Name: "*.*", Topic: "other.{group}"},
		{Name: "certs", Topic: "c"},
	} {
		r.Parsed = discovery.Parse(r.Name)
		s.Resources = append(s.Resources, r)
	}
	routes := (&Config{Topic: "k8s.{resource}"}).routes(s)
	for topic, want := range map[string]string{
		"k8s.pods": "pods", "canary.pods": "pods", "canary.nodes": "", "k8s.deployments": "deployments.apps",
		"rollouts.two": "deployments.apps", "rollouts._": "deployments.apps",
		"apps.deployments": "deployments.apps", "apps.replicasets": "replicasets.apps", "other.batch": "pods jobs.batch",
		"c": "pods deployments.apps replicasets.apps jobs.batch certs.example.com", "other": "",
	} {
		var got []string
		for _, resource := range []string{"pods", "deployments.apps", "replicasets.apps", "jobs.batch", "certs.example.com"} {
			if matchTopics(routes, "x", discovery.ParseAll([]string{resource}))(topic) {
				got = append(got, resource)
			}
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s is read for %v, want %s", topic, got, want)
		}
	}
}
