package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Frames come back in order with their chain, from any number, before and after the spool is opened again.
func TestAppendAndRead(t *testing.T) {
	for _, key := range [][]byte{nil, testKey} {
		fsys := vfs.NewMem()
		s := mustOpen(t, fsys, Options{Key: key, SegmentBytes: 3000})
		st := s.Stream("pods")
		if _, err := st.Append(nil); !errors.Is(err, ErrNoChain) {
			t.Fatalf("append without a chain: %v", err)
		}
		first, err := st.Begin([]byte("list at 7"), 0)
		must(t, err)
		if first != 1 {
			t.Fatalf("the first frame is %d", first)
		}
		fill(t, st, 100)
		_, err = st.Begin([]byte("list at 9"), 0)
		must(t, err)
		fill(t, st, 100)
		for from := uint64(1); from <= 201; from += 7 {
			wantEnd(t, st, from, 201)
		}
		must(t, s.Close())

		s = mustOpen(t, fsys, Options{Key: key, SegmentBytes: 3000})
		st = s.Stream("pods")
		fill(t, st, 50) // goes on with the last chain
		wantEnd(t, st, 1, 251)
		r := st.Reader(100)
		for n := uint64(100); n <= 101; n++ {
			f, err := r.Next()
			must(t, err)
			if want := map[uint64]string{100: "list at 7", 101: "list at 9"}[n]; string(f.Meta) != want || f.Chain != map[uint64]uint64{100: 1, 101: 101}[n] {
				t.Errorf("frame %d has chain %d and metadata %q, want %q", n, f.Chain, f.Meta, want)
			}
		}
		list := s.List()
		if parts := Ranges(list); len(parts) != 1 || len(list) < 6 || list[len(list)-1].Chain != 101 {
			t.Errorf("%d ranges of %d segments, the last one of chain %d, want 1 range of at least 6 and chain 101", len(parts), len(list), list[len(list)-1].Chain)
		}
		must(t, s.Close())
	}
}

// Frames can be empty, and larger than a block. Frames and metadata above their limits are refused.
func TestSizesOfFrames(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{Key: testKey})
	defer s.Close()
	st := s.Stream("x")
	_, err := st.Begin(nil, 0)
	must(t, err)
	large := bytes.Repeat([]byte("0123456789abcdef"), 3*blockBytes/16)
	frames := [][]byte{{}, large, []byte("a"), large, large}
	for _, f := range frames {
		_, err := st.Append(f)
		must(t, err)
	}
	if _, err := st.Append(make([]byte, MaxFrameBytes+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a frame above the limit: %v", err)
	}
	if _, err := st.Begin(make([]byte, MaxMetaBytes+1), 0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("metadata above the limit: %v", err)
	}
	must(t, st.Flush(false))
	r := st.Reader(1)
	for i, want := range frames {
		f, err := r.Next()
		if err != nil || !bytes.Equal(f.Data, want) {
			t.Fatalf("frame %d: %d bytes, want %d: %v", i+1, len(f.Data), len(want), err)
		}
	}
}

// A reader gets the frames that were flushed, and waits for more. After Close, all calls return ErrClosed.
func TestWait(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{})
	st := s.Stream("x")
	_, err := st.Begin(nil, 0)
	must(t, err)
	r := st.Reader(1)
	_, err = st.Append([]byte("1"))
	must(t, err)
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("a frame that was not flushed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("wait with a cancelled context: the error is %v, want context.Canceled", err)
	}
	waited := make(chan error)
	await := func() { waited <- r.Wait(t.Context()) }
	go await()
	must(t, st.Flush(false))
	must(t, <-waited)
	if f, err := r.Next(); err != nil || string(f.Data) != "1" {
		t.Fatalf("Next returns %q and %v, want %q", f.Data, err, "1")
	}
	go await()
	must(t, s.Close())
	must(t, <-waited)
	if _, err := r.Next(); !errors.Is(err, ErrClosed) {
		t.Errorf("read from a closed spool: the error is %v, want ErrClosed", err)
	}
	for what, err := range map[string]error{"flush": st.Flush(true), "trim": st.Trim(2), "drop": st.Drop(), "close": s.Close()} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after close: the error is %v, want ErrClosed", what, err)
		}
	}
	if _, err := st.Append(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: the error is %v, want ErrClosed", err)
	}
}

