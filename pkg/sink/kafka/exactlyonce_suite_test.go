package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/sinktest"
)

// owned is a transactional sink with the store whose writer it is.
type owned struct {
	*Transactional
	store *Store
}

func (o *owned) Close() error {
	err := o.Transactional.Close()
	if e := o.store.Close(); err == nil {
		err = e
	}
	return err
}

func newExact(t *testing.T, c Config) *owned {
	t.Helper()
	c.Delivery = exactlyOnce
	log := zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	s, err := NewStore(StoreOptions{Options: Options{Config: c, Identity: identity, Logger: log}})
	if err != nil {
		t.Fatal(err)
	}
	return &owned{NewTransactional(s), s}
}

// openExact opens a sink like a pipeline. The sink is closed when the test ends.
func openExact(t *testing.T, c Config) *owned {
	t.Helper()
	x := newExact(t, c)
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if err := x.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := x.store.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x
}

// consumeCommitted reads what a read_committed consumer sees of a topic, in order within each partition.
func (b *bus) consumeCommitted(t *testing.T, topic string) []consumed {
	t.Helper()
	ends := map[int32]int64{}
	offsets := map[int32]kgo.Offset{}
	for _, p := range b.PartitionInfos(topic) {
		if p.LastStableOffset > 0 {
			ends[p.Partition] = p.LastStableOffset
			offsets[p.Partition] = kgo.NewOffset().AtStart()
		}
	}
	if len(ends) == 0 {
		return nil
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	byPartition := map[int32][]consumed{}
	for len(ends) > 0 {
		fetches := c.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatalf("consume %s: %v", topic, err)
		}
		for _, r := range fetches.Records() {
			if r.Offset >= ends[r.Partition]-1 {
				delete(ends, r.Partition)
			}
			if r.Attrs.IsControl() {
				continue
			}
			m := consumed{key: r.Key, time: r.Timestamp}
			m.Message = sinktest.Message{Route: topic, Key: string(r.Key), Partition: int(r.Partition), Value: r.Value, Headers: map[string]string{}}
			for _, h := range r.Headers {
				m.Headers[h.Key] = string(h.Value)
			}
			byPartition[r.Partition] = append(byPartition[r.Partition], m)
		}
	}
	var all []consumed
	for _, p := range b.PartitionInfos(topic) {
		all = append(all, byPartition[p.Partition]...)
	}
	return all
}

func TestTransactionalSuite(t *testing.T) {
	suite(t, true, func(t *testing.T, b *bus) sink.Sink { return newExact(t, b.config()) }, (*bus).consumeCommitted)
}
