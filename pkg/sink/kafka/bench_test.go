package kafka

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// benchBatch returns a batch like that of a pipeline, with objects of size bytes.
func benchBatch(records, size int) *event.Batch {
	b := &event.Batch{}
	collection := &event.Collection{Resource: "events"}
	encoder := event.Encoder{Cluster: "prod-eu-1", ClusterUID: "3f1c1c6e-8d0a-4b7e-9c55-5a1d2b9c7e10"}.Of(collection)
	for i := range records {
		e := &event.Event{
			Type: event.Modified, Origin: event.Watch, Time: time.Unix(1_700_000_000, 0), Collection: collection, APIVersion: "v1", Kind: "Event",
			Namespace: fmt.Sprintf("ns-%d", i%50), Name: fmt.Sprintf("web-7d4b9c6f5-%d.17a1", i), UID: fmt.Sprintf("6ea74f39-bf95-426f-8dd5-%012d", i), ResourceVersion: "2000000000",
		}
		entry := event.KV{Key: fmt.Appendf(nil, "e/core/events/%s/%s", e.Namespace, e.Name), Value: []byte("6ea74f39-bf95-426f-8dd5-f5ff09f6dca2 2000000000 0123456789abcdef")}
		b.Commit.Changes = append(b.Commit.Changes, entry)
		b.Records = append(b.Records, event.Record{
			ID: e.ID(), Route: "k8s.prod-eu-1.core.events", Key: fmt.Sprintf("prod-eu-1/core/events/%s/%s", e.Namespace, e.Name),
			Value: make([]byte, size), Attributes: encoder.Attributes(e), Event: e, State: []event.KV{entry},
		})
	}
	return b
}

// BenchmarkWrite writes batches of one collection to the Kafka at KUBEBRIDGE_KAFKA=host:port, or to one in this process, whose
// work then counts, too. ns-cpu/event is the user and system CPU time of the process.
func BenchmarkWrite(b *testing.B) {
	brokers := []string{os.Getenv("KUBEBRIDGE_KAFKA")}
	if brokers[0] == "" {
		c, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		brokers = c.ListenAddrs()
	}
	id := event.Identity{Bridge: fmt.Sprint("bench-", time.Now().UnixNano()), Cluster: "c", ClusterUID: "uid", Sink: "s"}
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		for _, of := range []struct{ records, size int }{{2000, 1600}, {500, 8000}, {20, 1600}} {
			b.Run(fmt.Sprintf("%s/%d*%d", delivery, of.records, of.size), func(b *testing.B) {
				config := Config{Brokers: brokers, Delivery: delivery, Create: Create{Partitions: 12}}
				options := Options{Config: config, Identity: id}
				var s sink.Sink
				var err error
				if delivery == exactlyOnce {
					store, e := NewStore(StoreOptions{Options: options})
					if e != nil {
						b.Fatal(e)
					}
					defer store.Close()
					s = NewTransactional(store)
				} else {
					s, err = New(options)
				}
				if err == nil {
					err = s.Open(b.Context(), nil)
				}
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				batch := benchBatch(of.records, of.size)
				write := func() {
					batch.Seq++
					if _, err := s.Write(context.Background(), batch); err != nil {
						b.Fatal(err)
					}
				}
				write()
				b.ReportAllocs()
				b.ResetTimer()
				before := cpuTime(b)
				for range b.N {
					write()
				}
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N*of.records), "ns-cpu/event")
			})
		}
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
