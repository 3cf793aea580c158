package loop_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// docs/events.md, the rules for consumers: they ignore a collection whose incarnation is below the birth of the checkpoint. So after a checkpoint is
// lost, no collection continues in the incarnation that the stream has.
func TestLostCheckpointBeginsAgain(t *testing.T) {
	j, objects := startJetStream(t), newCluster()
	objects.write("web", false)
	during := func(store *file.Store, removed, wanted []string, until string) (incarnation uint64) {
		t.Helper()
		s, err := nats.New(nats.Options{Config: nats.Config{URL: j.url}, Identity: event.Identity{Bridge: "b", Cluster: "prod", ClusterUID: "c", Sink: "s"}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p := startTo(t, objects, s, store, reconcile.Properties{}, "k8s.prod.", wanted...)
		defer func() { p.kill(); <-p.done }()
		p.set(t, removed, wanted...)
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			p.seen.mu.Lock()
			found := slices.ContainsFunc(p.seen.lines, func(n line) bool { return n.Collection+" "+n.Type == until })
			p.seen.mu.Unlock()
			if found {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("no %s", until)
			}
		}
		p.stop()
		if err := <-p.done; err != nil {
			t.Fatal(err)
		}
		p.done <- nil
		for _, n := range p.seen.lines {
			if n.Collection == wanted[0] && n.Type == "synced" {
				incarnation = n.Incarnation
			}
		}
		return incarnation
	}
	before := during(memory(t), nil, []string{"pods", "secrets"}, "secrets synced")
	store := memory(t) // the former one is lost
	after := during(store, []string{"secrets"}, []string{"pods"}, "secrets closed")
	numbers, err := durable.LoadPlan(store)
	if err != nil {
		t.Fatal(err)
	}
	if after < numbers.Birth || after <= before {
		t.Errorf("pods are synced in incarnation %d, before in %d; the checkpoint's birth is %d", after, before, numbers.Birth)
	}
	lines := j.lines(t, "K8S_prod", "pods")
	want := []string{"k8s.prod.pods gap", "k8s.prod.pods present", "k8s.prod.pods synced"}
	if want = append(want, want...); !slices.Equal(lines, want) {
		t.Errorf("the stream has %q, want %q", lines, want)
	}
}
