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
	// minBuffer and keepBuffer bound the buffers that frames share, and the size of
	// a read, in bytes. A larger frame has a buffer of its own, so that hundreds of
	// watches do not keep hundreds of large buffers. On a wide connection, keepWide takes the place
	// of keepBuffer: after each read the client writes a window update, so fewer, larger reads are cheaper.
	minBuffer  = 4 << 10
	keepBuffer = 32 << 10
	keepWide   = wideBuffer / 2
	// minRead is the minimum free room in a buffer for a read, in bytes.
	minRead = 512
	// A watch is busy if it receives busyBytes within busyTime. streamBuffer allows
	// that rate up to a round trip of 30 ms.
	busyBytes = 2 << 20
	busyTime  = time.Second
)

var errFrameTooLarge = fmt.Errorf("a watch frame of more than %d bytes", maxFrame)

// frameReader reads watch frames, which are consecutive JSON values. It reads into buffers that belong to the frames in
// them, and scans the text in place as it arrives. A buffer is not written again while a frame holds it.
type frameReader struct {
	r    io.Reader
	rest []byte   // bytes read after the last frame; its capacity is free
	in   *piece   // the piece that holds rest; nil: rest has memory of its own
	left []*piece // earlier pieces of the current frame
	size int      // size of the next buffer, in bytes
	keep int      // maximum of size
	from *pieces  // the source of pieces
	kind string   // type of the last frame, for example ADDED
	err  error    // the error of r
	more func([]byte) ([]byte, error)
	cut  bool // read has returned err to the scanner
	scan scanner

	busy  bool      // the watch has been busy; never reset
	since time.Time // start of the current busyTime
	bytes int       // bytes read in the current busyTime
}

// newFrameReader returns a reader whose frames share buffers of at most keep bytes.
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

// move copies the text of the frame to another buffer. The scanner may still use the old buffer.
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

// leave releases the earlier buffers of the frame.
func (f *frameReader) leave() {
	for _, m := range f.left {
		m.release()
	}
	f.left = f.left[:0]
}

// count counts bytes and marks the watch as busy.
func (f *frameReader) count(n int) {
	if now := time.Now(); now.Sub(f.since) > busyTime {
		f.since, f.bytes = now, 0
	}
	f.bytes += n
	f.busy = f.busy || f.bytes > busyBytes
}

// next returns the type and the object of the next frame. It returns io.EOF if the stream ends between two frames, and
// an apierrors.APIStatus error for an ERROR frame. The object may share memory with neighbouring objects.
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
	if len(f.rest) > 1 { // more than the end of the line has arrived: the watch is busy
		f.size = min(2*f.size, f.keep)
	} else {
		f.size = max(f.size/2, minBuffer)
	}
	if cap(text) > f.keep {
		o.Own()
		f.rest = f.move(f.rest, max(f.size, len(f.rest)))
	}
	f.leave()
	f.scan.Reset(nil) // the scanner would hold the buffer
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
