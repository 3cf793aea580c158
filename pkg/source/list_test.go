package source

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// fromNowhere is a collection for objects that come from no server.
func fromNowhere(metadataOnly bool) *Collection {
	return NewCollection(Options{Target: Target{
		Collection: event.Collection{MetadataOnly: metadataOnly},
		Resource:   Resource{Group: "apps", Version: "v1", Name: "things", Kind: "Thing"},
	}})
}

func ownFromNowhere(metadataOnly bool, o *Object) {
	k := copier{Collection: fromNowhere(metadataOnly), from: &pieces{}}
	defer k.close()
	k.own(o)
}

func parse(text string) (page, error) {
	var s scanner
	return s.parsePage([]byte(text))
}

func TestParsePage(t *testing.T) {
	bare, full := `{"metadata":{"name":"a","uid":"u","resourceVersion":"5","managedFields":[1]},"spec":{"metadata":{"resourceVersion":"no"}}}`,
		`{"apiVersion":"apps/v1beta1","kind":"Old","metadata":{"name":"b","resourceVersion":"6"}}`
	restored := `{"apiVersion":"apps/v1","kind":"Thing",` + bare[1:]
	for _, c := range []struct {
		name, text string
		raw        []string
		remaining  string
	}{
		{"metadata first", `{"kind":"ThingList","apiVersion":"apps/v1","metadata":{"resourceVersion":"9","continue":"t"},"items":[` + bare + `,` + full + `]}`, []string{restored, full}, "t"},
		{"items first", `{"items":[` + bare + `],"kind":"ThingList","metadata":{"continue":"","remainingItemCount":3,"resourceVersion":"9"}}`, []string{restored}, ""},
		{"white space", "{ \"items\" : [ " + bare + " , " + full + " ] , \"metadata\" : { \"resourceVersion\" : \"9\" } }\n", []string{restored, full}, ""},
		{"no items", `{"metadata":{"resourceVersion":"9"},"items":[]}`, nil, ""},
		{"null items", `{"items":null,"metadata":{"resourceVersion":"9"}}`, nil, ""},
		{"null continue", `{"items":[],"metadata":{"continue":null,"resourceVersion":"9"}}`, nil, ""},
		{"a nested items", `{"metadata":{"resourceVersion":"9"},"extra":{"items":[1]},"items":[` + full + `]}`, []string{full}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := parse(c.text)
			if err != nil {
				t.Fatal(err)
			}
			var raw []string
			for _, o := range p.items {
				ownFromNowhere(false, &o)
				raw = append(raw, string(o.Raw))
			}
			if diff := cmp.Diff(c.raw, raw); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
			if p.rv != "9" || p.remaining != c.remaining || p.bytes != len(c.text) {
				t.Errorf("got %q, %q, %d bytes", p.rv, p.remaining, p.bytes)
			}
		})
	}
}

// A list that cannot be read to its end must be refused, because every object that it lacks would count as deleted.
func TestParsePageRefuses(t *testing.T) {
	whole := `{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`
	if _, err := parse(whole); err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		if p, err := parse(whole[:n]); err == nil {
			t.Fatalf("%s: accepted with %d items", whole[:n], len(p.items))
		}
	}
	for text, want := range map[string]string{
		`{"items":[]}`:                                                                       "without a resourceVersion",
		`{"items":[],"metadata":{}}`:                                                         "without a resourceVersion",
		`{"items":[],"metadata":null}`:                                                       "without a resourceVersion",
		`{"items":[],"metadata":{"resourceVersion":null}}`:                                   "without a resourceVersion",
		`{"metadata":{"resourceVersion":"9"}}`:                                               "without items",
		`null`:                                                                               "without items",
		`{"metadata":{"resourceVersion":"9"},"items":{}}`:                                    "{ where an array should be",
		`{"metadata":{"resourceVersion":"9"},"items":[null]}`:                                "null where a Kubernetes object should be",
		`{"metadata":{"resourceVersion":"9"},"items":[{}]}`:                                  "an empty object",
		`{"metadata":{"resourceVersion":"9"},"items":["a"]}`:                                 "string where a Kubernetes object should be",
		`{"metadata":{"resourceVersion":9},"items":[]}`:                                      "number where a string should be",
		`{"metadata":{"resourceVersion":"9"},"items":[{"kind":"A","kind":"B"}]}`:             "a second kind",
		`{"metadata":{"resourceVersion":"9"},"items":[{"apiVersion":"A","apiVersion":"B"}]}`: "a second apiVersion",
		`{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{},"metadata":null}]}`:     "a second metadata",
		`{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"managedFields":[],"managedFields":[{}]}}]}`: "a second managedFields",
		`[]`: "[ where an object should be",
		`{"kind":"Status","status":"Failure","code":500}`:       "without items",
		`{"metadata":{"resourceVersion":"9"},"items":[],"x":tr`: "EOF",
		`{"metadata":{"resourceVersion":"9"},"items":[]}{}`:     "{ behind the end",
		`{"metadata":{"resourceVersion":"9"},"items":[]}x`:      "invalid character",
	} {
		if p, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v, want an error with %q", text, p, err, want)
		}
	}
}

