package event_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// FuzzRoundTrip: for any names of objects, a consumer reads exactly the event that the bridge has written.
func FuzzRoundTrip(f *testing.F) {
	f.Add("pods", "shop", "web", "12", "u", `{"a":1}`, uint8(1))
	f.Add(`x","type":"io.kubebridge.resource.deleted.v1`, `"`, "\x00\u2028\u009b", "\\", "a\"}", `{"data":{"object":{}},"name":"b"}`, uint8(2))
	f.Fuzz(func(t *testing.T, resource, namespace, name, rv, uid, object string, typ uint8) {
		for _, s := range []string{resource, namespace, name, rv, uid} {
			if !utf8.ValidString(s) || s == "" {
				return // not a possible object of an API server
			}
		}
		if !json.Valid([]byte(object)) || object[0] != '{' {
			return
		}
		e := event.Event{
			Type: event.Added + event.Type(typ)%4, Origin: event.Watch, Time: time.Unix(1, 0), Collection: &event.Collection{Resource: resource}, Run: "7", Incarnation: 5,
			APIVersion: name, Kind: uid, Namespace: namespace, Name: name, UID: uid, ResourceVersion: rv, Object: []byte(object),
		}
		c := event.Encoder{Cluster: name, ClusterUID: uid}
		value := event.Structured.Append(nil, c.Attributes(&e), &e)
		r, err := event.Parse(value)
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		if r.Type != e.Type || r.ID != e.ID() || r.Resource != resource || r.Namespace != namespace || r.Name != name || r.UID != uid ||
			r.ResourceVersion != rv || r.APIVersion != name || r.Kind != uid || r.Cluster != name || r.Collection != e.Collection.ID() || r.Origin != e.Origin || !r.Time.Equal(e.Time) {
			t.Fatalf("%+v came back as %+v", e, r)
		}
		// A scanned object has no white space around it.
		if !bytes.Equal(r.Object, bytes.TrimRight(e.Object, " \t\r\n")) || !r.BodyKnown || r.Report != nil || r.DeadLetter != nil {
			t.Fatalf("%s came back as %s", object, r.Object)
		}
	})
}

// FuzzParse: any message is a valid event, or an error that wraps ErrNotEvent or
// ErrUnknownType.
func FuzzParse(f *testing.F) {
	for _, x := range examples() {
		f.Add(read(f, golden(x.name)))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := event.Parse(value)
		if err != nil {
			if r != nil || !errors.Is(err, event.ErrNotEvent) && !errors.Is(err, event.ErrUnknownType) {
				t.Fatalf("%s: %+v, %v", value, r, err)
			}
			return
		}
		if r.ID == "" || r.Cluster == "" || r.ClusterUID == "" || r.Collection == "" || r.Resource == "" || r.Epoch == 0 || r.Time.IsZero() {
			t.Fatalf("%s: %+v", value, r)
		}
		if r.Type.OfCollection() {
			if r.Report == nil || r.Object != nil {
				t.Fatalf("%s: %+v", value, r)
			}
			return
		}
		if r.Type == event.Attributed {
			if r.Attribution == nil || r.Attribution.Explains == "" || r.Object != nil || r.Report != nil {
				t.Fatalf("%s: %+v", value, r)
			}
			return
		}
		if r.Type == event.Lost {
			if r.Loss == nil || r.Loss.Until == "" || r.Object != nil || r.Report != nil {
				t.Fatalf("%s: %+v", value, r)
			}
			return
		}
		if r.Type == event.Denied {
			if r.Denial == nil || r.Denial.Request.Verb == "" || r.Object != nil || r.Report != nil {
				t.Fatalf("%s: %+v", value, r)
			}
			return
		}
		if r.Name == "" || r.UID == "" || r.ResourceVersion == "" || r.Report != nil || !json.Valid(r.Object) || r.Object[0] != '{' {
			t.Fatalf("%s: %+v", value, r)
		}
		var object map[string]any
		if err := r.Into(&object); err != nil && json.Valid(value) {
			var ok map[string]any
			if json.Unmarshal(r.Object, &ok) == nil {
				t.Fatalf("%s: %v", value, err)
			}
		}
	})
}
