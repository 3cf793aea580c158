package event_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
)

var update = flag.Bool("update", false, "rewrite testdata")

// The messages on the bus are a public contract, so a change of their bytes must be noticed.
func TestGolden(t *testing.T) {
	var want []string
	for _, x := range examples() {
		t.Run(x.name, func(t *testing.T) {
			got := append(encode(&x.event), '\n')
			if *update {
				if err := os.WriteFile(golden(x.name), got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(read(t, golden(x.name))), string(got)); diff != "" {
				t.Errorf("the event format changed (-golden +got):\n%s", diff)
			}
		})
		want = append(want, golden(x.name))
	}
	got, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("testdata holds other files than the examples make (-want +got):\n%s", diff)
	}
}

// The golden files have the headers and values of the formats whose value lacks attributes: the attributes, an empty line, and
// the value.
func TestGoldenFormats(t *testing.T) {
	for _, f := range []event.Format{event.Binary, event.Plain} {
		for _, x := range examples() {
			t.Run(f.String()+"/"+x.name, func(t *testing.T) {
				e := x.event
				c := encoder
				c.Format = f
				attributes := c.Attributes(&e)
				var got []byte
				for _, a := range attributes {
					got = fmt.Appendf(got, "%s: %s\n", a.Name, a.Value)
				}
				got = append(f.Append(append(got, '\n'), attributes, &e), '\n')
				path := filepath.Join("testdata", f.String(), x.name+".txt")
				if *update {
					if err := os.WriteFile(path, got, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if diff := cmp.Diff(string(read(t, path)), string(got)); diff != "" {
					t.Errorf("the event format changed (-golden +got):\n%s", diff)
				}
			})
		}
	}
}

// The formats have the same content in different places: the data of a binary
// event equals that of the structured one byte for byte; a plain value is the object in it,
// and the other members of data are in attributes.
func TestFormatsSayTheSame(t *testing.T) {
	for _, x := range examples() {
		t.Run(x.name, func(t *testing.T) {
			e := x.event
			var whole struct{ Data json.RawMessage }
			if err := json.Unmarshal(encode(&e), &whole); err != nil {
				t.Fatal(err)
			}
			if got := event.Binary.Append(nil, nil, &e); string(got) != string(whole.Data) {
				t.Errorf("binary: got %s, want %s", got, whole.Data)
			}
			var data struct {
				Object    json.RawMessage
				BodyKnown *bool
				Reason    string
				Truncated *event.Truncation
			}
			if err := json.Unmarshal(whole.Data, &data); err != nil {
				t.Fatal(err)
			}
			want := data.Object
			other := e.Type.OfCollection() || e.Type.OfRequest()
			if other {
				want = whole.Data
			}
			if got := event.Plain.Append(nil, nil, &e); string(got) != string(want) {
				t.Errorf("plain: got %s, want %s", got, want)
			}
			if other {
				return
			}
			said := map[string]string{}
			if data.BodyKnown != nil {
				said["bodyknown"] = "false"
			}
			if data.Reason != "" {
				said["reason"] = data.Reason
			}
			if r := data.Truncated; r != nil {
				said["truncatedsize"], said["truncatedsha256"] = fmt.Sprint(r.Size), r.SHA256
				said["truncatedlimit"], said["truncatedlevels"] = fmt.Sprint(r.Limit), fmt.Sprint(r.Levels)
				if r.Fields != nil {
					text, err := json.Marshal(r.Fields)
					if err != nil {
						t.Fatal(err)
					}
					said["truncatedfields"] = string(text)
				}
				maps.DeleteFunc(said, func(_, value string) bool { return value == "" || value == "0" })
			}
			c := encoder
			c.Format = event.Plain
			for _, a := range c.Attributes(&e) {
				switch a.Name {
				case "bodyknown", "reason", "truncatedsize", "truncatedsha256", "truncatedlimit", "truncatedlevels", "truncatedfields":
					if said[a.Name] != a.Value {
						t.Errorf("plain: %s is %q, in data %q", a.Name, a.Value, said[a.Name])
					}
					delete(said, a.Name)
				case "dataschema":
					t.Errorf("plain: dataschema %q is that of other data", a.Value)
				}
			}
			if len(said) > 0 {
				t.Errorf("plain: no attribute says %v", said)
			}
		})
	}
}

// The CloudEvents SDK can read every event, and finds the attributes that are
// in the headers.
func TestCloudEventsSDKAccepts(t *testing.T) {
	for _, x := range examples() {
		t.Run(x.name, func(t *testing.T) {
			var ce cloudevents.Event
			if err := json.Unmarshal(encode(&x.event), &ce); err != nil {
				t.Fatal(err)
			}
			if err := ce.Validate(); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{
				"specversion": ce.SpecVersion(), "id": ce.ID(), "source": ce.Source(), "type": ce.Type(),
				"time": ce.Time().Format("2006-01-02T15:04:05.000000Z07:00"), "datacontenttype": ce.DataContentType(), "dataschema": ce.DataSchema(),
			}
			if ce.Subject() != "" {
				got["subject"] = ce.Subject()
			}
			for name, value := range ce.Extensions() {
				got[name] = value.(string)
			}
			want := map[string]string{}
			for _, a := range encoder.Attributes(&x.event) {
				want[a.Name] = a.Value
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("attributes (-encoder +sdk):\n%s", diff)
			}
			if !json.Valid(ce.Data()) {
				t.Errorf("data is not JSON: %s", ce.Data())
			}
		})
	}
}

func golden(name string) string { return filepath.Join("testdata", name+".json") }

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
