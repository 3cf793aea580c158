package logfile

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// event is a line with an audit event whose ID is a number.
func event(n int) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"%d","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/a/pods%s","verb":"create","user":{"username":"alice"},"objectRef":{"resource":"pods"},"responseStatus":{"code":201}}`+"\n", n, strings.Repeat("x", n%70))
}

// log writes a log as the API server does.
type log struct {
	t     testing.TB
	dir   string
	next  int // the next event
	times int
	half  string // of a line: what is still to be written
}

func newLog(t testing.TB) *log { return &log{t: t, dir: t.TempDir()} }

func (l *log) path() string { return filepath.Join(l.dir, "audit.log") }

func (l *log) append(text string) {
	l.t.Helper()
	f, err := os.OpenFile(l.path(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(l.t, err)
	_, err = f.WriteString(text)
	must(l.t, errors.Join(err, f.Close()))
}

// write finishes a line that was begun, and writes n more.
func (l *log) write(n int) {
	l.t.Helper()
	text := l.half
	l.half = ""
	for range n {
		text += event(l.next)
		l.next++
	}
	l.append(text)
}

// begin writes a part of a line.
func (l *log) begin(part int) {
	l.t.Helper()
	if l.half == "" {
		line := event(l.next)
		l.next++
		l.append(line[:part])
		l.half = line[part:]
	}
}

func (l *log) rotate() {
	l.t.Helper()
	l.write(0) // rotates between lines only
	l.times++
	at := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC).Add(time.Duration(l.times) * time.Second)
	must(l.t, os.Rename(l.path(), filepath.Join(l.dir, "audit-"+at.Format(backupTime)+".log")))
}

// backups returns the renamed files, the oldest one first.
func (l *log) backups() []string {
	l.t.Helper()
	list, err := filepath.Glob(filepath.Join(l.dir, "audit-*"))
	must(l.t, err)
	slices.Sort(list)
	return list
}

// compress compresses a renamed file.
func (l *log) compress(path string) {
	l.t.Helper()
	text, err := os.ReadFile(path)
	must(l.t, err)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write(text)
	must(l.t, errors.Join(err, w.Close()))
	must(l.t, os.WriteFile(path+packedSuffix, packed.Bytes(), 0o600))
	must(l.t, os.Remove(path))
}

func (l *log) open(from Position) *Follower {
	return Open(Options{Path: l.path(), Parser: audit.NewParser(audit.Options{}), MaxLine: 1000}, from)
}

// read returns the IDs up to the end, with a dash for each gap and an x for each unparsable line.
func (l *log) read(f *Follower) string {
	l.t.Helper()
	var ids []string
	for {
		c, err := f.Next()
		var gap *GapError
		switch {
		case errors.Is(err, io.EOF):
			return strings.Join(ids, " ")
		case errors.As(err, &gap):
			ids = append(ids, "-")
		case err != nil:
			l.t.Fatal(err)
		}
		for range c.Unparsable {
			ids = append(ids, "x")
		}
		for _, r := range c.Records {
			ids = append(ids, r.ID)
		}
	}
}

func (l *log) want(f *Follower, ids string) {
	l.t.Helper()
	if got := l.read(f); got != ids {
		l.t.Errorf("read %q, want %q", got, ids)
	}
}

func TestFollow(t *testing.T) {
	l := newLog(t)
	f := l.open(Position{})
	defer func() { must(t, f.Close()) }()
	l.want(f, "") // there is no file yet
	l.write(2)
	l.want(f, "0 1")
	l.begin(50)
	l.want(f, "") // a line that is not complete
	l.write(1)
	l.want(f, "2 3")
	l.rotate()
	l.want(f, "") // the next file is not there yet
	l.write(1)
	l.rotate()
	l.write(1)
	l.rotate()
	l.write(1)
	l.want(f, "4 5 6")
}

// The bridge was away for several rotations.
func TestResumeBehindRotations(t *testing.T) {
	l := newLog(t)
	l.write(3)
	f := l.open(Position{})
	l.want(f, "0 1 2")
	at := f.from
	must(t, f.Close())
	for range 3 {
		l.write(2)
		l.rotate()
	}
	l.write(1)
	l.want(l.open(at), "3 4 5 6 7 8 9")
	l.compress(l.backups()[0])
	l.want(l.open(at), "3 4 5 6 7 8 9")
	at.Device++ // after a start of the machine
	l.want(l.open(at), "3 4 5 6 7 8 9")
	must(t, os.Remove(l.backups()[0]))
	l.want(l.open(at), "- 5 6 7 8 9")
}

// The clock of the API server was ahead when it renamed a file, and is set back before it renames the next one: the names are in another order than the
// files. A follower that is behind skips none, and says that their order is not known.
func TestClockIsSetBack(t *testing.T) {
	for _, compressed := range []bool{false, true} {
		l := newLog(t)
		l.write(1)
		l.rotate()
		l.write(1)
		f := l.open(Position{})
		l.want(f, "1")
		l.times += 10 // ahead
		l.rotate()
		l.write(2)
		l.times -= 5 // set back
		l.rotate()
		l.write(1)
		if compressed {
			for _, path := range l.backups() {
				l.compress(path)
			}
		}
		l.want(f, "- 2 3 4")
		l.times += 10
		l.rotate()
		l.write(1)
		l.rotate()
		l.write(1)
		l.want(f, "5 6")
		must(t, f.Close())
	}
}

// The clock is set back while the bridge is down. The file that was renamed later sorts before the one that was read last, and it is not skipped either; nor
// is a file read again after one more restart.
func TestClockIsSetBackMeanwhile(t *testing.T) {
	l := newLog(t)
	l.write(1)
	l.rotate()
	l.write(1)
	f := l.open(Position{})
	l.want(f, "1")
	at := f.from
	must(t, f.Close())
	l.times += 10 // ahead
	l.rotate()
	l.write(2)
	l.times -= 5 // set back
	l.rotate()
	l.write(1)
	f = l.open(at)
	var gap *GapError
	if _, err := f.Next(); !errors.As(err, &gap) {
		t.Errorf("the error is %v, want a gap", err)
	}
	c, err := f.Next()
	must(t, errors.Join(err, f.Close()))
	if len(c.Records) != 2 || c.Records[0].ID != "2" {
		t.Errorf("behind the gap is %+v, want the file that was renamed later", c.Records)
	}
	l.want(l.open(c.Position), "4")
}

// The first lines could not be kept, for example because the disk was full, and the bridge starts again behind a rotation: they are not skipped, or there
// is a gap.
func TestResumeBehindNothing(t *testing.T) {
	l := newLog(t)
	l.write(2)
	f := l.open(Position{})
	first, err := f.Next()
	must(t, err)
	if len(first.Records) > 0 || first.Position == (Position{}) {
		t.Fatalf("the first chunk is %+v, want a position before all lines", first)
	}
	l.want(f, "0 1")
	must(t, f.Close())
	l.rotate()
	l.write(1)
	l.want(l.open(first.Position), "0 1 2")
	must(t, os.Remove(l.backups()[0]))
	l.want(l.open(first.Position), "- 2")
}

// A follower that is slower than the removal of old files.
func TestFileIsRemovedBeforeTheNextOneIsRead(t *testing.T) {
	l := newLog(t)
	l.write(2)
	f := l.open(Position{})
	l.want(f, "0 1")
	for range 3 {
		l.write(2)
		l.rotate()
	}
	l.write(1)
	for _, path := range l.backups()[:2] {
		must(t, os.Remove(path))
	}
	l.want(f, "2 3 - 6 7 8") // the file that is open is read to its end
}

func TestTruncation(t *testing.T) {
	l := newLog(t)
	l.write(5)
	f := l.open(Position{})
	l.want(f, "0 1 2 3 4")
	at := f.from
	must(t, os.Truncate(l.path(), 0))
	l.write(1)
	l.want(f, "- 5")
	l.want(l.open(at), "- 5")
	must(t, os.Truncate(l.path(), 0))
	l.write(20) // it is longer than before
	if got := l.read(f); !strings.HasPrefix(got, "- 6 7") {
		t.Errorf("read %q", got)
	}
	if got := l.read(l.open(at)); !strings.HasPrefix(got, "- 6 7") {
		t.Errorf("read %q from an earlier position", got)
	}
}

// An inode that is used again must not be taken for the file that had it before.
func TestReusedInode(t *testing.T) {
	l := newLog(t)
	l.write(3)
	f := l.open(Position{})
	l.want(f, "0 1 2")
	at := f.from
	must(t, f.Close())
	must(t, os.Remove(l.path()))
	l.write(30)
	info, err := os.Stat(l.path())
	must(t, err)
	at.fileID = idOf(info)
	if got := l.read(l.open(at)); !strings.HasPrefix(got, "- 3 4 5") {
		t.Errorf("read %q", got)
	}
}

func TestLinesThatCannotBeUsed(t *testing.T) {
	l := newLog(t)
	f := l.open(Position{})
	defer func() { must(t, f.Close()) }()
	l.write(1)
	l.append(strings.Repeat("y", 5000)) // too long, and not at its end yet
	l.want(f, "0")
	at := f.from
	l.append(strings.Repeat("y", 5000) + "\n")
	l.write(1)
	l.want(f, "x 1")
	l.want(l.open(at), "x 1")
	l.append(strings.Repeat("z", 3000) + "\nno JSON\n")
	l.write(1)
	l.want(f, "x x 2")
	l.append(event(9)[:30]) // the API server was killed
	l.rotate()
	l.write(1)
	l.want(f, "x 3")
	if _, err := os.Stat(l.path()); err != nil {
		t.Fatal(err)
	}
}

func TestWait(t *testing.T) {
	l := newLog(t)
	f := Open(Options{Path: l.path(), Parser: audit.NewParser(audit.Options{}), Poll: time.Millisecond}, Position{})
	must(t, f.Wait(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	slow := Open(Options{Path: l.path(), Parser: audit.NewParser(audit.Options{}), Poll: time.Hour}, Position{})
	if err := slow.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Other files of the directory are not of the log.
func TestForeignFiles(t *testing.T) {
	l := newLog(t)
	for _, name := range []string{"audit-.log", "audit-2026.log", "audit.log.1", "audit-2026-11-26T00-00-00.000.txt", "other-2026-11-26T00-00-00.000.log"} {
		must(t, os.WriteFile(filepath.Join(l.dir, name), []byte(event(99)), 0o600))
	}
	must(t, os.Mkdir(filepath.Join(l.dir, "audit-"), 0o700))
	l.write(2)
	f := l.open(Position{})
	l.want(f, "0 1")
	must(t, f.Close())
	must(t, os.Remove(l.path()))
	l.write(1)
	l.want(l.open(f.from), "- 2")
}

// Random writes, rotations, compressions, removals, truncations and restarts, with reads between them: each line comes once, in order, or
// there is a gap where lines are missing. Without removals and truncations there is no gap.
func TestRandomWalks(t *testing.T) {
	for seed := range uint64(60) {
		w := walk{log: newLog(t), seed: seed, random: rand.New(rand.NewPCG(seed, 5)), lossy: seed%2 == 1, read: -1}
		w.write(1)
		w.follower = w.open(Position{})
		w.readChunks(2) // a position and the line
		w.position, w.committed = w.last, w.read
		for range 80 {
			w.step()
		}
		w.write(1)
		w.readChunks(1 << 30)
		if w.read != w.next-1 {
			t.Errorf("seed %d: the last line that was read is %d, want %d", seed, w.read, w.next-1)
		}
		must(t, w.follower.Close())
	}
}

type walk struct {
	*log
	seed      uint64
	random    *rand.Rand
	lossy     bool
	follower  *Follower
	read      int      // the last line that was read
	gap       bool     // it was returned behind that line
	repeats   bool     // lines may come again: there was a gap since the start
	last      Position // of the last lines that were read
	position  Position // that a restart continues from,
	committed int      // and the line there
}

func (w *walk) step() {
	switch w.random.IntN(10) {
	case 0, 1:
		w.write(1 + w.random.IntN(5))
	case 2:
		w.begin(1 + w.random.IntN(100))
	case 3:
		if info, err := os.Stat(w.path()); w.half == "" && (err != nil || info.Size() == 0) { // the API server rotates files that are full
			return
		}
		w.rotate()
		if w.random.IntN(2) == 0 {
			w.write(1)
		}
	case 4, 5, 6:
		w.readChunks(w.random.IntN(3))
	case 7:
		if w.last.HeadBytes > 0 { // without bytes of it, a file is not recognized once it is compressed
			w.position, w.committed = w.last, w.read
		}
	case 8: // a restart
		must(w.t, w.follower.Close())
		w.follower, w.last, w.read, w.gap, w.repeats = w.open(w.position), w.position, w.committed, false, false
	case 9:
		w.disturb()
	}
}

func (w *walk) disturb() {
	backups := w.backups()
	if n := len(backups); n > 0 && w.random.IntN(2) == 0 {
		if path := backups[w.random.IntN(n)]; strings.HasSuffix(path, ".log") {
			w.compress(path)
		}
		return
	}
	if !w.lossy {
		return
	}
	if len(backups) > 0 && w.random.IntN(2) == 0 {
		must(w.t, os.Remove(backups[0]))
		return
	}
	// Something of it was read, also before the position that a restart continues from.
	text, err := os.ReadFile(w.path())
	wasRead := func(p Position) bool {
		return p.HeadBytes > 0 && p.HeadBytes <= len(text) && digest(text[:p.HeadBytes]) == p.Head
	}
	if err == nil && wasRead(w.last) && wasRead(w.position) && w.half == "" {
		must(w.t, os.Truncate(w.path(), 0))
	}
}

func (w *walk) readChunks(n int) {
	for range n {
		c, err := w.follower.Next()
		var gap *GapError
		if errors.As(err, &gap) {
			if !w.lossy {
				w.t.Fatalf("seed %d: %v, but nothing was removed", w.seed, err)
			}
			w.gap, w.repeats = true, true
			continue
		}
		if errors.Is(err, io.EOF) {
			return
		}
		must(w.t, err)
		if c.Unparsable > 0 && !w.gap {
			w.t.Fatalf("seed %d: %v", w.seed, c.Err)
		}
		w.last = c.Position
		for _, r := range c.Records {
			line, err := strconv.Atoi(r.ID)
			must(w.t, err)
			switch {
			case line == w.read+1 || line > w.read && w.gap:
				w.read, w.gap = line, false
			case line <= w.read && w.repeats:
			default:
				w.t.Fatalf("seed %d: line %d comes behind line %d, and there is no gap", w.seed, line, w.read)
			}
		}
	}
}

// The API server writes and rotates while the file is followed, and old files come and go. io.EOF says that everything was read that had been written:
// changes count as seen behind it, and floors of exact verdicts are from it.
func TestConcurrentRotations(t *testing.T) {
	const lines = 2000
	l := newLog(t)
	l.write(1)
	f := Open(Options{Path: l.path(), Parser: audit.NewParser(audit.Options{}), Poll: time.Millisecond}, Position{})
	defer func() { must(t, f.Close()) }()
	l.want(f, "0")
	var written atomic.Int64
	stop := make(chan struct{})
	var group sync.WaitGroup
	defer group.Wait()
	defer close(stop)
	group.Go(func() {
		random := rand.New(rand.NewPCG(1, 1))
		for l.next < lines {
			l.write(1)
			written.Store(int64(l.next))
			if random.IntN(10) == 0 {
				l.rotate()
			}
		}
	})
	group.Go(func() {
		old := filepath.Join(l.dir, "audit-2000-01-01T00-00-00.000.log")
		for {
			select {
			case <-stop:
				return
			default:
				if errors.Join(os.WriteFile(old, nil, 0o600), os.Remove(old)) != nil {
					return
				}
			}
		}
	})
	for read := 1; read < lines; {
		before := int(written.Load())
		c, err := f.Next()
		switch {
		case errors.Is(err, io.EOF):
			if read < before {
				t.Fatalf("io.EOF behind %d lines, and %d had been written before", read, before)
			}
			must(t, f.Wait(t.Context()))
			continue
		case errors.Is(err, ErrChanging):
			continue
		}
		must(t, err)
		for _, r := range c.Records {
			if r.ID != strconv.Itoa(read) {
				t.Fatalf("read line %s, want %d", r.ID, read)
			}
			read++
		}
	}
}

// That files are not there, or not any more, is not the end of the log.
func TestMissingFilesAreNoEnd(t *testing.T) {
	l := newLog(t)
	l.write(1)
	f := l.open(Position{})
	l.want(f, "0")
	if err := f.open(entry{path: filepath.Join(l.dir, "audit-2000-01-01T00-00-00.000.log")}); !errors.Is(err, ErrChanging) {
		t.Errorf("a file that was removed since it was listed: %v", err)
	}
	at := f.from
	must(t, f.Close())
	must(t, os.Remove(l.path()))
	for _, f := range []*Follower{f, l.open(at)} {
		if _, err := f.Next(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory is empty: %v", err)
		}
	}
	l.want(l.open(Position{}), "") // nothing was written yet
}
