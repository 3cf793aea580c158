package clientgo_test

import (
	"errors"
	"reflect"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/kubebridge/pkg/source/clientgo"
)

var (
	podKind        = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	deploymentKind = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
	metadataKind   = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
)

// inTwo is a scheme that has the Deployment of apps/v1 a second time.
func inTwo(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := appsv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	s.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Rollout"}, &appsv1.Deployment{})
	s.AddKnownTypeWithName(schema.GroupVersionKind{Group: "apps", Version: runtime.APIVersionInternal, Kind: "Deployment"}, &appsv1.Deployment{})
	return s
}

func TestRestoreGVK(t *testing.T) {
	internalOnly := runtime.NewScheme()
	internalOnly.AddKnownTypes(schema.GroupVersion{Group: "x", Version: runtime.APIVersionInternal}, &corev1.Pod{})
	withInternal := runtime.NewScheme()
	withInternal.AddKnownTypes(schema.GroupVersion{Version: runtime.APIVersionInternal}, &corev1.Pod{})
	withInternal.AddKnownTypes(schema.GroupVersion{Version: "v1"}, &corev1.Pod{})
	two := inTwo(t)
	rollout := metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Rollout"}
	u := func(apiVersion, kind string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "items": []any{"of its own"}}}
	}
	for _, x := range []struct {
		name   string
		scheme *runtime.Scheme
		obj    runtime.Object
		want   runtime.Object // nil: obj stays as it is
		err    error
	}{
		{name: "typed", scheme: scheme.Scheme, obj: &corev1.Pod{}, want: &corev1.Pod{TypeMeta: podKind}},
		{name: "typed, complete", scheme: scheme.Scheme, obj: &corev1.Pod{TypeMeta: podKind}},
		{name: "kind only", scheme: scheme.Scheme, obj: &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod"}}, want: &corev1.Pod{TypeMeta: podKind}},
		{name: "version only", scheme: scheme.Scheme, obj: &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1"}}, want: &corev1.Pod{TypeMeta: podKind}},
		{name: "the internal version is no candidate", scheme: withInternal, obj: &corev1.Pod{}, want: &corev1.Pod{TypeMeta: podKind}},
		{name: "internal only", scheme: internalOnly, obj: &corev1.Pod{}, err: clientgo.ErrNotRegistered},
		{name: "another kind", scheme: scheme.Scheme, obj: &corev1.Pod{TypeMeta: deploymentKind}, err: clientgo.ErrOtherKind},
		{name: "another version", scheme: scheme.Scheme, obj: &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1beta1", Kind: "Deployment"}}, err: clientgo.ErrOtherKind},
		{name: "ambiguous", scheme: two, obj: &appsv1.Deployment{}, err: clientgo.ErrAmbiguous},
		{name: "several, carrying one", scheme: two, obj: &appsv1.Deployment{TypeMeta: rollout}},
		{name: "several, carrying a part that decides", scheme: two, obj: &appsv1.Deployment{TypeMeta: metav1.TypeMeta{Kind: "Rollout"}}, want: &appsv1.Deployment{TypeMeta: rollout}},
		{name: "every group's ListOptions", scheme: scheme.Scheme, obj: &metav1.ListOptions{}, err: clientgo.ErrAmbiguous},
		{name: "unversioned", scheme: scheme.Scheme, obj: &metav1.Status{}, err: clientgo.ErrUnversioned},
		{name: "unversioned, complete", scheme: scheme.Scheme, obj: &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}}},
		{name: "not registered", scheme: runtime.NewScheme(), obj: &corev1.Pod{}, err: clientgo.ErrNotRegistered},
		{name: "not registered, half", scheme: runtime.NewScheme(), obj: &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod"}}, err: clientgo.ErrNotRegistered},
		{name: "not registered, complete", scheme: runtime.NewScheme(), obj: &corev1.Pod{TypeMeta: podKind}},
		{name: "not registered, carrying what another type is", scheme: two, obj: &corev1.Pod{TypeMeta: deploymentKind}, err: clientgo.ErrOtherKind},
		{name: "no scheme", obj: &corev1.Pod{}, err: clientgo.ErrNotRegistered},
		{name: "metadata", scheme: scheme.Scheme, obj: &metav1.PartialObjectMetadata{}, err: clientgo.ErrUnknowable},
		{name: "metadata as it comes from the server", scheme: scheme.Scheme, obj: &metav1.PartialObjectMetadata{TypeMeta: metadataKind}, err: clientgo.ErrUnknowable},
		{name: "metadata of a kind", scheme: scheme.Scheme, obj: &metav1.PartialObjectMetadata{TypeMeta: deploymentKind}},
		{name: "unstructured", obj: u("example.com/v1", "Thing")},
		{name: "unstructured without a kind", scheme: scheme.Scheme, obj: u("v1", ""), err: clientgo.ErrUnknowable},
		{name: "unstructured without a version", scheme: scheme.Scheme, obj: u("", "Pod"), err: clientgo.ErrUnknowable},
		{name: "nil", scheme: scheme.Scheme, err: clientgo.ErrNoObject},
		{name: "nil pointer", scheme: scheme.Scheme, obj: (*corev1.Pod)(nil), err: clientgo.ErrNoObject},

		{name: "list", scheme: scheme.Scheme, obj: &corev1.PodList{Items: make([]corev1.Pod, 2)}, want: &corev1.PodList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{{TypeMeta: podKind}, {TypeMeta: podKind}},
		}},
		{name: "empty list", scheme: scheme.Scheme, obj: &corev1.PodList{}, want: &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}},
		{name: "one item of another kind leaves the list as it was", scheme: scheme.Scheme, obj: &corev1.PodList{Items: []corev1.Pod{{}, {TypeMeta: deploymentKind}}}, err: clientgo.ErrOtherKind},
		{
			name: "mixed list", scheme: scheme.Scheme,
			obj: &corev1.List{Items: []runtime.RawExtension{{Object: &corev1.Pod{}}, {Raw: []byte(`{}`)}, {Object: &appsv1.Deployment{}}}},
			want: &corev1.List{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"},
				Items:    []runtime.RawExtension{{Object: &corev1.Pod{TypeMeta: podKind}}, {Raw: []byte(`{}`)}, {Object: &appsv1.Deployment{TypeMeta: deploymentKind}}},
			},
		},
		{name: "unstructured list", obj: &unstructured.UnstructuredList{
			Object: map[string]any{"apiVersion": "example.com/v1", "kind": "ThingList"}, Items: []unstructured.Unstructured{*u("example.com/v1", "Thing")},
		}},
		{name: "unstructured list, an item without a kind", obj: &unstructured.UnstructuredList{
			Object: map[string]any{"apiVersion": "example.com/v1", "kind": "ThingList"}, Items: []unstructured.Unstructured{*u("example.com/v1", "")},
		}, err: clientgo.ErrUnknowable},
		{name: "metadata list of a kind, items of none", obj: &metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []metav1.PartialObjectMetadata{{}},
		}, err: clientgo.ErrUnknowable},
	} {
		t.Run(x.name, func(t *testing.T) {
			want := x.want
			if want == nil && x.obj != nil && !reflect.ValueOf(x.obj).IsNil() {
				want = x.obj.DeepCopyObject()
			}
			for range 2 { // the second time changes nothing
				err := clientgo.RestoreGVK(x.scheme, x.obj)
				if !errors.Is(err, x.err) {
					t.Fatalf("got error %v, want %v", err, x.err)
				}
				var typed *clientgo.GVKError
				if x.err != nil && !errors.As(err, &typed) {
					t.Errorf("%T is no GVKError", err)
				}
				if diff := cmp.Diff(want, x.obj); want != nil && diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// The error must contain the remedy, so that readers need no debugger.
func TestGVKErrorNamesWhatItSaw(t *testing.T) {
	for _, x := range []struct {
		obj  runtime.Object
		want string
	}{
		{&appsv1.Deployment{}, "restore kind of *v1.Deployment: the type is registered under several kinds; the scheme has apps/v1 Deployment, example.com/v1 Rollout"},
		{&appsv1.DeploymentList{Items: []appsv1.Deployment{{TypeMeta: deploymentKind}, {TypeMeta: podKind}}}, `restore kind of *v1.Deployment, item 1 of its list: the object says that it is of another kind; it carries apiVersion "v1", kind "Pod"; the scheme has apps/v1 Deployment, example.com/v1 Rollout`},
		{nil, "restore kind of <nil>: there is no object"},
	} {
		if got := clientgo.RestoreGVK(inTwo(t), x.obj); got == nil || got.Error() != x.want {
			t.Errorf("got  %v\nwant %s", got, x.want)
		}
	}
}

// Several goroutines may use a complete object: the race detector fails this test if RestoreGVK writes to it.
func TestRestoreGVKOnlyReadsCompleteObjects(t *testing.T) {
	list := &corev1.PodList{Items: make([]corev1.Pod, 3)}
	if err := clientgo.RestoreGVK(scheme.Scheme, list); err != nil {
		t.Fatal(err)
	}
	transform := clientgo.RestoreGVKTransform(scheme.Scheme)
	tombstone := cache.DeletedFinalStateUnknown{Key: "s/p", Obj: &corev1.Pod{}} // not complete: to be copied
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := clientgo.RestoreGVK(scheme.Scheme, list); err != nil {
				t.Error(err)
			}
			for _, in := range []any{&list.Items[0], tombstone} {
				if _, err := transform(in); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestRestoreGVKTransform(t *testing.T) {
	shared := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	complete := &corev1.Pod{TypeMeta: podKind}
	own := &corev1.Pod{}
	for _, x := range []struct {
		name string
		in   any
		want any
		same func(out any) bool // what must be the very object that went in
		err  error
	}{
		{name: "a new object, in place", in: own, want: &corev1.Pod{TypeMeta: podKind}, same: func(out any) bool { return out == any(own) }},
		{
			name: "tombstone, copied", in: cache.DeletedFinalStateUnknown{Key: "s/p", Obj: shared},
			want: cache.DeletedFinalStateUnknown{Key: "s/p", Obj: &corev1.Pod{TypeMeta: podKind, ObjectMeta: metav1.ObjectMeta{Name: "p"}}},
			same: func(any) bool { return shared.Kind == "" },
		},
		{
			name: "tombstone, complete", in: cache.DeletedFinalStateUnknown{Key: "s/p", Obj: complete},
			want: cache.DeletedFinalStateUnknown{Key: "s/p", Obj: &corev1.Pod{TypeMeta: podKind}},
			same: func(out any) bool { return out.(cache.DeletedFinalStateUnknown).Obj == any(complete) },
		},
		{name: "tombstone, key only", in: cache.DeletedFinalStateUnknown{Key: "s/p"}, want: cache.DeletedFinalStateUnknown{Key: "s/p"}},
		{name: "tombstone of no object", in: cache.DeletedFinalStateUnknown{Key: "s/p", Obj: 7}, err: clientgo.ErrNoObject},
		{name: "tombstone of an unknowable", in: cache.DeletedFinalStateUnknown{Obj: &metav1.PartialObjectMetadata{}}, err: clientgo.ErrUnknowable},
		{name: "unknowable", in: &metav1.PartialObjectMetadata{}, err: clientgo.ErrUnknowable},
		{name: "no object", in: "text", err: clientgo.ErrNoObject},
		{name: "nil", err: clientgo.ErrNoObject},
	} {
		t.Run(x.name, func(t *testing.T) {
			out, err := clientgo.RestoreGVKTransform(scheme.Scheme)(x.in)
			if !errors.Is(err, x.err) {
				t.Fatalf("got error %v, want %v", err, x.err)
			}
			if diff := cmp.Diff(x.want, out); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if x.same != nil && !x.same(out) {
				t.Error("copied what may be changed in place, or changed what is shared")
			}
		})
	}
}
