// Package restore writes a state that was rebuilt from the bus to a cluster, by server-side
// apply.
package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	kjson "sigs.k8s.io/json"

	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// FieldManager is the field manager of server-side apply that owns restored fields.
const FieldManager = "kubebridge-restore"

// established is how long to wait until a restored CustomResourceDefinition is served.
const established = 30 * time.Second

// Options say what is restored, and where.
type Options struct {
	Config    *rest.Config
	State     *history.State
	Namespace string // the namespace that the state was rebuilt for; "": all
	// Until is the time of the state; with ByRV, for a resourceVersion, the time of the last event before it.
	Until time.Time
	ByRV  bool
	// Named reports whether the user asked for a resource by its name. nil means that no resource was named.
	Named  func(group, resource string) bool
	DryRun bool // the server checks everything and changes nothing
	Force  bool // take fields over from other field managers
	// Exact removes objects of the state's collections that are not in the state, and fields of its objects that are not
	// in the state, whichever manager owns them.
	Exact bool
}

// Line reports the outcome for one object.
type Line struct {
	What   Outcome `json:"what"`
	Object string  `json:"object"` // "deployments.apps shop/web"
	Why    string  `json:"why,omitempty"`
	// Paths are JSON pointers to the fields that change, or that are left.
	Paths []string `json:"paths,omitempty"`
}

// Outcome says what was done with an object.
type Outcome string

// The outcomes.
const (
	Applied   Outcome = "applied"
	Deleted   Outcome = "deleted"   // it was deleted, because it is not in the state
	Checked   Outcome = "checked"   // a dry run accepted it
	Unchecked Outcome = "unchecked" // its namespace or type does not exist yet
	Skipped   Outcome = "skipped"
	Changed   Outcome = "changed" // it is not restored exactly as it was; another line follows with its outcome
	Failed    Outcome = "failed"
	// Left means that something stays that is not in the state: an object, or fields of one that has another outcome too.
	Left Outcome = "left"
)

// ErrFailed is returned if some objects could not be restored.
var ErrFailed = errors.New("not everything could be restored")

type item struct {
	*unstructured.Unstructured
	resource  schema.GroupResource // the resource of its event
	line      string
	uid       types.UID // its UID in the state; the restored object gets another one
	owners    []metav1.OwnerReference
	rank      int
	unchecked bool // it could not be checked yet: its namespace or type is restored first
	exact     bool // remove fields that the state does not have
}

type restorer struct {
	Options
	report func(Line)
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	items  []*item
	extras []*extra
	found  map[types.UID]*extra    // extras by UID
	uids   map[types.UID]types.UID // UID in the state to UID of the restored object
	failed int
	// selections are those of the state's collections, by their IDs.
	selections map[string]event.Selection
}

// Run restores o.State and reports the outcome for each object. First it checks by a dry run all objects that can be
// checked. If one of these checks fails, it changes nothing.
func Run(ctx context.Context, o Options, report func(Line)) error {
	client, err := dynamic.NewForConfig(o.Config)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(o.Config)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if _, err := disco.ServerVersion(); err != nil {
		return fmt.Errorf("restore: the cluster at %s does not answer: %w", o.Config.Host, err)
	}
	r := &restorer{
		Options: o, report: report, client: client, uids: map[types.UID]types.UID{}, selections: map[string]event.Selection{},
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco)),
	}
	for i := range o.State.Collections {
		r.selections[o.State.Collections[i].Collection] = o.State.Collections[i].Selection
	}
	if err := r.sameCluster(ctx); err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := r.findExtras(ctx); err != nil {
		return err
	}
	return r.run(ctx)
}

func (r *restorer) prepare(ctx context.Context) error {
	held := map[string]bool{} // namespaces that the state has
	var needed []string
	for i := range r.State.Objects {
		o := &r.State.Objects[i]
		line := o.ResourceID + " " + o.Name()
		body, why := r.body(o)
		u := &unstructured.Unstructured{}
		if why == "" {
			if err := kjson.UnmarshalCaseSensitivePreserveInts(body.Object, &u.Object); err != nil {
				why = "its body cannot be read: " + err.Error()
			} else if why, err = r.refusal(o, u); err != nil {
				return err
			}
			why = cmp.Or(why, skipReason(u))
		}
		if why != "" {
			r.report(Line{What: Skipped, Object: line, Why: why})
			continue
		}
		it := &item{
			Unstructured: u, resource: schema.GroupResource{Group: o.Group, Resource: o.Resource}, line: line, uid: u.GetUID(),
			owners: u.GetOwnerReferences(), rank: rank(u.GroupVersionKind().GroupKind()), exact: r.Exact && !r.selections[body.Collection].Dropped,
		}
		strip(u)
		if it.rank == rankNamespace {
			held[u.GetName()] = true
		} else if ns := u.GetNamespace(); ns != "" {
			needed = append(needed, ns)
		}
		r.items = append(r.items, it)
	}
	slices.Sort(needed)
	for _, ns := range slices.Compact(needed) {
		if err := r.needNamespace(ctx, ns, held[ns]); err != nil {
			return err
		}
	}
	r.order()
	return nil
}

