package manager_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kubebridge/kubebridge/pkg/shape/manager"
)

const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","finalizers":["a/b"],"labels":{"app":"web"},"annotations":{"note.io/text":"x"}},
"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[
{"name":"app","image":"app:1","args":["-v"],"ports":[{"containerPort":80,"protocol":"TCP","name":"http"}],"env":[{"name":"LEVEL","value":"1"}]},{"name":"log","image":"log:1"}]}}}}`

// server is the API server's own field manager (apimachinery), with the schema of the
// built-in types.
type server struct {
	t *testing.T
	managedfieldstest.TestFieldManager
	resourceVersion int
}

func newServer(t *testing.T) *server {
	gvk := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	return &server{t, managedfieldstest.NewTestFieldManager(applyconfigurations.NewTypeConverter(scheme.Scheme), gvk), 0}
}

func (s *server) body() []byte {
	o := s.Live().(*unstructured.Unstructured)
	s.resourceVersion++
	o.SetResourceVersion(fmt.Sprint(s.resourceVersion))
	text, err := o.MarshalJSON()
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return o
}

// update writes the present object as an Update, with old replaced by new in its text.
func (s *server) update(by string, oldNew ...string) {
	text, err := s.Live().(*unstructured.Unstructured).MarshalJSON()
	if err != nil {
		s.t.Fatal(err)
	}
	edited := strings.NewReplacer(oldNew...).Replace(string(text))
	if edited == string(text) {
		s.t.Fatalf("nothing to replace: %s", text)
	}
	if err := s.Update(object(s.t, edited), by); err != nil {
		s.t.Fatal(err)
	}
}

// TestBy lets the server's field manager process typical writes of people and controllers.
func TestBy(t *testing.T) {
	apply := func(text string, oldNew ...string) func(s *server) {
		return func(s *server) {
			if err := s.Apply(object(s.t, strings.NewReplacer(oldNew...).Replace(text)), "helm", true); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	update := func(by string, oldNew ...string) func(s *server) {
		return func(s *server) { s.update(by, oldNew...) }
	}
	for _, c := range []struct {
		name string
		do   func(s *server)
		soon bool // within the same second as the write before
		want []manager.Change
	}{
		{
			name: "kubectl edit", do: update("kubectl-edit", `"replicas":1`, `"replicas":2`),
			want: []manager.Change{{Manager: "kubectl-edit", Operation: "Update", Paths: []string{"spec.replicas"}}},
		},
		{
			name: "an upgrade", do: apply(deployment, "app:1", "app:2"),
			want: []manager.Change{{Manager: "helm", Operation: "Apply", Paths: []string{`spec.template.spec.containers[name="app"].image`}}},
		},
		{
			name: "within a second", do: apply(deployment, "app:1", "app:2"), soon: true,
			want: []manager.Change{{Manager: "helm", Operation: "Apply", Paths: []string{`spec.template.spec.containers[name="app"].image`}}},
		},
		{
			name: "a container in front", do: update("mesh", `"containers":[`, `"containers":[{"name":"mesh","image":"m"},`),
			want: []manager.Change{{Manager: "mesh", Operation: "Update", Paths: []string{`spec.template.spec.containers[name="mesh"]`}}},
		},
		{
			name: "an atomic list", do: update("x", `"-v"`, `"-vv"`),
			want: []manager.Change{{Manager: "x", Operation: "Update", Paths: []string{`spec.template.spec.containers[name="app"].args`}}},
		},
		{
			name: "a key of two, a set, and names that are no words",
			do:   update("x", `"name":"http"`, `"name":"web"`, `"a/b"`, `"a/b","c/d"`, `"note.io/text":"x"`, `"note.io/text":"y"`),
			want: []manager.Change{{Manager: "x", Operation: "Update", Paths: []string{
				`metadata.annotations["note.io/text"]`, `metadata.finalizers[="c/d"]`, `spec.template.spec.containers[name="app"].ports[containerPort=80,protocol="TCP"].name`,
			}}},
		},
		{
			name: "an applied field that is given up", do: apply(deployment, `"replicas":1,`, ``, `"app:1"`, `"app:2"`),
			want: []manager.Change{{Manager: "helm", Operation: "Apply", Paths: []string{`spec.template.spec.containers[name="app"].image`, `spec.replicas`}}},
		},
		{
			name: "an applied field given up, and nothing else", do: apply(deployment, `,"annotations":{"note.io/text":"x"}`, ``),
			want: []manager.Change{{Manager: "helm", Operation: "Apply", Paths: []string{`metadata.annotations["note.io/text"]`}}},
		},
		{name: "nobody is noted for a removal", do: update("kubectl-edit", `"note.io/text":"x"`, ``)},
		{name: "the same again", do: apply(deployment), soon: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				apply(deployment)(s)
				before := s.body()
				if !c.soon {
					time.Sleep(time.Minute)
				}
				c.do(s)
				for i := range c.want {
					c.want[i].Time = time.Now().UTC().Format(time.RFC3339)
				}
				var finder manager.Finder
				after := s.body()
				got, err := finder.By(before, after)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Errorf("%s\nbefore %s\nafter  %s", d, before, after)
				}
			})
		})
	}
}

// Managers that did not write must not be named: the creator, who owns
// only the map now, or a manager that wrote another key before.
func TestTwoKeys(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Minute} {
		for _, former := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s apart, with managedFields %t", pause, former), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer(t)
					s.update("creator", `"kind"`, `"metadata":{"labels":{"a":"0","b":"0"}},"kind"`)
					for _, c := range []struct{ who, from, to string }{
						{"alice", `"a":"0"`, `"a":"1"`}, {"bob", `"b":"0"`, `"b":"1"`}, {"alice", `"a":"1"`, `"a":"2"`},
					} {
						before := object(t, string(s.body()))
						if !former {
							before.SetManagedFields(nil)
						}
						time.Sleep(pause)
						s.update(c.who, c.from, c.to)
						var finder manager.Finder
						got, err := finder.By(encode(t, before), s.body())
						if err != nil || len(got) != 1 || got[0].Manager != c.who || !slices.Equal(got[0].Paths, []string{"metadata.labels." + c.from[1:2]}) {
							t.Errorf("%s wrote %s: got %+v, %v", c.who, c.to, got, err)
						}
					}
				})
			})
		}
	}
}

// The restore of a backup is not a write of any manager, although times and places differ.
func TestRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.update("creator", `"kind"`, `"metadata":{"labels":{"a":"0"}},"kind"`)
		restored := object(t, string(s.body()))
		time.Sleep(time.Minute)
		s.update("alice", `"a":"0"`, `"a":"1"`)
		for _, version := range []string{"1", "100"} { // the counter may have passed the old value since the backup
			restored.SetResourceVersion(version)
			var finder manager.Finder
			if got, err := finder.By(s.body(), encode(t, restored)); err != nil || len(got) > 0 {
				t.Errorf("at resourceVersion %s: got %+v, %v", version, got, err)
			}
		}
	})
}

// TestWithoutFormerFields: if the former body has no managedFields,
// the owners of changed fields are found, but not a manager that only removed fields.
func TestWithoutFormerFields(t *testing.T) {
	s := newServer(t)
	s.update("kubectl-create", `"kind"`, `"spec":{"replicas":1,"paused":true},"kind"`)
	before := s.Live().(*unstructured.Unstructured)
	before.SetManagedFields(nil)
	text, _ := before.MarshalJSON()
	s.update("kubectl-scale", `"replicas":1`, `"replicas":2`)
	var finder manager.Finder
	got, err := finder.By(text, s.body())
	if err != nil || len(got) != 1 || got[0].Manager != "kubectl-scale" || !slices.Equal(got[0].Paths, []string{"spec.replicas"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestMaxPaths(t *testing.T) {
	s := newServer(t)
	s.update("a", `"kind"`, `"metadata":{"labels":{"z":"z"}},"kind"`)
	before := s.body()
	s.update("b", `"z":"z"`, `"a":"","b":"","c":"","d":"","z":"z"`)
	finder := manager.Finder{MaxPaths: 3}
	got, err := finder.By(before, s.body())
	if err != nil || len(got) != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	got[0].Time = "2026-01-02T03:04:05Z"
	want := `[{"manager":"b","operation":"Update","subresource":"","time":"2026-01-02T03:04:05Z","paths":["metadata.labels.a","metadata.labels.b","metadata.labels.c"],"more":1}]`
	if text := string(manager.Append(nil, got)); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// TestHideValues: with HideValues, no path contains a value of the object, whether it comes from a set, a key, or
// the name of a key's field, which a client can choose.
func TestHideValues(t *testing.T) {
	before := `{"metadata":{"managedFields":[]},"spec":{}}`
	after := `{"metadata":{"annotations":{"s3cret]":"x"},"managedFields":[{"manager":"x","operation":"Update","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{
"f:metadata":{"f:annotations":{"f:s3cret]":{}}},
"f:spec":{"f:set":{"v:\"s3cret]\"":{},"v:\"s3cret\\\"]\"":{}},"f:list":{"k:{\"a]b\":\"s3cret\"}":{"f:x":{}},"k:{\"a\\\"]b\":\"s3cret\"}":{"f:x":{}}},"f:at":{"i:0":{"f:x":{}}}}}}]},
"spec":{"set":["s3cret]","s3cret\"]"],"list":[{"a]b":"s3cret","x":1},{"a\"]b":"s3cret","x":2}],"at":[{"x":1}]}}`
	for hide, want := range map[bool][]string{
		true: {"metadata.annotations[*]", "spec.set[*]", "spec.list[*].x", "spec.at[*].x"},
		false: {
			`metadata.annotations["s3cret]"]`, `spec.set[="s3cret]"]`, `spec.set[="s3cret\"]"]`, `spec.list[a]b="s3cret"].x`, `spec.list[a"]b="s3cret"].x`, "spec.at[0].x",
		},
	} {
		finder := manager.Finder{HideValues: hide}
		got, err := finder.By([]byte(before), []byte(after))
		if err != nil || len(got) != 1 || !slices.Equal(got[0].Paths, want) || got[0].More > 0 {
			t.Errorf("hide %t: got %+v, %v, want %q", hide, got, err, want)
		}
	}
}

