package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/internal/past/history/report"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestPastUsage: wrong arguments are an error of one line, with an exit code, before the bus is
// read.
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
		{"state --at 12", "several sinks keep events: choose one with --sink: a, b", exitConfig},
		{"state --at 12 --sink c", "keeps no events: only Kafka and JetStream do", exitConfig},
		{"state --at 12 --sink x", "the sinks that keep events are a, b", exitConfig},
		{"state --diff 12", "--diff needs two times", exitConfig},
		{"state --diff 12 13 --at 12", "--diff goes with neither", exitConfig},
		{"state --at 12 --apply", "--apply needs --kubeconfig", exitConfig},
		{"state --at 12 --dry-run", "go with --apply", exitConfig},
		{"state --at 12 --exact", "go with --apply", exitConfig},
		{"state --at 12 -o xml", "-o xml", exitConfig},
		{"state --at 12 --sink a Pods", `"Pods" cannot be a resource: name it as kubectl does`, exitConfig},
		{"state --at 12 --sink a *.apps", `"*.apps" is a pattern: name resources`, exitConfig},
		{"history pods/log a/b", "subresources have no watch", exitConfig},
		{"history pods", `"pods" is not RESOURCE/NAME`, exitConfig},
		{"history pods a/b --since monday", `"monday" is neither a time`, exitConfig},
		{"history pods a/b --color red", "auto, always or never", exitConfig},
		{"history pods a/b --sink b", "127.0.0.1:1", exitEnvironment},
		{"serve --sink b", "--data is required", exitConfig},
		{"serve --sink b --data x --retain -1h", "must not be negative", exitConfig},
		{"serve --sink b --data x --listen 0.0.0.0:8443", "use a loopback address", exitConfig},
		{"serve --sink c --data x", "keeps no events: only Kafka and JetStream do", exitConfig},
	} {
		command(t, append(strings.Fields(c.args), "-c", file)...).failed(t, c.code, c.says)
	}
}

// TestPastWithoutStream: if the stream does not exist, the error is one line.
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
	command(t, "state", "--at", "12", "pods", "-c", file).failed(t, exitEnvironment, "K8S_prod", "not found")
}

// parsePast returns the first sink of a configuration, to which it adds the cluster's name.
func parsePast(t *testing.T, text string) *past {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte("cluster: x\n"+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return newPast(c, &c.Sinks[0])
}

// TestServedLate: the log names the resources that are served late.
func TestServedLate(t *testing.T) {
	p := parsePast(t, `
resources:
  - pods
  - {resource: pods, name: some, namespaces: [b], labelSelector: app=web, filter: "object.metadata.name != 'a'", syncedEvery: 10s}
  - {resource: nodes, metadataOnly: true}
  - {resource: deploy, namespaces: [a, b], drop: [spec.replicas]}
  - events
  - configmaps
  - {resource: leases.coordination.k8s.io, ignore: [leases]}
redact: [{paths: [data.a], with: hash, resources: [configmaps]}]
sinks: [{name: a, nats: {url: "nats://127.0.0.1:1"}}]
`)
	if diff := cmp.Diff([]string{"deployments.apps", "pods"}, p.slow()); diff != "" {
		t.Errorf("served late (-want +got):\n%s", diff)
	}
	describe := builtin()
	if b, ok := describe("deployments.apps"); !ok || b.APIVersion != "apps/v1" || b.Kind != "Deployment" || !b.Namespaced || len(b.ShortNames) != 1 {
		t.Errorf("deployments are %+v", b)
	}
	if b, ok := describe("deployments.example.com"); ok {
		t.Errorf("another group's deployments are %+v", b)
	}
}

// TestPrintState: notes about what is left out are YAML comments or on standard error, so that no parser reads them as objects.
func TestPrintState(t *testing.T) {
	s := &history.State{
		Missing: []history.Missing{{Name: "events", Why: "its deleted events are not published\nkind: Pod", LeftOut: true}},
		Objects: []history.Object{{Received: &event.Received{Object: []byte(`{"kind":"Pod"}`), BodyKnown: true}, ResourceID: "pods"}},
	}
	var out, notes bytes.Buffer
	if err := report.State(t.Context(), &out, &notes, s, ""); err != nil {
		t.Fatal(err)
	}
	if want := "---\n# left out: events: its deleted events are not published\\nkind: Pod\nkind: Pod\n"; out.String() != want {
		t.Errorf("it prints\n%s", out.String())
	}
	out.Reset()
	ended, end := context.WithCancel(t.Context())
	end()
	if err := report.State(ended, &out, &notes, s, ""); !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("it does not end, and prints %s (%v)", out.String(), err)
	}
	out.Reset()
	if err := report.State(t.Context(), &out, &notes, s, "json"); err != nil || strings.Contains(out.String(), "events") {
		t.Errorf("it prints %s (%v)", out.String(), err)
	}
}
