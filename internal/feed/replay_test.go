package feed

import "testing"

// After the API server has forgotten a committed position, a sink that goes on committing does not begin a recording, and cause a list, at each
// of the positions that it commits.
func TestRecordFrom(t *testing.T) {
	for _, c := range []struct{ forgotten, readThen, committed, want string }{
		{"", "", "10", "10"},
		{"10", "50", "10", "60"},
		{"10", "50", "20", "60"}, // the API server may have forgotten this one, too
		{"10", "50", "50", "50"},
		{"10", "50", "55", "55"},
		{"a", "c", "a", "60"},
		{"a", "c", "b", "b"}, // what is no number does not compare
	} {
		f := &follower{forgotten: c.forgotten, readThen: c.readThen, resume: "60"}
		if got := f.recordFrom(c.committed); got != c.want {
			t.Errorf("committed %s, after %s was forgotten with everything up to %s read: from %s, want %s", c.committed, c.forgotten, c.readThen, got, c.want)
		}
	}
}
