package e2e

import (
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// The demo must run in a cluster in which it ran before, and change objects of every kind that it promises. The
// bridge must publish the changes.
func TestDemoChanges(t *testing.T) {
	types := []kube.Type{kube.Pods, kube.ConfigMaps, kube.Deployments, kube.Widgets("demo.kubebridge.io")}
	w := newWorld(t, options{})
	w.ns = "demo"
	w.kube = w.kube.In(w.ns)
	w.bridges(types...)
	for range 2 { // the second run finds what the first has left
		before := len(w.since(0))
		demo, err := bridge.Start(demoBinary, "-kubeconfig", w.cluster.Kubeconfig(), "-every", "20ms", "-v")
		w.must(err)
		t.Cleanup(demo.Kill)
		if w.bridge == nil {
			w.start() // the custom type may come later than the bridge
		}
		w.onBus("two rounds of changes", func(all []bus.Message) bool { return len(after(all, before)) > 50 })
		demo.Signal(syscall.SIGTERM)
		w.exits(demo, 0)
		for _, typ := range types {
			for _, verb := range []string{"create", "update", "delete"} {
				line := verb + " " + typ.ResourceID()
				if unchanged := typ == kube.Deployments && verb != "update"; !unchanged && !strings.Contains(demo.Log(), line) {
					t.Errorf("the demo did not %s", line)
				}
			}
		}
	}
	all := w.settle(types...)
	var problems []string
	for _, typ := range types {
		objects, _, err := w.kube.List(w.soon(), typ, metav1.ListOptions{})
		w.must(err)
		problems = append(problems, check.State(all, objects, typ.ResourceID())...)
	}
	w.none(problems, all)
}
