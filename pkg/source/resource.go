package source

import (
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// Resource is a resource as the server serves it.
type Resource = discovery.Resource

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
