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

// compile makes a validator of the published schemas, which refer to each other by
// their ids.
func compile(t *testing.T, id string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	files, err := filepath.Glob(schemas + "/*-v1.json")
	if err != nil || len(files) != 6 {
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

// The published schemas accept every event that the
// bridge writes, and its data alone with the schema that its dataschema names.
func TestSchemasAcceptEveryEvent(t *testing.T) {
	whole := compile(t, eventSchema)
	data := map[string]*jsonschema.Schema{
		event.ObjectSchema:      compile(t, event.ObjectSchema),
		event.CollectionSchema:  compile(t, event.CollectionSchema),
		event.AttributionSchema: compile(t, event.AttributionSchema),
		event.DenialSchema:      compile(t, event.DenialSchema),
		event.LossSchema:        compile(t, event.LossSchema),
	}
	values := map[string][]byte{}
	for _, x := range examples() {
		values[x.name] = encode(&x.event)
	}
	emitted, err := filepath.Glob("../../internal/core/encode/testdata/*.json")
	if err != nil || len(emitted) < 10 {
		t.Fatalf("events of the pipeline: %v, %v", emitted, err)
	}
	for _, path := range emitted {
		values[path] = read(t, path)
	}
	for name, value := range values {
		t.Run(name, func(t *testing.T) {
			doc := document(t, value)
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
		"a body that could not be redacted": func() event.Event {
			e := byName["added"]
			e.Object = nil
			return e
		},
		"a body of which not even the head fits": func() event.Event {
			e := byName["truncated"]
			e.Object = nil
			return e
		},
		"a deletion of which only the absence is known": func() event.Event {
			e := byName["deleted-synthesised"]
			e.DeletionVersion, e.Reason = "", "unknown"
			return e
		},
		"a resync": func() event.Event {
			e := byName["gap"]
			e.Origin, e.Report = event.Resync, &event.Report{Reason: "resync", From: "1190"}
			return e
		},
		"another history": func() event.Event {
			e := byName["gap"]
			e.Epoch, e.ResourceVersion, e.Report = 2, "", &event.Report{Reason: "history", Detail: "it went back", From: "1190"}
			return e
		},
		"a verification that found something": func() event.Event {
			e := byName["synced"]
			r := *e.Report
			r.Reason, e.Report = "drift", &r
			return e
		},
		"a collection whose topic changed": func() event.Event {
			e := byName["closed"]
			e.Report = &event.Report{Reason: "route"}
			return e
		},
		"a collection whose objects are removed from a compacted topic": func() event.Event {
			e := byName["closed"]
			e.Report = &event.Report{Reason: "reset"}
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

// encoded returns the examples as they are published, by name.
func encoded() map[string][]byte {
	all := map[string][]byte{}
	for _, x := range examples() {
		all[x.name] = encode(&x.event)
	}
	return all
}

// The schemas refuse invalid events.
func TestSchemasRefuse(t *testing.T) {
	whole := compile(t, eventSchema)
	golden := encoded()
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
		{"an id of another type", "added", set("pods:7:u:1:modified", "id")},
		{"an id without a version", "deleted", set("pods:7:u::deleted", "id")},
		{"an id without a run", "present", set("pods:u:1:present", "id")},
		{"the id of a synced without its number", "synced", set("pods:7:synced", "id")},
		{"a collection with selectors", "added", set("pods:a:b", "collection")},
		{"a run that is no number", "added", set("dk3v", "run")},
		{"a run with leading zeros", "added", set("007", "run")},
		{"an incarnation of zero", "added", set("0", "incarnation")},
		{"the version of a deletion on an added", "added", set("5", "deletionversion")},
		{"the version of a deletion on a gap", "gap", set("5", "deletionversion")},
		{"a plan on an object event", "added", set("5", "plan")},
		{"a digest of another length", "gap", set("abc", "plandigest")},
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
		{"a periodic gap", "gap", set("periodic", "data", "reason")},
		{"a gap for a first list", "gap", set("snapshot", "data", "reason")},
		{"a reset that does not say so", "gap-reset", drop("data", "reset")},
		{"a reset for another reason", "gap-reset", set("expired", "data", "reason")},
		{"a gap that is over", "gap", set("2214", "data", "to")},
		{"reset: false", "gap", set(false, "data", "reset")},
		{"a synced without counts", "synced", drop("data", "counts")},
		{"a synced without its end", "synced", drop("data", "to")},
		{"a synced without a resource and with a version", "synced-gone", set("9", "resourceversion")},
		{"a synced without a resource and with an end", "synced-gone", set("9", "data", "to")},
		{"a synced with a beginning", "synced", set("9", "data", "from")},
		{"a periodic synced without its end", "synced-periodic", drop("data", "to")},
		{"a periodic synced with counts", "synced-periodic", set(map[string]any{}, "data", "counts")},
		{"a synced without a position", "synced", drop("resourceversion")},
		{"a synced with half of the counts", "synced", drop("data", "counts", "unchanged")},
		{"a count below zero", "synced", set(-1, "data", "counts", "deleted")},
		{"a selection that names no restriction", "gap", set(map[string]any{}, "data", "selection")},
		{"a restriction that is none", "gap", set(false, "data", "selection", "redacted")},
		{"an unknown restriction", "gap", set(true, "data", "selection", "extra")},
		{"a selection of all types", "gap-reset", set([]any{"added", "modified", "deleted"}, "data", "selection", "types")},
		{"a selection of an unknown type", "gap-reset", set([]any{"gap"}, "data", "selection", "types")},
		{"a closed with a selection", "closed", set(map[string]any{"redacted": true}, "data", "selection")},
		{"a since in local time", "synced", set("2026-03-14T10:26:00.535897+01:00", "data", "since")},
		{"an attribution without a request or candidates", "attributed", drop("data", "request")},
		{"an attribution without a user", "attributed", drop("data", "request", "user")},
		{"an actor without a user", "modified-actor", drop("data", "actor", "user")},
		{"an actor with candidates", "modified-actor", set([]any{}, "data", "actor", "candidates")},
		{"an attribution of a watch", "attributed", set("watch", "origin")},
		{"an added of the audit log", "added", set("audit", "origin")},
		{"an attribution with a reason and a request", "attributed", set("several", "data", "reason")},
		{"an attribution with an unknown reason", "attributed-candidates", set("guess", "data", "reason")},
		{"an attribution that leaves out an unknown member", "attributed-candidates", set([]any{"user"}, "data", "leftout")},
		{"an attribution that leaves out nothing", "attributed-candidates", set([]any{}, "data", "leftout")},
		{"candidates without a reason", "attributed-candidates", drop("data", "reason")},
		{"a loss without its end", "lost", drop("data", "until")},
		{"a loss without a detail", "lost", drop("data", "detail")},
		{"a loss with a name", "lost", set("web", "name")},
		{"a loss of a watch", "lost", set("watch", "origin")},
		{"a denial without a request", "denied", drop("data", "request")},
		{"a denial of an allowed request", "denied", set(200, "data", "request", "code")},
		{"a denial of a watch", "denied", set("watch", "origin")},
		{"a denial with a name and without a subject", "denied", drop("subject")},
		{"a denial with the uid of an object", "denied", set("u", "uid")},
		{"a denial that leaves out the user", "denied-collection", set([]any{"user"}, "data", "leftout")},
		{"a denial without the code", "denied-collection", drop("data", "request", "code")},
		{"a closed for an unknown reason", "closed", set("gone", "data", "reason")},
		{"a closed with a version", "closed", set("9", "resourceversion")},
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
		"added": {"namespace", "resourceversion"}, "closed": {"group"},
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

// TestSchemasWithoutVersions: objects of some aggregated APIs have no resourceVersion, and a collection that is reset while its
// resource does not exist has none in its synced event.
func TestSchemasWithoutVersions(t *testing.T) {
	whole, golden := compile(t, eventSchema), encoded()
	added := document(t, golden["added"])
	delete(added, "resourceversion")
	if err := whole.Validate(added); err == nil {
		t.Error("accepted: an event without a resourceversion, whose id has one")
	}
	id := added["id"].(string)
	added["id"] = id[:strings.LastIndex(strings.TrimSuffix(id, ":added"), ":")] + "::added"
	if err := whole.Validate(added); err != nil {
		t.Error(err)
	}
	synced := document(t, golden["synced"])
	delete(synced, "resourceversion")
	data := synced["data"].(map[string]any)
	delete(data, "to")
	data["reason"] = "reset"
	if err := whole.Validate(synced); err != nil {
		t.Error(err)
	}
	data["reason"] = "expired"
	if err := whole.Validate(synced); err == nil {
		t.Error("accepted: a list of what exists, without a version")
	}
}
