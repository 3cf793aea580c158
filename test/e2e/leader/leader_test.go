// Package leader_test tests internal/operate/leader against a real kube-apiserver.
package leader_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/operate/leader"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/faultproxy"
	"github.com/kubebridge/kubebridge/test/paralleltest"
)

// patience bounds every wait for something that should happen soon.
const patience = 45 * time.Second

// times of an election.
type times struct{ lease, deadline, retry time.Duration }

var (
	// short leaves two seconds for a leader to stop in.
	short = times{5 * time.Second, 2500 * time.Millisecond, 200 * time.Millisecond}
	// longLease and longRetry are longer than patience, for tests that must not wait for these times.
	longLease = times{150 * time.Second, 2 * patience, 200 * time.Millisecond}
	longRetry = times{150 * time.Second, 2 * patience, patience + 15*time.Second}
)

var cluster *clustertest.Cluster

func TestMain(m *testing.M) {
	paralleltest.Raise(4)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, m)
	stop()
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	if cluster, err = clustertest.Launch(ctx, clustertest.Options{}); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, cluster.Close()
}

// election is one Lease, and what those who want it do.
type election struct {
	t      *testing.T
	ctx    context.Context // ends when patience does
	name   string
	times  times
	leases coordinationclient.LeaseInterface

	mu      sync.Mutex
	leading string // who leads
	terms   []string
	changed chan struct{}
}

func newElection(t *testing.T, o times) *election {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	client, err := coordinationclient.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return &election{t: t, ctx: ctx, times: o, name: fmt.Sprintf("l%x", time.Now().UnixNano()), leases: client.Leases("default"), changed: make(chan struct{})}
}

// candidate is a running candidate of an election.
type candidate struct {
	*leader.Elector
	metrics prometheus.Gatherer
	stop    func() error  // ends it, and returns what Run returned
	end     chan<- error  // ends its present term
	lost    chan struct{} // one for each term that ended because the Lease was lost
}

// runs starts a candidate, which stops at the end of the test at the latest.
func (e *election) runs(name string, cfg *rest.Config) *candidate {
	e.t.Helper()
	registry := prometheus.NewRegistry()
	elector, err := leader.New(leader.Options{
		Client: cfg, Namespace: "default", Name: e.name,
		LeaseDuration: e.times.lease, RenewDeadline: e.times.deadline, RetryPeriod: e.times.retry,
		Log: zap.NewNop(), Metrics: registry,
	})
	if err != nil {
		e.t.Fatal(err)
	}
	end, done := make(chan error), make(chan error, 1)
	c := &candidate{Elector: elector, metrics: registry, end: end, lost: make(chan struct{}, 10)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.ctx))
	go func() {
		done <- elector.Run(ctx, func(held context.Context) error {
			e.begins(name)
			defer e.ends(name)
			select {
			case <-held.Done():
				c.lost <- struct{}{}
				return errors.New("of a term that was lost")
			case err := <-end:
				return err
			case <-ctx.Done():
				return nil
			}
		})
	}()
	c.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	e.t.Cleanup(func() { _ = c.stop() })
	return c
}

func (e *election) begins(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leading != "" {
		e.t.Errorf("%s leads while %s does", name, e.leading)
	}
	e.leading = name
	e.terms = append(e.terms, name)
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *election) ends(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leading == name {
		e.leading = ""
	}
}

// leads waits until the n-th term has begun, and returns the candidate that leads.
func (e *election) leads(n int) string {
	e.t.Helper()
	for {
		e.mu.Lock()
		changed, terms := e.changed, e.terms
		e.mu.Unlock()
		if len(terms) >= n {
			return terms[n-1]
		}
		select {
		case <-changed:
		case <-e.ctx.Done():
			e.t.Fatalf("no candidate has begun term %d, only %v", n, terms)
		}
	}
}

// becomes waits until a candidate shows a role, and a holder other than itself exactly as a standby.
func (e *election) becomes(c *candidate, role string) {
	e.t.Helper()
	e.until(fmt.Sprintf("it is %s", role), func() bool {
		s := c.Status()
		return s.Role == role && s.Holder != "" && (s.Holder == s.Identity) == (role == leader.Leader)
	})
}

// gauge returns the value of kubebridge_leader.
func (c *candidate) gauge(t *testing.T) float64 {
	t.Helper()
	families, err := c.metrics.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "kubebridge_leader" {
		t.Fatalf("metrics %v: %v", families, err)
	}
	return families[0].GetMetric()[0].GetGauge().GetValue()
}

func (e *election) until(what string, is func() bool) {
	e.t.Helper()
	for !is() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-e.ctx.Done():
			e.t.Fatalf("waiting until %s", what)
		}
	}
}

