package nats

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// looking is a sink that writes to a stream and looks at it again before each write.
type looking struct {
	sink.Sink
	link   *link
	stream *stream
}

func (l looking) due() bool { return l.link.lookDue(l.stream) }

func newLooking(t *testing.T, b *bus, delivery string) looking {
	t.Helper()
	switch s := newAny(t, testIdentity, Config{URL: b.url(), Delivery: delivery}).(type) {
	case *Sink:
		s.lookEvery = 0
		return looking{s, &s.link, &s.stream}
	case *Shared:
		s.lookEvery = 0
		return looking{s, &s.link, &s.stream}
	default:
		t.Fatalf("%T has no stream", s)
		return looking{}
	}
}

// writes writes a batch until it succeeds, and returns what a reset that was declared says; "": none was.
func writes(t *testing.T, s sink.Sink, b *event.Batch) (said string) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; {
		_, err := s.Write(t.Context(), b)
		switch {
		case err == nil:
			return said
		case errors.Is(err, sink.ErrReset):
			said = err.Error()
		case time.Now().After(until):
			t.Fatal(err)
		}
	}
}

// While the settings of a stream break the promise, each attempt fails with the same words, which one line a minute in the log follows from.
// Once they are right again, a reset is declared if messages are gone.
func TestWrongSettingsKeepFailing(t *testing.T) {
	t.Parallel()
	interest := func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }
	for name, c := range map[string]struct {
		delivery, says string
		wrong          func(*jetstream.StreamConfig)
		right          func(*jetstream.StreamConfig)
		reset          bool
	}{
		"one message per subject": {
			exactlyOnce, "max_msgs_per_subject",
			func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 },
			func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = -1 }, true,
		},
		"retention":         {exactlyOnce, "interest", interest, func(c *jetstream.StreamConfig) { c.Retention = jetstream.LimitsPolicy }, true},
		"retention, shared": {atLeastOnce, "interest", interest, func(c *jetstream.StreamConfig) { c.Retention = jetstream.LimitsPolicy }, true},
		"no acknowledgements": {
			atLeastOnce, "no_ack",
			func(c *jetstream.StreamConfig) { c.NoAck = true },
			func(c *jetstream.StreamConfig) { c.NoAck = false }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t, nil)
			js := b.client(t)
			s := newLooking(t, b, c.delivery)
			mustOpen(t, s, nil)
			mustWrite(t, s, records(1, 3))
			mustWrite(t, s, records(2, 3))
			reconfigure(t, js, streamName, c.wrong)
			s.link.lookEvery = time.Second
			wait(t, "the next look", func() bool { return s.due() })
			var last error
			for range 4 { // within the second: the look that found wrong settings leaves the next one due
				if _, last = s.Write(t.Context(), records(3, 1)); last == nil {
					t.Fatal("a write succeeded")
				}
			}
			wantPlain(t, last, c.says, "nats stream edit")
			_, err := s.Write(t.Context(), records(3, 1))
			wantPlain(t, err, last.Error())
			reconfigure(t, js, streamName, c.right)
			if said := writes(t, s, records(3, 1)); (said != "") != c.reset {
				t.Errorf("a reset was declared: %q, want %t", said, c.reset)
			}
		})
	}
}

