package e2e

import (
	"testing"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// HTTP/1.1 has no pings: a dead connection of a quiet watch is only detected by a second watch over another connection.
func TestHalfOpenConnectionOverHTTP1(t *testing.T) {
	t.Parallel()
	own := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{"--disable-http2-serving=true"}})
	w := newWorld(t, options{cluster: own, types: []kube.Type{kube.ConfigMaps}})
	w.halfOpen(noticed)
}
