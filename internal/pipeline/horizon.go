package pipeline

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// horizon is what lanes are planned by: what is asked for, what the server
// serves, and which namespaces selectors select. It follows the cluster while it
// runs.
type horizon struct {
	client *source.Client
	log    *zap.Logger
	outage *outage

	mu         sync.Mutex
	changed    chan struct{} // closed with every change
	asked      map[string]LaneResources
	catalog    *source.Catalog
	namespaces map[string]*namespaces // by selector
}

// sight is the horizon at one moment, for one lane.
type sight struct {
	asked      LaneResources
	catalog    *source.Catalog // nil: not known yet
	namespaces func(selector string) (names []string, known bool)
	changed    <-chan struct{}
}

func newHorizon(client *source.Client, log *zap.Logger, shared *outage) *horizon {
	return &horizon{
		client: client, log: log, outage: shared, changed: make(chan struct{}),
		asked: map[string]LaneResources{}, namespaces: map[string]*namespaces{},
	}
}

// change makes a change and tells all who wait.
func (h *horizon) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *horizon) ask(l LaneResources) {
	h.change(func() { h.asked[l.Sink] = l })
}

func (h *horizon) sight(sink string) sight {
	h.mu.Lock()
	defer h.mu.Unlock()
	selected := map[string][]string{}
	for selector, n := range h.namespaces {
		if n.known {
			selected[selector] = slices.Sorted(maps.Keys(n.uids))
		}
	}
	return sight{
		asked: h.asked[sink], catalog: h.catalog, changed: h.changed,
		namespaces: func(selector string) ([]string, bool) {
			names, known := selected[selector]
			return names, known
		},
	}
}

// run follows the cluster until ctx ends.
func (h *horizon) run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error {
		err := h.client.WatchCatalog(ctx, func(c *source.Catalog) {
			h.change(func() { h.catalog = c })
		}, func(err error) {
			const what = "what the server serves"
			if h.outage.met(what, err) {
				h.outage.reminder.failed(what, failure{message: "what the server serves may be out of date; asking again", err: err, advice: advice(err)})
			} else {
				h.outage.reminder.works(what)
			}
		})
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	group.Go(func() error {
		h.followSelectors(ctx)
		return nil
	})
	return group.Wait()
}

// followSelectors follows the namespaces of every selector that is asked for.
func (h *horizon) followSelectors(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	stops := map[string]context.CancelFunc{}
	for {
		wanted := map[string]bool{}
		h.mu.Lock()
		for _, l := range h.asked {
			for _, r := range l.Resources {
				if r.NamespaceSelector != "" {
					wanted[r.NamespaceSelector] = true
				}
			}
		}
		changed := h.changed
		for selector, stop := range stops {
			if !wanted[selector] {
				stop()
				delete(stops, selector)
				delete(h.namespaces, selector)
			}
		}
		for selector := range wanted {
			if stops[selector] != nil {
				continue
			}
			following, stop := context.WithCancel(ctx)
			n := &namespaces{horizon: h, uids: map[string]string{}}
			stops[selector], h.namespaces[selector] = stop, n
			running.Go(func() { n.follow(following, selector) })
		}
		h.mu.Unlock()
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

// namespaces are those that a selector selects. It is the source.Handler of
// their collection.
type namespaces struct {
	horizon *horizon
	known   bool
	uids    map[string]string // by name
	listing map[string]string // nil unless a list is under way
}

var namespacesResource = source.Resource{Version: "v1", Name: "namespaces", Kind: "Namespace"}

func (n *namespaces) follow(ctx context.Context, selector string) {
	what := "namespaces " + selector
	defer n.horizon.outage.reminder.works(what)
	c := source.NewCollection(source.Options{
		Client: n.horizon.client, Handler: n,
		Target: source.Target{
			Collection: event.Collection{Resource: "namespaces", LabelSelector: selector, MetadataOnly: true},
			Resource:   namespacesResource,
		},
		OnState: func(s source.State) {
			switch own := n.horizon.outage.met(what, s.Err); {
			case own:
				n.horizon.outage.reminder.failed(what, failure{
					message: "namespaces cannot be followed; trying again", err: s.Err, advice: advice(s.Err),
					fields: []zap.Field{zap.String("namespaceSelector", selector)},
				})
			case s.Phase == source.Watching:
				n.horizon.outage.reminder.works(what)
			}
		},
	})
	_ = c.Run(ctx, event.Position{}) // ends with ctx
}

// Handle implements source.Handler.
func (n *namespaces) Handle(_ context.Context, s source.Signal) error {
	switch s.Kind {
	case source.ListBegun:
		n.listing = map[string]string{}
	case source.Listed:
		n.listing[s.Object.Name] = s.Object.UID
	case source.ListEnded:
		n.horizon.change(func() { n.known, n.uids, n.listing = true, n.listing, nil })
	case source.Added, source.Modified:
		if n.uids[s.Object.Name] != s.Object.UID {
			n.horizon.change(func() { n.uids[s.Object.Name] = s.Object.UID })
		}
	case source.Deleted:
		n.horizon.change(func() {
			delete(n.uids, s.Object.Name)
			delete(n.listing, s.Object.Name) // of a streamed list
		})
	}
	return nil
}

// absent reports whether a namespace is proved not to exist, in this cluster.
func (h *horizon) absent(ctx context.Context, namespace string) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	alive, known := source.NewCollection(source.Options{
		Client: h.client, Target: source.Target{Collection: event.Collection{Resource: "namespaces"}, Resource: namespacesResource},
	}).Alive(ctx, "", namespace, "")
	return known && !alive && h.client.SameCluster(ctx, time.Now()) == nil
}
