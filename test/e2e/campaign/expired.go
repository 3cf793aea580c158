package campaign

import (
	"bufio"
	"bytes"
	"context"
	"regexp"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// historyKept is how long the API server's watch cache keeps changes at least (eventFreshDuration in its source), unless it is initialized again.
const historyKept = 75 * time.Second

var initializations = regexp.MustCompile(`^apiserver_watch_cache_initializations_total\{group="([^"]*)",resource="([^"]*)"\} (.*)$`)

// begunAgain returns the resources whose watch cache may have been initialized again since the API server's start, if there is a gap for which that
// matters: the API server takes long for its metrics. If they cannot be read, these are all. The API server does so if its watch of etcd ends, for
// example on a machine with too much to do, and then it has no history.
func (w *world) begunAgain(ctx context.Context, messages []bus.Message) map[string]bool {
	again := map[string]bool{}
	if !slices.ContainsFunc(messages, func(m bus.Message) bool { return m.Is("gap") && m.Data.Reason == "expired" }) {
		return again
	}
	client, err := kubernetes.NewForConfig(w.cluster.RESTConfig())
	var text []byte
	if err == nil {
		text, err = client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	}
	caches := parseWatchCaches(text)
	for _, t := range w.types {
		again[t.ResourceID()] = err != nil || caches[t.ResourceID()] != "1"
	}
	return again
}

// parseWatchCaches returns how often the API server has initialized the watch cache of each resource.
func parseWatchCaches(metrics []byte) map[string]string {
	c := map[string]string{}
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

var tooOldVersion = regexp.MustCompile(`too old resource version: (\d+) \((\d+)\)`)

// tooOld returns the versions of the API server's answer that it has not kept: after from, up to and including to. It keeps each change for
// historyKept, but it does not know whether there was one between the version that a watch begins at and the first change that it has kept: if
// it has removed any change since it listed, it refuses such a watch.
func tooOld(detail string) (from, to uint64, ok bool) {
	m := tooOldVersion.FindStringSubmatch(detail)
	if m == nil {
		return 0, 0, false
	}
	return number(m[1]), number(m[2]), true
}

// expired judges a gap for which the API server is said to have lost the history. since is when the collection's last event was published before it.
func (r *reader) expired(resource string, m *bus.Message, since time.Time) {
	if r.expires == nil || r.expires[resource] || !since.IsZero() && timeOf(m).Sub(since) >= historyKept {
		return
	}
	if from, to, ok := tooOld(m.Data.Detail); ok && !r.ledger.changed(resource, from, to) {
		return
	}
	r.wrong("declared", "a gap because the API server has lost the history, which it has not: %s: %s", m, m.Data.Detail)
}
