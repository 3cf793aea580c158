package e2e

import (
	"os"
	"testing"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// Another cluster behind the same address is not a new epoch of this one: its events must not be published, and objects that it lacks
// were not deleted. The bridge ends with an error of its configuration.
func TestAnotherClusterBehindTheAddress(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for name, running := range map[string]bool{"while running": true, "while down": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{cluster: clustertest.Start(t, clustertest.Options{}), types: []kube.Type{kube.ConfigMaps}})
			w.create(kube.ConfigMaps, "o")
			w.start()
			before := len(w.settle(kube.ConfigMaps))
			w.committed()
			if !running {
				w.stop()
			}
			w.must(w.cluster.Stop())
			w.must(os.MkdirAll(empty, 0o700))
			w.must(w.cluster.RestoreEtcd(empty)) // everything is created again, kube-system too
			w.must(w.cluster.Restart(w.soon()))
			if !running {
				w.run()
			}
			w.exits(w.bridge, exitEnvironment)
			says(t, w.bridge.Log(), "cluster", "UID")
			if more := w.since(before); len(more) > 0 {
				t.Errorf("published from another cluster:\n%s", bus.Tail(more, 10))
			}
		})
	}
}
