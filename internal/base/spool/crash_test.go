package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// step is the expected state of a stream while a scenario runs.
type step struct {
	appended  uint64            // the highest number of a frame that was, or may have been, appended
	confirmed uint64            // all frames up to this one are durable
	trimmed   uint64            // frames below may have been deleted
	gone      uint64            // frames below are deleted for certain
	dropping  bool              // all frames may have been deleted
	skipped   map[uint64]bool   // numbers that no frame has, because a chain began behind them
	chains    map[uint64]string // the metadata of each chain, by its first frame
}

func (s *step) clone() step {
	c := *s
	c.skipped, c.chains = map[uint64]bool{}, map[uint64]string{}
	for k := range s.skipped {
		c.skipped[k] = true
	}
	for k, v := range s.chains {
		c.chains[k] = v
	}
	return c
}

// scenario performs every kind of write of a spool, on a file system that may fail.
type scenario struct {
	s      *Spool
	prefix string           // of the names of its streams
	know   map[string]*step // by stream
}

func newScenario(prefix string) *scenario {
	return &scenario{prefix: prefix, know: map[string]*step{}}
}

func (c *scenario) step(name string) *step {
	if c.know[name] == nil {
		c.know[name] = &step{skipped: map[uint64]bool{}, chains: map[uint64]string{}}
	}
	return c.know[name]
}

func (c *scenario) begin(name, meta string, skip uint64) error {
	name = c.prefix + name
	st, know := c.s.Stream(name), c.step(name)
	first := st.Next() + skip
	for n := st.Next(); n < first; n++ {
		know.skipped[n] = true
	}
	know.chains[first] = meta
	_, err := st.Begin([]byte(meta), first)
	if err == nil {
		know.confirmed = max(know.confirmed, know.appended)
	}
	return err
}

func (c *scenario) append(name string, frames int, sync bool) error {
	name = c.prefix + name
	st, know := c.s.Stream(name), c.step(name)
	for range frames {
		know.appended = max(know.appended, st.Next())
		n, err := st.Append(payload(name, st.Next()))
		if err != nil {
			return err
		}
		know.appended = n
	}
	err := st.Flush(sync)
	if err == nil && sync {
		know.confirmed = know.appended
	}
	return err
}

func (c *scenario) trim(name string, below uint64) error {
	name = c.prefix + name
	know := c.step(name)
	know.trimmed = max(know.trimmed, below)
	return c.s.Stream(name).Trim(below)
}

func (c *scenario) drop(name string) error {
	name = c.prefix + name
	know := c.step(name)
	know.dropping = true
	err := c.s.Stream(name).Drop()
	if err == nil {
		know.gone = know.appended + 1
		know.trimmed = max(know.trimmed, know.gone)
		know.dropping = false
	}
	return err
}

// actions returns the steps of the scenario. With the options of the tests, segments have about three blocks.
func (c *scenario) actions(o Options) []func() error {
	reopen := func() (err error) {
		if c.s != nil {
			if err := c.s.Close(); err != nil && !errors.Is(err, ErrClosed) {
				return err
			}
		}
		c.s, err = openTest(o.FS, o)
		return err
	}
	frames := func(name string, n int, sync bool) func() error {
		return func() error { return c.append(name, n, sync) }
	}
	return []func() error{
		reopen,
		func() error { return c.begin("a", "first", 0) },
		frames("a", 3, false), frames("a", 3, true), frames("a", 4, false), frames("a", 4, true), // another segment begins
		func() error { return c.begin("b", "other", 5) },
		frames("b", 6, true), frames("a", 5, false), frames("b", 5, false),
		func() error { return c.trim("a", 8) },
		func() error { return c.begin("a", "second", 0) },
		frames("a", 4, false), frames("a", 4, true),
		func() error { return c.begin("a", "third", 3) }, // numbers are missing before it
		frames("a", 3, true),
		reopen,
		frames("a", 5, true), frames("b", 5, false), frames("b", 5, true),
		func() error { return c.drop("b") },
		func() error { return c.begin("b", "again", 0) },
		frames("b", 4, true),
		func() error { return c.trim("a", 1000) },
		frames("a", 4, true),
		reopen,
		func() error { return c.s.TrimBefore(time.Now().Add(time.Hour)) },
		func() error { return c.s.Close() },
	}
}

