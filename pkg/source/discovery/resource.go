package discovery

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a resource as the server serves it.
type Resource struct {
	Group      string
	Version    string
	Name       string // plural
	Kind       string
	Namespaced bool
}

// APIVersion returns, for example, "v1" or "apps/v1".
func (r Resource) APIVersion() string {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}.String()
}

// GroupResource returns the resource without its version.
func (r Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Name}
}

// String returns, for example, "deployments.v1.apps".
func (r Resource) String() string {
	return strings.TrimSuffix(r.Name+"."+r.Version+"."+r.Group, ".")
}
