package source_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// restartTimeout only ends a test that hangs. On a busy machine, an API server may need a minute to start.
const restartTimeout = 10 * time.Minute

// balancer is a TCP load balancer: it passes connections on to its servers in turn, and leaves out those that are down.
type balancer struct {
	listener net.Listener
	servers  []string // host:port

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	turn  int
	all   sync.WaitGroup
}

func (w *world) balance(clusters ...*clustertest.Cluster) *balancer {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	b := &balancer{listener: l, conns: map[net.Conn]struct{}{}}
	for _, c := range clusters {
		u, err := url.Parse(c.Server())
		w.must(err)
		b.servers = append(b.servers, u.Host)
	}
	b.all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			b.all.Go(func() { b.serve(client) })
		}
	})
	w.t.Cleanup(func() {
		l.Close()
		b.cut()
		b.all.Wait()
	})
	return b
}

func (b *balancer) serve(client net.Conn) {
	defer client.Close()
	b.mu.Lock()
	first := b.turn
	b.turn++
	b.mu.Unlock()
	for i := range b.servers {
		server, err := net.Dial("tcp", b.servers[(first+i)%len(b.servers)])
		if err != nil {
			continue
		}
		b.mu.Lock()
		b.conns[client], b.conns[server] = struct{}{}, struct{}{}
		b.mu.Unlock()
		b.all.Go(func() {
			_, _ = io.Copy(server, client) // the copy ends when one side closes its connection
			server.Close()
		})
		_, _ = io.Copy(client, server)
		b.mu.Lock()
		delete(b.conns, client)
		delete(b.conns, server)
		b.mu.Unlock()
		server.Close()
		return
	}
}

// cut ends all connections.
func (b *balancer) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		c.Close()
	}
}

// secondServer starts another API server for the ConfigMaps and namespaces of a cluster, with its credentials.
func secondServer(t *testing.T, first *clustertest.Cluster) *clustertest.Cluster {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "pki"), os.DirFS(filepath.Join(first.DataDir(), "pki"))); err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, resource := range []string{"configmaps", "namespaces"} {
		args = append(args, fmt.Sprintf("--etcd-servers-overrides=/%s#%s", resource, first.EtcdURL()))
	}
	return clustertest.Start(t, clustertest.Options{DataDir: dir, ExtraArgs: args})
}

// restartWorld is a world whose ConfigMaps are read through a balancer, by several collections.
type restartWorld struct {
	*world
	second   *clustertest.Cluster
	balancer *balancer
	signals  []*recorder
	written  int
}

// readers is the number of collections. There are many, because chance decides which server answers a request.
const readers = 20

// newRestartWorld starts collections that read through one server, which is the second one, or through both.
func newRestartWorld(t *testing.T, servers int) *restartWorld {
	t.Helper()
	first := clustertest.Start(t, clustertest.Options{})
	second := secondServer(t, first)
	w := &restartWorld{world: newWorld(t, first), second: second}
	ctx, cancel := context.WithTimeout(t.Context(), restartTimeout)
	t.Cleanup(cancel)
	w.ctx = ctx
	w.balancer = w.balance([]*clustertest.Cluster{second, first}[:servers]...)
	cfg := first.RESTConfig()
	cfg.Host = "https://" + w.balancer.listener.Addr().String()
	client := w.connect(cfg)
	for i := range readers {
		selection := event.Collection{LabelSelector: fmt.Sprintf("reader!=%d", i)} // different selectors, so that each collection has its own watch
		w.signals = append(w.signals, w.run(client, w.target(kube.ConfigMaps, selection)))
	}
	for _, r := range w.signals {
		w.await(r, "the first list", ended)
	}
	return w
}

// write changes something at the first server, which is never down, and returns the object's name.
func (w *restartWorld) write() string {
	w.t.Helper()
	w.written++
	name := fmt.Sprintf("o-%d", w.written)
	_, err := w.kube.Create(w.ctx, kube.ConfigMaps, name, nil)
	w.must(err)
	return name
}

// seen waits until all collections passed on an object, and returns how long that took.
func (w *restartWorld) seen(name string) time.Duration {
	w.t.Helper()
	began := time.Now()
	for _, r := range w.signals {
		w.await(r, name, func(s source.Signal) bool { return s.Object != nil && s.Object.Name == name })
	}
	return time.Since(began).Round(10 * time.Millisecond)
}

// lists returns the reasons of each collection's lists so far.
func (w *restartWorld) lists() (of [readers]string) {
	for i, r := range w.signals {
		for _, s := range r.all() {
			if s.Kind == source.ListBegun {
				of[i] += string(s.Reason) + " "
			}
		}
	}
	return of
}

// An API server has no history from before its start, so a collection must list to get earlier changes. After a restart, it must list exactly
// once, and soon.
func TestOneServerRestarts(t *testing.T) {
	t.Parallel()
	w := newRestartWorld(t, 1)
	w.seen(w.write())
	want := string(source.ReasonSnapshot) + " "
	for _, down := range []func() error{w.second.Stop, func() error { w.second.Kill(); return nil }} {
		w.must(down())
		name := w.write()
		w.must(w.second.Restart(w.ctx))
		t.Logf("what was written while the server was down came %s after it was ready", w.seen(name))
		w.seen(w.write())
		want += string(event.ReasonExpired) + " "
		for i, got := range w.lists() {
			if got != want {
				t.Errorf("collection %d had lists for %q, want %q", i, got, want)
			}
		}
	}
}

// If another API server continues, there is no gap: neither when one server stops, nor when it is back without history and
// connections reach either of them.
func TestOneOfTwoServersRestarts(t *testing.T) {
	t.Parallel()
	w := newRestartWorld(t, 2)
	w.seen(w.write())
	for _, down := range []func() error{w.second.Stop, func() error { w.second.Kill(); return nil }} {
		w.must(down())
		t.Logf("with one of two servers down, a write came after %s", w.seen(w.write()))
		w.must(w.second.Restart(w.ctx))
		w.balancer.cut()
		t.Logf("after connections were cut, a write came after %s", w.seen(w.write()))
	}
	for i, got := range w.lists() {
		if got != string(source.ReasonSnapshot)+" " {
			t.Errorf("collection %d had lists for %q, want the first one only", i, got)
		}
		for n := range w.written {
			if name := fmt.Sprintf("o-%d", n+1); w.signals[i].objects(source.Added)[name] == nil {
				t.Errorf("collection %d never passed on %s", i, name)
			}
		}
	}
}
