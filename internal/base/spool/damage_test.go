package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// built is a stream of several segments, in two chains.
type built struct {
	fsys     *vfs.MemFS
	segments []Segment
	end      uint64 // the number behind the last frame
	lastSync uint64 // damage in the last segment can look like a crash that has lost the frames from this one on, and no others
}

// build makes a stream. If closed is false, its last segment has no end.
func build(t testing.TB, key []byte, closed bool) *built {
	t.Helper()
	fsys := vfs.NewCrashableMem()
	s := mustOpen(t, fsys, Options{Key: key, SegmentBytes: 700})
	st := s.Stream("x")
	for _, meta := range []string{"one", "two"} {
		_, err := st.Begin([]byte(meta), 0)
		must(t, err)
		fill(t, st, 9)
		fill(t, st, 4)
	}
	b := &built{segments: st.Segments(), end: st.Next(), lastSync: st.Next() - 4}
	if closed {
		must(t, s.Close())
		b.lastSync = b.end
	}
	b.fsys = fsys.CrashClone(vfs.CrashCloneCfg{})
	if len(b.segments) < 4 {
		t.Fatalf("%d segments", len(b.segments))
	}
	return b
}

// copy returns a copy of the files.
func (b *built) copy() vfs.FS { return b.fsys.CrashClone(vfs.CrashCloneCfg{}) }

// check opens a copy in which one segment is damaged. Frames in other segments must be readable. A reader must return a BrokenError at the
// damage, unless the damage can be a torn end, or is in the segment's end.
func (b *built) check(t *testing.T, fsys vfs.FS, key []byte, damaged int, what string) {
	t.Helper()
	s := mustOpen(t, fsys, Options{Key: key, SegmentBytes: 700})
	st := s.Stream("x")
	seg, last := b.segments[damaged], damaged == len(b.segments)-1
	n, err := readAll(t, st, max(1, s.Stream("x").Segments()[0].First))
	switch {
	case n == b.end && errors.Is(err, io.EOF): // the damage is in the segment's end, which only saves time
	case n < seg.First || n > seg.Last+1:
		t.Errorf("%s: the first frame that cannot be read is %d, want one from %d to %d: %v", what, n, seg.First, seg.Last+1, err)
	case errors.Is(err, ErrBroken):
		var broken *BrokenError
		if errors.As(err, &broken); !last && broken.Next != b.segments[damaged+1].First {
			t.Errorf("%s: the error names frame %d as the next one, want %d: %v", what, broken.Next, b.segments[damaged+1].First, err)
		}
	case !last || n < b.lastSync || !errors.Is(err, io.EOF):
		t.Errorf("%s: the first frame that cannot be read is %d with the error %v, want ErrBroken, or EOF at frame %d or later of the last segment", what, n, err, b.lastSync)
	}
	if !last {
		wantEnd(t, st, b.segments[damaged+1].First, b.end)
	}
	broken := errors.Is(err, ErrBroken)
	_, err = st.Append(payload("x", st.Next()))
	if broken && last != errors.Is(err, ErrBroken) {
		t.Errorf("%s: Append returns %v, want ErrBroken only if the last segment is damaged", what, err)
	}
	first, err := st.Begin([]byte("three"), 0)
	must(t, err)
	if broken && first <= n {
		t.Errorf("%s: the next chain begins at frame %d, want one after frame %d, which cannot be read", what, first, n)
	}
	fill(t, st, 5)
	wantEnd(t, st, first, first+5)
	must(t, s.Close())
}

// A bit is flipped in all parts of every segment.
func TestFlippedBytes(t *testing.T) {
	for _, key := range [][]byte{nil, testKey} {
		for _, closed := range []bool{false, true} {
			b := build(t, key, closed)
			for i, seg := range b.segments {
				size := len(contents(t, b.fsys, seg.File))
				for at := 0; at < size; at += 1 + at%9 {
					fsys := b.copy()
					edit(t, fsys, seg.File, func(b []byte) []byte { b[at] ^= 1 << (at % 8); return b })
					b.check(t, fsys, key, i, fmt.Sprintf("segment %d, byte %d", i, at))
				}
			}
		}
	}
}

