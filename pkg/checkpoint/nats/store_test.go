package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/checkpointtest"
	"github.com/kubebridge/kubebridge/pkg/event"
)

var testIdentity = event.Identity{Bridge: "bridge", Cluster: "test", ClusterUID: "0b5e-uid", Sink: "live"}

func dial(url string) func() (*nats.Conn, error) {
	return func() (*nats.Conn, error) {
		return nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1))
	}
}

func options(url string) Options { return Options{Connect: dial(url), Identity: testIdentity} }

func openStore(o Options) (*Store, error) {
	s := New(o)
	if err := s.Load(context.Background()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// open is what the suite opens, also in the process that it kills: in chunks so small
// that the suite's larger commits are written packed first, and cleaning all the time.
func open(url string) (checkpointtest.Store, error) {
	o := options(url)
	o.chunk, o.cleanFrom, o.settle = 150, 10, time.Millisecond
	return openStore(o)
}

func TestMain(m *testing.M) { checkpointtest.Main(m, open, serverGoroutines()...) }

// serverGoroutines are the server's own: it forgets a stream that is being made while it
// shuts down.
func serverGoroutines() []goleak.Option {
	const server = "github.com/nats-io/nats-server/v2/server"
	return []goleak.Option{goleak.IgnoreAnyFunction(server + ".(*fileStore).flushStreamStateLoop"), goleak.IgnoreAnyFunction(server + "/ats.Register.func1")}
}

// bus is a real server.
type bus struct {
	opts server.Options
	srv  *server.Server
}

func startBus(t *testing.T) *bus {
	t.Helper()
	return startBusWith(t, func(*server.Options) {})
}

func startBusWith(t *testing.T, change func(*server.Options)) *bus {
	t.Helper()
	b := &bus{opts: server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
	}}
	change(&b.opts)
	b.start(t)
	t.Cleanup(b.stop)
	return b
}

func (b *bus) start(t *testing.T) {
	t.Helper()
	opts := b.opts
	srv, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("NATS server is not ready")
	}
	b.srv = srv
	b.opts.Port = srv.Addr().(*net.TCPAddr).Port
}

func (b *bus) stop() {
	b.srv.Shutdown()
	b.srv.WaitForShutdown()
}

func (b *bus) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", b.opts.Port) }

func (b *bus) js(t *testing.T) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(b.url())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestSuite(t *testing.T) {
	checkpointtest.Run(t, checkpointtest.Config{Open: open, Trails: true, Place: func(t *testing.T) string { return startBus(t).url() }})
}

