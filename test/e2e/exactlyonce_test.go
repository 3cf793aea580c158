package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// With exactly-once delivery on Kafka, the checkpoint is part of the transaction, and nothing is kept on disk. A read_committed consumer
// receives every event once, however often and whenever the bridge is killed.
func TestKafkaExactlyOnceIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{bus: busKafka, types: []kube.Type{kube.ConfigMaps}})
	w.transactional = true
	w.config.Checkpoint = map[string]any{"kafka": map[string]any{"replicas": 1}}
	w.config.Sinks[0].Kafka["delivery"] = "exactly-once"
	w.onePartition()
	w.start()
	const objects = 40
	w.bulk(kube.ConfigMaps, "o", objects)
	w.settle(kube.ConfigMaps)
	for round := range 8 {
		before := w.count()
		w.bulkPatch(kube.ConfigMaps, "o", fmt.Sprintf("%d-a", round), 0, objects/2)
		n := rand.IntN(objects / 2)
		w.onBus("some of the changes", func(all []bus.Message) bool { return len(all) >= before+n })
		w.bridge.Kill()
		w.bulkPatch(kube.ConfigMaps, "o", fmt.Sprintf("%d-b", round), objects/2, objects)
		w.delete(kube.ConfigMaps, fmt.Sprintf("o-%d", round))
		w.create(kube.ConfigMaps, fmt.Sprintf("o-%d", round))
		w.start()
	}
	all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
	w.repeated(all, false)
}

// count returns the number of messages on the bus.
func (w *world) count() int {
	w.t.Helper()
	all, err := w.log.Messages()
	w.must(err)
	return len(all)
}
