package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	// So many messages or bytes are kept back at most until it is known that the stream removed none before them.
	keptMessages = 500
	keptBytes    = 1 << 20
)

// whole passes messages of a range on. Sequences are missing where messages have other subjects, and where the stream removed messages. Limits
// and purges remove the first messages of a stream. So if the stream begins behind a missing sequence, its message may have been removed before
// it could be read. Messages behind missing sequences are kept back until that is known.
type whole struct {
	*Reader
	fn     func(*sink.Message) error
	next   int64 // the sequence behind the last message that was passed on; 0: none was, and the range may begin later
	kept   []keptMessage
	bytes  int // of the kept messages
	m      sink.Message
	enough bool // fn wants no more
}

type keptMessage struct {
	jetstream.Msg
	seq int64
}

// add passes a message on, now or later.
func (w *whole) add(ctx context.Context, m keptMessage) error {
	if len(w.kept) == 0 && m.seq == w.next {
		return w.pass(m)
	}
	w.kept, w.bytes = append(w.kept, m), w.bytes+len(m.Data())
	if len(w.kept) < keptMessages && w.bytes < keptBytes {
		return nil
	}
	return w.flush(ctx)
}

// flush passes the kept messages on. It returns an error if messages that were missing before them may have been removed.
func (w *whole) flush(ctx context.Context) error {
	now, err := w.link.lookUp(ctx)
	if err != nil {
		return err
	}
	first := int64(now.state.FirstSeq)
	switch {
	case now.created != w.stream.created:
		return w.replaced()
	case w.next > 0 && w.next < first:
		return fmt.Errorf("read stream %q on %s: messages from %d on were removed before they were read: it begins with %d: try again", w.link.name, w.link.conn.address, w.next, first)
	}
	kept := w.kept
	w.kept, w.bytes = nil, 0
	for _, m := range kept {
		if w.next == 0 && m.seq < first { // others between this one and the first one may be missing
			continue
		}
		if err := w.pass(m); err != nil {
			return err
		}
	}
	return nil
}

// pass passes a message on.
func (w *whole) pass(raw keptMessage) error {
	meta, err := raw.Metadata()
	if err != nil {
		return err
	}
	w.next = raw.seq + 1
	headers := raw.Headers()
	w.m.Offset, w.m.Time, w.m.Value, w.m.Headers = raw.seq, meta.Timestamp, raw.Data(), w.m.Headers[:0]
	w.m.Foreign = w.link.config.IsLog() && !w.namesPlace(headers.Get(headerPlace), uint64(raw.seq))
	for name, values := range headers {
		if len(values) > 0 {
			w.m.Headers = append(w.m.Headers, sink.Header{Name: name, Value: []byte(values[0])})
		}
	}
	err = w.fn(&w.m)
	w.enough = errors.Is(err, sink.ErrEnough)
	return err
}
