package mirror

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// unpublished returns the types of events that a collection does not publish, if they say which objects exist; else "".
func unpublished(s event.Selection) string {
	if s.Types.Has(event.Added) && s.Types.Has(event.Deleted) {
		return ""
	}
	return strings.Join(s.Types.LeftOut(), " and ")
}

// within reports whether the complete states of an era have the span's collection.
func (x *Span) within(era uint64) bool { return x.Since <= era && (x.Until == 0 || era < x.Until) }

// Covers reports whether the complete states of an era have a namespace's objects: by a collection of it or of all
// namespaces, whose field selector leaves it in.
func (r *Resource) Covers(namespace string, era uint64) bool {
	return slices.ContainsFunc(r.spans, func(x Span) bool {
		of := event.ParseCollection(x.Collection).Namespace
		return x.within(era) && (of == "" || of == namespace) && admits(x.Selection.Fields, namespace)
	})
}

// Selections returns what the collections have of the resource in the complete states of an era, by collection.
func (r *Resource) Selections(era uint64) map[string]event.Selection {
	all := map[string]event.Selection{}
	for _, x := range r.spans {
		if x.within(era) {
			all[x.Collection] = x.Selection
		}
	}
	return all
}

// namespaceField is the field of field selectors that selects namespaces.
const namespaceField = "metadata.namespace"

// admits reports whether a field selector leaves a namespace in.
func admits(selector, namespace string) bool {
	terms, err := fields.ParseSelector(selector)
	if err != nil { // no bridge wrote it
		return false
	}
	return !slices.ContainsFunc(terms.Requirements(), func(term fields.Requirement) bool {
		return term.Field == namespaceField && (term.Operator == selection.NotEquals) == (term.Value == namespace)
	})
}

// Notes returns sentences about what the complete states of an era leave out or change, for a client that may see some
// namespaces.
func (r *Resource) Notes(era uint64, sees func(namespace string) bool) (notes []string) {
	for _, x := range r.spans {
		c := event.ParseCollection(x.Collection)
		if !x.within(era) || c.Namespace != "" && !sees(c.Namespace) {
			continue
		}
		confined := c.Namespace != ""
		c.Namespace = "" // one text for all namespaces of an entry
		if confined {
			notes = append(notes, "objects of "+c.ID()+" are those of some namespaces")
		}
		x.Selection.Fields = shownFields(x.Selection.Fields, sees)
		notes = append(notes, x.Selection.Notes(c.ID())...)
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(notes, func(text string) bool {
		again := seen[text]
		seen[text] = true
		return again
	})
}

// shownFields returns a field selector without terms about namespaces that the client may not see.
func shownFields(selector string, sees func(namespace string) bool) string {
	terms, err := fields.ParseSelector(selector)
	if err != nil {
		return ""
	}
	terms, _ = terms.Transform(func(field, value string) (string, string, error) {
		if field == namespaceField && !sees(value) {
			return "", "", nil // drops the term
		}
		return field, value, nil
	})
	return terms.String()
}
