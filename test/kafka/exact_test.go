package kafka_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	store "github.com/kubebridge/kubebridge/pkg/checkpoint/kafka"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// exactly is what a user without credentials gets who does not choose a delivery.
func exactly(c *kafkatest.Cluster) kafka.Config {
	conf := config(c)
	conf.Delivery = ""
	return conf
}

// transactional is called otherwise than its method.
type transactional = kafka.Transactional

// exact is a sink that delivers exactly once, with its checkpoint.
type exact struct {
	*transactional
	*journal
	options store.Options
}

// journal is the checkpoint, and a way into the middle of a transaction.
type journal struct {
	*store.Store
	amid func()
}

// Transact calls amid, once, when all records of a batch are written and nothing is committed.
func (j *journal) Transact(ctx context.Context, seq uint64, changes []event.KV, produce func(context.Context, *kgo.Client) error) error {
	if produce == nil {
		return j.Store.Transact(ctx, seq, changes, nil)
	}
	return j.Store.Transact(ctx, seq, changes, func(ctx context.Context, c *kgo.Client) error {
		err := produce(ctx, c)
		if amid := j.amid; amid != nil && err == nil {
			j.amid = nil
			amid()
		}
		return err
	})
}

func (x *exact) Open(ctx context.Context, mark []byte) error { return x.transactional.Open(ctx, mark) }

func (x *exact) Close() error { return errors.Join(x.transactional.Close(), x.Store.Close()) }

// bridge is the identity of one that nobody else is.
func bridge(t *testing.T, c *kafkatest.Cluster) event.Identity {
	id := identity
	id.Bridge = "test-" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		if !c.Owned() {
			_ = c.DeleteTopic(context.Background(), store.TopicFor("", id)) // may never have been made
		}
	})
	return id
}

// newExact takes the identity and the transactions' timeout from o.
func newExact(t *testing.T, c kafka.Config, o store.Options) *exact {
	t.Helper()
	o.Logger = zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	var err error
	o.Client, err = kafka.ClientOptions(c, o.Identity)
	must(t, err)
	s, err := store.New(o)
	must(t, err)
	j := &journal{Store: s}
	sink, err := kafka.NewTransactional(kafka.Options{Config: c, Identity: o.Identity, Logger: o.Logger}, j)
	must(t, err)
	x := &exact{sink, j, o}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return x
}

// openExact opens as a lane does.
func openExact(t *testing.T, c kafka.Config, o store.Options) *exact {
	t.Helper()
	x := newExact(t, c, o)
	must(t, x.Open(t.Context(), nil))
	must(t, x.Load(t.Context()))
	return x
}

func position(seq uint64) []event.KV {
	return []event.KV{{Key: []byte("p/pods"), Value: fmt.Appendf(nil, "at 1 %d", seq)}}
}

// checkExactly fails the test unless consumers find every record once, in order per key, and a restart the position that goes
// with the last.
func (l *lane) checkExactly(x *exact) {
	l.t.Helper()
	l.check(0)
	s, _, err := store.Look(l.t.Context(), x.options)
	must(l.t, err)
	defer s.Close()
	want := position(l.seq)[0]
	if got, err := s.Get(want.Key); err != nil || string(got) != string(want.Value) {
		l.t.Errorf("the position is %q (%v), want %q", got, err, want.Value)
	}
}
