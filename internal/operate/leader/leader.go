// Package leader elects a leader among several processes, with a Lease of the Kubernetes
// API (coordination.k8s.io/v1) and client-go's election.
//
// The Lease decides which process may begin. It cannot stop a former leader that does not see that time has
// passed, such as a paused process. So a store or bus with one writer must also fence
// the former writer.
package leader

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Options of an [Elector]. All are required.
type Options struct {
	Client          *rest.Config // of the cluster that holds the Lease; it is not changed
	Namespace, Name string       // of the Lease
	// LeaseDuration is how long a Lease that is not renewed is valid, in whole
	// seconds. RenewDeadline is how long a leader tries to renew before it gives up,
	// RetryPeriod the time between two attempts. A leader must give up before
	// another process takes the Lease: LeaseDuration > RenewDeadline + RetryPeriod.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	Log                                       *zap.Logger
	Metrics                                   prometheus.Registerer
}

// Elector is one candidate.
type Elector struct {
	o        Options
	identity string
	leases   coordinationclient.LeaseInterface
	notes    coreclient.ConfigMapInterface
	lock     *lock
	leading  atomic.Bool
	gauge    prometheus.Gauge
}

// Roles of a candidate.
const (
	Leader  = "leader"
	Standby = "standby"
)

// Status is the state of a candidate.
type Status struct {
	Role     string `json:"role"`            // Leader or Standby
	Lease    string `json:"lease"`           // namespace/name
	Identity string `json:"identity"`        // this process
	Holder   string `json:"holder,omitzero"` // the leader, as last seen
	// Problem is why the Lease could not be read or written at the last attempt. A
	// standby with a problem cannot take over.
	Problem string `json:"problem,omitzero"`
}

// Host returns the host name of the process with an identity: in a pod, the name of the pod.
func Host(identity string) string {
	host, _, _ := strings.Cut(identity, separator)
	return host
}

// separator is behind the host name in an identity. Host names do not have it.
const separator = "_"

// Protocols returns the application protocols of the connections. A configuration with a transport of its own must use
// them: over HTTP/1.1 a request that gets no answer takes its connection with it, and
// the next one dials. An HTTP/2 connection that is half open would be kept for
// longer than the Lease.
func Protocols() []string { return []string{"http/1.1"} }

// New returns a candidate that does not run yet. It does not connect.
func New(o Options) (*Elector, error) {
	host, err := os.Hostname() // in a pod: its name
	if err != nil {
		return nil, fmt.Errorf("name this process in the Lease: %w", err)
	}
	cfg := rest.CopyConfig(o.Client)
	cfg.NextProtos = Protocols()
	connections, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up a client for %s: %w", cfg.Host, err)
	}
	client, err := coordinationclient.NewForConfigAndClient(cfg, connections)
	if err != nil {
		return nil, fmt.Errorf("set up a client for Leases at %s: %w", cfg.Host, err)
	}
	core, err := coreclient.NewForConfigAndClient(cfg, connections)
	if err != nil {
		return nil, fmt.Errorf("set up a client for ConfigMaps at %s: %w", cfg.Host, err)
	}
	e := &Elector{
		o: o, identity: host + separator + strings.ToLower(rand.Text()[:8]), leases: client.Leases(o.Namespace), notes: core.ConfigMaps(o.Namespace),
		gauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "kubebridge", Name: "leader", Help: "1 while this process leads, 0 while it is a standby.",
			ConstLabels: prometheus.Labels{"lease": o.Namespace + "/" + o.Name},
		}),
	}
	forget := func() { utilnet.CloseIdleConnectionsFor(connections.Transport) }
	e.lock = &lock{timeout: o.RenewDeadline / 2, forget: forget, log: o.Log, LeaseLock: resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}, Client: client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
	}}
	if err := o.Metrics.Register(e.gauge); err != nil {
		return nil, fmt.Errorf("register kubebridge_leader: %w", err)
	}
	return e, nil
}

// Run calls lead each time this process gets the Lease, one call at a time,
// until ctx ends. It releases the Lease when lead has returned. held ends when the
// Lease is lost, but not when ctx ends: lead must then stop at once, and
// its result is ignored. Otherwise lead returns when ctx ends or with an
// error, which Run returns.
func (e *Elector) Run(ctx context.Context, lead func(held context.Context) error) error {
	defer e.lock.forget()
	for ctx.Err() == nil {
		lost, err := e.term(ctx, lead)
		if !lost && err != nil || ctx.Err() != nil {
			return err
		}
		if lost {
			e.o.Log.Warn("no longer the leader: waiting as a standby", zap.String("lease", e.lock.Describe()), zap.NamedError("ended", err))
		}
	}
	return nil
}

