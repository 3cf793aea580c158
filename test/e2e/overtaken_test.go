package e2e

import (
	"fmt"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// An etcd that went back to a backup and has counted on past the position before the bridge looks, and no longer has what came
// after it. Nothing shows at once that it is another history; the comparison must find the difference all the same, and publish
// what went back to an older version in another epoch, or consumers would ignore it.
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