// Every segment is cut at many lengths. A last segment without an end looks as after a crash, so the spool cannot know that it was longer.
func TestTruncated(t *testing.T) {
	b := build(t, testKey, true)
	for i, seg := range b.segments {
		size := len(contents(t, b.fsys, seg.File))
		if i == len(b.segments)-1 {
			b.lastSync = 0
		}
		for length := 0; length < size; length += 7 {
			fsys := b.copy()
			edit(t, fsys, seg.File, func(b []byte) []byte { return b[:length] })
			b.check(t, fsys, testKey, i, fmt.Sprintf("segment %d, %d of %d bytes", i, length, size))
		}
	}
}

// A reader notices that a segment was removed by hand, whether the spool was closed or open at that time.
func TestRemoved(t *testing.T) {
	b := build(t, nil, true)
	for i := 1; i < len(b.segments)-1; i++ {
		fsys := b.copy()
		must(t, fsys.Remove(b.segments[i].File))
		s := mustOpen(t, fsys, Options{})
		wantBroken(t, s.Stream("x"), 1, b.segments[i].First, b.segments[i+1].First)
		if parts := Ranges(s.List()); len(parts) != 2 || parts[1][0].First != b.segments[i+1].First {
			t.Errorf("without segment %d: %d ranges", i, len(parts))
		}
		wantEnd(t, s.Stream("x"), b.segments[i+1].First, b.end)
		must(t, s.Close())

		fsys = b.copy()
		s = mustOpen(t, fsys, Options{})
		must(t, fsys.Remove(b.segments[i].File))
		wantBroken(t, s.Stream("x"), 1, b.segments[i].First, b.segments[i+1].First)
		must(t, s.Stream("x").Trim(b.end))
		must(t, s.Close())
	}
}

// When a reader finds damage in the segment that is being written, the next frames begin another segment, and are readable.
func TestDamagedWhileAppending(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, fsys, Options{})
	st := s.Stream("x")
	_, err := st.Begin(nil, 0)
	must(t, err)
	fill(t, st, 12)
	file := st.Segments()[0].File
	f, err := fsys.OpenReadWrite(file, vfs.WriteCategoryUnspecified)
	must(t, err)
	at := int64(bytes.LastIndex(contents(t, fsys, file), []byte(blockMagic))) + blockHeaderBytes + 5
	_, err = f.WriteAt([]byte("?"), at)
	must(t, errors.Join(err, f.Close()))
	if broken := wantBroken(t, st, 1, 9, 0); broken.File != file || broken.Offset != at-blockHeaderBytes-5 || !errors.Is(broken, errDamaged) {
		t.Errorf("the BrokenError is %+v, want file %s and offset %d with damaged data", broken, file, at-blockHeaderBytes-5)
	}
	fill(t, st, 4)
	wantBroken(t, st, 1, 9, 13)
	wantEnd(t, st, 13, 17)
	if list := st.Segments(); len(list) != 2 || list[0].Last != 8 || list[0].Err == nil {
		t.Errorf("the segments are %+v, want 2, the first with last frame 8 and an error", list)
	}
	must(t, s.Close())
}

// If the spool is opened with another key, or with none, readers get a BrokenError that wraps ErrKey. The segments stay as they are, and are
// readable with the right key again. The same holds for segments of another format version.
func TestOtherKey(t *testing.T) {
	b := build(t, testKey, true)
	for name, key := range map[string][]byte{"another": []byte("another key, which is long enough"), "none": nil} {
		fsys := b.copy()
		s := mustOpen(t, fsys, Options{Key: key})
		st := s.Stream("x")
		if broken := wantBroken(t, st, 1, 1, 0); !errors.Is(broken, ErrKey) {
			t.Errorf("key %s: %v", name, broken)
		}
		if _, err := st.Append(nil); !errors.Is(err, ErrKey) {
			t.Errorf("key %s: append: %v", name, err)
		}
		first, err := st.Begin(nil, 0)
		if err != nil || first != b.end {
			t.Errorf("key %s: a chain begins at frame %d, want %d: %v", name, first, b.end, err)
		}
		fill(t, st, 3)
		wantEnd(t, st, first, first+3)
		wantBroken(t, st, 1, 1, first)
		must(t, s.Close())
		s = mustOpen(t, fsys, Options{Key: testKey})
		n, err := readAll(t, s.Stream("x"), 1)
		if n != b.end || !errors.Is(err, ErrKey) {
			t.Errorf("key %s, then the right key: the first frame that cannot be read is %d with the error %v, want %d with ErrKey", name, n, err, b.end)
		}
		must(t, s.Close())
	}
	if _, err := openTest(vfs.NewMem(), Options{Key: []byte("short")}); err == nil {
		t.Error("a short key was accepted")
	}
	fsys, last := b.copy(), b.segments[len(b.segments)-1]
	edit(t, fsys, last.File, func(b []byte) []byte { b[len(headerMagic)] = 2; return b })
	s := mustOpen(t, fsys, Options{Key: testKey})
	_, err := s.Stream("x").Begin(nil, last.First+2)
	must(t, err)
	fill(t, s.Stream("x"), 3)
	var other *versionError
	if broken := wantBroken(t, s.Stream("x"), 1, last.First, last.First+2); !errors.As(broken, &other) {
		t.Errorf("a segment of another version: the error is %v, want a versionError", broken)
	}
	must(t, s.Close())

	// When the segment can be read again, its frames overlap with those of the new chain. No number is read twice.
	edit(t, fsys, last.File, func(b []byte) []byte { b[len(headerMagic)] = version; return b })
	s = mustOpen(t, fsys, Options{Key: testKey})
	wantBroken(t, s.Stream("x"), 1, last.First+1, last.First+2) // the second block has frames on both sides
	wantEnd(t, s.Stream("x"), last.First+2, last.First+5)
	must(t, s.Close())
}

