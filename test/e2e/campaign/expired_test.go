package campaign

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
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
		detail  string
		wrong   int
	}{
		{time.Minute, false, "", 1},
		{time.Minute, true, "", 0},
		{2 * time.Minute, false, "", 0},
		{time.Minute, false, "too old resource version: 16 (19)", 0},
		{time.Minute, false, "too old resource version: 15 (16)", 1},
		{time.Minute, false, "too old resource version: 19 (21)", 1},
		{time.Minute, false, "too old resource version: 22 (24)", 1},
		{time.Minute, false, "too old resource version: 24 (30)", 0},
	} {
		gap.Data.Detail = c.detail
		r := &reader{verdict: &verdict{expires: map[string]bool{"configmaps": c.expires}, ledger: &ledger{objects: map[string]*object{
			"a": {typ: target{Type: kube.ConfigMaps}, versions: []version{{rv: 16}, {rv: 20}}},
			"b": {typ: target{Type: kube.ConfigMaps}, versions: []version{{rv: 5}}, deleted: true, after: 22, before: 25},
		}}}}
		if r.expired("configmaps", gap, timeOf(gap).Add(-c.quiet)); len(r.problems) != c.wrong {
			t.Errorf("after %s, %q: %v, want %d problems", c.quiet, c.detail, r.problems, c.wrong)
		}
	}
}