func TestNewest(t *testing.T) {
	const body = `{"metadata":{"managedFields":[{"manager":"old","operation":"Update","time":"2026-01-02T03:04:05Z"},{"manager":"none","operation":"Update"},
{"manager":"new","operation":"Apply","time":"2026-01-02T03:04:06Z"}%s]}}`
	at := time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
	const also = `,{"manager":%q,"operation":"Update","subresource":"status","time":"2026-01-02T03:04:06Z"}`
	for _, c := range []struct {
		also  string // another manager that wrote in the same second
		since time.Time
		want  string
	}{
		{"", time.Time{}, "new"},
		{"", at.Add(900 * time.Millisecond), "new"},
		{"", at.Add(time.Second), ""},
		{"kubelet", time.Time{}, ""},
		{"new", time.Time{}, "new new"},
		{"ancient-changes", time.Time{}, ""},
		{"before-first-apply", time.Time{}, "new"},
	} {
		second := ""
		if c.also != "" {
			second = fmt.Sprintf(also, c.also)
		}
		var finder manager.Finder
		got, err := finder.Newest(fmt.Appendf(nil, body, second), c.since)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range got {
			names = append(names, c.Manager)
		}
		if text := strings.Join(names, " "); text != c.want {
			t.Errorf("also %q, since %s: %q, want %q", c.also, c.since, text, c.want)
		}
		if text := manager.Append(nil, got); bytes.Contains(text, []byte("paths")) {
			t.Errorf("paths that nobody knows: %s", text)
		}
	}
}

