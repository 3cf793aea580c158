package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// planted is part of every Secret's value, and must never be on the bus.
const planted = "planted-secret-value"

// defaulted is the field that gets a default by an edit of the CRD.
const defaulted = "defaulted"

// workload changes objects like several users. No two users change the same object.
type workload struct {
	kube   *kube.Client // which reads
	who    *identities  // who write
	ledger *ledger
	audit  auditForm
	types  []target
	seed   uint64
	fresh  bool         // half of the objects get a name that no other object had before
	pause  sync.RWMutex // held for writing while nobody may write
	users  []*writer
}

const (
	writers = 4
	names   = 7 // number of names per writer and type
)

// run makes about ops operations in about the time d. It may be called again after it has returned.
func (w *workload) run(ctx context.Context, ops int, d time.Duration) error {
	g, ctx := errgroup.WithContext(ctx)
	w.pause.Lock()
	for i := range writers {
		if len(w.users) == i {
			w.users = append(w.users, &writer{
				workload: w, number: i, random: rand.New(rand.NewPCG(w.seed, uint64(100+i))), others: rand.New(rand.NewPCG(w.seed, uint64(200+i))),
				holds: map[string]*unstructured.Unstructured{},
			})
		}
		one := w.users[i]
		g.Go(func() error { return one.run(ctx, ops/writers, d) })
	}
	w.pause.Unlock()
	return g.Wait()
}

// backup saves the knowledge of all writers, and returns a function that restores it. The caller
// holds pause for both calls.
func (w *workload) backup() (restored func(time.Time)) {
	saved := w.ledger.backup()
	holds := make([]map[string]*unstructured.Unstructured, len(w.users))
	for i, one := range w.users {
		holds[i] = maps.Clone(one.holds)
	}
	return func(back time.Time) {
		w.ledger.restored(saved, back)
		for i, one := range w.users {
			one.holds, one.unbound = holds[i], nil
		}
	}
}

// writer is one user.
type writer struct {
	*workload
	number  int
	random  *rand.Rand
	holds   map[string]*unstructured.Unstructured // by resource/name: the object in the API server's last answer
	unbound []string                              // UIDs of deletions whose version has no upper bound yet
	step    int
	others  *rand.Rand // chooses requests that change nothing
}

