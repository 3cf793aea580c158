package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// newReplicas returns a world whose bridge may have several replicas: nothing is kept on disk.
func newReplicas(t *testing.T, name string) *world {
	t.Helper()
	w := newWorld(t, options{bus: name, types: []kube.Type{kube.ConfigMaps}})
	w.elects()
	return w
}

// elects lets the world's bridge have several replicas.
func (w *world) elects() {
	w.config.Checkpoint = map[string]any{}
	w.config.LeaderElection = map[string]any{"enabled": true, "namespace": w.ns}
	if w.kafka != nil {
		w.transactional = true
		w.config.Checkpoint = map[string]any{"kafka": map[string]any{"replicas": 1}}
		w.config.Sinks[0].Kafka["delivery"] = "exactly-once"
		w.onePartition()
	}
}

// leads waits until one of the bridges leads and is in step, and makes it the world's bridge.
func (w *world) leads(candidates ...*bridge.Process) {
	w.t.Helper()
	said := make([]string, len(candidates))
	for ctx := w.soon(); ; {
		for i, p := range candidates {
			s, err := p.Status(ctx)
			if said[i] = fmt.Sprintf("%+v (%v)", s, err); !p.Running() {
				w.t.Fatalf("a bridge that may lead has ended: %v", err)
			}
			if err == nil && s.Ready && s.Election.Role == "leader" && s.Election.Holder == s.Election.Identity && s.Find(w.collection(kube.ConfigMaps)).State == "watching" {
				w.bridge = p
				return
			}
		}
		select {
		case <-time.After(30 * time.Millisecond):
		case <-ctx.Done():
			w.t.Fatalf("%v: no bridge leads; /readyz says %s", context.Cause(ctx), strings.Join(said, "; "))
		}
	}
}

// waits waits until a bridge is a ready standby, and knows the leader.
func (w *world) waits(p *bridge.Process) {
	w.t.Helper()
	w.must(p.Await(w.soon(), func(s bridge.Status) bool {
		return s.Ready && s.Election.Role == "standby" && s.Election.Holder != "" && s.LeaderStatus != "" && s.Election.Holder != s.Election.Identity && len(s.Sinks) == 0
	}))
}

// replica starts one more bridge with the world's configuration.
func (w *world) replica() *bridge.Process {
	w.t.Helper()
	w.run()
	return w.bridge
}

// pair starts two replicas: the first leads, the second waits.
func (w *world) pair() (leader, standby *bridge.Process) {
	w.t.Helper()
	leader = w.replica()
	w.leads(leader)
	standby = w.replica()
	w.waits(standby)
	w.bridge = leader
	return leader, standby
}

// load changes objects until stop is called, which fails the test if there was an error.
func (w *world) load(objects int) (stop func()) {
	w.t.Helper()
	w.bulk(kube.ConfigMaps, "load", objects)
	ctx := w.within(3 * patience)
	done, result := make(chan struct{}), make(chan error, 1)
	go func() {
		for round := 0; ; round++ {
			select {
			case <-done:
				result <- nil
				return
			default:
			}
			if _, err := w.kube.Patch(ctx, kube.ConfigMaps, fmt.Sprintf("load-%d", round%objects), change(fmt.Sprint(round))); err != nil {
				result <- err
				return
			}
		}
	}()
	return func() {
		w.t.Helper()
		close(done)
		w.must(<-result)
	}
}

// takenOver logs how long it takes until a new change is on the bus.
func (w *world) takenOver(what string, since time.Time) {
	w.t.Helper()
	w.published(w.create(kube.ConfigMaps, fmt.Sprintf("mark-%x", time.Now().UnixNano())))
	w.t.Logf("%s: events are published again after %v", what, time.Since(since).Round(10*time.Millisecond))
}

// The leader is killed under load. The standby continues after the last event of the dead leader on the bus.
func TestStandbyTakesOverFromTheDead(t *testing.T) {
	for _, name := range buses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newReplicas(t, name)
			leader, standby := w.pair()
			stop := w.load(40)
			before := w.count()
			w.onBus("the load", func(all []bus.Message) bool { return len(all) > before+50 })
			leader.Kill()
			w.takenOver("kill -9", time.Now())
			w.leads(standby)
			stop()
			w.repeated(w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}}), false)
		})
	}
}

