package event

import (
	"strconv"
	"strings"
	"time"
)

// textChunk is the size in bytes of the memory that short strings share.
const textChunk = 16 << 10

// Text makes strings that share memory, which is freed when the last of them is. The
// zero value is ready. It must not be used by two goroutines at a time.
type Text struct {
	chunk  strings.Builder
	time   time.Time // the last argument of ofTime,
	moment string    // and its result
	number uint64    // the last argument of ofNumber,
	digits string    // and its result
}

// Of returns b as a string.
func (t *Text) Of(b []byte) string {
	if t.chunk.Cap()-t.chunk.Len() < len(b) {
		t.chunk = strings.Builder{}
		t.chunk.Grow(max(textChunk, len(b)))
	}
	at := t.chunk.Len()
	t.chunk.Write(b)
	return t.chunk.String()[at:]
}

// ofTime returns t as a string, in [TimeFormat].
func (t *Text) ofTime(at time.Time) string {
	if t.moment == "" || !t.time.Equal(at) {
		var buffer [len(TimeFormat)]byte
		t.time, t.moment = at, t.Of(appendTime(buffer[:0], at))
	}
	return t.moment
}

// ofNumber returns n as a string, in decimal.
func (t *Text) ofNumber(n uint64) string {
	if t.digits == "" || t.number != n {
		var buffer [20]byte
		t.number, t.digits = n, t.Of(strconv.AppendUint(buffer[:0], n, 10))
	}
	return t.digits
}

// appendTime does the same as AppendFormat with [TimeFormat], but does not parse the format at each call.
func appendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(dst, TimeFormat)
	}
	hour, minute, second := t.Clock()
	micro := t.Nanosecond() / 1000
	two := func(n int) { dst = append(dst, byte('0'+n/10), byte('0'+n%10)) }
	part := func(before byte, n int) { dst = append(dst, before, byte('0'+n/10), byte('0'+n%10)) }
	two(year / 100)
	two(year % 100)
	part('-', int(month))
	part('-', day)
	part('T', hour)
	part(':', minute)
	part(':', second)
	part('.', micro/10000)
	two(micro / 100 % 100)
	two(micro % 100)
	return append(dst, 'Z')
}
