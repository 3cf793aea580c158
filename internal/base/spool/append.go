package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// writer is the end of a stream to which frames are appended. Stream.writing protects it.
type writer struct {
	begun  bool   // there is a chain
	chain  uint64 // its first frame
	meta   []byte
	failed error // set until Begin

	// seg is the segment that is being written. Nil: the next block begins one.
	seg       *segment
	file      vfs.File // of seg; nil if it is closed for the time being
	sealer    *sealer
	blocks    uint64 // in seg
	end       int64  // of seg
	next      uint64 // number of the frame behind seg
	synced    int64  // up to this offset seg is durable
	dirSynced bool   // its name is durable

	pending pending
}

// pending are frames that were appended and not written yet.
type pending struct {
	raw      []byte
	frames   int
	first    uint64
	since    time.Time
	reserved int64 // of Options.MaxBytes
}

// Begin starts a chain with metadata of at most MaxMetaBytes, and returns the number of its first frame: first, or Next if first is 0.
// It must not be below Next; if it is above, the numbers between are missing, and readers get a BrokenError there.
//
// The chain before it is flushed and made durable. If that fails, Begin returns an error that wraps ErrFailed, and the next Begin
// does without. A chain without frames leaves no trace.
func (st *Stream) Begin(meta []byte, first uint64) (uint64, error) {
	st.writing.Lock()
	defer st.writing.Unlock()
	if st.spool.closed.Load() {
		return 0, ErrClosed
	}
	st.mu.Lock()
	name, next := st.name, st.next
	st.mu.Unlock()
	if len(meta) > MaxMetaBytes || len(name) > MaxNameBytes {
		return 0, fmt.Errorf("begin chain of %d bytes of metadata in a stream with a name of %d bytes: %w", len(meta), len(name), ErrTooLarge)
	}
	if first == 0 {
		first = next
	}
	if first < next {
		return 0, fmt.Errorf("begin chain of stream %q at frame %d: the next frame is %d", name, first, next)
	}
	if st.w.failed == nil {
		if err := st.write(); err != nil {
			return 0, err
		}
		if err := st.endSegment(); err != nil {
			return 0, err
		}
	}
	st.w = writer{begun: true, chain: first, meta: bytes.Clone(meta)}
	st.mu.Lock()
	st.next, st.flushed = first, first
	st.mu.Unlock()
	return first, nil
}

// Append adds a frame to the chain, and returns its number. The frame is copied. Until Flush it is in memory, unless 256 KiB of frames
// have come together. In a spool that was opened again, Append goes on with the last chain.
//
// With ErrFull and ErrTooLarge, the frame is not added, and those before it stay. ErrNoChain and *BrokenError ask for a Begin, and so
// does ErrFailed, after which frames since the last Flush with sync may be lost.
func (st *Stream) Append(frame []byte) (uint64, error) {
	st.writing.Lock()
	defer st.writing.Unlock()
	if err := st.ready(); err != nil {
		return 0, err
	}
	if len(frame) > MaxFrameBytes {
		return 0, fmt.Errorf("append frame of %d bytes: %w: the limit is %d", len(frame), ErrTooLarge, MaxFrameBytes)
	}
	p := &st.w.pending
	if p.frames > 0 && len(p.raw)+len(frame)+binary.MaxVarintLen32 > blockBytes {
		if err := st.write(); err != nil {
			return 0, err
		}
	}
	needed := int64(len(frame) + binary.MaxVarintLen32)
	if p.frames == 0 { // the block may begin a segment, which will have an end
		needed += headerStart + headerFixed + int64(len(st.w.meta)) + MaxNameBytes + 4 + 2*blockHeaderBytes + sealOverhead
	}
	if err := st.spool.reserve(needed); err != nil {
		return 0, err
	}
	p.reserved += needed
	st.mu.Lock()
	n := st.next
	st.next++
	st.mu.Unlock()
	if p.frames == 0 {
		p.raw, p.first, p.since = st.spool.codec.buffer(), n, st.spool.options.Now()
	}
	p.raw = append(binary.AppendUvarint(p.raw, uint64(len(frame))), frame...)
	p.frames++
	return n, nil
}

