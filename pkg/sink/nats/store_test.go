package nats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/checkpointtest"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// storeOptions returns the options of a pipeline's store, with a sink that is not open.
func storeOptions(id event.Identity, c Config) StoreOptions {
	s, err := New(Options{Config: c, Identity: id})
	if err != nil {
		panic(err)
	}
	return StoreOptions{Sink: s.(*Sink)}
}

func options(url string) StoreOptions { return storeOptions(testIdentity, Config{URL: url}) }

func openStore(o StoreOptions, change ...func(*bucket)) (*Store, error) {
	s := NewStore(o)
	for _, f := range change {
		f(&s.bucket)
	}
	if err := s.Load(context.Background()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// smallChunks makes the bucket write larger commits in packed form first.
func smallChunks(b *bucket) { b.most = 10 }

// open opens a store for the suite, also in the process that it kills. Chunks are so small
// that the suite's larger commits are written in packed form first, and the bucket is cleaned all the time. Like a
// pipeline, open retries temporary errors, such as a timeout of a busy server.
func open(url string) (s checkpointtest.Store, err error) {
	final := []error{checkpoint.ErrForeign, checkpoint.ErrUnusable, checkpoint.ErrCorrupt, checkpoint.ErrNewer, checkpoint.ErrOlder}
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		s, err = openStore(options(url), func(b *bucket) { b.most, b.cleanFrom, b.purgeDelay = 150, 10, time.Millisecond })
		if err == nil || slices.ContainsFunc(final, func(e error) bool { return errors.Is(err, e) }) {
			break
		}
	}
	return s, err
}

func TestStoreSuite(t *testing.T) {
	t.Parallel()
	checkpointtest.Run(t, checkpointtest.Config{Open: open, Trails: true, Place: func(t *testing.T) string { return startBus(t, nil).url() }})
}

// A working copy on disk is removed with the store.
func TestScratch(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	o := options(b.url())
	o.Scratch = t.TempDir()
	s := mustOpenStore(t, o)
	var all []event.KV
	for i := range 2500 {
		all = append(all, kv(fmt.Sprintf("e/pods/ns/%04d", i), "x"))
	}
	commit(t, s, all...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpenStore(t, o)
	wantKeys(t, s, all...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(o.Scratch); err != nil || len(left) > 0 {
		t.Errorf("working copies are left behind: %v, %v", left, err)
	}
}

func mustOpenStore(t *testing.T, o StoreOptions, change ...func(*bucket)) *Store {
	t.Helper()
	s, err := openStore(o, change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the error of an unsuccessful last write is logged
	return s
}

// putKey writes a value to the bucket as another bridge would.
func (b *bus) putKey(t *testing.T, key, value string) {
	t.Helper()
	name, prefix := bucketStream(BucketName(testIdentity))
	b.putAt(t, name, &nats.Msg{Subject: prefix + key, Data: []byte(value), Header: nats.Header{headerPass: {"0"}, headerWriter: {"another"}}})
}

// putAt publishes a message that names its place, like those of a bridge.
func (b *bus) putAt(t *testing.T, stream string, m *nats.Msg) {
	t.Helper()
	js := b.client(t)
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	info := s.CachedInfo()
	m.Header[headerPlace] = []string{fmt.Sprintf("%d.%d", info.Created.UnixNano(), info.State.LastSeq+1)}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func kv(key, value string) event.KV { return event.KV{Key: []byte(key), Value: []byte(value)} }

func markKV(value string) event.KV {
	return event.KV{Key: checkpoint.MarkKey(), Value: []byte(value)}
}

func commit(t *testing.T, s *Store, changes ...event.KV) {
	t.Helper()
	if err := s.Commit(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
}

func wantKeys(t *testing.T, s checkpoint.Store, want ...event.KV) {
	t.Helper()
	for _, kv := range want {
		got, err := s.Get(kv.Key)
		if err != nil || string(got) != string(kv.Value) || (got == nil) != (kv.Value == nil) {
			t.Errorf("%s is %q, %v, want %q", kv.Key, got, err, kv.Value)
		}
	}
}

// crash ends a store without a last write, like kill -9.
func crash(s *Store) {
	s.stopTrailing()
	s.bucket.hangUp()
}

// A commit with the sink's mark is written later. Any other commit is written at once, with all commits before it.
func TestTrailing(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	o := options(b.url())
	o.Delay = time.Hour
	s := mustOpenStore(t, o)
	commit(t, s, kv("e/a", "1"), markKV("m1"))
	wantKeys(t, s, kv("e/a", "1"), markKV("m1"))
	crash(s)
	s = mustOpenStore(t, o)
	wantKeys(t, s, event.KV{Key: []byte("e/a")}, event.KV{Key: checkpoint.MarkKey()})

	commit(t, s, kv("e/a", "1"), markKV("m1"))
	commit(t, s, kv("p/pods", "at 1 7"))
	crash(s)
	s = mustOpenStore(t, o)
	wantKeys(t, s, kv("e/a", "1"), kv("p/pods", "at 1 7"), markKV("m1"))

	o.Delay = time.Millisecond
	s = mustOpenStore(t, o)
	commit(t, s, kv("e/a", "2"), markKV("m2"))
	wait(t, "the background to write it", func() bool {
		s.writing.Lock() // no write is running
		defer s.writing.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pending) == 0
	})
	crash(s)
	wantKeys(t, mustOpenStore(t, o), kv("e/a", "2"), markKV("m2"))
}

// Close writes all pending changes.
func TestCloseWrites(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	o := options(b.url())
	o.Delay = time.Hour
	s := mustOpenStore(t, o)
	commit(t, s, kv("e/a", "1"), markKV("m1"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, mustOpenStore(t, o), kv("e/a", "1"), markKV("m1"))
}

// A predecessor that is still running cannot write any more.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	o := options(b.url())
	o.Delay = time.Hour
	old := mustOpenStore(t, o)
	commit(t, old, kv("e/a", "1"))
	commit(t, old, kv("e/a", "zombie"), markKV("m9"))
	next := mustOpenStore(t, o)
	for range 2 {
		if err := old.Commit(t.Context(), []event.KV{kv("e/b", "zombie")}); err == nil {
			t.Fatal("the predecessor could still write")
		}
	}
	if err := old.Commit(t.Context(), []event.KV{kv("e/b", "zombie")}); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("the predecessor got %v, want ErrFenced", err)
	}
	commit(t, next, kv("e/c", "3"))
	crash(next)
	wantKeys(t, mustOpenStore(t, o), kv("e/a", "1"), kv("e/c", "3"), event.KV{Key: []byte("e/b")}, event.KV{Key: checkpoint.MarkKey()})
}

// A write is committed if the process ends after its packed form and before its keys.
func TestIncompleteWrite(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	o := options(b.url())
	s := mustOpenStore(t, o, smallChunks)
	commit(t, s, kv("e/000", "old"), kv("e/gone", "old"))
	changes := map[string][]byte{"e/gone": nil}
	for i := range 100 {
		changes[fmt.Sprintf("e/%03d", i)] = []byte("new")
	}
	msgs := publishPacked(t, s, changes)
	if err := s.bucket.publish(t.Context(), msgs[:10], false); err != nil { // and some of its keys
		t.Fatal(err)
	}
	crash(s)
	for range 2 { // also if the next start ends at the same point
		s = mustOpenStore(t, o, smallChunks)
		wantKeys(t, s, kv("e/000", "new"), kv("e/099", "new"), event.KV{Key: []byte("e/gone")}, event.KV{Key: checkpoint.ResetKey()})
		crash(s)
	}
	s = mustOpenStore(t, o, smallChunks)
	commit(t, s, kv("e/000", "newest"))
	if s.bucket.redo != 0 {
		t.Error("the incomplete write was not completed")
	}
	crash(s)
	wantKeys(t, mustOpenStore(t, o, smallChunks), kv("e/000", "newest"), kv("e/099", "new"), event.KV{Key: []byte("e/gone")})
}

// publishPacked publishes the packed form of a write, and returns the messages of its keys, which follow.
func publishPacked(t *testing.T, s *Store, changes map[string][]byte) []*nats.Msg {
	t.Helper()
	redo, err := s.bucket.pack(changes)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.bucket.publish(t.Context(), append(redo, s.bucket.headMessage(len(redo))), false); err != nil {
		t.Fatal(err)
	}
	msgs, err := s.bucket.messages(changes)
	if err != nil {
		t.Fatal(err)
	}
	return msgs
}

// A write is committed if the process ends after all of its keys, while its packed form is removed.
func TestWriteWithoutItsHead(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	o := options(b.url())
	s := mustOpenStore(t, o, smallChunks)
	commit(t, s, kv("e/gone", "old"))
	changes := map[string][]byte{"e/gone": nil, "e/new": []byte("new")}
	msgs := publishPacked(t, s, changes)
	removed := &nats.Msg{Subject: s.bucket.prefix + redoKey(0), Header: nats.Header{}}
	remove(removed)
	if err := s.bucket.publish(t.Context(), append(msgs, removed), false); err != nil {
		t.Fatal(err)
	}
	crash(s)
	for range 2 {
		s = mustOpenStore(t, o, smallChunks)
		wantKeys(t, s, kv("e/new", "new"), event.KV{Key: []byte("e/gone")}, event.KV{Key: checkpoint.ResetKey()})
		commit(t, s, kv("e/new", "new"))
		crash(s)
	}
}

// After a power failure of the server a write may be incomplete, and other clients may write keys. In both cases the checkpoint cannot be
// trusted, and a reset is requested.
func TestTornWrite(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := mustOpenStore(t, options(b.url()))
	commit(t, s, kv("p/pods", "at 1 7"))
	crash(s)
	key, _ := token("p/pods")
	b.putKey(t, key, "at 1 900")
	s = mustOpenStore(t, options(b.url()))
	wantKeys(t, s, resetDue)
	commit(t, s, kv("e/a", "1"))
	crash(s)
	wantKeys(t, mustOpenStore(t, options(b.url())), resetDue, kv("e/a", "1"))
}

// For NATS tools the bucket is an ordinary bucket with readable keys.
func TestBucketIsOrdinary(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := mustOpenStore(t, options(b.url()))
	long := "p/pods?labels=" + strings.Repeat("tier=a,", 300)
	commit(t, s, kv("e/roles.rbac.authorization.k8s.io/ns/system:*>x", "1"), kv(long, "2"), kv("e/a", "3"))
	commit(t, s, event.KV{Key: []byte("e/a")})
	bucket, err := b.client(t).KeyValue(t.Context(), "kubebridge_bridge_uid-1_live")
	if err != nil {
		t.Fatal(err)
	}
	got, err := bucket.Get(t.Context(), "e=2Froles_rbac_authorization_k8s_io=2Fns=2Fsystem=3A=2A=3Ex")
	if err != nil || string(got.Value()) != "1" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := bucket.Get(t.Context(), "e=2Fa"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("a deleted key: %v", err)
	}
	crash(s)
	s = mustOpenStore(t, options(b.url()))
	wantKeys(t, s, kv(long, "2"), kv("e/roles.rbac.authorization.k8s.io/ns/system:*>x", "1"), event.KV{Key: []byte("e/a")})
}

// usesBucketOf makes a pipeline use the bucket of another one.
func usesBucketOf(other, id event.Identity) func(*bucket) {
	return func(b *bucket) { b.setName(BucketName(other), id) }
}

func TestRefused(t *testing.T) {
	t.Parallel()
	other := func(change func(*event.Identity)) event.Identity {
		id := testIdentity
		change(&id)
		return id
	}
	for _, c := range []struct {
		name string
		id   event.Identity
		put  map[string]string
		want error
		text string
	}{
		{"cluster", other(func(id *event.Identity) { id.ClusterUID = "else" }), nil, checkpoint.ErrForeign, `"else"`},
		{"bridge", other(func(id *event.Identity) { id.Bridge = "else" }), nil, checkpoint.ErrForeign, "bridge"},
		{"sink", other(func(id *event.Identity) { id.Sink = "else" }), nil, checkpoint.ErrForeign, "sink"},
		{"newer head", testIdentity, map[string]string{headToken: `{"version":99}`}, checkpoint.ErrNewer, "99"},
		{"older head", testIdentity, map[string]string{headToken: `{"version":1}`}, checkpoint.ErrOlder, "`bridge checkpoint reset --sink live`"},
		{"older identity", testIdentity, map[string]string{"=21identity": `{"version":1}`}, checkpoint.ErrOlder, "`bridge checkpoint reset --sink live`"},
		{"newer identity", testIdentity, map[string]string{"=21identity": `{"version":99}`}, checkpoint.ErrNewer, "99"},
		{"head", testIdentity, map[string]string{headToken: "x"}, checkpoint.ErrCorrupt, "head"},
		{"identity", testIdentity, map[string]string{"=21identity": "x"}, checkpoint.ErrCorrupt, "identity"},
		{"key", testIdentity, map[string]string{"a=zz": "x"}, checkpoint.ErrCorrupt, "a=zz"},
		{"part of a write", testIdentity, map[string]string{headToken: `{"version":4,"redo":3}`}, checkpoint.ErrCorrupt, "part 1 of 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBus(t, nil)
			s := mustOpenStore(t, options(b.url()))
			commit(t, s, kv("e/a", "1"))
			crash(s)
			for key, value := range c.put {
				b.putKey(t, key, value)
			}
			_, err := openStore(storeOptions(c.id, Config{URL: b.url()}), usesBucketOf(testIdentity, c.id))
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), BucketName(testIdentity)) {
				t.Errorf("got %v, want %v naming %s and the bucket", err, c.want, c.text)
			}
		})
	}
	t.Run("before messages said where they stand", func(t *testing.T) {
		b := startBus(t, nil)
		s := mustOpenStore(t, options(b.url()))
		crash(s)
		m := &nats.Msg{Subject: s.bucket.prefix + headToken, Data: []byte(`{"version":3,"writer":"x"}`), Header: nats.Header{headerPass: {"0"}}}
		if _, err := b.client(t).PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if _, err := openStore(options(b.url())); !errors.Is(err, checkpoint.ErrOlder) || !strings.Contains(err.Error(), "`bridge checkpoint reset") {
			t.Errorf("got %v, want ErrOlder with the command", err)
		}
	})
	t.Run("somebody's bucket", func(t *testing.T) {
		b := startBus(t, nil)
		bucket, err := b.client(t).CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: BucketName(testIdentity)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bucket.PutString(t.Context(), "theirs", "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := openStore(options(b.url())); !errors.Is(err, checkpoint.ErrUnusable) {
			t.Errorf("got %v, want ErrUnusable", err)
		}
	})
}

// Settings that would lose values end the program at its start. Later they are a temporary error, until they are corrected.
func TestUnusableSettings(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := mustOpenStore(t, options(b.url()))
	commit(t, s, kv("e/a", "1"))
	name := "KV_" + BucketName(testIdentity)
	set := func(age time.Duration) {
		t.Helper()
		reconfigure(t, b.client(t), name, func(c *jetstream.StreamConfig) { c.MaxAge = age })
	}
	set(time.Hour)
	s.bucket.headUnknown = true // as after a failure
	err := s.Commit(t.Context(), []event.KV{kv("e/a", "2")})
	if err == nil || errors.Is(err, checkpoint.ErrUnusable) || errors.Is(err, checkpoint.ErrForeign) || !strings.Contains(err.Error(), "after 1h0m0s, want never") {
		t.Errorf("Commit: %v, want an error to be tried again, with the setting", err)
	}
	crash(s)
	if _, err := openStore(options(b.url())); !errors.Is(err, checkpoint.ErrUnusable) {
		t.Errorf("Load: %v, want ErrUnusable", err)
	}
	set(0)
	wantKeys(t, mustOpenStore(t, options(b.url())), kv("e/a", "1"))
}

// During an outage of the bus, commits with a mark succeed until the outage is noticed. Then they wait
// and return the error. Nothing is lost when the bus is back.
func TestBusDown(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	o := options(b.url())
	o.Delay = time.Millisecond
	s := mustOpenStore(t, o)
	commit(t, s, kv("e/a", "1"))
	b.stop()
	commit(t, s, kv("e/a", "2"), markKV("m2"))
	wait(t, "the failure to be known", s.behind)
	if err := s.Commit(t.Context(), []event.KV{kv("e/b", "3"), markKV("m3")}); err == nil {
		t.Error("a commit succeeded though the bucket was known to be behind")
	}
	b.start(t)
	wait(t, "a commit", func() bool { return s.Commit(t.Context(), []event.KV{kv("e/c", "4"), markKV("m4")}) == nil })
	crash(s)
	wantKeys(t, mustOpenStore(t, o), kv("e/a", "2"), kv("e/b", "3"), kv("e/c", "4"), markKV("m4"))
}

// If the bucket is deleted, or its server restarts without the last writes, the bucket is written again from the working
// copy.
func TestBucketLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		lose func(t *testing.T, b *bus, saved string)
	}{
		{"deleted", func(t *testing.T, b *bus, _ string) {
			if err := b.client(t).DeleteKeyValue(t.Context(), BucketName(testIdentity)); err != nil {
				t.Fatal(err)
			}
		}},
		{"tail lost", func(t *testing.T, b *bus, saved string) {
			b.restore(t, saved)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBus(t, nil)
			if _, err := b.client(t).CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEEP", Subjects: []string{"keep"}}); err != nil {
				t.Fatal(err)
			}
			o := options(b.url())
			s := mustOpenStore(t, o, smallChunks)
			commit(t, s, kv("e/gone", "1"))
			saved := b.save(t)
			var all []event.KV
			for i := range 30 {
				all = append(all, kv(fmt.Sprintf("e/%02d", i), "x"))
			}
			all = append(all, event.KV{Key: []byte("e/gone")})
			wait(t, "a commit", func() bool { return s.Commit(t.Context(), all) == nil })
			c.lose(t, b, saved)
			wait(t, "a commit", func() bool { return s.Commit(t.Context(), []event.KV{kv("e/last", "1")}) == nil })
			crash(s)
			wantKeys(t, mustOpenStore(t, o, smallChunks), append(all, kv("e/last", "1"), event.KV{Key: checkpoint.ResetKey()})...)
		})
	}
}

