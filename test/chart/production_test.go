package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// productionPage returns the values and the manifests of docs/production.md. The values within manifests of GitOps tools
// are among the values.
func productionPage(t *testing.T) (valueSets []map[string]any, manifests []*unstructured.Unstructured) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root(), "docs", "production.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(raw), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(block, "```\n")
		for _, document := range strings.Split(text, "\n---\n") {
			v := map[string]any{}
			if err := yaml.UnmarshalStrict([]byte(document), &v); err != nil {
				t.Fatalf("%v:\n%s", err, document)
			}
			if v["apiVersion"] == nil {
				valueSets = append(valueSets, v)
				continue
			}
			o := &unstructured.Unstructured{Object: v}
			manifests = append(manifests, o)
			where, ok := map[string][]string{
				"Application": {"spec", "source", "helm", "values"},
				"HelmRelease": {"spec", "values"},
			}[o.GetKind()]
			if !ok {
				continue
			}
			inner, found, err := unstructured.NestedMap(v, where...)
			if text, isText, _ := unstructured.NestedString(v, where...); isText {
				found, err = true, yaml.UnmarshalStrict([]byte(text), &inner)
			}
			if err != nil || !found {
				t.Fatalf("%s has no %s: %v", o.GetKind(), strings.Join(where, "."), err)
			}
			valueSets = append(valueSets, inner)
		}
	}
	// Values without config are added to the first ones, as the page says.
	for _, v := range valueSets {
		if v["config"] == nil {
			v["config"] = valueSets[0]["config"]
		}
	}
	return valueSets, manifests
}

// All values of the page are rendered, and the names that the page uses are those of its release.
func TestProductionValues(t *testing.T) {
	t.Parallel()
	valueSets, manifests := productionPage(t)
	if len(valueSets) != 5 || len(manifests) != 6 {
		t.Errorf("the page has %d values and %d manifests, want 5 and 6: correct the numbers if the page has changed", len(valueSets), len(manifests))
	}
	for i, v := range valueSets {
		if _, err := render(chart(t), v); err != nil {
			t.Errorf("values %d: %v", i, err)
		}
	}
	all, err := renderAs(chart(t), valueSets[0], "bridge", "kubebridge")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(all.objects, "\n---\n")
	for _, part := range []string{
		"kind: PodMonitor", "kind: PrometheusRule", "release: prometheus", "grafana_dashboard", "kubebridge-bridge-kubebridge", "secretName: bus-login",
		"name: bridge-kubebridge\n", "namespace: kubebridge\n",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the first values render no %q", part)
		}
	}
}

// An API server accepts everything that the page installs: what its values render to, and its manifests.
func TestProductionDryRun(t *testing.T) {
	g := newGitops(t)
	for _, kind := range []schema.GroupVersionKind{
		{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"},
		{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"},
		{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"},
		{Group: "kafka.strimzi.io", Version: "v1", Kind: "KafkaUser"},
		{Group: "kafka.strimzi.io", Version: "v1", Kind: "KafkaTopic"},
	} {
		plural := strings.ToLower(kind.Kind) + "s"
		if kind.Kind == "GitRepository" {
			plural = "gitrepositories"
		}
		g.customResource(kind, plural)
	}
	valueSets, manifests := productionPage(t)
	g.namespaces(manifests)
	for _, o := range manifests {
		g.apply(o, true)
	}
	for _, v := range valueSets {
		objects := g.rendered(v)
		g.namespaces(objects)
		for _, o := range objects {
			g.apply(o, true)
		}
	}
}
