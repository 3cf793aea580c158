package kafka_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// exactly returns a configuration without credentials and with the default delivery.
func exactly(c *kafkatest.Cluster) kafka.Config {
	conf := config(c)
	conf.Delivery = ""
	return conf
}

// transactional and store are names for embedding, because the types' own names equal names of methods.
type (
	transactional = kafka.Transactional
	store         = kafka.Store
)

// exact is a sink with exactly-once delivery and its checkpoint.
type exact struct {
	*transactional
	*store
	*middle
	options kafka.StoreOptions
}

// middle is a hook of the client that lets a fault happen in the middle of a transaction.
type middle struct {
	mu    sync.Mutex   // locked while the fault happens
	after int          // number of acknowledged events after which the fault happens
	fault func() error // nil if it has happened
	err   error        // what the fault returned
}

// OnProduceRecordUnbuffered lets the fault happen once, when all events of a batch are acknowledged and the transaction is not committed.
func (m *middle) OnProduceRecordUnbuffered(r *kgo.Record, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.fault == nil || strings.HasPrefix(r.Topic, "kubebridge."): // the checkpoint's
		return
	case err != nil:
		m.after = batchRecords
		return
	}
	if m.after--; m.after == 0 {
		fault := m.fault
		m.fault = nil
		m.err = fault()
	}
}

// arm makes fault happen in the middle of the next batch of batchRecords. The write waits for it, so its context ends well before the
// patience of a write does.
func (m *middle) arm(ctx context.Context, fault func(context.Context) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.after, m.err = batchRecords, nil
	m.fault = func() error {
		bounded, end := context.WithTimeout(ctx, patience/2)
		defer end()
		return fault(bounded)
	}
}

// happened fails the test unless the fault has happened, without an error.
func (m *middle) happened(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		t.Fatal("there was no transaction for it to happen in")
	}
	must(t, m.err)
}

const batchRecords = 200

func (x *exact) Open(ctx context.Context, mark []byte) error { return x.transactional.Open(ctx, mark) }

func (x *exact) Commit(ctx context.Context, seq uint64, changes []event.KV) error {
	return x.transactional.Commit(ctx, seq, changes)
}

func (x *exact) Close() error { return errors.Join(x.transactional.Close(), x.store.Close()) }

// bridge returns a unique identity.
func bridge(t *testing.T, c *kafkatest.Cluster) event.Identity {
	id := identity
	id.Bridge = "test-" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		if !c.Owned() {
			_ = c.DeleteTopic(context.Background(), kafka.CheckpointTopic("", id)) // may not exist
		}
	})
	return id
}

// newExact makes a sink and its checkpoint with the identity and the transaction timeout of o.
func newExact(t *testing.T, c kafka.Config, o kafka.StoreOptions) *exact {
	t.Helper()
	m := &middle{}
	o.Logger, o.Config, o.Client = zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), c, []kgo.Opt{kgo.WithHooks(m)}
	s, err := kafka.NewStore(o)
	must(t, err)
	x := &exact{kafka.NewTransactional(s), s, m, o}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return x
}

// openExact opens as a pipeline does.
func openExact(t *testing.T, c kafka.Config, o kafka.StoreOptions) *exact {
	t.Helper()
	x := newExact(t, c, o)
	must(t, x.Open(t.Context(), nil))
	must(t, x.Load(t.Context()))
	return x
}

func position(seq uint64) []event.KV {
	return []event.KV{{Key: []byte("p/pods"), Value: fmt.Appendf(nil, "at 1 %d", seq)}}
}

// checkExactly fails the test unless consumers find every record once, in order per key, and a restart finds the position of
// the last record.
func (l *writer) checkExactly(x *exact) {
	l.t.Helper()
	l.check(0)
	s, _, err := kafka.ReadStore(l.t.Context(), x.options)
	must(l.t, err)
	defer s.Close()
	want := position(l.seq)[0]
	if got, err := s.Get(want.Key); err != nil || string(got) != string(want.Value) {
		l.t.Errorf("the position is %q (%v), want %q", got, err, want.Value)
	}
}
