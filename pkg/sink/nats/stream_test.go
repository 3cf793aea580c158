package nats

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// wantReset checks that the error is a request for a reset, with the parts in its text.
func wantReset(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !errors.Is(err, sink.ErrReset) {
		t.Fatalf("got %v, want ErrReset", err)
	}
	wantText(t, err, parts...)
}

func wantFenced(t *testing.T, s *Sink, b *event.Batch) {
	t.Helper()
	if _, err := retry(t, s, b); !errors.Is(err, sink.ErrFenced) {
		t.Fatalf("Write: %v, want ErrFenced", err)
	}
}

func TestStreamDeletedWhileWriting(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	old := mustWrite(t, s, records(1, 2))
	b.deleteStream(t)
	_, err := retry(t, s, records(2, 2))
	wantReset(t, err, streamName, "deleted")
	mark := mustWrite(t, s, records(3, 2))
	wantValues(t, b.read(t), "3/0 3/1")

	next := newSink(t, Config{URL: b.url()})
	mustOpen(t, next, mark)
	if got, err := tailOf(t, next, mark); got != "" || err != nil {
		t.Errorf("Tail from the new mark: %q, %v", got, err)
	}
	_, err = tailOf(t, next, old)
	wantReset(t, err, "created")
}

func TestStreamMayNotBeCreated(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	c := Config{URL: b.url(), Stream: Stream{Create: new(false)}}
	s := newSink(t, c)
	wantPlain(t, s.Open(t.Context(), nil), streamName, "nats.stream.create", "k8s.test.>", "allow_atomic")

	js := b.client(t)
	config := jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.test.>"}}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	wantPlain(t, s.Open(t.Context(), nil), "allow_atomic", "kubebridge.test.bridge.live.term")
	config.Subjects = append(config.Subjects, "kubebridge.>")
	config.AllowAtomicPublish = true
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 1))

	b.deleteStream(t)
	for range 3 {
		_, err := s.Write(t.Context(), records(2, 1))
		wantPlain(t, err, streamName)
	}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	_, err := retry(t, s, records(2, 1))
	wantReset(t, err, "deleted")
	mustWrite(t, s, records(2, 1))
	wantValues(t, b.read(t), "2/0")
}

// Another bridge recreated the stream and continues to use it. The old bridge must not take the stream back.
func TestStreamRecreatedByAnother(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	old, other := newSink(t, Config{URL: b.url()}), newSink(t, Config{URL: b.url()})
	mustOpen(t, old, nil)
	mustWrite(t, old, records(1, 3))
	b.deleteStream(t)
	mustOpen(t, other, nil) // term 1 again
	mustWrite(t, other, records(7, 5))
	wantFenced(t, old, records(2, 3))
	mustWrite(t, other, records(8, 1))
	wantValues(t, b.read(t), "7/0 7/1 7/2 7/3 7/4 8/0")
}

// The server died within its sync interval and came back without the last batch.
func TestStreamLostItsTail(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	early := mustWrite(t, s, records(1, 2))
	saved := b.save(t)
	mark, err := retry(t, s, records(2, 3))
	if err != nil {
		t.Fatal(err)
	}
	b.restore(t, saved)

	t.Run("noticed by Tail", func(t *testing.T) {
		next := newSink(t, Config{URL: b.url()})
		mustOpen(t, next, mark)
		_, err := tailOf(t, next, mark)
		wantReset(t, err, streamName)
		// The writer dies before the reset is committed, after it has written as much as was lost.
		mustWrite(t, next, records(9, 4))
		again := newSink(t, Config{URL: b.url()})
		mustOpen(t, again, mark)
		_, err = tailOf(t, again, mark)
		wantReset(t, err, "lost")
		mustWrite(t, again, records(10, 1))
		if got, err := tailOf(t, again, early); err != nil || got != "9/0 9/1 9/2 9/3" {
			t.Errorf("Tail from before the loss: %q, %v", got, err)
		}
	})
	b.restore(t, saved)
	t.Run("noticed by Write", func(t *testing.T) {
		_, err := retry(t, s, records(3, 2))
		wantReset(t, err, "acknowledged")
		mustWrite(t, s, records(4, 2))
		wantValues(t, b.read(t), "1/0 1/1 4/0 4/1")
	})
}

