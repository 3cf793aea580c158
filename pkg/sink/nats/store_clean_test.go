package nats

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// killed starts a server on the files that another one would leave behind if it were killed now. The index of the files is
// missing, so that the server has to read them.
func killed(t *testing.T, b *bus) *bus {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	copyDir(t, dir, b.opts.StoreDir)
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == "index.db" {
			err = os.Remove(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return startBus(t, func(o *server.Options) { o.StoreDir = dir })
}

// holds checks all entries of a store.
func holds(t *testing.T, s *Store, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	err := s.Scan([]byte("e/"), func(key, value []byte) error { got[string(key)] = string(value); return nil })
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("%v, the bucket holds %v\nwant %v", err, got, want)
	}
}

func (b *bus) messages(t *testing.T) int {
	t.Helper()
	stream, err := b.client(t).Stream(t.Context(), "KV_"+BucketName(testIdentity))
	if err != nil {
		t.Fatal(err)
	}
	return int(stream.CachedInfo().State.Msgs)
}

// Deleted keys stay deleted when the server is killed, also long after the deletion. Otherwise deleted objects would be in the
// inventory again, and the bridge would publish their deletion once more. (A tombstone that
// expires brings the value back: nats-server #8505.)
func TestDeletedStaysDeleted(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := mustOpenStore(t, options(b.url()), oftenClean)
	want := map[string]string{"e/stays": "1"}
	commit(t, s, kv("e/stays", "1"))
	for i := range 100 {
		key := fmt.Sprintf("e/%03d", i)
		commit(t, s, kv(key, "1"))
		commit(t, s, event.KV{Key: []byte(key)})
	}
	wait(t, "the tombstones' end", func() bool {
		commit(t, s, kv("p/pods", fmt.Sprint("at ", time.Now().UnixNano())))
		return b.messages(t) < 50
	})
	holds(t, s, want)
	crash(s)
	holds(t, mustOpenStore(t, options(killed(t, b).url())), want)
}

// The content is the same at every step of the cleaning: for a reader after a crash of the bridge, of the server, or of both, and
// for a new writer. The bucket stays small.
func TestCleaning(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := mustOpenStore(t, options(b.url()), oftenClean)
	r := rand.New(rand.NewPCG(1, 1))
	want := map[string]string{}
	steps := map[string]int{}
	for i := range 400 {
		var changes []event.KV
		for range 1 + r.IntN(8) {
			key := fmt.Sprintf("e/%03d", r.IntN(60)+i/4) // names are created and deleted
			if r.IntN(9) == 0 {
				key += "/" + string(make([]byte, 600)) // longer than a subject may be
			}
			if r.IntN(2) == 0 {
				changes = append(changes, event.KV{Key: []byte(key)})
				delete(want, key)
			} else {
				changes = append(changes, kv(key, fmt.Sprint(i)))
				want[key] = fmt.Sprint(i)
			}
		}
		commit(t, s, changes...)
		switch c := s.bucket.cleaning; {
		case c.passEnd == 0:
			steps["none"]++
		case c.next <= c.passEnd:
			steps["writes again"]++
		default:
			steps["waits to cut off"]++
		}
		switch r.IntN(40) {
		case 0:
			crash(s)
			s = mustOpenStore(t, options(b.url()), oftenClean)
			holds(t, s, want)
		case 1: // the predecessor is still running, and does not know that it is fenced
			before := s
			s = mustOpenStore(t, options(b.url()), oftenClean)
			if err := before.Commit(t.Context(), []event.KV{kv("e/late", "1")}); err == nil {
				t.Fatal("two writers")
			}
			holds(t, s, want)
		case 2:
			other := killed(t, b)
			holds(t, mustOpenStore(t, options(other.url())), want)
		}
		if n := b.messages(t); n > 3*len(want)+150 {
			t.Fatalf("%d messages for %d keys", n, len(want))
		}
	}
	if steps["none"] < 20 || steps["writes again"] < 20 || steps["waits to cut off"] < 20 {
		t.Errorf("commits met the cleaning at these steps: %v", steps)
	}
	crash(s)
	holds(t, mustOpenStore(t, options(killed(t, b).url())), want)
}

// oftenClean makes a bucket clean often, in small steps.
func oftenClean(b *bucket) { b.most, b.cleanFrom, b.purgeDelay = 15, 20, 20*time.Millisecond }

// keepsHistory makes the bucket keep the values that later ones replace. What is read is then what a replica that lags returns: values that
// the stream's leader no longer has.
func (b *bus) keepsHistory(t *testing.T) {
	t.Helper()
	name, _ := bucketStream(BucketName(testIdentity))
	reconfigure(t, b.client(t), name, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 10 })
}

