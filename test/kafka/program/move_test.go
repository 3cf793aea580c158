package program_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// A bridge whose checkpoint moved from a directory to Kafka, or back, continues: it publishes what has changed meanwhile, each change once,
// and no snapshot. With the checkpoint, the delivery may become exactly-once.
func TestCheckpointMove(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{user: password}})
	eachDelivery(t, func(t *testing.T, delivery string) {
		w := newWorld(t, c, "at-least-once")
		topic := w.name + ".fine"
		w.sink["create"] = map[string]any{"partitions": 1} // one order
		w.config["checkpoint"] = map[string]any{"file": map[string]any{"path": filepath.Join(t.TempDir(), "checkpoint")}}
		inDirectory := w.file()
		delete(w.config, "checkpoint")
		w.sink["delivery"] = delivery
		inKafka := w.file()
		move := func(from, to string) {
			t.Helper()
			if out, err := exec.Command(binary, "checkpoint", "move", "-c", from, "--to", to).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		stop := func() {
			t.Helper()
			w.must(w.cmd.Process.Signal(syscall.SIGTERM))
			w.exits(0)
		}
		var want []string
		published := func(kind, name string) {
			t.Helper()
			want = append(want, kind+" "+name)
			w.await(kind+" "+name, func() bool { return slices.Contains(w.events(topic), kind+" "+name) })
		}

		w.run(inDirectory)
		w.await("the end of the first list", func() bool { return strings.Contains(w.log(), `"msg":"synced"`) }) // what a list finds is not added
		before := w.create("configmaps", "ConfigMap")
		published("added", before)
		stop()
		existed := w.events(topic)

		w.remove("configmaps", before)
		meanwhile := w.create("configmaps", "ConfigMap")
		move(inDirectory, inKafka)
		w.run(inKafka)
		published("deleted", before)
		published("added", meanwhile)
		after := w.create("configmaps", "ConfigMap")
		published("added", after)
		stop()

		w.remove("configmaps", after)
		move(inKafka, inDirectory)
		w.run(inDirectory)
		published("deleted", after)
		last := w.create("configmaps", "ConfigMap")
		published("added", last)
		stop()

		got := w.events(topic)[len(existed)-1:] // with the first one of want
		if !slices.Equal(got, want) {
			t.Errorf("published\n\t%q, want\n\t%q; the log:\n%s", got, want, w.log())
		}
		w.run(inKafka)
		w.exits(3, "it was moved to directory")
	})
}

// events returns type and name of the events in a topic, in order.
func (w *world) events(topic string) (all []string) {
	records, err := w.kafka.Read(w.t.Context(), topic)
	if err != nil {
		return nil // it is not there yet
	}
	for _, r := range records {
		e, err := event.Parse(r.Value)
		w.must(err)
		all = append(all, strings.TrimSpace(e.Type.String()+" "+e.Name))
	}
	return all
}
