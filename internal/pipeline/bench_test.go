package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/kubebridge/kubebridge/internal/recent"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// nowhere is a bus that takes everything at once.
type nowhere struct{ bus }

func (*nowhere) Write(context.Context, *event.Batch) ([]byte, error) { return nil, nil }

// captured are the objects of watch frames captured from a kube-apiserver.
func captured(b *testing.B, name string) []source.Object {
	b.Helper()
	text, err := os.ReadFile("../scan/testdata/" + name + ".ndjson")
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

// BenchmarkLane takes updates of 1000 objects from the collection to the
// checkpoint: what to tell, the record, the batch, the commit; once with the last
// changes kept for the status page.
func BenchmarkLane(b *testing.B) {
	for _, x := range []struct {
		name, called string
		last         *recent.Changes
	}{{"pods", "pods", nil}, {"events", "events", nil}, {"secrets", "secrets", nil}, {"pods", "pods-with-history", recent.New()}} {
		name := x.name
		b.Run(x.called, func(b *testing.B) {
			store, err := file.OpenMem(identity)
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			l := newTestLane(&nowhere{}, store)
			l.shape.Secrets.Key = []byte("a key of the user")
			if l.shape.Subject, err = shape.ParseTemplate("k8s.{cluster}.{group}.{resource}.{namespace}.{name}", shape.SubjectNames); err != nil {
				b.Fatal(err)
			}
			if x.last != nil {
				l.onDelivery = x.last.Listen("sink")
			}
			l.current = l.fresh(1)
			if l.inv, err = newInventory(store); err != nil {
				b.Fatal(err)
			}
			m := newMember(event.Collection{Resource: name})
			list := captured(b, name)
			names, uids := make([]string, 1000), make([]string, 1000)
			for i := range names {
				names[i] = "object-" + strconv.Itoa(i)
				uids[i] = fmt.Sprintf("ffd2cab6-2033-4dcb-a16f-%012x", i)
			}
			rv := 1000
			b.SetBytes(int64(len(list[0].Raw)))
			b.ReportAllocs()
			for b.Loop() {
				rv++
				i := rv % len(names)
				o := list[i%len(list)]
				o.Name, o.UID, o.ResourceVersion = names[i], uids[i], strconv.Itoa(rv)
				if err := l.observe(b.Context(), m, source.Signal{Kind: source.Modified, Object: &o, Resume: o.ResourceVersion}); err != nil {
					b.Fatal(err)
				}
				l.dispatch(b.Context())
				select {
				case r := <-l.written:
					if err := l.finish(b.Context(), r); err != nil {
						b.Fatal(err)
					}
				default:
				}
			}
			if l.writing {
				<-l.written
			}
		})
	}
}
