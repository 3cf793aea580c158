package nats

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// answered makes the server publish its answer to a request to any subject, as every user with permission for requests can.
func answered(t *testing.T, js jetstream.JetStream, request, to string) {
	t.Helper()
	err := js.Conn().PublishRequest(api+request, to, nil)
	if err == nil {
		err = js.Conn().Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ends waits until the last sequence of a stream is higher than behind.
func ends(t *testing.T, js jetstream.JetStream, name string, behind uint64) uint64 {
	t.Helper()
	var last uint64
	wait(t, fmt.Sprintf("%s to end behind %d", name, behind), func() bool {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		last = s.CachedInfo().State.LastSeq
		return last > behind
	})
	return last
}

// A message that another client puts on the stream is ignored and counted. It ends no bridge, changes no checkpoint, and takes
// no record's place. The test has answers to requests, and copies of records with all their headers.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	js := b.client(t)
	core, logs := observer.New(zap.WarnLevel)
	made, err := New(Options{Config: Config{URL: b.url()}, Identity: testIdentity, Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	s := made.(*Sink)
	t.Cleanup(func() { _ = s.Close() }) // a fenced sink has nothing to lose
	mustOpen(t, s, nil)
	mark := mustWrite(t, s, records(1, 2))
	last := ends(t, js, streamName, 2)
	copyOf := func(seq uint64) {
		t.Helper()
		stream, err := js.Stream(t.Context(), streamName)
		if err != nil {
			t.Fatal(err)
		}
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		for name := range m.Header {
			if strings.HasPrefix(name, "Nats-") { // the server would refuse a copy that still expects a sequence
				delete(m.Header, name)
			}
		}
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}); err != nil {
			t.Fatal(err)
		}
	}
	for i, attack := range []func(){
		func() { answered(t, js, "STREAM.INFO."+streamName, subject) },
		func() { answered(t, js, "STREAM.INFO."+streamName, termSubject(testIdentity)) },
		func() { copyOf(1) }, // the record that begins the term
		func() { copyOf(2) }, // an event, with its changes of the checkpoint
	} {
		attack()
		last = ends(t, js, streamName, last)
		mark = mustWrite(t, s, records(uint64(i+2), 2)) // at the first attempt
		if n := s.Foreign(); n != uint64(i+1) {
			t.Errorf("attack %d: %d foreign messages are counted", i, n)
		}
		last = ends(t, js, streamName, last)
	}
	said := logs.FilterMessageSnippet("did not write").All()
	if len(said) != 1 || said[0].ContextMap()["sequence"] != uint64(4) || said[0].ContextMap()["subject"] != subject {
		t.Errorf("want one line within a minute that names the first message, got %v", said)
	}

	answered(t, js, "STREAM.INFO."+streamName, subject) // behind the mark, and on the subject of terms
	answered(t, js, "STREAM.INFO."+streamName, termSubject(testIdentity))
	ends(t, js, streamName, last+1)
	next := newSink(t, Config{URL: b.url()})
	mustOpen(t, next, mark)
	if got, err := tailOf(t, next, mark); got != "" || err != nil {
		t.Errorf("Tail: %q, %v", got, err)
	}
	if got, err := tailOf(t, next, nil); got != "1/0 1/1 2/0 2/1 3/0 3/1 4/0 4/1 5/0 5/1" || err != nil {
		t.Errorf("Tail of everything: %q, %v", got, err)
	}
	if next.term <= s.term {
		t.Errorf("term %d follows term %d", next.term, s.term)
	}
	wantFenced(t, s, records(6, 2)) // another writer still fences the sink
	mark = mustWrite(t, next, records(7, 2))
	answered(t, js, "STREAM.INFO."+streamName, subject)
	ends(t, js, streamName, next.head)
	if err := next.findStored(t.Context(), nil); err != nil { // as after an error
		t.Fatal(err)
	}
	third := newSink(t, Config{URL: b.url()})
	mustOpen(t, third, next.Mark())
	if got, err := tailOf(t, third, next.Mark()); got != "" || err != nil {
		t.Errorf("Tail from a mark before a foreign message: %q, %v", got, err)
	}
	if string(next.Mark()) != string(mark) {
		t.Errorf("a foreign message moved the mark from %s to %s", mark, next.Mark())
	}
}

// The server loses the message at the mark in a power failure, and a foreign message now has its sequence.
func TestForeignMessageAtTheMark(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newSink(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mark := mustWrite(t, s, records(1, 1))
	js := b.client(t)
	if _, err := js.Publish(t.Context(), subject, nil); err != nil {
		t.Fatal(err)
	}
	m, err := decodeMark(mark)
	if err != nil {
		t.Fatal(err)
	}
	m.seq++
	next := newSink(t, Config{URL: b.url()})
	mustOpen(t, next, m.encode())
	_, err = tailOf(t, next, m.encode())
	wantReset(t, err, "the recorded one was lost")
}

// Foreign messages never become part of the checkpoint, and never stop a bridge. A running bridge writes its values again. If
// no bridge runs, the overwritten values are unknown, and a reset is declared.
func TestForeignMessagesInTheCheckpoint(t *testing.T) {
	t.Parallel()
	_, prefix := bucketStream(BucketName(testIdentity))
	for _, key := range []string{headToken, "=21identity", "=21mark", "e=2Fa", "e=2Fc", "a=zz", redoToken + "0"} {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s running %v", key, running), func(t *testing.T) {
				b := startBus(t, nil)
				js := b.client(t)
				s := mustOpenStore(t, options(b.url()))
				commit(t, s, markKV("m"))
				commit(t, s, kv("e/a", "1"), kv("e/b", "1")) // and the mark, which is written later
				last := ends(t, js, s.bucket.name, 0)
				if !running {
					crash(s)
				}
				answered(t, js, "STREAM.INFO."+s.bucket.name, prefix+key)
				ends(t, js, s.bucket.name, last)
				if running {
					wait(t, "a commit", func() bool { return s.Commit(t.Context(), []event.KV{kv("e/d", "1")}) == nil })
					if n := s.o.Sink.Foreign(); n != 1 {
						t.Errorf("%d foreign messages are counted", n)
					}
					crash(s)
					ends(t, js, s.bucket.name, last+1)
				}
				weak, err := checkBucket(t, b)
				if said := strings.Contains(strings.Join(weak, ""), "somebody else wrote over records"); err != nil || said != (!running && (key == headToken || key == "=21identity")) {
					t.Errorf("validate: %q, %v", weak, err)
				}
				whole := []event.KV{kv("e/a", "1"), kv("e/b", "1"), markKV("m"), {Key: []byte("e/c")}, {Key: []byte("a\x7a")}}
				if running {
					wantKeys(t, mustOpenStore(t, options(b.url())), append(whole, kv("e/d", "1"), event.KV{Key: checkpoint.ResetKey()})...)
					return
				}
				for range 2 { // the reset is due until it is done
					s = mustOpenStore(t, options(b.url()))
					if key == "=21identity" { // the identity is known anyway
						wantKeys(t, s, append(whole, event.KV{Key: checkpoint.ResetKey()})...)
					} else {
						wantKeys(t, s, resetDue)
					}
					crash(s)
				}
				s = mustOpenStore(t, options(b.url()))
				commit(t, s, event.KV{Key: checkpoint.ResetKey()}, kv("e/a", "2"))
				crash(s)
				wantKeys(t, mustOpenStore(t, options(b.url())), kv("e/a", "2"), event.KV{Key: checkpoint.ResetKey()}) // and the reset is done
			})
		}
	}
}

