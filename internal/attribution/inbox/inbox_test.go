package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/base/spool"
)

const dir = "/inbox"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openTest(t testing.TB, fsys vfs.FS, o spool.Options) *Inbox {
	t.Helper()
	o.FS = fsys
	b, err := open(dir, o)
	must(t, err)
	return b
}

// named returns records whose IDs are consecutive numbers.
func named(first, n int) []audit.Record {
	list := make([]audit.Record, n)
	for i := range list {
		list[i] = audit.Record{ID: fmt.Sprint(first + i), Verb: "create", Actor: audit.Actor{User: audit.User{Name: "alice"}}}
	}
	return list
}

// read returns the IDs of the records up to the end, with a dash for each gap, and the position behind the last one.
func read(t testing.TB, r *Reader, after Position) (string, Position) {
	t.Helper()
	var ids []string
	for {
		item, err := r.Next()
		var gap *GapError
		switch {
		case errors.Is(err, io.EOF):
			return strings.Join(ids, " "), after
		case errors.As(err, &gap):
			ids = append(ids, "-")
		case err != nil:
			t.Fatal(err)
		default:
			after = item.Position
			if item.Record != nil {
				ids = append(ids, item.Record.ID)
			}
		}
	}
}

func want(t testing.TB, b *Inbox, after Position, ids string) Position {
	t.Helper()
	got, last := read(t, b.Reader(after), after)
	if got != ids {
		t.Errorf("read %q behind %+v, want %q", got, after, ids)
	}
	return last
}

func TestRecordsStayOverARestart(t *testing.T) {
	fsys := vfs.NewMem()
	b := openTest(t, fsys, spool.Options{})
	want(t, b, Position{}, "")
	must(t, b.Append(named(1, 2)))
	must(t, b.Append(nil))
	must(t, b.Append(named(3, 1)))
	second := want(t, b, Position{}, "1 2 3")
	must(t, b.Trim(second))
	must(t, b.Close())
	if err := b.Append(named(4, 1)); !errors.Is(err, spool.ErrClosed) {
		t.Errorf("Append after Close returns %v", err)
	}
	b = openTest(t, fsys, spool.Options{})
	defer b.Close()
	want(t, b, second, "")
	must(t, b.Append(named(4, 1)))
	last := want(t, b, second, "4")
	if last.Session == second.Session || last.Number != second.Number+1 {
		t.Errorf("the position is %+v behind %+v, want the next number in another session", last, second)
	}
}

// Whatever was read and trimmed, a reader must continue where it was: numbers that begin again would hide new records from it.
func TestTrimKeepsTheLastRecord(t *testing.T) {
	fsys := vfs.NewMem()
	after := Position{}
	for i := range 5 {
		b := openTest(t, fsys, spool.Options{})
		must(t, b.Append(named(i, 1)))
		after = want(t, b, after, fmt.Sprint(i))
		must(t, b.Trim(after))
		if i%2 == 0 {
			must(t, b.Close())
		} else {
			must(t, b.spool.Close())
		}
	}
}

func TestPositionOfAnotherInbox(t *testing.T) {
	lost := openTest(t, vfs.NewMem(), spool.Options{})
	must(t, lost.Append(named(1, 5)))
	after := want(t, lost, Position{}, "1 2 3 4 5")
	empty := openTest(t, vfs.NewMem(), spool.Options{})
	want(t, empty, after, "-")
	if err := empty.Trim(after); err == nil {
		t.Error("trimmed by a position of another inbox")
	}
	must(t, empty.Append(named(11, 9))) // now it has a record of that number
	want(t, empty, after, "- 11 12 13 14 15 16 17 18 19")
	must(t, lost.Close())
	must(t, empty.Close())
}

