package access

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// An API server gets the policy as it is printed. test/cluster checks that it accepts these files.
func TestAuditPolicy(t *testing.T) {
	const sinks = "\nsinks: [{name: a, kafka: {brokers: ['k:9092']}}]"
	const webhook = "audit: {path: /audit, webhook: {listen: ':8444', certFile: /c, keyFile: /k, tokenFile: /t}}\n"
	for name, text := range map[string]string{
		"resources": webhook + "redact: [{preset: podEnv}]\nresources: [deployments.apps, secrets, events, services, {resource: configmaps, namespaces: [b, a]}, " +
			"{resource: roles.rbac.authorization.k8s.io, namespaces: [a, b]}, {resource: nodes, drop: [status]}]" + sinks,
		"patterns": "audit: {path: /audit, file: /var/log/audit.log, complete: true, requestTimeout: 30s}\nexclude: [leases.coordination.k8s.io, '*.acme.cert-manager.io']\n" +
			"redact: [{paths: [spec.key], resources: [issuers.cert-manager.io, jobs]}]\n" +
			"resources: ['*.cert-manager.io', '*.batch', '*.events.k8s.io', {resource: secrets, namespaces: [a]}]" + sinks,
		"everything": "redact: [{preset: configMapKeys, keys: pass}]\nresources: ['*.*']\nexclude: [events, '*.coordination.k8s.io', endpoints]" + sinks,
		"two-sinks": webhook + "resources: [pods]\nsinks: [{name: a, kafka: {brokers: ['k:9092']}}, {name: b, kafka: {brokers: ['k:9092'], topic: other}, resources: [" +
			"{resource: pods, namespaces: [a], redact: [spec.containers]}, {resource: configmaps, namespaces: [a]}]}]",
		"denied": "audit: {path: /audit, file: /var/log/audit.log, denied: true}\nexclude: [events]\n" +
			"resources: [secrets, {resource: pods, namespaces: [a, b]}, '*.apps', '*.events.k8s.io']" + sinks,
		"denied-everything": "audit: {path: /audit, file: /var/log/audit.log, denied: true}\nresources: ['*.*']\nexclude: [leases.coordination.k8s.io]" + sinks,
		"hidden-everywhere": webhook + "redact: [{preset: lastApplied}]\nresources: ['*.*']" + sinks,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := ForAudit(parse(t, text), ClusterOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			if err := p.WriteYAML(&got); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "audit-policy-"+name+".yaml")
			if *update {
				if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("the policy is not %s: if that is meant, run go test ./internal/operate/access -update\n%s", path, &got)
			}
		})
	}
}

// A rule with a short name of a custom resource hides nothing, and the bridge does not publish the resource until the name is corrected. API
// servers do not record its bodies either.
func TestAuditPolicyKnowsOtherNames(t *testing.T) {
	v := metav1.GroupVersionForDiscovery{GroupVersion: "velero.io/v1", Version: "v1"}
	catalog := discovery.NewCatalog([]*metav1.APIGroup{{Name: "velero.io", PreferredVersion: v, Versions: []metav1.GroupVersionForDiscovery{v}}}, []*metav1.APIResourceList{{
		GroupVersion: "velero.io/v1",
		APIResources: []metav1.APIResource{{Name: "backups", Kind: "Backup", ShortNames: []string{"bk"}, Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}}},
	}}, nil)
	for _, name := range []string{"backups", "backup", "bk", "bk.velero.io"} {
		for _, resource := range []string{"backups.velero.io", "'*.velero.io'", "'*.*'"} {
			text := "audit: {path: /audit, file: /var/log/audit.log}\nredact: [{paths: [spec.key], resources: [" + name + "]}]\nresources: [" + resource + "]\n" +
				"sinks: [{name: a, kafka: {brokers: ['k:9092']}}]"
			p, err := ForAudit(parse(t, text), ClusterOptions{Catalog: catalog})
			if err != nil {
				t.Fatal(err)
			}
			level := ""
			for _, r := range p.Rules {
				if list := r.Resources["velero.io"]; level == "" && slices.Contains(list, "backups") {
					level = r.Level
				}
			}
			if level != levelMetadata {
				t.Errorf("%s, with a rule for %s: bodies are recorded: %+v", resource, name, p.Rules)
			}
		}
	}
}
