package source

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Resource is a resource as the server serves it.
type Resource struct {
	Group      string
	Version    string
	Name       string // plural
	Kind       string
	Namespaced bool
}

// APIVersion is "v1" or "apps/v1".
func (r Resource) APIVersion() string {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}.String()
}

// String is "deployments.v1.apps".
func (r Resource) String() string {
	return strings.TrimSuffix(r.Name+"."+r.Version+"."+r.Group, ".")
}

// Target is one collection at the version it is read in.
type Target struct {
	Collection event.Collection
	Resource   Resource
}

// path is where the server lists and watches the target.
func (t Target) path() string {
	p := "/api/" + t.Resource.Version
	if t.Resource.Group != "" {
		p = "/apis/" + t.Resource.Group + "/" + t.Resource.Version
	}
	if t.Collection.Namespace != "" {
		p += "/namespaces/" + t.Collection.Namespace
	}
	return p + "/" + t.Resource.Name
}
