package file

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// slowTables is a disk on which no table is written until release, so that several
// logs are needed at once.
type slowTables struct {
	vfs.FS
	release func()
}

func newSlowTables() *slowTables {
	written := make(chan struct{})
	return &slowTables{
		FS: errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
				<-written
			}
			return nil
		})),
		release: sync.OnceFunc(func() { close(written) }),
	}
}

// killed returns a copy of a store's directory that is made while the store is open, as kill -9 after a commit would leave it,
// and the number of that commit. The copy has at least so many logs.
func killed(t *testing.T, logs int) (path string, last int) {
	t.Helper()
	place := testDir(t)
	s, err := Open(place, testIdentity, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for ; last < 150; last++ { // the earlier ones are in tables
		if err := s.Commit(t.Context(), fill(last+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	disk := newSlowTables()
	defer disk.release()
	if s, err = open(place, &testIdentity, Options{fs: disk}); err != nil {
		t.Fatal(err)
	}
	// In the background, pebble removes the logs of what is in tables since Close. They would be counted below, but nothing needs them.
	for until := time.Now().Add(time.Minute); len(logsOf(t, place)) > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("logs that nothing needs stay")
		}
	}
	enough := func() bool {
		names := logsOf(t, place)
		info, err := os.Stat(names[len(names)-1])
		if err != nil {
			t.Fatal(err)
		}
		return len(names) >= logs && info.Size() > 150_000
	}
	for ; !enough(); last++ {
		if err := s.Commit(t.Context(), fill(last+1)); err != nil {
			t.Fatal(err)
		}
	}
	path = testDir(t)
	if err := os.CopyFS(path, os.DirFS(place)); err != nil {
		t.Fatal(err)
	}
	disk.release()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path, last
}

// logsOf returns the logs of a checkpoint, the newest last.
func logsOf(t *testing.T, path string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(path, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func edit(t *testing.T, name string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, change(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func discard(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// cut returns a function that removes the last n bytes.
func cut(n int) func([]byte) []byte {
	return func(b []byte) []byte { return b[:max(0, len(b)-n)] }
}

// After kill -9, a commit whose log is damaged must be detected: otherwise its events would be repeated, and its deletions
// would be undone. Either all commits are there, or every opening, for reading and for writing, returns an error and changes
// nothing, so that restoring the file repairs the checkpoint.
func TestLostLog(t *testing.T) {
	whole, last := killed(t, 3)
	newest := func(change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			logs := logsOf(t, path)
			edit(t, logs[len(logs)-1], change)
		}
	}
	count := func(change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) { edit(t, filepath.Join(path, countName), change) }
	}
	for name, damage := range map[string]func(*testing.T, string){
		"1 byte cut off":    newest(cut(1)),
		"100 bytes cut off": newest(cut(100)),
		"5 KB cut off":      newest(cut(5_000)),
		"32 KiB cut off":    newest(cut(32 << 10)),
		"127 KB cut off":    newest(cut(127_000)),
		"whole blocks left": newest(func(b []byte) []byte { return b[:len(b)/2>>15<<15] }),
		"emptied":           newest(cut(1 << 30)),
		"zeros":             newest(func(b []byte) []byte { return append(b[:len(b)-20_000], make([]byte, 20_000)...) }),
		"garbled near its end": newest(func(b []byte) []byte {
			b[len(b)-3000] ^= 0x10
			return b
		}),
		"newest log gone": func(t *testing.T, path string) {
			logs := logsOf(t, path)
			discard(t, logs[len(logs)-1])
		},
		"oldest log gone": func(t *testing.T, path string) { discard(t, logsOf(t, path)[0]) },
		"middle log gone": func(t *testing.T, path string) { discard(t, logsOf(t, path)[1]) },
		"all logs gone":   func(t *testing.T, path string) { discard(t, logsOf(t, path)...) },
		"older log cut at a block": func(t *testing.T, path string) {
			edit(t, logsOf(t, path)[0], func(b []byte) []byte { return b[:len(b)/2>>15<<15] })
		},
		"number gone":    func(t *testing.T, path string) { discard(t, filepath.Join(path, countName)) },
		"number emptied": count(cut(1 << 30)),
		"number garbled": count(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("0"), []byte("1")) }),
	} {
		t.Run(name, func(t *testing.T) {
			path := testDir(t)
			if err := os.CopyFS(path, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			damage(t, path)
			for range 2 {
				refused(t, path, testIdentity, checkpoint.ErrCorrupt, "put a copy back, or give it up with `bridge checkpoint reset --sink audit`")
				if s, err := OpenReadOnly(path); !errors.Is(err, checkpoint.ErrCorrupt) {
					t.Fatalf("open for reading: %v, %v", s, err)
				}
			}
			for _, name := range append(logsOf(t, whole), filepath.Join(whole, countName)) {
				b, err := os.ReadFile(name)
				if err == nil {
					err = os.WriteFile(filepath.Join(path, filepath.Base(name)), b, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			s, err := Open(path, testIdentity, Options{})
			if err != nil {
				t.Fatalf("what was taken is back: %v", err)
			}
			defer s.Close()
			if got := filled(t, s); got != last {
				t.Errorf("what was taken is back: commit %d is there, want %d", got, last)
			}
		})
	}
}

// The error for a checkpoint that lacks commits says how many are missing, and the user can declare a reset.
func TestLostLogIsNamed(t *testing.T) {
	path, last := killed(t, 1)
	logs := logsOf(t, path)
	discard(t, logs[len(logs)-1])
	// The first commit is the identity, and fill counts from 1.
	refused(t, path, testIdentity, checkpoint.ErrCorrupt, fmt.Sprintf("%d were synced", last+1))
	if err := Reset(path); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path, testIdentity, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if v, err := s.Get(checkpoint.ResetKey()); !bytes.Equal(v, checkpoint.ResetRequested()) || err != nil {
		t.Errorf("reset key %q, %v", v, err)
	}
}

// One or two files of the checkpoint of a killed process are cut off, garbled, zeroed or missing. Either all commits can be
// read, or there is an error.
func TestDamagedAnywhereAfterKill(t *testing.T) {
	path, last := killed(t, 3)
	found, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	harmed := map[bool]int{}
	for range 80 {
		damaged := testDir(t)
		if err := os.CopyFS(damaged, os.DirFS(path)); err != nil {
			t.Fatal(err)
		}
		var what []string
		for range 1 + rand.IntN(2) {
			what = append(what, harm(t, filepath.Join(damaged, found[rand.IntN(len(found))].Name())))
		}
		got, err := readFilled(t, damaged)
		harmed[err != nil]++
		if err != nil && !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, checkpoint.ErrNewer) && !errors.Is(err, checkpoint.ErrOlder) && !errors.Is(err, ErrNotCheckpoint) {
			t.Errorf("%v: error %v", what, err)
		}
		if err == nil && got != last {
			t.Errorf("%v: commit %d is there, want %d", what, got, last)
		}
	}
	t.Logf("%d refused, %d whole", harmed[true], harmed[false])
	if harmed[true] < 10 {
		t.Error("too little was damaged")
	}
}

// harm damages a file, if it exists, and returns what it did.
func harm(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	at, how := 0, rand.IntN(5)
	if len(b) == 0 {
		how = 0
	} else {
		at = rand.IntN(len(b))
	}
	done := ""
	switch how {
	case 0:
		discard(t, name)
		return filepath.Base(name) + " gone"
	case 1:
		done, b = "cut off", b[:at]
	case 2:
		done, b = "cut off at a block", b[:at>>15<<15]
	case 3:
		done = "garbled"
		b[at] ^= byte(1 + rand.IntN(255))
	case 4:
		done = "zeros"
		b = append(b[:at], make([]byte, len(b)-at)...)
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %s at %d", filepath.Base(name), done, at)
}

// readFilled opens a checkpoint and returns the number of its last commit.
func readFilled(t *testing.T, path string) (last int, err error) {
	t.Helper()
	s, err := Open(path, testIdentity, Options{})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if err := s.Scan(nil, func(_, _ []byte) error { return nil }); err != nil {
		return 0, err
	}
	return filled(t, s), nil
}

// A process that is killed in the middle of a commit can leave any part of that commit in the log. The checkpoint opens, with
// all earlier commits.
func TestKilledInTheMiddleOfACommit(t *testing.T) {
	path := testDir(t)
	s, err := Open(path, testIdentity, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	last := rand.IntN(30)
	for n := range last + 1 {
		if err := s.Commit(t.Context(), fill(n)); err != nil {
			t.Fatal(err)
		}
	}
	before := testDir(t)
	if err := os.CopyFS(before, os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), fill(last+1)); err != nil {
		t.Fatal(err)
	}
	logs := logsOf(t, path)
	log, err := os.ReadFile(logs[0])
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	was, err := os.ReadFile(logsOf(t, before)[0])
	if err != nil {
		t.Fatal(err)
	}
	// The preallocated space, and the end that every sync writes, are not part of a commit.
	begin := 0
	for begin < len(was) && begin < len(log) && was[begin] == log[begin] {
		begin++
	}
	for range 60 {
		crashed := testDir(t)
		if err := os.CopyFS(crashed, os.DirFS(before)); err != nil {
			t.Fatal(err)
		}
		torn := log[:begin+rand.IntN(len(log)-begin+1)]
		if err := os.WriteFile(filepath.Join(crashed, filepath.Base(logs[0])), torn, 0o600); err != nil {
			t.Fatal(err)
		}
		after, err := Open(crashed, testIdentity, Options{})
		if err != nil {
			t.Fatalf("%d of %d bytes of the commit: %v", len(torn)-begin, len(log)-begin, err)
		}
		if got := filled(t, after); got != last && got != last+1 {
			t.Errorf("commit %d is there, %d was the last", got, last)
		}
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A power failure at any moment can keep any part of the data that was not synced. The number of commits is never ahead of the
// log, so the checkpoint opens.
func TestPowerFailureAtAnyMoment(t *testing.T) {
	base := vfs.NewCrashableMem()
	s, err := open("/x/y", &testIdentity, Options{fs: base})
	if err != nil {
		t.Fatal(err)
	}
	const commits = 600
	var mu sync.Mutex
	last := -1
	committed := func() int {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for n := 0; n < commits && err == nil; n++ {
			err = s.Commit(t.Context(), fill(n))
			mu.Lock()
			last = n
			mu.Unlock()
		}
		done <- err
	}()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for failures := 0; committed() < commits-1 || failures < 20; failures++ {
		before := committed()
		after := base.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})
		ahead := committed() + 1
		crashed, err := open("/x/y", &testIdentity, Options{fs: after})
		if err != nil {
			t.Fatalf("seed %d, after commit %d: %v", seed, before, err)
		}
		if got := filled(t, crashed); got < before || got > ahead {
			t.Errorf("seed %d: commit %d is there, want %d to %d", seed, got, before, ahead)
		}
		if err := crashed.Commit(t.Context(), fill(commits)); err != nil {
			t.Error(err)
		}
		if err := crashed.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// The key of the number of commits is not visible to users of the store.
func TestCommitsAreCountedUnseen(t *testing.T) {
	path := written(t)
	s, err := Open(path, testIdentity, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Scan(nil, func(k, _ []byte) error {
		if bytes.Equal(k, countKey) {
			return errors.New("it is among the keys")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := s.Commit(t.Context(), []event.KV{{Key: []byte("a"), Value: []byte("b")}}); err != nil {
		t.Fatal(err)
	}
	synced, err := syncedCommits(vfs.Default, path)
	stored, err2 := storedCommits(s.db)
	if err = errors.Join(err, err2); err != nil || synced != stored || synced != 12 { // identity, 0 to 9, and this one
		t.Errorf("%d commits in the file, %d in the database, %v; want 12", synced, stored, err)
	}
}