// A cleaning pass that reads from a replica that lags does not write a value again that was replaced or deleted since. Otherwise the bucket
// would have it until the key changes the next time.
func TestCleaningLaggingReplica(t *testing.T) {
	t.Parallel()
	long := "e/" + strings.Repeat("long", 200)
	for name, later := range map[string][]event.KV{
		"replaced":      {kv("e/a", "2"), kv(long, "2")},
		"deleted":       {{Key: []byte("e/a")}, {Key: []byte(long)}},
		"written later": {kv("e/a", "2"), kv(long, "2"), markKV("1")}, // which is delayed
		"emptied":       {kv("e/a", ""), kv(long, "")},
		"neither":       {}, // but e/old was deleted, and e/stays replaced, before the pass began
	} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t, nil)
			o := options(b.url())
			o.Delay = time.Hour
			s := mustOpenStore(t, o)
			b.keepsHistory(t)
			commit(t, s, kv("e/a", "1"), kv(long, "1"), kv("e/stays", "1"), kv("e/empty", ""), kv("e/old", "1"))
			commit(t, s, event.KV{Key: []byte("e/old")}, kv("e/stays", "2"))
			c := &s.bucket.cleaning
			s.bucket.pass++
			c.passEnd, c.next = s.bucket.head, 1
			later = append(later, kv("e/new", "2"))
			commit(t, s, later...) // unless it is delayed, this write runs the only step of the pass
			if err := s.bucket.clean(t.Context(), s.Get); err != nil || c.next <= c.passEnd {
				t.Fatalf("the pass is at %d of %d: %v", c.next, c.passEnd, err)
			}
			want := map[string]string{}
			commit(t, s, kv("e/last", "3"))
			err := s.Scan([]byte("e/"), func(key, value []byte) error { want[string(key)] = string(value); return nil })
			if err != nil || want["e/stays"] != "2" || len(want) < 4 {
				t.Fatalf("%v, %v", want, err)
			}
			crash(s)
			name, _ := bucketStream(BucketName(testIdentity))
			reconfigure(t, b.client(t), name, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 })
			next := mustOpenStore(t, options(b.url()))
			holds(t, next, want)
			if next.bucket.valid == 0 {
				t.Error("the pass has not ended")
			}
		})
	}
}

// A start that reads from a replica that lags does not take keys over that were deleted since.
func TestLoadLaggingReplica(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := mustOpenStore(t, options(b.url()))
	b.keepsHistory(t)
	long := "e/" + strings.Repeat("long", 200)
	commit(t, s, kv("e/a", "1"), kv("e/again", "1"), kv("e/stays", "1"), kv(long, "1"))
	commit(t, s, event.KV{Key: []byte("e/a")}, event.KV{Key: []byte("e/again")}, event.KV{Key: []byte(long)})
	commit(t, s, kv("e/again", "2"))
	if err := s.fresh(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.bucket.readAll(t.Context(), 0, s.copy().Commit); err != nil {
		t.Fatal(err)
	}
	holds(t, s, map[string]string{"e/again": "2", "e/stays": "1"})
}
