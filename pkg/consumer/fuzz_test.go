package consumer_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// FuzzDecode: the value of a message in binary mode, or of a plain object, cannot replace an attribute from its headers.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"object":{"a":1}}`), "ce_name", "web", false)
	f.Add([]byte(`{"a":1}`), "ce_reason", "left", true)
	f.Add([]byte(`{"object":{}},"name":"other"`), "ce_x", "", false)
	f.Add([]byte(`{}},"id":"other","data":{"object":{}`), "ce_truncatedsize", "1", true)
	f.Add([]byte(`{}`), "Ce_Name", `","uid":"`, true)
	f.Add([]byte(`{}`), "ce-name", `%`, true)
	e := event.Event{
		Type: event.Modified, Origin: event.Watch, Time: time.Unix(1, 0), Collection: &event.Collection{Resource: "pods"}, APIVersion: "v1",
		Kind: "Pod", Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "2", Run: "3", Incarnation: 3, Object: []byte(`{}`),
	}
	headersOf := func(format event.Format) map[string]string {
		headers := map[string]string{"content-type": format.ContentType()}
		for _, a := range (event.Encoder{Cluster: "c", ClusterUID: "cu", Format: format}).Attributes(&e) {
			headers["ce_"+a.Name] = a.Value
		}
		return headers
	}
	binary, plain := headersOf(event.Binary), headersOf(event.Plain)
	f.Fuzz(func(t *testing.T, value []byte, name, header string, isPlain bool) {
		headers := maps.Clone(binary)
		if isPlain {
			headers = maps.Clone(plain)
		}
		headers[name] = header
		r, err := consumer.Decode(consumer.Message{Topic: "t", Headers: headers, Value: value})
		if err != nil {
			if r != nil || !errors.Is(err, consumer.ErrNoEvent) && !errors.Is(err, event.ErrNotEvent) && !errors.Is(err, event.ErrUnknownType) {
				t.Fatalf("%q of %q: %+v, %v", value, headers, r, err)
			}
			return
		}
		if lower := strings.ToLower(name); lower == "content-type" || strings.HasPrefix(lower, "ce") && name != "ce_name" {
			return // the value is of another event, or in another format
		}
		if !json.Valid(value) {
			t.Fatalf("%q was taken: %+v", value, r)
		}
		if r.ID != headers["ce_id"] || r.UID != "u" || r.Type != event.Modified || r.ResourceVersion != "2" {
			t.Fatalf("%q of %q: %+v", value, headers, r)
		}
		if isPlain && string(r.Object) != strings.Trim(string(value), " \t\r\n") { // white space around the object
			t.Fatalf("%q of %q: the object is %q", value, headers, r.Object)
		}
	})
}
