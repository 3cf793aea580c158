package kube

import (
	"cmp"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Ledger records what the API server acknowledged, by UID.
type Ledger struct {
	mu      sync.Mutex
	objects map[string]*Object
}

// Object records the versions of one object.
type Object struct {
	Type      Type
	Namespace string
	Name      string
	UID       string
	RVs       []string // resourceVersions of its creation and of every update, ascending
	Deleted   bool
}

// Key returns the object's name as in subjects of events.
func (o *Object) Key() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// LastRV returns the resourceVersion of the last write.
func (o *Object) LastRV() string { return o.RVs[len(o.RVs)-1] }

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{objects: map[string]*Object{}} }

// Wrote records the server's answer to a creation or an update.
func (l *Ledger) Wrote(t Type, u *unstructured.Unstructured) {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid := string(u.GetUID())
	o := l.objects[uid]
	if o == nil {
		o = &Object{Type: t, Namespace: u.GetNamespace(), Name: u.GetName(), UID: uid}
		l.objects[uid] = o
	}
	if rv := u.GetResourceVersion(); !slices.Contains(o.RVs, rv) { // a write that changes nothing has no new one
		o.RVs = append(o.RVs, rv)
		slices.SortFunc(o.RVs, CompareRV) // acknowledgements of concurrent writes may overtake one another
	}
}

// Deleted records a deletion that the server has acknowledged.
func (l *Ledger) Deleted(uid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.objects[uid]; o != nil {
		o.Deleted = true
	}
}

// Objects returns copies of all objects of the given types (none given: of all types), in order of creation.
func (l *Ledger) Objects(types ...Type) []Object {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Object
	for _, o := range l.objects {
		if len(types) == 0 || slices.Contains(types, o.Type) {
			c := *o
			c.RVs = slices.Clone(o.RVs)
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b Object) int { return CompareRV(a.RVs[0], b.RVs[0]) })
	return all
}

// CompareRV orders resourceVersions, which are decimal numbers here. Other texts count as 0.
func CompareRV(a, b string) int { return cmp.Compare(number(a), number(b)) }

func number(rv string) uint64 {
	n, _ := strconv.ParseUint(rv, 10, 64)
	return n
}
