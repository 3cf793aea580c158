package campaign

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// gadgets changes the objects of one custom type that several entries share, and records what the API server acknowledged.
type gadgets struct {
	world      *world
	typ        kube.Type
	namespaces []string
	random     *chance
	pause      *sync.RWMutex // of the workload: held for writing while there must be no writes

	mu       sync.Mutex // guards truth, next, columns and random; lock pause before it
	truth    *gadgetTruth
	next     int
	columns  int
	editions []edition // the last one is configured; written under the world's mu

	recording sync.Mutex // guards truth while the holder of mu makes several changes concurrently
}

// gadgetCount is the number of objects at the start. A bulk change of the label changes about a hundred.
const gadgetCount = 200

// gadgetState is one acknowledged state of an object.
type gadgetState struct {
	rv              uint64
	namespace, name string
	value, stamp    string
	shown           bool
	asked           time.Time // the time before the request
	by              string    // the user whose request led to it; "": not known
}

// gadget has the states of one object. The version of its deletion lies between after and before, both exclusive.
type gadget struct {
	uid           string
	states        []gadgetState
	deleted       bool
	after, before uint64
	asked         time.Time // the time before the request to delete it
	by            string    // who has deleted it; "": not known
}

// gadgetTruth has what the API server acknowledged, in the present history and, if etcd was restored, in the former one.
type gadgetTruth struct {
	former, objects map[string]*gadget
	back            time.Time // when the backup was put back
	ops             int
}

func newGadgetTruth() *gadgetTruth { return &gadgetTruth{objects: map[string]*gadget{}} }

// at returns the object's state at a resourceVersion. exists is false before its creation and after its deletion. known is false if
// the deletion may be before or after that version.
func (g *gadget) at(rv uint64) (s gadgetState, exists, known bool) {
	for _, one := range g.states {
		if one.rv <= rv {
			s, exists = one, true
		}
	}
	switch {
	case !exists, !g.deleted, rv <= g.after:
		return s, exists, true
	case rv+1 >= g.before:
		return s, false, true
	}
	return s, exists, false
}

// find returns the state of a version.
func (g *gadget) find(rv uint64) (gadgetState, bool) {
	i := slices.IndexFunc(g.states, func(s gadgetState) bool { return s.rv == rv })
	if i < 0 {
		return gadgetState{}, false
	}
	return g.states[i], true
}

func (g *gadget) String() string {
	var b strings.Builder
	for i, s := range g.states {
		if i == 0 {
			fmt.Fprintf(&b, "%s/%s (%s):", s.namespace, s.name, g.uid)
		}
		fmt.Fprintf(&b, " %d=%s by %s", s.rv, s.value, s.by)
		if !s.shown {
			b.WriteString("(not shown)")
		}
	}
	if g.deleted {
		fmt.Fprintf(&b, " deleted by %s after %d", g.by, g.after)
		if g.before < math.MaxUint64 {
			fmt.Fprintf(&b, " and before %d", g.before)
		}
	}
	return b.String()
}

func (t *gadgetTruth) wrote(u *unstructured.Unstructured, asked time.Time, by string) {
	uid, s := string(u.GetUID()), stateOf(u)
	s.asked, s.by = asked, by
	o := t.objects[uid]
	if o == nil {
		o = &gadget{uid: uid}
		t.objects[uid] = o
	}
	if _, known := o.find(s.rv); !known {
		o.states = append(o.states, s)
	}
}

func stateOf(u *unstructured.Unstructured) gadgetState {
	stamp, _, _ := unstructured.NestedString(u.Object, "spec", "stamp")
	return gadgetState{
		rv: number(u.GetResourceVersion()), namespace: u.GetNamespace(), name: u.GetName(),
		value: u.GetLabels()[gadgetLabel], stamp: stamp, shown: u.GetAnnotations()[shownNote] != "no",
	}
}

