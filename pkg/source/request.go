package source

import "k8s.io/client-go/rest"

// What is asked for when only metadata is wanted (KEP-2832 and its predecessors:
// content negotiation on "as"). A server that does not know it would send whole
// objects, which the second choice allows.
const (
	listForm  = "PartialObjectMetadataList"
	watchForm = "PartialObjectMetadata"
)

// request is the part that all requests for the collection's objects share. form
// is what a metadata-only collection asks for.
func (c *Collection) request(form string) *rest.Request {
	r := c.client.rest.Get().AbsPath(c.target.path()).MaxRetries(0)
	if c.target.Collection.MetadataOnly {
		r = r.SetHeader("Accept", "application/json;as="+form+";v=v1;g=meta.k8s.io,application/json")
	}
	if s := c.target.Collection.LabelSelector; s != "" {
		r = r.Param("labelSelector", s)
	}
	if s := c.target.Collection.FieldSelector; s != "" {
		r = r.Param("fieldSelector", s)
	}
	return r
}
