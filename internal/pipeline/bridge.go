// Package pipeline joins source, shape, sink and checkpoint: it is the only
// package that knows all four. A [Bridge] runs one [Lane] per sink.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// retryEvery paces what waits for the API server: its first answer, or a
// resource that it does not serve yet.
const retryEvery = 3 * time.Second

// ConfigError is what only a change of the configuration heals.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// EnvironmentError is what only a change of the surroundings heals, and no wait:
// wrong credentials, a checkpoint of another cluster.
type EnvironmentError struct{ Err error }

func (e *EnvironmentError) Error() string { return e.Err.Error() }
func (e *EnvironmentError) Unwrap() error { return e.Err }

// ResourceSpec asks for a resource as people name it, or for all that a pattern
// matches.
type ResourceSpec struct {
	Name              string   // as [source.Catalog.Find] or Match takes it: "pods", "deployments.v1.apps", "*.apps", "*.*"
	Namespaces        []string // none: all of them
	NamespaceSelector string   // of the namespaces' labels; not together with Namespaces
	ExcludeNamespaces []string
	LabelSelector     string
	FieldSelector     string
	MetadataOnly      bool          // bodies without spec and status
	SkipSnapshot      bool          // what the first list finds is not announced
	Types             []event.Type  // of the events about objects; nil: all, of core events Added and Modified
	SyncedEvery       time.Duration // how often Synced is told while nothing happens; 0: never
	Resync            time.Duration // how often the present state is told again; 0: never
	VerifyEvery       time.Duration // how often a list is compared with the inventory; 0: never
	Required          bool          // its absence ends the program instead of being waited for
}

// LaneSpec is what a lane is to be made of.
type LaneSpec struct {
	Sink      string
	Resources []ResourceSpec
	Linger    time.Duration
	// Open makes the lane's parts once the cluster is known. Store is closed by
	// the bridge if it is an io.Closer.
	Open func(event.Identity) (sink.Sink, checkpoint.Store, Shape, error)
	// Delivered is called with each batch's records when they are committed. May
	// be nil.
	Delivered func([]event.Record)
}

// BridgeOptions are what a bridge is made of.
type BridgeOptions struct {
	Name     string
	Cluster  string
	Client   *source.Client
	Lanes    []LaneSpec
	Lists    int           // lists under way at once; 0: four
	Shutdown time.Duration // how long a stop may take to deliver what was read; 0: 20 s
	Log      *zap.Logger
	Metrics  *Metrics
}

// Bridge runs lanes over one cluster.
type Bridge struct {
	o     BridgeOptions
	lists *semaphore.Weighted

	mu         sync.Mutex
	clusterUID string
	connecting string // why the cluster is not known yet
	lanes      []*Lane
}

// NewBridge returns a bridge that is not yet running.
func NewBridge(o BridgeOptions) *Bridge {
	if o.Lists == 0 {
		o.Lists = 4
	}
	if o.Shutdown == 0 {
		o.Shutdown = 20 * time.Second
	}
	return &Bridge{o: o, lists: semaphore.NewWeighted(int64(o.Lists)), connecting: "not yet asked"}
}

// Run delivers until stop ends, then finishes what was read within the shutdown
// time. It waits for whatever can heal. Errors it returns are a *ConfigError, an
// *EnvironmentError, or the end of this run for another reason.
func (b *Bridge) Run(stop context.Context) error {
	uid, err := b.findCluster(stop)
	if err != nil {
		if stop.Err() != nil {
			return nil
		}
		return err
	}
	b.o.Log.Info("cluster found", zap.String("cluster", b.o.Cluster), zap.String("uid", uid))

	hard, cancel := context.WithCancel(context.WithoutCancel(stop))
	defer cancel()
	stopAll, halt := context.WithCancel(stop)
	defer halt()
	notStopping := context.AfterFunc(stopAll, func() {
		b.o.Log.Info("stopping: delivering what was read", zap.Duration("atMost", b.o.Shutdown))
		time.AfterFunc(b.o.Shutdown, cancel)
	})
	var group errgroup.Group
	run := func(f func() error) {
		group.Go(func() error {
			err := f()
			if err != nil {
				halt() // one lane's end is the program's
			}
			return err
		})
	}
	for _, spec := range b.o.Lanes {
		lane, closeStore, err := b.openLane(spec, uid)
		if err != nil {
			run(func() error { return fmt.Errorf("sink %q: %w", spec.Sink, err) })
			break
		}
		run(func() error {
			err := lane.Run(hard, stopAll)
			if err = errors.Join(err, closeStore()); err != nil {
				return fmt.Errorf("sink %q: %w", spec.Sink, classify(err))
			}
			return nil
		})
		run(func() error { return b.resolve(stopAll, lane, spec.Resources) })
	}
	err = group.Wait()
	notStopping()
	return err
}

