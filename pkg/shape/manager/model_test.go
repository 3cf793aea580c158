package manager_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/kubebridge/kubebridge/pkg/shape/manager"
	"github.com/kubebridge/kubebridge/test/edittest"
)

// writer identifies the sender of a request, as the server distinguishes writers.
type writer struct{ name, operation, subresource string }

// modelServer keeps one object with the API server's own field managers, one for each
// subresource.
type modelServer struct {
	t        *testing.T
	types    managedfields.TypeConverter
	managers map[string]*managedfields.FieldManager
	live     *unstructured.Unstructured
	version  int
}

func newModelServer(t *testing.T, kind edittest.Kind, types managedfields.TypeConverter) *modelServer {
	s := &modelServer{t: t, types: types, managers: map[string]*managedfields.FieldManager{}, live: &unstructured.Unstructured{}}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	s.live.SetGroupVersionKind(gvk)
	for _, sub := range append([]string{""}, kind.Subresources...) {
		m, err := managedfields.NewDefaultFieldManager(s.types, asIs{}, asIs{}, asIs{}, gvk, gvk.GroupVersion(), sub, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.managers[sub] = m
	}
	return s
}

// asIs is a converter that changes nothing and has no defaults.
type asIs struct{}

func (asIs) Convert(_, _, _ any) error { return errors.New("there is one version") }

func (asIs) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (asIs) ConvertFieldLabel(_ schema.GroupVersionKind, _, _ string) (string, string, error) {
	return "", "", errors.New("there are no field labels")
}

func (asIs) Default(runtime.Object) {}

func (asIs) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	return o, nil
}

// send sends a request to the server, and reports whether it wrote anything.
func (s *modelServer) send(by writer, o *unstructured.Unstructured, force bool) bool {
	var (
		out runtime.Object
		err error
	)
	if by.operation == "Apply" {
		out, err = s.managers[by.subresource].Apply(s.live.DeepCopy(), o, by.name, force)
	} else {
		out, err = s.managers[by.subresource].Update(s.live.DeepCopy(), o, by.name)
	}
	if err != nil {
		return false // a conflict
	}
	after := out.(*unstructured.Unstructured)
	if timeless(s.t, s.live) == timeless(s.t, after) {
		return false // the server ignores a write that changes only times
	}
	s.version++
	after.SetResourceVersion(fmt.Sprint(s.version))
	after.SetUID("u")
	s.live = after
	return true
}

func timeless(t *testing.T, o *unstructured.Unstructured) string {
	o = o.DeepCopy()
	fields := o.GetManagedFields()
	for i := range fields {
		fields[i].Time = nil
	}
	slices.SortFunc(fields, func(a, b metav1.ManagedFieldsEntry) int { return strings.Compare(a.String(), b.String()) })
	o.SetManagedFields(fields)
	return string(encode(t, o))
}

