package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ReadStream reads the messages that a NATS server has for [Subjects], from the sequence after the given one. If there is no such
// stream, there are none. Messages that are not valid events are left out and reported in the error.
func ReadStream(ctx context.Context, conn *nats.Conn, after uint64) (messages []Message, err error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	name, err := js.StreamNameBySubject(ctx, Subjects)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("look for the stream: %w", err)
	}
	consumer, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{Subjects}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
	})
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", name, err)
	}
	info := consumer.CachedInfo()
	if info.NumPending == 0 {
		return nil, nil
	}
	incoming, err := consumer.Messages()
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", name, err)
	}
	defer incoming.Stop()
	var wrong error
	for {
		raw, err := incoming.Next(jetstream.NextContext(ctx))
		if err != nil {
			return messages, fmt.Errorf("read stream %s: %w", name, err)
		}
		meta, err := raw.Metadata()
		if err != nil {
			return messages, err
		}
		m, err := fromNATS(raw.Subject(), raw.Headers(), raw.Data(), meta.Sequence.Stream)
		m.At = meta.Timestamp
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w: %.2000s", m.Place, err, m.Raw))
		} else {
			messages = append(messages, m)
		}
		if meta.NumPending == 0 {
			return messages, wrong
		}
	}
}

// FromCore converts a message of a subscription without JetStream. number counts the messages.
func FromCore(m *nats.Msg, number int) (Message, error) {
	message, err := fromNATS(m.Subject, m.Header, m.Data, uint64(number))
	message.At = time.Now()
	return message, err
}

// ReadCommitted reads every topic that begins with "k8s." up to its last stable offset, partition by partition. Messages that
// are not valid events are left out and reported in the error.
func (k *Kafka) ReadCommitted(ctx context.Context) ([]Message, error) {
	admin := kadm.NewClient(k.client)
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the topics: %w", err)
	}
	names := slices.DeleteFunc(topics.Names(), func(s string) bool { return !strings.HasPrefix(s, "k8s.") })
	if len(names) == 0 {
		return nil, nil
	}
	ends, err := committed(ctx, admin, names)
	if err != nil {
		return nil, fmt.Errorf("ask for the ends of the topics: %w", err)
	}
	from, left := map[string]map[int32]kgo.Offset{}, map[string]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			if from[o.Topic] == nil {
				from[o.Topic] = map[int32]kgo.Offset{}
			}
			from[o.Topic][o.Partition] = kgo.NewOffset().AtStart()
			left[partition(o.Topic, o.Partition)] = o.Offset
		}
	})
	if len(left) == 0 {
		return nil, nil
	}
	reader, err := kgo.NewClient(append(k.direct(), kgo.ConsumePartitions(from), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	if err != nil {
		return nil, fmt.Errorf("connect to kfake: %w", err)
	}
	defer reader.Close()
	read := map[string][]Message{}
	var wrong error
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: reading up to %v", context.Cause(ctx), left)
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			at := partition(p.Topic, p.Partition)
			end, ok := left[at]
			for _, r := range p.Records {
				if !ok || r.Offset >= end {
					break
				}
				if !r.Attrs.IsControl() {
					m, err := fromKafka(r)
					if err != nil {
						wrong = errors.Join(wrong, fmt.Errorf("%s: %w: %.2000s", m.Place, err, m.Raw))
					} else {
						read[at] = append(read[at], m)
					}
				}
				if r.Offset == end-1 {
					delete(left, at)
				}
			}
		})
	}
	var all []Message
	for _, name := range slices.Sorted(maps.Keys(read)) {
		all = append(all, read[name]...)
	}
	return all, wrong
}

// committed requests the last stable offsets. It retries while leaders move.
func committed(ctx context.Context, admin *kadm.Client, names []string) (kadm.ListedOffsets, error) {
	for {
		ends, err := admin.ListCommittedOffsets(ctx, names...)
		if err == nil {
			err = ends.Error()
		}
		if err == nil || !kerr.IsRetriable(err) {
			return ends, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Topics returns the topics that begin with "k8s.".
func (k *Kafka) Topics(ctx context.Context) ([]string, error) {
	topics, err := kadm.NewClient(k.client).ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the topics: %w", err)
	}
	return slices.DeleteFunc(topics.Names(), func(s string) bool { return !strings.HasPrefix(s, "k8s.") }), nil
}

// DeleteTopic deletes a topic. (kfake panics if one request is for two topics that do not exist any more.)
func (k *Kafka) DeleteTopic(ctx context.Context, name string) error {
	_, err := kadm.NewClient(k.client).DeleteTopic(ctx, name)
	return err
}

// MoveLeaders moves the leaders of partitions to random brokers.
func (k *Kafka) MoveLeaders() { k.cluster.ShufflePartitionLeaders() }
