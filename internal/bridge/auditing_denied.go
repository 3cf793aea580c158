package bridge

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// publisher returns the collection whose events the event of a refused request is among: the first one, in the order of the IDs, that can have
// what the request was for. "": none can.
func (p *Pipeline) publisher(r *audit.Record) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []string
	for id, t := range p.targets {
		if concerns(&t.Collection, r) {
			found = append(found, id)
		}
	}
	for id := range p.unnamed {
		if c := event.ParseCollection(id); concerns(&c, r) {
			found = append(found, id)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found)
}

// concerns reports whether a request was for an object that a collection can have, or for several that it can be among. Labels of the object
// are not known, nor are other fields than its namespace and its name.
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