func encode(t *testing.T, o *unstructured.Unstructured) []byte {
	text, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// step is one write.
type step struct {
	by            writer
	before, after *unstructured.Unstructured
	changed       bool // something was set or added, by the server's own comparison
}

// changed reports whether a write set or added anything. Empty containers do not count: only the schema says whether the write
// removed the container's last part or set the whole container. managedFields do not show the difference.
func (s *modelServer) changed(before, after *unstructured.Unstructured) bool {
	read := func(o *unstructured.Unstructured) *typed.TypedValue {
		o = o.DeepCopy()
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		v, err := s.types.ObjectToTyped(o, typed.AllowDuplicates)
		if err != nil {
			s.t.Fatal(err)
		}
		return v
	}
	c, err := read(before).Compare(read(after))
	if err != nil {
		s.t.Fatal(err)
	}
	changed := false
	c.Modified.Union(c.Added).Iterate(func(p fieldpath.Path) {
		is := at(after.Object, p)
		m, isMap := is.(map[string]any)
		l, isList := is.([]any)
		empty := isMap && len(m) == 0 || isList && len(l) == 0 || is == null
		changed = changed || !empty
	})
	return changed
}

// TestNobodyIsBlamed sends random requests of several managers to the server's field
// managers, and asks Finder who sent each of them. The answer never names another manager, with or
// without the managedFields of the former state, and it names the sender if managedFields show the write
// at all.
func TestNobodyIsBlamed(t *testing.T) {
	const runs, steps = 25, 40
	for _, kind := range edittest.Kinds("example.com") {
		t.Run(kind.Kind, func(t *testing.T) {
			t.Parallel()
			types := managedfields.NewDeducedTypeConverter()
			if kind.Kind != "Widget" {
				types = applyconfigurations.NewTypeConverter(scheme.Scheme)
			}
			named := 0
			for seed := range uint64(runs) {
				synctest.Test(t, func(t *testing.T) {
					r := rand.New(rand.NewPCG(seed, 1))
					s := newModelServer(t, kind, types)
					for range steps {
						if r.IntN(2) == 0 {
							time.Sleep(time.Second)
						}
						before := s.live
						by, ok := s.random(r, kind)
						if !ok {
							continue
						}
						st := step{by, before, s.live, before.GetUID() != "" && s.changed(before, s.live)}
						named += st.judge(t)
						if t.Failed() {
							t.Fatalf("seed %d: %+v\nbefore %s\nafter  %s", seed, by, encode(t, before), encode(t, s.live))
						}
					}
				})
			}
			t.Logf("%d times the sender was named", named)
			if named < runs*steps/2 {
				t.Errorf("the sender was named %d times in %d requests", named, runs*steps)
			}
		})
	}
}

// random sends a random request; ok reports whether it wrote anything.
func (s *modelServer) random(r *rand.Rand, kind edittest.Kind) (by writer, ok bool) {
	by = writer{name: []string{"alice", "bob", "carol"}[r.IntN(3)], operation: "Update"}
	if r.IntN(10) == 0 { // more managers than the server keeps separate entries for
		by.name = fmt.Sprintf("m%d", r.IntN(15))
	}
	create := s.live.GetUID() == ""
	if r.IntN(3) == 0 && !create {
		all := append([]string{""}, kind.Subresources...)
		by.subresource = all[r.IntN(len(all))]
	}
	o := &unstructured.Unstructured{}
	switch {
	case r.IntN(2) == 0 && by.subresource != "scale":
		by.operation = "Apply"
		o.Object = kind.Config(r, by.subresource)
		return by, s.send(by, o, r.IntN(4) > 0)
	case create:
		o.Object = kind.New(r)
	default:
		o = s.live.DeepCopy()
		kind.Edit(r, o.Object, by.subresource)
		if by.subresource == "" && r.IntN(100) == 0 {
			o.SetManagedFields([]metav1.ManagedFieldsEntry{{}}) // makes the server discard all managedFields
		}
	}
	return by, s.send(by, o, false)
}

// judge asks Finder who wrote, and returns how many managers the answer named.
func (s step) judge(t *testing.T) (named int) {
	t.Helper()
	var finder manager.Finder
	blame := func(what string, got []manager.Change, err error, must bool) {
		t.Helper()
		for _, c := range got {
			if c.Manager != s.by.name {
				t.Errorf("%s: %+v wrote nothing", what, c)
			}
			if len(got) == 1 && (c.Operation != s.by.operation || c.Subresource != s.by.subresource) {
				t.Errorf("%s: %+v wrote nothing in this way", what, c)
			}
		}
		if err != nil || must && len(got) != 1 {
			t.Errorf("%s: the sender is not named: %+v, %v", what, got, err)
		}
		if len(got) > 0 {
			named++
		}
	}
	after := encode(t, s.after)
	is, last, tied := s.entry(s.after)
	if s.before.GetUID() != "" {
		was, _, _ := s.entry(s.before)
		moved := is != nil && (was == nil || is.Time != nil && (was.Time == nil || is.Time.After(was.Time.Time)))
		more := is != nil && was != nil && !places(t, is).Difference(places(t, was)).Empty()
		if len(s.before.GetManagedFields()) > 0 {
			got, err := finder.By(encode(t, s.before), after)
			blame("by", got, err, is != nil && (moved || more || s.changed))
		}
		bare := s.before.DeepCopy()
		bare.SetManagedFields(nil)
		got, err := finder.By(encode(t, bare), after)
		blame("without managedFields", got, err, is != nil && s.changed)
		if !moved {
			return named // the newest entry is of an earlier write, or of the same second
		}
	}
	if is == nil || is.Time == nil || !last {
		return named
	}
	got, err := finder.Newest(after, time.Time{})
	blame("newest", got, err, !tied)
	return named
}

// entry returns the sender's entry of an object's managedFields. last reports whether it has the newest
// time, and tied whether another entry has that time, too.
func (s step) entry(o *unstructured.Unstructured) (is *metav1.ManagedFieldsEntry, last, tied bool) {
	fields := o.GetManagedFields()
	for i := range fields {
		if e := &fields[i]; e.Manager == s.by.name && string(e.Operation) == s.by.operation && e.Subresource == s.by.subresource {
			is = e
		}
	}
	last = is != nil && is.Time != nil
	for i := range fields {
		e := &fields[i]
		if e == is || !last || e.Time == nil || e.Manager == "before-first-apply" {
			continue
		}
		last = !e.Time.After(is.Time.Time)
		tied = tied || e.Time.Equal(is.Time)
	}
	return is, last, tied
}

func places(t *testing.T, e *metav1.ManagedFieldsEntry) *fieldpath.Set {
	var set fieldpath.Set
	if err := set.FromJSON(strings.NewReader(string(e.FieldsV1.GetRawBytes()))); err != nil {
		t.Fatal(err)
	}
	return &set
}