// holder returns the holder of the Lease according to the API server.
func (e *election) holder() string {
	e.t.Helper()
	l, err := e.leases.Get(e.ctx, e.name, metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func (e *election) lost(c *candidate) {
	e.t.Helper()
	select {
	case <-c.lost:
	case <-e.ctx.Done():
		e.t.Fatal("the term has not ended")
	}
}

// Of three candidates, exactly one leads at any time.
func TestOneLeads(t *testing.T) {
	t.Parallel()
	e := newElection(t, short)
	all := map[string]*candidate{}
	for _, name := range []string{"a", "b", "c"} {
		all[name] = e.runs(name, cluster.RESTConfig())
	}
	for n := 1; n <= 3; n++ {
		name := e.leads(n)
		e.becomes(all[name], leader.Leader)
		for other, c := range all {
			if other != name {
				e.becomes(c, leader.Standby)
			}
		}
		if got := all[name].gauge(t); got != 1 {
			t.Errorf("kubebridge_leader is %v at the leader", got)
		}
		if err := all[name].stop(); err != nil {
			t.Error(err)
		}
		if got := all[name].gauge(t); got != 0 {
			t.Errorf("kubebridge_leader is %v after its end", got)
		}
		if s := all[name].Status(); s.Role != leader.Standby {
			t.Errorf("after its end: %+v", s)
		}
		delete(all, name)
	}
	if h := e.holder(); h != "" {
		t.Errorf("the last one has left the Lease with %q", h)
	}
}

// A leader that stops releases the Lease, and a standby notices it without waiting for the Lease's expiry or for its own next
// attempt.
func TestReleaseIsNoticed(t *testing.T) {
	t.Parallel()
	e := newElection(t, longRetry)
	a := e.runs("a", cluster.RESTConfig())
	e.leads(1)
	b := e.runs("b", cluster.RESTConfig())
	e.becomes(b, leader.Standby)
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	if got := e.leads(2); got != "b" {
		t.Errorf("%s leads", got)
	}
}

// What ends a leader that holds the Lease is the program's end, and the next one's turn.
func TestLeaderFails(t *testing.T) {
	t.Parallel()
	e := newElection(t, short)
	a := e.runs("a", cluster.RESTConfig())
	e.leads(1)
	b := e.runs("b", cluster.RESTConfig())
	e.becomes(b, leader.Standby)
	failure := errors.New("wrong credentials")
	a.end <- failure
	if got := e.leads(2); got != "b" {
		t.Errorf("%s leads", got)
	}
	if err := a.stop(); !errors.Is(err, failure) {
		t.Errorf("it ended with %v", err)
	}
}

// A leader that finds another in the Lease stops at once and takes nothing from that one, also where it failed before it
// could see it: that is no failure of the program.
func TestAnotherTookTheLease(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		fail bool
	}{{"seen", false}, {"failed first", true}} {
		t.Run(test.name, func(t *testing.T) {
			e := newElection(t, longLease)
			a := e.runs("a", cluster.RESTConfig())
			e.leads(1)
			e.hold("usurper")
			if test.fail {
				select {
				case a.end <- errors.New("fenced"):
				case <-a.lost: // it was faster
					a.lost <- struct{}{}
				}
			} else {
				e.lost(a)
			}
			e.becomes(a, leader.Standby)
			if h := e.holder(); h != "usurper" {
				t.Errorf("the Lease is held by %q", h)
			}
			e.hold("")
			e.leads(2)
			if err := a.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A leader whose clock is an hour ahead or behind, or jumps between the two, keeps the Lease for as long as it renews it, and
// no longer: clocks are not compared.
func TestClocksDisagree(t *testing.T) {
	t.Parallel()
	offsets := map[string][]time.Duration{"ahead": {time.Hour}, "behind": {-time.Hour}, "jumping": {time.Hour, -time.Hour}}
	held := map[string]*election{}
	for name := range offsets {
		e := newElection(t, short)
		held[name] = e
		seconds := int32(short.lease.Seconds())
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: e.name}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds}}
		if _, err := e.leases.Create(e.ctx, lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		e.holdAt("other", offsets[name][0])
		e.becomes(e.runs(name, cluster.RESTConfig()), leader.Standby)
	}
	began := time.Now()
	for n := 0; time.Since(began) < short.lease+short.lease/4; n++ {
		for name, e := range held {
			e.holdAt("other", offsets[name][n%len(offsets[name])])
		}
		time.Sleep(short.retry)
	}
	for name, e := range held {
		e.mu.Lock()
		if len(e.terms) > 0 {
			t.Errorf("%s: a standby has begun while the leader renewed", name)
		}
		e.mu.Unlock()
	}
	for _, e := range held {
		e.leads(1)
	}
}

// hold writes a holder into the Lease: another's name, as happens while its leader is paused, or none.
func (e *election) hold(holder string) { e.holdAt(holder, 0) }

// holdAt does so by a clock that is off.
func (e *election) holdAt(holder string, off time.Duration) {
	e.t.Helper()
	e.until("the Lease is written", func() bool {
		l, err := e.leases.Get(e.ctx, e.name, metav1.GetOptions{})
		if err != nil {
			e.t.Fatal(err)
		}
		now := metav1.NewMicroTime(time.Now().Add(off))
		l.Spec.HolderIdentity, l.Spec.RenewTime = &holder, &now
		_, err = e.leases.Update(e.ctx, l, metav1.UpdateOptions{})
		return err == nil
	})
}

// Deleting the Lease does not end the leader.
func TestLeaseIsDeleted(t *testing.T) {
	t.Parallel()
	e := newElection(t, short)
	a := e.runs("a", cluster.RESTConfig())
	e.leads(1)
	if err := e.leases.Delete(e.ctx, e.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.until("it is there again", func() bool {
		_, err := e.leases.Get(e.ctx, e.name, metav1.GetOptions{})
		return err == nil
	})
	if h := e.holder(); h != a.Status().Identity {
		t.Errorf("it is held by %q", h)
	}
	if len(a.lost) > 0 {
		t.Error("the term has ended")
	}
}

// behindProxy is the way to the API server through a proxy.
func behindProxy(t *testing.T) (*faultproxy.Proxy, *rest.Config) {
	t.Helper()
	cfg := cluster.RESTConfig()
	server, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := faultproxy.Start(server.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	cfg = rest.CopyConfig(cfg)
	cfg.Host = "https://" + proxy.Addr()
	return proxy, cfg
}

// A leader that cannot renew has stopped before another begins (begins checks that), and leads again when the other has left.
func TestLeaderIsCutOff(t *testing.T) {
	t.Parallel()
	e := newElection(t, short)
	proxy, cfg := behindProxy(t)
	a := e.runs("a", cfg)
	e.leads(1)
	b := e.runs("b", cluster.RESTConfig())
	e.becomes(b, leader.Standby)
	proxy.Refuse()
	e.lost(a)
	if got := e.leads(2); got != "b" {
		t.Errorf("%s leads", got)
	}
	e.until("it says what is wrong", func() bool { return a.Status().Problem != "" })
	proxy.Pass()
	e.until("it is well", func() bool { return a.Status().Problem == "" })
	e.becomes(a, leader.Standby)
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	if got := e.leads(3); got != "a" {
		t.Errorf("%s leads", got)
	}
}

// A half-open connection costs one attempt, not the leadership.
func TestLeaderOnDeadConnection(t *testing.T) {
	t.Parallel()
	e := newElection(t, short)
	proxy, cfg := behindProxy(t)
	a := e.runs("a", cfg)
	e.leads(1)
	renewed := func() time.Time {
		l, err := e.leases.Get(e.ctx, e.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return l.Spec.RenewTime.Time
	}
	for range 2 {
		before := time.Now()
		proxy.Silence()
		e.until("it renews over another connection", func() bool { return renewed().After(before.Add(short.deadline / 2)) })
	}
	if len(a.lost) > 0 {
		t.Error("the lead was lost")
	}
}

// A note has one writer: the process that holds the Lease. What somebody else has written is not replaced before it was read, and the
// metadata that others gave the ConfigMap stays.
func TestNote(t *testing.T) {
	t.Parallel()
	e := newElection(t, longLease)
	a := e.runs("a", cluster.RESTConfig())
	e.leads(1)
	b := e.runs("b", cluster.RESTConfig())
	e.becomes(b, leader.Standby)
	ofA, ofB := a.Note(e.name+"-note"), b.Note(e.name+"-note")
	reads := func(n *leader.Note, want string) {
		t.Helper()
		if got, err := n.Read(e.ctx); err != nil || string(got) != want {
			t.Errorf("read %q, want %q: %v", got, want, err)
		}
	}
	writes := func(n *leader.Note, content string, want error) {
		t.Helper()
		if err := n.Write(e.ctx, []byte(content)); !errors.Is(err, want) {
			t.Errorf("write %q: %v, want %v", content, err, want)
		}
	}
	reads(ofB, "")
	writes(ofB, "of a standby", leader.ErrNotLeader)
	writes(ofA, "one", nil)
	writes(ofA, "two", nil)
	reads(ofB, "two")

	maps, err := coreclient.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := maps.ConfigMaps("default").Patch(e.ctx, e.name+"-note", types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"a"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	writes(ofA, "three", leader.ErrChanged)
	reads(ofA, "two")
	writes(ofA, "three", nil)

	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	e.leads(2)
	writes(ofA, "of a former leader", leader.ErrNotLeader)
	reads(ofB, "three")
	writes(ofB, "four", nil)
	if got, err := maps.ConfigMaps("default").Get(e.ctx, e.name+"-note", metav1.GetOptions{}); err != nil || got.Labels["team"] != "a" {
		t.Errorf("the labels are gone: %v, %v", got, err)
	}
	if err := maps.ConfigMaps("default").Delete(e.ctx, e.name+"-note", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	writes(ofB, "five", leader.ErrChanged)
	reads(ofB, "")
	writes(ofB, "five", nil)
	reads(ofB, "five")
}
