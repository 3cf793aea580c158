package e2e

import (
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// A restart of the API server is one log line when it is lost and one when it answers again, whatever the number
// of resources, followed by the gaps.
func TestAnOutageIsTwoLines(t *testing.T) {
	t.Parallel()
	own := clustertest.Start(t, clustertest.Options{})
	w := newWorld(t, options{cluster: own})
	for _, r := range []string{"pods", "services", "configmaps", "deployments.apps", "serviceaccounts"} {
		w.config.Resources = append(w.config.Resources, bridge.Resource{Resource: r})
	}
	w.start()
	w.settle(kube.ConfigMaps)
	before := len(w.bridge.Log())
	own.Kill()
	waiting := func(s bridge.Status) (n int) {
		for _, c := range s.Sinks[0].Collections {
			if c.State == "waiting" {
				n++
			}
		}
		return n
	}
	w.awaitStatus(func(s bridge.Status) bool { return waiting(s) == 5 })
	w.must(own.Restart(w.soon()))
	w.awaitStatus(func(s bridge.Status) bool {
		return s.Ready && waiting(s) == 0 && strings.Contains(w.bridge.Log()[before:], "the API server is back")
	})
	w.settle(kube.ConfigMaps)
	var said []string
	for line := range strings.Lines(w.bridge.Log()[before:]) {
		// On a busy machine lists last for longer than an interval of their progress.
		if !strings.Contains(line, `"msg":"gap"`) && !strings.Contains(line, `"msg":"synced"`) && !strings.Contains(line, `"msg":"lists are under way"`) {
			said = append(said, line)
		}
	}
	// A server that is overloaded after its start may be lost once more. With a line for each collection the two lines would not alternate.
	ok := len(said) == 2 || len(said) == 4
	for i, line := range said {
		ok = ok && strings.Contains(line, []string{"the API server is lost", "the API server is back"}[i%2])
	}
	if !ok {
		t.Error("beside gaps, want that the API server is lost and that it is back; these lines are logged:")
		for _, line := range said {
			t.Log(strings.TrimSpace(line))
		}
	}
}
