package nats

import (
	"cmp"
	"fmt"
	"time"
)

// kept is a message that a stream had at a look-up, and the earliest time at which it may have been stored, by the
// server's clock.
type kept struct {
	seq   uint64
	since time.Time
}

const (
	// clockSkew is how far the clocks of the servers of a stream may differ.
	clockSkew = time.Minute
	// besidePayload is more than what the bytes of a stored message are beside its payload.
	besidePayload = 4 << 10
)

// ownAt returns the last message of this sink, which was found after the look-up s. Its sequence is seq.
func (s *stream) ownAt(seq uint64) kept {
	if seq > s.own.seq {
		return kept{seq, s.at}
	}
	return s.own
}

// loss returns what the stream has lost between the look-ups s and now, and its limits do not explain; "" for nothing.
// alone says that all messages are the sink's: without it, others may delete theirs. largest is the number of bytes of
// the largest message.
func (s *stream) loss(now *stream, alone bool, largest uint64) string {
	if n := now.state.NumDeleted - s.state.NumDeleted; n > 0 && alone {
		return fmt.Sprintf("%d messages were deleted from its middle", n)
	}
	messages := []kept{now.own}
	if alone && s.state.Msgs > 0 {
		messages = append(messages, kept{s.state.FirstSeq, s.state.FirstTime})
	}
	for _, m := range messages {
		if m.seq < now.state.FirstSeq && m.seq > 0 && !s.expires(now, m.since, alone, largest) {
			return fmt.Sprintf("it begins at sequence %d, and its limits do not explain that message %d is gone: it was purged", now.state.FirstSeq, m.seq)
		}
	}
	return ""
}

// expires reports whether limits that were in force at s or now may have removed a message.
func (s *stream) expires(now *stream, since time.Time, alone bool, largest uint64) bool {
	before, after := &s.config, &now.config
	age := lower(before.MaxAge, after.MaxAge)
	bytes, messages := lower(before.MaxBytes, after.MaxBytes), lower(before.MaxMsgs, after.MaxMsgs)
	switch {
	case age > 0 && now.at.Sub(since) > age-clockSkew,
		bytes > 0 && now.state.Bytes+largest > uint64(bytes),
		messages > 0 && now.state.Msgs >= uint64(messages):
		return true
	}
	return !alone && (lower(before.MaxMsgsPerSubject, after.MaxMsgsPerSubject) > 0 || after.AllowMsgTTL || after.AllowRollup)
}

// lower returns the lower one of two limits. Limits of 0 and less are none.
func lower[T cmp.Ordered](a, b T) T {
	var none T
	if a <= none || b > none && b < a {
		return b
	}
	return a
}

// largest returns more than the bytes of the largest message that a stream can have.
func (l *link) largest() uint64 { return uint64(l.conn.nc.MaxPayload()) + besidePayload }