// mayTrimAll notes that all frames may be deleted from now on. The last action but one deletes everything.
func (c *scenario) mayTrimAll() {
	for _, know := range c.know {
		know.dropping = true
	}
}

// crashPoint is a file system after a crash, and what the scenario knew then.
type crashPoint struct {
	at   string
	fsys vfs.FS
	know map[string]step
}

// crashes runs the scenario. For each operation, it collects what can be left after a crash: only what was synced, all that was written, and
// mixtures.
func crashes(t *testing.T, prefix string, o Options) (points []crashPoint) {
	t.Helper()
	base := vfs.NewCrashableMem()
	c := newScenario(prefix)
	r := rand.New(rand.NewPCG(3, 4))
	action, operation := 0, 0
	crash := func(op string) {
		operation++
		know := map[string]step{}
		for name, s := range c.know {
			know[name] = s.clone()
		}
		for i, percent := range []int{0, 100, 50, 50, 20, 80} {
			points = append(points, crashPoint{
				at:   fmt.Sprintf("operation %d (%s) of action %d, crash %d", operation, op, action, i),
				fsys: base.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: r}), know: know,
			})
		}
	}
	o.FS = errorfs.Wrap(base, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
			crash(fmt.Sprint(op.Kind, " ", op.Path))
		}
		return nil
	}))
	actions := c.actions(o)
	for i, act := range actions {
		action = i
		if i == len(actions)-2 {
			c.mayTrimAll()
		}
		must(t, act())
	}
	crash("end")
	return points
}

// The machine crashes at every write, sync, creation and removal, and loses all, none or a part of the unsynced data. Frames that a Flush
// with sync has confirmed must be there. Frames that were not appended must not be there.
func TestCrashes(t *testing.T) {
	for _, c := range []struct {
		prefix  string
		segment int64
		key     []byte
	}{{"", 900, testKey}, {"big ", 30_000, nil}} {
		o := Options{SegmentBytes: c.segment, Key: c.key}
		points := crashes(t, c.prefix, o)
		if len(points) < 250 {
			t.Fatalf("only %d crashes", len(points))
		}
		t.Logf("%d crashes", len(points))
		for _, p := range points {
			checkCrash(t, p, o)
			if t.Failed() {
				t.Fatal(p.at)
			}
		}
	}
}

func checkCrash(t *testing.T, p crashPoint, o Options) {
	t.Helper()
	o.FS = p.fsys
	s, err := openTest(o.FS, o)
	if err != nil {
		t.Fatalf("%s: open: %v", p.at, err)
	}
	if len(s.Foreign()) > 0 {
		t.Errorf("%s: foreign files %q", p.at, s.Foreign())
	}
	for _, seg := range s.List() {
		if seg.Err != nil {
			t.Errorf("%s: the segment has the error %v, want none: a crash is not damage", p.at, seg.Err)
		}
	}
	for name, know := range p.know {
		found := readRanges(t, s.Stream(name), &know)
		checkFound(t, p.at+", "+name, found, &know)
		continueAfterCrash(t, s.Stream(name), p.at)
	}
	must(t, s.Close())
	var total int64
	for _, seg := range s.List() {
		info, err := p.fsys.Stat(seg.File)
		must(t, err)
		total += info.Size()
	}
	if total != s.Bytes() {
		t.Errorf("%s: Bytes returns %d, want %d, the size of all files", p.at, s.Bytes(), total)
	}
}

// readRanges reads all that is there, and checks it.
func readRanges(t *testing.T, st *Stream, know *step) (found []uint64) {
	t.Helper()
	for _, part := range Ranges(st.Segments()) {
		from, last := part[0].First, part[len(part)-1].Last
		if n, err := readAll(t, st, from); n != last+1 || !errors.Is(err, io.EOF) && !errors.Is(err, ErrBroken) {
			t.Fatalf("read from frame %d: stopped at %d with the error %v, want %d with EOF or ErrBroken", from, n, err, last+1)
		}
		for n := from; n <= last; n++ {
			found = append(found, n)
		}
		for _, seg := range part {
			if meta, ok := know.chains[seg.Chain]; !ok || meta != string(seg.Meta) {
				t.Errorf("a segment has chain %d with metadata %q, want one of the chains %v", seg.Chain, seg.Meta, know.chains)
			}
		}
	}
	return found
}