// frames returns the objects of recorded frames of a kind, with real managedFields.
func frames(t testing.TB, kind string) (bodies [][]byte) {
	text, err := os.ReadFile("../../../internal/base/scan/testdata/" + kind + ".ndjson")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var e struct{ Object json.RawMessage }
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, e.Object)
	}
	return bodies
}

// TestAgainstFieldpath compares Finder with the library by which the server writes FieldsV1,
// on pods with random changes: it reports exactly the changed places that a manager
// owns according to the library, each itself or as part of a container that was added as a whole.
func TestAgainstFieldpath(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	finder := manager.Finder{MaxPaths: 1 << 20}
	reported := 0
	for range 300 {
		bodies := frames(t, "pods")
		after := bodies[r.IntN(len(bodies))]
		var a, b any
		if json.Unmarshal(after, &b) != nil || json.Unmarshal(after, &a) != nil {
			t.Fatal("no JSON")
		}
		for range 1 + r.IntN(4) {
			a = edit(r, a, 0)
		}
		a.(map[string]any)["metadata"] = without(a.(map[string]any)["metadata"])
		before, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		after, err = json.Marshal(b) // with the members in the same order
		if err != nil {
			t.Fatal(err)
		}
		got, err := finder.By(before, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range b.(map[string]any)["metadata"].(map[string]any)["managedFields"].([]any) {
			m := m.(map[string]any)
			fields, _ := json.Marshal(m["fieldsV1"])
			var set fieldpath.Set
			if err := set.FromJSON(bytes.NewReader(fields)); err != nil {
				t.Fatal(err)
			}
			var paths []string
			for _, c := range got {
				if c.Manager == m["manager"] && c.Subresource == fmt.Sprint(m["subresource"]) || m["subresource"] == nil && c.Manager == m["manager"] {
					paths = c.Paths
				}
			}
			covers := map[string]bool{}
			set.Leaves().Iterate(func(p fieldpath.Path) {
				x, y := at(a, p), at(b, p)
				text := render(p)
				i := slices.IndexFunc(paths, func(path string) bool {
					return text == path || strings.HasPrefix(text, path+".") || strings.HasPrefix(text, path+"[")
				})
				if i >= 0 {
					covers[paths[i]] = true
				}
				if differ := y != nil && !reflect.DeepEqual(x, y); differ != (i >= 0) {
					t.Errorf("%s of %s: differs %t, reported %t among %q", text, m["manager"], differ, i >= 0, paths)
				}
			})
			for _, p := range paths {
				reported++
				if !covers[p] {
					t.Errorf("%s of %s is reported and is not its own", p, m["manager"])
				}
			}
		}
	}
	if reported < 100 {
		t.Errorf("only %d places were reported", reported)
	}
}

func without(metadata any) any {
	m, ok := metadata.(map[string]any)
	if !ok {
		return metadata
	}
	c := map[string]any{}
	for k, v := range m {
		if k != "managedFields" {
			c[k] = v
		}
	}
	return c
}

// edit changes, removes or moves a random value.
func edit(r *rand.Rand, v any, depth int) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			return v
		}
		names := make([]string, 0, len(v))
		for n := range v {
			names = append(names, n)
		}
		slices.Sort(names)
		n := names[r.IntN(len(names))]
		if depth > 1 && r.IntN(4) == 0 {
			delete(v, n)
			return v
		}
		v[n] = edit(r, v[n], depth+1)
		return v
	case []any:
		if len(v) == 0 {
			return v
		}
		i := r.IntN(len(v))
		switch r.IntN(4) {
		case 0:
			return append(v[:i:i], v[i+1:]...)
		case 1:
			j := r.IntN(len(v))
			v[i], v[j] = v[j], v[i]
			return v
		}
		v[i] = edit(r, v[i], depth+1)
		return v
	case string:
		return v + "x"
	case float64:
		return v + 1
	default:
		return "other"
	}
}