// A purge, or a deletion from the middle, of a stream in use is a loss that the next look finds. What limits remove is none.
func TestPurgeIsNoticed(t *testing.T) {
	t.Parallel()
	all := []string{exactlyOnce, atLeastOnce}
	for name, c := range map[string]struct {
		change   func(*jetstream.StreamConfig)
		remove   func(t *testing.T, st jetstream.Stream)
		delivery []string
		says     string // "": it is no loss
	}{
		"purged": {nil, func(t *testing.T, st jetstream.Stream) { must(t, st.Purge(t.Context())) }, all, "purged"},
		"its first messages": {nil, func(t *testing.T, st jetstream.Stream) {
			must(t, st.Purge(t.Context(), jetstream.WithPurgeSequence(3)))
		}, all[:1], "purged"},
		"from the middle": {nil, func(t *testing.T, st jetstream.Stream) { must(t, st.DeleteMsg(t.Context(), 4)) }, all[:1], "deleted from its middle"},
		"before their time": {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, func(t *testing.T, st jetstream.Stream) {
			must(t, st.Purge(t.Context()))
		}, all, "purged"},
		"too many": {func(c *jetstream.StreamConfig) { c.MaxMsgs = 3 }, func(*testing.T, jetstream.Stream) {}, all, ""},
		"too old": {func(c *jetstream.StreamConfig) { c.MaxAge = 100 * time.Millisecond }, func(t *testing.T, st jetstream.Stream) {
			wait(t, "the age limit", func() bool {
				info, err := st.Info(t.Context())
				return err == nil && info.State.Msgs == 0
			})
		}, all, ""},
	} {
		for _, delivery := range c.delivery {
			t.Run(name+" "+delivery, func(t *testing.T) {
				t.Parallel()
				b := startBus(t, nil)
				js := b.client(t)
				s := newLooking(t, b, delivery)
				mustOpen(t, s, nil)
				mustWrite(t, s, records(1, 3))
				mustWrite(t, s, records(2, 3)) // it looks at the messages before
				if c.change != nil {
					reconfigure(t, js, streamName, func(sc *jetstream.StreamConfig) {
						sc.Duplicates = time.Second / 10
						c.change(sc)
					})
				}
				st, err := js.Stream(t.Context(), streamName)
				must(t, err)
				c.remove(t, st)
				if said := writes(t, s, records(3, 1)); (said != "") != (c.says != "") || !strings.Contains(said, c.says) {
					t.Errorf("a reset says %q, want %q", said, c.says)
				}
				mustWrite(t, s, records(4, 1)) // it is declared once
			})
		}
	}
}

// Others may delete their own messages of a stream that they share.
func TestOthersDeleteTheirs(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	js := b.client(t)
	st, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.test.>", "others"}})
	must(t, err)
	publish := func() {
		_, err := js.Publish(t.Context(), "others", nil)
		must(t, err)
	}
	s := newLooking(t, b, atLeastOnce)
	publish()
	mustOpen(t, s, nil)
	publish()
	mustWrite(t, s, records(1, 2))
	publish()
	mustWrite(t, s, records(2, 1))
	must(t, st.Purge(t.Context(), jetstream.WithPurgeSubject("others")))
	mustWrite(t, s, records(3, 1))
	wantValues(t, b.read(t), "1/0 1/1 2/0 3/0")
}

// The log has a weak setting once, however often the stream is looked at, and again when it changes.
func TestFindingsAreSaidOnce(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		b := startBus(t, nil)
		core, logs := observer.New(zap.WarnLevel)
		s := newLooking(t, b, delivery)
		s.link.log = zap.New(core)
		mustOpen(t, s, nil)
		for i, want := range []int{0, 1, 1, 2} {
			if i%2 == 1 {
				reconfigure(t, b.client(t), streamName, func(c *jetstream.StreamConfig) { c.MaxMsgSize = int32(1<<20 + i) })
			}
			for range 3 {
				mustWrite(t, s, records(uint64(i+1), 1))
			}
			if n := logs.FilterMessage("stream settings are not as recommended").Len(); n != want {
				t.Errorf("%s: round %d: %d lines, want %d", delivery, i, n, want)
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A sealed stream takes nothing, and nobody can open it again. The advice is one that works.
func TestSealed(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 1))
	reconfigure(t, b.client(t), streamName, func(c *jetstream.StreamConfig) { c.Sealed = true })
	for range 2 {
		_, err := s.Write(t.Context(), records(2, 1))
		wantPlain(t, err, "it is sealed", "nats stream rm")
	}
	b.deleteStream(t)
	if said := writes(t, s, records(3, 1)); said == "" {
		t.Error("no reset was declared")
	}
	wantValues(t, b.read(t), "3/0")
}