// A bucket that has lost its end is written again also if its old content cannot be purged at first.
func TestBucketLostAndNotPurged(t *testing.T) {
	t.Parallel()
	denied := func(subject string) []*server.User {
		return []*server.User{{Username: "bridge", Password: "b", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{subject}}}}}
	}
	b := startBus(t, func(o *server.Options) { o.Users = denied("nothing") })
	o := options(fmt.Sprintf("nats://bridge:b@127.0.0.1:%d", b.opts.Port))
	s := mustOpenStore(t, o)
	commit(t, s, kv("e/a", "1"))
	saved := b.save(t)
	wait(t, "a commit", func() bool { return s.Commit(t.Context(), []event.KV{kv("e/b", "2")}) == nil })
	b.stop()
	copyDir(t, b.opts.StoreDir, saved)
	stream, _ := bucketStream(BucketName(testIdentity))
	b.opts.Users = denied(api + "STREAM.PURGE." + stream)
	b.start(t)
	write := func() error { return s.Commit(t.Context(), []event.KV{kv("e/c", "3")}) }
	wait(t, "a purge", func() bool { return errors.Is(write(), nats.ErrPermissionViolation) })
	allowed := b.opts
	allowed.Users = denied("nothing")
	if err := b.srv.ReloadOptions(&allowed); err != nil {
		t.Fatal(err)
	}
	wait(t, "a commit", func() bool { return write() == nil })
	crash(s)
	wantKeys(t, mustOpenStore(t, o), kv("e/a", "1"), kv("e/b", "2"), kv("e/c", "3"))
}