// checkBucket runs the check of `bridge validate --connect`.
func checkBucket(t *testing.T, b *bus) (weak []string, err error) {
	t.Helper()
	found := newBucket(options(b.url()).Sink.endpoint)
	if err := found.dialUnlessOpen(); err != nil {
		return nil, err
	}
	defer found.hangUp()
	return found.check(t.Context())
}

// A consumer's delivery to a stream keeps its subject. It does not take the place of a key, and nothing is lost.
func TestForeignDeliveriesInTheCheckpoint(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	js := b.client(t)
	s := mustOpenStore(t, options(b.url()))
	commit(t, s, kv("e/a", "1"))
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}}); err != nil {
		t.Fatal(err)
	}
	consumer, err := js.CreateConsumer(t.Context(), "OTHER", jetstream.ConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	last := ends(t, js, s.bucket.name, 0)
	deliver := func() {
		t.Helper()
		if _, err := js.Publish(t.Context(), "other", []byte("x")); err != nil {
			t.Fatal(err)
		}
		answered(t, js, "CONSUMER.MSG.NEXT.OTHER."+consumer.CachedInfo().Name, s.bucket.prefix+"e=2Fa")
		last = ends(t, js, s.bucket.name, last)
	}
	deliver()
	wait(t, "a commit", func() bool { return s.Commit(t.Context(), []event.KV{kv("e/b", "1")}) == nil })
	last = ends(t, js, s.bucket.name, last)
	crash(s)
	deliver()
	wantKeys(t, mustOpenStore(t, options(b.url())), kv("e/a", "1"), kv("e/b", "1"), event.KV{Key: checkpoint.ResetKey()})
}

// attack makes every request that the user may make, with reply subjects of its choice.
func attack(t *testing.T, js jetstream.JetStream, stream string, to []string) {
	t.Helper()
	consumer, err := js.CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	m, err := consumer.Next()
	if err != nil {
		t.Fatal(err)
	}
	name := consumer.CachedInfo().Name
	for _, subject := range to {
		// The server refuses or ignores some of these.
		_, _ = js.CreatePushConsumer(t.Context(), stream, jetstream.ConsumerConfig{DeliverSubject: subject, AckPolicy: jetstream.AckNonePolicy})
		for _, request := range []string{
			"STREAM.INFO." + stream, "CONSUMER.INFO." + stream + "." + name, "CONSUMER.CREATE." + stream + ".x", "CONSUMER.CREATE." + stream,
			"CONSUMER.DURABLE.CREATE." + stream + ".x", "STREAM.NAMES", "INFO",
			"STREAM.MSG.GET." + stream, "DIRECT.GET." + stream, "DIRECT.GET." + stream + ".x", "CONSUMER.MSG.NEXT." + stream + "." + name,
		} {
			answered(t, js, request, subject)
		}
		if err := js.Conn().PublishRequest(m.Reply(), subject, []byte("+NXT")); err != nil {
			t.Fatal(err)
		}
	}
	if err := js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	// When the server answers the last request, it has finished the earlier ones.
	if _, err := js.Stream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
}

