package patch_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/shape/patch"
)

// decoded decodes with encoding/json, with numbers as written.
func decoded(t interface{ Fatalf(string, ...any) }, text []byte) any {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// check checks that the patch changes before into after, by this package's Apply and
// by another library, and that it is not longer than replacing the whole text.
func check(t interface{ Fatalf(string, ...any) }, before, after []byte) []byte {
	p, err := patch.Append([]byte("prefix"), before, after)
	if err != nil {
		t.Fatalf("%v\nbefore %s\nafter %s", err, before, after)
	}
	p = p[len("prefix"):]
	want := decoded(t, after)
	if whole := `[{"op":"replace","path":"","value":` + string(bytes.TrimSpace(after)) + `}]`; len(p) > len(whole) {
		t.Fatalf("%d bytes, the whole takes %d: %s", len(p), len(whole), p)
	}
	ours, err := patch.Apply(before, p)
	if err != nil {
		t.Fatalf("ours: %v\nbefore %s\nafter  %s\npatch  %s", err, before, after, p)
	}
	if got := decoded(t, ours); !reflect.DeepEqual(got, want) {
		t.Fatalf("ours\nbefore %s\nafter  %s\npatch  %s\ngot    %s", before, after, p, ours)
	}
	// The other library only accepts documents that are objects or arrays.
	for _, text := range [][]byte{before, after} {
		if c := bytes.TrimSpace(text)[0]; c != '{' && c != '[' {
			return p
		}
	}
	theirs, err := jsonpatch.DecodePatch(p)
	if err != nil {
		t.Fatalf("other: %v: %s", err, p)
	}
	for _, op := range theirs {
		// It does not accept members with an empty name, either.
		if path, _ := op.Path(); strings.Contains(path+"/", "//") {
			return p
		}
	}
	options := jsonpatch.NewApplyOptions()
	options.EscapeHTML = false
	got, err := theirs.ApplyWithOptions(before, options)
	if err != nil {
		t.Fatalf("other: %v\nbefore %s\nafter  %s\npatch  %s", err, before, after, p)
	}
	if d := decoded(t, got); !reflect.DeepEqual(d, want) {
		t.Fatalf("other\nbefore %s\nafter  %s\npatch  %s\ngot    %s", before, after, p, got)
	}
	return p
}

func TestPatch(t *testing.T) {
	for _, c := range []struct{ name, before, after, want string }{
		{"equal", `{"a":1}`, `{"a":1}`, ``},
		{"equal, written otherwise", `{"a":"A","b":[1]}`, " {\"b\" : [1],\n\"a\":\"\\u0041\"} ", ``},
		{
			"numbers as written", `{"a":1,"b":9007199254740993,"c":"` + long + `"}`, `{"a":1.0,"b":9007199254740992,"c":"` + long + `"}`,
			`{"op":"replace","path":"/a","value":1.0},{"op":"replace","path":"/b","value":9007199254740992}`,
		},
		{
			"names in pointers", `{"a/b":{"m~n":1,"q\"\\":1,"é":1},"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx":0}`,
			`{"a/b":{"m~n":2,"q\"\\":1},"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx":0}`,
			`{"op":"replace","path":"/a~1b","value":{"m~n":2,"q\"\\":1}}`,
		},
		{"null is a value", `{"a":null,"b":1}`, `{"b":null}`, `{"op":"replace","path":"","value":{"b":null}}`},
		{"the last of one name counts", `{"a":1,"a":2,"b":"` + long + `"}`, `{"a":5,"a":2,"b":"` + long + `"}`, ``},
		{
			"a container in front", `[` + container("app", 1) + `,` + container("log", 1) + `]`, `[` + container("mesh", 1) + `,` + container("app", 2) + `,` + container("log", 1) + `]`,
			`{"op":"add","path":"/0","value":` + container("mesh", 1) + `},{"op":"replace","path":"/1/v","value":2}`,
		},
		{
			"the first container goes", `[` + container("app", 1) + `,` + container("log", 1) + `]`, `[` + container("log", 2) + `]`,
			`{"op":"remove","path":"/0"},{"op":"replace","path":"/0/v","value":2}`,
		},
		{
			"a condition moves", `[` + condition("Ready", 1) + `,` + condition("Disk", 1) + `,` + condition("PID", 1) + `]`, `[` + condition("Disk", 1) + `,` + condition("PID", 2) + `,` + condition("Ready", 1) + `]`,
			`{"op":"move","path":"/2","from":"/0"},{"op":"replace","path":"/1/v","value":2}`,
		},
		{"an argument goes", `["` + long + `","--b","--b","` + long + `2"]`, `["` + long + `","--b","` + long + `2"]`, `{"op":"remove","path":"/2"}`},
		{"of another kind", `{"a":{"b":1},"c":"` + long + `"}`, `{"a":[1],"c":"` + long + `"}`, `{"op":"replace","path":"/a","value":[1]}`},
		{"no document the same", `{"a":1}`, `[1]`, `{"op":"replace","path":"","value":[1]}`},
		{"scalars", `1`, `"x"`, `{"op":"replace","path":"","value":"x"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(check(t, []byte(c.before), []byte(c.after))); got != "["+c.want+"]" {
				t.Errorf("got  %s\nwant [%s]", got, c.want)
			}
		})
	}
}

var long = strings.Repeat("long ", 30)

func container(name string, v int) string {
	return fmt.Sprintf(`{"image":"%s","name":"%s","v":%d}`, long, name, v)
}

func condition(kind string, v int) string {
	return fmt.Sprintf(`{"message":"%s","type":"%s","v":%d}`, long, kind, v)
}

// TestDeep: values below maxDepth are replaced as a whole, and the patch is right.
func TestDeep(t *testing.T) {
	nested := func(levels, v int) []byte {
		text := fmt.Sprintf(`{"pad":"%s","v":%d}`, long, v)
		for range levels {
			text = fmt.Sprintf(`{"a":%s,"pad":"%s"}`, text, long)
		}
		return []byte(text)
	}
	for levels, path := range map[int]string{90: strings.Repeat("/a", 90) + "/v", 200: strings.Repeat("/a", 100)} {
		if p := string(check(t, nested(levels, 1), nested(levels, 2))); !strings.Contains(p, `"path":"`+path+`"`) {
			t.Errorf("%d levels: want the path %s, got %s", levels, path, p)
		}
	}
}

// TestInvalid: an invalid body is an error, not an empty patch.
func TestInvalid(t *testing.T) {
	for _, c := range [][2]string{{``, `{}`}, {`{}`, ``}, {`{"a":1`, `{"a":1`}, {`{"a":01}`, `{}`}, {`{}`, `{"a":1}x`}, {`1`, `x`}} {
		for _, m := range []*patch.Maker{{}, {WithoutManagedFields: true}} {
			if p, err := m.Append(nil, []byte(c[0]), []byte(c[1])); err == nil {
				t.Errorf("%q, %q: no error but %s", c[0], c[1], p)
			}
		}
	}
}

func TestApplyRefuses(t *testing.T) {
	for p, want := range map[string]string{
		`[{"op":"test","path":"/a","value":1}]`:      `apply patch: operation 0: unknown operation "test"`,
		`[{"op":"remove","path":"/b"}]`:              `apply patch: operation 0: no member "b"`,
		`[{"op":"remove","path":""}]`:                `apply patch: operation 0: the whole cannot be removed`,
		`[{"op":"replace","path":"/l/01"}]`:          `apply patch: operation 0: no value to replace`,
		`[{"op":"add","path":"/l/01","value":1}]`:    `apply patch: operation 0: no element "01" in a list of 2`,
		`[{"op":"replace","path":"/l/1","value":1}]`: `apply patch: operation 0: no element "1" in a list of 1`,
		`[{"op":"move","path":"/l/1"}]`:              `apply patch: operation 0: no from`,
		`[{"op":"add","path":"/a/b","value":1}]`:     `apply patch: operation 0: "b" is in neither an object nor a list`,
		`[{"op":"add","path":1,"value":1}]`:          `apply patch: operation 0: path is 1, not a string`,
	} {
		if got, err := patch.Apply([]byte(`{"a":1,"l":[1]}`), []byte(p)); err == nil || err.Error() != want {
			t.Errorf("%s: got %s, %v\nwant %s", p, got, err, want)
		}
	}
}

// TestWithoutManagedFields: patches never contain managedFields, the largest and least read part of an object, at any position
// and even if the whole object is replaced.
func TestWithoutManagedFields(t *testing.T) {
	var m patch.Maker
	m.WithoutManagedFields = true
	for _, c := range []struct{ before, after, want string }{
		{`{"metadata":{"managedFields":[1],"name":"a"}}`, `{"metadata":{"managedFields":[2],"name":"a"}}`, `[]`},
		{`{"metadata":{"name":"a","managedFields":[1]}}`, `{"metadata":{"name":"a"}}`, `[]`},
		{`{"metadata":{"managedFields":[1]},"x":1}`, `{"metadata":{},"x":1}`, `[]`},
		{`{"metadata":null}`, `{"metadata":{"a":1,"managedFields":[2],"b":1}}`, `[{"op":"replace","path":"/metadata","value":{"a":1,"b":1}}]`},
		{`[]`, ` {"metadata": {"managedFields" : [2] , "b":1}} `, `[{"op":"replace","path":"","value":{"metadata": { "b":1}}}]`},
	} {
		got, err := m.Append(nil, []byte(c.before), []byte(c.after))
		if err != nil || string(got) != c.want {
			t.Errorf("%s\n%s\ngot %s, %v", c.before, c.after, got, err)
		}
	}
}

// TestEveryPair checks patches between random lists and objects. They have few different names, so that they resemble each
// other.
func TestEveryPair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := value(3).Draw(t, "before")
		after := value(3).Draw(t, "after")
		check(t, []byte(before), []byte(after))
	})
}

func value(depth int) *rapid.Generator[string] {
	scalar := rapid.SampledFrom([]string{`1`, `1.0`, `-1e3`, `null`, `true`, `"a"`, `"\u0061"`, `"a/~b"`, `"é\n"`, `""`, `{}`, `[]`})
	if depth == 0 {
		return scalar
	}
	deeper := rapid.Deferred(func() *rapid.Generator[string] { return value(depth - 1) })
	name := rapid.SampledFrom([]string{`"name"`, `"type"`, `"uid"`, `"a"`, `"b/c"`, `"d~e"`, `""`, `"\u00e9"`, `"-"`, `"0"`})
	object := rapid.Custom(func(t *rapid.T) string {
		var members []string
		for _, n := range rapid.SliceOfNDistinct(name, 0, 5, rapid.ID).Draw(t, "names") {
			members = append(members, n+":"+deeper.Draw(t, "value"))
		}
		return "{" + strings.Join(members, ",") + "}"
	})
	list := rapid.Custom(func(t *rapid.T) string {
		return "[" + strings.Join(rapid.SliceOfN(deeper, 0, 6).Draw(t, "elements"), ",") + "]"
	})
	return rapid.OneOf(object, list, object, list, scalar)
}

// TestShuffledLists covers long lists with removals, additions, moves and changes at once.
func TestShuffledLists(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{10, 100, 1000, 5000} {
		var before []string
		for i := range n {
			before = append(before, fmt.Sprintf(`{"name":"n%d","v":%d,"text":"some text that is the same"}`, i, i))
		}
		after := append([]string(nil), before...)
		for range 5 {
			i, j := r.IntN(len(after)), r.IntN(len(after))
			after[i], after[j] = after[j], after[i]
			i = r.IntN(len(after))
			after = append(after[:i:i], after[i+1:]...)
			after[r.IntN(len(after))] = fmt.Sprintf(`{"name":"new%d"}`, i)
			i = r.IntN(len(after))
			after[i] = strings.Replace(after[i], `same`, `other`, 1)
		}
		a, b := "["+strings.Join(before, ",")+"]", "["+strings.Join(after, ",")+"]"
		p := check(t, []byte(a), []byte(b))
		if len(p) > 3000 {
			t.Errorf("%d elements: %d bytes: %s", n, len(p), p)
		}
	}
}

func FuzzPatch(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,3],"b":{"name":"x"}}`), []byte(`{"a":[3,1],"b":null}`))
	f.Add([]byte(`[{"name":"a"},{"name":"a"}]`), []byte(`[{"name":"a","b":1}]`))
	f.Add([]byte(`{"a":1,"a":{"b":2}}`), []byte(`{"a":{"b":3},"a":1}`))
	f.Add([]byte(`{"\ud800":1}`), []byte(`{"~":1,"/":2}`))
	p := pod(f)
	f.Add(p, bytes.Replace(p, []byte(`"phase":"Running"`), []byte(`"phase":"Failed"`), 1))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		if !json.Valid(before) || !json.Valid(after) {
			if _, err := patch.Append(nil, before, after); err == nil && !bytes.Equal(before, after) {
				t.Fatalf("no error: %q, %q", before, after)
			}
			return
		}
		p, err := patch.Append(nil, before, after)
		if err != nil {
			t.Fatal(err)
		}
		got, err := patch.Apply(before, p)
		if err != nil {
			t.Fatalf("%v\nbefore %s\nafter  %s\npatch  %s", err, before, after, p)
		}
		if !reflect.DeepEqual(decoded(t, got), decoded(t, after)) {
			t.Fatalf("before %s\nafter  %s\npatch  %s\ngot    %s", before, after, p, got)
		}
	})
}

func pod(t testing.TB) []byte {
	text, err := os.ReadFile("../../../internal/base/scan/testdata/pods.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	frame, _, _ := bytes.Cut(text, []byte("\n"))
	var e struct{ Object json.RawMessage }
	if err := json.Unmarshal(frame, &e); err != nil {
		t.Fatal(err)
	}
	return e.Object
}

// BenchmarkPod is a status update of a real pod.
func BenchmarkPod(b *testing.B) {
	before := pod(b)
	after := bytes.Replace(before, []byte(`"phase":"Running"`), []byte(`"phase":"Failed"`), 1)
	after = bytes.Replace(after, []byte(`"resourceVersion":"418"`), []byte(`"resourceVersion":"419"`), 1)
	m := patch.Maker{WithoutManagedFields: true}
	p := check(b, before, after)
	var dst []byte
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(before)))
		for b.Loop() {
			dst, _ = m.Append(dst[:0], before, after)
		}
		b.ReportMetric(float64(len(dst)), "patch-bytes")
	})
	b.Run("apply", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(before)))
		for b.Loop() {
			if _, err := patch.Apply(before, p); err != nil {
				b.Fatal(err)
			}
		}
	})
}
