package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

const (
	manyCollections = 500
	// concurrentLists is the default of kubernetes.concurrentLists.
	concurrentLists = 4
	// manyPatience is the timeout for work that 500 collections do one after another, on a small machine.
	manyPatience = 5 * time.Minute
	// manyMemory is what 500 watches may cost while the bus is down and each has three objects of 100 KB to publish: 32 MiB of events
	// that wait for the bus, and for each watch one object and 128 KiB of buffers until it is closed; Go's collector lets that double.
	// Without a bound it would be what the API server has to send.
	manyMemory = 512 << 20
)

// auditPolicy makes the API server record when it received each request of the bridge to list or watch ConfigMaps, and when the request ended.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  users: ["many"]
  verbs: ["list", "watch"]
  resources: [{group: "", resources: ["configmaps"]}]
- level: None
`

// A platform team has one collection for each of hundreds of namespaces. The restart of an API server means 410 for all of
// them at once, but must not cause 500 lists at a time. During an outage of the bus, 500 stalled watches must not use unbounded memory.
func TestFiveHundredCollections(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy, audit := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	own := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + audit, "--audit-log-mode=blocking-strict",
	}})
	w := newWorld(t, options{cluster: own})
	namespaces := make([]string, manyCollections)
	w.must(kube.Each(len(namespaces), func(i int) error {
		namespaces[i] = fmt.Sprintf("many-%d", i)
		_, err := w.kube.Create(t.Context(), kube.Namespaces, namespaces[i], nil)
		return err
	}))
	last := w.inEach(namespaces, "first", 1)
	path, err := own.KubeconfigFor("many", "system:masters")
	w.must(err)
	w.config.Kubernetes = map[string]any{"kubeconfig": path}
	w.config.Resources = []bridge.Resource{{Resource: "configmaps", Namespaces: namespaces}}
	w.run()
	w.allInStep()
	w.allPublished(last)

	t.Run("the API server restarts", func(t *testing.T) {
		w.t = t
		w.must(os.Truncate(audit, 0))
		w.must(own.Stop())
		w.must(own.Restart(w.soon()))
		w.allPublished(w.inEach(namespaces, "after the restart", 1))
		w.allInStep()
		if most := listsAtOnce(t, audit); most > concurrentLists || most == 0 {
			t.Errorf("%d lists at once, want 1 to %d", most, concurrentLists)
		}
	})
	t.Run("the bus is down", func(t *testing.T) {
		w.t = t
		w.proxy.Refuse()
		last := w.inEach(namespaces, strings.Repeat("x", 100<<10), 3)
		w.proxy.Pass()
		w.allPublished(last)
		peak, err := w.bridge.Memory("VmHWM")
		w.must(err)
		t.Logf("memory: at most %d MiB", peak>>20)
		if !raceEnabled && peak > manyMemory {
			t.Errorf("the bridge took %d MiB, want at most %d", peak>>20, manyMemory>>20)
		}
	})
}

// inEach writes one object in each namespace the given number of times, and returns the last resourceVersions by UID.
func (w *world) inEach(namespaces []string, step string, times int) map[string]string {
	w.t.Helper()
	ctx := w.within(manyPatience)
	written := make([][2]string, len(namespaces))
	w.must(kube.Each(len(namespaces), func(i int) error {
		client := w.kube.In(namespaces[i])
		_, err := client.Create(ctx, kube.ConfigMaps, "o", nil)
		if err != nil && !strings.Contains(err.Error(), "already exists") {
			return err
		}
		for n := range times {
			o, err := client.Patch(ctx, kube.ConfigMaps, "o", fmt.Sprintf(`{"data":{"step":%q,"n":"%d"}}`, step, n))
			if err != nil {
				return err
			}
			written[i] = [2]string{string(o.GetUID()), o.GetResourceVersion()}
		}
		return nil
	}))
	last := map[string]string{}
	for _, one := range written {
		last[one[0]] = one[1]
	}
	return last
}

// allPublished waits until these versions are on the bus.
func (w *world) allPublished(last map[string]string) {
	w.t.Helper()
	seen := 0
	missing := last
	_, err := w.log.Wait(w.within(manyPatience), func(all []bus.Message) bool {
		for _, m := range all[seen:] {
			if missing[m.UID()] == m.RV() {
				delete(missing, m.UID())
			}
		}
		seen = len(all)
		return len(missing) == 0
	})
	w.must(err)
}

func (w *world) allInStep() {
	w.t.Helper()
	w.must(w.bridge.Await(w.within(manyPatience), func(s bridge.Status) bool {
		return s.Ready && len(s.Sinks) == 1 && len(s.Sinks[0].Collections) == manyCollections &&
			!slices.ContainsFunc(s.Sinks[0].Collections, func(c bridge.Collection) bool { return c.State != "watching" })
	}))
}

// listsAtOnce returns the largest number of lists that the API server served at one time, including streaming ones.
func listsAtOnce(t *testing.T, audit string) int {
	t.Helper()
	f, err := os.Open(audit)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type change struct {
		at time.Time
		by int
	}
	var changes []change
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Stage, Verb, RequestURI string
			StageTimestamp          time.Time
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("audit log: %v: %s", err, lines.Text())
		}
		probe := strings.Contains(e.RequestURI, "limit=1&") || strings.HasSuffix(e.RequestURI, "limit=1")
		if probe || e.Verb == "watch" && !strings.Contains(e.RequestURI, "sendInitialEvents=true") {
			continue
		}
		switch e.Stage {
		case "RequestReceived":
			changes = append(changes, change{e.StageTimestamp, 1})
		case "ResponseComplete", "Panic":
			changes = append(changes, change{e.StageTimestamp, -1})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		if d := a.at.Compare(b.at); d != 0 {
			return d
		}
		return a.by - b.by
	})
	now, most := 0, 0
	for _, c := range changes {
		now += c.by
		most = max(most, now)
	}
	return most
}
