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

// maxFrame bounds one watch frame or one list page's reading ahead, in bytes. A
// 1.04 MB ConfigMap full of "<" is a 6.24 MB frame.
const maxFrame = 16 << 20

var errFrameTooLarge = fmt.Errorf("a watch frame of more than %d bytes", maxFrame)

// frameReader reads watch frames: JSON values one after another.
type frameReader struct {
	limit *limitedReader
	dec   *jsontext.Decoder
	scan  scanner
}

func newFrameReader(r io.Reader) *frameReader {
	l := &limitedReader{r: r, left: maxFrame}
	return &frameReader{
		limit: l,
		dec:   jsontext.NewDecoder(l, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
	}
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

// page is one page of a list.
type page struct {
	items     []Object
	rv        string
	remaining string // the continue token; "" on the last page
	bytes     int
}

// parsePage reads a list. Items may come before or after the list's metadata.
func (s *scanner) parsePage(body []byte, r Resource) (page, error) {
	p := page{bytes: len(body)}
	s.reset(body)
	sawItems := false
	err := s.members(func(name string, _ int) error {
		switch name {
		case "metadata":
			return s.members(func(name string, _ int) error {
				switch name {
				case "resourceVersion":
					return s.str(&p.rv)
				case "continue":
					return s.str(&p.remaining)
				default:
					return s.dec.SkipValue()
				}
			})
		case "items":
			sawItems = true
			return s.items(&p, r)
		default:
			return s.dec.SkipValue()
		}
	})
	switch {
	case err != nil:
		return page{}, err
	case !sawItems:
		return page{}, errors.New("a list without items")
	case p.rv == "":
		return page{}, errors.New("a list without a resourceVersion")
	}
	return p, nil
}

func (s *scanner) items(p *page, r Resource) error {
	t, err := s.dec.ReadToken()
	if err != nil || t.Kind() == 'n' {
		return err
	}
	if t.Kind() != '[' {
		return fmt.Errorf("items: %s where an array should be", t.Kind())
	}
	for s.dec.PeekKind() != ']' {
		o, err := s.object()
		if err != nil {
			return err
		}
		o.Raw = bytes.Clone(o.Raw) // an object waiting for the bus must not hold its whole page
		o.restoreGVK(r.APIVersion(), r.Kind)
		p.items = append(p.items, o)
	}
	_, err = s.dec.ReadToken()
	return err
}
