package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// The exit codes that scripts and probes distinguish.
const (
	exitConfig      = 2
	exitEnvironment = 3
)

// says checks that a message contains all the words.
func says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("it does not say %q, but:\n%s", word, text)
		}
	}
}

// An error in the configuration is reported at the start, with its place and the keys of the file.
func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	const good = `cluster: here
resources: [pods]
checkpoint: {file: {path: /nowhere}}
`
	for _, c := range []struct {
		name, text string
		words      []string
	}{
		{"unknown key", good + "sinks:\n  - name: out\n    stdout: {fromat: json}\n", []string{":6:", "fromat", `did you mean "format"?`}},
		{"unknown key at the top", "clutser: here\n" + good, []string{":1:1:", "clutser", `did you mean "cluster"?`}},
		{"a list where a map belongs", good + "status: [1]\nsinks: [{name: out, stdout: {}}]\n", []string{":4:", "a map"}},
		{"a sink of two kinds", good + "sinks:\n  - name: out\n    stdout: {}\n    nats: {url: \"nats://x:4222\"}\n", []string{":5:", "exactly one"}},
		{"no such delivery", good + "sinks:\n  - name: out\n    nats:\n      url: nats://x:4222\n      delivery: maybe\n", []string{":8:", "maybe", "exactly-once"}},
		{"not YAML", good + "sinks: [\n", []string{":4:"}},
		{"no sinks", good, []string{"sinks", "required"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{t: t}
			path := filepath.Join(t.TempDir(), "bridge.yaml")
			w.must(os.WriteFile(path, []byte(c.text), 0o600))
			p := w.launch("run", "-c", path)
			w.exits(p, exitConfig)
			says(t, p.Log(), append(c.words, path)...)
		})
	}
	t.Run("no such file", func(t *testing.T) {
		w := &world{t: t}
		p := w.launch("run", "-c", "/nowhere/bridge.yaml")
		w.exits(p, exitConfig)
		says(t, p.Log(), "/nowhere/bridge.yaml")
	})
}

// The bridge does not write to a checkpoint or stream of another bridge.
func TestForeignCheckpointAndStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	w.start()
	w.settle(kube.ConfigMaps)
	w.stop()
	before, err := w.log.Messages()
	w.must(err)

	w.config.Name = "another"
	w.run()
	w.exits(w.bridge, exitEnvironment)
	says(t, w.bridge.Log(), "checkpoint", `"kubebridge"`, `"another"`)

	mine := w.config.Checkpoint
	w.config.Checkpoint = map[string]any{"file": map[string]any{"path": filepath.Join(w.dir, "fresh")}}
	w.run()
	w.exits(w.bridge, exitEnvironment)
	says(t, w.bridge.Log(), "stream", `"kubebridge"`, `"another"`)

	w.config.Name, w.config.Checkpoint = "kubebridge", mine
	w.start() // the owner finds its checkpoint and stream unchanged
	all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
	if more := after(all, len(before)); len(more) != 2 {
		t.Errorf("something beside the marker was published:\n%s", bus.Tail(more, 20))
	}
}

// A second bridge with the same checkpoint must stop before it fences the first one.
func TestLockedCheckpoint(t *testing.T) {
	t.Parallel()
	for _, name := range buses {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{bus: name, types: []kube.Type{kube.ConfigMaps}})
			w.start()
			w.settle(kube.ConfigMaps)
			second := w.launch("run", "-c", w.writeConfig(w.config))
			w.exits(second, exitEnvironment)
			says(t, second.Log(), "checkpoint", "in use by another process")
			w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
			w.stop()
		})
	}
}

// Only the bus can detect two bridges with separate checkpoints: the later one takes over, and the earlier one must
// not write again or report that it is ready.
func TestFencedByASecondBridge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	w.start()
	w.settle(kube.ConfigMaps)
	first := w.bridge
	w.config.Checkpoint = map[string]any{"file": map[string]any{"path": filepath.Join(w.dir, "copy")}}
	w.start()
	w.create(kube.ConfigMaps, "o")
	code, err := first.Wait(patience)
	w.must(err)
	if code == 0 {
		t.Errorf("the fenced bridge exits with 0")
	}
	says(t, first.Log(), "another writer")
	w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
}

// Wrong credentials for the cluster end the bridge: retrying does not help.
func TestWrongClusterCredentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	w.kubeconfig(func(c *api.Config) {
		for name := range c.AuthInfos {
			c.AuthInfos[name] = &api.AuthInfo{Token: "wrong"}
		}
	})
	w.run()
	w.exits(w.bridge, exitEnvironment)
	says(t, w.bridge.Log(), "credentials")
}
