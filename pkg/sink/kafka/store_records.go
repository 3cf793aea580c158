package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// own is what a transaction writes to the checkpoint's topic. The records belong to
// the client until all of them are acknowledged; if one is not, both are given up.
type own struct {
	records []kgo.Record // does not grow while the client has some
	acked   int          // of records; like producers counted by the client, one record at a time, before Flush returns

	// Of whatever the client writes in the transaction, the sink's records too.
	by        producer // of the latest that is acknowledged
	producers int      // how often it changed

	mu    sync.Mutex
	first error
}

type producer struct {
	id    int64
	epoch int16
}

// OnProduceRecordUnbuffered implements [kgo.HookProduceRecordUnbuffered].
func (o *own) OnProduceRecordUnbuffered(r *kgo.Record, err error) {
	if by := (producer{r.ProducerID, r.ProducerEpoch}); err == nil && (by != o.by || o.producers == 0) {
		o.by = by
		o.producers++
	}
}

// buffer hands the changes to the client, and behind them the record that says who
// wrote them.
func (s *Store) buffer(ctx context.Context, changes []event.KV) {
	o := s.writer.own
	o.records = slices.Grow(o.records, len(changes)+1)
	send := func(key, value []byte) {
		o.records = append(o.records, kgo.Record{Topic: s.topic, Key: key, Value: value})
		s.writer.client.Produce(ctx, &o.records[len(o.records)-1], o.written)
	}
	for i := range changes {
		send(changes[i].Key, changes[i].Value)
	}
	send([]byte(writerKey), []byte(s.run+" "+strconv.FormatUint(s.writer.n, 10)))
}

func (o *own) written(_ *kgo.Record, err error) {
	if err == nil {
		o.acked++
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.first = cmp.Or(o.first, err)
}

// awaitAcks waits until all of them are acknowledged. It returns the offsets of the first
// and the last. What the client wrote is then one transaction: it initialises its
// producer again after some errors, which aborts what went before, and returns no error.
func (w *writer) awaitAcks(ctx context.Context) (first, last int64, err error) {
	if w.client.BufferedProduceRecords() > 0 {
		err = w.client.Flush(ctx)
	}
	o := w.own
	o.mu.Lock()
	defer o.mu.Unlock()
	if err = cmp.Or(o.first, err); err != nil {
		return 0, 0, err
	}
	switch {
	case o.acked != len(o.records): // Flush does not wait for the word on a record that was never buffered
		return 0, 0, fmt.Errorf("%d of %d records were acknowledged", o.acked, len(o.records))
	case o.producers != 1:
		return 0, 0, fmt.Errorf("%d producers wrote the transaction, all but the last one's part is aborted", o.producers)
	}
	first, last = o.records[0].Offset, o.records[len(o.records)-1].Offset
	if first < 0 || last < 0 { // DUPLICATE_SEQUENCE_NUMBER, which the client takes for an acknowledgement
		return 0, 0, errors.New("the broker had the records already, and does not say where")
	}
	clear(o.records) // they hold on to the changes
	o.records, o.acked, o.producers = o.records[:0], 0, 0
	return first, last, nil
}