func TestDamageIsAGap(t *testing.T) {
	fsys := vfs.NewMem()
	b := openTest(t, fsys, spool.Options{})
	for i := range 5 {
		must(t, b.Append(named(10*i, 2))) // each is a block
	}
	after := Position{b.session, 4}
	file := b.stream.Segments()[0].File
	must(t, b.Close())
	edit(t, fsys, file, func(text []byte) { // the third block
		at := 0
		for range 3 {
			at += bytes.Index(text[at+1:], []byte("kbsb")) + 1
		}
		text[at+60] ^= 1
	})
	b = openTest(t, fsys, spool.Options{})
	defer b.Close()
	want(t, b, Position{}, "0 1 10 11 -")
	must(t, b.Append(named(50, 1)))
	want(t, b, Position{}, "0 1 10 11 - 50")
	want(t, b, after, "- 50")
	want(t, b, Position{after.Session, 6}, "- 0 1 10 11 - 50") // it was among what is lost, so all that is left is read
}

func TestForeignKeyIsAGap(t *testing.T) {
	fsys := vfs.NewMem()
	key := []byte("0123456789abcdef")
	b := openTest(t, fsys, spool.Options{Key: key})
	must(t, b.Append(named(1, 3)))
	file := b.stream.Segments()[0].File
	must(t, b.Close())
	edit(t, fsys, file, func(text []byte) {
		if bytes.Contains(text, []byte("alice")) {
			t.Error("a name is on disk in clear")
		}
	})
	b = openTest(t, fsys, spool.Options{Key: key})
	want(t, b, Position{}, "1 2 3")
	must(t, b.Close())
	b = openTest(t, fsys, spool.Options{})
	defer b.Close()
	must(t, b.Append(named(4, 1)))
	want(t, b, Position{}, "- 4")
}

func TestFullInboxKeepsNothingOfABatch(t *testing.T) {
	b := openTest(t, vfs.NewMem(), spool.Options{MaxBytes: 1 << 20, SegmentBytes: 100 << 10})
	defer b.Close()
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]rune, 20<<10) // does not compress well
	for i := range noise {
		noise[i] = rune('0' + random.IntN(70))
	}
	large := []audit.Record{{ID: "large", URI: string(noise)}}
	kept := 0
	for {
		err := b.Append(large)
		if errors.Is(err, ErrFull) {
			break
		}
		must(t, err)
		kept++
	}
	ids, last := read(t, b.Reader(Position{}), Position{})
	if strings.Count(ids, "large") != kept || kept < 16 {
		t.Fatalf("kept %d records, and read %q", kept, ids)
	}
	must(t, b.Append(named(1, 1))) // there is place for a small one
	must(t, b.Trim(last))
	must(t, b.Append(large))
	if _, err := Open(t.TempDir(), Options{MaxBytes: 5}); err == nil {
		t.Error("accepted a limit of 5 bytes")
	}
}

// After a failed write, what was confirmed is there, and the records that were not do not look like a loss.
func TestWriteFails(t *testing.T) {
	var failing bool
	fsys := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if failing && op.Kind == errorfs.OpFileSyncData {
			return syscall.EIO
		}
		return nil
	}))
	b := openTest(t, fsys, spool.Options{})
	defer b.Close()
	must(t, b.Append(named(1, 2)))
	failing = true
	for range 2 {
		if err := b.Append(named(3, 3)); !errors.Is(err, syscall.EIO) {
			t.Fatalf("got %v", err)
		}
	}
	want(t, b, Position{}, "1 2")
	failing = false
	must(t, b.Append(named(3, 3)))
	ids, _ := read(t, b.Reader(Position{}), Position{})
	if ids != "1 2 3 4 5" {
		t.Errorf("read %q, want no gap and no records of failed writes", ids)
	}
}

