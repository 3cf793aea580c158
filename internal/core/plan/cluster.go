package plan

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// askTimeout bounds the requests about one namespace.
const askTimeout = 5 * time.Second

// Cluster follows the inputs of plans: the resources that the API server serves, and the namespaces that
// selectors select. Several followers share one Cluster.
type Cluster struct {
	client  *source.Client
	trouble func(what string, err error)

	mu         sync.Mutex
	changed    chan struct{} // closed with every change
	selectors  map[*Follower][]string
	catalog    *discovery.Catalog     // nil: not known yet
	namespaces map[string]*namespaces // by selector
}

// NewCluster returns a cluster that is not followed yet. trouble is called with an error if a part
// cannot be kept up to date, and with nil when the error is over or no follower needs the part any more.
// After an error the cluster is still followed. what is "catalog", or "namespaces" and a selector. trouble
// is called from several goroutines.
func NewCluster(client *source.Client, trouble func(what string, err error)) *Cluster {
	return &Cluster{
		client: client, trouble: trouble, changed: make(chan struct{}),
		selectors: map[*Follower][]string{}, namespaces: map[string]*namespaces{},
	}
}

// Run follows the cluster until ctx ends, and then returns nil. It clears the catalog and the namespaces.
func (c *Cluster) Run(ctx context.Context) error {
	defer c.change(func() {
		c.catalog = nil
		clear(c.namespaces)
	})
	var group errgroup.Group
	group.Go(func() error {
		err := c.client.WatchCatalog(ctx, func(catalog *discovery.Catalog) {
			c.change(func() { c.catalog = catalog })
		}, func(err error) { c.trouble("catalog", err) })
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	group.Go(func() error {
		c.followSelectors(ctx)
		return nil
	})
	return group.Wait()
}

// Catalog returns the resources that the server serves, nil if they are not known yet.
func (c *Cluster) Catalog() *discovery.Catalog {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.catalog
}

// exists reports whether a namespace exists in this cluster. A namespace that the bridge may not get counts as one that exists. An error says
// that it is not known.
func (c *Cluster) exists(ctx context.Context, namespace string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	exists, err := c.client.NamespaceExists(ctx, namespace)
	if apierrors.IsForbidden(err) {
		return true, nil
	}
	if err == nil && !exists {
		err = c.client.SameCluster(ctx, time.Now())
	}
	return exists, err
}

// need starts to follow the selectors of a follower that needs them, and wakes all waiting goroutines.
func (c *Cluster) need(f *Follower, selectors func() (selectors []string, needed bool)) {
	c.change(func() {
		if all, needed := selectors(); needed {
			c.selectors[f] = all
		}
	})
}

func (c *Cluster) forget(f *Follower) {
	c.change(func() { delete(c.selectors, f) })
}

// change makes a change and wakes all goroutines that wait for a change.
func (c *Cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// now returns the present catalog and namespaces, and a channel that is closed with the next change.
func (c *Cluster) now() (*discovery.Catalog, Namespaces, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	selected := map[string][]string{}
	for selector, n := range c.namespaces {
		if n.known {
			selected[selector] = slices.Sorted(maps.Keys(n.uids))
		}
	}
	return c.catalog, func(selector string) ([]string, bool) {
		names, known := selected[selector]
		return names, known
	}, c.changed
}

// followSelectors follows the namespaces of every selector that a follower needs.
func (c *Cluster) followSelectors(ctx context.Context) {
	stops := map[string]func(){}
	for {
		wanted, changed := c.wanted()
		for selector, stop := range stops {
			if !wanted[selector] {
				stop()
				delete(stops, selector)
				c.change(func() { delete(c.namespaces, selector) })
			}
		}
		for selector := range wanted {
			if stops[selector] == nil {
				stops[selector] = c.start(ctx, selector)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			for _, stop := range stops {
				stop()
			}
			return
		}
	}
}

// wanted returns the selectors that followers need now.
func (c *Cluster) wanted() (selectors map[string]bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	selectors = map[string]bool{}
	for _, list := range c.selectors {
		for _, s := range list {
			selectors[s] = true
		}
	}
	return selectors, c.changed
}

// start follows a selector until stop is called. stop returns when the goroutine has ended.
func (c *Cluster) start(ctx context.Context, selector string) (stop func()) {
	n := &namespaces{cluster: c, uids: map[string]string{}}
	c.mu.Lock()
	c.namespaces[selector] = n
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.follow(ctx, selector)
	}()
	return func() {
		cancel()
		<-done
	}
}

// namespaces has the namespaces that a selector selects. It is the source.Handler of their collection.
type namespaces struct {
	cluster *Cluster
	known   bool
	uids    map[string]string // by name
	listing map[string]string // nil unless a list is under way
}

func namespacesResource() discovery.Resource {
	return discovery.Resource{Version: "v1", Name: "namespaces", Kind: "Namespace"}
}

// follow follows the namespaces of a selector until ctx ends.
func (n *namespaces) follow(ctx context.Context, selector string) {
	what := "namespaces " + selector
	defer n.cluster.trouble(what, nil)
	c := source.NewCollection(source.Options{
		Client: n.cluster.client, Handler: n,
		Target: source.Target{
			Collection: event.Collection{Resource: "namespaces", LabelSelector: selector, MetadataOnly: true},
			Resource:   namespacesResource(),
		},
		OnState: func(s source.State) {
			if s.Err != nil || s.Phase == source.Watching {
				n.cluster.trouble(what, s.Err)
			}
		},
	})
	_ = c.Run(ctx, event.Position{}) // namespaces are always served: it ends with ctx
}

// Handle implements source.Handler.
func (n *namespaces) Handle(_ context.Context, s source.Signal) error {
	switch s.Kind {
	case source.ListBegun:
		n.listing = map[string]string{}
	case source.Listed:
		n.listing[s.Object.Name] = s.Object.UID
	case source.ListEnded:
		n.cluster.change(func() { n.known, n.uids, n.listing = true, n.listing, nil })
	case source.Added, source.Modified:
		if n.uids[s.Object.Name] != s.Object.UID {
			n.cluster.change(func() { n.uids[s.Object.Name] = s.Object.UID })
		}
	case source.Deleted:
		n.cluster.change(func() {
			delete(n.uids, s.Object.Name)
			delete(n.listing, s.Object.Name) // of a streamed list
		})
	}
	return nil
}
