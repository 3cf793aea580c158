package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// What the cluster does not take must be told before anything runs: all of it at once, each with what to do.
func TestValidateConnect(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	user := "reader-" + w.ns
	w.allow(user, "namespaces", "get")
	w.allow(user, "configmaps", "list", "watch")
	limited, err := w.cluster.KubeconfigFor(user)
	w.must(err)
	for _, c := range []struct {
		name, kubeconfig, resources string
		exit                        int
		words                       []string
	}{
		// Not "*.*": beside this test others break the conversion of resources that they make.
		{"all is well", w.cluster.Kubeconfig(), `["*.core", "*.rbac.authorization.k8s.io", "*.apps", pods, {resource: events, fieldSelector: type=Warning}]`, 0, []string{"ok"}},
		{"resources", w.cluster.Kubeconfig(), `[unicorns, "*.example.com", {resource: pods, fieldSelector: spec.color=red}, deployments.v7.apps, {resource: nodes, namespaces: [a]}]`, exitEnvironment, []string{
			`resource "unicorns": the server has no such resource`,
			`pattern "*.example.com": the server has no such resource`,
			`collection pods?fields=spec.color=red: the server does not support this selector`,
			`resource "deployments.v7.apps": the server has no such resource in version v7: it is served in v1`,
			`resource "nodes": it is cluster-scoped: remove its namespaces`,
		}},
		{"permissions", limited, fmt.Sprintf(`[configmaps, {resource: secrets, namespaces: [%s]}]`, w.ns), exitEnvironment, []string{
			"forbidden", "grant list and watch on secrets in namespace " + w.ns,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{t: t}
			path := filepath.Join(t.TempDir(), "bridge.yaml")
			w.must(os.WriteFile(path, fmt.Appendf(nil, "cluster: here\nkubernetes: {kubeconfig: %q}\ncheckpoint: {file: {path: /nowhere}}\nsinks: [{name: out, stdout: {}}]\nresources: %s\n", c.kubeconfig, c.resources), 0o600))
			p := w.launch("validate", "--connect", "-c", path)
			w.exits(p, c.exit)
			says(t, p.Log()+p.Output(), c.words...)
		})
	}
}
