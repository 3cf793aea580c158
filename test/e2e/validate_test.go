package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// `validate --connect` reports all errors of a configuration that only the cluster can detect, each with its remedy.
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
		// Not "*.*", because parallel tests create resources whose conversion fails.
		{"all is well", w.cluster.Kubeconfig(), `["*.core", "*.rbac.authorization.k8s.io", "*.apps", pods, {resource: events, fieldSelector: type=Warning}]`, 0, []string{"ok"}},
		{"resources", w.cluster.Kubeconfig(), `[unicorns, "*.example.com", {resource: pods, fieldSelector: spec.color=red}, deployments.v7.apps, {resource: nodes, namespaces: [a]}]`, exitEnvironment, []string{
			`bridge.yaml:5:13: resource "unicorns": the server has no such resource`,
			`pattern "*.example.com": the server has no such resource`,
			`bridge.yaml:5:40: collection pods: the server does not support this selector`,
			`resource "deployments.v7.apps": the server has no such resource in version v7: it is served in v1`,
			`resource "nodes": it is cluster-scoped: remove its namespaces`,
		}},
		// Only the cluster knows that two names mean one resource.
		{"one resource by two names", w.cluster.Kubeconfig(), `[deployments.apps, deploy, {resource: deploy, name: x}, {resource: deployments, name: x}]`, exitEnvironment, []string{
			`bridge.yaml:5:31: resource "deploy": name: another entry of deployments.apps has no name either, "deployments.apps" (at `,
			`bridge.yaml:5:68: resource "deployments:x": name: another entry of deployments.apps has the name "x" too, "deploy:x" (at `,
		}},
		{"entries that may select the same objects", w.cluster.Kubeconfig(), `[deployments.apps, {resource: deploy, name: x, labelSelector: track=canary}]`, 0, []string{
			`bridge: warning: `, `bridge.yaml:5:31: resource "deploy:x": it may select the same deployments.apps as "deployments.apps" (at `,
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
