package bridge

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	planning "github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/internal/operate/recent"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// replay is a reader that passes on n updates of 1000 objects.
type replay struct {
	n    int
	list []source.Object
}

// Read implements [loop.Reader].
func (r *replay) Read(ctx context.Context, _ string, _ reconcile.Read, h *loop.Handler) error {
	for _, in := range []*reconcile.Input{
		{Kind: reconcile.ListBegun}, {Kind: reconcile.ListEnded, Version: "1000"}, {Kind: reconcile.ListDone},
	} {
		if err := h.Input(ctx, in, 0, nil); err != nil {
			return err
		}
	}
	keys, names, uids := make([]string, 1000), make([]string, 1000), make([]string, 1000)
	for i := range keys {
		names[i] = "object-" + strconv.Itoa(i)
		uids[i] = fmt.Sprintf("ffd2cab6-2033-4dcb-a16f-%012x", i)
	}
	for i := range r.n {
		o := r.list[i%len(r.list)]
		version := strconv.Itoa(1001 + i)
		o.Name, o.UID, o.ResourceVersion = names[i%1000], uids[i%1000], version
		if keys[i%1000] == "" {
			keys[i%1000] = durable.ObjectKey(o.Namespace, o.Name)
		}
		s := &reconcile.Sighting{
			Origin: reconcile.Watch, Key: keys[i%1000], UID: o.UID, Version: version, APIVersion: o.APIVersion, Kind: o.Kind, Body: &o,
		}
		if err := h.Input(ctx, &reconcile.Input{Kind: reconcile.Sighted, Sighting: s, Resume: version}, len(o.Raw), nil); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// Side implements [loop.Reader].
func (r *replay) Side(context.Context, string, reconcile.Read, *loop.Handler) error { return nil }

// nowhere is a bus that accepts every batch at once.
type nowhere struct{}

func (*nowhere) Open(context.Context, []byte) error                  { return nil }
func (*nowhere) Write(context.Context, *event.Batch) ([]byte, error) { return nil, nil }
func (*nowhere) Close() error                                        { return nil }

// captured returns the objects of watch frames that were captured from a kube-apiserver.
func captured(b *testing.B, name string) []source.Object {
	b.Helper()
	text, err := os.ReadFile("../base/scan/testdata/" + name + ".ndjson")
	if err != nil {
		b.Fatal(err)
	}
	var list []source.Object
	for line := range bytes.Lines(text) {
		raw := line[bytes.Index(line, []byte(`"object":`))+len(`"object":`) : len(line)-len("}\n")]
		o, err := source.ParseObject(raw)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, o)
	}
	return list
}

// endlessLog is a bus of the mode Log that accepts every batch at once.
type endlessLog struct{ nowhere }

func (*endlessLog) Tail(context.Context, []byte, func([]event.KV, []byte) error) error { return nil }

func (*endlessLog) Mark() []byte { return []byte("1") }

// BenchmarkPipeline passes updates of 1000 objects from the reader through to the checkpoint.
func BenchmarkPipeline(b *testing.B) {
	for _, x := range []struct {
		name, resource string
		bus            sink.Sink
		last           *recent.Changes
	}{
		{"pods", "pods", &nowhere{}, nil},
		{"events", "events", &nowhere{}, nil},
		{"secrets", "secrets", &nowhere{}, nil},
		{"pods-to-a-log", "pods", &endlessLog{}, nil},
		{"pods-with-history", "pods", &nowhere{}, recent.New()},
	} {
		b.Run(x.name, func(b *testing.B) {
			store, err := file.OpenMem(identity)
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			r := &replay{n: b.N, list: captured(b, x.resource)}
			p := newPipeline(pipelineOptions{
				Identity: identity, Sink: x.bus, Store: store, Log: zap.NewNop(), Metrics: NewMetrics(prometheus.NewRegistry()), reader: r,
				Encode: encode.Config{Secrets: shape.Secrets{Key: []byte("a key of the user")}},
			})
			done := make(chan struct{})
			n := 0
			keep := func([]event.Record) {}
			if x.last != nil {
				keep = x.last.Listen("sink")
			}
			p.delivered = func(records []event.Record) {
				keep(records)
				if n += len(records); n == b.N+2 {
					close(done)
				}
			}
			c := planning.Collection{Options: CollectionOptions{}}
			c.Target.Collection = event.Collection{Resource: x.resource}
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			b.SetBytes(int64(len(r.list[0].Raw)))
			b.ReportAllocs()
			b.ResetTimer()
			go func() { ended <- p.Run(ctx, ctx) }()
			if err := p.loop.Set(ctx, loop.Plan{Outcomes: &planning.Outcomes{Wanted: []planning.Collection{c}}, Wanted: []loop.Wanted{p.wanted(&c)}}); err != nil {
				b.Fatal(err)
			}
			<-done
			b.StopTimer()
			cancel()
			<-ended
		})
	}
}
