package api

import (
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/past/mirror/auth"
)

// rechecks are the times of the checks of an open watch.
type rechecks struct {
	every time.Duration // between two checks
	retry time.Duration // until a check without an answer is repeated
	last  time.Duration // without an answer, after which the watch ends
}

// standardRechecks end a watch within a minute after a right was revoked, with the times for which answers count: 10 s
// here, and for tokens 10 s in the API server.
var standardRechecks = rechecks{every: 20 * time.Second, retry: 4 * time.Second, last: 35 * time.Second}

type target struct {
	schema.GroupVersion
	namespace, resource, name, subresource string
}

func (t *target) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: t.Group, Resource: t.resource}
}

// targetOf reads the parts of a path; ok is false if it is not below a group version.
func targetOf(parts []string) (t target, ok bool) {
	switch {
	case parts[0] == "api" && len(parts) >= 3:
		t.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) >= 4:
		t.Group, t.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return t, false
	}
	if parts[0] == "namespaces" && len(parts) >= 3 {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource = parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = strings.Join(parts[2:], "/")
	}
	return t, true
}

// attributes returns what a request reads, as the API server sees it. o is nil for one object, or if the options are
// wrong.
func (t *target) attributes(v view, o *options) auth.Attributes {
	a := auth.Attributes{
		Cluster: v.cluster, Verb: "list", Group: t.Group, Version: t.Version,
		Resource: t.resource, Subresource: t.subresource, Namespace: t.namespace, Name: t.name,
	}
	switch {
	case t.name != "":
		if a.Verb = "get"; t.resource == "namespaces" { // a Role in the namespace may allow it
			a.Namespace = t.name
		}
		return a
	case o == nil:
		return a
	case o.Watch:
		a.Verb = "watch"
	}
	if name := o.exactName; len(content.IsPathSegmentName(name)) == 0 { // resourceNames may allow it
		a.Name = name
	}
	return a
}

func (s *Server) check(r *http.Request, a *auth.Attributes) error {
	if s.Check == nil {
		return nil
	}
	return s.Check(r, a)
}

// impersonates returns an error for a request that is to be answered as another user's.
func impersonates(r *http.Request) error {
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			e := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
			e.ErrStatus.Message = "forbidden: bridge serve does not know impersonation (" + name + "): send the request as the user itself"
			return e
		}
	}
	return nil
}