// deleted records the deletion of an object, with the time before the request, its user, and an upper bound of its version.
func (t *gadgetTruth) deleted(uid string, before uint64, asked time.Time, by string) {
	o := t.objects[uid]
	o.asked, o.by = asked, by
	o.deleted, o.after, o.before = true, o.states[len(o.states)-1].rv, before
}

// alive returns the objects that exist now, in a deterministic order.
func (t *gadgetTruth) alive() []*gadget {
	var all []*gadget
	for _, o := range t.objects {
		if !o.deleted {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *gadget) int { return strings.Compare(a.states[0].name+a.uid, b.states[0].name+b.uid) })
	return all
}

// free returns the objects that exist now and may be changed at random: all except markers, because tests wait for the first state of a
// marker.
func (t *gadgetTruth) free() []*gadget {
	return slices.DeleteFunc(t.alive(), func(o *gadget) bool { return strings.HasPrefix(o.states[0].name, markerPrefix) })
}

func (t *gadgetTruth) backup() map[string]*gadget {
	saved := map[string]*gadget{}
	for uid, o := range t.objects {
		c := *o
		c.states = slices.Clone(o.states)
		saved[uid] = &c
	}
	return saved
}

func (t *gadgetTruth) restored(saved map[string]*gadget, back time.Time) {
	t.former, t.objects, t.back = t.objects, saved, back
}

// prepare creates the type, its namespaces, and the first objects.
func (g *gadgets) prepare(ctx context.Context) error {
	for i := range 3 {
		name := fmt.Sprintf("%s-%d", g.world.ns, i)
		if _, err := g.world.kube.Create(ctx, kube.Namespaces, name, kube.Fields{"metadata": map[string]any{"labels": map[string]any{gadgetLabel: g.world.ns}}}); err != nil {
			return err
		}
		g.namespaces = append(g.namespaces, name)
	}
	if err := g.install(ctx); err != nil {
		return err
	}
	g.world.later(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = g.world.kube.Uninstall(ctx, g.typ)
	})
	return g.each(ctx, gadgetCount, func(int) func() error { return g.create(ctx) })
}

// each makes n changes, several at a time. next chooses a change, in the order of the seed, and returns a function that makes it.
func (g *gadgets) each(ctx context.Context, n int, next func(i int) func() error) error {
	todo := make([]func() error, n)
	for i := range todo {
		todo[i] = next(i)
	}
	if err := kube.Each(n, func(i int) error { return todo[i]() }); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

func (g *gadgets) versions() []any {
	g.columns++
	text := map[string]any{"type": "string"}
	return []any{map[string]any{
		"name": "v1", "served": true, "storage": true, "selectableFields": []any{map[string]any{"jsonPath": ".spec." + gadgetLabel}},
		"additionalPrinterColumns": []any{map[string]any{"name": fmt.Sprintf("edit %d", g.columns), "type": "string", "jsonPath": ".spec.stamp"}},
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
			"spec": map[string]any{"type": "object", "properties": map[string]any{gadgetLabel: text, "stamp": text}},
		}}},
	}}
}

