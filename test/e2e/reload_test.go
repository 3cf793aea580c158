package e2e

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// A changed configuration takes effect without a restart: new collections are listed, removed ones are closed, and unchanged ones are
// not affected. An invalid file changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps, kube.Pods}})
	for _, typ := range []kube.Type{kube.ConfigMaps, kube.Pods, kube.Deployments} {
		w.create(typ, "o")
	}
	path := w.startWithFile()
	before := len(w.settle(kube.ConfigMaps, kube.Pods))

	w.bridges(kube.ConfigMaps, kube.Deployments)
	w.reload(path, w.config)
	w.onBus("the end of the first list", func(all []bus.Message) bool {
		said := check.Collections(all, w.collection(kube.Deployments))
		return slices.ContainsFunc(said, isSynced)
	})
	w.onBus("that pods are closed", func(all []bus.Message) bool {
		return slices.ContainsFunc(check.Collections(after(all, before), w.collection(kube.Pods)), func(m bus.Message) bool { return m.Is("closed") })
	})
	w.create(kube.Pods, "unheard")
	all := w.settle(kube.ConfigMaps, kube.Deployments)
	if said := check.Collections(after(all, before), w.collection(kube.ConfigMaps)); len(said) > 0 {
		t.Errorf("nothing has changed for %s:\n%s", w.collection(kube.ConfigMaps), bus.Tail(said, 10))
	}
	if said := check.Collections(after(all, before), w.collection(kube.Pods)); len(said) != 1 || !said[0].Is("closed") {
		t.Errorf("want pods closed, got:\n%s", bus.Tail(said, 10))
	}
	for _, m := range after(all, before) {
		if m.Attributes["resource"] == "pods" && !m.OfCollection() {
			t.Errorf("published what is no longer asked for: %s", &m)
		}
	}

	wrong := w.config
	wrong.Resources = []bridge.Resource{{Resource: "pods*"}}
	w.reload(path, wrong)
	w.awaitLog("pods*")
	w.settle(kube.ConfigMaps, kube.Deployments)
}

// reload replaces the file and sends SIGHUP.
func (w *world) reload(path string, c bridge.Config) {
	w.t.Helper()
	w.must(os.Rename(w.writeConfig(c), path))
	w.bridge.Signal(syscall.SIGHUP)
}

// awaitLog waits until the bridge has logged a text.
func (w *world) awaitLog(text string) {
	w.t.Helper()
	for ctx := w.soon(); !strings.Contains(w.bridge.Log(), text); {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			w.t.Fatalf("%v: waiting for %q in the log", context.Cause(ctx), text)
		}
	}
}
