// Package bridge connects the API server, the sinks and their checkpoints. A [Bridge] runs one
// [Pipeline] per sink.
package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/internal/attribution"
	"github.com/kubebridge/kubebridge/internal/base/pause"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/feed"
	planning "github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/operate/leader"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// retryEvery is the pause between two attempts while the bridge waits for the API server's first
// answer, or for a resource that it does not serve yet.
const retryEvery = 3 * time.Second

// CollectionOptions are the options of a collection that do not select objects: the Options of a [planning.Entry]. They may change
// while the collection is read.
type CollectionOptions struct {
	encode.Settings
	SyncedEvery time.Duration // 0: synced is not repeated
	ResyncEvery time.Duration // 0: only on demand
	VerifyEvery time.Duration // between two comparisons with a list; 0: never
	Unbuffered  bool          // it is not buffered on disk
}

// HidesAs implements [planning.Hider].
func (o CollectionOptions) HidesAs(other any) bool {
	before, _ := other.(CollectionOptions)
	return reflect.DeepEqual(o.Redact, before.Redact)
}

// SinkResources are the resources whose events a sink gets.
type SinkResources struct {
	Sink    string
	Entries []planning.Entry // each with [CollectionOptions]; without: the zero value
	Exclude []string         // names and patterns of resources that patterns of Entries leave out
}

// OpenStore is a store that the bridge closes.
type OpenStore interface {
	checkpoint.Store
	Close() error
}

// SinkSpec describes a sink.
type SinkSpec struct {
	SinkResources
	// Shown has the fields of the status that do not change: Bus, Address and Delivery.
	Shown  status.Sink
	Linger time.Duration
	// Open opens the sink and its checkpoint once the cluster is known. The bridge closes both.
	Open func(context.Context, event.Identity) (sink.Sink, OpenStore, encode.Config, error)
	// Delivered is called with each batch's records when they are committed. May
	// be nil.
	Delivered func([]event.Record)
}

// Options are the options of a bridge.
type Options struct {
	Name     string
	Cluster  string
	Client   *source.Client
	Sinks    []SinkSpec
	Lists    int               // number of lists that run at once; 0: four
	Buffer   *BufferSpec       // nil: nothing is buffered on disk
	Audit    *attribution.Spec // nil: nobody asks who made changes
	Shutdown time.Duration     // how long a stop may take to deliver the events that were read; 0: 20 s
	// Elector says when the bridge may write; until then it is a standby. nil: it
	// always may.
	Elector Elector
	Log     *zap.Logger
	Metrics *Metrics
}

// Elector is a [leader.Elector].
type Elector interface {
	Run(ctx context.Context, lead func(held context.Context) error) error
	Status() leader.Status
}

// Bridge runs the pipelines of one cluster.
type Bridge struct {
	o       Options
	lists   *feed.Lists
	cluster *planning.Cluster
	outage  *outage

	mu         sync.Mutex
	clusterUID string
	connecting string // why the cluster is not known yet
	disk       openBuffer
	records    *attribution.Inputs // nil: audit records are not used now
	standing   *attribution.Inputs // records that are got while this process is a standby, too; nil: none are
	pipelines  []*Pipeline
	followers  map[string]follower      // by sink, those that run
	entries    map[string]SinkResources // by sink
}

// New returns a bridge that is not yet running.
func New(o Options) *Bridge {
	o.Lists = cmp.Or(o.Lists, 4)
	o.Shutdown = cmp.Or(o.Shutdown, 20*time.Second)
	b := &Bridge{o: o, lists: feed.NewLists(o.Lists), connecting: "not yet asked"}
	b.outage = newOutage(o.Log)
	b.cluster = planning.NewCluster(o.Client, b.planTrouble)
	b.followers, b.entries = map[string]follower{}, map[string]SinkResources{}
	b.Reconfigure(resourcesOf(o.Sinks))
	return b
}

