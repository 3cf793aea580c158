package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/history"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestPastUsage: what cannot be answered is said in a line, with the code of whose
// mistake it is, before any bus is asked.
func TestPastUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	text := `
cluster: prod
resources: [pods]
sinks:
  - {name: a, kafka: {brokers: ["127.0.0.1:1"]}}
  - {name: b, nats: {url: "nats://127.0.0.1:1"}}
  - {name: c, stdout: {}}
checkpoint: {file: {path: ` + t.TempDir() + `}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, says string
		code       int
	}{
		{"state", "give --at, or --diff", exitConfig},
		{"state --at yesterday --sink a", `"yesterday" is neither a time like`, exitConfig},
		{"state --at 2999-01-01T00:00:00Z --sink a", "is in the future", exitConfig},
		{"state --at 12", "several sinks keep events: give --sink: a, b", exitConfig},
		{"state --at 12 --sink c", "keeps no events that could be read back", exitConfig},
		{"state --at 12 --sink x", "those that keep events are a, b", exitConfig},
		{"state --diff 12", "--diff needs two times", exitConfig},
		{"state --diff 12 13 --at 12", "--diff goes with neither", exitConfig},
		{"state --at 12 --apply", "--apply needs --kubeconfig", exitConfig},
		{"state --at 12 --dry-run", "go with --apply", exitConfig},
		{"state --at 12 --exact", "go with --apply", exitConfig},
		{"state --at 12 -o xml", "-o xml", exitConfig},
		{"history pods", "bridge history takes RESOURCE NAMESPACE/NAME", exitConfig},
		{"history pods a/b --since monday", `"monday" is no time`, exitConfig},
		{"history pods a/b --color red", "auto, always or never", exitConfig},
		{"history pods a/b --sink b", "127.0.0.1:1", exitEnvironment},
	} {
		bridge(t, append(strings.Fields(c.args), "-c", file)...).failed(t, c.code, c.says)
	}
}

// TestPastWithoutStream: a NATS without the stream is one clear line.
func TestPastWithoutStream(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("NATS server is not ready")
	}
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	text := "cluster: prod\nresources: [pods]\nsinks: [{name: a, nats: {url: \"" + s.ClientURL() + "\"}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	bridge(t, "state", "--at", "12", "pods", "-c", file).failed(t, exitEnvironment, "K8S_prod", "not found")
}

// TestUntold: what the configuration does not tell makes a state that cannot be rebuilt.
func TestUntold(t *testing.T) {
	c, err := config.Parse("test.yaml", []byte(`
cluster: x
resources:
  - pods
  - {resource: nodes, types: [added, modified]}
  - {resource: "*.apps", types: [added, deleted]}
  - deployments.apps
  - events
sinks: [{name: a, nats: {url: "nats://127.0.0.1:1"}}]
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &past{config: c, sink: &c.Sinks[0]}
	for resource, want := range map[string]string{
		"pods": "", "nodes": "deleted", "replicasets.apps": "modified", "deployments.apps": "", "events": "deleted", "jobs.batch": "",
	} {
		if got := p.untold(resource); got != want {
			t.Errorf("of %s untold is %q, want %q", resource, got, want)
		}
	}
}

