package buffer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// ErrEnd is returned by [Use.Next] when the recording has nothing more, now or ever: the sink reads from the API server again.
var ErrEnd = errors.New("the buffer ends here")

// ErrForgotten is returned by [Use.Next] when the recording begins with a list, because the API server no longer has the changes after the
// committed position. The sink has read further, and can begin a recording there. It is also returned when the recording has gone on without the
// position up to which the sink has read, and does not compare with it.
var ErrForgotten = errors.New("the API server has forgotten the committed position, or the sink has read up to a position that is not in the buffer")

// ErrUnreadable is returned by [Use.Next], besides [ErrEnd], and by [Buffer.Find] when the disk could not be read. The same call can be made again.
var ErrUnreadable = errors.New("the disk cannot be read")

// maxMarks bounds how many positions of a use wait for their commit.
const maxMarks = 4096

// Use is how far a sink has come in a recording. It is for one goroutine.
type Use struct {
	recording *Recording
	reader    *spool.Reader
	read      string       // the sink has read up to here; "": frames are no longer compared with it
	ahead     bool         // the sink has read further than it has committed
	passed    bool         // the frame with the version read was there
	done      uint64       // everything before it is committed; guarded by the recording's mu
	marks     []mark       // positions behind done, in order
	unmarked  bool         // a new history has begun: positions behind it do not compare with those before
	every     uint64       // how many frames lie between two marks
	owner     source.Owner // of the last complete list that was read
}

// mark is the position behind a frame.
type mark struct {
	frame    uint64
	position string
	owner    source.Owner // of the last complete list up to there
}

// Next returns the next frame. If there is none yet, it returns io.EOF. It returns an error that wraps [ErrEnd] if there will be none, and
// [ErrUnreadable] if that may change, or [ErrForgotten].
func (u *Use) Next() (Frame, error) {
	for {
		f, err := u.next()
		if err != nil || u.read == "" {
			return f, err
		}
		switch v := f.version(); {
		case v == u.read:
			u.passed = true
		case event.Older(v, u.read):
		case u.ahead && f.Kind == source.ListBegun && f.Reason == event.ReasonExpired:
			return f, ErrForgotten
		case v == "" || u.passed || event.Older(u.read, v):
			u.read = ""
			return f, nil
		case f.Kind == source.Progress: // the API server has passed read: it was in a bookmark of another watch
			return f, ErrForgotten
		}
	}
}

func (u *Use) next() (Frame, error) {
	ended := u.recording.hasEnded() // asked before the frame is read, since the last frames may be flushed in between
	raw, err := u.reader.Next()
	for err == nil && len(raw.Data) == 0 {
		raw, err = u.reader.Next()
	}
	switch {
	case errors.Is(err, io.EOF) && ended != nil:
		return Frame{}, fmt.Errorf("%w: %w", ErrEnd, ended)
	case errors.Is(err, io.EOF):
		return Frame{}, err
	case unreadable(err):
		return Frame{}, fmt.Errorf("%w: %w: %w", ErrEnd, ErrUnreadable, err)
	case err != nil:
		return Frame{}, fmt.Errorf("%w: %w", ErrEnd, err)
	}
	f, err := Decode(raw.Data)
	if err != nil {
		return Frame{}, fmt.Errorf("%w: %w", ErrEnd, err)
	}
	u.unmarked = u.unmarked || f.NewEpoch
	if f.Kind == source.ListEnded {
		u.owner = f.Owner
	}
	u.mark(raw.Number, f.after())
	return f, nil
}

// unreadable reports whether an error of a spool's reader is one of the disk: what it could not read may still be there.
func unreadable(err error) bool {
	return err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, spool.ErrBroken) && !errors.Is(err, spool.ErrTrimmed) && !errors.Is(err, spool.ErrClosed)
}

// mark notes the position behind a frame. Where there are too many, every second one is forgotten.
func (u *Use) mark(frame uint64, position string) {
	u.every = max(u.every, 1)
	if position == "" || u.unmarked || frame%u.every != 0 {
		return
	}
	if n := len(u.marks); n > 0 && u.marks[n-1].position == position { // the first frame with a position is the safe one
		return
	}
	u.marks = append(u.marks, mark{frame, position, u.owner})
	if len(u.marks) < maxMarks {
		return
	}
	u.every *= 2
	for i := range maxMarks / 2 {
		u.marks[i] = u.marks[2*i]
	}
	u.marks = u.marks[:maxMarks/2]
}

// Wait returns nil when Next has something else to return than io.EOF, and an error if ctx ends before.
func (u *Use) Wait(ctx context.Context) error { return u.reader.Wait(ctx) }

// Flush makes everything readable that was received.
func (u *Use) Flush() error { return u.recording.flush() }

// Committed says up to which position of which epoch the sink has committed; "": a restart would begin with a list. What lies before is no
// longer needed.
func (u *Use) Committed(position string, epoch uint64) {
	if position == "" {
		return
	}
	n := 0 // marks up to the position; where positions do not compare, only its own mark says where it is
	for i := range u.marks {
		if at := u.marks[i].position; at == position || event.Older(at, position) {
			n = i + 1
		}
	}
	r := u.recording
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case epoch != r.at.Epoch:
		r.at = Position{Committed: position, Epoch: epoch} // positions of a new history have no marks, so the owner is not known
	case !event.Older(position, r.at.Committed): // recording may have begun at a later one: see ErrForgotten
		r.at.Committed = position
	}
	if n == 0 {
		return
	}
	last := u.marks[n-1]
	u.marks = u.marks[n:]
	u.done = last.frame - 1 // the frame before it stays: it shows that the recording reaches back to the position
	if epoch == r.Epoch {
		r.at.Owner = last.owner
	}
}

// Close says that the sink reads from the API server again.
func (u *Use) Close() error {
	u.recording.leave(u)
	return u.reader.Close()
}

// Suspend says that the sink reads nothing now, and will come again: the recording has to wait for it.
func (u *Use) Suspend() error {
	u.recording.awaits(u)
	return u.reader.Close()
}
