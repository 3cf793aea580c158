package mark

import (
	"testing"
	"time"
)

func marked(seq, object uint64, at time.Time) []byte {
	b := []byte(`{"a":"` + Blank + `"}`)
	Put(b[6:], seq, object, at)
	return b
}

// The benchmark's results about a bridge depend on this tracker.
func TestTracker(t *testing.T) {
	at := time.UnixMicro(1_800_000_000_000_000)
	var tr Tracker
	for _, seq := range []uint64{0, 1, 3, 2, 3, 9} { // 2 comes after 3, 3 comes twice, and 4 to 8 never come
		m, _ := Find(marked(seq, 7, at))
		if !m.Found || m.Seq != seq || m.Object != 7 || !m.Sent.Equal(at) {
			t.Fatalf("found %+v, want %d of object 7 at %s", m, seq, at)
		}
		tr.Record(m, 10, at.Add(2*time.Millisecond))
	}
	m, rest := Find(append(marked(5, 8, at), "more"...))
	if string(rest) != `"}more` {
		t.Errorf("%q is behind the mark", rest)
	}
	tr.Record(m, 10, at.Add(5*time.Millisecond)) // a record of another object is not out of order
	s := tr.Stats(true)
	if s.Unique != 6 || s.Repeated != 1 || s.OutOfOrder != 1 || s.P50 != 2*time.Millisecond || s.Bytes != 70 {
		t.Errorf("got %+v", s)
	}
	if m, _ := Find([]byte("~kb~ no mark ~kb~")); m.Found {
		t.Errorf("found %+v where there is none", m)
	}
}