// body returns the publication of an object from which it is restored, or why there is none. If several collections
// have published this version, it prefers one from which no rule removes fields.
func (r *restorer) body(o *history.Object) (body *history.Object, why string) {
	for _, e := range o.Views() {
		one := &history.Object{Received: e, ResourceID: o.ResourceID}
		if unfit := r.unfit(one); unfit != "" {
			why = cmp.Or(why, unfit)
			continue
		}
		if !r.selections[e.Collection].Dropped {
			return one, ""
		}
		if body == nil {
			body = one
		}
	}
	if body != nil {
		why = ""
	}
	return body, why
}

// refusal returns why a complete body is not written to the cluster: it is another object than its event says, or it
// grants rights and the user did not ask for its resource by name.
func (r *restorer) refusal(o *history.Object, u *unstructured.Unstructured) (why string, err error) {
	if history.NameOf(u.GetNamespace(), u.GetName()).String() != o.Name() || string(u.GetUID()) != o.UID {
		return fmt.Sprintf("its body is another object: %s %s/%s, uid %s: no bridge wrote it",
			u.GetKind(), u.GetNamespace(), u.GetName(), u.GetUID()), nil
	}
	var other *otherResourceError
	_, err = r.mapping(u, schema.GroupResource{Group: o.Group, Resource: o.Resource})
	switch {
	case errors.As(err, &other):
		return other.Error(), nil
	case err != nil && !meta.IsNoMatchError(err):
		return "", err
	}
	return r.unnamed(u, o.ResourceID), nil
}

// unnamed returns why an object is neither restored nor deleted unless the user names its resource; "" if it is.
func (r *restorer) unnamed(u *unstructured.Unstructured, resource string) string {
	c := event.ParseCollection(resource)
	if !powerful(u.GroupVersionKind().GroupKind()) || r.Named != nil && r.Named(c.Group, c.Resource) {
		return ""
	}
	return "it gives rights, or changes what the API server does: name " + resource + " if you mean it"
}

// otherResourceError is returned for a body whose resource is not that of its event.
type otherResourceError struct {
	kind         schema.GroupVersionKind
	is, expected schema.GroupResource
}

func (e *otherResourceError) Error() string {
	return fmt.Sprintf("its body is a %s (%s), which is one of %s and not of %s: no bridge wrote it",
		e.kind.Kind, e.kind.GroupVersion(), e.is, e.expected)
}

// unfit returns why a publication does not have the whole object; "" if it has.
func (r *restorer) unfit(o *history.Object) string {
	switch {
	case o.Incomplete() != "":
		return o.Incomplete()
	case r.selections[o.Collection].MetadataOnly:
		return "the bus has its metadata only"
	case o.Hidden():
		return "the bus hides values of it"
	}
	return ""
}

// needNamespace adds a namespace that neither exists in the cluster nor is in the state.
func (r *restorer) needNamespace(ctx context.Context, name string, held bool) error {
	if held {
		return nil
	}
	_, err := r.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look for namespace %s: %w", name, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	r.report(Line{What: Changed, Object: "namespaces " + name, Why: "it is not in the state: it is created without labels and annotations"})
	namespaces := schema.GroupResource{Resource: "namespaces"}
	r.items = append(r.items, &item{Unstructured: u, resource: namespaces, line: "namespaces " + name, rank: rankNamespace})
	return nil
}

// order sorts by rank, and puts owners before the objects that they own.
func (r *restorer) order() {
	byUID := map[types.UID]*item{}
	for _, it := range r.items {
		byUID[it.uid] = it
	}
	depth := map[*item]int{}
	var of func(it *item, seen int) int
	of = func(it *item, seen int) int {
		if d, ok := depth[it]; ok || seen > len(r.items) { // owners in a circle
			return d
		}
		d := 0
		for _, ref := range it.owners {
			if owner := byUID[ref.UID]; owner != nil {
				d = max(d, of(owner, seen+1)+1)
				it.rank = max(it.rank, owner.rank)
			}
		}
		depth[it] = d
		return d
	}
	for _, it := range r.items {
		of(it, 0)
	}
	slices.SortStableFunc(r.items, func(a, b *item) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(depth[a], depth[b]), strings.Compare(a.line, b.line))
	})
}