// A reader that begins while the first records are written returns them when they are durable.
func TestReaderBeginsDuringAWrite(t *testing.T) {
	var during func(op errorfs.Op)
	fsys := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if during != nil {
			during(op)
		}
		return nil
	}))
	b := openTest(t, fsys, spool.Options{})
	defer b.Close()
	var readers []*Reader
	kinds := map[errorfs.OpKind]bool{}
	during = func(op errorfs.Op) {
		kinds[op.Kind] = true
		r := b.Reader(Position{})
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("before the records are durable, Next returns %v, want EOF", err)
		}
		readers = append(readers, r)
	}
	must(t, b.Append(named(1, 3)))
	during = nil
	if !kinds[errorfs.OpOpen] || !kinds[errorfs.OpFileSyncData] {
		t.Errorf("readers began during %v, want the opening of the file and its sync among them", kinds)
	}
	for _, r := range readers {
		if ids, _ := read(t, r, Position{}); ids != "1 2 3" {
			t.Errorf("read %q, want all records", ids)
		}
		must(t, r.Close())
	}
}

// Concurrent calls share a sync: while one is under way, the others wait for the next one, together.
func TestAppendsShareASync(t *testing.T) {
	var mu sync.Mutex
	syncs := 0
	entered, leave := make(chan struct{}), make(chan struct{})
	fsys := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpFileSyncData {
			return nil
		}
		mu.Lock()
		syncs++
		first := syncs == 1
		mu.Unlock()
		if first {
			close(entered)
			<-leave
		}
		return nil
	}))
	b := openTest(t, fsys, spool.Options{})
	defer b.Close()
	var wg sync.WaitGroup
	wg.Go(func() { must(t, b.Append(named(0, 1))) })
	<-entered
	const calls = 20
	for i := range calls {
		wg.Go(func() { must(t, b.Append(named(10*i, 2))) })
	}
	for waiting := 0; waiting < 2*calls; runtime.Gosched() {
		b.mu.Lock()
		if b.open != nil {
			waiting = 2 * len(b.open.calls)
		}
		b.mu.Unlock()
	}
	if ids, _ := read(t, b.Reader(Position{}), Position{}); ids != "" {
		t.Errorf("read %q, which is not durable", ids)
	}
	close(leave)
	wg.Wait()
	if syncs != 2 {
		t.Errorf("%d syncs, want 2", syncs)
	}
	if ids, _ := read(t, b.Reader(Position{}), Position{}); len(strings.Fields(ids)) != 1+2*calls {
		t.Errorf("read %q", ids)
	}
}

func TestWait(t *testing.T) {
	b := openTest(t, vfs.NewMem(), spool.Options{})
	r := b.Reader(Position{})
	defer r.Close()
	want(t, b, Position{}, "")
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waited := make(chan error)
	go func() { waited <- r.Wait(ctx) }()
	must(t, b.Append(named(1, 1)))
	must(t, <-waited)
	if got, _ := read(t, r, Position{}); got != "1" {
		t.Errorf("read %q", got)
	}
	go func() { waited <- r.Wait(ctx) }()
	must(t, b.Close())
	must(t, <-waited)
	if _, err := r.Next(); !errors.Is(err, io.EOF) && !errors.Is(err, spool.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// Random appends, failed writes, crashes, reads, trims and restarts: each record that was confirmed is read, once or, after a
// crash of the reader, again from its position. There is no gap, since nothing that was synced is lost, unless a write failed before a crash.
// A source with offsets continues exactly behind what the inbox holds: none of its records is there twice.
func TestRandomWalks(t *testing.T) {
	for seed := range uint64(60) {
		w := walk{t: t, random: rand.New(rand.NewPCG(seed, 1)), fsys: vfs.NewCrashableMem(), seen: map[string]bool{}, places: map[string]uint64{}}
		w.open()
		for range 60 {
			w.step()
		}
		w.failing = false
		w.read(1 << 30)
		for _, id := range w.confirmed {
			if !w.seen[id] {
				t.Fatalf("seed %d: record %s was confirmed, and is not read", seed, id)
			}
		}
		must(t, w.b.Close())
	}
}

type walk struct {
	t         *testing.T
	random    *rand.Rand
	fsys      *vfs.MemFS
	failing   bool
	failed    bool // a write has failed
	gaps      bool // a crash came after that
	b         *Inbox
	r         *Reader
	next      int
	confirmed []string
	seen      map[string]bool
	source    int               // how far a source with offsets is read
	least     int               // the confirmed offset
	places    map[string]uint64 // the numbers of its records
	position  Position          // of the last record read
	committed Position          // what the reader continues from after a crash
}

func (w *walk) open() {
	w.failing = false
	fsys := errorfs.Wrap(w.fsys, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if w.failing && (op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileWriteAt) && w.random.IntN(2) == 0 {
			return syscall.ENOSPC
		}
		return nil
	}))
	w.b = openTest(w.t, fsys, spool.Options{SegmentBytes: 2000})
	w.r = w.b.Reader(w.committed)
	w.source = 0
	if text := w.b.Offset(1); text != nil {
		must(w.t, json.Unmarshal(text, &w.source))
	}
	if w.source < w.least {
		w.t.Fatalf("the offset is %d, want at least %d", w.source, w.least)
	}
}

