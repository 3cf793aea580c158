package spool

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
	"time"
)

// Segment describes a part of a stream that is one file.
type Segment struct {
	Stream      string // "" if no header of the stream can be read and Spool.Stream was not called with its name
	File        string // path of the file
	Meta        []byte // of its chain; do not change it
	Chain       uint64 // number of the first frame of its chain, which may be in an earlier segment; 0 if the header cannot be read
	First, Last uint64 // its frames that can be read; none if Last is First-1
	Bytes       int64  // on disk
	Started     time.Time
	Written     time.Time // when the last of its frames was written; not known if Err is of the header
	Err         error     // why its other frames cannot be read: damage, or ErrKey
	Torn        int64     // bytes at its end that are no frames: a crash, or a full disk, has cut off what was not durable
}

// Damage says what of the segment cannot be read, and why; nil if all of it can.
func (s *Segment) Damage() error {
	switch {
	case s.Err != nil:
		return s.Err
	case s.Torn == s.Bytes && s.Torn > 0:
		return fmt.Errorf("torn: its header is not whole, so none of its %d bytes can be read", s.Torn)
	case s.Torn > 0:
		return fmt.Errorf("torn: its last %d of %d bytes cannot be read", s.Torn, s.Bytes)
	}
	return nil
}

// Ranges splits what List or Segments returns where frames are missing: a reader reads each of the parts without a BrokenError, and
// none across two of them. Segments without readable frames are left out.
func Ranges(list []Segment) (parts [][]Segment) {
	for _, seg := range list {
		if seg.Last < seg.First {
			continue
		}
		if n := len(parts); n > 0 {
			before := parts[n-1][len(parts[n-1])-1]
			if before.Stream == seg.Stream && before.Last+1 == seg.First {
				parts[n-1] = append(parts[n-1], seg)
				continue
			}
		}
		parts = append(parts, []Segment{seg})
	}
	return parts
}

// Stream is a sequence of numbered frames. Its methods can be called at the same time, but a caller who wants to know the order of its
// frames appends from one goroutine.
type Stream struct {
	spool *Spool
	hash  string

	writing sync.Mutex // held while files are written; protects w
	w       writer

	mu       sync.Mutex // held for short times only, never while files are read or written. writing comes before it
	name     string
	local    bool          // see [Options].Local
	segments []*segment    // by first frame
	next     uint64        // number of the next frame to be appended
	flushed  uint64        // number of the next frame to be flushed
	more     chan struct{} // closed when a reader that waits should look again; nil if none waits
}

// loaded adds a segment that was found when the spool was opened. It comes behind those that were added before.
func (st *Stream) loaded(one *found) {
	if one.stream != "" {
		st.name = one.stream
	}
	if n := len(st.segments); n > 0 {
		before := st.segments[n-1]
		before.last = min(before.last, one.first-1)
	}
	seg := one.segment
	st.segments = append(st.segments, &seg)
	st.local = one.local
	st.next = max(one.next, one.first)
	st.flushed = st.next
}

// Segments returns the segments of the stream in the order of their frames.
func (st *Stream) Segments() (list []Segment) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, seg := range st.segments {
		list = append(list, Segment{
			Stream: st.name, File: st.spool.dir.join(seg.file), Meta: seg.meta, Chain: seg.chain, First: seg.first, Last: seg.last,
			Bytes: seg.bytes, Started: seg.started, Written: seg.written, Err: seg.err, Torn: seg.torn,
		})
	}
	return list
}

// SegmentBytes returns the length from which on a segment is ended.
func (st *Stream) SegmentBytes() int64 { return st.spool.options.SegmentBytes }

// Next returns the number of the next frame to be appended.
func (st *Stream) Next() uint64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.next
}

// First returns the number of the first frame that is flushed and not trimmed, or of the next one to be flushed if there is none.
func (st *Stream) First() uint64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.segments) > 0 {
		return st.segments[0].first
	}
	return st.flushed
}

