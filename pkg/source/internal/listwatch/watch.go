package listwatch

import (
	"fmt"
	"time"
)

const (
	// AtOnce is the time within which a watch without an event may show that the server has lost the history.
	AtOnce = 2 * time.Second / EmptyCloses
	// EmptyCloses is how many of them in a row let each next watch wait: a gateway may answer for a server that restarts.
	EmptyCloses = 3
	// EmptyFor is how long they go on, while probes succeed, until the history counts as lost.
	EmptyFor = 10 * time.Second
	// QuickWatch is the time within which a watch that did not move the position makes the next one wait.
	QuickWatch = 2 * time.Second
	// MaxFailures is how many watches from one resourceVersion may end with an internal error, although a probe before each
	// of them succeeded. Then the history counts as lost: etcd has compacted the previous value of an event.
	MaxFailures = 5
	// SoundWatch is the minimum duration of a watch after which retries begin with the shortest pause again.
	SoundWatch = time.Minute
	// MinWatch is the minimum timeout in the request; the maximum is twice as long.
	MinWatch = 5 * time.Minute
	// GraceWatch is how much longer than its timeout a watch may last before it counts as dead.
	GraceWatch = 30 * time.Second
	// MaxBlocked is how long a watch stays open while it is not read. The server would close it soon, and until then it uses
	// buffers here.
	MaxBlocked = 10 * time.Second
)

// NoHeadway returns the error for a watch that ended without moving the position. The next watch waits, because it would
// receive the same frames again.
func NoHeadway(frames int, rv string) error {
	return fmt.Errorf("a watch from resourceVersion %s ended at once, after %d frames that lead no further", rv, frames)
}

// EmptyWatches are the consecutive watches that ended at once, without an event.
type EmptyWatches struct {
	n     int
	since time.Time // begin of the first one, or of the last one with a failed probe
}

// Ended judges such a watch from the resourceVersion rv. doubt is the error of the probe before it. elsewhere: its connection may have reached
// another server than before. The first match applies:
//
//	fewer than EmptyCloses, not elsewhere                         nil: another watch follows at once
//	fewer than EmptyCloses, or for less than EmptyFor, or doubt   an error: another watch follows after a pause and a probe
//	otherwise                                                     ErrExpired
func (e *EmptyWatches) Ended(rv string, began time.Time, doubt error, elsewhere bool) error {
	if e.n == 0 || doubt != nil {
		e.since = began
	}
	e.n++
	switch {
	case e.n < EmptyCloses && !elsewhere:
		return nil
	case e.n < EmptyCloses || doubt != nil || time.Since(e.since) < EmptyFor:
		return fmt.Errorf("%d watches from resourceVersion %s ended at once, without an event", e.n, rv)
	}
	return fmt.Errorf("resourceVersion %s is %w: %d watches from it ended at once", rv, ErrExpired, e.n)
}

// Resumable reports whether a watch can resume from a resourceVersion. A watch from 0 begins with the present
// objects, as without a resourceVersion, and does not report earlier deletions.
func Resumable(rv string) bool { return rv != "" && rv != "0" }
