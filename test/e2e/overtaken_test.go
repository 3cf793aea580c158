package e2e

import (
	"fmt"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// etcd was restored from a backup, its counter has passed the bridge's position before the bridge probes it, and the history after the
// position is gone. So no probe detects the restore. The reconciliation must still find the difference, and publish objects with
// lower versions in another epoch, because consumers would ignore them otherwise.
func TestRestoreThatWasOvertaken(t *testing.T) {
	t.Parallel()
	r := newRestore(newWorld(t, options{cluster: clustertest.Start(t, clustertest.Options{})}))
	r.stop()
	_, position, err := r.kube.List(r.soon(), kube.ConfigMaps, metav1.ListOptions{Limit: 1})
	r.must(err)
	r.happens()
	for i := 0; ; i++ {
		now, err := r.cluster.Revision(r.soon())
		r.must(err)
		if kube.CompareRV(strconv.FormatInt(now, 10), position) > 0 {
			break
		}
		r.bulk(kube.ConfigMaps, fmt.Sprintf("more-%d", i), 100)
	}
	r.must(r.cluster.Restart(r.soon())) // its history begins here
	r.start()
	r.synced()
}
