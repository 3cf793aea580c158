package nats

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A name that was shortened is looked for as it was published.
func TestLongName(t *testing.T) {
	long := strings.Repeat("n", 1100)
	name := bus.Object{Namespace: "shop", Name: event.BoundName(long)}
	all, _ := subjects([]string{shape.DefaultSubject}, "prod", discovery.ParseAll([]string{"pods"}), &name)
	if got, want := strings.Join(all, " "), ".pods.shop."+event.SubjectToken(name.Name); !strings.Contains(got, want) {
		t.Errorf("it is looked for on %q, want %q", got, want)
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
				all, collections := subjects([]string{text}, "prod", discovery.ParseAll([]string{"deployments.apps"}), nil)
				of := template.EntryCollectionSubject(v, "reset")
				named, _ := subjects([]string{text}, "prod", discovery.ParseAll([]string{"deployments.apps"}), &bus.Object{Namespace: namespace, Name: "web.a"})
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
