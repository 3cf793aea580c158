package kafka

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// grow adds partitions to a topic.
func (b *bus) grow(t *testing.T, topic string, partitions int) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	resp, err := kadm.NewClient(c).UpdatePartitions(t.Context(), partitions, topic)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// remake deletes a topic and creates it again.
func (b *bus) remake(t *testing.T, topic string, partitions int32) {
	t.Helper()
	if err := b.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
	b.topic(t, topic, partitions, 0)
}

func wantRequest(t *testing.T, x *owned, want string) {
	t.Helper()
	if got, err := x.store.Get(checkpoint.ResetKey()); err != nil || string(got) != want {
		t.Errorf("the request for a reset is %q, %v, want %q", got, err, want)
	}
}

// The growth of a topic is noticed when any topic is looked up.
func TestGrownBesideANewTopic(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{atLeastOnce, exactlyOnce} {
		t.Run(delivery, func(t *testing.T) {
			b := startBus(t)
			b.topic(t, "t", 3, 0)
			var s sink.Sink = openSink(t, b.config())
			if delivery == exactlyOnce {
				s = openExact(t, b.config())
			}
			write := func(seq uint64, topic string) error {
				_, err := s.Write(t.Context(), &event.Batch{Seq: seq, Records: []event.Record{record(topic, "k", "1", 0)}})
				return err
			}
			if err := write(1, "t"); err != nil {
				t.Fatal(err)
			}
			b.grow(t, "t", 5)
			if err := write(2, "new"); err != nil {
				t.Fatal(err)
			}
			if err := write(3, "t"); !errors.As(err, new(*sink.RefusedError)) {
				t.Errorf("Write: %v, want a RefusedError", err)
			}
		})
	}
}

// The messages of a deleted topic never reach consumers that have not read them yet. If the topic is created again, a reset
// follows, at once or at the next start, for any number of partitions of the new topic.
func TestTopicMadeAnew(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int32{"alike": 3, "larger": 5} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t)
			b.topic(t, "t", 3, 0)
			b.topic(t, "other", 3, 0)
			x := openExact(t, b.config())
			deliver(t, x, number("t").batch(20, 0))
			deliver(t, x, &event.Batch{Seq: 2, Records: []event.Record{record("other", "k", "1", 0)}})

			b.remake(t, "t", partitions)
			lost := &event.Batch{Seq: 3, Records: []event.Record{record("t", "k", "lost", 0)}}
			var err error
			for tries := 0; tries < 5 && !errors.Is(err, sink.ErrReset); tries++ {
				if _, err = x.Write(t.Context(), lost); err == nil {
					t.Fatal("nobody noticed that the topic was created again")
				}
			}
			if !errors.Is(err, sink.ErrReset) || !strings.Contains(err.Error(), `topic "t" was deleted and made again`) {
				t.Fatalf("Write: %v, want ErrReset", err)
			}
			deliver(t, x, &event.Batch{Seq: 4, Records: []event.Record{record("t", "k", "sent again", 0)}})
			deliver(t, x, &event.Batch{Seq: 5, Records: []event.Record{record("t", "k", "and on", 0)}})
			if got := b.consumeCommitted(t, "t"); len(got) != 2 || string(got[0].Value) != "sent again" {
				t.Errorf("consumers find %v", got)
			}

			wantRequest(t, openExact(t, b.config()), "") // the new topic is known now
			b.remake(t, "t", partitions)
			again := openExact(t, b.config())
			wantRequest(t, again, string(checkpoint.ResetRequested()))
			deliver(t, again, &event.Batch{Seq: 1, Records: []event.Record{record("t", "k", "1", 0)}})
		})
	}
}

// A topic that is deleted under a running bridge is created again, as at its next start, if the configuration allows it and
// Kafka distinguishes the old topic from the new one. A reset is requested. Otherwise the sink waits for the topic.
func TestTopicIsDeleted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		create, pinned bool
	}{
		"may be made":     {true, true},
		"may not be made": {false, true},
		"has no id":       {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t)
			b.topic(t, "t", 3, 0)
			config := b.config()
			config.Create.Enabled = &c.create
			x := openExact(t, config)
			deliver(t, x, number("t").batch(20, 0))
			if !c.pinned {
				x.topics.pins["t"] = pin{partitions: 3}
			}
			if err := b.DeleteTopic("t"); err != nil {
				t.Fatal(err)
			}
			var err error
			for tries := 0; tries < 4 && !errors.Is(err, sink.ErrReset); tries++ {
				if _, err = x.Write(t.Context(), &event.Batch{Seq: 2, Records: []event.Record{record("t", "k", "lost", 0)}}); err == nil {
					t.Fatal("nobody noticed that the topic was deleted")
				}
			}
			if !c.create || !c.pinned {
				wantError(t, err, `"t"`, "is gone")
				if b.TopicInfo("t") != nil {
					t.Error("the topic was created again")
				}
				return
			}
			if !errors.Is(err, sink.ErrReset) {
				t.Fatalf("Write: %v, want ErrReset", err)
			}
			deliver(t, x, &event.Batch{Seq: 3, Records: []event.Record{record("t", "k", "sent again", 0)}})
			if got := b.consumeCommitted(t, "t"); len(got) != 1 || string(got[0].Value) != "sent again" {
				t.Errorf("consumers find %v", got)
			}
			wantRequest(t, openExact(t, b.config()), "") // the new topic is known now
		})
	}
}

// The checkpoint of an older bridge has only the number of a topic's partitions. The existing topic counts as that topic.
func TestPinWithoutID(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "t", 3, 0)
	x := openExact(t, b.config())
	deliver(t, x, &event.Batch{Seq: 1, Records: []event.Record{record("t", "k", "1", 0)}})
	old := []event.KV{{Key: []byte(pinPrefix + "t"), Value: []byte("3")}}
	if _, err := x.Write(t.Context(), &event.Batch{Commit: event.Commit{Changes: old}}); err != nil {
		t.Fatal(err)
	}
	x = openExact(t, b.config())
	if p := x.topics.pins["t"]; p != (pin{partitions: 3}) {
		t.Fatalf("the pin is %v", p)
	}
	deliver(t, x, &event.Batch{Seq: 1, Records: []event.Record{record("t", "k", "2", 0)}})
	x = openExact(t, b.config())
	wantRequest(t, x, "")
	if p := x.topics.pins["t"]; p.partitions != 3 || p.id == "" {
		t.Errorf("the pin is %v, want the topic's id in it", p)
	}
}