// Trim deletes whole segments only, including the one that is being written. The chain and its numbers go on.
func TestTrim(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, fsys, Options{SegmentBytes: 2000})
	st := s.Stream("x")
	_, err := st.Begin([]byte("m"), 0)
	must(t, err)
	fill(t, st, 100)
	r := st.Reader(1)
	_, err = r.Next()
	must(t, err)
	before := st.Segments()
	must(t, st.Trim(before[2].First+1))
	if list := st.Segments(); len(list) != len(before)-2 || list[0].First != before[2].First {
		t.Fatalf("%d segments, the first begins at frame %d, want %d segments from frame %d", len(list), list[0].First, len(before)-2, before[2].First)
	}
	wantEnd(t, st, before[2].First, 101)
	if n, err := readAll(t, st, 1); n != 1 || !errors.Is(err, ErrTrimmed) {
		t.Errorf("read a trimmed frame: stopped at %d with the error %v, want 1 with ErrTrimmed", n, err)
	}
	for err = nil; err == nil; { // a reader that had begun before
		_, err = r.Next()
	}
	if !errors.Is(err, ErrTrimmed) {
		t.Errorf("reader in a trimmed segment: the error is %v, want ErrTrimmed", err)
	}
	_, err = st.Append(payload("x", 101)) // is not flushed before the next Trim
	must(t, err)
	must(t, st.Trim(1000))
	if list := s.List(); len(list) != 0 {
		t.Fatalf("Trim of all frames leaves %d segments, want 0", len(list))
	}
	must(t, st.Flush(true))
	wantEnd(t, st, 101, 102)
	if list := s.List(); len(list) != 1 || list[0].Chain != 1 || string(list[0].Meta) != "m" || list[0].Bytes != s.Bytes() {
		t.Errorf("after the trim: segments %+v and %d bytes, want one segment of chain 1 with all bytes", list, s.Bytes())
	}
	must(t, st.Drop())
	if names, _ := fsys.List("/dir/spool"); s.Bytes() != 0 || !slices.Equal(names, []string{lockName}) {
		t.Errorf("after the drop: %d bytes and the files %q, want 0 and only %s", s.Bytes(), names, lockName)
	}
	if _, err := st.Append(nil); !errors.Is(err, ErrNoChain) {
		t.Errorf("append to a dropped stream: the error is %v, want ErrNoChain", err)
	}
	if n, err := st.Begin(nil, 0); n != 102 || err != nil {
		t.Errorf("a chain after the drop begins at frame %d, want 102: %v", n, err)
	}
	must(t, s.Close())
}

// TrimBefore deletes a segment if its last block was written before the time.
func TestTrimBefore(t *testing.T) {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	c := &clock{start}
	s := mustOpen(t, vfs.NewMem(), Options{SegmentBytes: 1, Now: c.Now}) // each segment has one block
	defer s.Close()
	for _, name := range []string{"a", "b"} {
		st := s.Stream(name)
		_, err := st.Begin(nil, 0)
		must(t, err)
		for hour := range 10 {
			c.now = start.Add(time.Duration(hour) * time.Hour)
			_, err := st.Append(payload(name, st.Next()))
			must(t, err)
			must(t, st.Flush(false))
		}
	}
	must(t, s.TrimBefore(start.Add(7*time.Hour)))
	for _, name := range []string{"a", "b"} {
		list := s.Stream(name).Segments()
		if len(list) != 3 || list[0].First != 8 || !list[0].Started.Equal(start.Add(7*time.Hour)) {
			t.Errorf("%s: the segments are %+v, want the last 3, from frame 8 on", name, list)
		}
	}
}

