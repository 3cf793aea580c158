package program_test

import (
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
		failing := func(words ...string) {
			t.Helper()
			w.await("the status to say "+strings.Join(words, ", "), func() bool {
				ready, text := w.status()
				for _, word := range words {
					ready = ready || !strings.Contains(text, word)
				}
				return !ready
			})
		}

		w.ready() // a write that a busy broker refused is over
		w.must(c.Broker(1).Pause())
		t.Cleanup(func() { _ = c.Broker(1).Resume() })
		failing("check the bus", "no answer")
		w.must(c.Broker(1).Resume())
		w.ready()

		w.must(c.SetTopicConfig(t.Context(), w.checkpoint(), "cleanup.policy", "delete"))
		failing("check the bus", w.checkpoint(), `cleanup.policy is \"delete\"`)
		w.must(c.SetTopicConfig(t.Context(), w.checkpoint(), "cleanup.policy", "compact"))
		w.ready()
		w.arrives(w.name+".fine", w.create("configmaps", "ConfigMap"))
	})
}
