package nats

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

func TestTailResets(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url(), Stream: Stream{MaxAge: time.Hour}})
	mustOpen(t, s, nil)
	var marks [][]byte
	for seq := range uint64(4) {
		marks = append(marks, mustWrite(t, s, records(seq+1, 2)))
	}
	st, err := b.client(t).Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(t.Context(), jetstream.WithPurgeSequence(4)); err != nil { // 1 is the term, 2 and 3 the first batch
		t.Fatal(err)
	}
	reopen := func() *Sink {
		next := newSink(t, Config{URL: b.url()})
		mustOpen(t, next, marks[0])
		return next
	}
	for _, c := range []struct {
		name, want string
		from       []byte
	}{
		{"nothing is recorded", "begins at sequence 4", nil},
		{"not a mark", "not one of a JetStream sink", []byte("offset 12")},
		{"of another stream", "created", mark{created: 1, seq: 5, term: "1.x"}.encode()},
		{"beyond the end", "and 4000 is recorded", mark{created: s.stream.created, seq: 4000, term: "1.x"}.encode()},
		{"another writer's", "lost", mark{created: s.stream.created, seq: 5, term: "1.somebody"}.encode()},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := reopen()
			_, err := tailOf(t, next, c.from)
			wantReset(t, err, streamName, c.want)
			b := records(1, 0)
			mustWrite(t, next, b)
		})
	}
	t.Run("retention may remove what precedes the mark", func(t *testing.T) {
		if got, err := tailOf(t, reopen(), marks[0]); err != nil || got != "2/0 2/1 3/0 3/1 4/0 4/1" {
			t.Errorf("Tail: %q, %v", got, err)
		}
	})
	t.Run("retention removed what follows", func(t *testing.T) {
		if err := st.Purge(t.Context(), jetstream.WithPurgeSequence(6)); err != nil {
			t.Fatal(err)
		}
		_, err := tailOf(t, reopen(), marks[0])
		wantReset(t, err, "retention", "begins at sequence 6")
	})
	t.Run("deleted from the middle", func(t *testing.T) {
		if err := st.DeleteMsg(t.Context(), 8); err != nil {
			t.Fatal(err)
		}
		_, err := tailOf(t, reopen(), marks[1])
		wantReset(t, err, "deleted")
	})
	t.Run("purged", func(t *testing.T) {
		if err := st.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := newSink(t, Config{URL: b.url()})
		mustOpen(t, next, nil)
		_, err := tailOf(t, next, nil)
		wantReset(t, err, "nothing is recorded")
		mustWrite(t, next, records(5, 1))
		wantValues(t, b.read(t), "5/0")
	})
}

// A stream without limits that is purged while the bridge is down has lost what consumers need.
func TestPurgedWhileDown(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mark := mustWrite(t, s, records(1, 2))
	st, err := b.client(t).Stream(t.Context(), streamName)
	must(t, err)
	must(t, st.Purge(t.Context()))
	next := newSink(t, Config{URL: b.url()})
	mustOpen(t, next, mark)
	_, err = tailOf(t, next, mark)
	wantReset(t, err, "purged")
	mustWrite(t, next, records(1, 2))
}

// A writer that was frozen between Open and Tail reads the checkpoint of its successor, whose end is beyond what the writer has
// seen of the stream. It must stop, because a reset would take the checkpoint away from the successor.
func TestTailOfAWriterThatWasFollowed(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	frozen := newSink(t, Config{URL: b.url()})
	mustOpen(t, frozen, nil)
	next := newSink(t, Config{URL: b.url()})
	mustOpen(t, next, nil)
	mark := mustWrite(t, next, records(1, 3))
	for _, from := range [][]byte{nil, mark} {
		if _, err := tailOf(t, frozen, from); !errors.Is(err, sink.ErrFenced) || errors.Is(err, sink.ErrReset) {
			t.Errorf("Tail from %q: %v", from, err)
		}
	}
	mustWrite(t, next, records(2, 1))
	wantValues(t, b.read(t), "1/0 1/1 1/2 2/0")
}

