// Package checkpointtest is the test suite that every checkpoint store must pass.
//
// A store's test calls [Main] from TestMain and [Run] from one test:
//
//	func open(place string) (checkpointtest.Store, error) { return mystore.Open(place, …) }
//
//	func TestMain(m *testing.M) { checkpointtest.Main(m, open) }
//
//	func TestSuite(t *testing.T) {
//		checkpointtest.Run(t, checkpointtest.Config{Open: open, Place: func(t *testing.T) string { return t.TempDir() }})
//	}
package checkpointtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Store is a store that the suite can test.
type Store interface {
	checkpoint.Store
	io.Closer
}

// Config says how to open stores of a kind.
type Config struct {
	// Open opens the store at a place, and creates it if there is none. A store that is opened at the same
	// place later has the same content.
	Open func(place string) (Store, error)

	// Place returns the name of a place without a store: a directory, a topic, a bucket. It may be called by several tests at a time.
	Place func(t *testing.T) string

	// Volatile is set for a store whose content is lost by Close. The suite then does not open it again,
	// and kills no process.
	Volatile bool

	// Trails is set for a [checkpoint.Loader] that makes commits with [checkpoint.MarkKey] durable later.
	Trails bool
}

// Run runs the suite. Its tests are parallel: each has a place of its own. Unless the store is volatile, TestMain must call [Main].
func Run(t *testing.T, c Config) {
	run := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
	run("get", c.get)
	run("empty value", c.emptyValue)
	run("last change of a key wins", c.lastWins)
	run("slices are the caller's", c.ownership)
	run("scan", c.scan)
	run("scan stops at an error", c.scanStops)
	run("commit and get inside a scan", c.scanCommits)
	run("big commit", c.bigCommit)
	run("nothing to commit", c.nothing)
	run("a mark", c.mark)
	run("ended context", c.endedContext)
	run("readers beside a writer", c.readers)
	run("model", c.model)
	if !c.Volatile {
		run("reopen", c.reopen)
		run("kill", func(t *testing.T) { c.kill(t, false) })
		run("kill among commits with a mark", func(t *testing.T) { c.kill(t, true) })
	}
}

