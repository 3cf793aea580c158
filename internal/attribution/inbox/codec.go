package inbox

import (
	"encoding/json"
	"fmt"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

// format is the first byte of a frame. JSON follows. The spool packs frames together, so names of members cost little.
const format = 1

func encode(r *audit.Record) ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode audit record: %w", err)
	}
	return append([]byte{format}, text...), nil
}

func decode(frame []byte, r *audit.Record) error {
	if len(frame) == 0 || frame[0] != format {
		return errNoRecord
	}
	if err := json.Unmarshal(frame[1:], r); err != nil {
		return fmt.Errorf("%w: %w", errNoRecord, err)
	}
	return nil
}