// A working copy on disk goes with the store.
func TestScratch(t *testing.T) {
	b := startBus(t)
	o := options(b.url())
	o.Scratch = t.TempDir()
	s := mustOpen(t, o)
	var all []event.KV
	for i := range 2500 {
		all = append(all, kv(fmt.Sprintf("e/pods/ns/%04d", i), "x"))
	}
	commit(t, s, all...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, o)
	expect(t, s, all...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(o.Scratch); err != nil || len(left) > 0 {
		t.Errorf("working copies are left behind: %v, %v", left, err)
	}
}

func mustOpen(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := openStore(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // what it could not write is logged
	return s
}

func kv(key, value string) event.KV { return event.KV{Key: []byte(key), Value: []byte(value)} }

func mark(value string) event.KV {
	return event.KV{Key: checkpoint.MarkKey(), Value: []byte(value)}
}

func commit(t *testing.T, s *Store, changes ...event.KV) {
	t.Helper()
	if err := s.Commit(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, s checkpoint.Store, want ...event.KV) {
	t.Helper()
	for _, kv := range want {
		got, err := s.Get(kv.Key)
		if err != nil || string(got) != string(kv.Value) || (got == nil) != (kv.Value == nil) {
			t.Errorf("%s is %q, %v, want %q", kv.Key, got, err, kv.Value)
		}
	}
}

// crash ends a store as kill -9 would: nothing more is written.
func crash(s *Store) {
	s.halt()
	s.bucket.close()
}

// within waits for what another goroutine brings about.
func within(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}

// A commit that the sink can bring back trails; any other carries all before it along.
func TestTrailing(t *testing.T) {
	b := startBus(t)
	o := options(b.url())
	o.Delay = time.Hour
	s := mustOpen(t, o)
	commit(t, s, kv("e/a", "1"), mark("m1"))
	expect(t, s, kv("e/a", "1"), mark("m1"))
	crash(s)
	s = mustOpen(t, o)
	expect(t, s, event.KV{Key: []byte("e/a")}, event.KV{Key: checkpoint.MarkKey()})

	commit(t, s, kv("e/a", "1"), mark("m1"))
	commit(t, s, kv("p/pods", "at 1 7"))
	crash(s)
	s = mustOpen(t, o)
	expect(t, s, kv("e/a", "1"), kv("p/pods", "at 1 7"), mark("m1"))

	o.Delay = time.Millisecond
	s = mustOpen(t, o)
	commit(t, s, kv("e/a", "2"), mark("m2"))
	within(t, "the background to write it", func() bool {
		s.writing.Lock() // what was taken has been written
		defer s.writing.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pending) == 0
	})
	crash(s)
	expect(t, mustOpen(t, o), kv("e/a", "2"), mark("m2"))
}

// Close leaves nothing behind unwritten.
func TestCloseWrites(t *testing.T) {
	b := startBus(t)
	o := options(b.url())
	o.Delay = time.Hour
	s := mustOpen(t, o)
	commit(t, s, kv("e/a", "1"), mark("m1"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	expect(t, mustOpen(t, o), kv("e/a", "1"), mark("m1"))
}

// A predecessor that is still alive can write nothing any more.
func TestTakenOver(t *testing.T) {
	b := startBus(t)
	o := options(b.url())
	o.Delay = time.Hour
	old := mustOpen(t, o)
	commit(t, old, kv("e/a", "1"))
	commit(t, old, kv("e/a", "zombie"), mark("m9"))
	next := mustOpen(t, o)
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
	expect(t, mustOpen(t, o), kv("e/a", "1"), kv("e/c", "3"), event.KV{Key: []byte("e/b")}, event.KV{Key: checkpoint.MarkKey()})
}

// A process that dies between the packed form of a write and its keys has committed it.
func TestIncompleteWrite(t *testing.T) {
	b := startBus(t)
	o := options(b.url())
	o.chunk = 10
	s := mustOpen(t, o)
	commit(t, s, kv("e/000", "old"), kv("e/gone", "old"))
	changes := map[string][]byte{"e/gone": nil}
	for i := range 100 {
		changes[fmt.Sprintf("e/%03d", i)] = []byte("new")
	}
	redo, err := s.bucket.pack(changes)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.bucket.publish(t.Context(), append(redo, s.bucket.head(len(redo)))); err != nil {
		t.Fatal(err)
	}
	msgs, err := s.bucket.messages(changes)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.bucket.publish(t.Context(), msgs[:10]); err != nil { // and some of its keys
		t.Fatal(err)
	}
	crash(s)
	for range 2 { // as often as it dies there
		s = mustOpen(t, o)
		expect(t, s, kv("e/000", "new"), kv("e/099", "new"), event.KV{Key: []byte("e/gone")}, event.KV{Key: checkpoint.ResetKey()})
		crash(s)
	}
	s = mustOpen(t, o)
	commit(t, s, kv("e/000", "newest"))
	if s.bucket.redo != 0 {
		t.Error("the incomplete write was not completed")
	}
	crash(s)
	expect(t, mustOpen(t, o), kv("e/000", "newest"), kv("e/099", "new"), event.KV{Key: []byte("e/gone")})
}

// Half a write, as a server leaves it that loses power, or a key that somebody else put
// there: what the checkpoint says can no longer be relied on.
func TestTornWrite(t *testing.T) {
	b := startBus(t)
	s := mustOpen(t, options(b.url()))
	commit(t, s, kv("p/pods", "at 1 7"))
	crash(s)
	bucket, err := b.js(t).KeyValue(t.Context(), BucketName(testIdentity))
	if err != nil {
		t.Fatal(err)
	}
	key, _ := token("p/pods")
	if _, err := bucket.PutString(t.Context(), key, "at 1 900"); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, options(b.url()))
	expect(t, s, resetDue)
	commit(t, s, kv("e/a", "1"))
	crash(s)
	expect(t, mustOpen(t, options(b.url())), resetDue, kv("e/a", "1"))
}

// NATS tools must find an ordinary bucket, with keys that can be read.
func TestBucketIsOrdinary(t *testing.T) {
	b := startBus(t)
	s := mustOpen(t, options(b.url()))
	long := "p/pods?labels=" + strings.Repeat("tier=a,", 300)
	commit(t, s, kv("e/roles.rbac.authorization.k8s.io/ns/system:*>x", "1"), kv(long, "2"), kv("e/a", "3"))
	commit(t, s, event.KV{Key: []byte("e/a")})
	bucket, err := b.js(t).KeyValue(t.Context(), "kubebridge_bridge_0b5e-uid_live")
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
	s = mustOpen(t, options(b.url()))
	expect(t, s, kv(long, "2"), kv("e/roles.rbac.authorization.k8s.io/ns/system:*>x", "1"), event.KV{Key: []byte("e/a")})
}

func TestRefused(t *testing.T) {
	other := func(change func(*event.Identity)) Options {
		id := testIdentity
		change(&id)
		return Options{Identity: id, Bucket: BucketName(testIdentity)}
	}
	for _, c := range []struct {
		name string
		o    Options
		put  map[string]string
		want error
		text string
	}{
		{"cluster", other(func(id *event.Identity) { id.ClusterUID = "else" }), nil, checkpoint.ErrForeign, `"else"`},
		{"bridge", other(func(id *event.Identity) { id.Bridge = "else" }), nil, checkpoint.ErrForeign, "bridge"},
		{"sink", other(func(id *event.Identity) { id.Sink = "else" }), nil, checkpoint.ErrForeign, "sink"},
		{"newer head", Options{Identity: testIdentity}, map[string]string{headToken: `{"version":99}`}, checkpoint.ErrNewer, "99"},
		{"older head", Options{Identity: testIdentity}, map[string]string{headToken: `{"version":1}`}, checkpoint.ErrOlder, "`bridge checkpoint reset --sink live`"},
		{"older identity", Options{Identity: testIdentity}, map[string]string{"=21identity": `{"version":1}`}, checkpoint.ErrOlder, "`bridge checkpoint reset --sink live`"},
		{"newer identity", Options{Identity: testIdentity}, map[string]string{"=21identity": `{"version":99}`}, checkpoint.ErrNewer, "99"},
		{"head", Options{Identity: testIdentity}, map[string]string{headToken: "x"}, checkpoint.ErrCorrupt, "head"},
		{"identity", Options{Identity: testIdentity}, map[string]string{"=21identity": "x"}, checkpoint.ErrCorrupt, "identity"},
		{"key", Options{Identity: testIdentity}, map[string]string{"a=zz": "x"}, checkpoint.ErrCorrupt, "a=zz"},
		{"part of a write", Options{Identity: testIdentity}, map[string]string{headToken: `{"version":3,"redo":3}`}, checkpoint.ErrCorrupt, "part 1 of 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBus(t)
			s := mustOpen(t, options(b.url()))
			commit(t, s, kv("e/a", "1"))
			crash(s)
			bucket, err := b.js(t).KeyValue(t.Context(), BucketName(testIdentity))
			if err != nil {
				t.Fatal(err)
			}
			for key, value := range c.put {
				if _, err := bucket.PutString(t.Context(), key, value); err != nil {
					t.Fatal(err)
				}
			}
			c.o.Connect = dial(b.url())
			_, err = openStore(c.o)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), BucketName(testIdentity)) {
				t.Errorf("got %v, want %v naming %s and the bucket", err, c.want, c.text)
			}
		})
	}
	t.Run("somebody's bucket", func(t *testing.T) {
		b := startBus(t)
		bucket, err := b.js(t).CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: BucketName(testIdentity)})
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

// Settings that lose values end the program at its start; later they are tried again until somebody corrects them.
func TestUnusableSettings(t *testing.T) {
	b := startBus(t)
	s := mustOpen(t, options(b.url()))
	commit(t, s, kv("e/a", "1"))
	name := "KV_" + BucketName(testIdentity)
	set := func(age time.Duration) {
		t.Helper()
		stream, err := b.js(t).Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		c := stream.CachedInfo().Config
		c.MaxAge = age
		if _, err := b.js(t).UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	set(time.Hour)
	s.bucket.unsure = true // as after a failure
	err := s.Commit(t.Context(), []event.KV{kv("e/a", "2")})
	if err == nil || errors.Is(err, checkpoint.ErrUnusable) || errors.Is(err, checkpoint.ErrForeign) || !strings.Contains(err.Error(), "after 1h0m0s, want never") {
		t.Errorf("Commit: %v, want an error to be tried again, with the setting", err)
	}
	crash(s)
	if _, err := openStore(options(b.url())); !errors.Is(err, checkpoint.ErrUnusable) {
		t.Errorf("Load: %v, want ErrUnusable", err)
	}
	set(0)
	expect(t, mustOpen(t, options(b.url())), kv("e/a", "1"))
}

// The bus goes away: commits that need not wait go on until it is known, then they wait
// and say why; nothing is lost when it comes back.
func TestBusDown(t *testing.T) {
	b := startBus(t)
	o := options(b.url())
	o.Delay = time.Millisecond
	s := mustOpen(t, o)
	commit(t, s, kv("e/a", "1"))
	b.stop()
	commit(t, s, kv("e/a", "2"), mark("m2"))
	within(t, "the failure to be known", s.behind)
	if err := s.Commit(t.Context(), []event.KV{kv("e/b", "3"), mark("m3")}); err == nil {
		t.Error("a commit succeeded though the bucket was known to be behind")
	}
	b.start(t)
	within(t, "a commit", func() bool { return s.Commit(t.Context(), []event.KV{kv("e/c", "4"), mark("m4")}) == nil })
	crash(s)
	expect(t, mustOpen(t, o), kv("e/a", "2"), kv("e/b", "3"), kv("e/c", "4"), mark("m4"))
}

// The bucket is deleted, or its server comes back without the last writes: the working
// copy has everything.
func TestBucketLost(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(t *testing.T, b *bus, saved string)
	}{
		{"deleted", func(t *testing.T, b *bus, _ string) {
			if err := b.js(t).DeleteKeyValue(t.Context(), BucketName(testIdentity)); err != nil {
				t.Fatal(err)
			}
		}},
		{"tail lost", func(t *testing.T, b *bus, saved string) {
			b.stop()
			copyDir(t, b.opts.StoreDir, saved)
			b.start(t)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBus(t)
			if _, err := b.js(t).CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEEP", Subjects: []string{"keep"}}); err != nil {
				t.Fatal(err)
			}
			o := options(b.url())
			o.chunk = 10
			s := mustOpen(t, o)
			commit(t, s, kv("e/gone", "1"))
			b.stop()
			saved := t.TempDir() + "/saved"
			copyDir(t, saved, b.opts.StoreDir)
			b.start(t)
			var all []event.KV
			for i := range 30 {
				all = append(all, kv(fmt.Sprintf("e/%02d", i), "x"))
			}
			all = append(all, event.KV{Key: []byte("e/gone")})
			within(t, "a commit", func() bool { return s.Commit(t.Context(), all) == nil })
			c.lose(t, b, saved)
			within(t, "a commit", func() bool { return s.Commit(t.Context(), []event.KV{kv("e/last", "1")}) == nil })
			crash(s)
			expect(t, mustOpen(t, o), append(all, kv("e/last", "1"), event.KV{Key: checkpoint.ResetKey()})...)
		})
	}
}

