package spool

import (
	"errors"
	"fmt"
)

var (
	// ErrLocked is returned by Open when another Spool has the directory open, in this process or another one.
	ErrLocked = errors.New("another process or spool uses the directory")
	// ErrUnusable is returned by Open when the file system fails to read or sync what the directory has.
	ErrUnusable = errors.New("the disk fails")
	// ErrFull is returned by Append when the frame could exceed Options.MaxBytes. The frame is not in the stream, and the
	// stream takes smaller frames, or more after a Trim.
	ErrFull = errors.New("spool is full")
	// ErrTooLarge is returned by Append for a frame of more than MaxFrameBytes, and by Begin for more than MaxMetaBytes.
	ErrTooLarge = errors.New("too large")
	// ErrNoChain is returned by Append for a stream without a chain: call Begin first.
	ErrNoChain = errors.New("stream has no chain")
	// ErrFailed is returned when a write failed, and from then on until Begin. Frames since the last Flush with sync may be
	// lost. The error of the file system is in the chain of errors.
	ErrFailed = errors.New("stream failed")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("spool is closed")
	// ErrTrimmed is returned by a reader for a frame below the first frame of the stream.
	ErrTrimmed = errors.New("frame was trimmed")
	// ErrBroken matches every *BrokenError.
	ErrBroken = errors.New("chain is broken")
	// ErrKey is the cause of a *BrokenError where a segment was sealed with another key than the spool's, or only one of both has a key.
	ErrKey = errors.New("segment is not sealed with the key of the spool")
)

// BrokenError is returned where frames are missing between others: a segment is damaged, truncated or absent, or a chain
// began at a higher number. errors.Is(err, ErrBroken) finds it.
type BrokenError struct {
	Stream string
	Frame  uint64 // the first frame that cannot be read
	Next   uint64 // the first frame behind it of a segment that looks usable, 0 if there is none
	File   string // the segment where the frames before it end
	Offset int64  // where in File, in bytes
	Err    error  // the damage, nil where the file ends as if it were whole
}

func (e *BrokenError) Error() string {
	text := fmt.Sprintf("stream %q: frame %d cannot be read: %s, offset %d", e.Stream, e.Frame, e.File, e.Offset)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Next != 0 {
		text += fmt.Sprintf(": the next readable frame is %d", e.Next)
	}
	return text
}

// Is makes errors.Is(err, ErrBroken) true.
func (e *BrokenError) Is(target error) bool { return target == ErrBroken }

func (e *BrokenError) Unwrap() error { return e.Err }
