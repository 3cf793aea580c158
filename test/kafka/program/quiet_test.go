package program_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// While nothing changes in the cluster, nothing is written. A Kafka that does not answer, or a checkpoint's topic that forgets, must be
// noticed all the same: otherwise the bridge looks ready until somebody misses an event.
func TestQuietOutage(t *testing.T) {
	t.Parallel()
	eachDelivery(t, func(t *testing.T, delivery string) {
		c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{user: password}})
		w := newWorld(t, c, delivery)
		w.start()
		w.ready()
		w.arrives(w.name+".fine", w.create("configmaps", "ConfigMap"))
		failing := func(words ...string) (says string) {
			t.Helper()
			w.await("the status to say "+strings.Join(words, ", "), func() bool {
				var ready bool
				ready, says = w.status()
				return !ready && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(says, word) })
			})
			return says
		}

		t.Cleanup(func() { _ = c.Broker(1).Resume() })
		for quiet := false; !quiet; { // on a busy machine, the last commit may be under way
			w.must(c.Broker(1).Pause())
			quiet = strings.Contains(failing("no answer"), "check the bus")
			w.must(c.Broker(1).Resume())
			w.ready()
		}

		w.must(c.SetTopicConfig(t.Context(), w.checkpoint(), "cleanup.policy", "delete"))
		failing("check the bus", w.checkpoint(), `cleanup.policy is \"delete\"`)
		w.must(c.SetTopicConfig(t.Context(), w.checkpoint(), "cleanup.policy", "compact"))
		w.ready()
		w.arrives(w.name+".fine", w.create("configmaps", "ConfigMap"))
	})
}
