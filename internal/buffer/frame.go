package buffer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// Frame is a signal, and when it was received.
type Frame struct {
	source.Signal
	At time.Time
}

// Flags of an encoded frame.
const (
	newEpoch = 1 << iota
	left
	leftUnknown
	hasObject
)

var errFrame = errors.New("not a frame of the buffer")

// append encodes a frame: the kind, flags, the time in Unix nanoseconds, strings, and then the object's JSON.
func (f *Frame) append(b []byte) []byte {
	flags := byte(0)
	if f.NewEpoch {
		flags |= newEpoch
	}
	if f.Left {
		flags |= left
	}
	if f.LeftUnknown {
		flags |= leftUnknown
	}
	if f.Object != nil {
		flags |= hasObject
	}
	b = append(b, byte(f.Kind), flags)
	b = binary.BigEndian.AppendUint64(b, uint64(f.At.UnixNano()))
	for _, s := range []string{f.RV, f.Resume, string(f.Reason), f.Detail, f.Owner.CRD, f.Owner.Namespace} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	if f.Object != nil {
		b = append(binary.AppendUvarint(b, uint64(f.Object.CutFrom)), f.Object.Raw...)
	}
	return b
}

// Decode reads a frame as the spool has it. The object has memory of its own.
func Decode(b []byte) (f Frame, err error) {
	if len(b) < 10 {
		return f, errFrame
	}
	flags := b[1]
	f.Kind, f.NewEpoch, f.Left, f.LeftUnknown = source.SignalKind(b[0]), flags&newEpoch != 0, flags&left != 0, flags&leftUnknown != 0
	f.At = time.Unix(0, int64(binary.BigEndian.Uint64(b[2:])))
	b = b[10:]
	var reason string
	for _, s := range []*string{&f.RV, &f.Resume, &reason, &f.Detail, &f.Owner.CRD, &f.Owner.Namespace} {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return f, errFrame
		}
		*s, b = string(b[size:size+int(n)]), b[size+int(n):]
	}
	f.Reason = event.Reason(reason)
	if flags&hasObject == 0 {
		return f, nil
	}
	cut, size := binary.Uvarint(b)
	if size <= 0 {
		return f, errFrame
	}
	o, err := source.ParseObject(append([]byte(nil), b[size:]...))
	if err != nil {
		return f, fmt.Errorf("%w: %w", errFrame, err)
	}
	o.CutFrom = int(cut)
	f.Object = &o
	return f, nil
}

// after returns the resourceVersion from which a watch may start after a frame; "" in the middle of a list.
func (f *Frame) after() string {
	if f.Kind == source.ListEnded {
		return f.RV
	}
	return f.Resume
}

// version returns the resourceVersion of a frame outside of a list: a watch that begins at it, or later, does not send the frame. It
// returns "" for frames of a list, except for its end.
func (f *Frame) version() string {
	switch {
	case f.Kind == source.Progress || f.Kind == source.ListEnded:
		return f.RV
	case f.Resume != "" && f.Object != nil:
		return f.Object.ResourceVersion
	}
	return ""
}

// latest returns the latest resourceVersion that a frame shows to exist; "": the frame shows none, or an earlier one in a list.
func (f *Frame) latest() string {
	if v := f.version(); v != "" || f.Object == nil {
		return v
	}
	return f.Object.ResourceVersion
}