func checkFound(t *testing.T, at string, found []uint64, know *step) {
	t.Helper()
	there := map[uint64]bool{}
	for _, n := range found {
		there[n] = true
		if n > know.appended || n < know.gone || know.skipped[n] {
			t.Errorf("%s: frame %d exists, want only frames that were appended and not deleted", at, n)
		}
	}
	if !slices.IsSorted(found) {
		t.Errorf("%s: the frames are %v, want them in ascending order", at, found)
	}
	behind := false // a frame that was not confirmed is missing, so no frame may follow
	for n := know.trimmed; n <= know.appended && !know.dropping; n++ {
		switch {
		case n == 0 || know.skipped[n]:
		case there[n] && behind:
			t.Errorf("%s: frame %d exists, but an earlier frame is missing", at, n)
		case !there[n] && n <= know.confirmed:
			t.Errorf("%s: frame %d is missing, want it because its write was confirmed", at, n)
		case !there[n]:
			behind = true
		}
	}
}

// continueAfterCrash appends to what is left, in the last chain and in another one.
func continueAfterCrash(t *testing.T, st *Stream, at string) {
	t.Helper()
	from := st.Next()
	if _, err := st.Append(payload(st.name, from)); errors.Is(err, ErrNoChain) {
		_, err = st.Begin(nil, 0)
		must(t, err)
	} else if err != nil {
		t.Fatalf("%s: append: %v", at, err)
	}
	must(t, st.Flush(true))
	_, err := st.Begin(nil, 0)
	must(t, err)
	fill(t, st, 3)
	wantEnd(t, st, from, st.Next())
}

// At each operation the disk becomes full, or fails, once or from then on. Every error wraps the cause, ErrNoChain or ErrClosed. Confirmed
// frames stay, and the stream continues with another chain when the disk works again.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		cause   error
		lasting bool
	}{{syscall.ENOSPC, true}, {syscall.EIO, true}, {syscall.EIO, false}} {
		point := 0
		for failAt(t, point, c.cause, c.lasting) {
			point++
		}
		if point < 120 {
			t.Errorf("the scenario has only %d operations", point)
		}
	}
}

// failAt runs the scenario. The first point operations succeed. The next one fails, and so do all later ones if lasting is true. failAt reports
// whether an operation has failed.
func failAt(t *testing.T, point int, cause error, lasting bool) bool {
	t.Helper()
	base := vfs.NewCrashableMem()
	c := newScenario("")
	operation, failed, works := 0, false, false
	o := Options{SegmentBytes: 900, Key: testKey}
	o.FS = errorfs.Wrap(base, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpLock && cause == syscall.EIO {
			return nil
		}
		operation++
		if works || operation <= point || failed && !lasting {
			return nil
		}
		failed = true
		return &fs.PathError{Op: fmt.Sprint(op.Kind), Path: op.Path, Err: cause}
	}))
	at := fmt.Sprintf("%v at operation %d, lasting %v", cause, point, lasting)
	actions := c.actions(o)
	for i, act := range actions[:len(actions)-2] {
		err := act()
		switch {
		case c.s == nil: // the first Open failed
			if !errors.Is(err, cause) {
				t.Fatalf("%s: open: %v", at, err)
			}
			works = true
			must(t, act())
			works = !lasting
		case err != nil && !errors.Is(err, cause) && !errors.Is(err, ErrNoChain) && !errors.Is(err, ErrClosed):
			t.Fatalf("%s, action %d: %v", at, i, err)
		}
	}
	if !failed {
		return false
	}
	works = true
	if c.s.closed.Load() || c.s.dir.lock == nil {
		var err error
		if c.s, err = openTest(o.FS, o); err != nil {
			t.Fatalf("%s: open again: %v", at, err)
		}
	}
	for name := range c.know {
		st := c.s.Stream(name)
		if _, err := st.Begin(nil, 0); err != nil { // ending the chain before has failed; the second Begin does not try it
			_, err = st.Begin(nil, 0)
			must(t, err)
		}
		from := st.Next()
		c.step(name).chains[from] = ""
		fill(t, st, 3)
		wantEnd(t, st, from, from+3)
		c.step(name).appended = from + 2
	}
	checkSurvivors(t, at, c, base)
	must(t, c.s.Close())
	return true
}

