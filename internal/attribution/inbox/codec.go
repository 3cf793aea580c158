package inbox

import (
	"encoding/json"
	"fmt"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

// form is that of the metadata of chains and of the frames.
const form = 2

// The first byte of a frame. JSON of an entry follows. The spool packs frames, so names of members cost little.
const (
	frameMore   = iota + 2 // frames of the same call follow
	frameLast              // the last frame of a call
	frameOffset            // the same, and the entry has an offset
)

// entry is the content of a frame.
type entry struct {
	Record *audit.Record   `json:"record,omitzero"` // nil: only an offset
	Input  int             `json:"input,omitzero"`  // of Offset
	Offset json.RawMessage `json:"offset,omitzero"` // of the input behind the record and those before it; nil: none
}

// newCall encodes what a call adds.
func newCall(records []audit.Record, input int, offset json.RawMessage) (call, error) {
	entries := make([]entry, len(records), len(records)+1)
	for i := range records {
		entries[i].Record = &records[i]
	}
	if len(entries) == 0 && offset != nil {
		entries = entries[:1]
	}
	c := call{make([][]byte, len(entries)), input, offset}
	for i := range entries {
		kind := byte(frameMore)
		if i == len(entries)-1 {
			kind = frameLast
			if offset != nil {
				kind, entries[i].Input, entries[i].Offset = frameOffset, input, offset
			}
		}
		text, err := json.Marshal(&entries[i])
		if err != nil {
			return c, fmt.Errorf("encode audit record: %w", err)
		}
		c.frames[i] = append([]byte{kind}, text...)
	}
	return c, nil
}

func decode(frame []byte) (e entry, err error) {
	if len(frame) == 0 || frame[0] < frameMore || frame[0] > frameOffset {
		return e, errNoRecord
	}
	if err := json.Unmarshal(frame[1:], &e); err != nil {
		return e, fmt.Errorf("%w: %w", errNoRecord, err)
	}
	return e, nil
}