func (w *writer) run(ctx context.Context, ops int, d time.Duration) error {
	begun := time.Now()
	for w.step = range ops {
		if err := w.op(ctx); err != nil {
			return err
		}
		if w.random.IntN(6) > 0 {
			continue // no wait after most operations, so that batches have more than one event
		}
		due := begun.Add(d * time.Duration(w.step+1) / time.Duration(ops))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// op makes one operation. If its outcome is not known, op reads the object until it is.
func (w *writer) op(ctx context.Context) error {
	w.pause.RLock()
	defer w.pause.RUnlock()
	t := w.types[w.random.IntN(len(w.types))]
	name := fmt.Sprintf("o-%d-%d", w.number, w.random.IntN(names))
	key := t.Resource + "/" + name
	had := w.holds[key]
	if had != nil {
		name = had.GetName()
	} else if w.fresh && w.random.IntN(2) == 0 {
		name = fmt.Sprintf("%s-%d", name, w.step)
	}
	by, client := w.who.next()
	var got *unstructured.Unstructured
	var err error
	switch {
	case had == nil:
		got, err = client.Create(ctx, t.Type, name, w.fields(t, name))
	case w.random.IntN(4) == 0:
		err = client.Delete(ctx, t.Type, name)
	default:
		got, err = client.Patch(ctx, t.Type, name, w.patch(t, name))
	}
	if err != nil {
		if ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if got, err = find(ctx, w.kube, t, name); err != nil {
			return err
		}
	}
	if had != nil && (got == nil || got.GetUID() != had.GetUID()) {
		w.ledger.deleted(string(had.GetUID()), by)
		w.unbound = append(w.unbound, string(had.GetUID()))
	}
	w.holds[key] = got
	if got == nil {
		return nil
	}
	before := w.ledger.wrote(t, got, by)
	if had == nil || got.GetResourceVersion() != had.GetResourceVersion() {
		for _, uid := range w.unbound {
			w.ledger.bound(uid, before)
		}
		w.unbound = nil
	}
	return w.distract(ctx, t, key)
}

// distract sometimes makes a request of another user that changes nothing, about the object that was written. Its record must not be taken
// for that of a change. It does nothing if the bridge has no audit input.
func (w *writer) distract(ctx context.Context, t target, key string) error {
	if w.audit.input == "" {
		return nil
	}
	r := w.others
	name := w.holds[key].GetName()
	if w.audit.denied && r.IntN(8) == 0 {
		if err := w.who.tryRefused(ctx, t, name); err != nil {
			return err
		}
	}
	if r.IntN(3) > 0 {
		return nil
	}
	by, client := w.who.next()
	var got *unstructured.Unstructured
	var err error
	switch r.IntN(3) {
	case 0:
		got, err = client.Patch(ctx, t.Type, name, `{}`)
	case 1:
		got, err = client.Patch(ctx, t.Type, name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, watchedLabel, w.holds[key].GetLabels()[watchedLabel]))
	default:
		if got, err = client.Create(ctx, t.Type, name, body(t, "exists")); apierrors.IsAlreadyExists(err) {
			return nil
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if got, err = find(ctx, w.kube, t, name); err != nil {
			return err
		}
	}
	if got != nil { // it has another version if the CRD has gained a default: then the request has written that
		w.ledger.wrote(t, got, by)
		w.holds[key] = got
	}
	return nil
}

// find returns the present object; nil if it does not exist.
func find(ctx context.Context, client *kube.Client, t target, name string) (*unstructured.Unstructured, error) {
	for {
		objects, _, err := client.List(ctx, t.Type, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err == nil {
			for i := range objects {
				return &objects[i], nil
			}
			return nil, nil
		}
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return nil, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		}
	}
}

// stamp returns a unique text, which is sometimes long.
func (w *writer) stamp(name string) string {
	s := fmt.Sprintf("<%s/%d/%x>", name, w.step, w.random.Uint64())
	if w.random.IntN(5) == 0 {
		s = strings.Repeat(s, 1+w.random.IntN(1000))
	}
	return s
}

func (w *writer) watched() string {
	if w.random.IntN(3) == 0 {
		return "no"
	}
	return "yes"
}

func (w *writer) fields(t target, name string) kube.Fields {
	f := body(t, w.stamp(name))
	f["metadata"] = map[string]any{
		"labels":      map[string]any{watchedLabel: w.watched()},
		"annotations": map[string]any{"said": "\"<&>\u2028é" + name, shownNote: w.watched(), noiseNote: "none"},
	}
	return f
}

// body returns the fields of an object of the type, with the stamp.
func body(t target, stamp string) kube.Fields {
	switch t.Type {
	case kube.ConfigMaps:
		return kube.Fields{"data": map[string]any{"stamp": stamp}}
	case kube.Secrets:
		return kube.Fields{"stringData": map[string]any{"value": planted + stamp}}
	case kube.Deployments:
		labels := map[string]any{"app": "sample"}
		return kube.Fields{"spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels, "annotations": map[string]any{"stamp": stamp}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.org/main:1"}}},
			},
		}}
	default:
		return kube.Fields{"spec": map[string]any{"stamp": stamp, "number": int64(len(stamp))}}
	}
}

func (w *writer) patch(t target, name string) string {
	change := map[string]any{}
	if w.random.IntN(5) == 0 {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, noiseNote, w.step)
	}
	if w.random.IntN(3) > 0 {
		for k, v := range body(t, w.stamp(name)) {
			change[k] = v
		}
	}
	if len(change) == 0 || w.random.IntN(2) == 0 {
		change["metadata"] = map[string]any{
			"labels":      map[string]any{watchedLabel: w.watched()},
			"annotations": map[string]any{"step": fmt.Sprint(w.step), shownNote: w.watched()},
		}
	}
	text, _ := json.Marshal(change) // no error: only strings and numbers
	return string(text)
}
