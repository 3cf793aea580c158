package nats

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	deadRoot    = "kubebridge.test.bridge.live.dead"
	deadSubject = deadRoot + ".core.pods.default.web"
)

// Dead letters are in the pipeline's own stream, so a checkpoint that trails the stream also covers them. This includes a
// stream that was created before dead letters were configured.
func TestDeadLettersAreInTheStream(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	before := newSink(t, Config{URL: b.url()})
	mustOpen(t, before, nil)
	mark := mustWrite(t, before, records(1, 1))
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	c := Config{URL: b.url(), DeadLetter: &DeadLetter{}}
	s := newSink(t, c)
	mustOpen(t, s, mark)
	batch := records(2, 3)
	batch.Records[1].Route = deadSubject
	batch.Records[1].State = []event.KV{{Key: []byte("k"), Value: []byte("unpublished")}}
	mustWrite(t, s, batch)
	wantValues(t, b.read(t), "1/0 2/0 2/2") // a subscriber to events gets no dead letters
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := newSink(t, c)
	mustOpen(t, again, mark)
	found := false
	err := again.Tail(t.Context(), mark, func(state []event.KV, _ []byte) error {
		for _, kv := range state {
			found = found || string(kv.Key) == "k" && string(kv.Value) == "unpublished"
		}
		return nil
	})
	if err != nil || !found {
		t.Errorf("the tail has the dead letter: %t, %v", found, err)
	}
}

// If a stream of at-least-once delivery lacks the subject of dead letters, the sink reports it before anything is lost.
func TestSharedStreamLacksDeadLetters(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	if _, err := b.client(t).CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.test.>"}}); err != nil {
		t.Fatal(err)
	}
	s := newShared(t, Config{URL: b.url(), DeadLetter: &DeadLetter{}})
	if err := s.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "kubebridge.test.bridge.live.dead.>") {
		t.Errorf("Open: %v", err)
	}
}

// A pipeline that waits until a stream accepts a larger message continues when the limit is raised.
func TestStreamTakesMoreAgain(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		t.Run(delivery, func(t *testing.T) {
			b := startBus(t, func(*server.Options) {})
			js := b.client(t)
			limited := jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.test.>"}, MaxMsgSize: 2000}
			if _, err := js.CreateStream(t.Context(), limited); err != nil {
				t.Fatal(err)
			}
			s := newAny(t, testIdentity, Config{URL: b.url(), Delivery: delivery})
			mustOpen(t, s, nil)
			batch := records(1, 3)
			batch.Records[1].Value = []byte(strings.Repeat("x", 3000))
			var rec *sink.RecordError
			if _, err := s.Write(t.Context(), batch); !errors.As(err, &rec) || rec.Index != 1 || rec.Limit != 2000 {
				t.Fatalf("Write: %v", err)
			}
			reconfigure(t, js, streamName, func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 })
			mustWrite(t, s, batch)
			if n := len(b.read(t)); n != 3 {
				t.Errorf("%d messages", n)
			}
		})
	}
}
