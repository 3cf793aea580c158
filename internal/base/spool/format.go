package spool

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"
)

const (
	headerMagic      = "kbspool"
	version          = 1
	headerStart      = 12 // magic, version, length of the body
	headerFixed      = 61 // the fields of the body before the stream's name
	maxHeaderBytes   = MaxNameBytes + MaxMetaBytes + headerFixed
	blockMagic       = "kbsb"
	blockHeaderBytes = 48
	blockSealedFrom  = 40 // the fields before the checksums are associated data of what is sealed
	maxRawBytes      = MaxFrameBytes + binary.MaxVarintLen32
	suffix           = ".spool"
)

var (
	errDamaged  = errors.New("damaged")
	errAbsent   = errors.New("file is absent")
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
	errNoHeader = fmt.Errorf("%w segment header", errDamaged)
)

// versionError is of a segment that another version of this program has written.
type versionError struct{ found byte }

func (e *versionError) Error() string {
	return fmt.Sprintf("segment has format version %d, want %d", e.found, version)
}

// hashOf returns the part of file names that stands for a stream.
func hashOf(stream string) string {
	sum := sha256.Sum256([]byte(stream))
	return hex.EncodeToString(sum[:16])
}

func segmentName(hash string, first uint64) string {
	return fmt.Sprintf("%s-%016x%s", hash, first, suffix)
}

// parseName is the inverse of segmentName. It does not accept any other name.
func parseName(name string) (hash string, first uint64, ok bool) {
	if len(name) != 32+1+16+len(suffix) {
		return "", 0, false
	}
	hash = name[:32]
	if _, err := hex.DecodeString(hash); err != nil {
		return "", 0, false
	}
	first, err := strconv.ParseUint(name[33:49], 16, 64)
	return hash, first, err == nil && first > 0 && name == segmentName(strings.ToLower(hash), first)
}

// header is what a segment begins with.
type header struct {
	stream       string
	meta         []byte
	first, chain uint64
	started      time.Time
	seal         sealHeader
}

func (h *header) encode() []byte {
	b := append(make([]byte, 0, headerStart+headerFixed+len(h.stream)+len(h.meta)+4), headerMagic...)
	b = append(b, version)
	b = binary.BigEndian.AppendUint32(b, uint32(headerFixed+len(h.stream)+len(h.meta)))
	b = binary.BigEndian.AppendUint64(b, h.first)
	b = binary.BigEndian.AppendUint64(b, h.chain)
	b = binary.BigEndian.AppendUint64(b, uint64(h.started.UnixMilli()))
	b = h.seal.append(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.stream)))
	b = append(append(b, h.stream...), h.meta...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// headerBytes returns the length of a header from its start.
func headerBytes(start []byte) (int, error) {
	if string(start[:len(headerMagic)]) != headerMagic {
		return 0, errNoHeader
	}
	if v := start[len(headerMagic)]; v != version {
		return 0, &versionError{v}
	}
	n := binary.BigEndian.Uint32(start[len(headerMagic)+1:])
	if n < headerFixed || n > maxHeaderBytes {
		return 0, errNoHeader
	}
	return headerStart + int(n) + 4, nil
}

// decode reads a header whose length headerBytes has returned.
func (h *header) decode(b []byte) error {
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return errNoHeader
	}
	body = body[headerStart:]
	h.first = binary.BigEndian.Uint64(body)
	h.chain = binary.BigEndian.Uint64(body[8:])
	h.started = time.UnixMilli(int64(binary.BigEndian.Uint64(body[16:])))
	h.seal.read(body[24:])
	n := binary.BigEndian.Uint32(body[headerFixed-4:])
	body = body[headerFixed:]
	if int64(n) > int64(len(body)) {
		return errNoHeader
	}
	h.stream, h.meta = string(body[:n]), body[n:len(body):len(body)]
	return nil
}

// blockHeader is what a block begins with. A block without frames is the end of a segment that was ended in order.
type blockHeader struct {
	stored  uint32 // bytes that follow the header
	raw     uint32 // bytes of the frames when unpacked
	frames  uint32
	first   uint64    // number of the first frame; of an end, of the frame behind the last one
	written time.Time // in milliseconds
	synced  int64     // up to this offset the file was synced when the block was written
	sum     uint32    // checksum of what follows
}

func (h *blockHeader) next() uint64 { return h.first + uint64(h.frames) }

// encode writes the header into b. Its checksum starts with the file's name, so a block of another file is not taken for
// one of this file.
func (h *blockHeader) encode(b []byte, name string) {
	copy(b, blockMagic)
	binary.BigEndian.PutUint32(b[4:], h.stored)
	binary.BigEndian.PutUint32(b[8:], h.raw)
	binary.BigEndian.PutUint32(b[12:], h.frames)
	binary.BigEndian.PutUint64(b[16:], h.first)
	binary.BigEndian.PutUint64(b[24:], uint64(h.written.UnixMilli()))
	binary.BigEndian.PutUint64(b[32:], uint64(h.synced))
	binary.BigEndian.PutUint32(b[40:], h.sum)
	binary.BigEndian.PutUint32(b[44:], blockSum(b, name))
}

func blockSum(b []byte, name string) uint32 {
	return crc32.Update(crc32.Checksum([]byte(name), castagnoli), castagnoli, b[:44])
}

// decode reads a header, and reports whether it is whole and possible.
func (h *blockHeader) decode(b []byte, name string) bool {
	if string(b[:4]) != blockMagic || binary.BigEndian.Uint32(b[44:]) != blockSum(b, name) {
		return false
	}
	h.stored = binary.BigEndian.Uint32(b[4:])
	h.raw = binary.BigEndian.Uint32(b[8:])
	h.frames = binary.BigEndian.Uint32(b[12:])
	h.first = binary.BigEndian.Uint64(b[16:])
	h.written = time.UnixMilli(int64(binary.BigEndian.Uint64(b[24:])))
	h.synced = int64(binary.BigEndian.Uint64(b[32:]))
	h.sum = binary.BigEndian.Uint32(b[40:])
	return h.raw <= maxRawBytes && h.stored <= h.raw+sealOverhead && h.frames <= h.raw && h.first > 0 && h.next() >= h.first
}
