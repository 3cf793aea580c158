package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Frame is a frame of a stream.
type Frame struct {
	Number uint64
	Data   []byte // valid until the next call of the reader
	Chain  uint64 // the first frame of its chain
	Meta   []byte // of its chain; do not change it
}

// Reader reads the frames of a stream in order. It is for one goroutine. A reader that is at the end has no open file and no buffers,
// and needs no Close then.
type Reader struct {
	st   *Stream
	want uint64 // the next frame

	frames []byte // of a block, from want on
	raw    []byte // the buffer of frames
	data   []byte // a block as it is in the file
	head   []byte // its header

	seg    *segment // the one that is being read, nil at first
	file   vfs.File // of seg; nil if it is not open
	source source
	sealer *sealer
	off    int64  // of the next block
	block  uint64 // its number
	at     uint64 // its first frame
}

// Reader returns a reader of the frames from a number on.
func (st *Stream) Reader(from uint64) *Reader { return &Reader{st: st, want: from} }

// Next returns the next frame, of any chain. Its errors are io.EOF if that frame is not flushed yet, ErrTrimmed, *BrokenError, ErrClosed,
// and those of the file system. The same call can be made again after each of them.
func (r *Reader) Next() (Frame, error) {
	for {
		if r.st.spool.closed.Load() {
			return Frame{}, errors.Join(ErrClosed, r.Close())
		}
		if len(r.frames) == 0 {
			if err := r.fill(); err != nil {
				return Frame{}, errors.Join(err, r.Close())
			}
			continue
		}
		data, rest, err := frame(r.frames)
		if err != nil {
			return Frame{}, err
		}
		f := Frame{Number: r.want, Data: data, Chain: r.seg.chain, Meta: r.seg.meta}
		r.frames = rest
		r.want++
		return f, nil
	}
}

// Wait returns nil when Next has something else to return than io.EOF, and an error if ctx ends before.
func (r *Reader) Wait(ctx context.Context) error {
	for {
		r.st.mu.Lock()
		_, err := r.st.locate(r.want)
		if r.st.more == nil {
			r.st.more = make(chan struct{})
		}
		more := r.st.more
		r.st.mu.Unlock()
		if len(r.frames) > 0 || !errors.Is(err, io.EOF) || r.st.spool.closed.Load() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-more:
		}
	}
}

// Close closes the file and frees the buffers. The reader can be used again.
func (r *Reader) Close() error {
	codec := r.st.spool.codec
	codec.release(r.raw)
	codec.release(r.data)
	r.frames, r.raw, r.data, r.head = nil, nil, nil, nil
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	return f.Close()
}

// fill reads the block with the wanted frame, or a block before it.
func (r *Reader) fill() error {
	r.st.mu.Lock()
	seg, err := r.st.locate(r.want)
	var last uint64
	if err == nil {
		last = seg.last
	}
	r.st.mu.Unlock()
	if err != nil {
		return err
	}
	if err = r.open(seg); err == nil {
		err = r.readBlock(last)
	}
	if errors.Is(err, errDamaged) || errors.Is(err, errAbsent) || errors.Is(err, ErrKey) {
		r.st.brokenAt(seg, r.at, r.off, err)
		return nil // locate says what that means
	}
	if err != nil {
		return fmt.Errorf("read segment %s: %w", r.st.spool.dir.join(seg.file), err)
	}
	return nil
}

// open makes sure that the file of a segment is open.
func (r *Reader) open(seg *segment) error {
	known := r.seg == seg && r.at <= r.want
	if known && r.file != nil {
		return nil
	}
	if err := r.Close(); err != nil {
		return err
	}
	if !known {
		r.seg, r.off, r.block, r.at = seg, 0, 0, seg.first
	}
	dir := r.st.spool.dir
	f, err := dir.fs.Open(dir.join(seg.file))
	if errors.Is(err, fs.ErrNotExist) {
		return errAbsent
	}
	if err != nil {
		return err
	}
	r.file = f
	info, err := f.Stat()
	if err != nil {
		return err
	}
	r.source = source{ReaderAt: f, name: seg.file, size: info.Size()}
	if known && r.off > 0 {
		return nil
	}
	h, encoded, err := r.source.header()
	if err != nil {
		return err
	}
	r.off = int64(len(encoded))
	local, err := r.st.spool.opens(&h.seal)
	if err == nil {
		r.sealer, err = newSealer(&h.seal, encoded, r.st.spool.key(local))
	}
	return err
}

// readBlock reads the next block of the segment, in which frames up to last can be read. A block that ends before the wanted frame is not unpacked.
func (r *Reader) readBlock(last uint64) error {
	if err := r.reach(r.off + blockHeaderBytes); err != nil {
		return err
	}
	h, head, err := r.source.block(r.head, r.off)
	r.head = head
	if err != nil {
		return err
	}
	if err := r.reach(r.off + blockHeaderBytes + int64(h.stored)); err != nil {
		return err
	}
	if h.first != r.at || h.frames == 0 || h.next()-1 > last {
		return fmt.Errorf("%w: block of frames %d to %d where %d to %d are due", errDamaged, h.first, h.next()-1, r.at, last)
	}
	if h.next() > r.want {
		if err := r.unpack(&h); err != nil {
			return err
		}
		r.frames = r.raw
		for n := h.first; n < r.want; n++ {
			if _, r.frames, err = frame(r.frames); err != nil {
				return err
			}
		}
	}
	r.off += blockHeaderBytes + int64(h.stored)
	r.block++
	r.at = h.next()
	return nil
}

// reach asks for the size of the file again if it was less than end when it was asked for last. The file grows, and during a write it can
// end anywhere in a block.
func (r *Reader) reach(end int64) error {
	if r.source.size >= end {
		return nil
	}
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	r.source.size = info.Size()
	return nil
}

func (r *Reader) unpack(h *blockHeader) (err error) {
	codec := r.st.spool.codec
	if r.data == nil {
		r.data, r.raw = codec.buffer(), codec.buffer()
	}
	if r.data, err = r.source.data(r.data, r.off, h); err != nil {
		return err
	}
	r.raw, err = codec.unpack(r.raw[:0], r.head, r.data, h, place{r.source.name, r.block, r.sealer})
	return err
}
