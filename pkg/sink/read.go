package sink

import (
	"context"
	"errors"
	"time"
)

// ErrEnough is returned by the function that a [Reader] calls, to stop reading that
// part. The reader does not treat it as an error.
var ErrEnough = errors.New("enough was read")

// Reader reads any range of the messages on a bus. It joins no consumer group and
// leaves no state on the bus. One goroutine uses it.
type Reader interface {
	// Parts returns the sequences within which messages are in order, as they were when the reader was
	// opened or refreshed: Kafka's partitions, or a stream.
	Parts() []Part

	// At returns, for each part, the offset of the first message that the bus received at t
	// or later, or the part's End if there is none.
	At(ctx context.Context, t time.Time) ([]int64, error)

	// Read calls fn for the messages within the ranges, one range per part, in the order of
	// each part. fn must not keep m or its content after it returns. With collections,
	// only collection events are wanted, and a reader may leave other events
	// out. An error of fn ends Read and is returned, except for [ErrEnough], which
	// ends only the part. Read returns an error if the bus removed messages of a range before they were read. It may begin later than a range
	// that begins at the part's First and is not Continued. A range may end behind the part's End: what the part does not have there is left out,
	// without an error, once those have answered who know it, such as the part's leader.
	Read(ctx context.Context, ranges []Range, collections bool, fn func(m *Message) error) error

	// Refresh looks up again where the parts begin and end. Parts may be added, and those of a topic that does not exist any more are
	// left out. It returns an error if a topic or stream is another one now.
	Refresh(ctx context.Context) error

	// Close ends the connections.
	Close()
}

// Part is one sequence of messages.
type Part struct {
	Name    string // "k8s.prod.core.pods/3", or a stream's
	Log     string // the topic or the stream
	ID      string // identity of the log: another one after it was deleted and created again; "": not known
	First   int64  // offset of the first message that is kept
	End     int64  // offset after the last message
	Written int64  // offset after everything that was written, committed or not; only if Ordered is set
	// Ordered says that the sink publishes in an order over all parts: if a message could be read before the parts were looked up, all messages
	// of its collection that were published before it are at offsets below Written, in every part.
	Ordered bool
	// Latest says that the log keeps only the last messages of each key or subject: a compacted topic, or a
	// stream with a limit of messages per subject.
	Latest bool
	// LatestErr says why the bus does not show Latest, which is then what the sink's configuration implies; nil: the bus shows it.
	LatestErr error
}

// Range is a range of a part: from From up to, but not including, To. It is empty if From
// is not less than To.
type Range struct {
	From, To int64
	// Continued says that the messages before From were read earlier, so that none may be missing from From on.
	Continued bool
}

// Message is a message that a [Reader] has read.
type Message struct {
	Part    int // index among the parts
	Offset  int64
	Time    time.Time // when it was written, by the clock of the bus or of the sink
	Headers []Header
	Value   []byte // nil: a tombstone
	// Foreign says that the sink did not write the message, or wrote it to another place. It is false if the bus does not show that.
	Foreign bool
}

// Header is one of a message's headers, by its name on the bus.
type Header struct {
	Name  string
	Value []byte
}
