package history

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// What is read of a message's headers alone is what reading all of it says. A state would be made of other
// events otherwise.
func FuzzHeads(f *testing.F) {
	f.Add("ce_name", []byte("web"), []byte(`{"object":{}}`), uint8(event.Binary))
	f.Add("ce_type", []byte("io.kubebridge.resource.deleted.v1"), []byte(`{}`), uint8(event.Plain))
	f.Add("ce_type", []byte("io.kubebridge.resource.deleted.v1"), []byte(nil), uint8(event.Structured))
	f.Add("ce-name", []byte("%2"), []byte(`{}`), uint8(event.Plain))
	f.Add("ce_epoch", []byte("0"), []byte(`{}`), uint8(event.Plain))
	f.Add("ce_epoch", []byte(""), []byte(`{}`), uint8(event.Binary))
	f.Add("ce_run", []byte("x"), []byte(`{}`), uint8(event.Binary))
	f.Add("ce_time", []byte("2026-01-01"), []byte(`{}`), uint8(event.Structured))
	f.Add("ce_deadletterreason", []byte("x"), []byte(`{}`), uint8(event.Plain))
	e := event.Event{
		Type: event.Modified, Origin: event.Watch, Time: time.Unix(1, 0).UTC(), Collection: &event.Collection{Resource: "pods"}, APIVersion: "v1",
		Kind: "Pod", Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "2", Run: "7", Incarnation: 5, Object: []byte(`{}`),
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
		if c.Format == event.Structured && string(value) == "{}" {
			m.Value = c.Format.Append(nil, attributes, &e) // as the bridge writes it
		}
		var got head
		ok, err := newHeads().read(&m, &got)
		if err != nil {
			if ok && got.check() == nil || !errors.Is(err, ErrForeign) && !errors.Is(err, ErrNewer) {
				t.Fatalf("%+v: %t, %v", m, ok, err)
			}
			return
		}
		all, err := decode(&m)
		if !ok || err != nil || c.Format == event.Structured && m.Value != nil && strings.HasPrefix(strings.ToLower(name), "ce") {
			return // the headers of a structured event repeat its value: this one is not of it, or another
		}
		for what, pair := range map[string][2]string{
			"id": {got.text[id], all.ID}, "type": {got.typ.String(), all.Type.String()}, "collection": {got.text[collection], all.Collection},
			"name": {got.text[objectName], all.Name}, "namespace": {got.text[namespace], all.Namespace}, "uid": {got.text[uid], all.UID},
			"resourceVersion": {got.text[version], all.ResourceVersion}, "deletionVersion": {got.text[deletion], all.DeletionVersion},
			"resource": {got.text[resource], all.Resource}, "group": {got.text[group], all.Group}, "cluster": {got.text[cluster], all.Cluster},
			"clusterUID": {got.text[clusterUID], all.ClusterUID}, "origin": {got.text[origin], string(all.Origin)}, "time": {got.time.String(), all.Time.String()},
			"numbers": {fmt.Sprint(got.epoch, got.run, got.incarnation), fmt.Sprint(all.Epoch, all.Run, all.Incarnation)},
		} {
			if pair[0] != pair[1] {
				t.Fatalf("%+v: its %s is %s by the headers, %s by all of it", m, what, strconv.Quote(pair[0]), strconv.Quote(pair[1]))
			}
		}
	})
}
