package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// ErrNoResource is returned when the server does not serve a resource of the
// given name now. It may later: a CRD can be installed.
var ErrNoResource = errors.New("the server has no such resource")

// ErrNotWatchable is returned for a resource that cannot be listed and watched.
var ErrNotWatchable = errors.New("the resource cannot be listed and watched")

// resolveTimeout bounds one look-up, all discovery requests together.
const resolveTimeout = 30 * time.Second

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

// Resolve finds what name means, as kubectl would: "pods", "po",
// "deployments.apps", "deployments.v1.apps". Errors wrap [ErrNoResource],
// [ErrNotWatchable], or tell why the server could not be asked.
func (c *Client) Resolve(ctx context.Context, name string) (Resource, error) {
	c.resolving.Lock()
	defer c.resolving.Unlock()
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	c.resolve = ctx
	gvr, err := c.resourceFor(name)
	if meta.IsNoMatchError(err) {
		c.mapper.Reset() // it may have been installed since
		gvr, err = c.resourceFor(name)
	}
	if meta.IsNoMatchError(err) {
		return Resource{}, fmt.Errorf("resource %q: %w", name, ErrNoResource)
	}
	if err != nil {
		return Resource{}, fmt.Errorf("resource %q: ask the server: %w", name, err)
	}
	list, err := c.discovery.ServerResourcesForGroupVersion(gvr.GroupVersion().String())
	if err != nil {
		return Resource{}, fmt.Errorf("resource %q: ask the server: %w", name, err)
	}
	for _, r := range list.APIResources {
		if r.Name != gvr.Resource {
			continue
		}
		if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
			return Resource{}, fmt.Errorf("resource %q: %w: its verbs are %s", name, ErrNotWatchable, strings.Join(r.Verbs, ", "))
		}
		return Resource{Group: gvr.Group, Version: gvr.Version, Name: gvr.Resource, Kind: r.Kind, Namespaced: r.Namespaced}, nil
	}
	return Resource{}, fmt.Errorf("resource %q: %w", name, ErrNoResource)
}

func (c *Client) resourceFor(name string) (schema.GroupVersionResource, error) {
	expander := restmapper.NewShortcutExpander(c.mapper, inOrder{c.discovery}, nil)
	versioned, plain := schema.ParseResourceArg(strings.ToLower(name))
	if versioned != nil { // "deployments.v1.apps", unless "v1.apps" is a group
		gvr, err := expander.ResourceFor(*versioned)
		if !meta.IsNoMatchError(err) {
			return gvr, err
		}
	}
	return expander.ResourceFor(plain.WithVersion(""))
}

// inOrder gives resources in the server's order of groups and versions. client-go
// gives those of aggregated discovery in no order, and the expander takes the
// first: "ev" would be events today and events.events.k8s.io tomorrow.
type inOrder struct {
	discovery.CachedDiscoveryInterface
}

func (d inOrder) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, lists, err := d.CachedDiscoveryInterface.ServerGroupsAndResources()
	rank := map[string]int{}
	for _, g := range groups {
		for _, v := range g.Versions {
			rank[v.GroupVersion] = len(rank)
		}
	}
	lists = slices.SortedFunc(slices.Values(lists), func(a, b *metav1.APIResourceList) int {
		return rank[a.GroupVersion] - rank[b.GroupVersion]
	})
	return groups, lists, err
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