// locate returns the segment that has a frame. Its errors are io.EOF for a frame that is still to be flushed, ErrTrimmed and
// *BrokenError. st.mu is held.
func (st *Stream) locate(n uint64) (*segment, error) {
	i := sort.Search(len(st.segments), func(i int) bool { return st.segments[i].first > n }) - 1
	if i < 0 && (len(st.segments) > 0 || n < st.flushed) {
		return nil, ErrTrimmed
	}
	if i < 0 {
		return nil, io.EOF
	}
	seg, behind := st.segments[i], st.segments[i+1:]
	if n <= seg.last {
		return seg, nil
	}
	if len(behind) == 0 && seg.err == nil {
		return nil, io.EOF
	}
	broken := &BrokenError{Stream: st.name, Frame: n, File: st.spool.dir.join(seg.file), Offset: seg.end, Err: seg.err}
	for _, later := range behind {
		if !later.empty() {
			broken.Next = later.first
			break
		}
	}
	return nil, broken
}

// brokenAt notes that a reader has found damage in a segment, at the block with a frame.
func (st *Stream) brokenAt(seg *segment, n uint64, offset int64, damage error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if n <= seg.last {
		seg.last, seg.end, seg.err = n-1, offset, damage
	}
}

// wake makes readers that wait look again. st.mu is held.
func (st *Stream) wake() {
	if st.more != nil {
		close(st.more)
		st.more = nil
	}
}

// Trim deletes segments whose frames are all below a number. The chain goes on. Frames that were not flushed stay.
func (st *Stream) Trim(below uint64) error {
	return st.trim(func(seg *segment) bool { return seg.last < below && seg.first < below })
}

// Drop deletes the stream, and what was appended and not flushed. Its numbers go on while the spool is open. The next Append needs
// a Begin.
func (st *Stream) Drop() error {
	st.writing.Lock()
	defer st.writing.Unlock()
	if st.spool.closed.Load() {
		return ErrClosed
	}
	st.discard()
	st.closeFile()
	st.w = writer{}
	return st.remove(func(*segment) bool { return true })
}

// Delete is Drop for a stream that is not used again: the spool forgets its name.
func (st *Stream) Delete() error {
	err := st.Drop()
	if err == nil {
		st.spool.mu.Lock()
		defer st.spool.mu.Unlock()
		delete(st.spool.streams, st.hash)
	}
	return err
}

// trim deletes segments from the first one on, while they are no longer needed.
func (st *Stream) trim(unneeded func(*segment) bool) error {
	st.writing.Lock()
	defer st.writing.Unlock()
	if st.spool.closed.Load() {
		return ErrClosed
	}
	return st.remove(unneeded)
}

// remove is trim for a caller that holds st.writing.
func (st *Stream) remove(unneeded func(*segment) bool) error {
	removed := false
	var err error
	for err == nil {
		seg := st.takeFirst(unneeded)
		if seg == nil {
			break
		}
		if seg == st.w.seg {
			st.closeFile()
			st.w.seg = nil
		}
		if err = st.spool.dir.remove(seg.file); err != nil {
			st.putBack(seg)
			break
		}
		st.spool.used.Add(-seg.bytes)
		removed = true
	}
	if removed { // the next crash must not bring back segments between which others are missing
		err = errors.Join(err, st.spool.dir.sync())
	}
	return err
}

// takeFirst takes the first segment out of the list before its file is removed, so that no reader takes that for damage.
func (st *Stream) takeFirst(unneeded func(*segment) bool) *segment {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.segments) == 0 || !unneeded(st.segments[0]) {
		return nil
	}
	seg := st.segments[0]
	st.segments = slices.Delete(st.segments, 0, 1)
	return seg
}

func (st *Stream) putBack(seg *segment) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.segments = slices.Insert(st.segments, 0, seg)
}
