package e2e

import (
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// A firewall drops a connection without notifying either side, so that the watch looks quiet. HTTP/2 pings every 30 s and waits 15 s for
// the answer; together with opening a new watch this takes up to a minute. Without pings it would take more than 100 seconds.
func TestHalfOpenConnectionOverHTTP2(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	w.halfOpen(95 * time.Second)
}

// halfOpen checks that a bridge whose connection became half-open is in step again in time, without a list.
func (w *world) halfOpen(atMost time.Duration) {
	w.t.Helper()
	toCluster := w.proxyToCluster()
	w.kubeconfig(func(*api.Config) {})
	w.create(kube.ConfigMaps, "o")
	w.start()
	w.settle(kube.ConfigMaps)
	toCluster.Silence()
	began := time.Now()
	uid, rv := w.patch(kube.ConfigMaps, "o", "into the silence")
	_, err := w.log.Wait(w.within(atMost+patience), func(all []bus.Message) bool {
		return slices.ContainsFunc(all, func(m bus.Message) bool { return m.UID() == uid && m.RV() == rv })
	})
	w.must(err)
	took := time.Since(began)
	w.t.Logf("in step again after %s", took.Round(time.Second))
	if took > atMost {
		w.t.Errorf("in step again after %s, want at most %s", took, atMost)
	}
	all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
	w.snapshotOf(kube.ConfigMaps, all, bus.Counts{Listed: 1, Present: 1})
}