func (c *Config) open(t *testing.T, place string) Store {
	t.Helper()
	s, err := c.Open(place)
	if err != nil {
		t.Fatalf("open %s: %v", place, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func (c *Config) fresh(t *testing.T) Store {
	t.Helper()
	return c.open(t, c.Place(t))
}

func commit(t *testing.T, s Store, changes ...event.KV) {
	t.Helper()
	if err := s.Commit(t.Context(), changes); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

func kv(key, value string) event.KV { return event.KV{Key: []byte(key), Value: []byte(value)} }

func del(key string) event.KV { return event.KV{Key: []byte(key)} }

// expect checks the value of key. A nil want means that there must be none.
func expect(t *testing.T, s Store, key string, want []byte) {
	t.Helper()
	got, err := s.Get([]byte(key))
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	if (got == nil) != (want == nil) || string(got) != string(want) {
		t.Fatalf("get %q: %q (nil: %t), want %q (nil: %t)", key, got, got == nil, want, want == nil)
	}
}

// list returns what a scan finds, as "key=value".
func list(t *testing.T, s Store, prefix string) []string {
	t.Helper()
	seen := []string{}
	err := s.Scan([]byte(prefix), func(k, v []byte) error {
		seen = append(seen, string(k)+"="+string(v))
		return nil
	})
	if err != nil {
		t.Fatalf("scan %q: %v", prefix, err)
	}
	return seen
}

func (c *Config) get(t *testing.T) {
	s := c.fresh(t)
	expect(t, s, "e/pods/a/x", nil)
	commit(t, s, kv("e/pods/a/x", "1"), kv("e/pods/a/xy", "2"))
	expect(t, s, "e/pods/a/x", []byte("1"))
	expect(t, s, "e/pods/a/", nil)
	commit(t, s, kv("e/pods/a/x", "3"), del("e/pods/a/xy"), del("e/never"))
	expect(t, s, "e/pods/a/x", []byte("3"))
	expect(t, s, "e/pods/a/xy", nil)
}

func (c *Config) emptyValue(t *testing.T) {
	s := c.fresh(t)
	commit(t, s, kv("e/a", ""), kv("e/b", "1"))
	expect(t, s, "e/a", []byte{})
	if got, want := list(t, s, "e/"), []string{"e/a=", "e/b=1"}; !slices.Equal(got, want) {
		t.Errorf("scan: %q, want %q", got, want)
	}
	commit(t, s, del("e/a"))
	expect(t, s, "e/a", nil)
}

func (c *Config) lastWins(t *testing.T) {
	s := c.fresh(t)
	commit(t, s, kv("e/a", "1"), kv("e/a", "2"), kv("e/b", "1"), del("e/b"), del("e/c"), kv("e/c", "1"))
	if got, want := list(t, s, "e/"), []string{"e/a=2", "e/c=1"}; !slices.Equal(got, want) {
		t.Errorf("scan: %q, want %q", got, want)
	}
}

func (c *Config) ownership(t *testing.T) {
	s := c.fresh(t)
	change := kv("e/a", "value")
	commit(t, s, change)
	copy(change.Key, "xxx")
	copy(change.Value, "xxxxx")
	got, err := s.Get([]byte("e/a"))
	if err != nil {
		t.Fatal(err)
	}
	copy(got, "yyyyy")
	expect(t, s, "e/a", []byte("value"))
}

func (c *Config) scan(t *testing.T) {
	s := c.fresh(t)
	keys := []string{
		"e/nodes//n1", "e/pods.x/a/b", "e/pods/a/", "e/pods/a/b", "e/pods/a/b:c", "e/pods/a/b\x00", "e/pods/a/\xff", "e/pods/a/\xff\xff",
		"e/pods/ab/c", "e/podsx/a/b", "e0", "f", "i/pods/a/b/uid", "p/pods", "\xff", "\xff\xff", "\xff\xffz",
	}
	for i, k := range keys { // neither in order nor in one commit
		commit(t, s, kv(keys[(i*7)%len(keys)], k))
	}
	commit(t, s, event.KV{Key: []byte("e/pods/a/b")}, kv("e/pods/a/b", "again"))
	slices.Sort(keys)
	for _, prefix := range []string{"e/pods/a/", "e/pods/", "e/", "e", "p/pods", "e/pods/a/b\x00", "\xff", "\xff\xff", "none/"} {
		want := []string{}
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) {
				want = append(want, k)
			}
		}
		got := []string{}
		for _, line := range list(t, s, prefix) {
			k, _, _ := strings.Cut(line, "=")
			got = append(got, k)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("scan %q (-want +got):\n%s", prefix, diff)
		}
	}
	var all []string // without the store's own keys, which a scan may return
	for _, line := range list(t, s, "") {
		k, _, _ := strings.Cut(line, "=")
		all = append(all, k)
	}
	if !slices.IsSorted(all) || len(all) < len(keys) {
		t.Errorf("scan of everything is not in order or not complete: %q", all)
	}
}

func (c *Config) scanStops(t *testing.T) {
	s := c.fresh(t)
	commit(t, s, kv("e/a", "1"), kv("e/b", "2"), kv("e/c", "3"))
	enough := errors.New("enough")
	calls := 0
	err := s.Scan([]byte("e/"), func(k, _ []byte) error {
		calls++
		if string(k) == "e/b" {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || calls != 2 {
		t.Errorf("scan ended with %v after %d calls, want %v after 2", err, calls, enough)
	}
}

func (c *Config) scanCommits(t *testing.T) {
	s := c.fresh(t)
	commit(t, s, kv("e/a", "1"), kv("e/b", "1"), kv("e/c", "1"))
	var seen []string
	err := s.Scan([]byte("e/"), func(k, v []byte) error {
		seen = append(seen, string(k)+"="+string(v))
		if len(seen) == 1 {
			if err := s.Commit(t.Context(), []event.KV{kv("e/b", "2"), del("e/c"), kv("e/d", "2")}); err != nil {
				return err
			}
			if v, err := s.Get([]byte("e/d")); err != nil || string(v) != "2" {
				return fmt.Errorf("get inside the scan: %q, %w", v, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"e/a=1", "e/b=1", "e/c=1"}; !slices.Equal(seen, want) {
		t.Errorf("the scan saw a commit made meanwhile: %q, want %q", seen, want)
	}
	if got, want := list(t, s, "e/"), []string{"e/a=1", "e/b=2", "e/d=2"}; !slices.Equal(got, want) {
		t.Errorf("afterwards: %q, want %q", got, want)
	}
}

func (c *Config) bigCommit(t *testing.T) {
	place := c.Place(t)
	s, err := c.Open(place)
	if err != nil {
		t.Fatal(err)
	}
	const batch, size = 2000, 2000 // about 4 MiB, the largest commit of a pipeline
	value := strings.Repeat("x", size)
	for round := range 3 {
		var changes []event.KV
		for i := range batch {
			changes = append(changes, kv(fmt.Sprintf("e/pods/ns/%05d", i), fmt.Sprintf("%d %s", round, value)))
		}
		changes = append(changes, kv("p/pods", fmt.Sprint(round)))
		commit(t, s, changes...)
	}
	if !c.Volatile {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = c.Open(place); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	err = s.Scan([]byte("e/pods/"), func(k, v []byte) error {
		if string(v) != "2 "+value {
			return fmt.Errorf("%q has a value of %d bytes that was not written last", k, len(v))
		}
		n++
		return nil
	})
	if err != nil || n != batch {
		t.Errorf("%d of %d objects, %v", n, batch, err)
	}
	expect(t, s, "p/pods", []byte("2"))
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func (c *Config) nothing(t *testing.T) {
	s := c.fresh(t)
	commit(t, s, kv("e/a", "1"))
	commit(t, s)
	expect(t, s, "e/a", []byte("1"))
}

// mark checks that a mark is a value like any other: it becomes visible with the changes of its commit, and can be deleted.
func (c *Config) mark(t *testing.T) {
	s := c.fresh(t)
	key := string(checkpoint.MarkKey())
	commit(t, s, kv("e/a", "1"), kv(key, "m1"))
	expect(t, s, key, []byte("m1"))
	expect(t, s, "e/a", []byte("1"))
	commit(t, s, del("e/a"), del(key))
	expect(t, s, key, nil)
	expect(t, s, "e/a", nil)
}

func (c *Config) endedContext(t *testing.T) {
	s := c.fresh(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Commit(ctx, []event.KV{kv("e/a", "1")}); !errors.Is(err, context.Canceled) {
		t.Errorf("commit under an ended context: %v, want %v", err, context.Canceled)
	}
	expect(t, s, "e/a", nil)
	commit(t, s, kv("e/a", "2")) // and the store lives on
	expect(t, s, "e/a", []byte("2"))
}

func (c *Config) reopen(t *testing.T) {
	place := c.Place(t)
	want := []string{}
	for i := range 20 {
		s, err := c.Open(place)
		if err != nil {
			t.Fatalf("opening %d: %v", i, err)
		}
		if got := list(t, s, "e/"); !slices.Equal(got, want) {
			t.Fatalf("opening %d: %q, want %q", i, got, want)
		}
		commit(t, s, kv(fmt.Sprintf("e/%02d", i), "v"))
		want = append(want, fmt.Sprintf("e/%02d=v", i))
		if err := s.Close(); err != nil {
			t.Fatalf("closing %d: %v", i, err)
		}
	}
}
