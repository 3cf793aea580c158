package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/sinktest"
)

// records makes a batch of n records whose ids and values name the batch.
func records(seq uint64, n int) *event.Batch {
	b := &event.Batch{Seq: seq}
	for i := range n {
		id := fmt.Sprintf("%d/%d", seq, i)
		b.Records = append(b.Records, event.Record{
			ID: id, Route: subject, Value: []byte(`"` + id + `"`),
			State: []event.KV{{Key: []byte("k"), Value: []byte(id)}},
		})
	}
	return b
}

func mustOpen(t *testing.T, s sink.Sink, mark []byte) {
	t.Helper()
	if err := s.Open(t.Context(), mark); err != nil {
		t.Fatalf("Open: %v", err)
	}
}

func mustWrite(t *testing.T, s sink.Sink, b *event.Batch) []byte {
	t.Helper()
	mark, err := s.Write(t.Context(), b)
	if err != nil {
		t.Fatalf("Write of batch %d: %v", b.Seq, err)
	}
	return mark
}

// retry writes like a pipeline, as long as the error is one to be retried.
func retry(t *testing.T, s sink.Sink, b *event.Batch) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		mark, err := s.Write(ctx, b)
		if err == nil || errors.Is(err, sink.ErrFenced) || errors.Is(err, sink.ErrReset) || ctx.Err() != nil {
			return mark, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// values returns the ids with which the records of the batches were made.
func values(msgs []sinktest.Message) string {
	var all []string
	for _, m := range msgs {
		all = append(all, strings.Trim(string(m.Value), `"`))
	}
	return strings.Join(all, " ")
}

func wantValues(t *testing.T, got []sinktest.Message, want string) {
	t.Helper()
	if v := values(got); v != want {
		t.Errorf("the bus holds %q, want %q", v, want)
	}
}

func tailOf(t *testing.T, s *Sink, mark []byte) (string, error) {
	t.Helper()
	var got []string
	err := s.Tail(t.Context(), mark, func(state []event.KV, _ []byte) error {
		for _, kv := range state {
			got = append(got, string(kv.Value))
		}
		return nil
	})
	return strings.Join(got, " "), err
}

func wantPlain(t *testing.T, err error, parts ...string) {
	t.Helper()
	var refused *sink.RefusedError
	if err == nil || errors.As(err, &refused) || errors.Is(err, sink.ErrFenced) || errors.Is(err, sink.ErrReset) {
		t.Fatalf("got %v, want an error to be tried again", err)
	}
	wantText(t, err, parts...)
}

func wantRefused(t *testing.T, err error, parts ...string) {
	t.Helper()
	var refused *sink.RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want a refusal", err)
	}
	wantText(t, err, parts...)
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

// A route without permission to publish must be named soon, and must recover when the permission is granted. No part of its
// batch may be stored.
func TestDeniedPublish(t *testing.T) {
	t.Parallel()
	user := func(deny ...string) []*server.User {
		return []*server.User{
			{Username: "admin", Password: "a"},
			{Username: "bridge", Password: "b", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: deny}}},
		}
	}
	const denied = "k8s.test.core.secrets.default.token"
	b := startBus(t, func(o *server.Options) { o.Users = user(denied) })
	s := newSink(t, Config{URL: b.url(), Auth: Auth{Username: "bridge", Password: "b"}})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 2))

	for _, n := range []int{1, 3} {
		batch := records(2, n)
		batch.Records[n/2].Route = denied
		_, err := retryRoute(t, s, batch)
		wantPlain(t, err, "Permissions Violation", denied)
		var route *sink.RouteError
		if !errors.As(err, &route) || route.Route != denied || route.Index != n/2 {
			t.Errorf("got %v, want a RouteError about record %d", err, n/2)
		}
	}
	admin := nats.UserInfo("admin", "a")
	wantValues(t, b.read(t, admin), "1/0 1/1 2/0")

	// The pipeline removes the route's records, and the records behind them continue.
	rest := records(2, 3)
	rest.Records = slices.Delete(rest.Records, 1, 2)
	mustWrite(t, s, rest)
	wantValues(t, b.read(t, admin), "1/0 1/1 2/0 2/2")

	allowed := b.opts
	allowed.Users = user("nothing")
	if err := b.srv.ReloadOptions(&allowed); err != nil {
		t.Fatal(err)
	}
	batch := records(3, 3)
	batch.Records[1].Route = denied
	if _, err := retry(t, s, batch); err != nil {
		t.Fatal(err)
	}
	wantValues(t, b.read(t, admin), "1/0 1/1 2/0 2/2 3/0 3/1 3/2")
}

// retryRoute writes until the denied route is known.
func retryRoute(t *testing.T, s sink.Sink, b *event.Batch) ([]byte, error) {
	t.Helper()
	var all []error
	for range 20 {
		mark, err := s.Write(t.Context(), b)
		var route *sink.RouteError
		if err == nil || errors.As(err, &route) {
			return mark, err
		}
		all = append(all, err)
	}
	t.Fatalf("the denied route was never named: %v", all)
	return nil, nil
}

