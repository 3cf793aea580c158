package source

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
)

// Accept headers for metadata only (KEP-2832 and its predecessors:
// content negotiation on "as"). A server that does not support the form sends whole
// objects, which the second choice allows.
const (
	listForm  = "PartialObjectMetadataList"
	watchForm = "PartialObjectMetadata"
)

// request returns the common part of all requests for the collection's objects. form
// is the Accept header of a metadata-only collection.
func (c *Collection) request(form string) *rest.Request {
	return c.selected(c.target.path(), form, c.target.Collection.FieldSelector)
}

// selected is request for another path and field selector.
func (c *Collection) selected(path, form, fieldSelector string) *rest.Request {
	r := c.client.rest.Get().AbsPath(path).MaxRetries(0)
	if c.target.Collection.MetadataOnly {
		r = r.SetHeader("Accept", metadataOnly(form))
	}
	if s := c.target.Collection.LabelSelector; s != "" {
		r = r.Param("labelSelector", s)
	}
	if fieldSelector != "" {
		r = r.Param("fieldSelector", fieldSelector)
	}
	return r
}

// initialEvents returns a request for a watch that begins with the present objects (KEP-3157).
func (c *Collection) initialEvents() *rest.Request {
	return c.request(watchForm).
		Param("watch", "true").
		Param("sendInitialEvents", "true").
		Param("resourceVersionMatch", "NotOlderThan").
		Param("allowWatchBookmarks", "true").
		Param("timeoutSeconds", strconv.Itoa(int(streamTimeout/time.Second)))
}

func (c *Collection) pageRequest(q pageQuery) *rest.Request {
	r := c.request(listForm)
	if q.one != (Name{}) {
		t := c.target
		if t.Resource.Namespaced {
			t.Collection.Namespace = q.one.Namespace
		}
		selector := fields.OneTermEqualSelector("metadata.name", q.one.Name).String()
		if s := t.Collection.FieldSelector; s != "" {
			selector += "," + s
		}
		r = c.selected(t.path(), listForm, selector)
	}
	r = r.Param("limit", strconv.Itoa(q.limit))
	switch {
	case q.token != "": // the token includes the resourceVersion
		r = r.Param("continue", q.token)
	case q.exact != "":
		r = r.Param("resourceVersion", q.exact).Param("resourceVersionMatch", "Exact")
	}
	return r
}
