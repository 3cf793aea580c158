package sink

import (
	"context"
	"errors"
	"time"
)

// ErrEnough is returned by the function that a [Reader] calls: nothing more of that
// part is wanted. It is no error of the reader's.
var ErrEnough = errors.New("enough was read")

// Reader reads what stands on a bus, from anywhere to anywhere. It joins no group and
// leaves nothing behind. One goroutine uses it.
type Reader interface {
	// Parts are those that order holds within, as they were when the reader was
	// opened: Kafka's partitions, or a stream.
	Parts() []Part

	// At returns, for each part, the offset of the first message that the bus took at t
	// or later; the part's End where there is none.
	At(ctx context.Context, t time.Time) ([]int64, error)

	// Read calls fn for the messages within the ranges, one per part, in the order of
	// each part. m and what it holds are the reader's after fn returns. collections
	// says that only collection events are wanted: a reader that can leave the others
	// out does. An error of fn ends the reading and is returned, but [ErrEnough], which
	// ends that of the part.
	Read(ctx context.Context, ranges []Range, collections bool, fn func(m *Message) error) error

	// Close ends the connections.
	Close()
}

// Part is one sequence of messages.
type Part struct {
	Name  string // "k8s.prod.core.pods/3", or a stream's
	Log   string // the topic or the stream
	First int64  // offset of the first message that is kept
	End   int64  // offset behind the last
	// Latest says that the log keeps only the last messages of each key or subject: a compacted topic, or a
	// stream with a limit of messages per subject.
	Latest bool
}

// Range is what is read of a part: from From up to, but not including, To. Where From
// is not less than To nothing is.
type Range struct{ From, To int64 }

// Message is a message as a [Reader] finds it.
type Message struct {
	Part    int // index among the parts
	Offset  int64
	Headers []Header
	Value   []byte // nil: a tombstone
	// Foreign says that the sink did not write the message, or not there. It is false where the bus does not show that.
	Foreign bool
}

// Header is one of a message's headers, by its name on the bus.
type Header struct {
	Name  string
	Value []byte
}