// A frame for which MaxBytes leaves no room is refused, and no part of it is written. Frames are accepted when there is room again. Segments
// are small enough for a part of the spool to be deleted.
func TestFull(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, fsys, Options{MaxBytes: 100_000})
	st := s.Stream("x")
	_, err := st.Begin(nil, 0)
	must(t, err)
	for err == nil {
		if _, err = st.Append(payload("x", st.Next())); err == nil {
			must(t, st.Flush(false))
		}
	}
	if !errors.Is(err, ErrFull) || s.Bytes() > 100_000 || s.Bytes() < 90_000 {
		t.Fatalf("%d bytes with the error %v, want 90,000 to 100,000 with ErrFull", s.Bytes(), err)
	}
	end := st.Next()
	wantEnd(t, st, 1, end)
	must(t, st.Trim(end/2))
	fill(t, st, 10)
	wantEnd(t, st, st.Segments()[0].First, end+10)
	total := func() (n int64) {
		for _, seg := range s.List() {
			info, err := fsys.Stat(seg.File)
			must(t, err)
			n += info.Size()
		}
		return n
	}
	must(t, s.Close())
	if s.Bytes() != total() {
		t.Errorf("Bytes returns %d, want %d, the size of all files", s.Bytes(), total())
	}
	s = mustOpen(t, vfs.NewMem(), Options{MaxBytes: 100})
	defer s.Close()
	st = s.Stream("x")
	_, err = st.Begin(nil, 0)
	must(t, err)
	if _, err := st.Append(make([]byte, 200)); !errors.Is(err, ErrFull) || s.Bytes() != 0 {
		t.Errorf("a limit below one frame: the error is %v with %d bytes, want ErrFull with 0", err, s.Bytes())
	}
}

// A directory can have one open spool. Only the owner can read its files. Files and links that are not the spool's stay as they are.
func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "spool")
	s, err := Open(dir, Options{})
	must(t, err)
	if _, err := Open(dir+"/", Options{}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second spool in the directory: the error is %v, want ErrLocked with the directory", err)
	}
	st := s.Stream("x")
	_, err = st.Begin(nil, 0)
	must(t, err)
	fill(t, st, 10)
	must(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if want := map[bool]os.FileMode{true: 0o700, false: 0o600}[info.IsDir()]; info.Mode().Perm() != want {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return err
	}))
	must(t, s.Close())

	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, []byte("mine"), 0o600))
	link := segmentName(hashOf("x"), 11) // the name of the next segment
	must(t, os.Symlink(outside, filepath.Join(dir, link)))
	must(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600))
	s, err = Open(dir, Options{})
	must(t, err)
	if got := s.Foreign(); !slices.Equal(got, slices.Sorted(slices.Values([]string{link, "notes.txt"}))) {
		t.Errorf("Foreign returns %q, want %q and notes.txt", got, link)
	}
	st = s.Stream("x")
	_, err = st.Append(payload("x", 11))
	must(t, err)
	if err := st.Flush(false); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), link) {
		t.Errorf("the segment's file name is a symbolic link: Flush returns %v, want ErrFailed with the name %s", err, link)
	}
	must(t, st.Drop())
	must(t, s.Close())
	for path, want := range map[string]string{outside: "mine", filepath.Join(dir, "notes.txt"): ""} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s has the content %q, want %q: %v", path, got, want, err)
		}
	}

	must(t, os.Symlink(dir, dir+"-link"))
	if _, err := Open(dir+"-link", Options{}); err == nil {
		t.Error("a link to a directory was followed")
	}
	must(t, os.Remove(filepath.Join(dir, lockName)))
	must(t, os.Symlink(outside, filepath.Join(dir, lockName)))
	if _, err := Open(dir, Options{}); err == nil {
		t.Error("a link for the lock was followed")
	}
	if got, _ := os.ReadFile(outside); string(got) != "mine" {
		t.Errorf("the target of the link has the content %q, want %q", got, "mine")
	}
}

// A thousand streams need few open files, and no buffers once they are flushed.
func TestManyStreams(t *testing.T) {
	const streams = 1000
	fsys := &countingFS{FS: vfs.NewMem()}
	s := mustOpen(t, fsys, Options{Key: testKey})
	s.handles.limit = 10
	for range 3 {
		for i := range streams {
			st := s.Stream(fmt.Sprint(i))
			if st.Next() == 1 {
				_, err := st.Begin(nil, 0)
				must(t, err)
			}
			_, err := st.Append(payload(st.name, st.Next()))
			must(t, err)
			must(t, st.Flush(false))
		}
	}
	if n := len(s.List()); n != streams || fsys.most > 12 {
		t.Errorf("%d segments with up to %d open files, want %d with up to 12", n, fsys.most, streams)
	}
	for i := range streams {
		st := s.Stream(fmt.Sprint(i))
		must(t, st.Flush(true)) // opens the file again
		if st.w.pending.raw != nil {
			t.Fatal("a flushed stream has a buffer, want none")
		}
		wantEnd(t, st, 1, 4)
	}
	must(t, s.Close())
	if fsys.open != 0 {
		t.Errorf("%d files are open after Close, want 0", fsys.open)
	}
}

