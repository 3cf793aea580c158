package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/kubebridge/kubebridge/bench/internal/mark"
)

// NATS runs a NATS server with JetStream and its files below dir until ctx is
// cancelled. A plain subscription counts what is published. The stream accepts the same
// messages, because it does not reach its limits.
func NATS(ctx context.Context, t *mark.Tracker, dir string, ready func(url string) error) error {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, MaxPayload: maxMessage, NoSigs: true,
		JetStreamMaxMemory: 4 << 30, JetStreamMaxStore: 40 << 30, MaxPending: 512 << 20, WriteDeadline: time.Minute,
	})
	if err != nil {
		return err
	}
	s.Start()
	defer func() {
		s.Shutdown()
		s.WaitForShutdown()
	}()
	if !s.ReadyForConnections(10 * time.Second) {
		return errors.New("the NATS server is not ready in time")
	}
	c, err := nats.Connect(s.ClientURL(), nats.InProcessServer(s))
	if err != nil {
		return err
	}
	defer c.Close()
	sub, err := c.Subscribe("k8s.>", func(m *nats.Msg) { acknowledge(t, appendRecords(nil, m.Data)...) })
	if err != nil {
		return err
	}
	if err := errors.Join(sub.SetPendingLimits(-1, -1), c.Flush()); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if err := ready(s.ClientURL()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