// Flush makes appended frames readable. With sync, they are durable when it returns nil. Its error wraps ErrFailed.
func (st *Stream) Flush(sync bool) error {
	st.writing.Lock()
	defer st.writing.Unlock()
	if st.spool.closed.Load() {
		return ErrClosed
	}
	if st.w.failed != nil {
		return st.w.failed
	}
	if err := st.write(); err != nil || !sync {
		return err
	}
	return st.sync()
}

// ready returns an error if frames cannot be appended. After Open it takes up the last chain.
func (st *Stream) ready() error {
	switch {
	case st.spool.closed.Load():
		return ErrClosed
	case st.w.failed != nil:
		return st.w.failed
	case st.w.begun:
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, last := range slices.Backward(st.segments) {
		if last.err != nil {
			_, err := st.locate(last.last + 1)
			return err
		}
		if last.chain != 0 { // otherwise a crash has left a segment without a header
			st.w.begun, st.w.chain, st.w.meta = true, last.chain, last.meta
			return nil
		}
	}
	return ErrNoChain
}

func (st *Stream) write() error {
	w := &st.w
	if w.pending.frames == 0 {
		return nil
	}
	if w.seg != nil && st.isFull(w.seg) {
		if err := st.endSegment(); err != nil {
			return err
		}
	}
	seg, buffer := w.seg, st.spool.codec.buffer()
	defer func() { st.spool.codec.release(buffer) }()
	var err error
	if seg == nil {
		if seg, buffer, err = st.newSegment(buffer); err != nil {
			return st.fail("create segment", err)
		}
	}
	h := blockHeader{frames: uint32(w.pending.frames), first: w.pending.first, written: st.spool.options.Now(), synced: w.synced}
	buffer = st.spool.codec.pack(buffer, w.pending.raw, &h, place{seg.file, w.blocks, w.sealer})
	if err = st.writeAt(seg, buffer); err != nil {
		return st.fail("write segment "+st.spool.dir.join(seg.file), err)
	}
	w.blocks++
	w.next = h.next()
	st.wrote(seg, int64(len(buffer)), h.written)
	return nil
}

func (st *Stream) isFull(seg *segment) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return seg.err != nil || st.w.end >= st.spool.options.SegmentBytes // frames behind a damage are not readable
}

// newSegment creates a file, and appends its header to b.
func (st *Stream) newSegment(b []byte) (*segment, []byte, error) {
	w := &st.w
	st.mu.Lock()
	h := header{stream: st.name, meta: w.meta, first: w.pending.first, chain: w.chain, started: w.pending.since}
	key := st.spool.key(st.local)
	st.mu.Unlock()
	var err error
	if h.seal, err = newSeal(key); err != nil {
		return nil, b, err
	}
	encoded := h.encode()
	if w.sealer, err = newSealer(&h.seal, encoded, key); err != nil {
		return nil, b, err
	}
	seg := &segment{file: segmentName(st.hash, h.first), first: h.first, last: h.first - 1, chain: h.chain, meta: w.meta, started: h.started}
	if w.file, err = st.spool.dir.create(seg.file); err != nil {
		return nil, b, err
	}
	st.spool.handles.opened(st)
	w.blocks, w.end, w.synced, w.dirSynced = 0, 0, 0, false
	return seg, append(b, encoded...), nil
}

// writeAt writes at the end of a segment. If it fails in a segment without blocks, the file is removed.
func (st *Stream) writeAt(seg *segment, b []byte) error {
	w := &st.w
	err := st.openFile(seg)
	if err == nil {
		_, err = w.file.WriteAt(b, w.end)
	}
	if err == nil {
		w.end += int64(len(b))
		return nil
	}
	if w.seg == nil {
		st.closeFile()
		return errors.Join(err, st.spool.dir.remove(seg.file))
	}
	st.count(seg, int64(len(b))) // how much was written is not known
	return err
}

