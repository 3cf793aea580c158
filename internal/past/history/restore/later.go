package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// ErrOtherCluster is returned if [Options.Exact] is set and the state is from another cluster: objects that the state
// does not have may be older than the state there, and must not be deleted.
var ErrOtherCluster = errors.New("the cluster is another one than the state is of")

const pageSize = 500

const shownPaths = 5

// extra is an object of the cluster that the state does not have.
type extra struct {
	client dynamic.ResourceInterface
	line   string
	name   string
	uid    types.UID
	keep   string // why it is not deleted; "" if Exact deletes it
}

// sameCluster returns an error if Exact is set and the state is from another cluster.
func (r *restorer) sameCluster(ctx context.Context) error {
	if !r.Exact {
		return nil
	}
	namespaces := r.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	u, err := namespaces.Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("find out which cluster it is: %w", err)
	}
	if string(u.GetUID()) != r.State.ClusterUID {
		return fmt.Errorf("restore exactly: %w: it has the UID %s, the state is of %s: restore without --exact",
			ErrOtherCluster, u.GetUID(), r.State.ClusterUID)
	}
	return nil
}

func (r *restorer) findExtras(ctx context.Context) error {
	known := map[string]bool{}
	r.found = map[types.UID]*extra{}
	for i := range r.State.Objects {
		o := &r.State.Objects[i]
		known[o.ResourceID+" "+o.Name()] = true
	}
	for i := range r.State.Collections {
		c := &r.State.Collections[i]
		err := r.listExtras(ctx, c, known)
		switch {
		case err == nil:
		case apierrors.IsForbidden(err) && !r.Exact:
			r.report(Line{What: Left, Object: c.Collection, Why: "what is not in the state cannot be listed: " + err.Error()})
		default:
			return fmt.Errorf("list what the cluster has of %s: %w", c.Collection, err)
		}
	}
	return nil
}

func (r *restorer) listExtras(ctx context.Context, c *history.Covered, known map[string]bool) error {
	of := event.ParseCollection(c.Collection)
	found, err := r.mapper.ResourcesFor(schema.GroupVersionResource{Group: of.Group, Resource: of.Resource})
	if err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	// The core group's name is empty, which the mapper takes for any group.
	i := slices.IndexFunc(found, func(x schema.GroupVersionResource) bool { return x.Group == of.Group })
	if i < 0 {
		return nil // without the type there are no objects
	}
	gvr := found[i]
	gvk, err := r.mapper.KindFor(gvr)
	if err != nil {
		return err
	}
	mapping, err := r.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	namespaces := gvk.GroupKind() == schema.GroupKind{Kind: "Namespace"}
	if r.Namespace != "" && mapping.Scope.Name() != meta.RESTScopeNameNamespace && !namespaces {
		return nil // the query asked for one namespace only
	}
	var client dynamic.ResourceInterface = r.client.Resource(gvr)
	options := metav1.ListOptions{LabelSelector: c.Selection.Labels, FieldSelector: c.Selection.Fields}
	switch in := max(of.Namespace, r.Namespace); {
	case namespaces && r.Namespace != "":
		options.FieldSelector = "metadata.name=" + r.Namespace
	case in != "" && !namespaces:
		client = r.client.Resource(gvr).Namespace(in)
	}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
	pages.PageSize = pageSize
	return pages.EachListItem(ctx, options, func(o runtime.Object) error {
		u := o.(*unstructured.Unstructured)
		u.SetGroupVersionKind(gvk)
		line := c.Resource + " " + history.NameOf(u.GetNamespace(), u.GetName()).String()
		if known[line] || u.GetDeletionTimestamp() != nil {
			return nil
		}
		of := client
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			of = r.client.Resource(gvr).Namespace(u.GetNamespace())
		}
		keep := r.keepReason(c, u)
		if x := r.found[u.GetUID()]; x != nil { // another collection holds it, too
			x.keep = max(x.keep, keep)
			return nil
		}
		x := &extra{client: of, line: line, name: u.GetName(), uid: u.GetUID(), keep: keep}
		r.extras, r.found[x.uid] = append(r.extras, x), x
		return nil
	})
}