// install installs the CRD, and returns when the type is served.
func (g *gadgets) install(ctx context.Context) error {
	for {
		_, err := g.world.kube.Create(ctx, kube.CRDs, g.typ.GroupResource().String(), kube.Fields{"spec": map[string]any{
			"group": g.typ.Group, "scope": "Namespaced", "versions": g.versions(),
			"names": map[string]any{"plural": g.typ.Resource, "singular": "gadget", "kind": g.typ.Kind, "listKind": g.typ.Kind + "List"},
		}})
		if err == nil || strings.Contains(err.Error(), "already exists") && !strings.Contains(err.Error(), "being deleted") {
			break
		}
		if !rest(ctx, 100*time.Millisecond) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
	_, _, err := g.list(ctx, "")
	return err
}

// rest waits; it returns false if ctx has ended.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// list lists the objects, or one of them by name. It retries until the API server answers.
func (g *gadgets) list(ctx context.Context, name string) (objects []unstructured.Unstructured, rv uint64, err error) {
	options := metav1.ListOptions{}
	if name != "" {
		options.FieldSelector = "metadata.name=" + name
	}
	for {
		objects, text, err := g.world.kube.In("").List(ctx, g.typ, options)
		if err == nil {
			return objects, number(text), nil
		}
		if !rest(ctx, 100*time.Millisecond) {
			return nil, 0, errors.Join(err, context.Cause(ctx))
		}
	}
}

// create chooses a new object, and returns a function that creates it. The caller holds mu until that has returned.
func (g *gadgets) create(ctx context.Context) func() error {
	g.next++
	name := fmt.Sprintf("g-%d", g.next)
	value, shown, stamp := gadgetValues[g.random.IntN(len(gadgetValues))], "yes", g.stamp(name)
	if g.random.IntN(5) == 0 {
		shown = "no"
	}
	namespace := g.namespaces[g.random.IntN(len(g.namespaces))]
	return func() error { _, err := g.made(ctx, namespace, name, value, shown, stamp); return err }
}

func (g *gadgets) stamp(name string) string { return fmt.Sprintf("<%s/%x>", name, g.random.Uint64()) }

// made creates an object. If the outcome is not known, it reads the object.
func (g *gadgets) made(ctx context.Context, namespace, name, value, shown, stamp string) (*unstructured.Unstructured, error) {
	asked := time.Now()
	by, client := g.world.who.next()
	for {
		o, err := client.In(namespace).Create(ctx, g.typ, name, kube.Fields{
			"metadata": map[string]any{"labels": map[string]any{gadgetLabel: value}, "annotations": map[string]any{shownNote: shown}},
			"spec":     map[string]any{gadgetLabel: value, "stamp": stamp},
		})
		if err == nil {
			g.enter(o, asked, by)
			return o, nil
		}
		found, _, err := g.list(ctx, name)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			g.enter(&found[0], asked, by)
			return &found[0], nil
		}
	}
}

// enter records what the API server answered to a user. It may be called concurrently.
func (g *gadgets) enter(o *unstructured.Unstructured, asked time.Time, by string) {
	g.recording.Lock()
	defer g.recording.Unlock()
	g.truth.wrote(o, asked, by)
	g.truth.ops++
}

// change returns a function that changes an object's stamp and, if value is not empty, its value.
func (g *gadgets) change(ctx context.Context, o *gadget, value string) func() error {
	now := o.states[len(o.states)-1]
	merge := fmt.Sprintf(`{"spec":{"stamp":%q}}`, g.stamp(now.name))
	if value != "" {
		merge = fmt.Sprintf(`{"metadata":{"labels":{%q:%q}},"spec":{%q:%q}}`, gadgetLabel, value, gadgetLabel, value)
	} else if g.random.IntN(3) == 0 {
		shown := "yes"
		if now.shown {
			shown = "no"
		}
		merge = fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, shownNote, shown)
	}
	return func() error {
		asked := time.Now()
		by, client := g.world.who.next()
		got, err := client.In(now.namespace).Patch(ctx, g.typ, now.name, merge)
		if err != nil {
			found, _, err := g.list(ctx, now.name)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return fmt.Errorf("%s/%s is gone, and nobody deleted it", now.namespace, now.name)
			}
			got = &found[0]
		}
		g.enter(got, asked, by)
		return nil
	}
}

// remove deletes an object.
func (g *gadgets) remove(ctx context.Context, o *gadget) error {
	now, asked := o.states[len(o.states)-1], time.Now()
	by, client := g.world.who.next()
	for {
		err := client.In(now.namespace).Delete(ctx, g.typ, now.name)
		found, rv, wrong := g.list(ctx, now.name)
		if wrong != nil {
			return errors.Join(err, wrong)
		}
		if len(found) == 0 {
			g.truth.deleted(o.uid, rv+1, asked, by)
			g.truth.ops++
			return nil
		}
	}
}