// Run delivers until stop ends. Then it delivers the events that were read, for at most the shutdown
// time. It retries errors that can go away without a change by the user. With an Elector it waits until this
// process leads. It returns a *[planning.ConfigError], a *[planning.EnvironmentError], or another error that
// ends this run.
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

	// A standby also follows the cluster.
	stopAll, halt := context.WithCancel(stop)
	defer halt()
	var group errgroup.Group
	group.Go(func() error {
		defer halt()
		return b.cluster.Run(stopAll)
	})
	if b.o.Elector != nil && b.o.Audit != nil && b.o.Audit.Forward != nil {
		records, err := b.openAuditing(stopAll)
		if err != nil {
			return &planning.EnvironmentError{Err: err}
		}
		defer func() { _ = records.Close() }()
		b.mu.Lock()
		b.standing, b.records = records, records
		b.mu.Unlock()
		group.Go(func() error {
			defer halt()
			return records.Run(stopAll)
		})
	}
	group.Go(func() error {
		defer halt()
		if b.o.Elector == nil {
			return b.lead(context.WithoutCancel(stopAll), stopAll, uid)
		}
		if b.o.Buffer == nil || b.o.Buffer.Note == nil {
			return b.o.Elector.Run(stopAll, func(held context.Context) error { return b.lead(held, stopAll, uid) })
		}
		return b.bufferWhileStandby(stopAll, uid)
	})
	return group.Wait()
}

// lead opens the disk buffer, and delivers: see deliver.
func (b *Bridge) lead(held, stop context.Context, uid string) error {
	opening, cancel := context.WithCancel(stop)
	defer cancel()
	defer context.AfterFunc(held, cancel)()
	disk, closeBuffer, err := b.openBuffer(opening, uid)
	if err != nil {
		return err
	}
	defer b.setBuffer(openBuffer{})
	b.setBuffer(disk)
	return errors.Join(b.deliver(held, stop, uid, disk), closeBuffer())
}

func (b *Bridge) setBuffer(disk openBuffer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.disk = disk
}

// deliver runs the pipelines until stop ends, and then until the events that were read are delivered.
// The pipelines write nothing after held ends.
func (b *Bridge) deliver(held, stop context.Context, uid string, disk openBuffer) (err error) {
	hard, cancel := context.WithCancel(held)
	defer cancel()
	stopAll, halt := context.WithCancel(stop)
	defer halt()
	defer context.AfterFunc(held, halt)()
	said := make(chan struct{})
	notStopping := context.AfterFunc(stopAll, func() {
		defer close(said)
		if held.Err() != nil {
			b.o.Log.Warn("stopping at once: lost the Lease, so another replica may write")
			return
		}
		b.mu.Lock()
		running := len(b.pipelines)
		b.mu.Unlock()
		if running > 0 { // all sinks are open, or only the sinks before a failed one
			b.o.Log.Info("stopping: publishing pending events first", zap.Duration("atMost", b.o.Shutdown))
		}
		time.AfterFunc(b.o.Shutdown, cancel)
	})
	defer b.forget()
	var group errgroup.Group
	run := func(f func() error) {
		group.Go(func() error {
			err := f()
			if err != nil {
				halt() // the end of one pipeline ends the program
			}
			return err
		})
	}
	records := b.standing
	if records != nil {
		records.Lead()
		defer records.Stand()
	} else {
		if records, err = b.openAuditing(stopAll); err != nil {
			return &planning.EnvironmentError{Err: err}
		}
		if records != nil {
			records.ForgetNeeds(time.Now())
			b.mu.Lock()
			b.records = records
			b.mu.Unlock()
			defer func() { _ = records.Close() }()
			run(func() error { return records.Run(stopAll) })
		}
	}
	if records != nil && b.o.Audit.Topic != nil {
		run(func() error { return records.ReadTopic(stopAll) })
	}
	for _, spec := range b.o.Sinks {
		p, closeStore, err := b.open(stopAll, spec, uid, disk)
		if err != nil {
			run(func() error { return fmt.Errorf("sink %q: %w", spec.Sink, err) })
			break
		}
		run(func() error {
			err := p.Run(hard, stopAll)
			if err = errors.Join(err, closeStore()); err != nil {
				return fmt.Errorf("sink %q: %w", spec.Sink, classify(err))
			}
			return nil
		})
		run(func() error { return p.followPlan(stopAll, b) })
		if records != nil {
			run(func() error { return p.audit.Follow(stopAll, records, p.loop) })
		}
	}
	err = group.Wait()
	if !notStopping() {
		<-said // nothing is logged after the end
	}
	return err
}

// forget removes the pipelines and the audit records from the status.
func (b *Bridge) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pipelines, b.records = nil, b.standing
}