// null is the value that [at] returns for a JSON null, because a null is a value.
const null = "a null is something too"

// at returns the value at a path in a decoded object; nil if there is none.
func at(v any, p fieldpath.Path) any {
	for _, e := range p {
		switch {
		case e.FieldName != nil:
			m, _ := v.(map[string]any)
			member, there := m[*e.FieldName]
			if v = member; there && v == nil {
				v = null
			}
		case e.Key != nil:
			l, _ := v.([]any)
			v = nil
			for _, x := range l {
				m, _ := x.(map[string]any)
				same := m != nil
				for _, k := range *e.Key {
					same = same && fmt.Sprint(m[k.Name]) == fmt.Sprint(k.Value.Unstructured())
				}
				if same {
					v = x
					break
				}
			}
		case e.Value != nil:
			l, _ := v.([]any)
			v = nil
			for _, x := range l {
				if fmt.Sprint(x) == fmt.Sprint((*e.Value).Unstructured()) {
					v = x
				}
			}
		}
	}
	return v
}

func render(p fieldpath.Path) string {
	var b strings.Builder
	for _, e := range p {
		switch {
		case e.FieldName != nil && !strings.ContainsAny(*e.FieldName, "./"):
			b.WriteString("." + *e.FieldName)
		case e.FieldName != nil:
			fmt.Fprintf(&b, "[%q]", *e.FieldName)
		default:
			b.WriteString(e.String())
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}

// BenchmarkPod measures the kubelet's status update of a real pod, and compares it with reading the
// managedFields with the server's library.
func BenchmarkPod(b *testing.B) {
	after := frames(b, "pods")[0]
	before := bytes.Replace(after, []byte(`"phase":"Running"`), []byte(`"phase":"Failed"`), 1)
	before = bytes.Replace(before, []byte(`"resourceVersion":"418"`), []byte(`"resourceVersion":"417"`), 1)
	b.Run("by", func(b *testing.B) {
		var finder manager.Finder
		b.ReportAllocs()
		for b.Loop() {
			if _, err := finder.By(before, after); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("newest", func(b *testing.B) {
		var finder manager.Finder
		b.ReportAllocs()
		for b.Loop() {
			if _, err := finder.Newest(after, time.Time{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("fieldpath", func(b *testing.B) {
		var o struct {
			Metadata struct {
				ManagedFields []struct{ FieldsV1 json.RawMessage }
			}
		}
		if err := json.Unmarshal(after, &o); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			for _, m := range o.Metadata.ManagedFields {
				var set fieldpath.Set
				if err := set.FromJSON(bytes.NewReader(m.FieldsV1)); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
