package source

import (
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// Resource is a resource as the server serves it.
type Resource = discovery.Resource

// Target is one collection with the version in which it is read.
type Target struct {
	Collection event.Collection
	Resource   Resource
}

// path returns the path of the target's lists and watches.
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
