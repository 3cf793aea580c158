package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/busreader"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// routesBus is a bus with one topic or subject for each route.
type routesBus struct {
	sink, canary string // of the configuration
	send         func(route string, value []byte) error
}

func kafkaRoutes(t *testing.T) routesBus {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "k8s.stable", "k8s.canary"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	c, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return routesBus{
		`kafka: {brokers: ["` + cluster.ListenAddrs()[0] + `"], topic: k8s.stable, delivery: at-least-once}`,
		"topic: k8s.canary",
		func(route string, value []byte) error {
			return c.ProduceSync(t.Context(), &kgo.Record{Topic: "k8s." + route, Value: value}).FirstErr()
		},
	}
}

func natsRoutes(t *testing.T) routesBus {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("NATS server is not ready")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"k8s.>"}}); err != nil {
		t.Fatal(err)
	}
	return routesBus{
		`nats: {url: "` + s.ClientURL() + `", stream: {name: S}, subject: "k8s.x.{resource}.{namespace}.{name}", delivery: at-least-once}`,
		`subject: "k8s.x.two.{resource}.{namespace}.{name}"`,
		func(route string, value []byte) error {
			_, err := js.Publish(t.Context(), map[string]string{"stable": "k8s.x.deployments.shop.web", "canary": "k8s.x.two.deployments.shop.web"}[route], value)
			return err
		},
	}
}

// TestServeRemovedEntry: an entry with a topic or subject of its own is removed, and serve starts with the new configuration before the bridge has closed
// the entry's collection. The bridge does that on the old route, which is in no entry any more. Otherwise the resource stays as it was, without
// an end.
func TestServeRemovedEntry(t *testing.T) {
	for name, open := range map[string]func(*testing.T) routesBus{"kafka": kafkaRoutes, "nats": natsRoutes} {
		for _, alone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, alone %v", name, alone), func(t *testing.T) {
				b := open(t)
				all := []string{"deployments.apps", "deployments.apps:canary"}
				if alone {
					all = all[1:]
				}
				edits, n := map[string]uint64{}, uint64(0)
				put := func(collection string, e event.Event) {
					t.Helper()
					n++
					c := event.ParseCollection(collection)
					e.Collection, e.Time, e.Epoch, e.Run, e.Incarnation, e.Origin = &c, time.Unix(int64(1000+n), 0), 1, "1", 1, event.Snapshot
					e.Plan = &event.Plan{Number: uint64(1 + len(all) - len(edits)), Edit: 1, Birth: 1, Digest: event.PlanDigest(edits)}
					encoder := event.Encoder{Cluster: "x", ClusterUID: "c", Format: event.Structured}
					route := "stable"
					if strings.HasSuffix(collection, ":canary") {
						route = "canary"
					}
					if err := b.send(route, event.Structured.Append(nil, encoder.Attributes(&e), &e)); err != nil {
						t.Fatal(err)
					}
				}
				synced := func(collection, version string, nth uint64) {
					t.Helper()
					put(collection, event.Event{Type: event.Synced, ResourceVersion: version, Nth: nth, Report: &event.Report{Reason: event.ReasonReset, To: version}})
				}
				for _, c := range all {
					edits[c] = 1
				}
				for _, c := range all {
					put(c, event.Event{Type: event.Gap, Report: &event.Report{Reason: event.ReasonReset, Reset: true}})
					synced(c, "20", 1)
				}
				dir := t.TempDir()
				keepCopy(t, dir, "resources: [{resource: deployments.apps, name: canary, "+b.canary+"}, deployments.apps]\nsinks: [{name: a, "+b.sink+"}]\ncheckpoint: {file: {path: /x}}", func(r *mirror.Resource) bool {
					at, err := r.Latest()
					return err == nil && at.Version == 20 && len(r.Collections) == len(all)
				})

				keepCopy(t, dir, "resources: [deployments.apps]\nsinks: [{name: a, "+b.sink+"}]\ncheckpoint: {file: {path: /x}}", func(r *mirror.Resource) bool {
					if _, sent := edits["deployments.apps:canary"]; sent { // it has begun with the new configuration
						delete(edits, "deployments.apps:canary")
						put("deployments.apps:canary", event.Event{Type: event.Closed, Report: &event.Report{Reason: "removed"}})
						if !alone {
							synced("deployments.apps", "30", 2)
						}
					}
					at, err := r.Latest()
					if alone {
						return errors.Is(err, mirror.ErrAbsent)
					}
					return err == nil && at.Version == 30 && r.Complete && len(r.Collections) == 1
				})
			})
		}
	}
}

// keepCopy keeps a copy in a directory, with a configuration, until the resource deployments.apps is as it must be.
func keepCopy(t *testing.T, dir, text string, until func(r *mirror.Resource) bool) {
	t.Helper()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m, err := mirror.Open(s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	p := parsePast(t, text)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- busreader.Run(ctx, busreader.Options{
			Mirror: m, Cluster: "x", Log: zaptest.NewLogger(t), Open: func(ctx context.Context) (sink.Reader, error) { return p.follow(ctx, m) },
		})
	}()
	for {
		committed := m.Commits()
		if r := m.Resource(store.Resource{Cluster: "x", Name: "deployments.apps"}); r != nil && until(r) {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			return
		}
		select {
		case <-committed:
		case err := <-done:
			t.Fatalf("the copy is %+v (%v)", m.Resource(store.Resource{Cluster: "x", Name: "deployments.apps"}), err)
		}
	}
}