// term waits for the Lease and leads while this process holds it. It returns early,
// without having led, when the Lease may be free.
func (e *Elector) term(ctx context.Context, lead func(held context.Context) error) (lost bool, err error) {
	elected := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, Name: e.lock.Describe(),
		LeaseDuration: e.o.LeaseDuration, RenewDeadline: e.o.RenewDeadline, RetryPeriod: e.o.RetryPeriod,
		// client-go would release the Lease before it reports the loss, and after a
		// pause of the process it would release the Lease of another process: see giveBack.
		ReleaseOnCancel: false,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) { elected <- held },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return false, fmt.Errorf("leaderElection: %w", err)
	}
	// The election does not end with ctx, because the Lease is held until lead has returned. The
	// election's own log is dropped, because lock logs its errors.
	running, end := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), klog.Logger{}))
	waiting, stopWaiting := context.WithCancel(ctx)
	released := make(chan struct{}, 1)
	var group sync.WaitGroup
	group.Go(func() { elector.Run(running) })
	group.Go(func() { e.watchRelease(waiting, released) })
	led := false
	defer func() {
		stopWaiting()
		end()
		group.Wait()
		if led || elector.IsLeader() {
			lost = !e.giveBack(ctx) || lost
		}
	}()
	select {
	case term := <-elected:
		stopWaiting()
		held, drop := context.WithCancel(term)
		defer drop()
		e.lock.onOther(drop)
		defer e.lock.onOther(nil)
		led = true
		e.leads(true)
		defer e.leads(false)
		e.o.Log.Info("became leader", zap.String("lease", e.lock.Describe()), zap.String("identity", e.identity))
		err = lead(held)
		return held.Err() != nil, err
	case <-released:
	case <-ctx.Done():
	}
	return false, nil
}

// watchRelease signals when the Lease becomes free. Without it, a standby would see this only at its next attempt.
func (e *Elector) watchRelease(ctx context.Context, released chan<- struct{}) {
	for ctx.Err() == nil {
		w, err := e.leases.Watch(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("metadata.name", e.o.Name).String(),
		})
		if err == nil {
			for event := range w.ResultChan() {
				if holder, _ := e.lock.seen(); freed(event, holder) {
					released <- struct{}{}
					w.Stop()
					return
				}
			}
			w.Stop()
		}
		select {
		case <-ctx.Done():
		case <-time.After(e.o.RetryPeriod):
		}
	}
}

// freed reports whether an event shows that the Lease has become free since holder was seen in it. A Lease that is free
// when the watch begins does not count if the election has seen this as well and could not take it.
func freed(event watch.Event, holder string) bool {
	lease, ok := event.Object.(*coordinationv1.Lease)
	switch {
	case !ok:
		return false
	case event.Type == watch.Deleted:
		return true
	case event.Type == watch.Added && holder == "":
		return false
	}
	return lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == ""
}

// giveBack releases the Lease, so that another process need not wait for its end. It
// reports whether this process held the Lease until then, as far as this is known.
func (e *Elector) giveBack(ctx context.Context) (held bool) {
	ctx = context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeout(ctx, e.lock.timeout)
	defer cancel()
	for {
		record, _, err := e.lock.Get(ctx)
		if err != nil {
			return !apierrors.IsNotFound(err)
		}
		if record.HolderIdentity != e.identity {
			return false
		}
		now := metav1.Now()
		err = e.lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now, LeaderTransitions: record.LeaderTransitions,
		})
		if !apierrors.IsConflict(err) { // a renewal that was under way
			return true
		}
	}
}

// Status returns the present state.
func (e *Elector) Status() Status {
	s := Status{Role: Standby, Lease: e.lock.Describe(), Identity: e.identity}
	s.Holder, s.Problem = e.lock.seen()
	if e.leading.Load() {
		s.Role = Leader
	}
	return s
}

func (e *Elector) leads(is bool) {
	e.leading.Store(is)
	e.gauge.Set(map[bool]float64{true: 1}[is])
}

// lock records the observed state of the Lease.
type lock struct {
	resourcelock.LeaseLock
	timeout time.Duration // of one request, so that a deadline has room for a second
	forget  func()        // closes idle connections, which may be as dead as the one without an answer, so that the next request dials
	log     *zap.Logger

	mu      sync.Mutex
	holder  string
	problem string
	other   context.CancelFunc
}

// onOther sets a function to call when another process holds the Lease. The election
// itself would retry until its deadline.
func (l *lock) onOther(f context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.other = f
}

func (l *lock) Get(ctx context.Context) (record *resourcelock.LeaderElectionRecord, raw []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	record, raw, err = l.LeaseLock.Get(ctx)
	holder := ""
	if err == nil {
		holder = record.HolderIdentity
	}
	if apierrors.IsNotFound(err) { // yet: whether there can be one, Create shows
		l.mu.Lock()
		defer l.mu.Unlock()
		l.holder = ""
		return record, raw, err
	}
	l.note(holder, err)
	return record, raw, err
}

func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	err := l.LeaseLock.Create(ctx, r)
	l.note(r.HolderIdentity, err)
	return err
}

func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	err := l.LeaseLock.Update(ctx, r)
	l.note(r.HolderIdentity, err)
	return err
}

// note records the result of a request. A conflict with another process is no problem.
func (l *lock) note(holder string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, context.Canceled):
	case err == nil:
		l.holder = holder
		if l.other != nil && holder != "" && holder != l.Identity() {
			l.other()
		}
		if l.problem != "" {
			l.log.Info("recovered access to the Lease", zap.String("lease", l.Describe()))
		}
		l.problem = ""
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
	default:
		l.forget()
		if l.problem == "" {
			l.log.Warn("the Lease cannot be read or written; trying again", zap.String("lease", l.Describe()), zap.Error(err))
		}
		l.problem = err.Error()
	}
}

func (l *lock) seen() (holder, problem string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder, l.problem
}
