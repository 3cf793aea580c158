package source

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// scanObject reads raw as an object that may lack apiVersion and kind, as those
// in lists of built-in types do.
func scanObject(raw string) (Object, error) {
	var s scanner
	s.Reset([]byte(raw))
	return s.object()
}

func mustScan(t rapid.TB, raw string) *Object {
	t.Helper()
	o, err := scanObject(raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return &o
}

// hashOf is equal for objects that [Object.Hash] takes for equal.
func hashOf(o *Object) uint64 {
	h := xxhash.New()
	o.Hash(h)
	return h.Sum64()
}

func TestScanObject(t *testing.T) {
	const head = `"apiVersion":"v1","kind":"Pod"`
	for _, c := range []struct {
		name, raw, without string // without managedFields; "": as raw
	}{
		{"none", `{` + head + `,"metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"7"}}`, ""},
		{
			"first", `{` + head + `,"metadata":{"managedFields":[{"a":1}],"name":"n","namespace":"s","uid":"u","resourceVersion":"7"}}`,
			`{` + head + `,"metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"7"}}`,
		},
		{
			"middle", `{` + head + `,"metadata":{"name":"n","namespace":"s","managedFields":[],"uid":"u","resourceVersion":"7"},"spec":{}}`,
			`{` + head + `,"metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"7"},"spec":{}}`,
		},
		{
			"last", `{` + head + `,"metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"7","managedFields":null}}`,
			`{` + head + `,"metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"7"}}`,
		},
		{
			"metadata in front", `{"metadata":{"managedFields":[],"name":"n","namespace":"s","uid":"u","resourceVersion":"7"},` + head + `}`,
			`{"metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"7"},` + head + `}`,
		},
		{
			"white space everywhere", "{ \"kind\" : \"Pod\" ,\n\t\"apiVersion\":\"v1\" , \"metadata\" : { \"name\" : \"n\" , \"managedFields\" : [ ] , \"namespace\":\"s\",\"uid\":\"u\" ,\r\n\"resourceVersion\":\"7\" } }",
			"{ \"kind\" : \"Pod\" ,\n\t\"apiVersion\":\"v1\" , \"metadata\" : { \"name\" : \"n\" , \"namespace\":\"s\",\"uid\":\"u\" ,\r\n\"resourceVersion\":\"7\" } }",
		},
		{
			"white space, first", `{` + head + `,"metadata":{ "managedFields" : [] , "name":"n","namespace":"s","uid":"u","resourceVersion":"7"}}`,
			`{` + head + `,"metadata":{ "name":"n","namespace":"s","uid":"u","resourceVersion":"7"}}`,
		},
		{
			"escapes in names and values", `{"\u0061piVersion":"v1","k\u0069nd":"P\u006fd","met\u0061data":{"n\u0061me":"\u006e","namespace":"s","\u006danagedFields":[1],"uid":"\u0075","resourceVersion":"7"}}`,
			`{"\u0061piVersion":"v1","k\u0069nd":"P\u006fd","met\u0061data":{"n\u0061me":"\u006e","namespace":"s","uid":"\u0075","resourceVersion":"7"}}`,
		},
		{
			"others of that name stay", `{` + head + `,"managedFields":1,"metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"7","labels":{"managedFields":"x"},"managedFields":[{"managedFields":2}]},"spec":{"metadata":{"managedFields":3,"name":"other"}}}`,
			`{` + head + `,"managedFields":1,"metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"7","labels":{"managedFields":"x"}},"spec":{"metadata":{"managedFields":3,"name":"other"}}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := ParseObject([]byte(c.raw))
			if err != nil {
				t.Fatal(err)
			}
			got := []string{o.APIVersion, o.Kind, o.Namespace, o.Name, o.UID, o.ResourceVersion, string(o.Raw)}
			if diff := cmp.Diff([]string{"v1", "Pod", "s", "n", "u", "7", c.raw}, got); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			if c.without == "" {
				c.without = c.raw
			}
			if got := string(o.AppendWithoutManagedFields([]byte("x"))); got != "x"+c.without {
				t.Errorf("without managedFields:\ngot  %s\nwant x%s", got, c.without)
			}
		})
	}
}

func TestScanObjectOfNothing(t *testing.T) {
	o := mustScan(t, `{"kind":"Status","metadata":null,"apiVersion":null}`)
	if o.Kind != "Status" || o.APIVersion != "" || o.Name != "" {
		t.Errorf("got %+v", o)
	}
	for _, c := range []struct{ raw, want string }{
		{`{}`, "an empty object"},
		{` { } `, "an empty object"},
		{`null`, "null where a Kubernetes object should be"},
		{`[]`, "[ where a Kubernetes object should be"},
		{`"x"`, "string where a Kubernetes object should be"},
		{``, "EOF"},
		{`{"metadata":"x"}`, "string where an object should be"},
		{`{"metadata":{"name":7}}`, "number where a string should be"},
		{`{"kind":{}}`, "{ where a string should be"},
		{`{"kind":"Pod"`, "EOF"},
		{`{"kind":"Pod","metadata":{"name":"n"`, "EOF"},
		{`{"kind" "Pod"}`, "invalid character"},
	} {
		if o, err := scanObject(c.raw); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %+v, %v, want an error with %q", c.raw, o, err, c.want)
		}
	}
	for _, raw := range []string{`{"kind":"Pod"}`, `{"apiVersion":"v1"}`, `{"metadata":{}}`, `{`} {
		if _, err := ParseObject([]byte(raw)); err == nil || !strings.HasPrefix(err.Error(), "parse object: ") {
			t.Errorf("ParseObject(%s): %v", raw, err)
		}
	}
}

func TestRestoreGVK(t *testing.T) {
	const head = `{"apiVersion":"apps/v1","kind":"Deployment"`
	for _, c := range []struct{ name, raw, want string }{
		{"both are missing", `{"metadata":{"name":"n"},"spec":1}`, head + `,"metadata":{"name":"n"},"spec":1}`},
		{"white space", `{ "metadata" : { } }`, head + `, "metadata" : { } }`},
		{"both are there", `{"kind":"X","apiVersion":"y","metadata":{}}`, `{"kind":"X","apiVersion":"y","metadata":{}}`},
		{"kind is missing", `{"metadata":{},"apiVersion":"y"}`, head + `,"metadata":{}}`},
		{"apiVersion is missing", `{"kind":"X","metadata":{}}`, head + `,"metadata":{}}`},
		{"both are empty", `{"kind":"","apiVersion":"","metadata":{}}`, head + `,"metadata":{}}`},
		{"both are empty, last", `{"metadata":{},"kind":"","apiVersion":null}`, head + `,"metadata":{}}`},
		{"one is all there is", `{"kind":"X"}`, head + `}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := mustScan(t, c.raw)
			o.restoreGVK("apps/v1", "Deployment", nil)
			if string(o.Raw) != c.want {
				t.Errorf("got  %s\nwant %s", o.Raw, c.want)
			}
			if o.APIVersion == "" || o.Kind == "" {
				t.Errorf("fields: %+v", o)
			}
		})
	}
}

