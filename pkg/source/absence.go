package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrGone is returned by [Collection.Run] when the CustomResourceDefinition or the
// namespace of the collection's objects was proved absent, and the handler has
// received an empty list. If it comes back, start a new Collection.
var ErrGone = errors.New("what the collection's objects lived in was deleted")

// absence is what was found out about a collection that cannot be read.
type absence struct {
	proof string // one sentence; "": nothing is proved
	again bool   // there is another now, of the same name
}

// absent looks for a proof that none of the objects that were passed on exists any
// more. Only what the API server says about the CRD and the namespace themselves
// counts: a refusal, or a 404 that does not name them, proves nothing.
func (c *Collection) absent(ctx context.Context) absence {
	if crd := c.crd(); crd != "" {
		uid, err := c.get(ctx, crdPath+crd)
		switch {
		case notFound(err, "customresourcedefinitions", crd) && c.onlyByCRD(ctx):
			return absence{proof: fmt.Sprintf("CustomResourceDefinition %s does not exist", crd)}
		case err == nil && c.owner.CRD != "" && uid != c.owner.CRD:
			return absence{fmt.Sprintf("CustomResourceDefinition %s was deleted and created again", crd), true}
		}
	}
	if ns := c.target.Collection.Namespace; ns != "" {
		uid, err := c.get(ctx, namespacePath+ns)
		switch {
		case notFound(err, "namespaces", ns):
			return absence{proof: fmt.Sprintf("namespace %s does not exist", ns)}
		// A watch goes on through a namespace's deletion and return: an object that
		// it reported may live in the new one. (No watch outlives its CRD.)
		case err == nil && c.owner.Namespace != "" && uid != c.owner.Namespace && c.untouched:
			return absence{fmt.Sprintf("namespace %s was deleted and created again", ns), true}
		}
	}
	return absence{}
}

const (
	crdPath        = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	apiServicePath = "/apis/apiregistration.k8s.io/v1/apiservices"
	namespacePath  = "/api/v1/namespaces/"
	// automanaged is "true" on the APIServices that kube-aggregator keeps for CRDs,
	// and "onstart" on those of the server's own groups.
	automanaged = "kube-aggregator.kubernetes.io/automanaged"
)

// crd is the name that a CRD defining the resource has, "" where there is none:
// the groups of CRDs have a dot.
func (c *Collection) crd() string {
	if t := c.target.Collection; strings.Contains(t.Group, ".") {
		return t.Resource + "." + t.Group
	}
	return ""
}

// owners finds what the collection's objects live in now; "" where it may not ask,
// or there is nothing of the kind.
func (c *Collection) owners(ctx context.Context) (o Owner) {
	if crd := c.crd(); crd != "" {
		o.CRD, _ = c.get(ctx, crdPath+crd)
	}
	if ns := c.target.Collection.Namespace; ns != "" {
		o.Namespace, _ = c.get(ctx, namespacePath+ns)
	}
	return o
}

func (c *Collection) get(ctx context.Context, path string) (uid string, err error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	return c.client.uid(ctx, path)
}

// onlyByCRD reports whether nothing but a CRD can have served the collection's
// resource: not an API server behind this one, not this one itself. That is asked
// of the whole group, since either may merely have dropped a version.
func (c *Collection) onlyByCRD(ctx context.Context) bool {
	group := c.target.Collection.Group
	if c.owner.CRD == "" && strings.HasSuffix(group, ".k8s.io") {
		return false // this server's own, as likely as not, and switched off
	}
	list, err := c.client.apiServices(ctx, "")
	if err != nil {
		return false
	}
	for _, s := range list {
		if s.Spec.Group == group && (s.Spec.Service != nil || s.Metadata.Labels[automanaged] != "true") {
			return false
		}
	}
	return true
}

// registration is what of an APIService matters here.
type registration struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Group   string    `json:"group"`
		Service *struct{} `json:"service"` // nil: the API server itself serves it
	} `json:"spec"`
}

// apiServices lists the APIServices that a label selector selects.
func (c *Client) apiServices(ctx context.Context, selector string) ([]registration, error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	request := c.rest.Get().AbsPath(apiServicePath).MaxRetries(0)
	if selector != "" {
		request.Param("labelSelector", selector)
	}
	raw, err := request.Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []registration `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	if list.Items == nil {
		return nil, errors.New("the answer is no list")
	}
	return list.Items, nil
}

// aggregated returns the groups that APIServices send to other servers; nil: that could not be found out.
func (c *Client) aggregated(ctx context.Context) []string {
	list, err := c.apiServices(ctx, "!"+automanaged)
	groups := []string{}
	switch {
	case apierrors.IsNotFound(err): // a server without aggregation
		return groups
	case err != nil:
		return nil
	}
	for _, s := range list {
		if s.Spec.Service != nil {
			groups = append(groups, s.Spec.Group)
		}
	}
	return groups
}

// notFound reports whether err is the API server's word that this very object
// does not exist. A path that nobody serves is a 404 too, but names nothing.
func notFound(err error, resource, name string) bool {
	s, ok := asStatus(err)
	if !ok || s.Status().Code != http.StatusNotFound || !apierrors.IsNotFound(err) {
		return false
	}
	d := s.Status().Details
	return d != nil && d.Kind == resource && d.Name == name
}
