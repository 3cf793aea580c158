package event_test

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	schemas     = "../../docs/schemas"
	eventSchema = "https://kubebridge.io/schemas/event-v1.json"
)

// compile makes a validator of the published schemas, which find each other by
// their ids.
func compile(t *testing.T, id string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	files, err := filepath.Glob(schemas + "/*-v1.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("schemas: %v, %v", files, err)
	}
	for _, f := range files {
		doc := document(t, read(t, f))
		if err := c.AddResource(doc["$id"].(string), doc); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile(id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func document(t *testing.T, b []byte) map[string]any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return v.(map[string]any)
}

// Whoever validates with the published schemas must be able to take every event,
// and its data alone by the schema that it names.
func TestSchemasAcceptEveryEvent(t *testing.T) {
	whole := compile(t, eventSchema)
	data := map[string]*jsonschema.Schema{
		event.ObjectSchema:     compile(t, event.ObjectSchema),
		event.CollectionSchema: compile(t, event.CollectionSchema),
	}
	for _, x := range examples() {
		t.Run(x.name, func(t *testing.T) {
			doc := document(t, encode(&x.event))
			if err := whole.Validate(doc); err != nil {
				t.Errorf("event: %v", err)
			}
			if err := data[doc["dataschema"].(string)].Validate(doc["data"]); err != nil {
				t.Errorf("data: %v", err)
			}
		})
	}
}

// Events that no golden file shows, but the bridge can write.
func TestSchemasAcceptRareEvents(t *testing.T) {
	whole := compile(t, eventSchema)
	byName := map[string]event.Event{}
	for _, x := range examples() {
		byName[x.name] = x.event
	}
	for name, change := range map[string]func() event.Event{
		"the gap of a first snapshot": func() event.Event {
			e := byName["gap"]
			e.ResourceVersion, e.Origin, e.Report = "", event.Snapshot, &event.Report{Reason: "snapshot"}
			return e
		},
		"the gap of a reset": func() event.Event {
			e := byName["gap"]
			e.Epoch, e.Report = 3, &event.Report{Reason: "reset", Reset: true, Detail: "the stream was made again"}
			return e
		},
		"a body that may not be shown": func() event.Event {
			e := byName["added"]
			e.Object = nil
			return e
		},
		"a body of which not even the head fits": func() event.Event {
			e := byName["truncated"]
			e.Object = nil
			return e
		},
		"a resync, which says its run": func() event.Event {
			e := byName["gap"]
			e.Origin, e.Run, e.Report = event.Resync, "dk3v0b1p9x2c", &event.Report{Reason: "resync", From: "1190"}
			return e
		},
		"another history": func() event.Event {
			e := byName["gap"]
			e.Epoch, e.ResourceVersion, e.Report = 2, "", &event.Report{Reason: "history", Detail: "it went back"}
			return e
		},
		"a verification that found something": func() event.Event {
			e := byName["synced"]
			r := *e.Report
			r.Reason, e.Report = "drift", &r
			return e
		},
		"the end of a collection's objects": func() event.Event {
			e := byName["synced"]
			r := *e.Report
			r.Reason, r.To, e.Run, e.Report = "gone", "", "gone", &r
			return e
		},
		"still in step": func() event.Event {
			e := byName["synced"]
			e.Origin, e.Run, e.Report = event.Watch, "dk3v0b1p9x2c", &event.Report{Reason: "periodic", To: "2214"}
			return e
		},
		"a collection whose namespace was deleted": func() event.Event {
			e := byName["closed"]
			e.Report = &event.Report{Reason: "gone"}
			return e
		},
		"a collection of which others go on": func() event.Event {
			e := byName["closed"]
			e.Report = &event.Report{Reason: "selection"}
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := change()
			if err := whole.Validate(document(t, encode(&e))); err != nil {
				t.Error(err)
			}
		})
	}
}

// A schema that lets everything pass protects nobody.
func TestSchemasRefuse(t *testing.T) {
	whole := compile(t, eventSchema)
	golden := map[string][]byte{}
	for _, x := range examples() {
		golden[x.name] = encode(&x.event)
	}
	in := func(doc map[string]any, path ...string) map[string]any {
		for _, p := range path {
			doc = doc[p].(map[string]any)
		}
		return doc
	}
	set := func(value any, path ...string) func(map[string]any) {
		return func(doc map[string]any) { in(doc, path[:len(path)-1]...)[path[len(path)-1]] = value }
	}
	drop := func(path ...string) func(map[string]any) {
		return func(doc map[string]any) { delete(in(doc, path[:len(path)-1]...), path[len(path)-1]) }
	}
	for _, c := range []struct {
		name, of string
		spoil    func(map[string]any)
	}{
		{"another spec version", "added", set("0.3", "specversion")},
		{"an empty id", "added", set("", "id")},
		{"an id of another type", "added", set("u:1:modified", "id")},
		{"a deletion's id without an entry", "deleted", set("u::deleted", "id")},
		{"a present without its run", "present", set("u:1:present:", "id")},
		{"a source that is no path", "added", set("prod", "source")},
		{"an unknown type", "added", set("io.kubebridge.resource.renamed.v1", "type")},
		{"another version of a type", "added", set("io.kubebridge.resource.added.v2", "type")},
		{"an unknown attribute", "added", set("x", "traceparent")},
		{"an attribute without a value", "added", set("", "namespace")},
		{"an attribute that is a number", "added", set(1041, "resourceversion")},
		{"a time without microseconds", "added", set("2026-03-14T09:26:01Z", "time")},
		{"a time with a zone", "added", set("2026-03-14T09:26:01.000000+01:00", "time")},
		{"a day that does not exist", "added", set("2026-02-30T09:26:01.000000Z", "time")},
		{"an unknown origin", "added", set("guess", "origin")},
		{"the first epoch spelt out", "present", set("1", "epoch")},
		{"an object event with a collection's schema", "added", set(event.CollectionSchema, "dataschema")},
		{"an object event with a collection's data", "added", set(map[string]any{"reason": "expired"}, "data")},
		{"a body without kind", "added", drop("data", "object", "kind")},
		{"a body without apiVersion", "added", drop("data", "object", "apiVersion")},
		{"a body without metadata", "added", drop("data", "object", "metadata")},
		{"a body without uid", "added", drop("data", "object", "metadata", "uid")},
		{"no body", "added", drop("data", "object")},
		{"a body that is a string", "added", set("e30=", "data", "object")},
		{"a reason on an added", "added", set("left", "data", "reason")},
		{"an unknown member of data", "added", set(1, "data", "extra")},
		{"bodyknown: true", "deleted", set(true, "data", "bodyknown")},
		{"a body beside bodyknown: false", "deleted", set(false, "data", "bodyknown")},
		{"an unknown reason of a deletion", "deleted-left", set("gone", "data", "reason")},
		{"a digest that is none", "truncated", set("abc", "data", "truncated", "sha256")},
		{"a truncation without a size", "truncated", drop("data", "truncated", "size")},
		{"an unknown member of a truncation", "truncated", set(1, "data", "truncated", "extra")},
		{"a gap with an object's schema", "gap", set(event.ObjectSchema, "dataschema")},
		{"a gap with a name", "gap", set("web-0", "name")},
		{"a gap with a subject", "gap", set("shop/web-0", "subject")},
		{"a gap without a reason", "gap", drop("data", "reason")},
		{"a gap because of a removal", "gap", set("removed", "data", "reason")},
		{"a gap that is over", "gap", set("2214", "data", "to")},
		{"reset: false", "gap", set(false, "data", "reset")},
		{"a synced without counts", "synced", drop("data", "counts")},
		{"a synced without its end", "synced", drop("data", "to")},
		{"a synced without a position", "synced", drop("resourceversion")},
		{"a synced with half of the counts", "synced", drop("data", "counts", "unchanged")},
		{"a count below zero", "synced", set(-1, "data", "counts", "deleted")},
		{"a since in local time", "synced", set("2026-03-14T10:26:00.535897+01:00", "data", "since")},
		{"a closed for an unknown reason", "closed", set("expired", "data", "reason")},
		{"an unknown member of a report", "closed", set("x", "data", "extra")},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc := document(t, golden[c.of])
			c.spoil(doc)
			if err := whole.Validate(doc); err == nil {
				t.Errorf("accepted: %v", doc)
			}
		})
	}

	optional := map[string][]string{
		"added": {"namespace"}, "closed": {"group"},
	}
	for name, free := range optional {
		for _, attribute := range slices.Sorted(maps.Keys(document(t, golden[name]))) {
			if slices.Contains(free, attribute) {
				continue
			}
			t.Run(name+" without "+attribute, func(t *testing.T) {
				doc := document(t, golden[name])
				delete(doc, attribute)
				if err := whole.Validate(doc); err == nil || !strings.Contains(err.Error(), attribute) {
					t.Errorf("got %v, want an error that names %s", err, attribute)
				}
			})
		}
	}
}
