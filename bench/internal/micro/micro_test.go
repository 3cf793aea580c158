// Package micro measures the parts of the bridge that every event passes, through
// their exported functions: go test -run - -bench . -benchmem ./internal/micro
package micro

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/bench/internal/corpus"
	"github.com/kubebridge/kubebridge/bench/internal/feed"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source"
)

var errEnough = errors.New("enough")

// BenchmarkSource reads a watch: TLS, HTTP/2 and the scan of every frame. The feed
// is in the same process; -cpuprofile distinguishes them.
func BenchmarkSource(b *testing.B) {
	for _, plural := range []string{"pods", "events"} {
		b.Run(plural, func(b *testing.B) {
			all, err := feed.Parse(plural, feed.Resource{Events: uint64(b.N) + 1, Objects: 1000})
			if err != nil {
				b.Fatal(err)
			}
			s, err := feed.New(feed.Options{Resources: all})
			if err != nil {
				b.Fatal(err)
			}
			h := httptest.NewUnstartedServer(s)
			h.EnableHTTP2 = true
			h.Config.ErrorLog = log.New(io.Discard, "", 0) // log lines would break the line of a benchmark's result
			h.StartTLS()
			defer h.Close()
			c, err := source.NewClient(&rest.Config{Host: h.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			n := 0
			r := source.Resource{Version: "v1", Name: plural, Kind: all[0].Kind, Namespaced: true}
			b.ReportAllocs()
			err = source.NewCollection(source.Options{
				Client: c, Target: source.Target{Resource: r, Collection: event.Collection{Resource: plural}},
				Handler: source.HandlerFunc(func(_ context.Context, s source.Signal) error {
					switch {
					case s.Kind == source.Added || s.Kind == source.Modified:
						if n++; n > b.N {
							return errEnough
						}
						b.SetBytes(int64(len(s.Object.Raw)))
					case s.Kind == source.ListEnded:
						b.ResetTimer()
					}
					return nil
				}),
				OnState: func(st source.State) {
					if st.Phase == source.Watching {
						s.Start()
					}
				},
			}).Run(b.Context(), event.Position{})
			if !errors.Is(err, errEnough) {
				b.Fatal(err)
			}
		})
	}
}

func objects(b *testing.B, resource string) [][]byte {
	b.Helper()
	frames, err := corpus.Frames(resource)
	if err != nil {
		b.Fatal(err)
	}
	const before = `{"type":"ADDED","object":`
	for i, f := range frames {
		frames[i] = f[len(before) : len(f)-1]
	}
	return frames
}

// BenchmarkSecrets replaces the values of a Secret.
func BenchmarkSecrets(b *testing.B) {
	all := objects(b, "secrets")
	for _, s := range []shape.Secrets{{Key: []byte("0123456789abcdef")}, {}} {
		b.Run(s.Mode(), func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			for i := range b.N {
				var err error
				if dst, err = s.Append(dst[:0], all[i%len(all)], "bench"); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(all[i%len(all)])))
			}
		})
	}
}

// BenchmarkEncode writes the CloudEvent around an object.
func BenchmarkEncode(b *testing.B) {
	encoder := event.Encoder{Cluster: "bench", ClusterUID: "00000000-0000-4000-8000-00000000beef"}
	for _, resource := range []string{"pods", "events"} {
		b.Run(resource, func(b *testing.B) {
			e := event.Event{
				Type: event.Modified, Origin: event.Watch, Time: time.Now(), Collection: &event.Collection{Resource: resource}, APIVersion: "v1", Kind: "Pod",
				Namespace: "ns", Name: "name", UID: "6ea74f39-bf95-426f-8dd5-f5ff09f6dca2", ResourceVersion: "2000000000", Object: objects(b, resource)[0],
			}
			b.SetBytes(int64(len(e.Object)))
			b.ReportAllocs()
			var dst []byte
			for range b.N {
				dst = event.Structured.Append(dst[:0], encoder.Attributes(&e), &e)
			}
		})
	}
}

// BenchmarkCommit writes the inventory changes of a batch, synced, into a store
// on disk. An operation is one batch.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 100, 2000} {
		b.Run(fmt.Sprintf("changes=%d", n), func(b *testing.B) {
			s, err := file.Open(b.TempDir(), event.Identity{Bridge: "bench", Cluster: "bench", ClusterUID: "u", Sink: "s"}, file.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			changes := make([]event.KV, n)
			value := make([]byte, 80)
			b.ReportAllocs()
			for i := range b.N {
				for j := range changes {
					changes[j] = event.KV{Key: fmt.Appendf(nil, "inventory/pods/ns-%02d/kb-%08d", j%16, (i*n+j)%100_000), Value: value}
				}
				if err := s.Commit(b.Context(), changes); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/change")
		})
	}
}
