package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// If readers share the bridge's account, each of them can make the server publish its answers to the stream and to the checkpoint, because
// the server does not check reply subjects. The bridge counts these messages and continues, while it runs and when it starts, and `bridge state` works.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	delete(w.config.Checkpoint, "file") // keep the checkpoint on the bus
	w.nats.SkipForeign.Store(true)
	nc, err := nats.Connect("nats://" + w.nats.Addr())
	w.must(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	w.must(err)
	stream := "K8S_" + w.config.Cluster
	answered := func(in, subject string) { // makes the server put a message on a stream, as a reader of the stream could
		t.Helper()
		last := func() uint64 {
			s, err := js.Stream(w.soon(), in)
			w.must(err)
			return s.CachedInfo().State.LastSeq
		}
		before := last()
		w.must(nc.PublishRequest("$JS.API.STREAM.INFO."+stream, subject, nil))
		for ctx := w.soon(); last() == before; {
			select {
			case <-ctx.Done():
				t.Fatalf("nothing came on %s", subject)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	w.create(kube.ConfigMaps, "o")
	w.start()
	w.settle(kube.ConfigMaps)
	names := js.StreamNames(w.soon(), jetstream.WithStreamListSubject("$KV.>"))
	bucket := <-names.Name()
	w.must(names.Err())
	prefix := "$KV." + strings.TrimPrefix(bucket, "KV_") + "."
	subject, term := fmt.Sprintf("k8s.%s.core.configmaps.x.y", w.config.Cluster), fmt.Sprintf("kubebridge.%s.kubebridge.audit.term", w.config.Cluster)

	for _, to := range []string{subject, term} {
		answered(stream, to)
		w.patch(kube.ConfigMaps, "o", "after "+to)
		w.settle(kube.ConfigMaps)
	}
	answered(bucket, prefix+"=head")
	w.settle(kube.ConfigMaps)
	w.awaitStatus(func(s bridge.Status) bool { return s.Ready && s.Sinks[0].Foreign >= 3 })
	if log := w.bridge.Log(); !strings.Contains(log, "did not write") || !strings.Contains(log, subject) {
		t.Error("the log does not name the first foreign message")
	}
	w.stop()
	resets := func(all []bus.Message) (n int) {
		for _, m := range check.Collections(all, w.collection(kube.ConfigMaps)) {
			if m.Is("gap") && m.Data.Reset {
				n++
			}
		}
		return n
	}
	answered(stream, subject)
	answered(stream, term)
	w.patch(kube.ConfigMaps, "o", "while it was off")
	w.start()
	if n := resets(w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})); n != 1 {
		t.Errorf("%d resets, want the first list's: nothing was lost", n)
	}
	out := w.prints("state", "--at", time.Now().UTC().Format(time.RFC3339Nano), "configmaps", "-n", w.ns, "-c", w.writeConfig(w.config))
	if !strings.Contains(out, "while it was off") {
		t.Errorf("the state is\n%s", out)
	}

	w.stop() // the records of the position are overwritten while the bridge is down, so a reset is needed
	answered(bucket, prefix+"=head")
	w.start()
	messages := w.settle(kube.ConfigMaps)
	if n := resets(messages); n != 2 {
		t.Errorf("%d resets, want one more", n)
	}
}
