package program_test

import (
	"errors"
	"maps"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// A downgrade writes nothing: a checkpoint in a newer format, and a configuration with a newer key, end the program at its start with one
// error that names the thing and the remedy. The program that knows them continues.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	eachDelivery(t, func(t *testing.T, delivery string) {
		c := kafkatest.Start(t, kafkatest.Options{})
		client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		w := newWorld(t, c, delivery)
		delete(w.sink, "sasl")
		topic := w.name + ".fine"
		w.start()
		w.ready()
		w.arrives(topic, w.create("configmaps", "ConfigMap"))
		w.must(w.cmd.Process.Signal(syscall.SIGTERM))
		w.exits(0)
		meanwhile := w.create("configmaps", "ConfigMap")

		w.setFormat(client, "5")
		w.refused(client, 3, w.checkpoint(), "checkpoint was written by a newer version: it has format 5, this version reads format 4",
			"run the newer version, or give it up with `bridge checkpoint reset --sink audit`")
		w.setFormat(client, "4")
		w.config["version"] = 2
		w.refused(client, 2, "version", "unknown key")
		delete(w.config, "version")
		w.start()
		w.arrives(topic, meanwhile)
	})
}

// setFormat writes another format into the identity of the checkpoint.
func (w *world) setFormat(client *kgo.Client, format string) {
	w.t.Helper()
	records, err := w.kafka.Read(w.t.Context(), w.checkpoint())
	w.must(err)
	var identity []byte
	for _, r := range records {
		if string(r.Key) == "!identity" {
			identity = r.Value
		}
	}
	first, rest, _ := strings.Cut(string(identity), ",")
	if !strings.HasPrefix(first, `{"version":`) {
		w.t.Fatalf("the checkpoint's identity is %q", identity)
	}
	changed := `{"version":` + format + "," + rest
	w.must(client.ProduceSync(w.t.Context(), &kgo.Record{Topic: w.checkpoint(), Key: []byte("!identity"), Value: []byte(changed)}).FirstErr())
}

// refused fails the test unless a start ends with a code and one line that has all parts, and nothing was written to Kafka.
func (w *world) refused(client *kgo.Client, code int, parts ...string) {
	w.t.Helper()
	before := w.ends(client)
	out, err := exec.Command(binary, "run", "-c", w.file()).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		w.t.Errorf("it ends with %v, want code %d:\n%s", err, code, out)
	}
	var said []string
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "{") { // no entry of the log
			said = append(said, line)
		}
	}
	if len(said) != 1 {
		w.t.Fatalf("it says %d lines: %s", len(said), out)
	}
	for _, part := range parts {
		if !strings.Contains(said[0], part) {
			w.t.Errorf("it does not say %q: %s", part, said[0])
		}
	}
	if after := w.ends(client); !maps.Equal(before, after) {
		w.t.Errorf("it has written: the ends of the partitions were\n\t%v, and are\n\t%v", before, after)
	}
}

// partition is a partition of a topic.
type partition struct {
	topic string
	id    int32
}

// ends returns the end offsets of all partitions.
func (w *world) ends(client *kgo.Client) map[partition]int64 {
	w.t.Helper()
	offsets, err := kadm.NewClient(client).ListEndOffsets(w.t.Context())
	w.must(errors.Join(err, offsets.Error()))
	all := map[partition]int64{}
	offsets.Each(func(o kadm.ListedOffset) { all[partition{o.Topic, o.Partition}] = o.Offset })
	if len(all) == 0 {
		w.t.Fatal("there are no partitions")
	}
	return all
}
