package scale

import (
	"context"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/mirror"
	"github.com/kubebridge/kubebridge/internal/mirror/api"
	"github.com/kubebridge/kubebridge/internal/mirror/busreader"
	"github.com/kubebridge/kubebridge/internal/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// memoryBus is a bus in memory.
type memoryBus struct{ values [][]byte }

func (b *memoryBus) Parts() []sink.Part {
	return []sink.Part{{Name: "K8S", Log: "K8S", ID: "1", First: 1, End: int64(len(b.values)) + 1}}
}
func (b *memoryBus) At(context.Context, time.Time) ([]int64, error) { return []int64{1}, nil }
func (b *memoryBus) Refresh(context.Context) error                  { return nil }
func (b *memoryBus) Close()                                         {}

func (b *memoryBus) Read(_ context.Context, ranges []sink.Range, _ bool, fn func(m *sink.Message) error) error {
	for at := ranges[0].From; at < ranges[0].To; at++ {
		if err := fn(&sink.Message{Offset: at, Value: b.values[at-1]}); err != nil {
			return err
		}
	}
	return nil
}

// copyOf reads the events of n pods into a copy.
func copyOf(b *testing.B, n int) *mirror.Mirror {
	of := event.Collection{Resource: "pods"}
	from := &bus{of: of, pods: newPods(b, min(n, teamPods), 100), version: 1000}
	from.encoder = event.Encoder{Cluster: clusterName, ClusterUID: clusterUID, Format: event.Structured}.Of(&from.of)
	values := &memoryBus{}
	values.values = append(values.values, from.beginning().Value)
	for i := range n {
		values.values = append(values.values, from.pod(i, event.Present, event.Snapshot).Value)
	}
	values.values = append(values.values, from.end().Value)
	s, err := store.Open(b.TempDir(), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	m, err := mirror.Open(s)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = m.Close(), s.Close() })
	ctx, cancel := context.WithCancel(b.Context())
	b.SetBytes(int64(len(values.values[1])))
	b.ResetTimer()
	err = busreader.Run(ctx, busreader.Options{
		Mirror: m, Cluster: clusterName, Log: zap.NewNop(), Open: func(context.Context) (sink.Reader, error) { return values, nil },
		Progress: func(behind int64) {
			if behind == 0 {
				cancel()
			}
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkRead is what reading an event of a pod into the copy takes, without the bus.
func BenchmarkRead(b *testing.B) {
	b.ReportAllocs()
	copyOf(b, b.N)
}

// BenchmarkList is what a pod takes in lists of pages.
func BenchmarkList(b *testing.B) {
	const n = 5000
	server := httptest.NewServer(api.New(api.Options{
		Mirror: copyOf(b, n), Cluster: clusterName, Log: zap.NewNop(),
		Builtin: func(string) (api.Builtin, bool) { return api.Builtin{APIVersion: "v1", Kind: "Pod", Namespaced: true}, true },
	}))
	b.Cleanup(server.Close)
	m := &measurement{TB: b, serve: &served{ctx: b.Context(), url: server.URL}}
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= n {
		if items, _ := m.pages(podsOf(podListed), url.Values{}); items != n {
			b.Fatalf("%d pods, want %d", items, n)
		}
	}
}
