package attribution

import (
	"iter"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// Scope is what a sink publishes of the API server, by the IDs of collections.
type Scope struct {
	Read    map[string]source.Target // collections that are read
	Unnamed []string                 // collections in the checkpoint that a plan may name later
}

// all returns all collections.
func (s *Scope) all() iter.Seq2[string, event.Collection] {
	return func(yield func(string, event.Collection) bool) {
		for id := range s.Read {
			if !yield(id, s.Read[id].Collection) {
				return
			}
		}
		for _, id := range s.Unnamed {
			if !yield(id, event.ParseCollection(id)) {
				return
			}
		}
	}
}

// overlapping returns the resources of which several collections can have the same object, as far as their namespaces say.
func (s *Scope) overlapping() map[join.Resource]bool {
	found, namespaces := map[join.Resource]bool{}, map[join.Resource]map[string]bool{}
	for _, c := range s.all() {
		r := attribute.ResourceOf(&c)
		others := namespaces[r]
		if others == nil {
			others = map[string]bool{}
			namespaces[r] = others
		}
		if others[c.Namespace] || others[""] || c.Namespace == "" && len(others) > 0 {
			found[r] = true
		}
		others[c.Namespace] = true
	}
	return found
}

// publisher returns the collection whose events the event of a refused request is among: the first one, in the order of the IDs,
// that can have what the request was for. "": none can.
func (s *Scope) publisher(r *audit.Record) (first string) {
	for id, c := range s.all() {
		if (first == "" || id < first) && concerns(&c, r) {
			first = id
		}
	}
	return first
}

// concerns reports whether a request was for an object that a collection can have, or for several that it can be among. Labels of
// the object are not known, nor are other fields than its namespace and its name.
func concerns(c *event.Collection, r *audit.Record) bool {
	if group, resource := audit.ResourceOf(c.Group, c.Resource); r.Group != group || r.Resource != resource {
		return false
	}
	if c.Namespace != "" && r.Namespace != "" && c.Namespace != r.Namespace {
		return false
	}
	selector, err := fields.ParseSelector(c.FieldSelector)
	if err != nil {
		return true // the API server refuses it, so the collection is never read
	}
	for _, of := range selector.Requirements() {
		has := map[string]string{"metadata.namespace": r.Namespace, "metadata.name": r.Name}[of.Field]
		if has != "" && (has == of.Value) == (of.Operator == selection.NotEquals) {
			return false
		}
	}
	return true
}

// storages are the storages of resources whose collections were configured, or are in the checkpoint. Any goroutine uses them.
type storages struct {
	mu sync.Mutex
	of map[join.Resource]string
}

// set sets the storage of a collection's resource.
func (s *storages) set(c *event.Collection, storage string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[attribute.ResourceOf(c)] = storage
}

// setIfUnknown is set, unless the storage is known.
func (s *storages) setIfUnknown(c *event.Collection, storage string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := attribute.ResourceOf(c)
	if _, known := s.of[r]; !known {
		s.of[r] = storage
	}
}

// find returns the storage of a resource. The resources of which no collection is configured share one that has none.
func (s *storages) find(r join.Resource) (storage string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if storage, known = s.of[r]; known {
		return storage, true
	}
	return "none", false
}

// stored returns the resource of a collection with its storage; false: that is not known.
func (s *storages) stored(c *event.Collection) (r attribute.Resource, known bool) {
	r.Resource = attribute.ResourceOf(c)
	r.Storage, known = s.find(r.Resource)
	return r, known
}

// idle returns the resources of which a scope has no collection any more.
func (s *storages) idle(scope *Scope) (list []attribute.Resource) {
	used := map[join.Resource]bool{}
	for _, c := range scope.all() {
		used[attribute.ResourceOf(&c)] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, storage := range s.of {
		if !used[r] {
			list = append(list, attribute.Resource{Storage: storage, Resource: r})
		}
	}
	return list
}

// passed returns for each resource up to which resourceVersion all its collections are published, at least. A collection that is
// absent publishes nothing, so it counts as one that has published all up to the last floor: changes from before the reader has
// noticed that it exists may have no answer.
func (s *storages) passed(scope *Scope, state func(collection string) loop.State, floors map[attribute.Resource]floor) map[attribute.Resource]string {
	lowest := map[attribute.Resource]string{}
	for id, t := range scope.Read {
		r, known := s.stored(&t.Collection)
		if !known {
			continue
		}
		now := state(id)
		position := now.Position
		if now.Absent { // its objects come by a list, which says nothing about requests
			position = floors[r].version
		}
		if other, more := lowest[r]; more {
			position = lowerPosition(position, other)
		}
		lowest[r] = position
	}
	for _, id := range scope.Unnamed {
		c := event.ParseCollection(id)
		if r, known := s.stored(&c); known {
			delete(lowest, r)
		}
	}
	for r, position := range lowest {
		if position == "" {
			delete(lowest, r)
		}
	}
	return lowest
}

// lowerPosition returns the lower one of two positions; "" if one is not known, or if they cannot be compared.
func lowerPosition(a, b string) string {
	switch {
	case a == b, event.Older(a, b):
		return a
	case event.Older(b, a):
		return b
	}
	return ""
}
