package history

import (
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Name is the namespace and name of an object, as events have them.
type Name struct{ Namespace, Name string }

// ParseName reads "namespace/name", or "name".
func ParseName(s string) Name {
	namespace, name, found := strings.Cut(s, "/")
	if !found {
		namespace, name = "", s
	}
	return NameOf(namespace, name)
}

// NameOf returns the name that events have for an object of the API server: long names are shortened.
func NameOf(namespace, name string) Name {
	return Name{event.BoundName(namespace), event.BoundName(name)}
}

// String returns the form that ParseName reads.
func (n Name) String() string { return nameOf(n.Namespace, n.Name) }
