package e2e

import (
	"testing"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// Over HTTP/1.1 nothing pings: only a second look after a quiet watch, over another connection, shows that it is dead.
func TestHalfOpenConnectionOverHTTP1(t *testing.T) {
	t.Parallel()
	own := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{"--disable-http2-serving=true"}})
	w := newWorld(t, options{cluster: own, types: []kube.Type{kube.ConfigMaps}})
	w.halfOpen(noticed)
}
