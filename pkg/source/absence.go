package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// ErrGone is returned by [Collection.Run] when the CustomResourceDefinition or the
// namespace of the collection's objects was proved absent, and the handler has
// received an empty list. If it comes back, start a new Collection.
var ErrGone = errors.New("what the collection's objects lived in was deleted")

// absence is the result of the search for a proof of absence.
type absence struct {
	proof string // one sentence; "": there is no proof
	again bool   // a new CRD or namespace with the same name exists now
}

// absent looks for a proof that none of the objects that were passed on still exists. Only the API server's answers
// about the CRD and the namespace themselves count. A refusal, or a 404 that does not name them, is no proof.
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
		// A watch survives the deletion and recreation of a namespace, so an object that
		// it reported may be in the new namespace. (No watch survives its CRD.)
		case err == nil && c.owner.Namespace != "" && uid != c.owner.Namespace && c.untouched:
			return absence{fmt.Sprintf("namespace %s was deleted and created again", ns), true}
		}
	}
	return absence{}
}

// NamespaceExists reports whether a namespace exists, as of now. If the API server gives no answer about the namespace itself, it returns the error
// of the request.
func (c *Client) NamespaceExists(ctx context.Context, namespace string) (bool, error) {
	_, err := c.uid(ctx, namespacePath+namespace)
	if notFound(err, "namespaces", namespace) {
		return false, nil
	}
	return err == nil, err
}

const (
	crdPath        = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	apiServicePath = "/apis/apiregistration.k8s.io/v1/apiservices"
	namespacePath  = "/api/v1/namespaces/"
	// automanaged is "true" on the APIServices that kube-aggregator keeps for CRDs,
	// and "onstart" on those of the server's own groups.
	automanaged = "kube-aggregator.kubernetes.io/automanaged"
)

// crd returns the name of the CRD that would define the resource. It is "" for groups without a
// dot, which CRDs cannot have.
func (c *Collection) crd() string {
	if t := c.target.Collection; strings.Contains(t.Group, ".") {
		return t.Resource + "." + t.Group
	}
	return ""
}

// owners returns the UIDs of the present CRD and namespace of the collection. A UID is "" if the request is
// forbidden or there is no such owner.
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

// onlyByCRD reports whether only a CRD can have served the collection's resource, and not an aggregated API server or
// the API server itself. It checks the whole group, because a server may have dropped only a version.
func (c *Collection) onlyByCRD(ctx context.Context) bool {
	group := c.target.Collection.Group
	if c.owner.CRD == "" && strings.HasSuffix(group, ".k8s.io") {
		return false // probably a built-in group that is switched off
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

// registration has the used fields of an APIService.
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

// aggregated returns the API groups that APIServices route to other servers. nil: the request failed.
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

// notFound reports whether err says that exactly this object
// does not exist. A path that is not served is also a 404, but its status names no object.
func notFound(err error, resource, name string) bool {
	s, ok := listwatch.AsStatus(err)
	if !ok || s.Status().Code != http.StatusNotFound || !apierrors.IsNotFound(err) {
		return false
	}
	d := s.Status().Details
	return d != nil && d.Kind == resource && d.Name == name
}
