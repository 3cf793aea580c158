package busreader

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// lostError says that a part does not have the last message that was read of it.
type lostError struct {
	part   sink.Part
	last   int64 // its offset
	proved bool  // the part has another message there, or behind it
}

func (e *lostError) Error() string {
	return fmt.Sprintf("%s does not have message %d any more, up to which it was read", e.part.Name, e.last)
}

// resumedReader is a reader that goes on behind the last message that was read only if the bus still has it. A bus can
// lose its last messages, for example in a power failure, and give their offsets to others. The ends of parts do not
// show that: they may have grown again, or come from a server without a leader. So a continued range is read from the
// last message on, also one that ends before it begins. The first time, all parts are read that way.
type resumedReader struct {
	sink.Reader
	offset  func(part string) (mirror.Offset, bool)
	read    []mirror.Message // by part: the last message that was read
	checked bool             // the first call of Read has succeeded
}

// Read implements [sink.Reader]. It returns a lostError if a part does not have the last message that was read of it.
func (c *resumedReader) Read(ctx context.Context, ranges []sink.Range, collections bool, fn func(*sink.Message) error) error {
	parts := c.Parts()
	ranges, expected := slices.Clone(ranges), make([]bool, len(parts))
	c.read = make([]mirror.Message, len(parts))
	for i, p := range parts {
		r := &ranges[i]
		o, _ := c.offset(p.Name)
		c.read[i] = o.Last
		switch {
		case !r.Continued, r.From == r.To && c.checked:
		case o.Last == (mirror.Message{}):
			expected[i] = r.From > r.To
		case o.Last.Offset >= p.First: // otherwise retention has removed it
			expected[i] = true
			r.From, r.To = o.Last.Offset, max(r.To, o.Last.Offset+1)
		}
	}
	err := c.Reader.Read(ctx, ranges, collections, func(m *sink.Message) error {
		now := mirror.Message{Offset: m.Offset, Digest: digest(m)}
		if last := c.read[m.Part]; expected[m.Part] {
			switch {
			case m.Offset < last.Offset: // a replica that lags has begun before it
			case now != last:
				return &lostError{parts[m.Part], last.Offset, true}
			default:
				expected[m.Part] = false
			}
			return nil
		}
		c.read[m.Part] = now
		return fn(m)
	})
	if i := slices.Index(expected, true); err == nil && i >= 0 {
		return &lostError{parts[i], c.read[i].Offset, false}
	}
	c.checked = err == nil
	return err
}

// digest returns a number that distinguishes a message from others. Headers have no order on some buses.
func digest(m *sink.Message) uint64 {
	var time [8]byte
	binary.LittleEndian.PutUint64(time[:], uint64(m.Time.UnixNano()))
	d := xxhash.New()
	_, _ = d.Write(time[:])
	_, _ = d.Write(m.Value)
	sum := d.Sum64()
	for _, h := range m.Headers {
		d.Reset()
		_, _ = d.WriteString(h.Name)
		_, _ = d.Write([]byte{0})
		_, _ = d.Write(h.Value)
		sum += d.Sum64()
	}
	return sum
}