// TestHides: a filter, or a rule that takes fields out, of any entry of a resource counts; a pattern where none names it.
func TestHides(t *testing.T) {
	c, err := config.Parse("test.yaml", []byte(`
cluster: x
resources:
  - {resource: po, namespaces: [a], drop: [status, metadata.managedFields]}
  - {resource: pods, namespaces: [b], filter: "object.metadata.name != 'a'"}
  - {resource: "*.apps", filter: "object.metadata.name != 'a'"}
  - {resource: deploy, drop: [spec.replicas]}
  - services
  - configmaps
redact: [{paths: [data.a], with: remove, resources: [configmaps]}, {paths: [data.b]}]
sinks: [{name: a, nats: {url: "nats://127.0.0.1:1"}}]
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &past{config: c, sink: &c.Sinks[0]}
	hides := p.hides()
	for resource, want := range map[string][2]bool{
		"pods": {true, false}, "replicasets.apps": {true, false}, "deployments.apps": {false, true},
		"services": {false, false}, "configmaps": {false, true}, "widgets.example.com": {true, true},
	} {
		if filtered, dropped := hides(resource); [2]bool{filtered, dropped} != want {
			t.Errorf("%s is filtered: %t, fields are taken out: %t", resource, filtered, dropped)
		}
	}
}

// TestPrintState: a note about what is left out stands where no reader of YAML takes it for an object.
func TestPrintState(t *testing.T) {
	s := &history.State{
		Missing: []history.Missing{{Name: "events", Why: "its deleted events are not published\nkind: Pod", LeftOut: true}},
		Objects: []history.Object{{Received: &event.Received{Object: []byte(`{"kind":"Pod"}`), BodyKnown: true}, ResourceID: "pods"}},
	}
	var out, notes bytes.Buffer
	if err := printState(&out, &notes, s, ""); err != nil {
		t.Fatal(err)
	}
	if want := "---\n# left out: events: its deleted events are not published\\nkind: Pod\nkind: Pod\n"; out.String() != want {
		t.Errorf("it prints\n%s", out.String())
	}
	out.Reset()
	if err := printState(&out, &notes, s, "json"); err != nil || strings.Contains(out.String(), "events") {
		t.Errorf("it prints %s (%v)", out.String(), err)
	}
}

// TestPastGoes: what moved to a topic of its own stands whole in neither, and its old
// topic must not be taken for the state of today.
func TestPastGoes(t *testing.T) {
	parse := func(resources string) (*past, error) {
		c, err := config.Parse("test.yaml", []byte("cluster: x\nresources: ["+resources+"]\nsinks: [{name: a, kafka: {brokers: [\"k:1\"], topic: \"k8s.{resource}\"}}]\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return newPast(c, &c.Sinks[0])
	}
	p, err := parse(`pods, {resource: deploy, topic: rollouts}, {resource: "*.apps", topic: "apps.{resource}"}, {resource: "*.*", topic: "other.{group}"}, {resource: nodes, key: "{name}"}`)
	if err != nil {
		t.Fatal(err)
	}
	for of, want := range map[string]string{
		"core/pods": "k8s.pods", "core/nodes": "k8s.nodes", "apps/deployments": "rollouts", "apps/replicasets": "apps.replicasets",
		"batch/jobs": "other.batch",
	} {
		group, resource, _ := strings.Cut(of, "/")
		if group == "core" {
			group = ""
		}
		for _, topic := range []string{"k8s.pods", "k8s.nodes", "k8s.deployments", "rollouts", "apps.deployments", "apps.replicasets", "other.batch", "other.apps"} {
			if got := p.goes(group, resource, topic); got != (topic == want) {
				t.Errorf("%s goes to %s: %v", of, topic, got)
			}
		}
	}
	if p, err = parse("pods"); err != nil || p.goes != nil {
		t.Errorf("without routes every message is asked after: %v", err)
	}
	for resources, says := range map[string]string{
		`{resource: certs, topic: c}`: "write it in full",
		`{resource: pods, namespaces: [a], topic: a}, {resource: pods, name: b, namespaces: [b], topic: b}`: `"pods" has entries with several topics`,
	} {
		if _, err := parse(resources); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", resources, err, says)
		}
	}
}

func TestPrintChange(t *testing.T) {
	var out bytes.Buffer
	c := history.Change{
		Type: "modified", Resource: "pods", Namespace: "shop", Name: "web", UID: "2", FormerUID: "1",
		By: []history.Who{{Manager: "kubectl"}, {Manager: "kubelet", Subresource: "status"}}, Note: "updates in between are not known",
		Diff: "@@ -1 +1 @@\n a: b\n-c: d\n---gone: 1\n+c: e\n",
	}
	if err := printChange(&out, &c, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"by kubectl, kubelet/status", "uid was 1", "(updates in between are not known)", red + "-c: d" + plainText, green + "+c: e" + plainText, red + "---gone: 1" + plainText, "   a: b\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, out.String())
		}
	}
}