// Streams are appended, read, listed and trimmed at the same time.
func TestConcurrent(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{SegmentBytes: 4000})
	s.handles.limit = 2
	const frames, streams, readers = 600, 3, 2
	var wait sync.WaitGroup
	for i := range streams {
		st := s.Stream(fmt.Sprint(i))
		_, err := st.Begin(nil, 0)
		must(t, err)
		done := make(chan uint64, readers*frames)
		wait.Go(func() {
			for n := range uint64(frames) {
				if _, err := st.Append(payload(st.name, n+1)); err != nil {
					t.Error(err)
				}
				if n%3 == 2 {
					if err := st.Flush(n%30 == 29); err != nil {
						t.Error(err)
					}
				}
			}
		})
		for range readers {
			wait.Go(func() {
				r := st.Reader(1)
				for n := uint64(1); n <= frames; {
					f, err := r.Next()
					if errors.Is(err, io.EOF) {
						err = r.Wait(t.Context())
						f.Number = 0
					}
					if err != nil {
						t.Errorf("frame %d: %v", n, err)
						return
					}
					if f.Number == 0 {
						continue
					}
					if f.Number != n || !bytes.Equal(f.Data, payload(st.name, n)) {
						t.Errorf("read frame %d, want frame %d with its own data", f.Number, n)
					}
					done <- n
					n++
				}
			})
		}
		wait.Go(func() { // trims what both readers have
			count := map[uint64]int{}
			for range readers * frames {
				n := <-done
				if count[n]++; count[n] == readers && n%50 == 0 {
					if err := st.Trim(n); err != nil {
						t.Error(err)
					}
					s.List()
				}
			}
		})
	}
	wait.Wait()
	must(t, s.TrimBefore(time.Now().Add(time.Hour)))
	if s.Bytes() != 0 {
		t.Errorf("%d bytes after the trim of everything, want 0", s.Bytes())
	}
	must(t, s.Close())
}

// countingFS counts the files that are open, and the most that were open at a time.
type countingFS struct {
	vfs.FS
	open, most int
}

func (c *countingFS) count(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return f, err
	}
	c.open++
	c.most = max(c.most, c.open)
	return countingFile{f, c}, nil
}

func (c *countingFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	return c.count(c.FS.Open(name, o...))
}

func (c *countingFS) OpenReadWrite(name string, k vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return c.count(c.FS.OpenReadWrite(name, k, o...))
}

type countingFile struct {
	vfs.File
	c *countingFS
}

func (f countingFile) Close() error {
	f.c.open--
	return f.File.Close()
}

// While a block is written, the file can end anywhere in it. A reader that has asked for the size just then must not take the block for
// damaged when it is confirmed.
func TestSizeDuringAWrite(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{})
	defer func() { must(t, s.Close()) }()
	st := s.Stream("pods")
	_, err := st.Begin(nil, 0)
	must(t, err)
	r := st.Reader(1)
	defer func() { must(t, r.Close()) }()
	for want := range uint64(5) {
		_, err := st.Append(payload("pods", want+1))
		must(t, err)
		must(t, st.Flush(true))
		if want > 0 {
			r.source.size = r.off + []int64{0, 1, blockHeaderBytes, blockHeaderBytes + 1}[want-1]
		}
		f, err := r.Next()
		if err != nil || f.Number != want+1 {
			t.Fatalf("got frame %d, %v, want frame %d", f.Number, err, want+1)
		}
	}
}

// A recording has a stream of its own. The spool of a standby stays open for months, so it must forget the streams of recordings that have ended.
func TestDeletedStreamIsForgotten(t *testing.T) {
	s, err := Open("d", Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a name may come again
		st := s.Stream("recording")
		if _, err := st.Begin([]byte("{}"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Append([]byte("frame")); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(st.Flush(false), st.Delete()); err != nil {
			t.Fatal(err)
		}
		if len(s.all()) != 0 || len(s.List()) != 0 {
			t.Errorf("the spool has %d streams and %d segments", len(s.all()), len(s.List()))
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
