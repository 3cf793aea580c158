package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// watchPolicy makes the API server record when each watch of the bridge begins and ends.
const watchPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  users: ["three-sinks"]
  verbs: ["watch"]
- level: None
`

// Three sinks that select the same ten resources watch each of them once. A sink whose bus is away delays no other.
func TestThreeSinksShareTheirWatches(t *testing.T) {
	t.Parallel()
	resources := []string{
		"configmaps", "secrets", "services", "endpoints", "serviceaccounts", "pods",
		"deployments.apps", "replicasets.apps", "jobs.batch", "roles.rbac.authorization.k8s.io",
	}
	dir := t.TempDir()
	policy, audit := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(watchPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	own := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + audit, "--audit-log-mode=blocking-strict",
	}})
	w := newWorld(t, options{cluster: own})
	path, err := own.KubeconfigFor("three-sinks", "system:masters")
	w.must(err)
	w.config.Kubernetes = map[string]any{"kubeconfig": path}
	var sinks []world // each with its own bus
	var configured []bridge.Sink
	for i := range 3 {
		name := fmt.Sprint("sink-", i)
		w.startNATSIn(name)
		s := w.config.Sinks[0]
		s.Name = name
		for _, r := range resources {
			s.Resources = append(s.Resources, bridge.Resource{Resource: r})
		}
		configured, sinks = append(configured, s), append(sinks, *w)
	}
	w.config.Sinks, w.config.Resources = configured, nil
	w.run()
	w.awaitStatus(func(s bridge.Status) bool { return s.Ready && len(s.Sinks) == 3 })
	write := func(step string, to []world) {
		uid, rv := w.create(kube.ConfigMaps, step)
		for i := range to {
			to[i].published(uid, rv)
		}
	}
	write("first", sinks)

	w.busDown() // of the last sink
	write("one-is-away", sinks[:2])
	w.busUp()
	write("back", sinks)

	for ctx := w.within(3 * time.Minute); ; { // a bookmark comes about every minute
		open, opened := watchesNow(t, audit)
		if once(open, len(resources)) {
			t.Logf("%d watches are open, %d were opened", len(open), opened)
			return
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("want one watch of each of %d resources, got %v", len(resources), open)
		}
	}
}

// once reports whether n resources are watched, each once.
func once(open map[string]int, n int) bool {
	for _, watches := range open {
		if watches != 1 {
			return false
		}
	}
	return len(open) == n
}

// watchesNow returns the open watches by resource, without those that only check another one, and how many watches were opened.
func watchesNow(t *testing.T, audit string) (open map[string]int, opened int) {
	t.Helper()
	f, err := os.Open(audit)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	open = map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct{ Stage, RequestURI string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the last line is being written
		}
		request, err := url.Parse(e.RequestURI)
		if err != nil {
			t.Fatal(err)
		}
		resource := request.Path[strings.LastIndex(request.Path, "/")+1:]
		if resource == "customresourcedefinitions" || resource == "apiservices" || request.Query().Get("timeoutSeconds") == "5" {
			continue
		}
		switch e.Stage {
		case "ResponseStarted":
			open[resource]++
			opened++
		case "ResponseComplete", "Panic":
			if open[resource]--; open[resource] == 0 {
				delete(open, resource)
			}
		}
	}
	return open, opened
}
