// Package mark counts what was delivered, in whatever format the program under test
// writes. The feed puts a mark into an annotation of every object, and a [Tracker]
// evaluates the marks in the messages that arrive.
package mark

import (
	"bytes"
	"slices"
	"sync"
	"time"
)

// Blank is an empty mark. A mark has a sequence number, the number of an object and
// a Unix time in microseconds (0: unknown), each a decimal number of fixed width.
const Blank = "~kb~0000000000~000000000~0000000000000000~"

const (
	prefix    = "~kb~"
	seqAt     = 4
	objectAt  = 15
	microsAt  = 25
	microsEnd = 41
	sampled   = 1 << 21 // maximum number of latencies that are kept
)

// Put writes a mark into b, which begins with [Blank].
func Put(b []byte, seq, object uint64, at time.Time) {
	PutDigits(b[seqAt:objectAt-1], seq)
	PutDigits(b[objectAt:microsAt-1], object)
	PutDigits(b[microsAt:microsEnd], uint64(at.UnixMicro()))
}

// PutDigits fills b with the decimal digits of v, with leading zeros.
func PutDigits(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + v%10)
		v /= 10
	}
}

func digits(b []byte) (v uint64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + uint64(c-'0')
	}
	return v, true
}

// Mark is the content of a mark. The zero value means that there is no mark.
type Mark struct {
	Seq, Object uint64
	Sent        time.Time
	Found       bool
}

// Find returns the first mark in b, and the bytes after it.
func Find(b []byte) (m Mark, rest []byte) {
	for {
		i := bytes.Index(b, []byte(prefix))
		if i < 0 || len(b)-i < len(Blank) {
			return Mark{}, nil
		}
		b = b[i:]
		seq, ok1 := digits(b[seqAt : objectAt-1])
		object, ok2 := digits(b[objectAt : microsAt-1])
		micros, ok3 := digits(b[microsAt:microsEnd])
		if ok1 && ok2 && ok3 {
			return Mark{Seq: seq, Object: object, Sent: time.UnixMicro(int64(micros)), Found: true}, b[len(Blank):]
		}
		b = b[len(prefix):]
	}
}

// Stats are the statistics of a [Tracker].
type Stats struct {
	Unique     uint64 // distinct sequence numbers
	Repeated   uint64 // records whose sequence number had been seen before
	OutOfOrder uint64 // records that are older than an earlier record of the same object
	Unmarked   uint64 // records without a mark, such as events about a collection
	Synced     uint64 // synced events, which also count as unmarked
	Bytes      uint64 // size of the values of marked records
	First      time.Time
	Last       time.Time // First and Last are times of marked records
	LastSynced time.Time
	P50, P99   time.Duration // of the times from the feed to the tracker, since the latest [Tracker.Reset]
	Committed  uint64        // committed transactions
}

// Tracker counts and checks what arrives. The zero value is ready to use. Its methods
// may be called concurrently.
type Tracker struct {
	mu      sync.Mutex
	seen    []uint64 // one bit for each sequence number
	latest  []uint32 // by object: sequence number + 1
	stats   Stats
	latency []uint32 // microseconds
}

// Record counts a record with this mark and size in bytes, which was acknowledged
// at the time now.
func (t *Tracker) Record(m Mark, size int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stats.First.IsZero() {
		t.stats.First = now
	}
	t.stats.Last = now
	t.stats.Bytes += uint64(size)
	for uint64(len(t.seen))*64 <= m.Seq {
		t.seen = append(t.seen, make([]uint64, max(1024, len(t.seen)))...)
	}
	if bit := uint64(1) << (m.Seq % 64); t.seen[m.Seq/64]&bit != 0 {
		t.stats.Repeated++
	} else {
		t.seen[m.Seq/64] |= bit
		t.stats.Unique++
	}
	for uint64(len(t.latest)) <= m.Object {
		t.latest = append(t.latest, make([]uint32, max(4096, len(t.latest)))...)
	}
	if t.latest[m.Object] > uint32(m.Seq)+1 {
		t.stats.OutOfOrder++
	} else {
		t.latest[m.Object] = uint32(m.Seq) + 1
	}
	if len(t.latency) < sampled && m.Sent.UnixMicro() > 0 {
		t.latency = append(t.latency, uint32(max(now.Sub(m.Sent).Microseconds(), 0)))
	}
}

// Other counts a record that has no mark.
func (t *Tracker) Other(synced bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Unmarked++
	if synced {
		t.stats.Synced++
		t.stats.LastSynced = now
	}
}

// Commit counts a committed transaction.
func (t *Tracker) Commit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Committed++
}

// Reset discards the latencies and the time of the first record.
func (t *Tracker) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latency = t.latency[:0]
	t.stats.First = time.Time{}
}

// Stats returns the statistics. It computes percentiles only on request, because
// they need a sort.
func (t *Tracker) Stats(percentiles bool) Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	if n := len(t.latency); percentiles && n > 0 {
		l := slices.Clone(t.latency)
		slices.Sort(l)
		s.P50 = time.Duration(l[n/2]) * time.Microsecond
		s.P99 = time.Duration(l[n*99/100]) * time.Microsecond
	}
	return s
}
