package campaign

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// watchedLabel is the label that collections with a selector select by, with the value "yes".
const watchedLabel = "watched"

// ledger is what the API server acknowledged.
type ledger struct {
	mu      sync.Mutex
	objects map[string]*object // by UID
	ops     int
}

// object is one object's life.
type object struct {
	typ      target
	name     string // namespace/name
	uid      string
	versions []version // ascending
	deleted  bool
	// A deletion's own version is not acknowledged: it lies between these two, both exclusive.
	after, before uint64
}

// version is one acknowledged state.
type version struct {
	rv   uint64
	body map[string]any // comparable
	in   bool           // what the collection selects
}

// target is a type and how it is watched.
type target struct {
	kube.Type
	selector bool // only what has the label
}

func newLedger() *ledger { return &ledger{objects: map[string]*object{}} }

// wrote enters what the server answered to a creation or an update. A write that changes nothing has no new version.
func (l *ledger) wrote(t target, u *unstructured.Unstructured) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops++
	uid, rv := string(u.GetUID()), number(u.GetResourceVersion())
	o := l.objects[uid]
	if o == nil {
		o = &object{typ: t, name: u.GetNamespace() + "/" + u.GetName(), uid: uid}
		l.objects[uid] = o
	}
	if !slices.ContainsFunc(o.versions, func(v version) bool { return v.rv == rv }) {
		o.versions = append(o.versions, version{rv, essence(t, clone(u.Object)), !t.selector || u.GetLabels()[watchedLabel] == "yes"})
	}
	return rv
}

// deleted enters a deletion that the server has acknowledged.
func (l *ledger) deleted(uid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops++
	o := l.objects[uid]
	o.deleted, o.after, o.before = true, o.versions[len(o.versions)-1].rv, math.MaxUint64
}

// bound says that a deletion came before rv.
func (l *ledger) bound(uid string, rv uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.objects[uid]; o != nil && o.deleted {
		o.before = min(o.before, rv)
	}
}

// essence takes out of a body what may differ between what a writer is answered and what the bus says: what the bridge
// leaves out, the version that a custom object is served in, a default that the CRD gained (a change without a version), and
// a Secret's values, which are hashed.
func essence(t target, body map[string]any) map[string]any {
	u := unstructured.Unstructured{Object: body}
	u.SetManagedFields(nil)
	if t.Group != "" && t.Group != "apps" {
		unstructured.RemoveNestedField(body, "spec", defaulted)
		delete(body, "apiVersion")
	}
	if t.Type == kube.Secrets {
		data, _ := body["data"].(map[string]any)
		for k := range data {
			data[k] = "hidden"
		}
	}
	return body
}

// clone decodes numbers as the bus's reader does.
func clone(body map[string]any) map[string]any {
	text, _ := json.Marshal(body) // came from JSON
	var out map[string]any
	_ = json.Unmarshal(text, &out)
	return out
}

func canonical(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func (o *object) String() string {
	s := fmt.Sprintf("%s %s (%s):", o.typ.ResourceID(), o.name, o.uid)
	for _, v := range o.versions {
		s += fmt.Sprintf(" %d", v.rv)
		if !v.in {
			s += "(out)"
		}
	}
	if o.deleted {
		s += fmt.Sprintf(" deleted after %d", o.after)
		if o.before < math.MaxUint64 {
			s += fmt.Sprintf(" and before %d", o.before)
		}
	}
	return s
}

// find is the version rv of the object.
func (o *object) find(rv uint64) (version, bool) {
	for _, v := range o.versions {
		if v.rv == rv {
			return v, true
		}
	}
	return version{}, false
}

// ends are the versions at which it left its selection.
func (o *object) leaves(rv uint64) bool {
	for i, v := range o.versions {
		if v.rv == rv {
			return i > 0 && o.versions[i-1].in && !v.in
		}
	}
	return false
}
