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
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/internal/leader"
	planning "github.com/kubebridge/kubebridge/internal/plan"
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

// ResourceSpec asks for a resource, or with a pattern for many, as people name
// them.
type ResourceSpec struct {
	Name              string   // as kubectl takes it: "pods", "deployments.apps", "deployments.v1.apps"; or "*.*", "*.apps"
	Entry             string   // tells entries of one resource apart, where [BridgeOptions] has Independent; "": it has no name
	Namespaces        []string // none: all of them
	NamespaceSelector string   // label selector of namespaces; not beside Namespaces
	ExcludeNamespaces []string
	LabelSelector     string
	FieldSelector     string
	MetadataOnly      bool // bodies hold metadata alone
	Required          bool // its absence ends the program instead of being waited for
	CollectionOptions
}

// LaneResources are what a lane watches.
type LaneResources struct {
	Sink      string
	Resources []ResourceSpec
	Exclude   []string // names and patterns that no pattern of Resources takes in
}

// LaneSpec is what a lane is to be made of.
type LaneSpec struct {
	LaneResources
	Linger time.Duration
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
	// Elector says when the bridge may write; until then it is a standby. nil: it
	// always may.
	Elector *leader.Elector
	Log     *zap.Logger
	Metrics *Metrics
	// Independent has the collections of entries be independent of each other: docs/adr/0017. The
	// program does not use it yet.
	Independent bool
}

// runner is a sink at work.
type runner interface {
	Run(ctx, stop context.Context) error
	Alive(ctx context.Context) bool
	Status() LaneStatus
	Resync(ctx context.Context, resource string) ([]string, error)
	// follow keeps it in step with what is configured and what the API server serves.
	follow(ctx context.Context, b *Bridge) error
}

// Bridge runs lanes over one cluster.
type Bridge struct {
	o       BridgeOptions
	lists   *semaphore.Weighted
	horizon *horizon
	outage  *outage

	mu         sync.Mutex
	clusterUID string
	connecting string // why the cluster is not known yet
	lanes      []runner
	cluster    *planning.Cluster // of pipelines
	followers  map[string]*planning.Follower
	entries    map[string]LaneResources // by sink
}

// NewBridge returns a bridge that is not yet running.
func NewBridge(o BridgeOptions) *Bridge {
	if o.Lists == 0 {
		o.Lists = 4
	}
	if o.Shutdown == 0 {
		o.Shutdown = 20 * time.Second
	}
	b := &Bridge{o: o, lists: semaphore.NewWeighted(int64(o.Lists)), connecting: "not yet asked"}
	b.outage = newOutage(o.Log)
	b.horizon = newHorizon(o.Client, o.Log, b.outage)
	b.cluster = planning.NewCluster(o.Client, b.planTrouble)
	b.followers, b.entries = map[string]*planning.Follower{}, map[string]LaneResources{}
	b.Reconfigure(resourcesOf(o.Lanes))
	return b
}

// Run delivers until stop ends, then finishes what was read within the shutdown
// time. It waits for whatever can heal, and with an Elector until it leads. Errors it
// returns are a *ConfigError, an *EnvironmentError, or the end of this run for
// another reason.
func (b *Bridge) Run(stop context.Context) error {
	ending, end := context.WithCancel(context.WithoutCancel(stop))
	var reminding sync.WaitGroup
	defer reminding.Wait()
	defer end()
	reminding.Go(func() { b.outage.reminder.run(ending) })
	uid, err := b.findCluster(stop)
	if err != nil {
		if stop.Err() != nil {
			return nil
		}
		return err
	}
	b.o.Log.Info("cluster found", zap.String("cluster", b.o.Cluster), zap.String("uid", uid))

	// What plans the lanes is followed by a standby, too.
	stopAll, halt := context.WithCancel(stop)
	defer halt()
	var group errgroup.Group
	group.Go(func() error {
		defer halt()
		if b.o.Independent {
			return b.cluster.Run(stopAll)
		}
		return b.horizon.run(stopAll)
	})
	group.Go(func() error {
		defer halt()
		lead := func(held context.Context) error { return b.deliver(held, stopAll, uid) }
		if b.o.Elector == nil {
			return lead(context.WithoutCancel(stopAll))
		}
		return b.o.Elector.Run(stopAll, lead)
	})
	return group.Wait()
}