// Streams that are sealed with the key of the directory can be read, and go on, with any key of the spool; others cannot. A key that is damaged is
// made again.
func TestLocalStreams(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, fsys, Options{Key: testKey, Local: true})
	for _, st := range []*Stream{s.LocalStream("local"), s.Stream("other")} {
		_, err := st.Begin(nil, 0)
		must(t, err)
		fill(t, st, 3)
		must(t, st.Flush(true))
	}
	must(t, s.Close())
	s = mustOpen(t, fsys, Options{})
	if _, err := readAll(t, s.Stream("local"), 1); !errors.Is(err, ErrKey) {
		t.Errorf("without the key of the directory: the error is %v, want ErrKey", err)
	}
	must(t, s.Close())
	for _, key := range [][]byte{[]byte("another key, which is long enough"), nil, testKey} {
		s = mustOpen(t, fsys, Options{Key: key, Local: true})
		st := s.Stream("local")
		end := st.Next()
		wantEnd(t, st, 1, end)
		fill(t, st, 2)
		must(t, st.Flush(true))
		wantEnd(t, st, 1, end+2)
		if n, err := readAll(t, s.Stream("other"), 1); !bytes.Equal(key, testKey) && !errors.Is(err, ErrKey) {
			t.Errorf("key %q: the stream that is not local ends at %d with the error %v, want ErrKey", key, n, err)
		}
		if len(s.Foreign()) > 0 {
			t.Errorf("files that count as not the spool's: %v", s.Foreign())
		}
		must(t, s.Close())
	}
	edit(t, fsys, s.dir.join(localKeyName), func(b []byte) []byte { return b[:7] })
	s = mustOpen(t, fsys, Options{Key: testKey, Local: true})
	if _, err := readAll(t, s.Stream("local"), 1); !errors.Is(err, ErrKey) {
		t.Errorf("with a damaged key of the directory: the error is %v, want ErrKey", err)
	}
	must(t, s.Close())
}

// Blocks cannot be moved within a segment or to another segment, so no frame appears under another number or stream.
func TestMovedBlocks(t *testing.T) {
	b := build(t, testKey, true)
	fsys, a, c := b.copy(), b.segments[0], b.segments[1]
	other := contents(t, fsys, c.File)
	edit(t, fsys, a.File, func([]byte) []byte { return other })
	s := mustOpen(t, fsys, Options{Key: testKey})
	wantBroken(t, s.Stream("x"), 1, 1, c.First)
	must(t, s.Close())

	s = mustOpen(t, vfs.NewMem(), Options{})
	for _, name := range []string{"x", "y"} {
		_, err := s.Stream(name).Begin(nil, 0)
		must(t, err)
		fill(t, s.Stream(name), 4)
	}
	x, y := s.Stream("x").Segments()[0].File, s.Stream("y").Segments()[0].File
	head := headerStart + headerFixed + len("x") + 4
	graft := contents(t, s.options.FS, y)[head:]
	edit(t, s.options.FS, x, func(b []byte) []byte { return append(b[:head], graft...) })
	wantBroken(t, s.Stream("x"), 1, 1, 0)
	must(t, s.Close())
}