// A failed write ends the chain. Frames that were flushed before stay readable. The numbers of lost frames are not used again.
func TestFailedStream(t *testing.T) {
	full := false
	fsys := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full && op.Kind == errorfs.OpFileWriteAt {
			return &fs.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
		}
		return nil
	}))
	s := mustOpen(t, fsys, Options{MaxBytes: 1 << 20})
	st := s.Stream("x")
	_, err := st.Begin(nil, 0)
	must(t, err)
	fill(t, st, 8)
	_, err = st.Append(payload("x", 9))
	must(t, err)
	full = true
	for range 2 {
		if err := st.Flush(true); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("flush: %v", err)
		}
		full = false
		if _, err := st.Append(nil); !errors.Is(err, ErrFailed) {
			t.Errorf("append: %v", err)
		}
	}
	wantEnd(t, st, 1, 9)
	first, err := st.Begin(nil, 0)
	if err != nil || first != 10 {
		t.Errorf("the next chain begins at %d, %v", first, err)
	}
	fill(t, st, 3)
	wantBroken(t, st, 1, 9, 10)
	wantEnd(t, st, 10, 13)
	must(t, s.Close())
}

// A disk that cannot be read does not count as damage: the same reader continues when the disk can be read again. Open
// returns the error of the disk.
func TestUnreadable(t *testing.T) {
	left := -1 // the operation that fails, counted from now; negative: none
	fsys := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if left--; left == 0 && op.Kind != errorfs.OpFileClose {
			return &fs.PathError{Op: "read", Path: op.Path, Err: syscall.EIO}
		}
		return nil
	}))
	s := mustOpen(t, fsys, Options{SegmentBytes: 700})
	st := s.Stream("x")
	_, err := st.Begin(nil, 0)
	must(t, err)
	fill(t, st, 20)
	failures := 0
	for point := 1; point < 40; point++ {
		r := st.Reader(1)
		left = point
		for n := uint64(1); n < 21; n++ {
			f, err := r.Next()
			if errors.Is(err, syscall.EIO) {
				failures++
				f, err = r.Next()
			}
			if err != nil || f.Number != n {
				t.Fatalf("failure at operation %d: read frame %d, want frame %d: %v", point, f.Number, n, err)
			}
		}
		must(t, r.Close())
	}
	must(t, s.Close())
	for point := 1; point < 20; point++ {
		left = point
		s, err := openTest(fsys, Options{})
		if errors.Is(err, syscall.EIO) {
			failures++
			s, err = openTest(fsys, Options{})
		}
		must(t, err)
		must(t, s.Close())
	}
	if failures < 30 {
		t.Errorf("only %d failures", failures)
	}
}

// A process is killed: what it wrote stays, synced or not. After the next start, the machine crashes, and unsynced data is lost. Frames that
// the start found must survive the crash, because later frames were confirmed behind them.
func TestKilledThenCrashed(t *testing.T) {
	base := vfs.NewCrashableMem()
	s := mustOpen(t, base, Options{})
	st := s.Stream("x")
	_, err := st.Begin(nil, 0)
	must(t, err)
	_, err = st.Append(payload("x", 1))
	must(t, err)
	must(t, st.Flush(false))
	must(t, s.dir.lock.Close()) // a killed process loses its lock

	s = mustOpen(t, base, Options{})
	fill(t, s.Stream("x"), 3)
	must(t, s.dir.lock.Close())
	s = mustOpen(t, base.CrashClone(vfs.CrashCloneCfg{}), Options{})
	wantEnd(t, s.Stream("x"), 1, 5)
	must(t, s.Close())
}

// checkSurvivors checks that the synced data has every confirmed frame. Between chains, frames that were not confirmed
// may be missing.
func checkSurvivors(t *testing.T, at string, c *scenario, base *vfs.MemFS) {
	t.Helper()
	s, err := openTest(base.CrashClone(vfs.CrashCloneCfg{}), Options{Key: testKey})
	if err != nil {
		t.Fatalf("%s: open after a crash: %v", at, err)
	}
	for name, know := range c.know {
		there := map[uint64]bool{}
		for _, n := range readRanges(t, s.Stream(name), know) {
			there[n] = true
		}
		for n := max(know.trimmed, 1); n <= know.confirmed && !know.dropping; n++ {
			if !there[n] && !know.skipped[n] {
				t.Errorf("%s: %s: frame %d is missing, want it because its write was confirmed", at, name, n)
			}
		}
	}
	must(t, s.Close())
}
