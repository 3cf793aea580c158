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

// Reading only the headers of a message gives the same attributes as reading the whole message. Otherwise a state would be rebuilt from
// the wrong events.
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
			return // the bridge never writes a structured event whose headers and value differ
		}
		for what, pair := range map[string][2]string{
			"id": {got.ID, all.ID}, "type": {got.Type.String(), all.Type.String()}, "collection": {got.Collection, all.Collection},
			"name": {got.Name, all.Name}, "namespace": {got.Namespace, all.Namespace}, "uid": {got.UID, all.UID},
			"resourceVersion": {got.ResourceVersion, all.ResourceVersion}, "deletionVersion": {got.DeletionVersion, all.DeletionVersion},
			"resource": {got.Resource, all.Resource}, "group": {got.Group, all.Group}, "cluster": {got.Cluster, all.Cluster},
			"clusterUID": {got.ClusterUID, all.ClusterUID}, "origin": {string(got.Origin), string(all.Origin)}, "time": {got.Time.String(), all.Time.String()},
			"numbers": {fmt.Sprint(got.Epoch, got.Run, got.Incarnation), fmt.Sprint(all.Epoch, all.Run, all.Incarnation)},
		} {
			if pair[0] != pair[1] {
				t.Fatalf("%+v: its %s is %s by the headers, %s by all of it", m, what, strconv.Quote(pair[0]), strconv.Quote(pair[1]))
			}
		}
	})
}

// Headers, attributes and body of an event must agree. Otherwise another writer could make a query show or restore
// another object than the requested one.
func TestAllOfAnEventAgrees(t *testing.T) {
	long := strings.Repeat("n", event.MaxName+1)
	type places struct{ header, attribute, body event.Event }
	for what, c := range map[string]struct {
		change func(*places)
		agrees bool
	}{
		"everything": {func(*places) {}, true},
		"a long name": {func(p *places) {
			p.header.Name, p.attribute.Name, p.body.Name = event.BoundName(long), event.BoundName(long), long
		}, true},
		"the header's group":   {func(p *places) { p.header.Collection = &event.Collection{Group: "apps", Resource: "pods"} }, false},
		"the header's name":    {func(p *places) { p.header.Name = "other" }, false},
		"the header's uid":     {func(p *places) { p.header.UID = "other" }, false},
		"the body's version":   {func(p *places) { p.body.APIVersion = "rbac.authorization.k8s.io/v1" }, false},
		"the body's kind":      {func(p *places) { p.body.Kind = "ClusterRoleBinding" }, false},
		"the body's name":      {func(p *places) { p.body.Name = "other" }, false},
		"the body's long name": {func(p *places) { p.body.Name = long }, false},
		"the body's namespace": {func(p *places) { p.body.Namespace = "kube-system" }, false},
		"the body's uid":       {func(p *places) { p.body.UID = "other" }, false},
	} {
		one := event.Event{
			Type: event.Modified, Origin: event.Watch, Time: time.Unix(1, 0).UTC(), Collection: &event.Collection{Resource: "pods"}, APIVersion: "v1",
			Kind: "Pod", Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "2", Run: "7", Incarnation: 5,
		}
		p := places{one, one, one}
		c.change(&p)
		p.attribute.Object = fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"namespace":%q,"name":%q,"uid":%q}}`,
			p.body.APIVersion, p.body.Kind, p.body.Namespace, p.body.Name, p.body.UID)
		encoder := event.Encoder{Cluster: "c", ClusterUID: "cu"}
		m := sink.Message{Value: encoder.Format.Append(nil, encoder.Attributes(&p.attribute), &p.attribute)}
		m.Headers = append(m.Headers, sink.Header{Name: "content-type", Value: []byte(encoder.Format.ContentType())})
		for _, a := range encoder.Attributes(&p.header) {
			m.Headers = append(m.Headers, sink.Header{Name: "ce_" + a.Name, Value: []byte(a.Value)})
		}
		var h head
		if ok, err := newHeads().read(&m, &h); !ok || err != nil {
			t.Fatalf("%s: %t, %v", what, ok, err)
		}
		_, err := h.decode(&m)
		if c.agrees != (err == nil) || err != nil && !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