// openFile makes sure that the file of the segment is open.
func (st *Stream) openFile(seg *segment) (err error) {
	if st.w.file != nil {
		return nil
	}
	if st.w.file, err = st.spool.dir.open(seg.file); err == nil {
		st.spool.handles.opened(st)
	}
	return err
}

func (st *Stream) closeFile() {
	if st.w.file != nil {
		st.spool.handles.closed(st)
		_ = st.w.file.Close() // what matters was synced
		st.w.file = nil
	}
}

func (st *Stream) count(seg *segment, n int64) {
	st.spool.used.Add(n)
	st.mu.Lock()
	defer st.mu.Unlock()
	seg.bytes += n
}

// wrote makes the pending frames readable: they are in the file.
func (st *Stream) wrote(seg *segment, added int64, written time.Time) {
	w := &st.w
	st.mu.Lock()
	st.replaceEmpty(seg)
	if w.seg == nil {
		st.segments = append(st.segments, seg)
		w.seg = seg
		added += blockHeaderBytes // its end
	}
	if seg.err == nil {
		seg.last, seg.end, seg.written = w.next-1, w.end, written
	}
	st.flushed = w.next
	st.wake()
	st.mu.Unlock()
	st.count(seg, added)
	st.discard()
}

// replaceEmpty takes a segment out of the list that a crash has left without frames, and whose file was replaced. st.mu is held.
func (st *Stream) replaceEmpty(by *segment) {
	if n := len(st.segments) - 1; n >= 0 && st.segments[n] != by && st.segments[n].file == by.file {
		st.spool.used.Add(-st.segments[n].bytes)
		st.segments = st.segments[:n]
	}
}

func (st *Stream) discard() {
	p := &st.w.pending
	st.spool.used.Add(-p.reserved)
	st.spool.codec.release(p.raw)
	*p = pending{}
}

// fail ends the chain after an error.
func (st *Stream) fail(operation string, err error) error {
	st.discard()
	st.closeFile()
	st.w.seg = nil
	st.w.failed = fmt.Errorf("%s: %w: %w", operation, ErrFailed, err)
	return st.w.failed
}

// sync makes what was written durable.
func (st *Stream) sync() error {
	w := &st.w
	if w.seg == nil || w.dirSynced && w.synced == w.end {
		return nil
	}
	err := st.openFile(w.seg)
	if err == nil {
		err = w.file.SyncData()
	}
	if err == nil && !w.dirSynced {
		err = st.spool.dir.sync()
	}
	if err != nil {
		return st.fail("sync segment "+st.spool.dir.join(w.seg.file), err)
	}
	w.synced, w.dirSynced = w.end, true
	return nil
}

// endSegment ends the segment that is being written. All of it is durable before its end is written, so an end shows that nothing before
// it is torn, and before another segment begins, so only the last segment of a stream can be torn.
func (st *Stream) endSegment() error {
	w := &st.w
	if w.seg == nil {
		return nil
	}
	if err := st.sync(); err != nil {
		return err
	}
	h := blockHeader{first: w.next, written: st.spool.options.Now(), synced: w.synced}
	end := make([]byte, blockHeaderBytes)
	h.encode(end, w.seg.file)
	err := st.openFile(w.seg)
	if err == nil {
		_, err = w.file.WriteAt(end, w.end)
	}
	if err != nil {
		return st.fail("end segment "+st.spool.dir.join(w.seg.file), err)
	}
	w.end += blockHeaderBytes // counted when the segment began
	if err := st.sync(); err != nil {
		return err
	}
	st.closeFile()
	w.seg = nil
	return nil
}

// close ends the stream with its spool.
func (st *Stream) close() error {
	st.writing.Lock()
	defer st.writing.Unlock()
	st.discard()
	var err error
	if st.w.failed == nil {
		err = st.endSegment()
	}
	st.closeFile()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.wake()
	return err
}
