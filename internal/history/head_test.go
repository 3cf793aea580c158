package history

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// FuzzHeads: what is read of a message's headers alone is what reading all of it would
// say, else a state is rebuilt of events that are other ones.
func FuzzHeads(f *testing.F) {
	f.Add("ce_name", []byte("web"), []byte(`{"object":{}}`), uint8(event.Binary))
	f.Add("ce_type", []byte("io.kubebridge.resource.deleted.v1"), []byte(`{}`), uint8(event.Plain))
	f.Add("ce-name", []byte("%2"), []byte(`{}`), uint8(event.Plain))
	f.Add("ce_epoch", []byte("0"), []byte(`{}`), uint8(event.Plain))
	f.Add("ce_epoch", []byte(""), []byte(`{}`), uint8(event.Binary))
	f.Add("ce_time", []byte("2026-01-01"), []byte(`{}`), uint8(event.Structured))
	f.Add("ce_deadletterreason", []byte("x"), []byte(`{}`), uint8(event.Plain))
	e := event.Event{
		Type: event.Modified, Origin: event.Watch, Time: time.Unix(1, 0).UTC(), Collection: &event.Collection{Resource: "pods"}, APIVersion: "v1",
		Kind: "Pod", Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "2", Entry: "1", Object: []byte(`{}`),
	}
	f.Fuzz(func(t *testing.T, name string, header, value []byte, format uint8) {
		c := event.Encoder{Cluster: "c", ClusterUID: "cu", Format: event.Format(format % 3)}
		m := sink.Message{Value: value}
		attributes := c.Attributes(&e)
		replaced := false
		for _, a := range append(attributes, event.Attribute{Name: "content-type", Value: c.Format.ContentType()}) {
			h := sink.Header{Name: "ce_" + a.Name, Value: []byte(a.Value)}
			if a.Name == "content-type" {
				h.Name = a.Name
			}
			if strings.EqualFold(h.Name, name) {
				h.Value, replaced = header, true
			}
			m.Headers = append(m.Headers, h)
		}
		if !replaced {
			m.Headers = append(m.Headers, sink.Header{Name: name, Value: header})
		}
		if c.Format == event.Structured && len(value) > 0 && value[0] == '{' && value[len(value)-1] == '}' && len(value) < 3 {
			m.Value = c.Format.Append(nil, attributes, &e) // as the bridge writes it
		}
		var got head
		ok, err := newHeads().read(&m, &got)
		if err != nil {
			if ok || !errors.Is(err, ErrForeign) && !errors.Is(err, ErrNewer) {
				t.Fatalf("%+v: %t, %v", m, ok, err)
			}
			return
		}
		all, err := decode(m.Headers, m.Value)
		if !ok || err != nil || c.Format == event.Structured && strings.HasPrefix(strings.ToLower(name), "ce") {
			return // the headers of a structured event repeat what it says: of which this one is none, or another
		}
		for what, pair := range map[string][2]string{
			"id": {got.id, all.ID}, "type": {got.typ.String(), all.Type.String()}, "collection": {got.collection, all.Collection},
			"name": {got.name, all.Name}, "namespace": {got.namespace, all.Namespace}, "uid": {got.uid, all.UID}, "resourceVersion": {got.rv, all.ResourceVersion},
			"resource": {got.resource, all.Resource}, "group": {got.group, all.Group}, "cluster": {got.cluster, all.Cluster}, "clusterUID": {got.clusterUID, all.ClusterUID},
			"origin": {string(got.origin), string(all.Origin)}, "time": {got.time.String(), all.Time.String()},
		} {
			if pair[0] != pair[1] {
				t.Fatalf("%+v: its %s is %q by the headers, %q by all of it", m, what, pair[0], pair[1])
			}
		}
		if got.epoch != all.Epoch {
			t.Fatalf("%+v: its epoch is %d by the headers, %d by all of it", m, got.epoch, all.Epoch)
		}
	})
}
