package encode_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// pod returns a pod with a size in bytes. A third of it is managedFields.
func pod(b *testing.B, size int) source.Object {
	b.Helper()
	list := func(element string, size int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", size/len(element)), ",") + "]"
	}
	o, err := source.ParseObject(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod-1","namespace":"shop",`+
		`"uid":"6ea74f39-bf95-426f-8dd5-f5ff09f6dca2","resourceVersion":"1","managedFields":%s},"spec":{"containers":[{"name":"app","env":%s}]}}`,
		list(`{"manager":"kubelet","operation":"Update","fieldsV1":{"f:status":{}}}`, size/3),
		list(`{"name":"A_VARIABLE","value":"and what it is set to"}`, size/3*2)))
	if err != nil {
		b.Fatal(err)
	}
	return o
}

// BenchmarkEncode prepares a modified pod of 4 KB and encodes its event. The memory of batches of 1000 records is
// reused.
func BenchmarkEncode(b *testing.B) {
	for _, x := range []struct {
		name     string
		settings encode.Settings
	}{
		{"plain", encode.Settings{}},
		{"redacted", encode.Settings{Redact: []shape.Rule{{Preset: shape.PodEnv}}}},
		{"filtered", encode.Settings{Filter: `object.metadata.name != "other"`}},
		{"ignored", encode.Settings{Ignore: []string{"status"}}},
		{"patch", encode.Settings{Patch: true}},
	} {
		b.Run(x.name, func(b *testing.B) {
			store, err := file.OpenMem(event.Identity{Bridge: "b", ClusterUID: "c", Sink: "s"})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			e := newEncoder(encode.Options{Store: store, Log: zap.NewNop(), Config: encode.Config{
				Encoder: event.Encoder{Cluster: "prod", ClusterUID: "uid"}, Secrets: shape.Secrets{Key: []byte("a key of the user")},
				Route: encode.Route{Topic: template(b, "k8s.{cluster}.{resource}")},
			}})
			properties, err := configure(e, event.Collection{Resource: "pods"}, x.settings)
			if err != nil {
				b.Fatal(err)
			}
			o := pod(b, 4<<10)
			key := durable.ObjectKey(o.Namespace, o.Name)
			known := &reconcile.Object{UID: o.UID, Status: reconcile.Published}
			var items []reconcile.Item
			at, version := time.Now(), 1000
			b.SetBytes(int64(len(o.Raw)))
			b.ReportAllocs()
			for b.Loop() {
				version++
				o.ResourceVersion = strconv.Itoa(version)
				s := reconcile.Sighting{Key: key, UID: o.UID, Version: o.ResourceVersion, Body: &o}
				e.Prepare("pods", &s, known, false)
				if !s.Prepared.Passes(event.Modified) {
					b.Fatal("the filter does not let it through")
				}
				known.At, known.AtDigest, known.Version = s.Version, s.Digest, s.Version
				items = append(items, reconcile.Item{
					Collection: "pods", Run: 2, Incarnation: 1, Epoch: 1, Route: properties.Route,
					Object: &reconcile.ObjectEvent{Type: event.Modified, Key: key, Object: *known, Version: s.Version, Body: &o},
				})
				r, _ := e.Encode(&items[len(items)-1], "", at)
				if len(r.Value) < len(o.Raw)/2 {
					b.Fatalf("the record has %d bytes", len(r.Value))
				}
				if len(items) == 1000 {
					e.Sealed()
					e.Committed(items)
					items = items[:0]
				}
			}
		})
	}
}

// BenchmarkDigest computes the digest of an object. A third of the object is managedFields.
func BenchmarkDigest(b *testing.B) {
	for _, x := range []struct {
		name, resource string
		size           int
	}{{"1K", "pods", 1 << 10}, {"16K", "pods", 16 << 10}, {"sealed, 1K", "secrets", 1 << 10}} {
		b.Run(x.name, func(b *testing.B) {
			e := newEncoder(encode.Options{Log: zap.NewNop(), Config: encode.Config{Secrets: shape.Secrets{Key: []byte("a key of the user")}}})
			if _, err := configure(e, event.Collection{Resource: x.resource}, encode.Settings{}); err != nil {
				b.Fatal(err)
			}
			o := pod(b, x.size)
			s := reconcile.Sighting{UID: o.UID, Version: "1", Body: &o}
			b.SetBytes(int64(x.size / 3 * 2))
			b.ReportAllocs()
			for b.Loop() {
				e.Prepare(x.resource, &s, nil, false)
			}
		})
	}
}
