package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxFrame bounds one watch frame, in bytes. A 1.04 MB ConfigMap full of "<" is a
// 6.24 MB frame.
const maxFrame = 16 << 20

// keepBuffer is how large a frame may be, in bytes, whose buffer is kept for the
// next one: hundreds of watches would keep hundreds of the largest.
const keepBuffer = 32 << 10

var errFrameTooLarge = fmt.Errorf("a watch frame of more than %d bytes", maxFrame)

// frameReader reads watch frames: JSON values one after another.
type frameReader struct {
	limit *limitedReader
	dec   *jsontext.Decoder
	scan  scanner
}

func newFrameReader(r io.Reader) *frameReader {
	l := &limitedReader{r: r, left: maxFrame}
	return &frameReader{limit: l, dec: newFrameDecoder(l)}
}

func newFrameDecoder(r io.Reader) *jsontext.Decoder {
	return jsontext.NewDecoder(r, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// next returns the type and the object of the next frame. io.EOF is the end of
// the stream between two frames; an ERROR frame comes back as an
// apierrors.APIStatus error.
func (f *frameReader) next() (string, *Object, error) {
	f.limit.left = maxFrame
	value, err := f.dec.ReadValue()
	if err != nil {
		return "", nil, err
	}
	f.scan.reset(bytes.Clone(value)) // the decoder reuses its buffer
	if len(value) > keepBuffer {
		f.dec = newFrameDecoder(io.MultiReader(bytes.NewReader(bytes.Clone(f.dec.UnreadBuffer())), f.limit))
	}
	var (
		kind string
		o    Object
	)
	err = f.scan.members(func(name string, _ int) error {
		switch name {
		case "type":
			return f.scan.str(&kind)
		case "object":
			o, err = f.scan.object()
			return err
		default:
			return f.scan.dec.SkipValue()
		}
	})
	if err == nil && (kind == "" || o.Raw == nil) {
		err = errors.New("it has no type or no object")
	}
	if err != nil {
		return "", nil, fmt.Errorf("watch frame of %d bytes: %w", len(value), err)
	}
	if kind == "ERROR" {
		var status metav1.Status
		if err := json.Unmarshal(o.Raw, &status); err != nil {
			return "", nil, fmt.Errorf("watch frame of type ERROR: %w", err)
		}
		return "", nil, apierrors.FromObject(&status)
	}
	return kind, &o, nil
}

// limitedReader fails when more than left bytes are read before it is set again.
type limitedReader struct {
	r    io.Reader
	left int
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errFrameTooLarge
	}
	if len(p) > l.left {
		p = p[:l.left]
	}
	n, err := l.r.Read(p)
	l.left -= n
	return n, err
}
