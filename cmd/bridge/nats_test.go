package main

import (
	"testing"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// Without a path the checkpoint is on the sink's NATS server, also on an embedded one. An embedded server ends before
// the checkpoint is closed. Changes that could not be written to the checkpoint are restored from the stream.
func TestCheckpointOnTheSinksNATS(t *testing.T) {
	c, err := config.Parse("test.yaml", []byte(`
cluster: x
resources: [pods]
status: {listen: "off"}
sinks:
  - name: live
    nats: {embedded: {dir: `+t.TempDir()+`, listen: "127.0.0.1:0"}}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	id := event.Identity{Bridge: c.Name, Cluster: c.Cluster, ClusterUID: "uid", Sink: "live"}
	folded := 0
	for seq := range uint64(3) {
		spec, err := sinkSpec(c, &c.Sinks[0], zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		bus, store, _, err := spec.Open(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		mark, err := store.Get(checkpoint.MarkKey())
		if err != nil || mark != nil {
			t.Fatalf("before it is loaded the mark is %q, %v", mark, err)
		}
		if err := bus.Open(t.Context(), mark); err != nil {
			t.Fatal(err)
		}
		if err := store.(checkpoint.Loader).Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if mark, err = store.Get(checkpoint.MarkKey()); err != nil {
			t.Fatal(err)
		}
		err = bus.(sink.Log).Tail(t.Context(), mark, func(state []event.KV, mark []byte) error {
			folded++
			return store.Commit(t.Context(), append(state, event.KV{Key: checkpoint.MarkKey(), Value: mark}))
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"", "0", "1"}[seq]; want != "" {
			if got, err := store.Get([]byte("e/pods/ns/a")); err != nil || string(got) != want {
				t.Fatalf("start %d: the checkpoint says %q, %v, want %q", seq, got, err, want)
			}
		}
		state := []event.KV{{Key: []byte("e/pods/ns/a"), Value: []byte{byte('0' + seq)}}}
		written, err := bus.Write(t.Context(), &event.Batch{Seq: 1, Records: []event.Record{{ID: "id", Route: "k8s.x.core.pods.ns.a", Value: []byte("{}"), State: state}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Commit(t.Context(), append(state, event.KV{Key: checkpoint.MarkKey(), Value: written})); err != nil {
			t.Fatal(err)
		}
		if err := bus.Close(); err != nil {
			t.Fatal(err)
		}
		if err := store.(*nats.Store).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if folded < 2 {
		t.Errorf("%d events were folded in, want one or more at each of two starts", folded)
	}
}
