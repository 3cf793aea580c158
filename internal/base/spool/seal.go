package spool

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
)

const (
	saltBytes    = 16
	checkBytes   = 16
	sealOverhead = 16 // the tag of AES-GCM
	sealInfo     = "kubebridge spool segment, version 1"
)

// sealHeader is the part of a segment's header that says how its blocks are sealed.
type sealHeader struct {
	sealed bool
	salt   [saltBytes]byte
	check  [checkBytes]byte // shows whether a key is the right one, and nothing else about it
}

func (h *sealHeader) append(b []byte) []byte {
	var sealed byte
	if h.sealed {
		sealed = 1
	}
	return append(append(append(b, sealed), h.salt[:]...), h.check[:]...)
}

func (h *sealHeader) read(b []byte) {
	h.sealed = b[0] != 0
	copy(h.salt[:], b[1:])
	copy(h.check[:], b[1+saltBytes:])
}

// derive returns the key of a segment, and its check.
func (h *sealHeader) derive(key []byte) (segmentKey, check []byte, err error) {
	both, err := hkdf.Key(sha256.New, key, h.salt[:], sealInfo, 32+checkBytes)
	if err != nil {
		return nil, nil, err
	}
	return both[:32], both[32:], nil
}

// newSeal fills the seal of a new segment. Without a key it stays empty.
func newSeal(key []byte) (h sealHeader, err error) {
	if key == nil {
		return h, nil
	}
	h.sealed = true
	rand.Read(h.salt[:]) // never fails
	_, check, err := h.derive(key)
	copy(h.check[:], check)
	return h, err
}

// fits returns ErrKey if a key does not open the segment. With a key, what is not sealed is refused: anybody could have written it.
func (h *sealHeader) fits(key []byte) error {
	switch {
	case !h.sealed && key == nil:
		return nil
	case !h.sealed:
		return fmt.Errorf("%w: it is not sealed", ErrKey)
	case key == nil:
		return fmt.Errorf("%w: the spool has none", ErrKey)
	}
	_, check, err := h.derive(key)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(check, h.check[:]) != 1 {
		return ErrKey
	}
	return nil
}

// sealer seals and opens the blocks of one segment. A nil sealer leaves them as they are.
type sealer struct {
	aead   cipher.AEAD
	digest [sha256.Size]byte // of the segment's header
}

// newSealer returns the sealer of a segment that the key opens, nil if it is not sealed.
func newSealer(h *sealHeader, encoded, key []byte) (*sealer, error) {
	if !h.sealed {
		return nil, nil //nolint:nilnil // a nil sealer leaves blocks as they are
	}
	segmentKey, _, err := h.derive(key)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(segmentKey)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &sealer{aead: aead, digest: sha256.Sum256(encoded)}, err
}

// nonce is the number of the block in its segment, which has a key of its own, so no nonce is used twice.
func nonce(block uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 4, 12), block)
}

// bind returns the associated data: the segment with its stream and metadata, and the block's own header.
func (s *sealer) bind(blockHeader []byte) []byte {
	return append(s.digest[:len(s.digest):len(s.digest)], blockHeader[:blockSealedFrom]...)
}

func (s *sealer) seal(data []byte, block uint64, blockHeader []byte) []byte {
	return s.aead.Seal(data[:0], nonce(block), data, s.bind(blockHeader))
}

func (s *sealer) open(data []byte, block uint64, blockHeader []byte) ([]byte, error) {
	plain, err := s.aead.Open(data[:0], nonce(block), data, s.bind(blockHeader))
	if err != nil {
		return nil, fmt.Errorf("%w block: it is not what was sealed", errDamaged)
	}
	return plain, nil
}