// A rolling update stops the leader under load, several times. Each leader publishes the events that it has read before it releases
// the Lease, and the standby takes over at once.
func TestStandbyTakesOverFromTheStopped(t *testing.T) {
	t.Parallel()
	w := newReplicas(t, busNATS)
	leader, standby := w.pair()
	stop := w.load(40)
	for range 4 {
		before := w.count()
		w.onBus("the load", func(all []bus.Message) bool { return len(all) > before+20 })
		signalled := time.Now()
		leader.Signal(syscall.SIGTERM)
		w.takenOver("SIGTERM", signalled)
		w.exits(leader, 0)
		says(t, leader.Log(), "stopped: everything published is committed")
		w.leads(standby)
		leader = standby
		standby = w.replica()
		w.waits(standby)
	}
	w.bridge = leader
	stop()
	w.repeated(w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}}), false)
	// A standby stops at once, and publishes nothing.
	standby.Signal(syscall.SIGTERM)
	w.exits(standby, 0)
}

// A leader that is paused for longer than its Lease does not know this when it resumes, with events to publish. The bus rejects
// them, and the bridge becomes a standby in the same process.
func TestPausedLeaderIsFenced(t *testing.T) {
	for _, name := range buses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newReplicas(t, name)
			leader, standby := w.pair()
			stop := w.load(40)
			before := w.count()
			w.onBus("the load", func(all []bus.Message) bool { return len(all) > before+20 })
			leader.Signal(syscall.SIGSTOP)
			w.takenOver("SIGSTOP", time.Now())
			w.leads(standby)
			leader.Signal(syscall.SIGCONT)
			w.waits(leader)
			for _, line := range strings.Split(leader.Log(), "\n") {
				if strings.Contains(line, "no longer the leader") {
					t.Log(line)
				}
			}
			// The former leader has not released the new leader's Lease, and it can lead again.
			w.leads(standby)
			w.bridge = leader
			standby.Signal(syscall.SIGTERM)
			w.exits(standby, 0)
			w.leads(leader)
			stop()
			w.repeated(w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}}), false)
		})
	}
}

// A leader that cannot reach the API server cannot know whether it still leads. It stops writing before another one may begin,
// and is a standby when it reaches the API server again.
func TestLeaderWithoutAPIServerStepsDown(t *testing.T) {
	t.Parallel()
	w := newReplicas(t, busNATS)
	direct := w.config.Kubernetes
	toCluster := w.proxyToCluster()
	w.kubeconfig(func(*api.Config) {})
	leader := w.replica()
	w.leads(leader)
	w.config.Kubernetes = direct
	standby := w.replica()
	w.waits(standby)
	w.bridge = leader
	w.settle(kube.ConfigMaps)

	cut := time.Now()
	toCluster.Refuse()
	w.must(leader.Await(w.soon(), func(s bridge.Status) bool {
		return s.Election.Role == "standby" && !s.Ready && s.Election.Problem != "" && len(s.Sinks) == 0
	}))
	w.awaitLog("stopping at once")
	t.Logf("stepped down after %v", time.Since(cut).Round(10*time.Millisecond))
	w.takenOver("API server unreachable", cut)
	w.leads(standby)
	toCluster.Pass()
	w.waits(leader)
	standby.Kill()
	w.leads(leader)
	w.repeated(w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}}), false)
}

// Bridges of other names have Leases of their own.
func TestElectionsOfTwoBridges(t *testing.T) {
	t.Parallel()
	w := newReplicas(t, busNATS)
	one := w.replica()
	w.leads(one)
	w.config.Name = "another"
	w.config.Sinks = []bridge.Sink{{Name: "audit", NATS: map[string]any{
		"url": "nats://" + w.proxy.Addr(), "subject": "other.{cluster}.{group}.{resource}.{namespace}.{name}",
		"stream": map[string]any{"name": "OTHER"},
	}}}
	other := w.replica()
	w.leads(other)
	w.leads(one)
	other.Kill()
	w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
	s, err := one.Status(w.soon())
	w.must(err)
	if !s.Ready || s.Election.Role != "leader" || s.Election.Holder != s.Election.Identity || strings.Contains(one.Log(), "no longer the leader") {
		t.Errorf("the first bridge: %+v", s)
	}
}

// Without permission for Leases a bridge waits, and its error names the missing permission.
func TestElectionWithoutPermission(t *testing.T) {
	t.Parallel()
	w := newReplicas(t, busNATS)
	w.config.LeaderElection["namespace"] = w.ns + "-absent"
	w.run()
	w.awaitStatus(func(s bridge.Status) bool {
		return !s.Ready && s.Election.Role == "standby" && strings.Contains(s.Election.Problem, w.ns+"-absent")
	})
	w.create(kube.ConfigMaps, "unpublished")
	w.stop()
	if n := w.count(); n != 0 {
		t.Errorf("%d messages on the bus", n)
	}
}
