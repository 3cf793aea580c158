package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"
)

// Templates have only this table to resolve a short name. A name that is missing is refused, and a wrong row leads to a rule
// that grants nothing.
func TestKnownResources(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(chartDir(), "files", "kubernetes-resources.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var known map[string]map[string][]string
	if err := yaml.UnmarshalStrict(raw, &known); err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]map[string][]string{}
	for _, list := range lists {
		group, _, ok := strings.Cut(list.GroupVersion, "/")
		if !ok {
			group = ""
		}
		if group == "monitoring.coreos.com" {
			continue // of other tests
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "watch") || !slices.Contains(r.Verbs, "list") {
				continue
			}
			names := []string{}
			if r.SingularName != r.Name {
				names = append(names, r.SingularName)
			}
			if served[group] == nil {
				served[group] = map[string][]string{}
			}
			served[group][r.Name] = append(names, r.ShortNames...)
		}
	}
	if diff := gocmp.Diff(served, known); diff != "" {
		t.Errorf("the table is not what the server has (-served +table):\n%s", diff)
	}
}

// The bridge must accept the configuration that the chart renders.
func TestConfigIsTheBridges(t *testing.T) {
	t.Parallel()
	for _, path := range goodValues(t) {
		t.Run(name(path), func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range []string{"key", "password"} {
				write(t, filepath.Join(dir, "credentials", f), "0123456789abcdef")
			}
			text := ""
			for _, manifest := range rendering(t, path).objects {
				switch o := decode(t, manifest).(type) {
				case *corev1.ConfigMap:
					text += o.Data["config.yaml"]
				case *corev1.Secret:
					text += string(o.Data["config.yaml"])
				}
			}
			file := write(t, filepath.Join(dir, "config.yaml"), strings.ReplaceAll(text, "/etc/kubebridge/", dir+"/"))
			if out, err := exec.Command(bridge, "validate", "-c", file).CombinedOutput(); err != nil || text == "" {
				t.Errorf("%v: %s\n%s", err, out, text)
			}
		})
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
