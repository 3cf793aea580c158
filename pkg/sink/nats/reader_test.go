package nats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// TestReader: the reader respects ranges, times and subjects, and leaves no JetStream consumer behind.
func TestReader(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	js := b.client(t)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.test.>"}})
	if err != nil {
		t.Fatal(err)
	}
	var middle time.Time
	for i := 1; i <= 6; i++ {
		kind := "shop.web"
		if i%2 == 0 {
			kind = "_collection.gap"
		}
		if _, err := js.Publish(t.Context(), "k8s.test.core.pods."+kind, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		if i == 3 {
			m, err := stream.GetMsg(t.Context(), 3)
			if err != nil {
				t.Fatal(err)
			}
			middle = m.Time.Add(time.Nanosecond)
		}
	}
	r, err := NewReader(t.Context(), ReaderOptions{
		Config: Config{URL: b.url()}, Identity: testIdentity,
		Subjects: []string{"k8s.test.core.pods.*.*"}, Collections: []string{"k8s.test.core.pods._collection.*"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if p := r.Parts(); len(p) != 1 || p[0].First != 1 || p[0].End != 7 {
		t.Fatalf("the parts are %+v", p)
	}
	for _, c := range []struct {
		from, to    int64
		collections bool
		want        []string
	}{
		{1, 7, false, []string{"1", "2", "3", "4", "5", "6"}},
		{2, 5, false, []string{"2", "3", "4"}},
		{1, 7, true, []string{"2", "4", "6"}},
		{5, 6, true, nil},
		{6, 6, false, nil},
		{6, 9, false, []string{"6"}}, // the stream ends before
		{8, 9, false, nil},
	} {
		var got []string
		err := r.Read(t.Context(), []sink.Range{{From: c.from, To: c.to, Continued: true}}, c.collections, func(m *sink.Message) error {
			if stored, err := stream.GetMsg(t.Context(), uint64(m.Offset)); err != nil || !m.Time.Equal(stored.Time) {
				t.Errorf("message %d was written at %s, want %+v (%v)", m.Offset, m.Time, stored, err)
			}
			got = append(got, string(m.Value))
			return nil
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v (%v)", c, got, err)
		}
	}
	for at, want := range map[time.Time]int64{middle.Add(-time.Hour): 1, middle: 4, middle.Add(time.Hour): 7} {
		if got, err := r.At(t.Context(), at); err != nil || got[0] != want {
			t.Errorf("at %s it is %v (%v), want %d", at, got, err, want)
		}
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Consumers != 0 {
		t.Errorf("%d consumers are left (%v)", info.State.Consumers, err)
	}
	if _, err := js.Publish(t.Context(), "k8s.test.core.pods.shop.web", nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Refresh(t.Context()); err != nil || r.Parts()[0].End != 8 {
		t.Errorf("behind another message the stream ends at %d (%v)", r.Parts()[0].End, err)
	}
	if err := js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.test.>"}}); err != nil {
		t.Fatal(err)
	}
	if err := r.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "created again") {
		t.Errorf("another stream of the name: %v", err)
	}
}

// TestReaderForeign: a message is foreign if it does not name the sink's stream and its own sequence, even if it is a copy of a
// record. On a shared stream the sink's messages do not name their sequence, so none is foreign.
func TestReaderForeign(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		t.Run(delivery, func(t *testing.T) {
			b := startBus(t, nil)
			js := b.client(t)
			c := Config{URL: b.url(), Delivery: delivery}
			s := newAny(t, testIdentity, c)
			mustOpen(t, s, nil)
			mustWrite(t, s, records(1, 3)) // a batch
			mustWrite(t, s, records(2, 1)) // a single message
			stream, err := js.Stream(t.Context(), streamName)
			if err != nil {
				t.Fatal(err)
			}
			record, err := stream.GetMsg(t.Context(), stream.CachedInfo().State.LastSeq)
			if err != nil {
				t.Fatal(err)
			}
			foreign := map[string]string{"copy": record.Header.Get(headerPlace), "nothing": "", "term": fmt.Sprintf("%d.0", stream.CachedInfo().Created.UnixNano())}
			for value, place := range foreign {
				m := nats.NewMsg(record.Subject)
				m.Header[headerPlace], m.Data = []string{place}, []byte(value)
				if _, err := js.PublishMsg(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			r, err := NewReader(t.Context(), ReaderOptions{Config: c, Identity: testIdentity, Subjects: []string{"k8s.test.>"}})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			read := 0
			err = r.Read(t.Context(), []sink.Range{{From: 1, To: r.Parts()[0].End}}, false, func(m *sink.Message) error {
				read++
				_, isForeign := foreign[string(m.Value)]
				if want := isForeign && delivery == exactlyOnce; m.Foreign != want {
					t.Errorf("message %d, %s: foreign is %t", m.Offset, m.Value, m.Foreign)
				}
				return nil
			})
			if want := 4 + len(foreign); err != nil || read != want {
				t.Errorf("%d messages are read, want %d; %v", read, want, err)
			}
		})
	}
}

// TestReaderRemoved: messages that a stream removed before they could be read are an error, unless the reading just begins with the first
// message that the stream has. Missing messages of other subjects are none.
func TestReaderRemoved(t *testing.T) {
	t.Parallel()
	const all = readAhead + 500
	for _, c := range []struct {
		name      string
		before    uint64 // the stream is purged up to it before Read
		during    uint64 // and at the first message
		want      sink.Range
		err       bool
		from, to  int64 // what is read; with an error, it may end before to
		otherwise int   // each so many messages have another subject
	}{
		{name: "nothing removed", want: sink.Range{From: 1, To: all + 1}, from: 1, to: all},
		{name: "begins later", before: 10, want: sink.Range{From: 1, To: all + 1}, from: 10, to: all},
		{name: "begins later with other subjects", before: 10, want: sink.Range{From: 1, To: all + 1}, from: 11, to: all, otherwise: 2},
		{name: "goes on later", before: 10, want: sink.Range{From: 1, To: all + 1, Continued: true}, err: true},
		{name: "begins behind the first", before: 10, want: sink.Range{From: 5, To: all + 1}, err: true},
		{name: "all removed", before: all + 1, want: sink.Range{From: 5, To: all + 1}, err: true},
		{name: "goes on behind what was removed", before: 10, want: sink.Range{From: 10, To: all + 1, Continued: true}, from: 10, to: all},
		{name: "removed what was read", during: keptMessages, want: sink.Range{From: 1, To: all + 1}, from: 1, to: all},
		{name: "removed what was not read", during: all, want: sink.Range{From: 1, To: all + 1}, err: true, from: 1, to: all - 1},
		{name: "removed what was not read, with other subjects", during: all, want: sink.Range{From: 1, To: all + 1}, err: true, from: 1, to: all - 1, otherwise: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBus(t, nil)
			js := b.client(t)
			stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.test.>"}})
			if err != nil {
				t.Fatal(err)
			}
			for i := 1; i <= all; i++ {
				subject := "k8s.test.core.pods.shop.web"
				if c.otherwise > 0 && i%c.otherwise == 0 {
					subject = "k8s.test.other"
				}
				if _, err := js.PublishAsync(subject, nil); err != nil {
					t.Fatal(err)
				}
			}
			<-js.PublishAsyncComplete()
			r, err := NewReader(t.Context(), ReaderOptions{Config: Config{URL: b.url()}, Identity: testIdentity, Subjects: []string{"k8s.test.core.>"}})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			purge := func(before uint64) {
				if before == 0 {
					return
				}
				if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(before)); err != nil {
					t.Fatal(err)
				}
			}
			purge(c.before)
			var from, to int64
			err = r.Read(t.Context(), []sink.Range{c.want}, false, func(m *sink.Message) error {
				if from == 0 {
					from = m.Offset
					purge(c.during)
					if _, err := js.Publish(t.Context(), "k8s.test.core.pods.shop.web", nil); err != nil { // otherwise a consumer can stand still after a purge
						t.Fatal(err)
					}
				}
				to = m.Offset
				return nil
			})
			if removed := err != nil && strings.Contains(err.Error(), "were removed before they were read"); removed != c.err || err != nil && !removed {
				t.Errorf("error: %v", err)
			}
			if from != c.from || to > c.to || !c.err && to < all-1 {
				t.Errorf("read from %d to %d, want from %d to %d", from, to, c.from, c.to)
			}
		})
	}
}

// TestReaderOfNothing: a directory that does not exist is an error, and the reader does not create it.
func TestReaderOfNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mistyped")
	c := Config{Embedded: &Embedded{Dir: dir, Listen: "127.0.0.1:0"}}
	if r, err := NewReader(t.Context(), ReaderOptions{Config: c, Identity: testIdentity, Subjects: []string{">"}}); err == nil || !strings.Contains(err.Error(), "no bridge has written to "+dir) {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is there (%v)", err)
	}
}

// TestReaderBesideEmbedded: the stream of an embedded server can be read while its bridge runs, and while it does not run.
func TestReaderBesideEmbedded(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil) // only to get a port that is free afterwards
	listen := strings.TrimPrefix(b.url(), "nats://")
	b.stop()
	c := Config{Embedded: &Embedded{Dir: t.TempDir(), Listen: listen}}
	running := newSinkOf(t, testIdentity, c)
	if err := running.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	end := int64(0)
	for _, when := range []string{"running", "stopped"} {
		if when == "stopped" {
			if err := running.Close(); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		o := ReaderOptions{Config: c, Identity: testIdentity, Subjects: []string{">"}}
		stays := o
		stays.Stays = true
		if r, err := NewReader(ctx, stays); err == nil {
			r.Close()
		} else if when == "running" || !strings.Contains(err.Error(), "does not run") {
			t.Errorf("%s: a reader that stays: %v", when, err)
		}
		r, err := NewReader(ctx, o) // nothing else has the directory
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if got := r.Parts()[0].End; got < 2 || end != 0 && got != end {
			t.Errorf("%s: the stream ends at %d", when, got)
		} else {
			end = got
		}
		n := 0
		if err := r.Read(ctx, []sink.Range{{From: 1, To: end}}, false, func(*sink.Message) error { n++; return nil }); err != nil || n == 0 {
			t.Errorf("%s: %d messages (%v)", when, n, err)
		}
		r.Close()
		cancel()
	}
}

// TestReaderOfAMirror: a mirror is another stream, with the messages of its source at the same sequences.
func TestReaderOfAMirror(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	js := b.client(t)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 3))
	if _, err := js.Publish(t.Context(), "k8s.test.foreign", nil); err != nil {
		t.Fatal(err)
	}
	mirror, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MIRROR", Mirror: &jetstream.StreamSource{Name: streamName}})
	if err != nil {
		t.Fatal(err)
	}
	for info := mirror.CachedInfo(); info.State.Msgs < 5; {
		if info, err = mirror.Info(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r, err := NewReader(t.Context(), ReaderOptions{Config: Config{URL: b.url(), Stream: Stream{Name: "MIRROR"}}, Identity: testIdentity, Subjects: []string{"k8s.test.>"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var foreign []bool
	err = r.Read(t.Context(), []sink.Range{{From: 1, To: r.Parts()[0].End}}, false, func(m *sink.Message) error {
		foreign = append(foreign, m.Foreign)
		return nil
	})
	if want := []bool{false, false, false, true}; err != nil || !slices.Equal(foreign, want) {
		t.Errorf("foreign are %v, want %v; %v", foreign, want, err)
	}
}

// laggingProxy is a proxy to a server that answers like a replica that lags: lagging answers say that no message is left, although some are.
func laggingProxy(t *testing.T, b *bus, lagging *atomic.Int64) *proxy {
	t.Helper()
	pending := regexp.MustCompile(`("num_pending":|MSG \S+ \S+ \$JS\.ACK\.\S+\.)[1-9]([, ])`)
	return startChangingProxy(t, strings.TrimPrefix(b.url(), "nats://"), func(line []byte) []byte {
		if !pending.Match(line) || lagging.Add(-1) < 0 {
			return line
		}
		return pending.ReplaceAll(line, []byte("${1}0${2}"))
	})
}

// TestReaderLaggingReplica: a reader of a stream with replicas does not take a replica that lags for the end of what the leader has. Otherwise
// these messages are left out without an error.
func TestReaderLaggingReplica(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	js := b.client(t)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.test.>"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 7; i++ {
		subject := "k8s.test.core.pods.shop.web"
		if i == 7 {
			subject = "k8s.test.other" // which is not read
		}
		if _, err := js.Publish(t.Context(), subject, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.DeleteMsg(t.Context(), 6); err != nil {
		t.Fatal(err)
	}
	var lagging atomic.Int64
	p := laggingProxy(t, b, &lagging)
	r, err := NewReader(t.Context(), ReaderOptions{
		Config: Config{URL: "nats://" + p.Addr().String()}, Identity: testIdentity, Subjects: []string{"k8s.test.core.nodes.>", "k8s.test.core.pods.>"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	read := func(enough string) (got []string) {
		t.Helper()
		err := r.Read(t.Context(), []sink.Range{{From: 2, To: 8}}, false, func(m *sink.Message) error {
			got = append(got, string(m.Value))
			if string(m.Value) == enough {
				return sink.ErrEnough
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	lagging.Store(1)
	if got := read(""); len(got) != 0 {
		t.Fatalf("the replica does not lag: %v", got)
	}
	r.stream.config.Replicas = 3 // as on a cluster
	for n := range int64(6) {
		lagging.Store(n)
		if got := read(""); !slices.Equal(got, []string{"2", "3", "4", "5"}) {
			t.Errorf("after %d answers of a replica that lags it has read %v", n, got)
		}
	}
	if got := read("3"); !slices.Equal(got, []string{"2", "3"}) {
		t.Errorf("up to enough it has read %v", got)
	}
}

// TestReaderStaleEnd: the end of a stream with replicas is that of its leader. A replica may answer for it while there is none, and does not know
// what it lacks.
func TestReaderStaleEnd(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	js := b.client(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.test.>"}}); err != nil {
		t.Fatal(err)
	}
	for range 7 {
		if _, err := js.Publish(t.Context(), "k8s.test.core.pods.shop.web", nil); err != nil {
			t.Fatal(err)
		}
	}
	p := startChangingProxy(t, strings.TrimPrefix(b.url(), "nats://"), func(line []byte) []byte {
		line = bytes.ReplaceAll(line, []byte(`"num_replicas":1`), []byte(`"num_replicas":3`))
		return bytes.ReplaceAll(line, []byte(`"last_seq":7`), []byte(`"last_seq":6`))
	})
	r, err := NewReader(t.Context(), ReaderOptions{Config: Config{URL: "nats://" + p.Addr().String()}, Identity: testIdentity})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := r.stream.state.LastSeq; got != 6 {
		t.Fatalf("the answer was not changed: the last sequence is %d", got)
	}
	if got := r.Parts()[0].End; got != 8 {
		t.Errorf("the end is %d, want 8", got)
	}
}

// TestStoreLaggingReplica: a checkpoint's owner finds what was written behind its head also if the replica that answers lags. Otherwise it does
// not notice another writer.
func TestStoreLaggingReplica(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	first := mustOpenStore(t, options(b.url()))
	commit(t, first, kv("e/a", "1"))
	var lagging atomic.Int64
	second := mustOpenStore(t, options("nats://"+laggingProxy(t, b, &lagging).Addr().String()))
	commit(t, second, kv("e/b", "1"))
	for n := range int64(3) {
		lagging.Store(n)
		mine, others, err := second.bucket.readAfter(t.Context(), first.bucket.head, second.bucket.head)
		if err != nil || !mine || others {
			t.Errorf("after %d answers of a replica that lags: its own %v, of others %v (%v)", n, mine, others, err)
		}
	}
}
