package loop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// js is a NATS server with JetStream.
type js struct {
	jetstream.JetStream
	url string
}

func startJetStream(t *testing.T) js {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server is not ready")
	}
	nc, err := client.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	stream, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js{stream, fmt.Sprintf("nats://127.0.0.1:%d", srv.Addr().(*net.TCPAddr).Port)}
}

// lines returns the events of a collection in a stream, each with its subject in front.
func (j js) lines(t *testing.T, stream, collection string) (lines []string) {
	t.Helper()
	s, err := j.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		var n line
		if json.Unmarshal(m.Data, &n) == nil && n.Collection == collection {
			lines = append(lines, m.Subject+" "+n.Type)
		}
	}
	return lines
}

// docs/upgrade.md: another subject, or another name of the cluster, is closed on the old route and a reset on the new one. What ends on a subject that
// the stream does not have needs no closed, and must not hold anything up.
func TestAnotherSubject(t *testing.T) {
	for _, c := range []struct {
		name           string
		delivery       string
		cluster, after string // the names of the cluster
		subject        string // the first token of the subjects, afterwards
		named          bool   // the stream has one name
		removed        bool   // an operator replaces the subjects of the stream
		closed         bool
	}{
		{name: "subject", delivery: "exactly-once", after: "prod", subject: "events", closed: true},
		{name: "subject", delivery: "at-least-once", after: "prod", subject: "events", closed: true},
		{name: "subject that is removed from the stream", delivery: "exactly-once", after: "prod", subject: "events", removed: true},
		{name: "subject that is removed from the stream", delivery: "at-least-once", after: "prod", subject: "events", removed: true},
		{name: "cluster", delivery: "exactly-once", after: "other", subject: "k8s"},
		{name: "cluster", delivery: "at-least-once", after: "other", subject: "k8s"},
		{name: "cluster in one stream", delivery: "exactly-once", after: "other", subject: "k8s", named: true, closed: true},
		{name: "cluster in one stream", delivery: "at-least-once", after: "other", subject: "k8s", named: true, closed: true},
	} {
		t.Run(c.name+", "+c.delivery, func(t *testing.T) {
			j, store, objects := startJetStream(t), memory(t), newCluster()
			objects.write("web", false)
			run := func(cluster, root string) (stream string, during func(collections []string, until func() bool)) {
				config := nats.Config{URL: j.url, Delivery: c.delivery, Subject: root + ".{cluster}.{resource}.{name}"}
				if stream = config.StreamName(cluster); c.named {
					stream = "EVENTS"
					config.Stream.Name = stream
				}
				return stream, func(collections []string, until func() bool) {
					t.Helper()
					s, err := nats.New(nats.Options{Config: config, Identity: event.Identity{Bridge: "b", Cluster: cluster, ClusterUID: "c", Sink: "s"}})
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					p := startTo(t, objects, s, store, reconcile.Properties{}, root+"."+cluster+".", collections...)
					defer func() { p.kill(); <-p.done }()
					for deadline := time.Now().Add(30 * time.Second); !until(); time.Sleep(20 * time.Millisecond) {
						if time.Now().After(deadline) {
							for _, id := range collections {
								t.Errorf("%s: %s", id, strings.Join(j.lines(t, stream, id), "\n"))
							}
							t.FailNow()
						}
					}
					p.stop()
					if err := <-p.done; err != nil {
						t.Fatal(err)
					}
					p.done <- nil
				}
			}
			ids := []string{"pods", "secrets"}
			synced := func(stream, subject string) func() bool {
				return func() bool {
					for _, id := range ids {
						if _, err := j.Stream(t.Context(), stream); err != nil || !slices.Contains(j.lines(t, stream, id), subject+"."+id+" synced") {
							return false
						}
					}
					return true
				}
			}
			old := "k8s.prod"
			stream, during := run("prod", "k8s")
			during(ids, synced(stream, old))
			renewed := c.subject + "." + c.after
			next, during := run(c.after, c.subject)
			if s, err := j.Stream(t.Context(), next); err == nil {
				config := s.CachedInfo().Config
				if c.removed {
					config.Subjects = slices.DeleteFunc(config.Subjects, func(s string) bool { return s == old+".>" })
				}
				if c.delivery == "at-least-once" || c.removed {
					config.Subjects = append(config.Subjects, renewed+".>")
				}
				if _, err := j.UpdateStream(t.Context(), config); err != nil {
					t.Fatal(err)
				}
			}
			during(ids, synced(next, renewed))
			for _, id := range ids {
				lines := j.lines(t, next, id)
				if got := slices.Contains(lines, old+"."+id+" closed"); got != c.closed {
					t.Errorf("%s is closed on the old subject: %v, want %v:\n%s", id, got, c.closed, strings.Join(lines, "\n"))
				}
				want := []string{renewed + "." + id + " gap", renewed + "." + id + " present", renewed + "." + id + " synced"}
				if got := lines[max(0, len(lines)-3):]; !slices.Equal(got, want) {
					t.Errorf("%s has %q on the new subject, want %q", id, got, want)
				}
			}
		})
	}
}