// locked calls do while there are no other writes.
func (g *gadgets) locked(do func() error) error {
	g.pause.RLock()
	defer g.pause.RUnlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	return do()
}

// run changes single objects, at most twenty per second, until the time until.
func (g *gadgets) run(ctx context.Context, until time.Time) error {
	for time.Now().Before(until) && rest(ctx, 50*time.Millisecond) {
		err := g.locked(func() error {
			alive := g.truth.free()
			draw := g.random.IntN(6)
			if len(alive) == 0 || draw == 0 {
				return g.create(ctx)()
			}
			o := alive[g.random.IntN(len(alive))]
			switch {
			case draw == 1:
				return g.remove(ctx, o)
			case draw < 4:
				return g.change(ctx, o, gadgetValues[g.random.IntN(len(gadgetValues))])()
			}
			return g.change(ctx, o, "")()
		})
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// relabel moves objects between values in bulk. Call it through locked.
func (g *gadgets) relabel(ctx context.Context, r *chance) error {
	alive := g.truth.free()
	from, to, draw := gadgetValues[r.IntN(len(gadgetValues))], gadgetValues[r.IntN(len(gadgetValues))], r.IntN(3)
	var moves []func() error
	for i, o := range alive {
		value := to
		switch now := o.states[len(o.states)-1].value; draw {
		case 0: // all objects of one value
			if now != from {
				continue
			}
		case 1: // all objects, each to a random value
			value = gadgetValues[r.IntN(len(gadgetValues))]
		default: // every other object
			if i%2 == 0 {
				continue
			}
		}
		moves = append(moves, g.change(ctx, o, value))
	}
	return g.each(ctx, len(moves), func(i int) func() error { return moves[i] })
}

// handOver moves all objects of one entry to another one. If objects cannot move between entries, it relabels at random. Call it through
// locked.
func (g *gadgets) handOver(ctx context.Context, r *chance, e edition) error {
	if !e.movable() {
		return g.relabel(ctx, r)
	}
	from := r.IntN(len(e.entries))
	to := (from + 1 + r.IntN(len(e.entries)-1)) % len(e.entries)
	value := e.entries[to].values[r.IntN(len(e.entries[to].values))]
	var moves []func() error
	for _, o := range g.truth.free() {
		if e.entries[from].takes(o.states[len(o.states)-1]) {
			moves = append(moves, g.change(ctx, o, value))
		}
	}
	return g.each(ctx, len(moves), func(i int) func() error { return moves[i] })
}

// forget changes the CRD, so that the API server loses the history of the type.
func (g *gadgets) forget(ctx context.Context) error {
	for {
		_, err := g.world.kube.Patch(ctx, kube.CRDs, g.typ.GroupResource().String(), canonical(map[string]any{"spec": map[string]any{"versions": g.versions()}}))
		if err == nil {
			return nil
		}
		if !rest(ctx, 100*time.Millisecond) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// remake removes the CRD with all objects, and creates it again with some objects.
func (g *gadgets) remake(ctx context.Context, r *chance) error {
	asked := time.Now()
	for err := g.world.kube.Uninstall(ctx, g.typ); err != nil && !apierrors.IsNotFound(err); err = g.world.kube.Uninstall(ctx, g.typ) {
		if !rest(ctx, 100*time.Millisecond) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
	if err := g.world.kube.AwaitUnserved(ctx, g.typ); err != nil {
		return err
	}
	r.wait(ctx, 1500*time.Millisecond)
	if err := g.install(ctx); err != nil {
		return err
	}
	left, rv, err := g.list(ctx, "")
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%d objects have outlived their CRD", len(left))
	}
	for _, o := range g.truth.alive() {
		g.truth.deleted(o.uid, rv+1, asked, nobody)
	}
	return g.each(ctx, 40, func(int) func() error { return g.create(ctx) })
}