// deliver runs the lanes until stop ends, and then until what was read is delivered.
// When held ends they write nothing more.
func (b *Bridge) deliver(held, stop context.Context, uid string) error {
	hard, cancel := context.WithCancel(held)
	defer cancel()
	stopAll, halt := context.WithCancel(stop)
	defer halt()
	defer context.AfterFunc(held, halt)()
	notStopping := context.AfterFunc(stopAll, func() {
		if held.Err() != nil {
			b.o.Log.Warn("stopping at once: the lease is lost, and with it the right to write")
			return
		}
		b.o.Log.Info("stopping: delivering what was read", zap.Duration("atMost", b.o.Shutdown))
		time.AfterFunc(b.o.Shutdown, cancel)
	})
	defer b.forgetLanes()
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
		lane, closeStore, err := b.openLane(stopAll, spec, uid)
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
		run(func() error { return lane.follow(stopAll, b) })
	}
	err := group.Wait()
	notStopping()
	return err
}

// forgetLanes ends what status and metrics show of the lanes.
func (b *Bridge) forgetLanes() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lanes = nil
	for _, spec := range b.o.Lanes {
		b.o.Metrics.state.DeletePartialMatch(prometheus.Labels{"sink": spec.Sink})
	}
}

// findCluster asks for the cluster's UID until it is told.
func (b *Bridge) findCluster(ctx context.Context) (string, error) {
	const what = "find the cluster"
	defer b.outage.reminder.works(what)
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
		b.mu.Lock()
		b.connecting = err.Error()
		b.mu.Unlock()
		b.outage.reminder.failed(what, failure{message: "waiting for the API server", err: err})
		if !pause(ctx, retryEvery) {
			return "", ctx.Err()
		}
	}
}

func (b *Bridge) openLane(ctx context.Context, spec LaneSpec, uid string) (runner, func() error, error) {
	id := event.Identity{Bridge: b.o.Name, Cluster: b.o.Cluster, ClusterUID: uid, Sink: spec.Sink}
	bus, store, shape, err := spec.Open(id)
	key := spec.Sink + ": open the checkpoint"
	defer b.outage.reminder.works(key)
	for errors.Is(err, syscall.ENOSPC) && pause(ctx, askAgain) { // a full disk heals
		b.outage.reminder.failed(key, failure{
			message: "trying again until there is room; nothing is lost meanwhile", err: err, fields: []zap.Field{zap.String("sink", spec.Sink)},
		})
		bus, store, shape, err = spec.Open(id)
	}
	if err != nil {
		return nil, nil, classify(err)
	}
	shape.Encoder.Cluster, shape.Encoder.ClusterUID = id.Cluster, uid
	var lane runner
	if b.o.Independent {
		lane = newPipeline(pipelineOptions{
			Identity: id, Sink: bus, Store: store, Shape: shape, Client: b.o.Client, Lists: b.lists,
			Linger: spec.Linger, Log: b.o.Log, Metrics: b.o.Metrics, Delivered: spec.Delivered, Outage: b.outage,
		})
	} else {
		lane = NewLane(LaneOptions{
			Identity: id, Sink: bus, Store: store, Shape: shape, Client: b.o.Client, Lists: b.lists,
			Linger: spec.Linger, Log: b.o.Log, Metrics: b.o.Metrics, Delivered: spec.Delivered, Outage: b.outage,
		})
	}
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
	if final(err) || errors.As(err, &refused) || errors.Is(err, source.ErrOtherCluster) {
		return &EnvironmentError{err}
	}
	return err
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
	Ready      bool   `json:"ready"`
	Cluster    string `json:"cluster"`
	ClusterUID string `json:"clusterUID,omitzero"`
	Waiting    string `json:"waiting,omitzero"` // why the cluster is not known yet
	// Election is nil where there is none.
	Election *leader.Status `json:"election,omitzero"`
	Lanes    []LaneStatus   `json:"lanes"`
}

// Status returns the present state. A bridge is ready when its cluster is known
// and its sinks take what they are given; a degraded collection does not count. A
// standby is ready when it could take over.
func (b *Bridge) Status() BridgeStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := BridgeStatus{
		Cluster: b.o.Cluster, ClusterUID: b.clusterUID, Waiting: b.connecting,
		Ready: b.connecting == "", Lanes: []LaneStatus{},
	}
	standby := false
	if b.o.Elector != nil {
		election := b.o.Elector.Status()
		s.Election, standby = &election, election.Role == leader.Standby
		s.Ready = s.Ready && (!standby || election.Problem == "")
	}
	s.Ready = s.Ready && (standby || len(b.lanes) == len(b.o.Lanes))
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