// findCluster asks for the cluster's UID until it gets it.
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
			return "", &planning.EnvironmentError{Err: fmt.Errorf("the API server does not accept the credentials: %w: check the kubeconfig or the service account", err)}
		}
		b.mu.Lock()
		b.connecting = err.Error()
		b.mu.Unlock()
		b.outage.reminder.failed(what, failure{message: "waiting for the API server", err: err})
		if !pause.For(ctx, retryEvery) {
			return "", ctx.Err()
		}
	}
}

func (b *Bridge) open(ctx context.Context, spec SinkSpec, uid string, disk openBuffer) (*Pipeline, func() error, error) {
	id := event.Identity{Bridge: b.o.Name, Cluster: b.o.Cluster, ClusterUID: uid, Sink: spec.Sink}
	var bus sink.Sink
	var store OpenStore
	var config encode.Config
	failing := failure{message: "open checkpoint failed; trying again until there is disk space, no event is lost meanwhile", fields: []zap.Field{zap.String("sink", spec.Sink)}}
	err := b.onceThereIsSpace(ctx, spec.Sink+": open the checkpoint", failing, func() (err error) {
		bus, store, config, err = spec.Open(ctx, id)
		return err
	})
	if err != nil {
		return nil, nil, classify(err)
	}
	config.Encoder.Cluster, config.Encoder.ClusterUID = id.Cluster, uid
	p := newPipeline(pipelineOptions{
		Identity: id, Shown: spec.Shown, Sink: bus, Store: store, Encode: config, Client: b.o.Client, Lists: b.lists,
		Linger: spec.Linger, Log: b.o.Log, Metrics: b.o.Metrics, Delivered: spec.Delivered, Outage: b.outage, Buffer: disk, Audit: b.o.Audit,
	})
	b.mu.Lock()
	b.pipelines = append(b.pipelines, p)
	b.mu.Unlock()
	return p, store.Close, nil
}

// onceThereIsSpace opens what is on a disk, and tries again while the disk is full: it can get free space. failing is what the log says, without the
// error.
func (b *Bridge) onceThereIsSpace(ctx context.Context, what string, failing failure, open func() error) error {
	defer b.outage.reminder.works(what)
	for {
		err := open()
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		failing.err = err
		if b.outage.reminder.failed(what, failing); !pause.For(ctx, readAgain) {
			return err
		}
	}
}

// classify wraps an error in a *[planning.EnvironmentError] if only a change outside the bridge corrects it.
func classify(err error) error {
	var refused *sink.RefusedError
	if final(err) || errors.As(err, &refused) || errors.Is(err, source.ErrOtherCluster) {
		return &planning.EnvironmentError{Err: err}
	}
	return err
}

// Status returns the present state. The program adds its version, its configuration and its start
// time.
func (b *Bridge) Status() status.Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := status.Report{
		Name: b.o.Name, Cluster: b.o.Cluster, ClusterUID: b.clusterUID, Waiting: b.connecting, At: time.Now(),
		Ready: b.connecting == "", Sinks: []status.Sink{}, Watches: b.o.Client.OpenWatches(), Buffer: b.disk.status(),
	}
	if b.records != nil {
		r.Audit = auditStatus(b.records.Status())
	}
	standby := false
	if b.o.Elector != nil {
		election := status.Election(b.o.Elector.Status())
		r.Election, standby = &election, election.Role == status.Standby
		r.Ready = r.Ready && (!standby || election.Problem == "")
	}
	r.Ready = r.Ready && (standby || len(b.pipelines) == len(b.o.Sinks))
	if b.outage.refuses() {
		r.Ready, r.Waiting = false, source.ErrCredentials.Error()+": "+renewCredentials
	}
	for _, p := range b.pipelines {
		s := p.Status()
		r.Ready = r.Ready && s.Ready
		r.Sinks = append(r.Sinks, s)
	}
	return r
}

// Checkpoint returns the store of a sink and its identity; ok is false if the sink is not open. The caller only reads with Get
// and Scan, which fail once the bridge has closed the store.
func (b *Bridge) Checkpoint(sink string) (id event.Identity, store checkpoint.Store, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pipelines {
		if p.name == sink {
			return p.identity, p.store.Store, true
		}
	}
	return id, nil, false
}

// Alive reports whether the loop of every pipeline answers before ctx ends.
func (b *Bridge) Alive(ctx context.Context) bool {
	b.mu.Lock()
	pipelines := slices.Clone(b.pipelines)
	b.mu.Unlock()
	for _, p := range pipelines {
		if !p.Alive(ctx) {
			return false
		}
	}
	return true
}
