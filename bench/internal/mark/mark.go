// Package mark says what was delivered, whatever format the program under test
// writes: the feed puts a mark in an annotation of every object, and a [Tracker]
// finds it in what arrives.
package mark

import (
	"bytes"
	"slices"
	"sync"
	"time"
)

// Blank is a mark with nothing in it: sequence number, object and Unix time in
// microseconds (0 is: not known), each a decimal number of fixed width.
const Blank = "~kb~0000000000~000000000~0000000000000000~"

const (
	prefix    = "~kb~"
	seqAt     = 4
	objectAt  = 15
	microsAt  = 25
	microsEnd = 41
	sampled   = 1 << 21 // latencies that are kept
)

// Put writes a mark into b, which begins with [Blank].
func Put(b []byte, seq, object uint64, at time.Time) {
	PutDigits(b[seqAt:objectAt-1], seq)
	PutDigits(b[objectAt:microsAt-1], object)
	PutDigits(b[microsAt:microsEnd], uint64(at.UnixMicro()))
}

// PutDigits fills b with the decimal digits of v, zeros in front.
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

// Mark is what one says. The zero value is a record without one.
type Mark struct {
	Seq, Object uint64
	Sent        time.Time
	Found       bool
}

// Find returns the first mark in b, and what is behind it.
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

// Stats is what a [Tracker] has seen.
type Stats struct {
	Unique     uint64 // distinct sequence numbers
	Repeated   uint64 // that had been seen before
	OutOfOrder uint64 // older than what had been seen of the same object
	Unmarked   uint64 // records that are no object's, such as collection events
	Synced     uint64 // of these, synced events
	Bytes      uint64 // of the values of marked records
	First      time.Time
	Last       time.Time // of marked records
	LastSynced time.Time
	P50, P99   time.Duration // from the feed to here, of the latest [Tracker.Reset] on
	Committed  uint64        // transactions
}

// Tracker checks what arrives. The zero value is ready; all may call it.
type Tracker struct {
	mu      sync.Mutex
	seen    []uint64 // bits
	latest  []uint32 // by object: sequence number + 1
	stats   Stats
	latency []uint32 // microseconds
}

// Record notes that a record with this mark and size in bytes was acknowledged
// now.
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

// Other notes a record that has no mark.
func (t *Tracker) Other(synced bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Unmarked++
	if synced {
		t.stats.Synced++
		t.stats.LastSynced = now
	}
}

// Commit notes a transaction.
func (t *Tracker) Commit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Committed++
}

// Reset forgets the latencies and the time of the first record.
func (t *Tracker) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latency = t.latency[:0]
	t.stats.First = time.Time{}
}

// Stats returns what was seen; the percentiles only if asked for, since they
// take a sort.
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