// With a key, neither the content of frames nor the key is on the disk in clear text.
func TestNoSecretOnDisk(t *testing.T) {
	secret := []byte("planted-secret-4711")
	for _, key := range [][]byte{nil, testKey} {
		fsys := vfs.NewMem()
		s := mustOpen(t, fsys, Options{Key: key, SegmentBytes: 50_000})
		st := s.Stream("secrets")
		_, err := st.Begin([]byte("meta"), 0)
		must(t, err)
		for i := range 300 {
			_, err := st.Append(append(append(payload("s", uint64(3*i)), secret...), payload("s", uint64(i))...))
			must(t, err)
			if i%10 == 0 {
				must(t, st.Flush(i%20 == 0))
			}
		}
		must(t, s.Close())
		names, err := fsys.List("/dir/spool")
		must(t, err)
		found := false
		for _, name := range names {
			all := contents(t, fsys, "/dir/spool/"+name)
			found = found || bytes.Contains(all, secret)
			if bytes.Contains(all, testKey) {
				t.Errorf("%s contains the key", name)
			}
		}
		if found != (key == nil) || len(names) < 2 {
			t.Errorf("with a key of %d bytes, the secret in %d files is found: %v", len(key), len(names), found)
		}
	}
}

// Distinct pods of 16 KB use at most a quarter of their size. Pods that resemble each other share a block, unless each is flushed.
func TestSizeOfPods(t *testing.T) {
	for _, each := range []bool{false, true} {
		s := mustOpen(t, vfs.NewMem(), Options{Key: testKey})
		st := s.Stream("pods")
		_, err := st.Begin(nil, 0)
		must(t, err)
		total := int64(0)
		for _, pod := range pods(t, 400) {
			total += int64(len(pod))
			_, err := st.Append(pod)
			must(t, err)
			if each {
				must(t, st.Flush(false))
			}
		}
		must(t, st.Flush(true))
		t.Logf("flushed after each pod %v: %d bytes of %d: %.3f", each, s.Bytes(), total, float64(s.Bytes())/float64(total))
		if s.Bytes() > total/4 {
			t.Errorf("%d bytes for %d bytes of pods", s.Bytes(), total)
		}
		must(t, s.Close())
	}
}

// correct makes the checksums of a segment right, so that the fuzz target gets to the code behind their checks.
func correct(raw []byte, name string) {
	if len(raw) < headerStart {
		return
	}
	off, err := headerBytes(raw)
	if err != nil || off > len(raw) {
		return
	}
	binary.BigEndian.PutUint32(raw[off-4:], crc32.Checksum(raw[:off-4], castagnoli))
	for off+blockHeaderBytes <= len(raw) {
		b := raw[off:]
		n := min(int(binary.BigEndian.Uint32(b[4:])), len(b)-blockHeaderBytes)
		binary.BigEndian.PutUint32(b[40:], crc32.Checksum(b[blockHeaderBytes:blockHeaderBytes+n], castagnoli))
		binary.BigEndian.PutUint32(b[44:], blockSum(b, name))
		off += blockHeaderBytes + n
	}
}

// Whatever a segment contains, the spool opens, reads it without a panic, and accepts more frames.
func FuzzSegment(f *testing.F) {
	for _, key := range [][]byte{nil, testKey} {
		b := build(f, key, true)
		for _, seg := range b.segments {
			f.Add(contents(f, b.fsys, seg.File), key != nil, false)
			f.Add(contents(f, b.fsys, seg.File), key != nil, true)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, sealed, corrected bool) {
		var o Options
		if sealed {
			o.Key = testKey
		}
		fsys := vfs.NewMem()
		must(t, fsys.MkdirAll("/dir", 0o700))
		must(t, fsys.MkdirAll("/dir/spool", 0o700))
		name := segmentName(hashOf("x"), 1)
		raw = bytes.Clone(raw)
		if corrected {
			correct(raw, name)
		}
		file, err := fsys.Create("/dir/spool/"+name, vfs.WriteCategoryUnspecified)
		must(t, err)
		_, err = file.Write(raw)
		must(t, errors.Join(err, file.Close()))
		s := mustOpen(t, fsys, o)
		defer s.Close()
		st := s.Stream("x")
		r := st.Reader(1)
		for err = nil; err == nil; {
			_, err = r.Next()
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, ErrBroken) {
			t.Fatal(err)
		}
		first, err := st.Begin(nil, 0)
		must(t, err)
		fill(t, st, 3)
		wantEnd(t, st, first, first+3)
	})
}