// keepReason returns why an object that the state does not have is not deleted; "" if it may be deleted.
func (r *restorer) keepReason(c *history.Covered, u *unstructured.Unstructured) string {
	gk := u.GroupVersionKind().GroupKind()
	job := gk == schema.GroupKind{Group: "batch", Kind: "Job"} // one that has ended may be deleted, although it is never restored
	if why := skipReason(u); why != "" && !job {
		return why
	}
	if why := r.unnamed(u, c.Resource); why != "" {
		return why
	}
	if ref := metav1.GetControllerOf(u); ref != nil {
		return "its controller, " + ref.Kind + " " + ref.Name + ", decides about it"
	}
	switch gk {
	case schema.GroupKind{Kind: "Namespace"}, schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		return "deleting it would delete everything in it"
	}
	parted := c.Selection.Labels != "" || c.Selection.Fields != "" || c.Selection.Filtered || c.Filtered
	created := u.GetCreationTimestamp().Time // in whole seconds, rounded down
	switch {
	case !created.Add(time.Second).After(r.Until):
		return fmt.Sprintf("it was created at %s, and the bus did not have it then", created.UTC().Format(time.RFC3339))
	case parted && (r.ByRV || !created.After(r.Until)):
		return "a selector or a filter may have left it out then"
	}
	return ""
}

// checkExtras checks deletions by a dry run, and reports the objects that stay.
func (r *restorer) checkExtras(ctx context.Context) {
	for _, x := range r.extras {
		switch {
		case x.keep != "":
			r.report(Line{What: Left, Object: x.line, Why: "it is not in the state: " + x.keep})
		case !r.Exact:
			r.report(Line{What: Left, Object: x.line, Why: "it is not in the state (--exact deletes it)"})
		default:
			if err := x.delete(ctx, true); err != nil {
				r.failDelete(x, err)
				continue
			}
			r.report(Line{What: Checked, Object: x.line, Why: "is deleted: it is not in the state"})
		}
	}
}

func (r *restorer) deleteExtras(ctx context.Context) {
	for _, x := range slices.Backward(r.extras) {
		if !r.Exact || x.keep != "" {
			continue
		}
		if err := x.delete(ctx, false); err != nil {
			r.failDelete(x, err)
			continue
		}
		r.report(Line{What: Deleted, Object: x.line})
	}
}

func (r *restorer) failDelete(x *extra, err error) {
	r.failed++
	r.report(Line{What: Failed, Object: x.line, Why: "delete it: " + err.Error()})
}

// delete deletes the object, unless another object has its name now.
func (x *extra) delete(ctx context.Context, dry bool) error {
	policy := metav1.DeletePropagationBackground
	o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &x.uid}, PropagationPolicy: &policy}
	if dry {
		o.DryRun = []string{metav1.DryRunAll}
	}
	if err := x.client.Delete(ctx, x.name, o); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// comparable returns an object without the fields that the cluster assigns, as the state has it.
func comparable(u *unstructured.Unstructured) *unstructured.Unstructured {
	out := u.DeepCopy()
	strip(out)
	return out
}

func exactPatch(it *item, live *unstructured.Unstructured) ([]byte, error) {
	change := mergePatch(comparable(live).Object, it.Object)
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"] = string(live.GetUID()) // the server refuses the patch if another object has the name now
	if len(it.GetOwnerReferences()) == 0 && len(it.owners) == 0 && len(live.GetOwnerReferences()) > 0 {
		metadata["ownerReferences"] = nil
	}
	change["metadata"] = metadata
	delete(change, "apiVersion") // the state may have another served version
	delete(change, "kind")
	return json.Marshal(change)
}

// mergePatch returns the JSON merge patch (RFC 7386) that changes from into to. Objects have no nulls.
func mergePatch(from, to map[string]any) map[string]any {
	change := map[string]any{}
	for k, now := range to {
		was, ok := from[k]
		a, isMap := was.(map[string]any)
		b, alsoMap := now.(map[string]any)
		switch {
		case isMap && alsoMap:
			if d := mergePatch(a, b); len(d) > 0 {
				change[k] = d
			}
		case !ok || !reflect.DeepEqual(was, now):
			change[k] = now
		}
	}
	for k := range from {
		if _, ok := to[k]; !ok {
			change[k] = nil
		}
	}
	return change
}

// differingPaths returns the paths in which two objects differ, except the fields that the cluster assigns.
func differingPaths(a, b *unstructured.Unstructured) ([]string, error) {
	x, err := json.Marshal(comparable(a).Object)
	y, failed := json.Marshal(comparable(b).Object)
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	return history.Paths(x, y)
}

func places(paths []string) string {
	if len(paths) > shownPaths {
		return fmt.Sprintf("%s and %d more", strings.Join(paths[:shownPaths], ", "), len(paths)-shownPaths)
	}
	return strings.Join(paths, ", ")
}
