package nats

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// padded returns the records of spread, each with the given number of bytes.
func padded(seq uint64, n, bytes int) *event.Batch {
	b := spread(seq, n, 5)
	for i := range b.Records {
		b.Records[i].Attributes = append(b.Records[i].Attributes, event.Attribute{Name: "padding", Value: string(make([]byte, bytes))})
	}
	return b
}

// The server's disk is full, or the stream is full and refuses new messages. The pipeline is blocked, the error says why, and
// nothing is missing, repeated or out of order once there is room.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		says   string
		change func(*server.Options)
		limit  func(t *testing.T, js jetstream.JetStream) // after the stream was made
		relief func(t *testing.T, js jetstream.JetStream)
	}{
		{
			"max store", "insufficient",
			func(o *server.Options) { o.JetStreamMaxStore = 2 << 20 },
			func(t *testing.T, js jetstream.JetStream) { hog(t, js, 6) },
			freeHog,
		},
		{
			"max bytes", "maximum bytes exceeded", nil,
			func(t *testing.T, js jetstream.JetStream) { resize(t, js, 256<<10) },
			func(t *testing.T, js jetstream.JetStream) { resize(t, js, 8<<20) },
		},
	} {
		for _, delivery := range []string{exactlyOnce, atLeastOnce} {
			t.Run(c.name+" "+delivery, func(t *testing.T) {
				t.Parallel()
				b := startBus(t, c.change)
				js := b.client(t)
				s := newAny(t, testIdentity, Config{URL: b.url(), Delivery: delivery})
				mustOpen(t, s, nil)
				c.limit(t, js)
				var all []*event.Batch
				for {
					next := padded(uint64(len(all)+1), 40, 1000)
					all = append(all, next)
					_, err := s.Write(t.Context(), next)
					if err != nil {
						wantPlain(t, err, streamName) // the server does not answer a chunk that it abandons half-way
						break
					}
					if len(all) == 100 {
						t.Fatal("it took everything")
					}
				}
				for range 2 {
					_, err := s.Write(t.Context(), all[len(all)-1])
					wantPlain(t, err, streamName, c.says)
				}
				c.relief(t, js)
				if _, err := retry(t, s, all[len(all)-1]); err != nil {
					t.Fatal(err)
				}
				last := padded(uint64(len(all)+1), 40, 1000)
				mustWrite(t, s, last)
				if n := perSubject(t, b.read(t), append(all, last)...); n > 0 {
					t.Errorf("%d messages are there twice", n)
				}
			})
		}
	}
}

// resize makes the stream refuse messages beyond the given number of bytes.
func resize(t *testing.T, js jetstream.JetStream, bytes int64) {
	t.Helper()
	reconfigure(t, js, streamName, func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = bytes, jetstream.DiscardNew })
}

// hog fills the server's disk with the given number of messages of 256 KiB.
func hog(t *testing.T, js jetstream.JetStream, messages int) {
	t.Helper()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "HOG", Subjects: []string{"hog"}}); err != nil {
		t.Fatal(err)
	}
	for range messages {
		if _, err := js.Publish(t.Context(), "hog", make([]byte, 256<<10)); err != nil {
			t.Fatal(err)
		}
	}
}

func freeHog(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	if err := js.DeleteStream(t.Context(), "HOG"); err != nil {
		t.Fatal(err)
	}
}