// A stream that is lost between Open and Tail begins again, as it does between Open and Write.
func TestTailOfAStreamThatIsLost(t *testing.T) {
	t.Parallel()
	for want, lose := range map[string]func(t *testing.T, b *bus, before string){
		"deleted": func(t *testing.T, b *bus, _ string) { b.deleteStream(t) },
		"created again": func(t *testing.T, b *bus, _ string) {
			b.deleteStream(t)
			if _, err := b.client(t).CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.test.>"}}); err != nil {
				t.Fatal(err)
			}
		},
		"ends at sequence 2": func(t *testing.T, b *bus, before string) { // the server has an old state, without the record that began the term
			b.restore(t, before)
		},
	} {
		t.Run(want, func(t *testing.T) {
			b := startBus(t, nil)
			s := newSink(t, Config{URL: b.url()})
			mustOpen(t, s, nil)
			mark := mustWrite(t, s, records(1, 1))
			before := b.save(t)
			s = newSink(t, Config{URL: b.url()})
			mustOpen(t, s, mark)
			lose(t, b, before)
			var err error
			wait(t, "a reset", func() bool {
				_, err = tailOf(t, s, mark)
				return errors.Is(err, sink.ErrReset)
			})
			wantReset(t, err, streamName, want)
			mustWrite(t, s, records(2, 1))
			if msgs := values(b.read(t)); !strings.HasSuffix(msgs, "2/0") {
				t.Errorf("the stream has %s", msgs)
			}
		})
	}
}

// A pipeline must be able to stop Tail with an error of its own.
func TestTailReturnsTheCallersError(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 3))
	s = newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	full, calls := errors.New("disk full"), 0
	err := s.Tail(t.Context(), nil, func([]event.KV, []byte) error {
		calls++
		return full
	})
	if !errors.Is(err, full) || calls != 1 {
		t.Errorf("Tail: %v after %d calls", err, calls)
	}
}

// If another version has written the stream, and the checkpoint is empty, the checkpoint must not be filled with data that this
// version cannot read.
func TestStateOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"AXABMQ", "5:AXABMQ", stateFormat + "!"} {
		b := startBus(t, nil)
		s := newSink(t, Config{URL: b.url()})
		mustOpen(t, s, nil)
		mustWrite(t, s, records(1, 1))
		m := nats.NewMsg(records(2, 1).Records[0].Route)
		m.Header[headerTerm], m.Header[headerID], m.Header[headerState] = []string{s.token(s.term)}, []string{"2/0"}, []string{state}
		b.putAt(t, streamName, m)
		next := newSink(t, Config{URL: b.url()})
		mustOpen(t, next, nil)
		_, err := tailOf(t, next, nil)
		wantReset(t, err, "what message 3 moved is not known: its header Kubebridge-State")
		mustWrite(t, next, records(3, 1)) // the sink continues
	}
}

// A checkpoint state that does not fit into a header must not block its record. A checkpoint that needs this state gets an
// error; one that already has it continues.
func TestStateTooLarge(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	before := mustWrite(t, s, records(1, 1))
	batch := records(2, 3)
	batch.Records[1].State = []event.KV{{Key: []byte("k"), Value: make([]byte, 60_000)}}
	batch.Records[2].Attributes = []event.Attribute{{Name: "collection", Value: strings.Repeat("x", 70_000)}, {Name: "id", Value: "2/2"}}
	after := mustWrite(t, s, batch)
	msgs := b.read(t)
	wantValues(t, msgs, "1/0 2/0 2/1 2/2")
	if h := msgs[3].Headers; h["ce-id"] != "2/2" || h["ce-collection"] != "" || h[headerState] == "" {
		t.Errorf("of attributes that do not fit the id must be left: %v", h)
	}
	next := newSink(t, Config{URL: b.url()})
	mustOpen(t, next, before)
	_, err := tailOf(t, next, before)
	wantReset(t, err, "did not fit")
	if got, err := tailOf(t, next, after); got != "" || err != nil {
		t.Errorf("Tail from behind it: %q, %v", got, err)
	}
	mustWrite(t, next, records(3, 1))
}

// A writer finds the term of its successor also if the replica that is read lags.
func TestFollowedLaggingReplica(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	var lagging atomic.Int64
	frozen := newSink(t, Config{URL: "nats://" + laggingProxy(t, b, &lagging).Addr().String()})
	mustOpen(t, frozen, nil)
	mustOpen(t, newSink(t, Config{URL: b.url()}), nil)
	now, err := frozen.lookUp(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now.config.Replicas = 3 // as on a cluster
	for n := range int64(3) {
		lagging.Store(n)
		if err := frozen.followed(t.Context(), now); !errors.Is(err, sink.ErrFenced) {
			t.Errorf("after %d answers of a replica that lags: %v", n, err)
		}
		frozen.fenced = nil
	}
}