// Readers can only read, both with the permissions that `bridge rbac --bus` prints for an external server and on the embedded
// server. No answer is published where bridges write, for any reply subject that a reader names.
func TestReadersCannotWrite(t *testing.T) {
	t.Parallel()
	accounts, err := (Config{URL: "nats://x"}).Accounts(testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	permitted := func(g Grants) string {
		list := func(all []Grant) string {
			var s []string
			for _, one := range all {
				s = append(s, fmt.Sprintf("%q", one.Subject))
			}
			return strings.Join(s, ", ")
		}
		return fmt.Sprintf("permissions: {publish: {allow: [%s]}, subscribe: {allow: [%s]}}", list(g.Publish), list(g.Subscribe))
	}
	writer, err := (Config{URL: "nats://x"}).Grants(testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	writer.Publish = append(writer.Publish, Config{}.CheckpointGrants(testIdentity)...)
	external := startBus(t, func(o *server.Options) {
		if err := o.ProcessConfigString(accounts.ServerConfig(
			"{user: bridge, password: b, "+permitted(writer)+"}, {user: admin, password: a}", "{user: reader, password: r, "+permitted(accounts.Reader())+"}")); err != nil {
			t.Fatal(err)
		}
	})
	inner := embedded(t.TempDir())
	for name, c := range map[string]struct {
		config Config
		reader []nats.Option
	}{
		"external": {Config{URL: external.url(), Auth: Auth{Username: "bridge", Password: "b"}}, []nats.Option{nats.UserInfo("reader", "r"), nats.CustomInboxPrefix(Config{}.inbox(testIdentity))}},
		"embedded": {inner, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSink(t, c.config)
			mustOpen(t, s, nil)
			store := mustOpenStore(t, StoreOptions{Sink: s})
			commit(t, store, kv("e/a", "1"))
			mark := mustWrite(t, s, records(1, 3))
			url := c.config.URL
			if url == "" {
				url = s.ClientURL()
			}
			js := client(t, url, append(c.reader, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
			head, kept := s.head, store.bucket.head
			attack(t, js, streamName, []string{
				subject, termSubject(testIdentity), store.bucket.prefix + headToken, store.bucket.prefix + identityToken(), store.bucket.prefix + "x",
			})
			found, err := s.lookUp(t.Context())
			if err != nil || found.state.LastSeq != head {
				t.Errorf("the stream ends at %d, want %d; %v", found.state.LastSeq, head, err)
			}
			bucket, err := store.bucket.lookUp(t.Context())
			if err != nil || bucket.state.LastSeq != kept {
				t.Errorf("the checkpoint ends at %d, want %d; %v", bucket.state.LastSeq, kept, err)
			}
			mustWrite(t, s, records(2, 1))
			commit(t, store, kv("e/a", "2"))

			r, err := NewReader(t.Context(), ReaderOptions{Config: readerConfig(c.config, url), Identity: testIdentity, Subjects: []string{"k8s.test.>"}})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var got []string
			err = r.Read(t.Context(), []sink.Range{{From: 1, To: r.Parts()[0].End}}, false, func(m *sink.Message) error {
				got = append(got, strings.Trim(string(m.Value), `"`))
				return nil
			})
			if all := strings.Join(got, " "); err != nil || all != "1/0 1/1 1/2 2/0" {
				t.Errorf("a reader reads %q, %v", all, err)
			}
			durable, err := js.CreateConsumer(t.Context(), streamName, jetstream.ConsumerConfig{Durable: "audit", FilterSubject: "k8s.test.>", AckPolicy: jetstream.AckExplicitPolicy})
			if err != nil {
				t.Fatal(err)
			}
			m, err := durable.Next()
			if err == nil {
				err = m.DoubleAck(t.Context())
			}
			if err != nil {
				t.Errorf("a durable consumer: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			next := newSink(t, c.config)
			mustOpen(t, next, mark)
			if got, err := tailOf(t, next, mark); got != "2/0" || err != nil {
				t.Errorf("Tail: %q, %v", got, err)
			}
		})
	}
}

// readerConfig returns the configuration of a reader beside the bridge.
func readerConfig(c Config, url string) Config {
	c.URL, c.Embedded = url, nil
	if c.Auth.Username != "" {
		c.Auth = Auth{Username: "reader", Password: "r"}
	}
	return c
}
