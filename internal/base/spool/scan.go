package spool

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// segment is what is known of a segment's file. The fields below the line are protected by Stream.mu.
type segment struct {
	file    string // its name in the directory
	first   uint64
	chain   uint64 // 0 if the header cannot be read
	meta    []byte
	started time.Time
	//
	last    uint64    // the last frame that can be read; first-1 if there is none
	written time.Time // when the last block was written
	end     int64     // offset behind the last block that can be read
	bytes   int64
	err     error // why the frames behind last, or all of them, cannot be read; nil for a torn end
	torn    int64 // bytes of a torn end
}

func (s *segment) empty() bool { return s.last < s.first }

// source is a segment's file that is being read.
type source struct {
	io.ReaderAt
	name string
	size int64
}

// read returns n bytes, in b where it is large enough. A file that ends before them is damage.
func (f *source) read(b []byte, off int64, n int) ([]byte, error) {
	if off+int64(n) > f.size {
		return b, fmt.Errorf("%w: file ends at %d", errDamaged, f.size)
	}
	b = slices.Grow(b[:0], n)[:n]
	if _, err := f.ReadAt(b, off); err != nil && !errors.Is(err, io.EOF) {
		return b, err
	} else if err != nil {
		return b, fmt.Errorf("%w: file ends before %d", errDamaged, off+int64(n))
	}
	return b, nil
}

// header reads the header of a segment. encoded is the header as it is in the file.
func (f *source) header() (h header, encoded []byte, err error) {
	start, err := f.read(nil, 0, headerStart)
	if err != nil {
		return h, nil, err
	}
	n, err := headerBytes(start)
	if err != nil {
		return h, nil, err
	}
	if encoded, err = f.read(nil, 0, n); err != nil {
		return h, nil, err
	}
	if err = h.decode(encoded); err == nil && segmentName(hashOf(h.stream), h.first) != f.name {
		err = fmt.Errorf("%w segment header: it belongs to another file", errDamaged)
	}
	return h, encoded, err
}

// block reads the header of the block at an offset.
func (f *source) block(b []byte, off int64) (h blockHeader, encoded []byte, err error) {
	if encoded, err = f.read(b, off, blockHeaderBytes); err != nil {
		return h, encoded, err
	}
	if !h.decode(encoded, f.name) {
		return h, encoded, fmt.Errorf("%w block header", errDamaged)
	}
	return h, encoded, nil
}

// data reads what follows the header of a block.
func (f *source) data(b []byte, off int64, h *blockHeader) ([]byte, error) {
	b, err := f.read(b, off+blockHeaderBytes, int(h.stored))
	if err == nil && crc32.Checksum(b, castagnoli) != h.sum {
		err = fmt.Errorf("%w block: wrong checksum", errDamaged)
	}
	return b, err
}

// found is a segment as it was found when the spool was opened.
type found struct {
	segment
	hash, stream string // stream is "" if the header is damaged
	next         uint64 // the first number that no frame had, as far as is known
	ended        bool   // it has an end, so all of it is durable
	local        bool   // see [Options].Local
}

// load finds out what can be read of a segment. Errors are those of the file system.
func load(f vfs.File, name string, spool *Spool) (*found, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	in := &source{ReaderAt: f, name: name, size: info.Size()}
	s := &found{segment: segment{file: name, bytes: in.size}}
	s.hash, s.first, _ = parseName(name)
	s.last, s.next = s.first-1, s.first
	h, encoded, err := in.header()
	switch {
	case errors.Is(err, errDamaged):
		return s, in.tear(s, err)
	case isSystem(err):
		return nil, err
	case err != nil: // another version
		s.err, s.next = err, s.first+1
		return s, nil
	}
	s.stream, s.meta, s.chain, s.started, s.written = h.stream, bytes.Clone(h.meta), h.chain, h.started, h.started
	if err := in.walk(s, int64(len(encoded))); err != nil {
		return nil, err
	}
	if s.local, err = spool.opens(&h.seal); err != nil {
		s.err, s.last, s.end = err, s.first-1, int64(len(encoded))
	}
	return s, nil
}

// isSystem reports whether an error is of the file system, not of what a file contains.
func isSystem(err error) bool {
	var version *versionError
	return err != nil && !errors.Is(err, errDamaged) && !errors.As(err, &version)
}

// walk finds the last block that can be read. If the segment was ended in order, its end says so, and readers check the
// blocks; otherwise each block is checked.
func (f *source) walk(s *found, off int64) error {
	if h, _, err := f.block(nil, f.size-blockHeaderBytes); err == nil && h.frames == 0 && h.first > s.first && h.synced == f.size-blockHeaderBytes {
		s.last, s.next, s.written, s.end, s.ended = h.first-1, h.first, h.written, f.size-blockHeaderBytes, true
		return nil
	} else if isSystem(err) {
		return err
	}
	var head, data []byte
	var h blockHeader
	var err error
	for s.end = off; s.end < f.size; s.end += blockHeaderBytes + int64(h.stored) {
		if h, head, err = f.block(head, s.end); err == nil && (h.first != s.next || h.frames == 0) {
			err = fmt.Errorf("%w: the block begins at frame %d, want frame %d", errDamaged, h.first, s.next)
		}
		if err == nil {
			data, err = f.data(data, s.end, &h)
		}
		if isSystem(err) {
			return err
		}
		if err != nil {
			return f.tear(s, err)
		}
		s.last, s.next, s.written = h.next()-1, h.next(), h.written
	}
	return nil
}

// tear decides what a damage at s.end means. A crash can only damage what was not synced: if a later block says that the file
// was synced beyond the damage, confirmed frames are lost. Otherwise the segment ends where the damage begins.
func (f *source) tear(s *found, damage error) error {
	const step = 1 << 20
	var b []byte
	var err error
	for off := s.end; off+blockHeaderBytes <= f.size; off += step {
		if b, err = f.read(b, off, int(min(f.size-off, step+blockHeaderBytes-1))); err != nil {
			return err
		}
		for i := 0; ; i++ {
			at := bytes.Index(b[i:], []byte(blockMagic))
			if at < 0 || i+at+blockHeaderBytes > len(b) {
				break
			}
			i += at
			var h blockHeader
			if h.decode(b[i:], f.name) && h.synced > s.end {
				s.err, s.next = damage, max(s.next, h.next(), s.first+1)
			}
		}
	}
	if s.err == nil {
		s.torn = f.size - s.end
	}
	return nil
}