// reads takes in what the source has next, of which some may be left out.
func (w *walk) reads() {
	n := w.random.IntN(4)
	list := named(w.source, n)
	for i := range list {
		list[i].ID = fmt.Sprintf("source %s", list[i].ID)
	}
	end := w.source + n + w.random.IntN(2)
	if w.b.AppendAt(list, 1, json.RawMessage(fmt.Sprint(end))) != nil {
		w.failed = true
		return
	}
	w.source, w.least = end, end
	for _, r := range list {
		w.confirmed = append(w.confirmed, r.ID)
	}
}

func (w *walk) step() {
	switch w.random.IntN(10) {
	case 8, 9:
		w.reads()
	case 0, 1, 2:
		list := named(w.next, 1+w.random.IntN(3))
		w.next += len(list)
		if w.b.Append(list) == nil {
			for _, r := range list {
				w.confirmed = append(w.confirmed, r.ID)
			}
		} else {
			w.failed = true
		}
	case 3, 4:
		w.read(w.random.IntN(5))
	case 5:
		w.committed = w.position
		must(w.t, w.b.Trim(w.committed))
	case 6:
		w.failing = !w.failing
	case 7:
		if w.random.IntN(2) == 0 {
			_ = w.b.Close() // it fails if the disk fails
		}
		old := w.b
		w.fsys = w.fsys.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * w.random.IntN(3), RNG: w.random})
		w.position, w.gaps = w.committed, w.gaps || w.failed
		w.open()
		_ = old.Close()
	}
}

func (w *walk) read(n int) {
	for range n {
		item, err := w.r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		var gap *GapError
		if w.gaps && errors.As(err, &gap) {
			continue
		}
		must(w.t, err)
		w.position = item.Position
		if item.Record == nil {
			continue
		}
		id := item.Record.ID
		w.seen[id] = true
		if place, known := w.places[id]; strings.HasPrefix(id, "source") && known && place != item.Position.Number {
			w.t.Fatalf("%s is record %d and record %d", id, place, item.Position.Number)
		}
		w.places[id] = item.Position.Number
	}
}

// large returns records of which each is a block of the spool.
func large(random *rand.Rand, first, n int) []audit.Record {
	list := named(first, n)
	for i := range list {
		text := make([]byte, 300<<10)
		for k := range text {
			text[k] = byte('0' + random.IntN(70))
		}
		list[i].URI = string(text)
	}
	return list
}

