package buffer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	listVersion = 1
	// maxDecoded bounds what a list may decompress to.
	maxDecoded = 256 << 20
)

// ErrList is wrapped by the errors of [DecodeList].
var ErrList = errors.New("the list of recordings cannot be used")

// List is what the leader lets standbys know of its recordings.
type List struct {
	Version int
	Holder  string // the identity of the leader in the Lease
	Number  uint64 // that of a later list is higher, also if another leader wrote it
	Sealed  bool   // the leader's buffer is encrypted: values that are hidden on the bus may be in it
	// Recordings are in the order of [Buffer.List].
	Recordings []Listed
}

// Encode returns the list, compressed, in at most limit bytes. It leaves out the last recordings if there is no room for them, and
// returns their number.
func (l List) Encode(limit int) (data []byte, left int, err error) {
	l.Version = listVersion
	all := len(l.Recordings)
	for {
		if data, err = l.compressed(); err != nil {
			return nil, 0, err
		}
		n := len(l.Recordings)
		if len(data) <= limit || n == 0 {
			return data, all - n, nil
		}
		l.Recordings = l.Recordings[:min(n-1, n*limit/len(data))]
	}
}

func (l *List) compressed() ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if err := json.NewEncoder(w).Encode(l); err != nil {
		return nil, fmt.Errorf("encode the list of recordings: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress the list of recordings: %w", err)
	}
	return out.Bytes(), nil
}

// DecodeList reverses [List.Encode].
func DecodeList(data []byte) (l List, err error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return l, fmt.Errorf("%w: decompress: %w", ErrList, err)
	}
	if err := json.NewDecoder(io.LimitReader(r, maxDecoded)).Decode(&l); err != nil {
		return List{}, fmt.Errorf("%w: decode: %w", ErrList, err)
	}
	if l.Version != listVersion {
		return List{}, fmt.Errorf("%w: it has version %d, want %d: another version of the bridge wrote it", ErrList, l.Version, listVersion)
	}
	return l, nil
}
