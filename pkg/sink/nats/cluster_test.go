package nats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// startCluster starts three servers that form a cluster.
func startCluster(t *testing.T) []*bus {
	t.Helper()
	ports := make([]int, 3) // each server needs the ports of the others before it starts
	var routes []*url.URL
	for i := range ports {
		ports[i] = freePort(t)
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", ports[i])})
	}
	var nodes []*bus
	for i, port := range ports {
		nodes = append(nodes, startBus(t, func(o *server.Options) {
			o.ServerName = fmt.Sprintf("n%d", i)
			o.Cluster = server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port}
			o.Routes = routes
		}))
	}
	wait(t, "a meta leader", func() bool {
		for _, b := range nodes {
			if b.srv.JetStreamIsLeader() && b.srv.JetStreamIsCurrent() && len(b.srv.JetStreamClusterPeers()) == 3 {
				return true
			}
		}
		return false
	})
	return nodes
}

func urls(nodes []*bus) string {
	var all []string
	for _, b := range nodes {
		all = append(all, b.url())
	}
	return strings.Join(all, ",")
}

// leaderOf returns the leader of a stream, or nil while there is none.
func leaderOf(nodes []*bus, stream string) *bus {
	for _, b := range nodes {
		if b.srv.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
			return b
		}
	}
	return nil
}

func stepDown(t *testing.T, js jetstream.JetStream, stream string) {
	t.Helper()
	if _, err := js.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, 5*time.Second); err != nil {
		t.Fatal(err)
	}
}

func wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}

// The leader of a replicated stream steps down and dies, and a second writer takes over in the middle. Nothing is lost,
// repeated or out of order.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	t.Parallel()
	nodes := startCluster(t)
	config := Config{URL: urls(nodes), Stream: Stream{Replicas: 3}}
	s := newSink(t, config)
	wait(t, "the stream", func() bool { return s.Open(t.Context(), nil) == nil })

	var acked atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		for seq := uint64(1); ; seq++ {
			if err := writeUntilDone(ctx, s, records(seq, 40)); err != nil {
				ended <- err
				return
			}
			acked.Add(1)
		}
	}()
	progress := func() {
		t.Helper()
		before := acked.Load()
		wait(t, "batches to be acknowledged", func() bool { return acked.Load() > before+3 || len(ended) > 0 })
	}
	progress()
	js := client(t, config.URL)
	leader := func() *bus { return leaderOf(nodes, streamName) }
	for range 2 {
		old := leader()
		stepDown(t, js, streamName)
		wait(t, "a new leader", func() bool { l := leader(); return l != nil && l != old })
		progress()
	}
	dead := leader()
	dead.stop()
	progress()
	dead.start(t)
	progress()

	next := newSink(t, config)
	wait(t, "the successor to open", func() bool { return next.Open(t.Context(), nil) == nil })
	var tailed []string
	wait(t, "the tail", func() bool { // a reader on the server that has just come back may get nothing at first
		tailed = nil
		err := next.Tail(t.Context(), nil, func(state []event.KV, _ []byte) error {
			tailed = append(tailed, string(state[0].Value))
			return nil
		})
		if errors.Is(err, sink.ErrReset) {
			t.Fatal(err)
		}
		return err == nil
	})
	if err := <-ended; !errors.Is(err, sink.ErrFenced) {
		t.Fatalf("the predecessor ended with %v, want ErrFenced", err)
	}
	if n := acked.Load() * 40; int64(len(tailed)) < n {
		t.Errorf("the successor sees %d records, %d were acknowledged", len(tailed), n)
	}
	for i, got := range tailed {
		if want := fmt.Sprintf("%d/%d", i/40+1, i%40); got != want {
			t.Fatalf("record %d is %s, want %s: lost, repeated or out of order", i, got, want)
		}
	}
	last := records(100_000, 2)
	if err := writeUntilDone(ctx, next, last); err != nil {
		t.Fatal(err)
	}
	wantValues(t, read(t, js)[len(tailed):], "100000/0 100000/1")
}

func writeUntilDone(ctx context.Context, s sink.Sink, b *event.Batch) error {
	for {
		_, err := s.Write(ctx, b)
		if err == nil || errors.Is(err, sink.ErrFenced) || errors.Is(err, sink.ErrReset) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// The leader of a shared stream steps down and dies. Nothing is lost, the order of each subject is kept, and the server
// recognizes messages that are sent again within the duplicate window.
func TestSharedCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	t.Parallel()
	nodes := startCluster(t)
	s := newShared(t, Config{URL: urls(nodes), Stream: Stream{Replicas: 3}})
	wait(t, "the stream", func() bool { return s.Open(t.Context(), nil) == nil })
	js := client(t, s.config.URL)
	var all []*event.Batch
	write := func(n int) {
		t.Helper()
		for range n {
			b := spread(uint64(len(all)+1), 300, 50)
			if _, err := retry(t, s, b); err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
	}
	leader := func() *bus { return leaderOf(nodes, streamName) }
	write(3)
	for range 2 {
		stepDown(t, js, streamName)
		write(3) // while there may be no leader
	}
	wait(t, "a leader", func() bool { return leader() != nil })
	dead := leader()
	dead.stop()
	write(3)
	dead.start(t)
	write(3)
	if n := perSubject(t, read(t, js), all...); n > 0 {
		t.Errorf("%d messages are there twice", n)
	}
}
