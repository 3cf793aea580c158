package nats

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/sinktest"
)

// newCore creates a sink whose log the test can read.
func newCore(t *testing.T, c Config) (*Core, *observer.ObservedLogs) {
	t.Helper()
	c.Delivery = atMostOnce
	core, logs := observer.New(zap.InfoLevel)
	s, err := New(Options{Config: c, Identity: testIdentity, Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // always nil
	return s.(*Core), logs
}

func listen(t *testing.T, b *bus, opts ...nats.Option) *nats.Subscription {
	t.Helper()
	nc := b.client(t, opts...).Conn()
	sub, err := nc.SubscribeSync("k8s.>")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

func hear(t *testing.T, sub *nats.Subscription, want string) {
	t.Helper()
	var got []string
	for range strings.Fields(want) {
		m, err := sub.NextMsg(2 * time.Minute)
		if err != nil {
			t.Fatalf("heard %q, want %q: %v", got, want, err)
		}
		got = append(got, strings.Trim(string(m.Data), `"`))
	}
	if v := strings.Join(got, " "); v != want {
		t.Errorf("heard %q, want %q", v, want)
	}
	if n, _, _ := sub.Pending(); n > 0 {
		t.Errorf("heard %q, and %d more", want, n)
	}
}

// Connected subscribers get everything in order, without JetStream. The log says what is not guaranteed.
func TestCoreDelivers(t *testing.T) {
	t.Parallel()
	b := startBus(t, func(o *server.Options) { o.JetStream = false })
	sub := listen(t, b)
	s, logs := newCore(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	if logs.FilterMessageSnippet("at-most-once").FilterLevelExact(zap.WarnLevel).Len() != 1 {
		t.Errorf("the log does not say at-most-once: %v", logs.All())
	}
	mustWrite(t, s, records(1, 3))
	mustWrite(t, s, records(2, 0))
	mustWrite(t, s, records(3, 2))
	hear(t, sub, "1/0 1/1 1/2 3/0 3/1")
	if n := s.Lost(); n != 0 {
		t.Errorf("%d records were counted as lost", n)
	}
}

// An outage must neither block the pipeline without end nor go unnoticed.
func TestCoreOutage(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s, logs := newCore(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 1))
	b.stop()
	began := time.Now()
	mustWrite(t, s, records(2, 4))
	if took := time.Since(began); took > coreWait+time.Minute {
		t.Errorf("Write took %v", took)
	}
	began = time.Now()
	mustWrite(t, s, records(3, 2)) // later batches do not wait again
	if took := time.Since(began); took >= coreWait {
		t.Errorf("the next Write took %v", took)
	}
	if n := s.Lost(); n != 6 {
		t.Errorf("%d records were counted as lost, want 6", n)
	}
	b.start(t)
	sub := listen(t, b)
	wait(t, "the connection", func() bool { return s.conn.nc.IsConnected() })
	mustWrite(t, s, records(4, 2))
	hear(t, sub, "4/0 4/1")
	if logs.FilterMessage("events cannot be sent and are lost").Len() != 1 {
		t.Error("the log does not say once that events are being lost")
	}
	if over := logs.FilterMessage("events were lost").All(); len(over) != 1 || over[0].ContextMap()["events"] != uint64(6) {
		t.Errorf("the log does not say that 6 events were lost: %v", over)
	}
}

// A stop must not wait for the bus.
func TestCoreObeysContext(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s, _ := newCore(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	b.stop()
	wait(t, "the loss of the connection", func() bool { return !s.conn.nc.IsConnected() })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := s.Write(ctx, records(1, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Write: %v", err)
	}
	if took := time.Since(began); took >= coreWait {
		t.Errorf("Write took %v", took)
	}
	b.start(t)
}

func TestCoreCountsWhatIsDenied(t *testing.T) {
	t.Parallel()
	b := startBus(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "a"},
			{Username: "bridge", Password: "b", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"k8s.test.core.secrets.>"}}}},
		}
	})
	sub := listen(t, b, nats.UserInfo("admin", "a"))
	s, logs := newCore(t, Config{URL: b.url(), Auth: Auth{Username: "bridge", Password: "b"}})
	mustOpen(t, s, nil)
	batch := records(1, 3)
	batch.Records[1].Route = "k8s.test.core.secrets.default.token"
	mustWrite(t, s, batch)
	hear(t, sub, "1/0 1/2")
	wait(t, "the denied record to be counted", func() bool { return s.Lost() == 1 })
	mustWrite(t, s, records(2, 1))
	if logs.FilterMessage("events were lost").Len() != 1 {
		t.Error("the log does not say that an event was lost")
	}
}

func TestCoreRecordErrors(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	sub := listen(t, b)
	s, _ := newCore(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	batch := records(1, 3)
	batch.Records[1].Value = make([]byte, 2<<20)
	_, err := s.Write(t.Context(), batch)
	var rec *sink.RecordError
	if !errors.As(err, &rec) || rec.Index != 1 || rec.Limit != server.MAX_PAYLOAD_SIZE {
		t.Fatalf("Write: %v, want a RecordError about record 1", err)
	}
	batch.Records[1] = records(1, 2).Records[1]
	mustWrite(t, s, batch)
	hear(t, sub, "1/0 1/1 1/2")
}

// The tests of the suite that need no outage pass for connected subscribers while the server runs.
func TestCoreSuite(t *testing.T) {
	sinktest.RunFormats(t, func(t *testing.T) *sinktest.Harness {
		b := startBus(t, nil)
		nc := b.client(t).Conn()
		sub, err := nc.SubscribeSync("k8s.>")
		if err == nil {
			err = errors.Join(sub.SetPendingLimits(-1, -1), nc.Flush())
		}
		if err != nil {
			t.Fatal(err)
		}
		var heard []sinktest.Message
		return &sinktest.Harness{
			New: func(t *testing.T) sink.Sink { s, _ := newCore(t, Config{URL: b.url()}); return s },
			Read: func(t *testing.T) []sinktest.Message {
				if err := nc.Flush(); err != nil { // the server answers after it has delivered everything
					t.Fatal(err)
				}
				for n, _, _ := sub.Pending(); n > 0; n-- {
					m, err := sub.NextMsg(2 * time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					headers := map[string]string{}
					for k := range m.Header {
						headers[k] = m.Header.Get(k)
					}
					heard = append(heard, sinktest.Message{Route: m.Subject, Value: m.Data, Headers: headers})
				}
				return heard
			},
			Route:  subject,
			Header: func(a event.Attribute) (name, value string) { return "ce-" + a.Name, event.EscapeHeader(a.Value) },
		}
	})
}
