package clientgo

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Reasons why a kind cannot be restored. Each is wrapped in a [GVKError].
var (
	// ErrNoObject: nil, a nil pointer, or a value that is no Kubernetes object.
	ErrNoObject = errors.New("there is no object")
	// ErrNotRegistered: the scheme does not have the Go type. Add its package with
	// AddToScheme.
	ErrNotRegistered = errors.New("the type is not registered in the scheme")
	// ErrAmbiguous: the scheme has the Go type under several kinds or versions, and
	// the object does not decide between them. GVKError.Candidates lists them.
	ErrAmbiguous = errors.New("the type is registered under several kinds")
	// ErrUnversioned: the type (for example metav1.Status) belongs to every
	// version.
	ErrUnversioned = errors.New("the type belongs to no version of an API")
	// ErrUnknowable: the Go type is used for every kind (metav1.PartialObjectMetadata,
	// unstructured objects) and the object has no kind.
	ErrUnknowable = errors.New("only the object could name its kind, and it does not")
	// ErrOtherKind: the scheme has another Go type for the kind of the
	// object. GVKError.Candidates lists the possible kinds.
	ErrOtherKind = errors.New("the object says that it is of another kind")
)

// GVKError is the error of [GVKOf], [RestoreGVK] and [RestoreGVKTransform].
type GVKError struct {
	Type       string                    // the Go type, for example "*v1.Pod"
	Item       int                       // the index in the list, -1 outside a list
	Carried    schema.GroupVersionKind   // the kind in the object, possibly incomplete
	Candidates []schema.GroupVersionKind // of ErrAmbiguous and ErrOtherKind
	Err        error                     // one of the sentinels
}

func (e *GVKError) Error() string {
	var b strings.Builder
	b.WriteString("restore kind of " + e.Type)
	if e.Item >= 0 {
		fmt.Fprintf(&b, ", item %d of its list", e.Item)
	}
	b.WriteString(": " + e.Err.Error())
	if !e.Carried.Empty() {
		fmt.Fprintf(&b, "; it carries apiVersion %q, kind %q", e.Carried.GroupVersion(), e.Carried.Kind)
	}
	for i, c := range e.Candidates {
		b.WriteString([]string{"; the scheme has ", ", "}[min(i, 1)] + c.GroupVersion().String() + " " + c.Kind)
	}
	return b.String()
}

// Unwrap returns the sentinel.
func (e *GVKError) Unwrap() error { return e.Err }

// RestoreGVK sets apiVersion and kind of obj, and of every item where obj is a
// list. They are empty on typed objects from client-go's clients and informers,
// whose decoder clears them ("just a convention of a codec",
// runtime.WithoutVersionDecoder); encoded like that, an object does not say what
// it is.
//
// If the scheme has the type under several kinds, the kind in the object
// decides. If the object has no kind, the error is [ErrAmbiguous].
// Objects that need no scheme (unstructured objects, PartialObjectMetadata) keep
// their kind, and so do objects of types that the scheme does not have. Items that hold raw
// JSON (runtime.RawExtension without an Object) are not changed.
//
// RestoreGVK writes only missing fields, so complete objects
// may be shared. Other objects must belong to the caller: the results of a lister belong to
// the cache, see [RestoreGVKTransform]. If RestoreGVK returns an error, a [*GVKError], it has not
// changed obj.
func RestoreGVK(scheme *runtime.Scheme, obj runtime.Object) error {
	type change struct {
		obj runtime.Object
		gvk schema.GroupVersionKind
	}
	var changes []change
	plan := func(obj runtime.Object, item int) error {
		gvk, err := gvkOf(scheme, obj, item)
		if err == nil && obj.GetObjectKind().GroupVersionKind() != gvk {
			changes = append(changes, change{obj, gvk})
		}
		return err
	}
	if err := plan(obj, -1); err != nil {
		return err
	}
	if isList(obj) {
		item := -1
		err := meta.EachListItem(obj, func(o runtime.Object) error {
			item++
			if o == nil { // a RawExtension
				return nil
			}
			return plan(o, item)
		})
		var known *GVKError
		switch {
		case errors.As(err, &known):
			return err
		case err != nil:
			return fmt.Errorf("restore kinds of the items of %T: %w", obj, err)
		}
	}
	for _, c := range changes {
		c.obj.GetObjectKind().SetGroupVersionKind(c.gvk)
	}
	return nil
}

// isList reports whether obj is a list. An object may have items, too, but a list has no object metadata.
func isList(obj runtime.Object) bool {
	_, object := obj.(metav1.Object)
	return !object && meta.IsListType(obj)
}

