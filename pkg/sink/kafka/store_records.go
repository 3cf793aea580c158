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

// own has the records that a transaction writes to the checkpoint's topic. They belong to
// the client until all of them are acknowledged. If one record fails, records and client are discarded.
type own struct {
	records []kgo.Record // does not grow while the client has records
	acked   int          // acknowledged records; like producers, counted by the client, one record at a time, before Flush returns

	// For all records of the client in the transaction, including the sink's records.
	by        producer // the producer of the latest acknowledged record
	producers int      // how often by changed

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

// buffer passes the changes to the client, followed by the record that identifies the
// writer.
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

// awaitAcks waits until all records are acknowledged, and returns the offsets of the first
// and the last. It checks that all records are in one transaction: after some errors the client initialises its
// producer again, which aborts earlier records, without returning an error.
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
	case o.acked != len(o.records): // Flush does not wait for a record that was never buffered
		return 0, 0, fmt.Errorf("%d of %d records were acknowledged", o.acked, len(o.records))
	case o.producers != 1:
		return 0, 0, fmt.Errorf("%d producers wrote the transaction, all but the last one's part is aborted", o.producers)
	}
	first, last = o.records[0].Offset, o.records[len(o.records)-1].Offset
	if first < 0 || last < 0 { // DUPLICATE_SEQUENCE_NUMBER, which the client treats as an acknowledgement
		return 0, 0, errors.New("the broker had the records already, and does not say where")
	}
	clear(o.records) // they would keep the changes in memory
	o.records, o.acked, o.producers = o.records[:0], 0, 0
	return first, last, nil
}
