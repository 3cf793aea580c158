package nats

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// checking is a sink that can be asked whether its bus works.
type checking interface {
	sink.Sink
	Check(ctx context.Context) error
}

// A bus that is lost while there is nothing to write is found at once: a quiet cluster must not look healthy.
func TestCheckFindsALostConnection(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{exactlyOnce, atLeastOnce, atMostOnce} {
		b := startBus(t, nil)
		s := newAny(t, testIdentity, Config{URL: b.url(), Delivery: delivery}).(checking)
		mustOpen(t, s, nil)
		mustWrite(t, s, records(1, 1))
		must(t, s.Check(t.Context()))
		b.stop()
		wait(t, "the loss of the connection", func() bool {
			err := s.Check(t.Context())
			if err == nil {
				return false
			}
			wantPlain(t, err, "not connected to "+b.url())
			return true
		})
		b.start(t)
		wait(t, "the connection", func() bool { return s.Check(t.Context()) == nil })
		mustWrite(t, s, records(2, 1))
	}
}

// With at-most-once, a write succeeds although its events are lost. The sink fails from then on until the next event is sent.
func TestCoreFailsWhileEventsAreLost(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s, _ := newCore(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	b.stop()
	mustWrite(t, s, records(1, 1))
	b.start(t)
	wait(t, "the connection", func() bool { return s.conn.nc.IsConnected() })
	wantPlain(t, s.Check(t.Context()), "lost")
	mustWrite(t, s, records(2, 1))
	must(t, s.Check(t.Context()))
}

// The same holds for events that the server denies.
func TestCoreFailsWhileEventsAreDenied(t *testing.T) {
	t.Parallel()
	b := startBus(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "bridge", Password: "b", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"k8s.test.core.secrets.>"}},
		}}}
	})
	s, _ := newCore(t, Config{URL: b.url(), Auth: Auth{Username: "bridge", Password: "b"}})
	mustOpen(t, s, nil)
	batch := records(1, 1)
	batch.Records[0].Route = "k8s.test.core.secrets.default.token"
	mustWrite(t, s, batch)
	wait(t, "the denied record to be counted", func() bool { return s.Lost() == 1 })
	wantPlain(t, s.Check(t.Context()), "Permissions Violation", batch.Records[0].Route)
	mustWrite(t, s, records(2, 1))
	must(t, s.Check(t.Context()))
}

// The permission to get answers is taken away from a running bridge and given back. The error names the subject, and the
// bridge goes on without a restart.
func TestSubscribePermissionTakenAway(t *testing.T) {
	t.Parallel()
	with := func(denied ...string) []*server.User {
		return []*server.User{{Username: "bridge", Password: "b", Permissions: &server.Permissions{
			Subscribe: &server.SubjectPermission{Deny: append(denied, "nothing")},
		}}}
	}
	for _, delivery := range []string{exactlyOnce, atLeastOnce, atMostOnce} {
		for _, quiet := range []bool{false, true} { // while nothing is written
			t.Run(delivery, func(t *testing.T) {
				t.Parallel()
				b := startBus(t, func(o *server.Options) { o.Users = with() })
				s := newAny(t, testIdentity, Config{URL: b.url(), Delivery: delivery, Auth: Auth{Username: "bridge", Password: "b"}}).(checking)
				mustOpen(t, s, nil)
				mustWrite(t, s, records(1, 1))
				reload := func(users []*server.User) {
					o := b.opts
					o.Users = users
					must(t, b.srv.ReloadOptions(&o))
				}
				reload(with("_INBOX.>"))
				try := func() error { return s.Check(t.Context()) }
				if !quiet {
					try = func() error { _, err := s.Write(t.Context(), records(2, 1)); return err }
				}
				if quiet || delivery != atMostOnce { // which needs no answers to write
					wait(t, "the violation", func() bool {
						err := try()
						return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"_INBOX.`)
					})
				}
				reload(with())
				wait(t, "an answer", func() bool { return try() == nil })
				mustWrite(t, s, records(3, 1))
				if core, ok := s.(*Core); ok && core.Lost() > 0 {
					t.Errorf("%d events were counted as lost", core.Lost())
				}
			})
		}
	}
}

// If the server does not say that it has ended a subscription, requests without an answer show it.
func TestConnectsAgainWithoutAnswers(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 1))
	before := s.conn
	for range mostUnanswered {
		err := s.conn.doWithin(t.Context(), 1, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	mustWrite(t, s, records(2, 1))
	if s.conn == before {
		t.Error("it goes on over the same connection")
	}
}