// GVKOf returns the group, version and kind that [RestoreGVK] would set on obj itself.
// It only reads, so obj may be shared.
func GVKOf(scheme *runtime.Scheme, obj runtime.Object) (schema.GroupVersionKind, error) {
	return gvkOf(scheme, obj, -1)
}

func gvkOf(scheme *runtime.Scheme, obj runtime.Object, item int) (schema.GroupVersionKind, error) {
	var carried schema.GroupVersionKind
	refuse := func(why error, candidates ...schema.GroupVersionKind) (schema.GroupVersionKind, error) {
		return schema.GroupVersionKind{}, &GVKError{
			Type: fmt.Sprintf("%T", obj), Item: item, Carried: carried, Candidates: candidates, Err: why,
		}
	}
	v := reflect.ValueOf(obj)
	if !v.IsValid() || v.Kind() != reflect.Pointer || v.IsNil() {
		return refuse(ErrNoObject)
	}
	carried = obj.GetObjectKind().GroupVersionKind()
	complete := carried.Kind != "" && carried.Version != ""
	if ofAnyKind(obj) {
		if !complete || isMetadataOnly(carried) {
			return refuse(ErrUnknowable)
		}
		return carried, nil
	}
	if scheme == nil {
		scheme = runtime.NewScheme()
	}
	registered, unversioned, err := scheme.ObjectKinds(obj)
	switch {
	case err != nil && complete && !scheme.Recognizes(carried):
		return carried, nil
	case err != nil && complete:
		return refuse(ErrOtherKind)
	case err != nil:
		return refuse(ErrNotRegistered)
	}
	// The internal version never appears in an object's JSON.
	registered = slices.DeleteFunc(slices.Clone(registered), func(gvk schema.GroupVersionKind) bool {
		return gvk.Version == runtime.APIVersionInternal
	})
	slices.SortFunc(registered, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	fitting := slices.DeleteFunc(slices.Clone(registered), func(gvk schema.GroupVersionKind) bool {
		return !agree(carried.Kind, gvk.Kind) || carried.Version != "" && carried.GroupVersion() != gvk.GroupVersion()
	})
	switch {
	case len(registered) == 0:
		return refuse(ErrNotRegistered)
	case len(fitting) == 0:
		return refuse(ErrOtherKind, registered...)
	case unversioned && !complete:
		return refuse(ErrUnversioned)
	case len(fitting) > 1:
		return refuse(ErrAmbiguous, fitting...)
	}
	return fitting[0], nil
}

func agree(carried, registered string) bool { return carried == "" || carried == registered }

// ofAnyKind reports whether obj's Go type is used for all kinds, so that a scheme cannot name the kind.
func ofAnyKind(obj runtime.Object) bool {
	switch obj.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return true
	default:
		return false
	}
}

// isMetadataOnly reports whether gvk is the kind of the metadata-only format, which is not the kind of the object.
func isMetadataOnly(gvk schema.GroupVersionKind) bool {
	return gvk.Group == metav1.GroupName && strings.HasPrefix(gvk.Kind, "PartialObjectMetadata")
}

// RestoreGVKTransform is [RestoreGVK] for an informer's SetTransform: handlers
// and listers then see objects with apiVersion and kind. It follows the contract of
// [cache.TransformFunc]: it changes a new object in place and only reads a complete
// one, so it may be applied any number of times. A tombstone
// ([cache.DeletedFinalStateUnknown]) holds an object that readers of the cache
// share, so the transform changes a copy.
//
// The error is a [*GVKError]. An informer does not store an object whose transform
// fails: its list fails, is reported to its watch error handler and tried again;
// from a watch the object is reported and dropped. An informer has one type, so
// one call of [GVKOf] before it starts shows whether this can happen.
func RestoreGVKTransform(scheme *runtime.Scheme) cache.TransformFunc {
	return func(in any) (any, error) {
		tombstone, ended := in.(cache.DeletedFinalStateUnknown)
		if ended {
			in = tombstone.Obj
		}
		obj, ok := in.(runtime.Object)
		switch {
		case ended && in == nil:
			return tombstone, nil // only the key is known
		case !ok:
			return nil, &GVKError{Type: fmt.Sprintf("%T", in), Item: -1, Err: ErrNoObject}
		case !ended:
			if err := RestoreGVK(scheme, obj); err != nil {
				return nil, err
			}
			return obj, nil
		}
		gvk, err := GVKOf(scheme, obj)
		if err != nil {
			return nil, err
		}
		if obj.GetObjectKind().GroupVersionKind() != gvk {
			obj = obj.DeepCopyObject()
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			tombstone.Obj = obj
		}
		return tombstone, nil
	}
}
