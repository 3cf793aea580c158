package e2e

import (
	"fmt"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// etcd was restored from a backup, and its counter has passed the bridge's position before the bridge probes it. So no probe detects the restore.
// If the history after the position is gone, the reconciliation must find the difference, and publish objects with lower versions in another
// epoch, because consumers would ignore them otherwise. If it is not, the API server continues the watch as if nothing had happened, and the
// bridge must compare the newest objects.
func TestRestoreThatWasOvertaken(t *testing.T) {
	t.Parallel()
	own := clustertest.Start(t, clustertest.Options{})
	t.Run("a list follows", func(t *testing.T) {
		r := newRestore(newWorld(t, options{cluster: own}))
		r.isOvertaken()
		r.must(r.cluster.Restart(r.soon())) // its history begins here
		r.start()
		r.synced()
	})
	t.Run("the watch goes on", func(t *testing.T) {
		r := newRestore(newWorld(t, options{cluster: own}), kube.ConfigMaps) // of another resource, the history would be gone
		r.isOvertaken()
		r.start()
		r.secondEpochBegins(r.synced())
	})
}

// isOvertaken restores the backup while the bridge is stopped, and writes until the cluster has passed the bridge's position.
func (r *restore) isOvertaken() {
	r.t.Helper()
	r.stop()
	_, position, err := r.kube.List(r.soon(), kube.ConfigMaps, metav1.ListOptions{Limit: 1})
	r.must(err)
	r.happens()
	for i := 0; ; i++ {
		now, err := r.cluster.Revision(r.soon())
		r.must(err)
		if kube.CompareRV(strconv.FormatInt(now, 10), position) > 0 {
			return
		}
		r.bulk(kube.ConfigMaps, fmt.Sprintf("more-%d", i), 100)
	}
}

// secondEpochBegins checks that each collection has declared the restore, once.
func (r *restore) secondEpochBegins(all []bus.Message) {
	r.t.Helper()
	since := after(all, r.before)
	r.each(func(t kube.Type) {
		said := check.Collections(since, r.collection(t))
		if len(said) != 2 || !said[0].Is("gap") || said[0].Data.Reason != "history" || said[0].Epoch() != 2 || !said[1].Is("synced") {
			r.t.Errorf("%s: want one gap because of the history, in the second epoch, and one synced, got:\n%s", t.Resource, bus.Tail(said, 10))
		}
	})
}
