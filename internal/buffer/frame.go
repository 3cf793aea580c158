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

	objectVersion string // of the object, in a frame that was read without it
}

// Flags of an encoded frame.
const (
	newEpoch = 1 << iota
	left
	leftUnknown
	hasObject
)

var errFrame = errors.New("not a frame of the buffer")

// append encodes a frame: the kind, flags, the time in Unix nanoseconds, strings, of which the last one is the object's resourceVersion, and
// then the object's JSON.
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
	for _, s := range []string{f.RV, f.Resume, string(f.Reason), f.Detail, f.Owner.CRD, f.Owner.Namespace, f.ofObject()} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	if f.Object != nil {
		b = append(binary.AppendUvarint(b, uint64(f.Object.CutFrom)), f.Object.Raw...)
	}
	return b
}

// Decode reads a frame as the spool has it. The object has memory of its own.
func Decode(b []byte) (Frame, error) {
	f, object, err := decodeHead(b)
	if err != nil || object == nil {
		return f, err
	}
	cut, size := binary.Uvarint(object)
	if size <= 0 {
		return f, errFrame
	}
	o, err := source.ParseObject(append([]byte(nil), object[size:]...))
	if err != nil {
		return f, fmt.Errorf("%w: %w", errFrame, err)
	}
	o.CutFrom = int(cut)
	f.Object, f.objectVersion = &o, ""
	return f, nil
}

// decodeHead reads a frame without its object, which is what follows; nil: it has none.
func decodeHead(b []byte) (f Frame, object []byte, err error) {
	if len(b) < 10 {
		return f, nil, errFrame
	}
	flags := b[1]
	f.Kind, f.NewEpoch, f.Left, f.LeftUnknown = source.SignalKind(b[0]), flags&newEpoch != 0, flags&left != 0, flags&leftUnknown != 0
	f.At = time.Unix(0, int64(binary.BigEndian.Uint64(b[2:])))
	b = b[10:]
	var reason string
	for _, s := range []*string{&f.RV, &f.Resume, &reason, &f.Detail, &f.Owner.CRD, &f.Owner.Namespace, &f.objectVersion} {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return f, nil, errFrame
		}
		*s, b = string(b[size:size+int(n)]), b[size+int(n):]
	}
	f.Reason = event.Reason(reason)
	if flags&hasObject == 0 {
		return f, nil, nil
	}
	return f, b, nil
}

// ofObject returns the resourceVersion of the frame's object; "" without one.
func (f *Frame) ofObject() string {
	if f.Object == nil {
		return f.objectVersion
	}
	return f.Object.ResourceVersion
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
	case f.Resume != "":
		return f.ofObject()
	}
	return ""
}

// latest returns the latest resourceVersion that a frame shows to exist; "": the frame shows none, or an earlier one in a list.
func (f *Frame) latest() string {
	if v := f.version(); v != "" {
		return v
	}
	return f.ofObject()
}
