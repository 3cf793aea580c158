package filter_test

import (
	"bytes"
	"encoding/json"
	"os"
	"sync"
	"testing"

	"cel.dev/cel-go/cel"

	"github.com/kubebridge/kubebridge/pkg/shape/filter"
)

const (
	before = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"app":"web","a.b/c":"d"}},"spec":{"replicas":1,"ratio":0.5,"list":[1,2,{"x":null}]},"status":{"phase":"Pending"}}`
	object = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"app":"web","a.b/c":"d"}},"spec":{"ratio":0.5,"replicas":2,"list":[1,2,{"x":null}],"pass\u0077ord":"\u00e9"},"status":{"phase":"Running"}}`
)

func input() *filter.Input {
	return &filter.Input{Object: []byte(object), Before: []byte(before), Type: "modified", Origin: "watch", Resource: "pods", Namespace: "shop", Name: "a"}
}

func TestMatch(t *testing.T) {
	for expression, want := range map[string]bool{
		`type == "modified" && origin == "watch" && resource == "pods" && group == "" && ns == "shop" && name == "a"`: true,
		`object.status.phase != before.status.phase`:                                                                  true,
		`object.spec.replicas > before.spec.replicas`:                                                                 true,
		`object.spec.replicas == 2.0 && object.spec.ratio < 1`:                                                        true,
		`object.metadata == before.metadata`:                                                                          true,
		`object.spec == before.spec`:                                                                                  false,
		`object.metadata.labels == {"a.b/c": "d", "app": "web"}`:                                                      true,
		`{"app": "web"} == object.metadata.labels`:                                                                    false,
		`labels["a.b/c"] == "d" && "app" in labels && !("x" in labels)`:                                               true,
		`labels.size() == 2 && size(annotations) == 0`:                                                                true,
		`labels.exists(k, k.startsWith("a.b/"))`:                                                                      true,
		`has(object.spec.nodeName)`:                                                                                   false,
		`object.?spec.?nodeName.orValue("none") == "none"`:                                                            true,
		`object.spec.password == "é"`:                                                                                 true,
		`object.spec.list[2].x == null && object.spec.list.size() == 3`:                                               true,
		`1 in object.spec.list && {"x": null} in object.spec.list`:                                                    true,
		`ns.matches("^(shop|bank)$")`:                                                                                 true,
		`sets.contains(["shop", "bank"], [ns])`:                                                                       true,
		`object.metadata.name.replace("a", "b").split("")[0] == "b"`:                                                  true,
		`object.spec.all(k, v, k != "x")`:                                                                             true,
		`cel.bind(s, object.spec, s.replicas == 2)`:                                                                   true,
		`before == null`: false,
		"// a comment\nobject.kind == 'Pod' ||\n\tobject.kind == 'Deployment'": true,
	} {
		f, err := filter.Compile(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got, err := f.Match(input()); got != want || err != nil {
			t.Errorf("%s: got %t, %v", expression, got, err)
		}
	}
}

// TestUnknownBodies: an expression can test whether the last body of a deletion, or the former state of a
// change, is known.
func TestUnknownBodies(t *testing.T) {
	for expression, want := range map[string]bool{
		`before == null || before.x == 1`: true,
		`object == null`:                  true,
		`labels == {} && !("a" in labels) && annotations.size() == 0`: true,
		`ns == "shop"`: true,
	} {
		f, err := filter.Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Match(&filter.Input{Type: "deleted", Namespace: "shop"}); got != want || err != nil {
			t.Errorf("%s: got %t, %v", expression, got, err)
		}
	}
}

// TestErrorPasses: an event passes if the filter cannot be evaluated.
func TestErrorPasses(t *testing.T) {
	for expression, want := range map[string]string{
		`object.spec.nodeName == "x"`:                                    "filter: no such key: nodeName",
		`before.spec.replicas == "1"`:                                    "", // unequal, no error
		`object.spec.replicas > "1"`:                                     "filter: no such overload",
		`labels["x"] == "y"`:                                             "filter: no such key: x",
		`object.spec.list[7] == 1`:                                       "filter: index out of bounds: 7",
		`object.broken.x == 1`:                                           "filter: no such key: broken",
		`lists.range(1000).all(i, lists.range(1000).all(j, i + j >= 0))`: "filter: operation cancelled: actual cost limit exceeded",
		`lists.range(100000000).size() == 1`:                             "filter: lists.range: size 100000000 exceeds maximum allowed (1000000)",
	} {
		f, err := filter.Compile(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		pass, err := f.Match(input())
		if want == "" {
			if pass || err != nil {
				t.Errorf("%s: got %t, %v", expression, pass, err)
			}
			continue
		}
		if !pass || err == nil || err.Error() != want {
			t.Errorf("%s: got %t, %v\nwant %s", expression, pass, err, want)
		}
	}
	f, err := filter.Compile(`object.spec.x == 1`)
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range []string{`{"spec":{"x":01}}`, `{"spec":`, `nonsense`, `{"a" 1}`} {
		if pass, err := f.Match(&filter.Input{Object: []byte(broken)}); !pass || err == nil {
			t.Errorf("%s: got %t, %v", broken, pass, err)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for expression, want := range map[string]string{
		" ": `filter: the expression is empty`,
		`objct.kind == "Pod"`: `filter: line 1, column 1: undeclared reference to 'objct'; the variables are ` + filter.Variables + `
  objct.kind == "Pod"
  ^`,
		"type == \"added\" &&\n\tobjct.kind == \"Pod\"": `filter: line 2, column 2: undeclared reference to 'objct'; the variables are ` + filter.Variables + `
   objct.kind == "Pod"
   ^`,
		`ns == 1`: `filter: line 1, column 4: found no matching overload for '_==_' applied to '(string, int)'
  ns == 1
     ^`,
		`namespace == "shop"`: `filter: line 1, column 1: reserved identifier: namespace is a word of CEL's own; the variable is ns
  namespace == "shop"
  ^`,
		`"é" == name && name.matches("(")`: "filter: line 1, column 29: invalid matches argument\n  \"é\" == name && name.matches(\"(\")\n                              ^",
		`object.spec.paused`: `filter: line 1, column 1: the result must be a bool, and is dyn: compare it, with == true for example
  object.spec.paused
  ^`,
		`name`: `filter: line 1, column 1: the result must be a bool, and is string: compare it, with == true for example
  name
  ^`,
	} {
		_, err := filter.Compile(expression)
		if err == nil {
			t.Errorf("%s: no error", expression)
		} else if err.Error() != want {
			t.Errorf("%s\ngot  %s\nwant %s", expression, err, want)
		}
	}
}

func TestUses(t *testing.T) {
	f, err := filter.Compile(`labels.exists(l, l == name) || object.status != before.status`)
	if err != nil {
		t.Fatal(err)
	}
	for variable, want := range map[string]bool{"labels": true, "name": true, "before": true, "object": true, "type": false, "annotations": false} {
		if f.Uses(variable) != want {
			t.Errorf("%s: got %t", variable, !want)
		}
	}
}

// TestConcurrent: many goroutines can use one filter.
func TestConcurrent(t *testing.T) {
	f, err := filter.Compile(`object.metadata.name == name`)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			in := filter.Input{Object: []byte(`{"metadata":{"name":"` + name + `"}}`), Name: name}
			for range 1000 {
				if pass, err := f.Match(&in); !pass || err != nil {
					t.Errorf("%s: %t, %v", name, pass, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// FuzzDecoded: an expression has the same result on raw JSON as on JSON that
// encoding/json decoded.
func FuzzDecoded(f *testing.F) {
	f.Add([]byte(object), []byte(before))
	f.Add([]byte(`{"a":1,"a":{"b":[]},"l":[1,1.0,"x",{"b":null}]}`), []byte(`{"a":{"b":[ ]}}`))
	var expressions []string
	var filters []*filter.Filter
	var programs []cel.Program
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.Variable("before", cel.DynType), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes())
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range []string{
		`object == before`, `object.a == before.a`, `has(object.a.b)`, `"a" in object`, `object.exists(k, object[k] == before.a)`,
		`object.size() == before.size()`, `object.l.all(x, x in before.l)`, `object.a.b < 2`, `object.a == "x" || object.a == null || object.a == [1] || object.a == {"b": 1}`,
		`object.?a[?"b"].orValue(1) == 1`,
	} {
		compiled, err := filter.Compile(e)
		if err != nil {
			f.Fatal(err)
		}
		ast, issues := env.Compile(e)
		if issues.Err() != nil {
			f.Fatal(issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			f.Fatal(err)
		}
		expressions, filters, programs = append(expressions, e), append(filters, compiled), append(programs, program)
	}
	f.Fuzz(func(t *testing.T, object, before []byte) {
		a, b := decoded(object), decoded(before)
		if a == nil || b == nil {
			return
		}
		for i := range filters {
			got, gotErr := filters[i].Match(&filter.Input{Object: object, Before: before})
			want, _, wantErr := programs[i].Eval(map[string]any{"object": a, "before": b})
			if (gotErr == nil) != (wantErr == nil) || wantErr == nil && want.Value() != got {
				t.Fatalf("%s of %s and %s: got %t, %v, want %v, %v", expressions[i], object, before, got, gotErr, want, wantErr)
			}
		}
	})
}

// decoded returns an object as CEL takes it; nil for other texts.
func decoded(text []byte) map[string]any {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v map[string]any
	if !json.Valid(text) || d.Decode(&v) != nil {
		return nil
	}
	return native(v).(map[string]any)
}

func native(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = native(v[k])
		}
	case []any:
		for i := range v {
			v[i] = native(v[i])
		}
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, _ := v.Float64()
		return f
	}
	return v
}

// BenchmarkMatch measures a filter on a real pod of 12 KB, and compares it with decoding the pod
// first.
func BenchmarkMatch(b *testing.B) {
	text, err := os.ReadFile("../../../internal/base/scan/testdata/pods.ndjson")
	if err != nil {
		b.Fatal(err)
	}
	frame, _, _ := bytes.Cut(text, []byte("\n"))
	var e struct{ Object json.RawMessage }
	if err := json.Unmarshal(frame, &e); err != nil {
		b.Fatal(err)
	}
	in := filter.Input{Object: e.Object, Before: bytes.Replace(e.Object, []byte(`"phase":"Running"`), []byte(`"phase":"Failed"`), 1), Type: "modified", Namespace: "shop", Name: "pod-1"}
	for _, c := range []struct{ name, expression string }{
		{"type", `type != "deleted" && ns in ["shop", "bank"]`},
		{"label", `labels["team"] == "payments"`},
		{"field", `object.spec.serviceAccountName != "x"`},
		{"change", `object.status.phase != before.status.phase`},
		{"list", `object.spec.containers.exists(c, c.image.contains("nginx")) || true`},
	} {
		f, err := filter.Compile(c.expression)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if pass, err := f.Match(&in); err != nil || !pass && c.name != "type" {
					b.Fatal(pass, err)
				}
			}
		})
	}
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v map[string]any
			if err := json.Unmarshal(e.Object, &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}