func (r *restorer) run(ctx context.Context) error {
	for _, it := range r.items {
		r.try(ctx, it, false)
	}
	r.checkExtras(ctx)
	if r.failed > 0 || r.DryRun {
		return r.err("the dry run refused %d: nothing was changed")
	}
	// Namespaces and definitions come first: objects that need them could not be checked without them.
	for _, it := range r.items {
		if it.rank <= rankDefinition {
			r.apply(ctx, it)
		}
	}
	if err := r.awaitDefinitions(ctx); err != nil {
		return err
	}
	for _, it := range r.items {
		if it.rank > rankDefinition && it.unchecked {
			r.try(ctx, it, true)
		}
	}
	if r.failed > 0 {
		return r.err("%d were refused: of the others, nothing but namespaces and CustomResourceDefinitions was applied")
	}
	for _, it := range r.items {
		if it.rank > rankDefinition {
			r.apply(ctx, it)
		}
	}
	if r.failed > 0 {
		return r.err("%d were refused; nothing was deleted")
	}
	r.deleteExtras(ctx)
	return r.err("%d could not be deleted")
}

// err returns an error that says how many objects failed; nil if none did.
func (r *restorer) err(text string) error {
	if r.failed == 0 {
		return nil
	}
	return fmt.Errorf("%w: "+text, ErrFailed, r.failed)
}

// try checks an item by a dry run and reports the result. If now is false, an item that needs something that is
// restored before it is marked to be checked later. If now is true, that is a failure.
func (r *restorer) try(ctx context.Context, it *item, now bool) {
	live, made, err := r.put(ctx, it, true)
	switch {
	case err == nil:
		it.unchecked = false
		line := Line{What: Checked, Object: it.line, Why: "is created"}
		if live != nil {
			if line.Paths, err = differingPaths(live, made); err != nil {
				r.fail(it, err)
				return
			}
			if line.Why = "does not change"; len(line.Paths) > 0 {
				line.Why = "changes " + places(line.Paths)
			}
		}
		r.report(line)
		if r.DryRun {
			r.reportOrphaned(ctx, it)
			r.reportLeft(it, live, made)
		}
	case !now && r.createdEarlier(it, err):
		it.unchecked = true
		r.report(Line{What: Unchecked, Object: it.line, Why: "is created: its namespace or type does not exist yet"})
		if r.DryRun {
			r.reportOrphaned(ctx, it)
		}
	default:
		r.fail(it, err)
	}
}

// reportOrphaned reports which owner references an item would lose.
func (r *restorer) reportOrphaned(ctx context.Context, it *item) {
	var dropped []string
	for _, ref := range it.owners {
		restored := slices.ContainsFunc(r.items, func(other *item) bool { return other.uid == ref.UID })
		if !restored && !r.ownerExists(ctx, ref, it.GetNamespace()) {
			dropped = append(dropped, ref.Kind+" "+ref.Name)
		}
	}
	r.reportDropped(it, dropped)
}

func (r *restorer) reportDropped(it *item, owners []string) {
	if len(owners) > 0 {
		r.report(Line{What: Changed, Object: it.line, Why: "its owner is not restored: " + strings.Join(owners, ", ")})
	}
}

// reportLeft reports fields of the written object that the state lacks. live is the object before; nil: it did not
// exist.
func (r *restorer) reportLeft(it *item, live, made *unstructured.Unstructured) {
	if live == nil {
		return // the fields that the cluster adds to a new object are defaults, not later changes
	}
	paths, err := differingPaths(it.Unstructured, made)
	if err != nil {
		r.fail(it, err)
		return
	}
	if len(it.owners) == 0 && len(made.GetOwnerReferences()) > 0 {
		paths = append(paths, "/metadata/ownerReferences")
	}
	if len(paths) == 0 {
		return
	}
	why := "not in the state: " + places(paths)
	switch {
	case it.exact:
		why += ": the cluster sets them again"
	case r.Exact:
		why += ": a rule may have taken them out of the events"
	default:
		why += " (--exact removes them)"
	}
	r.report(Line{What: Left, Object: it.line, Why: why, Paths: paths})
}

