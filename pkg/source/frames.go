package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxFrame bounds one watch frame, in bytes. A 1.04 MB ConfigMap full of "<" is
	// a 6.24 MB frame.
	maxFrame = 16 << 20
	// minBuffer and keepBuffer bound, in bytes, the buffers that frames share, and
	// how much is read at once. A larger frame has one of its own: hundreds of
	// watches would keep hundreds of the largest. What is read on a wide connection
	// has keepWide: each read allows the server to send more, which costs a write.
	minBuffer  = 4 << 10
	keepBuffer = 32 << 10
	keepWide   = wideBuffer / 2
	// minRead is how much room a buffer has, in bytes, that is worth a read.
	minRead = 512
	// busyBytes within a busyTime is what makes a watch a busy one. streamBuffer lets
	// that much through up to a round trip of 30 ms.
	busyBytes = 2 << 20
	busyTime  = time.Second
)

var errFrameTooLarge = fmt.Errorf("a watch frame of more than %d bytes", maxFrame)

// frameReader reads watch frames: JSON values one after another. What is read goes
// into buffers that belong to the frames in them, and is scanned where it stands,
// as it comes: nothing is written there again while a frame holds it.
type frameReader struct {
	r    io.Reader
	rest []byte   // what was read behind the last frame; its capacity is free
	in   *piece   // that rest stands in, unless it is memory of its own
	left []*piece // that this frame began in
	size int      // of the next buffer, in bytes,
	keep int      // and at most
	from *pieces  // where they are from
	kind string   // of the last frame
	err  error    // of the reader, once it has one
	more func([]byte) ([]byte, error)
	cut  bool // the scanner was given err
	scan scanner

	busy  bool      // it was, in a busyTime; and stays so
	since time.Time // when one began
	bytes int       // read in it
}

// newFrameReader returns a reader whose frames share buffers of at most keep
// bytes.
func newFrameReader(r io.Reader, keep int, from *pieces) *frameReader {
	f := &frameReader{r: r, size: minBuffer, keep: keep, from: from}
	f.more = f.read
	return f
}

// read adds to the text of a frame.
func (f *frameReader) read(text []byte) ([]byte, error) {
	if f.err == nil && len(text) >= maxFrame {
		f.err = errFrameTooLarge
	}
	if f.err == nil && cap(text)-len(text) < minRead && cap(text) < maxFrame {
		size := max(2*len(text), f.size)
		if len(text) < f.keep-minRead {
			size = min(size, f.keep)
		}
		text = f.move(text, min(size, maxFrame))
	}
	for f.err == nil {
		room := text[len(text):min(cap(text), len(text)+f.keep)]
		var n int
		n, f.err = f.r.Read(room)
		if n > 0 {
			f.count(n)
			return text[:len(text)+n], nil
		}
	}
	f.cut = true
	return text, f.err
}

// move copies what was read to another buffer. The scanner may still look at the one
// that it leaves.
func (f *frameReader) move(text []byte, size int) []byte {
	if f.in != nil {
		f.left = append(f.left, f.in)
		f.in = nil
	}
	if size <= f.keep {
		f.in = f.from.get(size)
		return append(f.in.bytes, text...)
	}
	return append(make([]byte, 0, size), text...)
}

// leave lets go of the buffers that were left.
func (f *frameReader) leave() {
	for _, m := range f.left {
		m.release()
	}
	f.left = f.left[:0]
}

// count notes when so much is read that the watch is busy.
func (f *frameReader) count(n int) {
	if now := time.Now(); now.Sub(f.since) > busyTime {
		f.since, f.bytes = now, 0
	}
	f.bytes += n
	f.busy = f.busy || f.bytes > busyBytes
}

// next returns the type and the object of the next frame. io.EOF is the end of
// the stream between two frames; an ERROR frame comes back as an
// apierrors.APIStatus error. The object's memory is its own and its neighbours'.
func (f *frameReader) next() (string, *Object, error) {
	f.scan.Stream(f.rest, f.more)
	if _, err := f.scan.Peek(); f.cut {
		return "", nil, f.err
	} else if err != nil {
		return "", nil, err
	}
	kind, o, err := f.frame()
	switch {
	case f.cut && errors.Is(f.err, io.EOF):
		err = io.ErrUnexpectedEOF
	case f.cut:
		err = f.err
	}
	if err != nil {
		return "", nil, fmt.Errorf("watch frame, %d bytes of it: %w", f.scan.Offset(), err)
	}
	text := f.scan.Text()
	f.rest = text[f.scan.Offset():]
	if len(f.rest) > 1 { // more than the end of the line: it is busy
		f.size = min(2*f.size, f.keep)
	} else {
		f.size = max(f.size/2, minBuffer)
	}
	if cap(text) > f.keep {
		o.Own()
		f.rest = f.move(f.rest, max(f.size, len(f.rest)))
	}
	f.leave()
	f.scan.Reset(nil) // which holds the buffer
	if kind == "ERROR" {
		var status metav1.Status
		if err := json.Unmarshal(o.Raw, &status); err != nil {
			return "", nil, fmt.Errorf("watch frame of type ERROR: %w", err)
		}
		return "", nil, apierrors.FromObject(&status)
	}
	f.kind = kind
	return kind, o, nil
}

// frame scans one frame.
func (f *frameReader) frame() (kind string, o *Object, err error) {
	err = f.scan.Members(func(name []byte, _ int) error {
		switch string(name) {
		case "type":
			return f.scan.str(&kind, f.kind)
		case "object":
			found, err := f.scan.object()
			o = &found
			o.lies(f.in)
			return err
		default:
			return f.scan.Skip()
		}
	})
	if err == nil && (kind == "" || o == nil) {
		err = errors.New("it has no type or no object")
	}
	return kind, o, err
}