// A crash leaves all of a call or nothing: the records that come again with their source are there once. The first crashes come before a write or the
// sync; the others are power failures, which leave any part of what was not synced.
func TestCrashLeavesAllOfACallOrNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	list := large(random, 1, 4)
	for at := range 10 {
		kept := 100
		if at > 4 {
			kept = 99
		}
		disk := vfs.NewCrashableMem()
		var crashed *vfs.MemFS
		left := -1
		fsys := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if left >= 0 && (op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileWriteAt) {
				if left == 0 {
					crashed = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: random})
				}
				left--
			}
			return nil
		}))
		b := openTest(t, fsys, spool.Options{})
		must(t, b.AppendAt(named(0, 1), 1, json.RawMessage("1")))
		must(t, b.Append([]audit.Record{{ID: "w"}}))
		left = min(at, 4)
		must(t, b.AppendAt(list, 1, json.RawMessage("5")))
		must(t, b.Close())
		b = openTest(t, crashed, spool.Options{})
		if at == 4 {
			if offset := string(b.Offset(1)); offset != "5" {
				t.Errorf("all was written, and the offset is %s", offset)
			}
		}
		if string(b.Offset(1)) == "1" {
			want(t, b, Position{}, "0 w")
			if n := b.Last(); n != 2 {
				t.Errorf("crash %d: the last number is %d, want that of the last record", at, n)
			}
			must(t, b.AppendAt(list, 1, json.RawMessage("5")))
		}
		for range 2 {
			if offset := string(b.Offset(1)); offset != "5" {
				t.Errorf("crash %d: the offset is %s", at, offset)
			}
			want(t, b, Position{}, "0 w 1 2 3 4")
			must(t, b.Close())
			b = openTest(t, crashed, spool.Options{})
		}
		must(t, b.Close())
	}
}

// An input that is silent while others fill the inbox keeps its offset, whatever is trimmed.
func TestOffsetsStayWhenRecordsAreTrimmed(t *testing.T) {
	fsys := vfs.NewMem()
	b := openTest(t, fsys, spool.Options{SegmentBytes: 4000})
	must(t, b.AppendAt(named(0, 1), 1, json.RawMessage(`"file"`)))
	must(t, b.AppendAt(nil, 2, json.RawMessage(`"topic"`)))
	after := Position{}
	for i := range 50 {
		must(t, b.Append(named(i, 3)))
		_, after = read(t, b.Reader(after), after)
		must(t, b.Trim(after))
	}
	must(t, b.AppendAt(nil, 1, json.RawMessage(`"later"`)))
	must(t, b.Append(large(rand.New(rand.NewPCG(1, 2)), 50, 3))) // it does not fit into one segment
	_, after = read(t, b.Reader(after), after)
	must(t, b.Trim(after))
	if n := len(b.stream.Segments()); b.First() < 100 || n > 5 {
		t.Errorf("the first record is %d, in %d segments, want that the others are deleted", b.First(), n)
	}
	for range 3 { // also without another record
		must(t, b.Close())
		b = openTest(t, fsys, spool.Options{SegmentBytes: 4000})
		if file, topic := string(b.Offset(1)), string(b.Offset(2)); file != `"later"` || topic != `"topic"` {
			t.Errorf("the offsets are %s and %s", file, topic)
		}
		want(t, b, after, "")
	}
	must(t, b.Close())
}

// A full inbox has room again when all of its records are trimmed, although the last chain stays.
func TestFullInboxIsTrimmed(t *testing.T) {
	b := openTest(t, vfs.NewMem(), spool.Options{MaxBytes: 1 << 20, SegmentBytes: 256 << 10})
	defer b.Close()
	random := rand.New(rand.NewPCG(1, 2))
	after := Position{}
	for range 10 {
		for {
			text := make([]byte, 10<<10)
			for k := range text {
				text[k] = byte('0' + random.IntN(70))
			}
			err := b.Append([]audit.Record{{ID: "x", URI: string(text)}})
			if errors.Is(err, ErrFull) {
				break
			}
			must(t, err)
		}
		_, after = read(t, b.Reader(after), after)
		must(t, b.Trim(after))
		if used := b.Bytes(); used > 256<<10 {
			t.Fatalf("%d bytes stay of 1 MiB", used)
		}
	}
}