// A list item has no kind and apiVersion, and a watch frame has both. If their hashes differed, every reconcile would publish
// every object again.
func TestHashOfListAndWatch(t *testing.T) {
	const rest = `"metadata":{"name":"n","uid":"u","resourceVersion":"7","managedFields":[{"manager":"x"}]},"spec":{"a":[1,2]}}`
	item := mustScan(t, `{`+rest)
	want := hashOf(item)
	item.restoreGVK("v1", "Pod", nil)
	for name, o := range map[string]*Object{
		"restored":                     item,
		"watch, built-in":              mustScan(t, `{"kind":"Pod","apiVersion":"v1",`+rest),
		"watch, custom":                mustScan(t, `{"apiVersion":"v1","kind":"Pod",`+rest),
		"kind and apiVersion apart":    mustScan(t, `{"kind":"Pod","metadata":{"name":"n","uid":"u","resourceVersion":"7"},"apiVersion":"v1","spec":{"a":[1,2]}}`),
		"kind and apiVersion last":     mustScan(t, `{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},"spec":{"a":[1,2]},"apiVersion":"v1","kind":"Pod"}`),
		"another version":              mustScan(t, `{"kind":"Pod","apiVersion":"v1beta1",`+rest),
		"no managedFields":             mustScan(t, `{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},"spec":{"a":[1,2]}}`),
		"managedFields first":          mustScan(t, `{"metadata":{"managedFields":[],"name":"n","uid":"u","resourceVersion":"7"},"spec":{"a":[1,2]}}`),
		"managedFields, white space":   mustScan(t, `{"metadata":{"name":"n" , "managedFields":[],"uid":"u","resourceVersion":"7"},"spec":{"a":[1,2]}}`),
		"gvk first, with white space ": mustScan(t, `{ "kind" : "Pod" , "apiVersion":"v1" ,`+rest),
	} {
		if got := hashOf(o); got != want {
			t.Errorf("%s: hashes differently: %s", name, o.Raw)
		}
	}
	for name, raw := range map[string]string{
		"a value":       `{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},"spec":{"a":[1,3]}}`,
		"a version":     `{"metadata":{"name":"n","uid":"u","resourceVersion":"8"},"spec":{"a":[1,2]}}`,
		"a member more": `{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},"spec":{"a":[1,2]},"x":0}`,
		"a kind inside": `{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},"spec":{"a":[1,2],"kind":"Pod"}}`,
	} {
		if hashOf(mustScan(t, raw)) == want {
			t.Errorf("%s: hashes the same", name)
		}
	}
}