// findCluster asks for the cluster's UID until it is told.
func (b *Bridge) findCluster(ctx context.Context) (string, error) {
	last := ""
	for {
		uid, err := b.o.Client.ClusterUID(ctx)
		if err == nil {
			b.mu.Lock()
			b.clusterUID, b.connecting = uid, ""
			b.mu.Unlock()
			return uid, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if apierrors.IsUnauthorized(err) {
			return "", &EnvironmentError{fmt.Errorf("the API server does not accept the credentials: %w: check the kubeconfig or the service account", err)}
		}
		if err.Error() != last {
			last = err.Error()
			b.mu.Lock()
			b.connecting = last
			b.mu.Unlock()
			b.o.Log.Warn("waiting for the API server", zap.Error(err))
		}
		if !pause(ctx, retryEvery) {
			return "", ctx.Err()
		}
	}
}

func (b *Bridge) openLane(spec LaneSpec, uid string) (*Lane, func() error, error) {
	id := event.Identity{Bridge: b.o.Name, Cluster: b.o.Cluster, ClusterUID: uid, Sink: spec.Sink}
	bus, store, shape, err := spec.Open(id)
	if err != nil {
		return nil, nil, classify(err)
	}
	shape.Encoder = event.Encoder{Cluster: id.Cluster, ClusterUID: uid}
	lane := NewLane(LaneOptions{
		Identity: id, Sink: bus, Store: store, Shape: shape, Client: b.o.Client, Lists: b.lists,
		Linger: spec.Linger, Log: b.o.Log, Metrics: b.o.Metrics, Delivered: spec.Delivered,
	})
	b.mu.Lock()
	b.lanes = append(b.lanes, lane)
	b.mu.Unlock()
	closeStore := func() error { return nil }
	if c, ok := store.(io.Closer); ok {
		closeStore = c.Close
	}
	return lane, closeStore, nil
}

// classify tells what a retry cannot heal from what ended this run.
func classify(err error) error {
	var refused *sink.RefusedError
	for _, e := range []error{checkpoint.ErrForeign, checkpoint.ErrLocked, checkpoint.ErrCorrupt, checkpoint.ErrNewer} {
		if errors.Is(err, e) {
			return &EnvironmentError{err}
		}
	}
	if errors.As(err, &refused) {
		return &EnvironmentError{err}
	}
	return err
}

// resolve finds out what the server calls the resources and gives the lane their
// collections; those it does not serve yet are waited for.
func (b *Bridge) resolve(ctx context.Context, lane *Lane, specs []ResourceSpec) error {
	var taken []source.Target
	for {
		var missing []ResourceSpec
		var found []source.Target
		catalog, unasked := b.o.Client.Catalog(ctx)
		for _, spec := range specs {
			var resource source.Resource
			err := unasked
			if err == nil {
				resource, err = catalog.Find(spec.Name)
			}
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				if spec.Required && errors.Is(err, source.ErrNoResource) {
					return &EnvironmentError{fmt.Errorf("%w, and it is required", err)}
				}
				lane.unresolved(spec.Name, err)
				missing = append(missing, spec)
				continue
			}
			targets, err := spec.targets(resource)
			if err == nil {
				err = disjoint(slices.Concat(taken, found), targets)
			}
			if err != nil {
				return &ConfigError{fmt.Errorf("sink %q: %w", lane.id.Sink, err)}
			}
			lane.resolved(spec.Name)
			found = append(found, targets...)
		}
		taken = append(taken, found...)
		if len(found) > 0 || len(missing) == 0 {
			if lane.Add(ctx, found, len(missing) == 0) != nil {
				return nil
			}
		}
		if specs = missing; len(specs) == 0 || !pause(ctx, retryEvery) {
			return nil
		}
	}
}

// targets are the collections that a spec asks for.
func (s ResourceSpec) targets(r source.Resource) ([]source.Target, error) {
	one := func(namespace string) source.Target {
		return source.Target{Resource: r, Collection: event.Collection{
			Group: r.Group, Resource: r.Name, Namespace: namespace,
			LabelSelector: s.LabelSelector, FieldSelector: s.FieldSelector,
		}}
	}
	if len(s.Namespaces) == 0 {
		return []source.Target{one("")}, nil
	}
	if !r.Namespaced {
		return nil, fmt.Errorf("resource %q is cluster-scoped: remove its namespaces", s.Name)
	}
	var out []source.Target
	for _, n := range s.Namespaces {
		out = append(out, one(n))
	}
	return out, nil
}

// disjoint checks that no object can be in two collections: their inventories
// would contradict each other.
func disjoint(have, more []source.Target) error {
	for i := range more {
		for _, other := range slices.Concat(have, more[:i]) {
			a, b := &more[i].Collection, &other.Collection
			if a.ResourceID() == b.ResourceID() && (a.Namespace == b.Namespace || a.Namespace == "" || b.Namespace == "") {
				return fmt.Errorf("resource %q is asked for twice (collections %s and %s): one object could be in both; name different namespaces or join them", a.ResourceID(), b.ID(), a.ID())
			}
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// BridgeStatus is what a bridge shows of itself.
type BridgeStatus struct {
	Ready      bool         `json:"ready"`
	Cluster    string       `json:"cluster"`
	ClusterUID string       `json:"clusterUID,omitzero"`
	Waiting    string       `json:"waiting,omitzero"` // why the cluster is not known yet
	Lanes      []LaneStatus `json:"lanes"`
}

// Status returns the present state. A bridge is ready when its cluster is known
// and its sinks take what they are given; a degraded collection does not count.
func (b *Bridge) Status() BridgeStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := BridgeStatus{
		Cluster: b.o.Cluster, ClusterUID: b.clusterUID, Waiting: b.connecting,
		Ready: b.connecting == "" && len(b.lanes) == len(b.o.Lanes), Lanes: []LaneStatus{},
	}
	for _, l := range b.lanes {
		ls := l.Status()
		s.Ready = s.Ready && ls.Ready
		s.Lanes = append(s.Lanes, ls)
	}
	return s
}

// Alive reports whether every lane's loop answers before ctx ends.
func (b *Bridge) Alive(ctx context.Context) bool {
	b.mu.Lock()
	lanes := slices.Clone(b.lanes)
	b.mu.Unlock()
	for _, l := range lanes {
		if !l.Alive(ctx) {
			return false
		}
	}
	return true
}