// A lost message stays lost if the record of the next term takes its sequence, and the answer to that record does not arrive.
func TestLossBehindATermWithoutAnswer(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 1))
	before := b.save(t)
	if _, err := retry(t, s, records(2, 1)); err != nil {
		t.Fatal(err)
	}
	b.restore(t, before)
	wait(t, "the loss", func() bool {
		_, err := s.Write(t.Context(), records(3, 1))
		return err != nil && s.lost != ""
	})
	_, err := b.client(t).PublishMsg(t.Context(), &nats.Msg{Subject: s.termSubject, Data: []byte("{}"), Header: nats.Header{
		headerTerm: {s.token(s.term + 1)}, headerPlace: {s.stream.place(anywhere)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Write(t.Context(), records(3, 1))
	wantReset(t, err, "it ends at sequence 2")
	mustWrite(t, s, records(4, 1))
}

// Settings of the stream that are changed under a running sink: it adds what it lacks, and does not write to a stream that keeps no messages.
func TestSettingsAreChanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*jetstream.StreamConfig)
		refuse string
		shared bool
	}{
		"subjects removed":             {change: func(c *jetstream.StreamConfig) { c.Subjects = c.Subjects[1:] }},
		"subjects removed, shared":     {change: func(c *jetstream.StreamConfig) { c.Subjects = []string{"others"} }, refuse: "add k8s.test.> to them", shared: true},
		"no atomic publish":            {change: func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false }},
		"only for subscribers":         {change: func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, refuse: "interest"},
		"only for subscribers, shared": {change: func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, refuse: "interest", shared: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t, nil)
			var s sink.Sink
			var l *link
			if c.shared {
				one := newShared(t, Config{URL: b.url()})
				s, l = one, &one.link
			} else {
				one := newSink(t, Config{URL: b.url()})
				s, l = one, &one.link
			}
			mustOpen(t, s, nil)
			mustWrite(t, s, records(1, 2))
			reconfigure(t, b.client(t), streamName, c.change)
			l.lookEvery = 0 // a minute passes
			if _, err := s.Write(t.Context(), records(2, 2)); c.refuse != "" {
				wantPlain(t, err, c.refuse)
			} else if err != nil {
				t.Fatal(err)
			} else {
				wantValues(t, b.read(t), "1/0 1/1 2/0 2/1")
			}
		})
	}
}

// A server that is cut off from its cluster answers with the messages that it has. The messages that it lacks are not lost: the
// other servers have them.
func TestStreamIsWholeAgain(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 2))
	b.stop()
	old, whole := t.TempDir(), t.TempDir()
	copyDir(t, old, b.opts.StoreDir)
	b.start(t)
	if _, err := retry(t, s, records(2, 3)); err != nil {
		t.Fatal(err)
	}
	b.stop()
	copyDir(t, whole, b.opts.StoreDir)
	copyDir(t, b.opts.StoreDir, old)
	b.start(t)
	next := records(3, 2)
	for noticed, until := false, time.Now().Add(time.Minute); !noticed; {
		_, err := s.Write(t.Context(), next)
		noticed = err != nil && strings.Contains(err.Error(), "begins again")
		if time.Now().After(until) {
			t.Fatalf("the loss was not noticed: %v", err)
		}
	}
	b.restore(t, whole)
	if _, err := retry(t, s, next); err != nil {
		t.Errorf("Write: %v", err)
	}
	wantValues(t, b.read(t), "1/0 1/1 2/0 2/1 2/2 3/0 3/1")
}

