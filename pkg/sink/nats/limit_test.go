package nats

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// fill creates durable consumers as a reader, until the server has no room for another.
func fill(t *testing.T, js jetstream.JetStream, memory bool) {
	t.Helper()
	for i := range 2000 {
		name := fmt.Sprintf("left-%d", i)
		_, err := js.CreateConsumer(t.Context(), streamName, jetstream.ConsumerConfig{Durable: name, MemoryStorage: memory, AckPolicy: jetstream.AckExplicitPolicy})
		if errors.Is(err, jetstream.ErrMaximumConsumersLimit) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the server allows any number of consumers")
}

// Readers that use up the server's limit of consumers stop neither the bridge nor a Reader: on a server of its own, with the
// accounts that `bridge rbac --bus` prints, and on the embedded server, where readers need no login.
func TestReadersUseUpConsumers(t *testing.T) {
	t.Parallel()
	accounts, err := (Config{URL: "nats://x"}).Accounts(testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	external := startBus(t, func(o *server.Options) {
		o.JetStreamLimits.DefaultMaxConsumers = 5
		if err := o.ProcessConfigString(accounts.ServerConfig("{user: bridge, password: b}", "{user: reader, password: r}")); err != nil {
			t.Fatal(err)
		}
	})
	for name, c := range map[string]struct {
		config Config
		reader []nats.Option
	}{
		"external": {Config{URL: external.url(), Auth: Auth{Username: "bridge", Password: "b"}}, []nats.Option{nats.UserInfo("reader", "r")}},
		"embedded": {embedded(t.TempDir()), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSink(t, c.config)
			mustOpen(t, s, nil)
			mark := mustWrite(t, s, records(1, 3))
			mustWrite(t, s, records(2, 2))
			address := func(s *Sink) string {
				if c.config.URL != "" {
					return c.config.URL
				}
				return s.ClientURL()
			}
			fill(t, client(t, address(s), c.reader...), false)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}

			s = newSink(t, c.config)
			mustOpen(t, s, mark)
			if c.config.Embedded != nil {
				found, err := s.lookUp(t.Context())
				if err != nil || found.state.Consumers != 0 || found.config.ConsumerLimits.InactiveThreshold != readerIdle {
					t.Errorf("%d consumers are left after the start, and unused ones are kept for %v: %v", found.state.Consumers, found.config.ConsumerLimits.InactiveThreshold, err)
				}
				fill(t, client(t, address(s)), true)
			}
			if got, err := tailOf(t, s, mark); got != "2/0 2/1" || err != nil {
				t.Errorf("Tail: %q, %v", got, err)
			}
			r, err := NewReader(t.Context(), ReaderOptions{Config: readerConfig(c.config, address(s)), Identity: testIdentity, Subjects: []string{"k8s.test.>"}})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var got []string
			err = r.Read(t.Context(), []sink.Range{{From: 1, To: r.Parts()[0].End}}, false, func(m *sink.Message) error {
				got = append(got, strings.Trim(string(m.Value), `"`))
				return nil
			})
			if all := strings.Join(got, " "); err != nil || all != "1/0 1/1 1/2 2/0 2/1" {
				t.Errorf("a reader reads %q, %v", all, err)
			}
			if at, err := r.At(t.Context(), time.Now().Add(-time.Hour)); err != nil || at[0] > 2 {
				t.Errorf("messages of the last hour begin at %v: %v", at, err)
			}
			mustWrite(t, s, records(3, 1))
		})
	}
}

// Readers without a login cannot take every connection that the embedded server allows: the bridge can still connect.
func TestReadersUseUpConnections(t *testing.T) {
	t.Parallel()
	s := newSink(t, embedded(t.TempDir()))
	mustOpen(t, s, nil)
	for n := 0; ; n++ {
		nc, err := nats.Connect(s.ClientURL(), nats.NoReconnect())
		if errors.Is(err, nats.ErrMaxAccountConnectionsExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if n > readerConnections {
			t.Fatalf("%d readers are connected", n)
		}
	}
	s.hangUp()
	if err := s.dialUnlessOpen(); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, s, records(1, 1))
}