// What is in doubt when the program ends is emitted again at the next start, on the route on which it began. If this route is gone by then, it needs no
// end, and its collection begins on the new route.
func TestInDoubtOnARouteThatIsGone(t *testing.T) {
	c, store := newCluster(), memory(t)
	c.write("web", false)
	p := startTo(t, c, &bus{fails: errors.New("down")}, store, reconcile.Properties{}, "old ", "pods")
	if err := <-p.done; err == nil {
		t.Fatal("the bus is down, and the program has ended without an error")
	}
	p.kill()
	if state, err := durable.Load(store); err != nil || !state.Drafts["pods"].Gap {
		t.Fatalf("no gap of pods is in doubt: %v", err)
	}
	b := &bus{refused: "old pods", missing: true}
	p = startTo(t, c, b, store, reconcile.Properties{}, "new ", "pods", "secrets")
	defer p.kill()
	wait(t, c, b, "pods", "secrets")
	p.stop()
	if err := <-p.done; err != nil {
		t.Fatal(err)
	}
	if state, err := durable.Load(store); err != nil || state.Records["pods"].Route != "new pods" || len(state.Drafts) > 0 {
		t.Errorf("%v: the route of pods is %q; %d drafts", err, state.Records["pods"].Route, len(state.Drafts))
	}
}

// A checkpoint on the bus may be written later than the records, which have its changes. It does not rely on a closed that is left out.
func TestChangesOfAClosedThatIsLeftOut(t *testing.T) {
	j, objects := startJetStream(t), newCluster()
	objects.write("web", false)
	objects.write("gone", false)
	during := func(root string, ids []string, do func(p *program, store *nats.Store)) {
		t.Helper()
		s, err := nats.New(nats.Options{
			Config:   nats.Config{URL: j.url, Subject: root + ".{cluster}.{resource}.{name}"},
			Identity: event.Identity{Bridge: "b", Cluster: "prod", ClusterUID: "c", Sink: "s"},
		})
		if err != nil {
			t.Fatal(err)
		}
		store := nats.NewStore(nats.StoreOptions{Sink: s.(*nats.Sink), Delay: time.Hour})
		p := startTo(t, objects, s, store, reconcile.Properties{}, root+".prod.", ids...)
		do(p, store)
		p.kill()
		<-p.done
		s.Close()
		store.Close()
	}
	await := func(p *program, subject string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !slices.Contains(j.lines(t, "K8S_prod", "pods"), subject); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("no %s", subject)
			}
		}
	}
	during("k8s", []string{"pods"}, func(p *program, _ *nats.Store) {
		for _, err := j.Stream(t.Context(), "K8S_prod"); err != nil; _, err = j.Stream(t.Context(), "K8S_prod") {
			time.Sleep(20 * time.Millisecond)
		}
		await(p, "k8s.prod.pods synced")
		p.stop()
		if err := <-p.done; err != nil {
			t.Fatal(err)
		}
		p.done <- nil
	})
	s, err := j.Stream(t.Context(), "K8S_prod")
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	config.Subjects = append(slices.DeleteFunc(config.Subjects, func(s string) bool { return s == "k8s.prod.>" }), "events.prod.>")
	if _, err := j.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	objects.write("gone", true)
	during("events", []string{"pods", "secrets", "nodes", "leases"}, func(p *program, _ *nats.Store) { await(p, "events.prod.pods gap") })
	during("events", []string{"pods", "secrets", "nodes", "leases"}, func(p *program, store *nats.Store) {
		await(p, "events.prod.pods synced")
		if n, err := durable.Count(store, "pods", 0); err != nil || n != 1 {
			t.Errorf("%v: the inventory has %d entries, want 1", err, n)
		}
	})
}