func TestRefusedStreams(t *testing.T) {
	t.Parallel()
	subjects := []string{"k8s.test.>", "kubebridge.>"}
	for _, c := range []struct {
		name   string
		config jetstream.StreamConfig
		fill   bool
		want   []string
	}{
		{"work queue", jetstream.StreamConfig{Subjects: subjects, Retention: jetstream.WorkQueuePolicy}, false, []string{"workqueue", "nats.stream.name"}},
		{"interest", jetstream.StreamConfig{Subjects: subjects, Retention: jetstream.InterestPolicy}, false, []string{"interest"}},
		{"no acknowledgements", jetstream.StreamConfig{Subjects: subjects, NoAck: true}, false, []string{"no_ack"}},
		{"limit per subject", jetstream.StreamConfig{Subjects: subjects, MaxMsgsPerSubject: 1}, false, []string{"1 messages per subject"}},
		{"mirror", jetstream.StreamConfig{Mirror: &jetstream.StreamSource{Name: "ELSE"}}, false, []string{"copies from other streams"}},
		{"used by others", jetstream.StreamConfig{Subjects: subjects}, true, []string{"1 messages", "nats.stream.name"}},
		{"other cluster", jetstream.StreamConfig{Subjects: subjects, Metadata: map[string]string{metaClusterUID: "uid-2"}}, false, []string{"uid-2", "uid-1"}},
		{"other bridge", jetstream.StreamConfig{Subjects: subjects, Metadata: map[string]string{metaBridge: "b2", metaSink: "live"}}, false, []string{`"b2"`, `"bridge"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBus(t, nil)
			js := b.client(t)
			c.config.Name = streamName
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ELSE", Subjects: []string{"else"}}); err != nil {
				t.Fatal(err)
			}
			if _, err := js.CreateStream(t.Context(), c.config); err != nil {
				t.Fatal(err)
			}
			if c.fill {
				if _, err := js.Publish(t.Context(), subject, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			wantRefused(t, newSink(t, Config{URL: b.url()}).Open(t.Context(), nil), append(c.want, streamName)...)
			st, err := js.Stream(t.Context(), streamName)
			if err != nil {
				t.Fatal(err)
			}
			if n := st.CachedInfo().State.LastSeq; n > 1 || (n == 1) != c.fill {
				t.Errorf("the refused stream was written to: its last sequence is %d", n)
			}
		})
	}
}

// A bridge of another cluster with the same name must not disturb the bridge that owns the stream.
func TestForeignBridgeFencesNobody(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	owner := newSink(t, Config{URL: b.url()})
	mustOpen(t, owner, nil)
	mustWrite(t, owner, records(1, 1))
	for _, id := range []event.Identity{
		{Bridge: "bridge", Cluster: "test", ClusterUID: "uid-2", Sink: "live"},
		{Bridge: "other", Cluster: "test", ClusterUID: "uid-1", Sink: "live"},
		{Bridge: "bridge", Cluster: "test", ClusterUID: "uid-1", Sink: "audit"},
	} {
		wantRefused(t, newSinkOf(t, id, Config{URL: b.url()}).Open(t.Context(), nil), streamName, "belongs to another")
	}
	mustWrite(t, owner, records(2, 1))
	wantValues(t, b.read(t), "1/0 2/0")
}

func TestAdoptedStream(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	js := b.client(t)
	st, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.test.>"}, MaxAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // somebody used it once
		if _, err := js.Publish(t.Context(), subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	if got, err := tailOf(t, s, nil); got != "" || err != nil {
		t.Errorf("Tail of an adopted stream: %q, %v", got, err)
	}
	mustWrite(t, s, records(1, 2))
	s = newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	if got, err := tailOf(t, s, nil); got != "1/0 1/1" || err != nil {
		t.Errorf("Tail of an adopted stream: %q, %v", got, err)
	}
	if st, err = js.Stream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	if c := st.CachedInfo().Config; c.MaxAge != time.Hour || !c.AllowAtomicPublish || c.Metadata[metaClusterUID] != "uid-1" {
		t.Errorf("adopted stream has %+v", c)
	}
}

func TestCreatedStream(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url(), Stream: Stream{Name: "EVENTS", MaxAge: time.Hour, MaxBytes: 1 << 20}, Subject: "events.{group}.{name}"})
	mustOpen(t, s, nil)
	st, err := b.client(t).Stream(t.Context(), "EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	c := st.CachedInfo().Config
	if got := strings.Join(c.Subjects, " "); got != "events.> kubebridge.test.bridge.live.term" {
		t.Errorf("subjects are %q", got)
	}
	if c.MaxAge != time.Hour || c.MaxBytes != 1<<20 || c.Replicas != 1 || c.Retention != jetstream.LimitsPolicy || c.Storage != jetstream.FileStorage {
		t.Errorf("stream has %+v", c)
	}
}

// When several sinks begin a term at the same time, one is the last, and only that one writes.
func TestManyOpenAtOnce(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	mustOpen(t, newSink(t, Config{URL: b.url()}), nil) // makes the stream
	sinks := make([]*Sink, 6)
	open := make([]bool, len(sinks))
	var wg sync.WaitGroup
	for i := range sinks {
		sinks[i] = newSink(t, Config{URL: b.url()})
		wg.Go(func() {
			for range 20 { // a pipeline opens again after an error
				err := sinks[i].Open(t.Context(), nil)
				if open[i] = err == nil; open[i] {
					return
				}
				var refused *sink.RefusedError
				if errors.As(err, &refused) {
					t.Errorf("Open: %v", err)
				}
			}
		})
	}
	wg.Wait()
	terms := map[uint64]bool{}
	var last *Sink
	for i, s := range sinks {
		if !open[i] {
			t.Fatalf("sink %d did not open", i)
		}
		if terms[s.term] {
			t.Fatalf("two writers have term %d", s.term)
		}
		terms[s.term] = true
		if last == nil || s.term > last.term {
			last = s
		}
	}
	for _, s := range sinks {
		if s != last {
			wantFenced(t, s, records(1, 3))
		}
	}
	mustWrite(t, last, records(2, 3))
	wantValues(t, b.read(t), "2/0 2/1 2/2")
}

func TestSubjectOfAnotherStream(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	if _, err := b.client(t).CreateStream(t.Context(), jetstream.StreamConfig{Name: "ALL", Subjects: []string{"k8s.>"}}); err != nil {
		t.Fatal(err)
	}
	wantPlain(t, newSink(t, Config{URL: b.url()}).Open(t.Context(), nil), streamName, "overlap")
}