// createdEarlier reports whether an error says that a namespace or type is missing that is restored before the item.
func (r *restorer) createdEarlier(it *item, err error) bool {
	if meta.IsNoMatchError(err) {
		kind := it.GroupVersionKind().Kind
		return slices.ContainsFunc(r.items, func(other *item) bool {
			defined, _, _ := unstructured.NestedString(other.Object, "spec", "names", "kind")
			return other.rank == rankDefinition && defined == kind
		})
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	return slices.ContainsFunc(r.items, func(other *item) bool {
		return other.rank == rankNamespace && other.GetName() == it.GetNamespace()
	})
}

func (r *restorer) fail(it *item, err error) {
	r.failed++
	why := err.Error()
	if apierrors.IsConflict(err) {
		why += " (--force takes the fields over)"
	}
	r.report(Line{What: Failed, Object: it.line, Why: why})
}

func (r *restorer) apply(ctx context.Context, it *item) {
	r.reportDropped(it, r.setOwners(ctx, it))
	live, made, err := r.put(ctx, it, false)
	if err != nil {
		r.fail(it, err)
		return
	}
	r.uids[it.uid] = made.GetUID()
	r.report(Line{What: Applied, Object: it.line})
	r.reportLeft(it, live, made)
}

// setOwners sets the owner references to the present UIDs of owners that were restored or still exist. It returns
// the other owners.
func (r *restorer) setOwners(ctx context.Context, it *item) (dropped []string) {
	var refs []metav1.OwnerReference
	for _, ref := range it.owners {
		if now, ok := r.uids[ref.UID]; ok {
			ref.UID = now
		} else if !r.ownerExists(ctx, ref, it.GetNamespace()) {
			dropped = append(dropped, ref.Kind+" "+ref.Name)
			continue
		}
		refs = append(refs, ref)
	}
	if len(refs) > 0 {
		it.SetOwnerReferences(refs)
	}
	return dropped
}

// ownerExists reports whether an owner still exists with the same UID.
func (r *restorer) ownerExists(ctx context.Context, ref metav1.OwnerReference, namespace string) bool {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	m, err := r.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return false
	}
	u, err := r.clientOf(m, namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	return err == nil && u.GetUID() == ref.UID
}

// mapping returns the REST mapping of an object. It is an error if that is not for the expected resource.
func (r *restorer) mapping(u *unstructured.Unstructured, of schema.GroupResource) (*meta.RESTMapping, error) {
	gvk := u.GroupVersionKind()
	m, err := r.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err == nil && m.Resource.GroupResource() != of {
		err = &otherResourceError{gvk, m.Resource.GroupResource(), of}
	}
	return m, err
}

func (r *restorer) clientOf(m *meta.RESTMapping, namespace string) dynamic.ResourceInterface {
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		return r.client.Resource(m.Resource).Namespace(namespace)
	}
	return r.client.Resource(m.Resource)
}

func (r *restorer) resource(it *item) (dynamic.ResourceInterface, error) {
	m, err := r.mapping(it.Unstructured, it.resource)
	if err != nil {
		return nil, err
	}
	return r.clientOf(m, it.GetNamespace()), nil
}

// put writes an item. live is the object before, nil if it did not exist; made is the object after.
func (r *restorer) put(ctx context.Context, it *item, dry bool) (live, made *unstructured.Unstructured, err error) {
	client, err := r.resource(it)
	if err != nil {
		return nil, nil, err
	}
	live, err = client.Get(ctx, it.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		live = nil
	} else if err != nil {
		return nil, nil, err
	}
	var dryRun []string
	if dry {
		dryRun = []string{metav1.DryRunAll}
	}
	if live != nil && it.exact {
		change, err := exactPatch(it, live)
		if err != nil {
			return live, nil, err
		}
		options := metav1.PatchOptions{FieldManager: FieldManager, DryRun: dryRun}
		made, err = client.Patch(ctx, it.GetName(), types.MergePatchType, change, options)
		return live, made, err
	}
	options := metav1.ApplyOptions{FieldManager: FieldManager, Force: r.Force || r.Exact, DryRun: dryRun}
	made, err = client.Apply(ctx, it.GetName(), it.Unstructured, options)
	return live, made, err
}

func (r *restorer) awaitDefinitions(ctx context.Context) error {
	for _, it := range r.items {
		if it.rank != rankDefinition || it.GetKind() != "CustomResourceDefinition" {
			continue
		}
		err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, established, true, func(ctx context.Context) (bool, error) {
			client, err := r.resource(it)
			if err != nil {
				return false, err
			}
			u, err := client.Get(ctx, it.GetName(), metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
			return slices.ContainsFunc(conditions, func(c any) bool {
				m, _ := c.(map[string]any)
				return m["type"] == "Established" && m["status"] == "True"
			}), nil
		})
		if err != nil {
			return fmt.Errorf("%w: wait for %s to be served: %w", ErrFailed, it.line, err)
		}
		r.mapper.Reset()
	}
	return nil
}
