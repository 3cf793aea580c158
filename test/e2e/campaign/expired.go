package campaign

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"regexp"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// historyKept is how long the API server's watch cache keeps changes at least (eventFreshDuration in its source), unless it is initialized again.
const historyKept = 75 * time.Second

// watchCaches are how often the API server has initialized the watch cache of each resource, by its own count. It does so again if its watch of etcd
// ends, for example on a machine with too much to do, and then it has no history.
type watchCaches map[string]string

var initializations = regexp.MustCompile(`^apiserver_watch_cache_initializations_total\{group="([^"]*)",resource="([^"]*)"\} (.*)$`)

func (w *world) watchCaches(ctx context.Context) (watchCaches, error) {
	client, err := kubernetes.NewForConfig(w.cluster.RESTConfig())
	if err != nil {
		return nil, err
	}
	text, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return parseWatchCaches(text), nil
}

func parseWatchCaches(metrics []byte) watchCaches {
	c := watchCaches{}
	for lines := bufio.NewScanner(bytes.NewReader(metrics)); lines.Scan(); {
		if m := initializations.FindStringSubmatch(lines.Text()); m != nil {
			resource := m[2]
			if m[1] != "" {
				resource += "." + m[1]
			}
			c[resource] = m[3]
		}
	}
	return c
}

// mayExpire reports whether the API server may have lost the history of a type before an event, as the faults of a seed say.
func (n *nemesis) mayExpire(t target) bool {
	return n.spec.Harm || t.Type == n.widgets.Type
}

// expired judges a gap for which the API server is said to have lost the history. since is when the collection's last event was published before it.
func (r *reader) expired(resource string, m *bus.Message, since time.Time) {
	if r.expires == nil || r.expires[resource] || !since.IsZero() && timeOf(m).Sub(since) >= historyKept {
		return
	}
	r.wrong("declared", "a gap because the API server has lost the history, which it has not: %s", m)
}