// A bucket that was emptied while the bridge was down is not a new one: a reset is requested.
func TestPurgedWhileOff(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := mustOpenStore(t, options(b.url()))
	commit(t, s, kv("e/a", "1"))
	crash(s)
	stream, err := b.client(t).Stream(t.Context(), "KV_"+BucketName(testIdentity))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = mustOpenStore(t, options(b.url()))
	wantKeys(t, s, event.KV{Key: []byte("e/a")}, resetDue)
}

// A starter whose successor has begun before the starter loads the checkpoint stops, and does not take the checkpoint away from the successor.
func TestOvertakenStarter(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	opened := func() *Store {
		t.Helper()
		s := NewStore(options(b.url()))
		t.Cleanup(func() { _ = s.Close() }) // nothing is pending
		mustOpen(t, s.o.Sink, nil)
		t.Cleanup(func() { _ = s.o.Sink.Close() }) // the test is over
		return s
	}
	starter := opened()
	next := opened()
	if err := next.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := starter.Load(t.Context()); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("the starter got %v, want ErrFenced", err)
	}
	commit(t, next, kv("e/a", "1"))
}

// A setting of the bucket's stream that would lose the checkpoint is found while the bridge runs. Once it is right again, all is
// written again, because values may be gone.
func TestBucketSettingsAreLookedAtAgain(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	o := options(b.url())
	s := mustOpenStore(t, o)
	commit(t, s, kv("e/a", "1"))
	s.bucket.lookEvery = 0 // a minute passes
	js := b.client(t)
	stream, _ := bucketStream(BucketName(testIdentity))
	reconfigure(t, js, stream, func(c *jetstream.StreamConfig) { c.Duplicates, c.MaxAge = 100*time.Millisecond, 100*time.Millisecond })
	for range 2 {
		if err := s.Commit(t.Context(), []event.KV{kv("e/b", "2")}); err == nil || !strings.Contains(err.Error(), "forgets values") {
			t.Fatalf("Commit: %v", err)
		}
	}
	wait(t, "values to be forgotten", func() bool {
		handle, err := js.Stream(t.Context(), stream)
		return err == nil && handle.CachedInfo().State.Msgs == 0
	})
	reconfigure(t, js, stream, func(c *jetstream.StreamConfig) { c.MaxAge = 0 })
	commit(t, s, kv("e/c", "3"))
	crash(s)
	wantKeys(t, mustOpenStore(t, o), kv("e/a", "1"), kv("e/b", "2"), kv("e/c", "3"))
}