// An object that waits for the bus must not keep its whole page in memory, and the next page must not change it.
func TestItemsDoNotShareThePage(t *testing.T) {
	for _, item := range []string{`{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}`, `{"metadata":{"name":"a"}}`} {
		body := []byte(`{"metadata":{"resourceVersion":"9"},"items":[` + item + `]}`)
		var s scanner
		p, err := s.parsePage(body)
		if err != nil {
			t.Fatal(err)
		}
		o := p.items[0]
		ownFromNowhere(false, &o)
		before := string(o.Raw)
		for i := range body {
			body[i] = '#'
		}
		if got := string(o.Raw); got != before || o.Name != "a" {
			t.Errorf("got %s", got)
		}
	}
}

// said is what a page says.
type said struct {
	RV, Continue string
	Left         *int64
	Items        []string
}

func saidOf(p page) said {
	out := said{p.rv, p.remaining, p.left, nil}
	for _, o := range p.items {
		out.Items = append(out.Items, string(o.Raw))
	}
	return out
}

// plainPage reads a page by encoding/json, as far as it is one beyond doubt: without
// names that repeat, and all that it holds are objects.
func plainPage(body []byte) (out said, whole bool) {
	var list, metadata map[string]json.RawMessage
	var items []json.RawMessage
	if !comparable(string(body)) || json.Unmarshal(body, &list) != nil || list["items"] == nil || json.Unmarshal(list["items"], &items) != nil || json.Unmarshal(list["metadata"], &metadata) != nil {
		return out, false
	}
	for name, into := range map[string]*string{"resourceVersion": &out.RV, "continue": &out.Continue} {
		if metadata[name] != nil && json.Unmarshal(metadata[name], into) != nil {
			return out, false
		}
	}
	if json.Unmarshal(metadata["remainingItemCount"], &out.Left) != nil {
		out.Left = nil // it only says how far the list is
	}
	for _, item := range items {
		if _, err := ParseObject(item); err != nil {
			return out, false
		}
		out.Items = append(out.Items, string(item))
	}
	return out, out.RV != ""
}

// FuzzParsePage: a parsed page equals that of encoding/json, and its objects are complete once the fields that lists omit are
// restored.
func FuzzParsePage(f *testing.F) {
	for _, s := range []string{
		`{"kind":"ThingList","apiVersion":"apps/v1","metadata":{"resourceVersion":"9","continue":"t"},"items":[{"metadata":{"name":"a","managedFields":[]},"spec":{}}]}`,
		`{ "items" : [ {"apiVersion":"v1","kind":"A","metadata":null} , {"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"b"}} ] , "metadata" : { "resourceVersion" : "9" } }`,
		`{"items":null,"metadata":{"resourceVersion":"9"}}`, `{"metadata":{"resourceVersion":"9"},"items":[{}]}`, `[]`, `{"items":[`, `{"items":[],"items":[{"a":1}],"metadata":{"resourceVersion":"9"}}`,
		`{"metadata":{"remainingItemCount":17,"continue":"\u0061\n","resourceVersion":"9"},"items":[{"metadata":{"labels":{}}},{"x":null}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var s scanner
		before := string(body)
		p, err := s.parsePage(body)
		if want, whole := plainPage(body); whole && (err != nil || !reflect.DeepEqual(saidOf(p), want)) {
			t.Fatalf("%q: %v, %+v; encoding/json says %+v", body, err, saidOf(p), want)
		}
		if err != nil {
			return
		}
		if p.rv == "" || !json.Valid(body) && utf8.Valid(body) {
			t.Fatalf("%q was accepted", body)
		}
		for _, o := range p.items {
			for _, metadataOnly := range []bool{false, true} {
				o := o
				ownFromNowhere(metadataOnly, &o)
				again, err := ParseObject(o.Raw)
				if err != nil {
					t.Fatalf("%q: %q: %v", body, o.Raw, err)
				}
				if again.Kind != o.Kind || again.APIVersion != o.APIVersion || again.isPartial() {
					t.Fatalf("%q: %q is %s %s, not %s %s", body, o.Raw, again.APIVersion, again.Kind, o.APIVersion, o.Kind)
				}
				if out := o.AppendWithoutManagedFields(nil); utf8.Valid(body) && !json.Valid(out) {
					t.Fatalf("%q: without managedFields: %q", body, out)
				}
			}
		}
		var shared pieces
		var held []Object
		var texts []string
		for range 3 {
			k := copier{Collection: fromNowhere(false), from: &shared}
			for i, o := range p.items {
				if k.own(&o); i%3 == 1 {
					held, texts = append(held, o), append(texts, string(o.Raw))
				} else {
					o.Release()
				}
			}
			k.close()
		}
		for i := range held {
			if string(held[i].Raw) != texts[i] {
				t.Fatalf("%q: %q became %q while others were kept", body, texts[i], held[i].Raw)
			}
		}
		if string(body) != before {
			t.Fatalf("%q became %q", before, body)
		}
	})
}
