package bus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kubebridge/kubebridge/bench/internal/mark"
)

// Partitions is the number of partitions of every topic.
const Partitions = 12

// Kafka runs a kfake broker until ctx is cancelled. It checks the records for topics
// that begin with "k8s.", and counts them when they are acknowledged; those of a
// transaction, when it is committed. It does not keep these records: kfake stores
// batches without records in their place. kfake itself does everything else:
// transactions, sequence numbers, the checkpoint's topic.
func Kafka(ctx context.Context, t *mark.Tracker, ready func(broker string) error) error {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.Produce), 12) // the last version whose requests have the names of topics
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(Partitions), kfake.AllowAutoTopicCreation(), kfake.MaxVersions(versions),
		kfake.BrokerConfigs(map[string]string{"message.max.bytes": fmt.Sprint(2 * maxMessage)}))
	if err != nil {
		return err
	}
	defer c.Close()
	b := broker{tracker: t, open: map[string]*transaction{}, crc: crc32.MakeTable(crc32.Castagnoli), decompressor: kgo.DefaultDecompressor()}
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, b.produce(r.(*kmsg.ProduceRequest)), false
	})
	c.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		b.end(r.(*kmsg.EndTxnRequest))
		return nil, nil, false
	})
	if err := ready(c.ListenAddrs()[0]); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// broker counts what is written. Only kfake's goroutine uses it.
type broker struct {
	tracker      *mark.Tracker
	open         map[string]*transaction // by transactional id
	crc          *crc32.Table
	decompressor kgo.Decompressor
}

// transaction has the records that a commit would write now. Its methods see requests
// before kfake does. So they must leave out the same records as kfake: those of an older
// epoch, those with a sequence number that it already has, and those that a newer epoch
// has aborted.
type transaction struct {
	producer int64
	epoch    int16
	next     map[string]int32 // sequence, by topic and partition
	records  []record
}

// add adds a batch to one partition.
func (t *transaction) add(partition string, batch *kmsg.RecordBatch, records []record) {
	switch {
	case batch.ProducerID != t.producer || batch.ProducerEpoch > t.epoch:
		*t = transaction{producer: batch.ProducerID, epoch: batch.ProducerEpoch, next: map[string]int32{}, records: t.records[:0]}
	case batch.ProducerEpoch < t.epoch || batch.FirstSequence < t.next[partition]:
		return
	}
	t.next[partition] = batch.FirstSequence + batch.NumRecords
	t.records = append(t.records, records...)
}

func (b *broker) transaction(id string) *transaction {
	if b.open[id] == nil {
		b.open[id] = &transaction{producer: -1}
	}
	return b.open[id]
}

func (b *broker) produce(r *kmsg.ProduceRequest) error {
	for i := range r.Topics {
		if !strings.HasPrefix(r.Topics[i].Topic, "k8s.") {
			continue
		}
		for j := range r.Topics[i].Partitions {
			p := &r.Topics[i].Partitions[j]
			batch, records, err := b.batch(p.Records)
			if err != nil {
				return fmt.Errorf("topic %s, partition %d: %w", r.Topics[i].Topic, p.Partition, err)
			}
			if batch.Attributes&0x10 != 0 {
				b.transaction(*r.TransactionID).add(fmt.Sprint(r.Topics[i].Topic, "/", p.Partition), batch, records)
			} else {
				acknowledge(b.tracker, records...)
			}
			p.Records = b.hollow(p.Records)
		}
	}
	return nil
}

func (b *broker) end(r *kmsg.EndTxnRequest) {
	t := b.transaction(r.TransactionalID)
	if r.ProducerID != t.producer || r.ProducerEpoch < t.epoch {
		return
	}
	if r.ProducerEpoch > t.epoch { // the records are of a transaction that kfake aborted when the epoch rose
		t.records = t.records[:0]
	}
	if r.Commit {
		acknowledge(b.tracker, t.records...)
		b.tracker.Commit()
	}
	t.records = t.records[:0]
}

var errBatch = errors.New("not a record batch")

// Offsets in the header of a batch (Kafka's message format 2).
const (
	lengthAt     = 8
	crcAt        = 17
	attributesAt = 21
	headerBytes  = 61
)

// hollow returns the header of a batch, with the count of its records, but without the records.
func (b *broker) hollow(batch []byte) []byte {
	h := append([]byte(nil), batch[:headerBytes]...)
	binary.BigEndian.PutUint32(h[lengthAt:], headerBytes-lengthAt-4)
	h[attributesAt+1] &^= 7 // not compressed
	binary.BigEndian.PutUint32(h[crcAt:], crc32.Checksum(h[attributesAt:], b.crc))
	return h
}

func (b *broker) batch(raw []byte) (batch *kmsg.RecordBatch, records []record, err error) {
	batch = new(kmsg.RecordBatch)
	if err := batch.ReadFrom(raw); err != nil {
		return nil, nil, err
	}
	if batch.CRC != int32(crc32.Checksum(raw[attributesAt:], b.crc)) {
		return nil, nil, fmt.Errorf("%w: wrong checksum", errBatch)
	}
	body := batch.Records
	if codec := batch.Attributes & 7; codec != 0 {
		if body, err = b.decompressor.Decompress(body, kgo.CompressionCodecType(codec)); err != nil {
			return nil, nil, err
		}
	}
	for range batch.NumRecords {
		n, rest, err := varint(body)
		if err != nil || int(n) > len(rest) || n < 1 {
			return nil, nil, errBatch
		}
		one := rest[1:n] // the first byte has the attributes
		body = rest[n:]
		for range 2 { // time and offset
			if _, one, err = varint(one); err != nil {
				return nil, nil, err
			}
		}
		var value []byte
		for range 2 { // key and value
			if n, one, err = varint(one); err != nil || int(n) > len(one) {
				return nil, nil, errBatch
			}
			value = one[:max(n, 0)]
			one = one[max(n, 0):]
		}
		records = appendRecords(records, value)
	}
	return batch, records, nil
}

func varint(b []byte) (int64, []byte, error) {
	v, n := binary.Varint(b)
	if n <= 0 {
		return 0, nil, errBatch
	}
	return v, b[n:], nil
}

// ConsumeKafka consumes committed records from an existing Kafka until ctx is cancelled,
// and counts those in topics that begin with "k8s.CLUSTER.". It counts transactions by
// the commits in the bridge's own topic, to which every transaction writes.
func ConsumeKafka(ctx context.Context, t *mark.Tracker, address, cluster string, ready func(broker string) error) error {
	const own = "kubebridge."
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeRegex(), kgo.KeepControlRecords(),
		kgo.ConsumeTopics(fmt.Sprintf("^(k8s|kubebridge[.]bench)[.]%s[.].*", cluster)), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMaxAge(250*time.Millisecond), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return fmt.Errorf("Kafka at %s: %w", address, err)
	}
	if err := ready(address); err != nil {
		return err
	}
	var records []record
	for ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			mine := strings.HasPrefix(r.Topic, own)
			switch {
			case r.Attrs.IsControl():
				if mine {
					t.Commit()
				}
			case !mine:
				records = appendRecords(records[:0], r.Value)
				acknowledge(t, records...)
			}
		})
	}
	return nil
}
