package history_test

import (
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// A name that the user gives is shortened as in events.
func TestLongName(t *testing.T) {
	long := strings.Repeat("n", 180_000)
	if got, want := history.ParseName("shop/"+long), (history.Name{Namespace: "shop", Name: event.BoundName(long)}); got != want || got != history.NameOf("shop", long) {
		t.Errorf("it reads %.80q, want %.80q", got, want)
	}
	name := history.ParseName("shop/" + long[:1100])
	subjects, _ := history.Subjects([]history.Route{{Template: shape.DefaultSubject}}, "prod", discovery.ParseAll([]string{"pods"}), &name)
	if got, want := strings.Join(subjects, " "), ".pods.shop."+event.SubjectToken(long[:1100]); !strings.Contains(got, want) {
		t.Errorf("it is looked for on %q, want %q", got, want)
	}
}

// Every topic that may have events of a resource is read.
func TestTopics(t *testing.T) {
	for _, c := range []struct {
		route    history.Route
		resource string
		topic    string
		want     bool
	}{
		{history.Route{Template: "k8s.{cluster}.{group}.{resource}"}, "pods", "k8s.prod.core.pods", true},
		{history.Route{Template: "k8s.{cluster}.{group}.{resource}"}, "pods", "k8s.prod.metrics.k8s.io.pods", true},
		{history.Route{Template: "k8s.{cluster}.{group}.{resource}"}, "pods", "k8s.dev.core.pods", false},
		{history.Route{Template: "k8s.{cluster}.{group}.{resource}"}, "deployments.apps", "k8s.prod.extensions.deployments", false},
		{history.Route{Template: "k8s.{cluster}.{group}.{resource}"}, "pods.core", "k8s.prod.core.pods", true},
		{history.Route{Template: "k8s.{cluster}.{group}.{resource}"}, "pods.core", "k8s.prod.metrics.k8s.io.pods", false},
		{history.Route{Template: "k8s.{cluster}.{group}.{resource}"}, "things.coreos.com", "k8s.prod.coreos.com.things", true},
		{history.Route{Template: "k8s.{cluster}.{group}.{resource}"}, "deployments.v1.apps", "k8s.prod.apps.deployments", true},
		{history.Route{Template: "k8s.{resource}.{entry}"}, "pods", "k8s.pods.canary", true},
		{history.Route{Template: "k8s.{resource}.{entry}"}, "pods", "k8s.nodes.canary", false},
		{history.Route{Template: "audit.{cluster}", Resource: "secrets"}, "secrets", "audit.prod", true},
		{history.Route{Template: "audit.{cluster}", Resource: "secrets"}, "pods", "audit.prod", false},
		{history.Route{Template: "audit.{group}", Resource: "secrets"}, "secrets", "audit.core", true},
		{history.Route{Template: "audit.{group}", Resource: "secrets"}, "secrets", "audit.apps", false},
	} {
		if got := history.Topics([]history.Route{c.route}, "prod", []discovery.Name{discovery.Parse(c.resource)})(c.topic); got != c.want {
			t.Errorf("%+v: %s of %s: %t", c.route, c.topic, c.resource, got)
		}
	}
}

// The patterns match every subject that the bridge writes.
func TestSubjects(t *testing.T) {
	v := shape.Values{Cluster: "prod", Group: "apps", Resource: "deployments", Kind: "Deployment", Type: "added", Name: "web.a"}
	for _, text := range []string{
		shape.DefaultSubject, "k8s.{cluster}.{type}", "x.{entry}.{namespace}.{name}", "k8s.{name}.in-{namespace}.{kind}", "k8s.{resource}-{entry}", "k8s.{cluster}-{name}",
	} {
		for _, entry := range []string{"", "@", "canary", "canary@"} {
			for _, namespace := range []string{"", "shop"} {
				written := text
				if text == shape.DefaultSubject && entry != "" {
					written += ".{entry}"
				}
				template, err := shape.ParseTemplate(written, shape.SubjectNames)
				if err != nil {
					t.Fatal(err)
				}
				v.Entry, v.Namespace = entry, namespace
				all, collections := history.Subjects([]history.Route{{Template: text}}, "prod", discovery.ParseAll([]string{"deployments.apps"}), nil)
				of := template.EntryCollectionSubject(v, "reset")
				named, _ := history.Subjects([]history.Route{{Template: text}}, "prod", discovery.ParseAll([]string{"deployments.apps"}), &history.Name{Namespace: namespace, Name: "web.a"})
				if s := template.Subject(v); !fits(all, s) || !fits(named, s) || !fits(all, of) || !fits(named, of) || !fits(collections, of) {
					t.Errorf("%s, entry %q, namespace %q: %s and %s: %v, %v, %v", text, entry, namespace, s, of, all, named, collections)
				}
			}
		}
	}
}

// fits reports whether exactly one pattern matches a subject: a server rejects patterns that overlap.
func fits(patterns []string, subject string) bool {
	found := 0
	for _, p := range patterns {
		tokens, of := strings.Split(p, "."), strings.Split(subject, ".")
		if len(tokens) == len(of) {
			same := true
			for i := range tokens {
				same = same && (tokens[i] == "*" || tokens[i] == of[i])
			}
			if same {
				found++
			}
		}
	}
	return found == 1
}
