package spool

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// codec packs and unpacks blocks. It is shared by all streams, starts no goroutine, and is not closed, since readers may still use it.
type codec struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
	buffers sync.Pool // *[]byte, of blocks
}

func newCodec() (*codec, error) {
	// A window of a block is enough; a larger one only costs memory.
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(blockBytes), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxRawBytes), zstd.WithDecoderConcurrency(0))
	return &codec{encoder: encoder, decoder: decoder}, err
}

// buffer returns an empty buffer, which grows when it is used: a stream with few frames needs little. Give it back with release.
func (c *codec) buffer() []byte {
	if b, ok := c.buffers.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return nil
}

// release takes a buffer that buffer returned. Large ones, of large frames, are left to the garbage collector.
func (c *codec) release(b []byte) {
	if cap(b) > 0 && cap(b) <= 4*blockBytes {
		c.buffers.Put(&b)
	}
}

// place says which block of which segment is packed or unpacked.
type place struct {
	file   string // its name
	block  uint64 // number in its segment
	sealer *sealer
}

// pack appends a block to b. It fills what h says of the data.
func (c *codec) pack(b, raw []byte, h *blockHeader, p place) []byte {
	start := len(b)
	b = append(b, make([]byte, blockHeaderBytes)...)
	b = c.encoder.EncodeAll(raw, b)
	data := b[start+blockHeaderBytes:]
	if len(data) >= len(raw) { // packing does not help: as it is
		b = append(b[:start+blockHeaderBytes], raw...)
		data = b[start+blockHeaderBytes:]
	}
	h.raw, h.stored = uint32(len(raw)), uint32(len(data))
	if p.sealer != nil {
		h.stored += sealOverhead
		b = append(b, make([]byte, sealOverhead)...)
		h.encode(b[start:], p.file)
		data = p.sealer.seal(b[start+blockHeaderBytes:len(b)-sealOverhead], p.block, b[start:])
	}
	h.sum = crc32.Checksum(data, castagnoli)
	h.encode(b[start:], p.file)
	return b
}

// unpack appends the frames of a block to b. It overwrites data. Any damage is an error.
func (c *codec) unpack(b, encoded, data []byte, h *blockHeader, p place) (_ []byte, err error) {
	if p.sealer != nil {
		if data, err = p.sealer.open(data, p.block, encoded); err != nil {
			return b, err
		}
	}
	if len(data) == int(h.raw) {
		b = append(b, data...)
	} else if b, err = c.decoder.DecodeAll(data, b); err != nil {
		return b, fmt.Errorf("%w block: %w", errDamaged, err)
	}
	rest := b
	for range h.frames {
		if _, rest, err = frame(rest); err != nil {
			return b, err
		}
	}
	if len(b) != int(h.raw) || len(rest) != 0 {
		return b, fmt.Errorf("%w block: wrong length", errDamaged)
	}
	return b, nil
}

// frame splits the first frame off the frames of a block.
func frame(raw []byte) (data, rest []byte, err error) {
	n, width := binary.Uvarint(raw)
	if width <= 0 || n > uint64(len(raw)-width) {
		return nil, nil, fmt.Errorf("%w block: frame with a wrong length", errDamaged)
	}
	end := width + int(n)
	return raw[width:end:end], raw[end:], nil
}
