package campaign

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

func TestWatchCaches(t *testing.T) {
	got := parseWatchCaches([]byte(`# TYPE apiserver_watch_cache_initializations_total counter
apiserver_watch_cache_initializations_total{group="",resource="configmaps"} 1
apiserver_watch_cache_initializations_total{group="apps",resource="deployments"} 2
apiserver_watch_cache_events_received_total{group="",resource="configmaps"} 3
`))
	if diff := cmp.Diff(map[string]string{"configmaps": "1", "deployments.apps": "2"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestExpired: the history of a collection that was quiet for long may be lost. Otherwise the gap is a defect.
func TestExpired(t *testing.T) {
	gap := &bus.Message{Attributes: map[string]string{"time": "2026-03-14T09:26:53Z"}}
	for _, c := range []struct {
		quiet   time.Duration
		expires bool
		wrong   int
	}{{time.Minute, false, 1}, {time.Minute, true, 0}, {2 * time.Minute, false, 0}} {
		r := &reader{verdict: &verdict{expires: map[string]bool{"pods": c.expires}}}
		if r.expired("pods", gap, timeOf(gap).Add(-c.quiet)); len(r.problems) != c.wrong {
			t.Errorf("after %s: %v, want %d problems", c.quiet, r.problems, c.wrong)
		}
	}
}
