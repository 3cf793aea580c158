package nats

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// coreWait is how long Core waits for a connection, or for the server to have read a
// batch, before it gives the batch up.
const coreWait = 5 * time.Second

// Core is a [sink.Sink] for NATS without JetStream: at most once. Who listens gets
// an event, nobody keeps it. It never waits for long: what cannot be sent is counted
// and given up, and what may have been sent is not sent again.
type Core struct {
	link
	lost         atomic.Uint64
	logged       uint64 // how many of the lost events the log has
	deniedBefore uint64 // events that the server had denied before the last batch
	losing       error  // why the last batch could not be sent; nil: it was
}

var (
	_ sink.Sink  = (*Core)(nil)
	_ sink.Lossy = (*Core)(nil)
)

// Open connects, and says in the log what is not promised.
func (s *Core) Open(ctx context.Context, _ []byte) error {
	s.disconnect()
	if err := s.start(ctx); err != nil {
		s.disconnect()
		return err
	}
	s.log.Warn("delivery is at-most-once: events without a connected subscriber, and events that cannot be sent, are lost", zap.String("server", s.conn.address))
	return nil
}

// Write sends the batch and waits until the server has read it, for at most
// [coreWait] each for a connection and for the answer. It returns nil also when
// records were lost: see [Core.Lost].
func (s *Core) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.renew(); err != nil && s.conn == nil {
		return nil, err
	}
	msgs := make([]*nats.Msg, len(b.Records))
	for i := range b.Records { // nothing is sent before all are known to fit
		msgs[i] = s.names.compose(&b.Records[i])
		if _, err := s.checkMessage(msgs[i], &b.Records[i], 0); err != nil {
			err.Index = i
			return nil, err
		}
	}
	if len(msgs) == 0 {
		return nil, nil
	}
	s.deniedBefore = s.denied.Load()
	sent, err := s.send(ctx, msgs)
	if ctx.Err() != nil && sent == 0 {
		return nil, ctx.Err()
	}
	if err != nil {
		s.lost.Add(uint64(len(msgs)))
	}
	s.logLoss(err)
	return nil, nil
}

// Check returns an error without a connection, and from the first lost event until a batch is sent.
func (s *Core) Check(context.Context) error {
	if err := s.renew(); err != nil {
		return err
	}
	switch err := s.conn.connected(); {
	case err != nil:
		return err
	case s.losing != nil:
		return fmt.Errorf("the last events could not be sent, and are lost: %w", s.losing)
	case s.denied.Load() > s.deniedBefore:
		return fmt.Errorf("the last events were denied, and are lost: %w", s.conn.nc.LastError())
	}
	return nil
}

// send returns how many messages were passed to the connection. After an error it is unknown
// which messages the server has.
func (s *Core) send(ctx context.Context, msgs []*nats.Msg) (sent int, err error) {
	if err := s.connected(ctx); err != nil {
		return 0, err
	}
	for _, m := range msgs {
		if err := s.conn.publish(m); err != nil {
			return sent, err
		}
		sent++
	}
	ctx, cancel := context.WithTimeout(ctx, coreWait)
	defer cancel()
	return sent, s.conn.nc.FlushWithContext(ctx)
}

// connected waits for a connection, once per outage.
func (s *Core) connected(ctx context.Context) error {
	wait := coreWait
	if s.losing != nil {
		wait = 0
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	restored := s.conn.nc.StatusChanged(nats.CONNECTED)
	defer s.conn.nc.RemoveStatusListener(restored)
	for {
		err := s.conn.connected()
		if err == nil {
			return nil
		}
		select {
		case <-restored:
		case <-deadline.C:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// logLoss logs the begin of a loss of events, and at its end the number of lost events.
func (s *Core) logLoss(err error) {
	lost := s.Lost()
	switch {
	case err != nil && s.losing == nil:
		s.log.Warn("events cannot be sent and are lost", zap.String("server", s.conn.address), zap.Error(err))
	case err == nil && lost > s.logged:
		s.log.Warn("events were lost", zap.String("server", s.conn.address), zap.Uint64("events", lost-s.logged), zap.NamedError("last", s.conn.nc.LastError()))
		s.logged = lost
	}
	s.losing = err
}

// Lost returns the number of records that were not sent, or may not have been, since the sink
// was made. It may be called from any goroutine.
func (s *Core) Lost() uint64 { return s.lost.Load() + s.denied.Load() }
