package delivery_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
)

// docs/upgrade.md: after partitions were added, the sink refuses to open until `bridge checkpoint reset`. A store that is loaded from the bus has that
// request only after the sink was opened once.
func TestResetAfterPartitionsWereAdded(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	config := kafka.Config{Brokers: cluster.ListenAddrs(), Delivery: "at-least-once", Create: kafka.Create{Partitions: 2}}
	o := kafka.StoreOptions{Options: kafka.Options{Config: config, Identity: identity}, StandAlone: true}
	during := func(do func(*delivery.Delivery, checkpoint.Store)) {
		t.Helper()
		store, err := kafka.NewStore(o)
		must(t, err)
		s, err := kafka.New(o.Options)
		must(t, err)
		d := delivery.New(delivery.Options{Sink: s, Store: store})
		do(d, store)
		must(t, d.Close())
		must(t, store.Close())
	}
	during(func(d *delivery.Delivery, _ checkpoint.Store) {
		must(t, d.Open(t.Context(), false))
		must(t, d.Deliver(t.Context(), &delivery.Batch{Seq: 1, Records: []event.Record{{Route: "t", ID: "1", Key: "k", Value: []byte("{}")}}}))
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(config.Brokers...))
	must(t, err)
	_, err = kadm.NewClient(client).CreatePartitions(t.Context(), 3, "t")
	must(t, err)
	client.Close()
	during(func(d *delivery.Delivery, _ checkpoint.Store) {
		if err := d.Open(t.Context(), false); !errors.As(err, new(*sink.RefusedError)) {
			t.Errorf("with another number of partitions: %v, want a RefusedError", err)
		}
	})
	must(t, kafka.ResetStore(t.Context(), o, false))
	during(func(d *delivery.Delivery, store checkpoint.Store) {
		must(t, d.Open(t.Context(), false))
		if asked := get(t, store, string(checkpoint.ResetKey())); asked != string(checkpoint.ResetRequested()) {
			t.Errorf("the request for a reset is %q", asked)
		}
	})
}
