package kafka_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// patience is how long a test waits for a write to succeed.
const patience = 5 * time.Minute

var identity = event.Identity{Bridge: "test", Cluster: "c", ClusterUID: "uid", Sink: "audit"}

// config returns a configuration without credentials.
func config(c *kafkatest.Cluster) kafka.Config {
	return kafka.Config{Brokers: c.Addrs(), Delivery: "at-least-once", Create: kafka.Create{Partitions: 4}}
}

func newSink(t *testing.T, c kafka.Config) *kafka.Sink {
	t.Helper()
	s, err := kafka.New(kafka.Options{Config: c, Identity: identity, Logger: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func openSink(t *testing.T, c kafka.Config) *kafka.Sink {
	t.Helper()
	s := newSink(t, c)
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// newTopic creates a topic for t.
func newTopic(t *testing.T, c *kafkatest.Cluster, partitions, replicas int, configs map[string]string) string {
	t.Helper()
	name := topicName(t, c)
	if err := c.CreateTopic(t.Context(), name, partitions, replicas, configs); err != nil {
		t.Fatal(err)
	}
	return name
}

// topicName returns a unique name. If a topic with it is created in an external Kafka, it is deleted at the end of t.
func topicName(t *testing.T, c *kafkatest.Cluster) string {
	name := "kubebridge-test-" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		if !c.Owned() {
			_ = c.DeleteTopic(context.Background(), name) // may not exist
		}
	})
	return name
}

// writer writes numbered records as the bridge does, and knows which records consumers must find.
type writer struct {
	t       *testing.T
	cluster *kafkatest.Cluster
	topic   string
	seq     uint64
	count   map[string]int
}

func newWriter(t *testing.T, c *kafkatest.Cluster, topic string) *writer {
	return &writer{t: t, cluster: c, topic: topic, count: map[string]int{}}
}

func record(topic, key, value string) event.Record {
	return event.Record{ID: value, Route: topic, Key: key, Value: []byte(value)}
}

// batch returns the next n records, of at least pad bytes, with 20 keys in turn.
func (l *writer) batch(n, pad int) *event.Batch {
	l.seq++
	b := &event.Batch{Seq: l.seq, Commit: event.Commit{Changes: position(l.seq)}}
	for i := range n {
		key := fmt.Sprintf("key-%d", i%20)
		l.count[key]++
		b.Records = append(b.Records, record(l.topic, key, fmt.Sprintf("%d-%s", l.count[key], strings.Repeat("x", pad))))
	}
	return b
}

// take withdraws the latest batch, which was not written.
func (l *writer) take(b *event.Batch) {
	for _, r := range b.Records {
		l.count[r.Key]--
	}
	l.seq--
}

// write calls Write until it succeeds, and returns the errors before. Each call has 25 seconds, unless the sink bounds the
// time itself.
func (l *writer) write(s sink.Sink, b *event.Batch) (errs []error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	began, limit := time.Now(), 25*time.Second
	if _, ok := s.(sink.Transactional); ok {
		limit = patience
	}
	for {
		attempt, end := context.WithTimeout(ctx, limit)
		_, err := s.Write(attempt, b)
		end()
		if err == nil {
			return errs
		}
		if errors.As(err, new(*sink.RecordError)) || errors.As(err, new(*sink.RefusedError)) || errors.Is(err, sink.ErrFenced) || errors.Is(err, sink.ErrReset) {
			l.t.Fatalf("batch %d: %v", b.Seq, err)
		}
		errs = append(errs, fmt.Errorf("after %v: %w", time.Since(began).Round(time.Millisecond), err))
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			l.t.Fatalf("batch %d was not taken in %s: %v", b.Seq, patience, errors.Join(errs...))
		}
	}
}

// during writes batches of n records until fault returns, and one more, and returns all errors.
func (l *writer) during(s sink.Sink, n int, fault func() error) (errs []error) {
	l.t.Helper()
	done := make(chan error, 1)
	go func() { done <- fault() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				l.t.Fatal(err)
			}
			return append(errs, l.write(s, l.batch(n, 100))...)
		default:
			errs = append(errs, l.write(s, l.batch(n, 100))...)
		}
	}
}

// check fails the test unless consumers find every record, in order per key, with at most repeats repeated ones.
func (l *writer) check(repeats int) {
	l.t.Helper()
	last := map[string]int{}
	for _, r := range read(l.t, l.cluster, l.topic) {
		key := string(r.Key)
		number, _, _ := strings.Cut(string(r.Value), "-")
		n, err := strconv.Atoi(number)
		if err != nil {
			l.t.Fatalf("record %.20q: %v", r.Value, err)
		}
		switch {
		case n == last[key]+1:
			last[key] = n
		case n > last[key]:
			l.t.Fatalf("%s: %d follows %d: a hole, or out of order", key, n, last[key])
		default:
			repeats--
		}
	}
	for key, want := range l.count {
		if last[key] != want {
			l.t.Fatalf("%s: %d records arrived, want %d", key, last[key], want)
		}
	}
	if repeats < 0 {
		l.t.Errorf("%d records too many were repeated", -repeats)
	}
}

func read(t *testing.T, c *kafkatest.Cluster, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	records, err := c.Read(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// wantError fails the test unless err is a temporary error that has all parts in one line.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	if errors.As(err, new(*sink.RecordError)) || errors.As(err, new(*sink.RefusedError)) {
		t.Errorf("%T: %v, want an error to be tried again", err, err)
	}
	wantWords(t, err, parts...)
}

// wantRefused fails the test unless Open returns a final error that has all parts.
func wantRefused(t *testing.T, c kafka.Config, parts ...string) {
	t.Helper()
	err := newSink(t, c).Open(t.Context(), nil)
	if !errors.As(err, new(*sink.RefusedError)) {
		t.Fatalf("Open: %v, want a RefusedError", err)
	}
	wantWords(t, err, parts...)
}

// wantRecordError fails the test unless err is about one record, and returns it.
func wantRecordError(t *testing.T, err error, index int) *sink.RecordError {
	t.Helper()
	var e *sink.RecordError
	if !errors.As(err, &e) || e.Index != index {
		t.Fatalf("Write: %v, want a RecordError about record %d", err, index)
	}
	return e
}

func wantWords(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q has more than one line", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