// member is one member of a random object's text.
type member struct{ name, value string }

// anyValue makes JSON values, some of them with the names that matter inside.
func anyValue() *rapid.Generator[string] {
	leaf := rapid.OneOf(
		rapid.SampledFrom([]string{"null", "true", "0", "-1.50e3", `""`, `"}"`, `"\"managedFields\":[1],"`, `"\u2028 <&>"`, "12345678901234567890", "[]", "{}", "[ ]"}),
		rapid.Map(rapid.String(), func(s string) string { b, _ := json.Marshal(s); return string(b) }),
	)
	return rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			return `{"kind":` + leaf.Draw(t, "kind") + `,"managedFields":` + leaf.Draw(t, "value") + `}`
		case 1:
			return `[` + leaf.Draw(t, "item") + `, {"metadata": ` + leaf.Draw(t, "value") + `}]`
		default:
			return leaf.Draw(t, "leaf")
		}
	})
}

func anyMembers(t *rapid.T, label string, fixed ...member) []member {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`x[a-z.\\"é]{0,6}`), 0, 4, rapid.ID[string]).Draw(t, label+" names")
	for _, n := range names {
		fixed = append(fixed, member{n, anyValue().Draw(t, label+" value")})
	}
	return rapid.Permutation(fixed).Draw(t, label+" order")
}

// text writes an object. space draws what stands between the tokens.
func text(members []member, space func() string, without ...string) string {
	var b strings.Builder
	b.WriteByte('{')
	first := true
	for _, m := range members {
		if slices.Contains(without, m.name) {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		name, _ := json.Marshal(m.name)
		b.WriteString(space() + string(name) + space() + ":" + space() + m.value + space())
	}
	b.WriteByte('}')
	return b.String()
}

func none() string { return "" }

func decode(t rapid.TB, raw []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

func quoted(s string) string { return `"` + s + `"` }

// checkObject compares what the scanner makes of raw with encoding/json.
func checkObject(t rapid.TB, raw string) {
	o, err := scanObject(raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	want := decode(t, []byte(raw))
	meta, _ := want["metadata"].(map[string]any)
	field := func(m map[string]any, name string) string { s, _ := m[name].(string); return s }
	fields := []string{field(want, "apiVersion"), field(want, "kind"), field(meta, "name"), field(meta, "namespace"), field(meta, "uid"), field(meta, "resourceVersion")}
	if got := []string{o.APIVersion, o.Kind, o.Name, o.Namespace, o.UID, o.ResourceVersion}; !slices.Equal(got, fields) {
		t.Fatalf("%s: fields %q, want %q", raw, got, fields)
	}
	if ending := meta["deletionTimestamp"] != nil; o.Ending != ending {
		t.Fatalf("%s: it has a deletionTimestamp: %t, want %t", raw, o.Ending, ending)
	}
	hash := hashOf(&o)

	before := string(o.Raw)
	out := o.AppendWithoutManagedFields(nil)
	if !oneCut(before, string(out)) {
		t.Fatalf("more than one piece is gone:\n%s\n%s", before, out)
	}
	want = decode(t, []byte(raw))
	if meta, ok := want["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	if diff := cmp.Diff(want, decode(t, out)); diff != "" {
		t.Fatalf("%s without managedFields (-want +got):\n%s", raw, diff)
	}

	had := o.APIVersion != "" && o.Kind != ""
	_, hadAPIVersion := want["apiVersion"]
	_, hadKind := want["kind"]
	o.restoreGVK("apps/v1", "Deployment", nil)
	switch {
	case had:
		if string(o.Raw) != before {
			t.Fatalf("%s was changed to %s", before, o.Raw)
		}
	default:
		want["apiVersion"], want["kind"] = "apps/v1", "Deployment"
		if !hadAPIVersion && !hadKind && string(o.Raw) != `{"apiVersion":"apps/v1","kind":"Deployment",`+before[1:] {
			t.Fatalf("%s became %s", before, o.Raw)
		}
	}
	if diff := cmp.Diff(want, decode(t, o.AppendWithoutManagedFields(nil))); diff != "" {
		t.Fatalf("%s restored, without managedFields (-want +got):\n%s", raw, diff)
	}
	if hashOf(&o) != hash && len(want) > 2 { // of an empty rest only the white space differs
		t.Fatalf("%s: another hash when restored: %s", raw, o.Raw)
	}
	if again := mustScan(t, string(o.Raw)); hashOf(again) != hashOf(&o) {
		t.Fatalf("%s: another hash when scanned again", o.Raw)
	}
}

// oneCut reports whether out is text with one piece left out.
func oneCut(text, out string) bool {
	i := 0
	for i < len(out) && text[i] == out[i] {
		i++
	}
	return len(out) <= len(text) && strings.HasSuffix(text, out[i:])
}

// For any object that the server sends, only the member is removed, and all other bytes are unchanged.
func TestObjectsLikeEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := func() string {
			return rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n  "}).Draw(t, "space")
		}
		meta := []member{{"name", quoted("n")}, {"namespace", quoted("s")}, {"uid", quoted("u")}, {"resourceVersion", quoted("7")}}
		meta = meta[:rapid.IntRange(0, len(meta)).Draw(t, "known")]
		if rapid.Bool().Draw(t, "managed") {
			meta = append(meta, member{"managedFields", anyValue().Draw(t, "managedFields")})
		}
		if rapid.Bool().Draw(t, "deleted") {
			meta = append(meta, member{"deletionTimestamp", rapid.SampledFrom([]string{"null", quoted("2026-11-26T00:00:00Z")}).Draw(t, "deletionTimestamp")})
		}
		metadata := rapid.SampledFrom([]string{"null", text(anyMembers(t, "metadata", meta...), space)}).Draw(t, "metadata")
		top := []member{{"metadata", metadata}}
		for _, name := range []string{"apiVersion", "kind"} {
			switch rapid.IntRange(0, 3).Draw(t, name) {
			case 0:
				top = append(top, member{name, rapid.SampledFrom([]string{"null", `""`}).Draw(t, "empty")})
			case 1:
				top = append(top, member{name, quoted("v1")})
			}
		}
		checkObject(t, text(anyMembers(t, "object", top...), space))
	})
}

