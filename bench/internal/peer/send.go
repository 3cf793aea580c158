package peer

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Sender writes to a bus. Many records may be in flight. They stay in order as long as
// nothing fails.
type Sender interface {
	// Send may use key and value until it calls done. It may return the error of an
	// earlier record.
	Send(ctx context.Context, key, value []byte, done func()) error
}

// partitions is the number of partitions of the topic: the bridge's default.
const partitions = 12

// Limits of what is in flight.
const (
	bufferedBytes = 64 << 20
	batchBytes    = 1 << 20
	window        = 4096 // messages
)

type kafkaSender struct {
	client *kgo.Client
	topic  string
	failed chan error
}

// Kafka creates a topic, and returns a Sender that writes to it. Writes are idempotent
// and acknowledged by all replicas. The caller must close the client.
func Kafka(ctx context.Context, broker, topic string) (Sender, *kgo.Client, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedBytes(bufferedBytes),
		kgo.MaxBufferedRecords(20_000), kgo.ProducerBatchMaxBytes(batchBytes))
	if err != nil {
		return nil, nil, err
	}
	admin := kadm.NewClient(c)
	if _, err := admin.CreateTopic(ctx, partitions, -1, nil, topic); err != nil {
		c.Close()
		return nil, nil, fmt.Errorf("create topic %s: %w", topic, err)
	}
	return &kafkaSender{c, topic, make(chan error, 1)}, c, nil
}

func (s *kafkaSender) Send(ctx context.Context, key, value []byte, done func()) error {
	select {
	case err := <-s.failed:
		return err
	default:
	}
	s.client.Produce(ctx, &kgo.Record{Topic: s.topic, Key: key, Value: value}, func(_ *kgo.Record, err error) {
		done()
		if err != nil {
			select {
			case s.failed <- fmt.Errorf("produce: %w", err):
			default:
			}
		}
	})
	return nil
}

type natsSender struct {
	stream  jetstream.JetStream
	subject string
	sent    chan sent
}

type sent struct {
	future jetstream.PubAckFuture
	done   func()
}

// NATS creates a stream on disk, and returns a Sender that writes to a subject of the
// stream. The caller must close the connection.
func NATS(ctx context.Context, url, subject string) (Sender, *nats.Conn, error) {
	c, err := nats.Connect(url)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(c, jetstream.WithPublishAsyncMaxPending(window))
	if err == nil {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "RAW", Subjects: []string{"k8s.>"}})
	}
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return &natsSender{js, subject, make(chan sent, window)}, c, nil
}

func (s *natsSender) Send(ctx context.Context, _, value []byte, done func()) error {
	if len(s.sent) == cap(s.sent) {
		oldest := <-s.sent
		select {
		case <-oldest.future.Ok():
			oldest.done()
		case err := <-oldest.future.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f, err := s.stream.PublishMsgAsync(&nats.Msg{Subject: s.subject, Data: value})
	if err != nil {
		return err
	}
	s.sent <- sent{f, done}
	return nil
}
