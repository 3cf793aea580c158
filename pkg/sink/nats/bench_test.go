package nats

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// BenchmarkChunk measures the sink's own work for a batch, without the client's part.
func BenchmarkChunk(b *testing.B) {
	bus := startBus(b, nil)
	s, err := New(Options{Config: Config{URL: bus.url()}, Identity: testIdentity, Logger: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Open(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	r := event.Record{ID: "0e7c3b5e-6a0f-4a39-9a5c-0d8a1a2b3c4d:123456789:modified", Route: subject, Value: []byte(strings.Repeat("x", 1300))}
	for _, name := range []string{
		"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "cluster", "group", "version",
		"resource", "kind", "namespace", "name", "uid", "resourceversion", "collection",
	} {
		r.Attributes = append(r.Attributes, event.Attribute{Name: name, Value: "some-value-of-" + name})
	}
	r.State = []event.KV{{Key: []byte("i/pods/default/web-7c9d8f7b6c-12345"), Value: []byte(strings.Repeat("v", 70))}}
	records := make([]event.Record, 1000)
	for i := range records {
		records[i] = r
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.(*Sink).chunk(records); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(records)), "ns/record")
}