// The server writes list items and watch frames with the same code, one without
// and one with kind and apiVersion, which may stand anywhere.
func TestHashDiffersForEveryOtherChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		meta := anyMembers(t, "metadata", member{"name", quoted("n")}, member{"managedFields", anyValue().Draw(t, "managedFields")})
		members := anyMembers(t, "object", member{"metadata", text(meta, none)}, member{"kind", quoted("Pod")}, member{"apiVersion", quoted("v1")})
		watched := mustScan(t, text(members, none))
		listed := mustScan(t, text(members, none, "kind", "apiVersion"))
		listed.restoreGVK("v1", "Pod", nil)
		if hashOf(watched) != hashOf(listed) {
			t.Fatalf("different hashes:\n%s\n%s", watched.Raw, listed.Raw)
		}

		i := rapid.IntRange(0, len(members)-1).Draw(t, "changed")
		switch members[i].name {
		case "metadata":
			j := rapid.IntRange(0, len(meta)-1).Draw(t, "changed in metadata")
			free := meta[j].name == "managedFields"
			meta[j].value = `"changed"`
			members[i].value = text(meta, none)
			if changed := mustScan(t, text(members, none)); (hashOf(changed) == hashOf(watched)) != free {
				t.Fatalf("metadata.%s: same hash is %t", meta[j].name, !free)
			}
		case "kind", "apiVersion":
			members[i].value = `"changed"`
			if hashOf(mustScan(t, text(members, none))) != hashOf(watched) {
				t.Fatalf("%s is in the hash", members[i].name)
			}
		default:
			members[i].value = `"changed"`
			if hashOf(mustScan(t, text(members, none))) == hashOf(watched) {
				t.Fatalf("%s is not in the hash", members[i].name)
			}
		}
	})
}

func FuzzObject(f *testing.F) {
	for _, s := range []string{
		`{"metadata":{"managedFields":[],"name":"n"},"kind":"Pod","apiVersion":"v1"}`,
		`{ "kind" : "" , "apiVersion":null , "metadata" : null }`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"\u0061"}}`,
		`{"kind":"X"}`, `{}`, `[`, `{"metadata":{"managedFields":1}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if _, err := scanObject(raw); err != nil || !comparable(raw) {
			return
		}
		checkObject(t, raw)
	})
}

// comparable reports whether raw is one JSON value that encoding/json reads as
// jsontext does.
func comparable(raw string) bool {
	d := jsontext.NewDecoder(strings.NewReader(raw)) // no duplicate names, no invalid UTF-8
	if _, err := d.ReadValue(); err != nil {
		return false
	}
	_, err := d.ReadToken()
	return err != nil && json.Valid([]byte(raw))
}
