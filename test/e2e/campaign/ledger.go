package campaign

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// ledger records what the API server acknowledged.
type ledger struct {
	mu      sync.Mutex
	objects map[string]*object // by UID
	ops     int

	// former is set after etcd was restored from a backup: the objects that were acknowledged before, some of which are undone. A watch may
	// still report them until the cluster is back.
	former map[string]*object
	back   time.Time
	saved  uint64 // the last version that the backup has
}

// object has the versions of one object.
type object struct {
	typ      target
	name     string // namespace/name
	uid      string
	versions []version // ascending
	deleted  bool
	by       string // who has deleted it; "": not known
	// The API server does not acknowledge the version of a deletion. It lies between these two, both exclusive.
	after, before uint64

	gone   bool // deleted before the backup that was restored
	undone bool // created after the backup that was restored
}

// version is one acknowledged state.
type version struct {
	rv   uint64
	body map[string]any // the fields that can be compared: see [essence]
	in   bool           // the collection selects the object in this state
	old  bool           // from before the backup that was restored
	at   time.Time      // when the API server had answered
	by   string         // the user whose request led to it; "": not known
}

func newLedger() *ledger { return &ledger{objects: map[string]*object{}} }

// wrote records the server's answer to a creation or an update of a user. A write that changes nothing has no new version.
func (l *ledger) wrote(t target, u *unstructured.Unstructured, by string) uint64 {
	at, body := time.Now(), essence(t, clone(u.Object))
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
		o.versions = append(o.versions, version{rv: rv, body: body, in: t.selects(u), at: at, by: by})
	}
	return rv
}

// deleted records a deletion of a user that the server has acknowledged.
func (l *ledger) deleted(uid, by string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops++
	o := l.objects[uid]
	o.deleted, o.after, o.before, o.by = true, o.versions[len(o.versions)-1].rv, math.MaxUint64, by
}

// bound records that a deletion happened before rv.
func (l *ledger) bound(uid string, rv uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.objects[uid]; o != nil && o.deleted {
		o.before = min(o.before, rv)
	}
}

// backup returns a copy at the time of a backup of etcd. There must be no writes during it.
func (l *ledger) backup() map[string]*object {
	l.mu.Lock()
	defer l.mu.Unlock()
	saved := map[string]*object{}
	for uid, o := range l.objects {
		c := *o
		c.versions, c.gone = slices.Clone(o.versions), o.deleted
		for i := range c.versions {
			c.versions[i].old = true
		}
		saved[uid] = &c
	}
	return saved
}

// restored records that the backup was restored: everything that was acknowledged after it is undone.
func (l *ledger) restored(saved map[string]*object, back time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, o := range l.objects {
		s := saved[uid]
		if o.undone = s == nil; o.undone {
			continue
		}
		o.gone = s.gone
		for i, v := range s.versions {
			o.versions[i].old = true
			l.saved = max(l.saved, v.rv)
		}
	}
	l.former, l.objects, l.back = l.objects, saved, back
}

// in returns an object in the cluster's first history or, with era 1, in the one that a restore began, where it also returns objects that the
// restore has undone.
func (l *ledger) in(era int, uid string) *object {
	if l.former == nil || era > 0 && l.objects[uid] != nil {
		return l.objects[uid]
	}
	if o := l.former[uid]; era == 0 || o != nil && o.undone {
		return o
	}
	return nil
}

// eras returns the histories, the first one first.
func (l *ledger) eras() []map[string]*object {
	if l.former == nil {
		return []map[string]*object{l.objects}
	}
	return []map[string]*object{l.former, l.objects}
}

// essence removes from a body the fields that may differ between the API server's answer and the bus: fields that the bridge
// leaves out, the version in which a custom object is served, a default that the CRD gained (a change without a version), and
// a Secret's values and annotations, which are hashed.
func essence(t target, body map[string]any) map[string]any {
	u := unstructured.Unstructured{Object: body}
	u.SetManagedFields(nil)
	if t.Group != "" && t.Group != "apps" {
		unstructured.RemoveNestedField(body, "spec", defaulted)
		delete(body, "apiVersion")
	}
	if t.Type == kube.Secrets {
		metadata, _ := body["metadata"].(map[string]any)
		for _, of := range []any{body["data"], metadata["annotations"]} {
			values, _ := of.(map[string]any)
			for k := range values {
				values[k] = "hidden"
			}
		}
	}
	return body
}

// clone copies a body. Its numbers have the types that they have in messages from the bus.
func clone(body map[string]any) map[string]any {
	text, _ := json.Marshal(body) // no error: the body was decoded from JSON
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
		s += fmt.Sprintf(" %d by %s", v.rv, v.by)
		if !v.in {
			s += "(out)"
		}
		if v.old {
			s += "(saved)"
		}
	}
	if o.undone {
		s += " undone"
	}
	if o.deleted {
		s += fmt.Sprintf(" deleted by %s after %d", o.by, o.after)
		if o.before < math.MaxUint64 {
			s += fmt.Sprintf(" and before %d", o.before)
		}
	}
	return s
}

// find returns the version rv of the object.
func (o *object) find(rv uint64) (version, bool) {
	for _, v := range o.versions {
		if v.rv == rv {
			return v, true
		}
	}
	return version{}, false
}

// changed reports whether the resource has changed, or may have, after one version and up to another.
func (l *ledger) changed(resource string, after, upTo uint64) bool {
	for _, o := range l.objects {
		if o.typ.ResourceID() != resource {
			continue
		}
		if o.deleted && o.after < upTo && after+1 < o.before {
			return true
		}
		for _, v := range o.versions {
			if after < v.rv && v.rv <= upTo {
				return true
			}
		}
	}
	return false
}
