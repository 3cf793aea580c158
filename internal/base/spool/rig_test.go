package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var testKey = []byte("0123456789abcdef0123456789abcdef")

// testCodec is shared by the spools of the tests, because Open spends most of its time on making a codec.
var testCodec = sync.OnceValues(newCodec)

// openTest opens the spool in the directory /dir/spool.
func openTest(fsys vfs.FS, o Options) (*Spool, error) {
	codec, err := testCodec()
	if err != nil {
		return nil, err
	}
	o.FS = fsys
	return open("/dir/spool", o, codec)
}

func mustOpen(t testing.TB, fsys vfs.FS, o Options) *Spool {
	t.Helper()
	s, err := openTest(fsys, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// payload returns the payload of a frame. It begins with the name of the stream and the number of the frame. One of three payloads does not
// compress. In streams whose names begin with "big", payloads have up to 8 KB: at a crash, vfs.MemFS loses blocks of 4 KB.
func payload(stream string, n uint64) []byte {
	r := rand.New(rand.NewPCG(n, 7))
	b := fmt.Appendf(nil, "%s/%d/", stream, n)
	most := 300
	if strings.HasPrefix(stream, "big") {
		most = 8000
	}
	for range r.IntN(most) {
		if n%3 == 0 {
			b = append(b, byte(r.Uint32()))
		} else {
			b = append(b, 'x')
		}
	}
	return b
}

// fill appends frames. It flushes after every fourth frame, and makes all frames durable at the end.
func fill(t testing.TB, st *Stream, frames int) {
	t.Helper()
	for i := range frames {
		n, err := st.Append(payload(st.name, st.Next()))
		must(t, err)
		if n != st.Next()-1 {
			t.Fatalf("Append returns frame %d, want %d", n, st.Next()-1)
		}
		if i%4 == 3 {
			must(t, st.Flush(false))
		}
	}
	must(t, st.Flush(true))
}

// readAll reads the frames of a stream from a number on, checks what they contain, and returns the number of the frame that it could not
// read, and the error.
func readAll(t testing.TB, st *Stream, from uint64) (uint64, error) {
	t.Helper()
	r := st.Reader(from)
	for n := from; ; n++ {
		f, err := r.Next()
		if err != nil {
			if again, same := r.Next(); same == nil || same.Error() != err.Error() {
				t.Fatalf("frame %d: Next returns the error %v, then frame %d and the error %v, want the same error twice", n, err, again.Number, same)
			}
			return n, err
		}
		if f.Number != n || !bytes.Equal(f.Data, payload(st.name, n)) {
			t.Fatalf("%s: read frame %d, want frame %d: %.40q, want %.40q", st.name, f.Number, n, f.Data, payload(st.name, n))
		}
	}
}

func wantEnd(t testing.TB, st *Stream, from, end uint64) {
	t.Helper()
	if n, err := readAll(t, st, from); n != end || !errors.Is(err, io.EOF) {
		t.Fatalf("%s: read from frame %d: stopped at %d with the error %v, want %d with EOF", st.name, from, n, err, end)
	}
}

func wantBroken(t testing.TB, st *Stream, from, at, next uint64) *BrokenError {
	t.Helper()
	n, err := readAll(t, st, from)
	var broken *BrokenError
	if n != at || !errors.As(err, &broken) || !errors.Is(err, ErrBroken) || broken.Frame != at || broken.Next != next || broken.File == "" {
		t.Fatalf("read from frame %d: stopped at %d with the error %v, want a BrokenError at %d with %d as the next frame", from, n, err, at, next)
	}
	return broken
}

// edit changes a file.
func edit(t testing.TB, fsys vfs.FS, path string, change func([]byte) []byte) {
	t.Helper()
	b := change(contents(t, fsys, path))
	must(t, fsys.Remove(path))
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write(b)
	must(t, errors.Join(err, f.Close()))
}

func contents(t testing.TB, fsys vfs.FS, path string) []byte {
	t.Helper()
	f, err := fsys.Open(path)
	must(t, err)
	b, err := io.ReadAll(f)
	must(t, errors.Join(err, f.Close()))
	return b
}

// pods returns pods of 12 to 19 KB as a kube-apiserver sends them. Each has names, uids, versions, addresses, times and hashes of its own.
func pods(t testing.TB, count int) [][]byte {
	t.Helper()
	raw, err := os.ReadFile("../../../bench/internal/corpus/pods.ndjson")
	must(t, err)
	captured := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
	r := rand.New(rand.NewPCG(1, 2))
	list := make([][]byte, count)
	for i := range list {
		list[i] = distinct(captured[i%len(captured)], r)
	}
	return list
}

// distinct replaces what differs between pods of a cluster: every run of at least four hexadecimal digits of which at least one is decimal.
// Equal runs get the same replacement.
func distinct(pod []byte, r *rand.Rand) []byte {
	b := bytes.Clone(pod)
	seen := map[string][]byte{}
	for i := 0; i < len(b); {
		end := i
		digits := false
		for end < len(b) && (b[end] >= '0' && b[end] <= '9' || b[end] >= 'a' && b[end] <= 'f') {
			digits = digits || b[end] <= '9'
			end++
		}
		if end-i >= 4 && digits {
			old := string(b[i:end])
			if seen[old] == nil {
				seen[old] = scramble(b[i:end], r)
			}
			copy(b[i:end], seen[old])
		}
		i = max(end, i+1)
	}
	return b
}

func scramble(b []byte, r *rand.Rand) []byte {
	b = bytes.Clone(b)
	for i, c := range b {
		if c >= 'a' {
			b[i] = 'a' + byte(r.IntN(6))
		} else {
			b[i] = '1' + byte(r.IntN(9))
		}
	}
	return b
}

// clock is a clock that a test sets.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }
