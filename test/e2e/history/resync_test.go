package history_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

func ofResync(typ string) func(bus.Message) bool {
	return func(m bus.Message) bool {
		return m.Attributes["type"] == "io.kubebridge.collection."+typ+".v1" && m.Data.Reason == "resync"
	}
}

// TestResyncIsABase: objects change, are created and deleted throughout a resync, and then the stream drops all earlier
// messages. A state can be rebuilt from the resync and the events of that time.
func TestResyncIsABase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	const objects = 200
	name := func(i int) string { return fmt.Sprintf("o%d", i%objects) }
	for i := range objects {
		w.create(kube.ConfigMaps, name(i), kube.Fields{"data": map[string]any{"n": "0"}})
	}
	stop, written := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for i := 0; err == nil; i++ {
			select {
			case <-stop:
				written <- nil
				return
			default:
			}
			switch i % 4 {
			case 0, 1:
				_, err = w.kube.Patch(w.ctx, kube.ConfigMaps, name(7*i), fmt.Sprintf(`{"data":{"n":"%d"}}`, i))
			case 2:
				err = w.kube.Delete(w.ctx, kube.ConfigMaps, name(7*i))
			case 3:
				_, err = w.kube.Create(w.ctx, kube.ConfigMaps, name(7*(i-1)), kube.Fields{"data": map[string]any{"again": fmt.Sprint(i)}})
			}
		}
		written <- err
	}()
	w.bridge(0, "resync", "configmaps")
	resynced := ofResync("synced")
	all, err := w.log.Wait(w.ctx, func(all []bus.Message) bool { return slices.ContainsFunc(all, resynced) })
	w.must(err)
	close(stop)
	w.must(<-written)
	var m struct {
		Data struct {
			Counts struct{ Present, Unchanged int }
		}
	}
	w.must(json.Unmarshal(all[slices.IndexFunc(all, resynced)].Raw, &m))
	if c := m.Data.Counts; c.Present == 0 || c.Unchanged > c.Present/10 { // the watch has published or ended a few in the meantime
		t.Errorf("the resync counts %+v", c)
	}
	want, then := w.published()

	conn, err := nats.Connect(w.nats)
	w.must(err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	w.must(err)
	stream, err := js.Stream(w.ctx, "K8S_"+w.ns)
	w.must(err)
	gap, err := stream.GetLastMsgForSubject(w.ctx, all[slices.IndexFunc(all, ofResync("gap"))].Route)
	w.must(err)
	w.must(stream.Purge(w.ctx, jetstream.WithPurgeSequence(gap.Sequence)))

	out, _ := w.bridge(0, "state", "--at", at(then), "-n", w.ns, "-o", "json", "configmaps")
	if diff := cmp.Diff(want, w.parsed(out)); diff != "" {
		t.Errorf("the state (-server +bus):\n%s", diff)
	}
}