func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	b := startBus(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "bridge", Password: "right"}, {Username: "admin", Password: "a"}}
	})
	for _, c := range []struct {
		name   string
		config Config
	}{
		{"password", Config{URL: b.url(), Auth: Auth{Username: "bridge", Password: "hunter2"}}},
		{"none", Config{URL: b.url()}},
		{"token", Config{URL: b.url(), Auth: Auth{Token: "hunter2"}}},
		{"in the URL", Config{URL: strings.Replace(b.url(), "//", "//bridge:hunter2@", 1)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := newSink(t, c.config).Open(t.Context(), nil)
			wantRefused(t, err, b.url(), "credentials")
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %q shows the secret", err)
			}
		})
	}
	t.Run("changed later", func(t *testing.T) {
		s := newSink(t, Config{URL: b.url(), Auth: Auth{Username: "bridge", Password: "right"}})
		mustOpen(t, s, nil)
		mustWrite(t, s, records(1, 1))
		restart := func(password string) {
			b.stop()
			b.opts.Users = []*server.User{{Username: "bridge", Password: password}, {Username: "admin", Password: "a"}}
			b.start(t)
		}
		restart("other")
		var err error
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			if _, err = s.Write(t.Context(), records(2, 1)); err != nil && strings.Contains(err.Error(), "Authorization Violation") {
				break
			}
			time.Sleep(10 * time.Millisecond) // the pause of a pipeline
		}
		wantPlain(t, err, "Authorization Violation")
		restart("right")
		if _, err := retry(t, s, records(2, 1)); err != nil {
			t.Fatal(err)
		}
		wantValues(t, b.read(t, nats.UserInfo("admin", "a")), "1/0 2/0")
	})
}

func TestNoJetStream(t *testing.T) {
	t.Parallel()
	b := startBus(t, func(o *server.Options) { o.JetStream = false })
	wantPlain(t, newSink(t, Config{URL: b.url()}).Open(t.Context(), nil), "JetStream", streamName)
}

// A full stream that refuses new messages blocks the pipeline until there is room.
func TestStreamFull(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	js := b.client(t)
	limit := func(n int64) {
		reconfigure(t, js, streamName, func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = n, jetstream.DiscardNew })
	}
	limit(3) // one message is the record that began the term
	mustWrite(t, s, records(1, 1))
	_, err := s.Write(t.Context(), records(2, 5))
	wantPlain(t, err, streamName, "maximum messages exceeded")
	limit(100)
	if _, err := retry(t, s, records(2, 5)); err != nil {
		t.Fatal(err)
	}
	wantValues(t, b.read(t), "1/0 2/0 2/1 2/2 2/3 2/4")
}

// The maximum message size of the stream may be lowered while the sink runs.
func TestStreamTakesLess(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 1))
	js := b.client(t)
	reconfigure(t, js, streamName, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 })
	batch := records(2, 3)
	batch.Records[1].Value = []byte(strings.Repeat("x", 3000))
	_, err := s.Write(t.Context(), batch)
	wantPlain(t, err, streamName) // the server does not name the record
	_, err = s.Write(t.Context(), batch)
	var rec *sink.RecordError
	if !errors.As(err, &rec) || rec.Index != 1 || rec.Limit != 2000 || rec.Size <= 3000 {
		t.Fatalf("Write: %v, want a RecordError about record 1 and 2000 bytes", err)
	}
	batch.Records[1] = records(2, 2).Records[1]
	mustWrite(t, s, batch)
	wantValues(t, b.read(t), "1/0 2/0 2/1 2/2")
}

func TestRecordsThatCannotBeStored(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	for _, c := range []struct {
		name, want string
		change     func(r *event.Record)
	}{
		{"long subject", "1024", func(r *event.Record) { r.Route = "k8s.test." + strings.Repeat("x", 1100) }},
		{"empty token", "empty token", func(r *event.Record) { r.Route = "k8s.test..pods" }},
		{"wildcard", "wildcard", func(r *event.Record) { r.Route = "k8s.test.*.pods" }},
		{"space", "space", func(r *event.Record) { r.Route = "k8s.test.my pods" }},
		{"id", "headers", func(r *event.Record) { r.ID = strings.Repeat("x", 70_000) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			batch := records(1, 3)
			c.change(&batch.Records[2])
			_, err := s.Write(t.Context(), batch)
			var rec *sink.RecordError
			if !errors.As(err, &rec) || rec.Index != 2 || rec.Size != 0 || rec.Limit != 0 {
				t.Fatalf("Write: %v, want a RecordError about record 2 that size does not heal", err)
			}
			wantText(t, err, c.want)
		})
	}
	wantValues(t, b.read(t), "1/0 1/1") // the records before the refused one
	batch := records(2, 1)
	batch.Records[0].Route = "audit.pods" // an error of the routing, not of the record
	_, err := s.Write(t.Context(), batch)
	var rec *sink.RecordError
	if errors.As(err, &rec) {
		t.Errorf("Write: %v, want an error that is not about the record", err)
	}
	wantPlain(t, err, "audit.pods", "k8s.test.>")
	mustWrite(t, s, records(3, 1))
	wantValues(t, b.read(t), "1/0 1/1 3/0")
}

// The bytes of a server that does not speak NATS must lead to an error, not to a panic or a hang.
func TestNotNATS(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		c.Close()
	}()
	wantPlain(t, newSink(t, Config{URL: "nats://" + l.Addr().String()}).Open(t.Context(), nil), l.Addr().String())
	<-done
}

func copyDir(t *testing.T, to, from string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// A server may be configured to accept fewer messages at once than other servers.
func TestServerTakesSmallChunks(t *testing.T) {
	t.Parallel()
	b := startBus(t, func(o *server.Options) { o.JetStreamLimits.MaxBatchSize = 10 })
	s := newSink(t, b.withoutFastBatches(t))
	mustOpen(t, s, nil)
	if _, err := retry(t, s, records(1, 100)); err != nil {
		t.Fatal(err)
	}
	if n := len(b.read(t)); n != 100 {
		t.Errorf("the bus holds %d records, want 100", n)
	}
}
