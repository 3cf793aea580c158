package nats

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// messageRequest is the body of a request for one message: the first one on a subject at or behind a sequence or a time.
type messageRequest struct {
	Seq       uint64     `json:"seq,omitempty"`
	StartTime *time.Time `json:"start_time,omitempty"`
	Subject   string     `json:"next_by_subj"`
}

// singleMessage is a message that was read without a consumer. It cannot be acknowledged.
type singleMessage struct {
	jetstream.Msg `json:"-"`

	Name     string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Header   []byte    `json:"hdrs"`
	Body     []byte    `json:"data"`
	Time     time.Time `json:"time"`

	headers nats.Header
}

func (m *singleMessage) Subject() string      { return m.Name }
func (m *singleMessage) Data() []byte         { return m.Body }
func (m *singleMessage) Headers() nats.Header { return m.headers }

func (m *singleMessage) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: m.Sequence}, Timestamp: m.Time}, nil
}

// readSingly is readOnce with a request per message. A reader does not depend on a consumer: other clients may have
// created as many consumers as the server allows.
func (l *link) readSingly(ctx context.Context, r reading, fn func(m jetstream.Msg, seq uint64) error) (seen uint64, err error) {
	l.log.Warn("stream has as many consumers as its server allows, reading messages one by one", zap.String("stream", l.name),
		zap.String("advice", "delete consumers that nobody uses (nats consumer report, nats consumer rm); a restart of an embedded server deletes all"))
	for r.last == 0 || seen < r.last {
		m, err := l.messageOnLeader(ctx, r)
		if m == nil {
			return seen, err
		}
		if len(m.Header) > 0 {
			if m.headers, err = nats.DecodeHeadersMsg(m.Header); err != nil {
				return seen, l.explain("read a message of", err)
			}
		}
		if err := fn(m, m.Sequence); err != nil {
			return seen, err
		}
		seen = m.Sequence
		r.from(seen + 1)
	}
	return seen, nil
}