// Where the newest offset is damaged, the input continues from the one before: its records come again, and none is left out.
func TestDamagedOffset(t *testing.T) {
	fsys := vfs.NewMem()
	b := openTest(t, fsys, spool.Options{})
	for i := range 3 {
		must(t, b.AppendAt(named(i, 1), 1, json.RawMessage(fmt.Sprint(i+1)))) // each is a block
	}
	file := b.stream.Segments()[0].File
	must(t, b.Close())
	edit(t, fsys, file, func(text []byte) { text[bytes.LastIndex(text[:len(text)-48], []byte("kbsb"))+60] ^= 1 })
	b = openTest(t, fsys, spool.Options{})
	defer b.Close()
	if at := string(b.Offset(1)); at != "2" {
		t.Errorf("the offset is %s, want 2", at)
	}
	must(t, b.AppendAt(named(2, 1), 1, json.RawMessage("3")))
	want(t, b, Position{}, "0 1 - 2")
}

// The inbox of an earlier version is not opened: its inputs had their offsets elsewhere.
func TestFormerFormIsRefused(t *testing.T) {
	fsys := vfs.NewMem()
	s, err := spool.Open(dir, spool.Options{FS: fsys})
	must(t, err)
	_, err = s.Stream(stream).Begin([]byte(`{"session":"x"}`), 0)
	must(t, err)
	_, err = s.Stream(stream).Append([]byte("\x01{}"))
	must(t, errors.Join(err, s.Stream(stream).Flush(true), s.Close()))
	if _, err := open(dir, spool.Options{FS: fsys}); !errors.Is(err, ErrFormer) {
		t.Errorf("open returns %v", err)
	}
}

func FuzzCodec(f *testing.F) {
	f.Add([]byte(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"a","stage":"ResponseComplete","requestURI":"/<>","verb":"update","user":{"username":"a","groups":["b"],"extra":{"k":["v",""],"l":[]}},"impersonatedUser":{"username":"b"},"sourceIPs":["192.0.2.1"],"objectRef":{"resource":"pods","name":"p","resourceVersion":"1"},"responseStatus":{"code":200},"responseObject":{"metadata":{"uid":"u"}},"requestReceivedTimestamp":"2026-11-26T02:19:22.123456Z"}`))
	f.Fuzz(func(t *testing.T, event []byte) {
		var b audit.Batch
		audit.NewParser(audit.Options{Denied: true}).Message(event, &b)
		for i := range b.Records {
			c, err := newCall(b.Records[i:], 0, nil)
			must(t, err)
			got, err := decode(c.frames[0])
			must(t, err)
			if diff := cmp.Diff(b.Records[i], *got.Record); diff != "" {
				t.Fatal(diff)
			}
		}
		_, _ = decode(event) // does not panic
	})
}

func edit(t testing.TB, fsys vfs.FS, path string, change func([]byte)) {
	t.Helper()
	f, err := fsys.Open(path)
	must(t, err)
	text, err := io.ReadAll(f)
	must(t, errors.Join(err, f.Close()))
	change(text)
	must(t, fsys.Remove(path))
	f, err = fsys.Create(path, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write(text)
	must(t, errors.Join(err, f.Close()))
}

// The batches of an API server's webhook backend have up to 400 events.
func BenchmarkAppend(b *testing.B) {
	const batch = 400
	box, err := Open(b.TempDir(), Options{})
	must(b, err)
	defer box.Close()
	records := named(0, batch)
	for i := range records {
		records[i].URI, records[i].Actor.UserAgent = "/api/v1/namespaces/default/configmaps/"+records[i].ID, "kubectl/v1.36.3 (linux/amd64) kubernetes/abcdef0"
		records[i].Answer = &audit.Answer{Namespace: "default", Name: records[i].ID, UID: fmt.Sprintf("%036d", i), Version: records[i].ID}
	}
	b.ReportAllocs()
	for b.Loop() {
		must(b, box.Append(records))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/record")
	b.ReportMetric(float64(box.Bytes())/float64(b.N*batch), "B/record")
}
