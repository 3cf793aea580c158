package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	operator "k8s.io/apimachinery/pkg/selection"

	"github.com/kubebridge/kubebridge/internal/core/selectable"
	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// knownFields returns the fields, by label, that selectors know of a resource, besides metadata.name and .namespace.
func (k *kind) knownFields() map[string]selectable.Field {
	out := selectable.Of(k.resource.ID.Name)
	for _, path := range k.fields {
		label := strings.TrimPrefix(path, ".")
		out[label] = selectable.Field{Paths: []string{label}}
	}
	return out
}

// find looks up the fields that the field selector names. It is an error if the resource lacks one.
func (o *options) find(k *kind) error {
	if o.selector == nil {
		return nil
	}
	var known map[string]selectable.Field
	for _, r := range o.selector.Requirements() {
		if r.Field == "metadata.name" || r.Field == "metadata.namespace" {
			continue
		}
		if known == nil {
			known = k.knownFields()
		}
		f, ok := known[r.Field]
		if !ok {
			labels := append(slices.Sorted(maps.Keys(known)), "metadata.name", "metadata.namespace")
			return apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s: fields of %s that bridge serve knows are %s",
				r.Field, k.groupResource(), strings.Join(labels, ", ")))
		}
		if o.fields == nil {
			o.fields = map[string]selectable.Field{}
		}
		o.fields[r.Field] = f
	}
	return nil
}

// readIn notes what the collections of the resource have in the era that is read.
func (o *options) readIn(r *mirror.Resource, era uint64) {
	if o.fields != nil {
		o.selections = r.Selections(era)
	}
}

func (o *options) selectsFields(x *store.Object) selection {
	if o.selector == nil {
		return selected
	}
	result := selected
	for _, r := range o.selector.Requirements() {
		value, known := o.field(x, r.Field)
		wanted := r.Value
		if x.Extent != store.Whole {
			wanted = event.BoundName(wanted)
		}
		switch {
		case !known:
			result = undecided
		case (value == wanted) == (r.Operator == operator.NotEquals):
			return notSelected
		}
	}
	return result
}

// field returns the value of a field for field selectors. known is false if the bus does not have this part of the
// object.
func (o *options) field(x *store.Object, label string) (value string, known bool) {
	switch label {
	case "metadata.name":
		return x.Name.Name, true
	case "metadata.namespace":
		return x.Namespace, true
	}
	f := o.fields[label]
	if x.Extent != store.Whole {
		if value, known = x.Fields[label]; !known || value != "" {
			return value, known
		}
	} else {
		for _, path := range f.Paths {
			if value := selectable.Value(x.Body, path); value != "" {
				return value, true
			}
		}
	}
	return f.None, !lacks(o.selections[x.Collection], f)
}

// lacks reports whether a collection's objects lack a field by metadataOnly, or perhaps by rules about the status.
// Other fields that rules remove are not on the bus: docs/serve.md, "Selectors and pages".
func lacks(s event.Selection, f selectable.Field) bool {
	return s.MetadataOnly || s.StatusDropped && slices.ContainsFunc(f.Paths, func(path string) bool { return strings.HasPrefix(path, "status.") })
}
