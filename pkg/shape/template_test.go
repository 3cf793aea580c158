package shape_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/shape"
)

const usual = "k8s.{cluster}.{group}.{resource}.{namespace}.{name}"

func template(t rapid.TB, text string, allowed []string) *shape.Template {
	t.Helper()
	tpl, err := shape.ParseTemplate(text, allowed)
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

func TestTemplatesThatAreWrong(t *testing.T) {
	for _, c := range []struct {
		text    string
		allowed []string
		want    string
	}{
		{"k8s.{kind}", shape.KeyNames, "{kind} is not one of {cluster}, {group}, {resource}, {entry}, {namespace}, {name}: it may differ between two events of one object"},
		{"k8s.{version}", shape.TopicNames, "{version} is not one of"},
		{"k8s.{version}", shape.SubjectNames, "{version} is not one of"},
		{"k8s.{type}", shape.TopicNames, "{type} is not one of"},
		{"k8s.{namespace}", shape.TopicNames, "{namespace} is not one of {cluster}, {group}, {resource}, {entry}: it is not known when a collection begins"},
		{"k8s.{label:team}", shape.SubjectNames, "it may change while an object lives"},
		{"k8s.{annotation:a/b}", shape.KeyNames, "it may change while an object lives"},
		{"{label:}", shape.HeaderNames, `"" cannot be the key`},
		{"{label:a b}", shape.HeaderNames, `"a b" cannot be the key`},
		{"{label:a/b/c}", shape.HeaderNames, `"a/b/c" cannot be the key`},
		{"{labels:a}", shape.HeaderNames, "{annotation:KEY}"},
		{"{label}", shape.HeaderNames, "{label} is not one of"},
		{"k8s.{Cluster}", shape.TopicNames, "{Cluster} is not one of"},
		{"k8s.{ cluster }", shape.TopicNames, "{ cluster } is not one of"},
		{"k8s.{}", shape.TopicNames, "{} is not one of"},
		{"k8s.{cluster", shape.TopicNames, "a { without its }"},
		{"k8s.{", shape.TopicNames, "a { without its }"},
		{"k8s.cluster}", shape.TopicNames, "a } without its {"},
		{"}{cluster}", shape.TopicNames, "a } without its {"},
		{"{cluster}}", shape.TopicNames, "a } without its {"},
		{"{{cluster}}", shape.TopicNames, "{{cluster} is not one of"},
	} {
		_, err := shape.ParseTemplate(c.text, c.allowed)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"`+c.text+`"`) {
			t.Errorf("%s: got %v, want %q", c.text, err, c.want)
		}
	}
}

func TestTopic(t *testing.T) {
	for _, c := range []struct {
		text string
		v    shape.Values
		want string
	}{
		{"k8s.{cluster}.{group}.{resource}", shape.Values{Cluster: "prod-eu.1", Group: "apps", Resource: "deployments"}, "k8s.prod-eu.1.apps.deployments"},
		{"k8s.{cluster}.{group}.{resource}", shape.Values{Cluster: "prod", Resource: "pods", Namespace: "shop", Name: "web-0"}, "k8s.prod.core.pods"},
		{"{resource}-{group}-{resource}", shape.Values{Resource: "pods"}, "pods-core-pods"},
		{"all", shape.Values{Cluster: "prod", Resource: "pods"}, "all"},
		{"{cluster}", shape.Values{}, "_"},
	} {
		if got := template(t, c.text, shape.TopicNames).Topic(c.v); got != c.want {
			t.Errorf("%s: got %s, want %s", c.text, got, c.want)
		}
	}
}

// The server accepts "*" and ">" in a published subject, and the names of RBAC objects contain these characters, colons and
// dots.
func TestSubject(t *testing.T) {
	v := func(group, resource, namespace, name string) shape.Values {
		return shape.Values{Cluster: "prod-eu.1", Group: group, Resource: resource, Namespace: namespace, Name: name}
	}
	for _, c := range []struct {
		text string
		v    shape.Values
		want string
	}{
		{usual, v("", "pods", "shop", "web-0"), "k8s.prod-eu_1.core.pods.shop.web-0"},
		{usual, v("", "nodes", "", "ip-10-0-0-1.ec2.internal"), "k8s.prod-eu_1.core.nodes._.ip-10-0-0-1_ec2_internal"},
		{usual, v("rbac.authorization.k8s.io", "clusterroles", "", "system:node:*"), "k8s.prod-eu_1.rbac_authorization_k8s_io.clusterroles._.system=3Anode=3A=2A"},
		{usual, v("", "configmaps", "a", ">"), "k8s.prod-eu_1.core.configmaps.a.=3E"},
		{usual, v("", "configmaps", "a", "_"), "k8s.prod-eu_1.core.configmaps.a.=5F"},
		{usual, v("", "configmaps", "a", ""), "k8s.prod-eu_1.core.configmaps.a._"},
		{usual, v("", "configmaps", "a b", "é\n"), "k8s.prod-eu_1.core.configmaps.a=20b.=C3=A9=0A"},
		{"{name}.{name}", v("", "", "", "x.y"), "x_y.x_y"},
		{"fixed", v("", "pods", "shop", "web-0"), "fixed"},
		{"{kind}.{type}.{name}", shape.Values{Kind: "Pod", Type: "added", Name: "a"}, "Pod.added.a"},
	} {
		if got := template(t, c.text, shape.SubjectNames).Subject(c.v); got != c.want {
			t.Errorf("%s with %+v: got %s, want %s", c.text, c.v, got, c.want)
		}
	}
}

// On a compacted topic, or on a stream that keeps only the last message of a subject, two collections with the same object must
// not share a key or a subject. Topics cannot contain @.
func TestEntry(t *testing.T) {
	v := shape.Values{Cluster: "prod", Resource: "pods", Namespace: "shop", Name: "web-0"}
	for entry, want := range map[string][3]string{
		"":        {"k8s.pods._", "prod/core/pods/shop/web-0/_", usualPod + "._"},
		"@":       {"k8s.pods._", "prod/core/pods/shop/web-0/@", usualPod + ".=40"},
		"canary":  {"k8s.pods.canary", "prod/core/pods/shop/web-0/canary", usualPod + ".canary"},
		"canary@": {"k8s.pods.canary", "prod/core/pods/shop/web-0/canary@", usualPod + ".canary=40"},
	} {
		v.Entry = entry
		got := [3]string{
			template(t, "k8s.{resource}.{entry}", shape.TopicNames).Topic(v),
			string(template(t, shape.DefaultKey+"/{entry}", shape.KeyNames).AppendKey(nil, v)),
			template(t, shape.DefaultSubject+".{entry}", shape.SubjectNames).Subject(v),
		}
		if got != want {
			t.Errorf("entry %q: got %q, want %q", entry, got, want)
		}
	}
}

const usualPod = "k8s.prod.core.pods.shop.web-0"

// docs/events.md promises where subscribers find the events about collections.
func TestEntryCollectionSubject(t *testing.T) {
	pods := shape.Values{Cluster: "prod", Resource: "pods", Type: "gap"}
	canary := shape.Values{Cluster: "prod", Group: "apps", Resource: "deployments", Namespace: "shop", Entry: "canary@", Type: "closed"}
	for _, c := range []struct {
		text string
		v    shape.Values
		kind string
		want string
	}{
		{shape.DefaultSubject, pods, "gap", "k8s.prod.core.pods._collection.gap._._"},
		{shape.DefaultSubject + ".{entry}", canary, "reset", "k8s.prod.apps.deployments._collection.reset.shop.canary=40"},
		{"k8s.{resource}.{namespace}.{name}", canary, "synced", "k8s.deployments._collection.synced.shop.canary=40"},
		{"k8s.{entry}.{namespace}.{name}", canary, "reset", "k8s.canary=40._collection.reset.shop"},
		{"k8s.{resource}.{namespace}", canary, "reset", "k8s.deployments._collection.reset.shop.canary=40"},
		{"k8s.{name}.in.{namespace}", pods, "gap", "k8s.gap._.in._collection._"},
		{"k8s", pods, "gap", "k8s._collection.gap._._"},
		{"k8s.{kind}.{type}.{name}", canary, "reset", "k8s._.closed.reset.shop._collection.canary=40"},
	} {
		if got := template(t, c.text, shape.SubjectNames).EntryCollectionSubject(c.v, c.kind); got != c.want {
			t.Errorf("%s: got %s, want %s", c.text, got, c.want)
		}
	}
}

func anyName() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.Just(""), rapid.SampledFrom([]string{"_collection", ".collection", "collection", "gap", "_", "."}),
		rapid.StringMatching(`[a-z._:*>=-]{1,6}`), rapid.String(),
	)
}

// For any names of objects, a subject has as many tokens as its template, and no token is empty or a wildcard. Two objects
// never share a subject, and no object has the subject of a collection.
func TestSubjectsAreUnique(t *testing.T) {
	tpl := template(t, usual, shape.SubjectNames)
	seen := map[string]shape.Values{}
	rapid.Check(t, func(t *rapid.T) {
		v := shape.Values{Cluster: "prod", Group: rapid.SampledFrom([]string{"apps", "a.b", "a_b"}).Draw(t, "group"), Resource: "things", Namespace: anyName().Draw(t, "namespace"), Name: anyName().Draw(t, "name")}
		subject := tpl.Subject(v)
		tokens := strings.Split(subject, ".")
		if len(tokens) != 6 {
			t.Fatalf("%+v: %s", v, subject)
		}
		for _, token := range tokens {
			if strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=") != "" || token == "" {
				t.Fatalf("%+v: %s", v, subject)
			}
		}
		if other, ok := seen[subject]; ok && other != v {
			t.Fatalf("%+v and %+v share %s", v, other, subject)
		}
		seen[subject] = v
		if tokens[4] == "_collection" && v.Namespace != ".collection" {
			t.Fatalf("%+v: looks like a collection's: %s", v, subject)
		}
	})
}

// An object that is deleted and created again, or served in another version, must stay in its partition.
func TestKey(t *testing.T) {
	for _, c := range []struct {
		v    shape.Values
		want string
	}{
		{shape.Values{Cluster: "prod", Resource: "pods", Namespace: "shop", Name: "web-0"}, "prod/core/pods/shop/web-0"},
		{shape.Values{Cluster: "prod", Resource: "nodes", Name: "n.1"}, "prod/core/nodes/_/n.1"},
		{shape.Values{Cluster: "prod", Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: "system:node:*"}, "prod/rbac.authorization.k8s.io/clusterroles/_/system:node:*"},
	} {
		if got := string(template(t, shape.DefaultKey, shape.KeyNames).AppendKey(nil, c.v)); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
