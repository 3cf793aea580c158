package source

import (
	"testing"
)

// An object that was read as metadata only must look like any other: its kind is that of the resource, in whichever form the
// server sent it.
func TestMetadataOnly(t *testing.T) {
	const (
		meta = `"metadata":{"name":"n","uid":"u","resourceVersion":"7","managedFields":[{"manager":"x"}],"labels":{"a":"b"}}`
		want = `{"apiVersion":"apps/v1","kind":"Thing",` + meta + `}`
	)
	for _, c := range []struct{ name, raw, want string }{
		{"as asked for", `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",` + meta + `}`, want},
		{"of a server before 1.15", `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1",` + meta + `}`, want},
		{"kind last", `{` + meta + `,"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata"}`, want},
		{"white space", `{ "kind" : "PartialObjectMetadata" , ` + meta + ` , "apiVersion":"meta.k8s.io/v1" }`, want},
		{"a whole object", `{"kind":"Thing","apiVersion":"apps/v1",` + meta + `,"spec":{"secret":1},"status":{}}`, want},
		{"a whole list item", `{` + meta + `,"spec":{"secret":1}}`, want},
		{"a whole list item, metadata last", `{"spec":{"secret":1},` + meta + `}`, want},
		{"a whole object of another version", `{"kind":"Thing","apiVersion":"apps/v1beta1","data":1,` + meta + `}`, `{"apiVersion":"apps/v1beta1","kind":"Thing",` + meta + `}`},
		{"none", `{"kind":"Thing","apiVersion":"apps/v1","spec":{}}`, `{"apiVersion":"apps/v1","kind":"Thing"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := mustScan(t, c.raw)
			hash := hashOf(o)
			fromNowhere(true).restore(o, nil)
			if string(o.Raw) != c.want {
				t.Fatalf("got  %s\nwant %s", o.Raw, c.want)
			}
			again := mustScan(t, string(o.Raw))
			if o.Kind != again.Kind || o.APIVersion != again.APIVersion || hashOf(o) != hashOf(again) || o.Name != again.Name {
				t.Errorf("got  %+v\nwant %+v", o, again)
			}
			if c.raw == c.want && hash != hashOf(o) {
				t.Error("another hash than the server's")
			}
			if got, want := string(o.AppendWithoutManagedFields(nil)), string(again.AppendWithoutManagedFields(nil)); got != want {
				t.Errorf("without managedFields: got  %s\nwant %s", got, want)
			}
		})
	}
}

// An unchanged object has the same hash from a list and a watch, and from servers with and without the metadata form. Otherwise
// it would be published again.
func TestMetadataOnlyHashesTheSame(t *testing.T) {
	const meta = `"metadata":{"name":"n","uid":"u","resourceVersion":"7"}`
	var want uint64
	for i, raw := range []string{
		`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",` + meta + `}`,
		`{` + meta + `,"spec":{}}`,
		`{"kind":"Thing","apiVersion":"apps/v1",` + meta + `,"spec":{}}`,
		`{"spec":{},"kind":"Thing","apiVersion":"apps/v1", ` + meta + ` }`,
	} {
		o := mustScan(t, raw)
		fromNowhere(true).restore(o, nil)
		if i == 0 {
			want = hashOf(o)
		} else if hashOf(o) != want {
			t.Errorf("%s: another hash", raw)
		}
	}
}

// If a server sends a collection of whole objects in the metadata form, the objects are restored as far as possible.
func TestRestorePartial(t *testing.T) {
	o := mustScan(t, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"n"}}`)
	if fromNowhere(false).restore(o, nil); string(o.Raw) != `{"apiVersion":"apps/v1","kind":"Thing","metadata":{"name":"n"}}` {
		t.Errorf("got %s", o.Raw)
	}
	custom := mustScan(t, `{"kind":"PartialObjectMetadata","apiVersion":"example.com/v1","metadata":{"name":"n"}}`)
	if fromNowhere(false).restore(custom, nil) {
		t.Errorf("a custom resource of that kind became %s", custom.Raw)
	}
}
