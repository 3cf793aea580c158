package scale

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/api"
	"github.com/kubebridge/kubebridge/internal/past/mirror/busreader"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/consumer"
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
	must(b, err)
	m, err := mirror.Open(s)
	must(b, err)
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
	must(b, err)
	return m
}

// BenchmarkRead is what reading an event of a pod into the copy takes, without the bus.
func BenchmarkRead(b *testing.B) {
	b.ReportAllocs()
	copyOf(b, b.N)
}

// BenchmarkWatch is what a change takes with a watch of each of 1,000 namespaces, in commits of 100 changes.
func BenchmarkWatch(b *testing.B) {
	const spread = 1000
	of := event.Collection{Resource: "pods"}
	from := &bus{of: of, pods: newPods(b, 0, spread), version: 1000}
	from.encoder = event.Encoder{Cluster: clusterName, ClusterUID: clusterUID, Format: event.Structured}.Of(&from.of)
	s, err := store.Open(b.TempDir(), store.Options{})
	must(b, err)
	m, err := mirror.Open(s)
	must(b, err)
	b.Cleanup(func() { _, _ = m.Close(), s.Close() })
	apply := func(r event.Record) {
		message := consumer.Message{Topic: "K8S", Partitions: 1, Value: r.Value}
		e, err := consumer.Decode(message)
		must(b, err)
		must(b, m.Apply(message, e))
	}
	apply(from.beginning())
	for i := range spread {
		apply(from.pod(i, event.Present, event.Snapshot))
	}
	apply(from.end())
	must(b, m.Commit(nil))
	server := httptest.NewServer(newAPI(m))
	b.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	version, all := from.version, make([]*changes, spread)
	var received atomic.Int64
	var opened sync.WaitGroup
	failed := make(chan error, spread)
	for i := range spread {
		all[i] = &changes{}
		w := &watcher{namespace: namespaceOf(i), changes: all[i]}
		opened.Add(1)
		go func() {
			err := w.run(b.Context(), http.DefaultClient, fmt.Sprintf("%s%s?watch=true&resourceVersion=%d", server.URL, podsOf(w.namespace), version), opened.Done, func() { received.Add(1) })
			if b.Context().Err() == nil {
				failed <- err
			}
		}()
	}
	opened.Wait()
	b.ResetTimer()
	for i := range b.N {
		changed := i * 7 % spread
		r := from.pod(changed, event.Modified, event.Watch)
		all[changed].add(from.version, time.Now())
		apply(r)
		if i%100 == 99 || i == b.N-1 {
			must(b, m.Commit(nil))
		}
	}
	(&measurement{TB: b}).await(&received, int64(b.N), failed)
}

func must(b *testing.B, err error) {
	if err != nil {
		b.Helper()
		b.Fatal(err)
	}
}

func newAPI(m *mirror.Mirror) http.Handler {
	return api.New(api.Options{
		Mirror: m, Cluster: clusterName, Log: zap.NewNop(),
		Builtin: func(string) (api.Builtin, bool) {
			return api.Builtin{APIVersion: "v1", Kind: "Pod", Namespaced: true}, true
		},
	})
}

// BenchmarkList is what a pod takes in lists of pages.
func BenchmarkList(b *testing.B) {
	const n = 5000
	server := httptest.NewServer(newAPI(copyOf(b, n)))
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
