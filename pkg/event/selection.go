package event

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Selection says what a collection has of its resource. Two of them are equal if == says so. The zero value means every object as it is, without
// metadata.managedFields, and every change of it. Zero fields are left out of the JSON.
type Selection struct {
	Labels string `json:"labels,omitzero"` // label selector of the objects
	// Fields is the field selector of the objects. Excluded namespaces are terms of it, such as metadata.namespace!=kube-system.
	Fields        string `json:"fields,omitzero"`
	Types         Types  `json:"types,omitzero"`         // of the object events that are published
	Filtered      bool   `json:"filtered,omitzero"`      // a filter leaves objects out
	Ignores       bool   `json:"ignores,omitzero"`       // changes of some fields alone are not published, so these fields can be older
	MetadataOnly  bool   `json:"metadataonly,omitzero"`  // objects have apiVersion, kind and metadata only
	Dropped       bool   `json:"dropped,omitzero"`       // rules remove fields, other than those of StatusDropped and metadata.managedFields
	StatusDropped bool   `json:"statusdropped,omitzero"` // rules remove status, or fields of it
	Redacted      bool   `json:"redacted,omitzero"`      // rules replace values
}

// Notes says in sentences what is left out of the objects of a collection, or of several, and what is changed in them. of is their name.
func (s *Selection) Notes(of string) (notes []string) {
	for _, n := range []struct {
		applies bool
		text    string
	}{
		{s.Filtered, "a filter leaves objects of " + of + " out"},
		{s.Dropped, "rules take values out of objects of " + of},
		{s.StatusDropped, "rules take the status out of objects of " + of + ", or a part of it"},
		{s.Redacted, "values in objects of " + of + " are redacted"},
		{s.Labels != "", "objects of " + of + " are selected by the labels " + s.Labels},
		{s.Fields != "", "objects of " + of + " are selected by the fields " + s.Fields},
		{s.MetadataOnly, "objects of " + of + " have metadata only"},
		{s.Types != 0, "events of " + of + " are not all published: " + strings.Join(s.Types.LeftOut(), " and ") + " are left out"},
		{s.Ignores, "changes of objects of " + of + " are not published if ignore covers them: these fields can be older"},
	} {
		if n.applies {
			notes = append(notes, n.text)
		}
	}
	return notes
}

// Types is a set of the types Added, Modified and Deleted. Present goes with Added. The zero value has all of them. In JSON it is the list of their
// names.
type Types uint8 // the bits of the types that are not in the set

// Without returns the set without a type.
func (t Types) Without(typ Type) Types { return t | 1<<typ }

// Has reports whether a type is in the set.
func (t Types) Has(typ Type) bool {
	if typ == Present {
		typ = Added
	}
	return t&(1<<typ) == 0
}

// LeftOut returns the names of the types that are not in the set.
func (t Types) LeftOut() (names []string) { return t.names(false) }

func (t Types) names(in bool) []string {
	names := []string{}
	for typ := Added; typ <= Deleted; typ++ {
		if t.Has(typ) == in {
			names = append(names, typ.String())
		}
	}
	return names
}

// MarshalJSON implements json.Marshaler.
func (t Types) MarshalJSON() ([]byte, error) { return json.Marshal(t.names(true)) }

// UnmarshalJSON implements json.Unmarshaler. Names of other types count for nothing.
func (t *Types) UnmarshalJSON(text []byte) error {
	var names []string
	if err := json.Unmarshal(text, &names); err != nil {
		return fmt.Errorf("types: %w", err)
	}
	if names == nil { // null
		return nil
	}
	*t = Types(0).Without(Added).Without(Modified).Without(Deleted)
	for typ := Added; typ <= Deleted; typ++ {
		for _, name := range names {
			if name == typ.String() {
				*t &^= 1 << typ
			}
		}
	}
	return nil
}