func copyDir(t *testing.T, to, from string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// An operator asks for a reset with NATS tools, as `bridge checkpoint reset` says: it
// must be found, also when the bridge was running.
func TestResetByNATSTools(t *testing.T) {
	b := startBus(t)
	s := mustOpen(t, options(b.url()))
	commit(t, s, kv("e/a", "1"))
	bucket, err := b.js(t).KeyValue(t.Context(), BucketName(testIdentity))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.PutString(t.Context(), "=21reset", string(checkpoint.ResetRequested())); err != nil {
		t.Fatal(err)
	}
	within(t, "a commit", func() bool { return s.Commit(t.Context(), []event.KV{kv("e/a", "2")}) == nil })
	crash(s)
	expect(t, mustOpen(t, options(b.url())), kv("e/a", "2"), resetDue)
}

// A bucket that somebody emptied while the bridge was off is not a new one.
func TestPurgedWhileOff(t *testing.T) {
	b := startBus(t)
	s := mustOpen(t, options(b.url()))
	commit(t, s, kv("e/a", "1"))
	crash(s)
	stream, err := b.js(t).Stream(t.Context(), "KV_"+BucketName(testIdentity))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, options(b.url()))
	expect(t, s, event.KV{Key: []byte("e/a")}, resetDue)
}
