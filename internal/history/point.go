package history

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Point is what a state is asked for: a time, or a resourceVersion.
type Point struct {
	Time time.Time
	// RV is a resourceVersion in an epoch of the cluster; 0: Time counts.
	RV    uint64
	Epoch uint64 // 0: the bus has one only
}

// ParsePoint reads a time (RFC 3339), a resourceVersion, or a resourceVersion with its epoch, such as
// "e2:12345".
func ParsePoint(s string) (Point, error) {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return Point{Time: t}, nil
	}
	p, rv := Point{}, s
	if epoch, after, found := strings.Cut(s, ":"); found && strings.HasPrefix(epoch, "e") {
		n, err := strconv.ParseUint(epoch[1:], 10, 64)
		if err == nil && n > 0 {
			p.Epoch, rv = n, after
		}
	}
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil || n == 0 {
		return p, fmt.Errorf("%q is neither a time like 2026-03-14T09:26:00Z, nor a duration like 10m, nor a resourceVersion", s)
	}
	p.RV = n
	return p, nil
}

// String is the point as it was given.
func (p Point) String() string {
	switch {
	case p.isTime():
		return p.Time.UTC().Format(time.RFC3339Nano)
	case p.Epoch == 0:
		return "resourceVersion " + strconv.FormatUint(p.RV, 10)
	}
	return fmt.Sprintf("resourceVersion %d of epoch %d", p.RV, p.Epoch)
}

func (p Point) isTime() bool { return p.RV == 0 }

// position is where a resourceVersion stands. Without an epoch it is of the first.
func (p Point) position() position { return position{max(p.Epoch, 1), p.RV} }

// holds reports whether an event had happened by then, as far as the event alone says. A gap begins
// behind the resourceVersion that it has.
func (p Point) holds(h *head) (bool, error) {
	if p.isTime() {
		return !h.time.After(p.Time), nil
	}
	at := h.at()
	if h.epoch != p.position().epoch || at == "" {
		return h.epoch <= p.position().epoch, nil
	}
	n, err := strconv.ParseUint(at, 10, 64)
	if err != nil {
		return false, fmt.Errorf("resourceVersion %q of %s cannot be compared: ask for a time", at, h.text[collection])
	}
	if h.typ == event.Gap {
		return n < p.RV, nil
	}
	return n <= p.RV, nil
}

// position is a resourceVersion in one of the cluster's histories. The zero value is before all.
type position struct{ epoch, version uint64 }

func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.epoch, q.epoch), cmp.Compare(p.version, q.version))
}

// position is where an event stands; ok if that is known.
func (h *head) position() (p position, ok bool) {
	n, err := strconv.ParseUint(h.at(), 10, 64)
	return position{h.epoch, n}, err == nil
}

// tailMessages are read of each part's end to find the newest resourceVersion there.
const tailMessages = 1024

// UnknownPointError is returned for a resourceVersion that is newer than everything on
// the bus, and for an epoch of which the bus has no event.
type UnknownPointError struct {
	Point Point
	Holds string // what the bus has instead
}

func (e *UnknownPointError) Error() string {
	return fmt.Sprintf("%s: %s is not on the bus, which holds %s: name one of these, or a time", ErrNotCovered, e.Point, e.Holds)
}

// Unwrap makes it an [ErrNotCovered].
func (e *UnknownPointError) Unwrap() error { return ErrNotCovered }

// known returns an [UnknownPointError] unless the bus has something as new as the point.
// l has read what the answer rests on; if that is older, the ends of all topics are read.
func (q *Query) known(ctx context.Context, l *log) error {
	if l.reaches(q.At) || len(l.newest) == 0 {
		return nil
	}
	all := l
	if q.Whole != nil && len(q.Resources) > 0 {
		r, err := q.Whole(ctx)
		if err != nil {
			return err
		}
		defer r.Close()
		all = newLog(r, q.Cluster, q.Progress, nil)
		all.uid = l.uid
		maps.Copy(all.newest, l.newest)
	}
	var ranges []sink.Range
	for _, p := range all.Parts() {
		one := sink.Range{From: max(p.First, p.End-tailMessages), To: p.End}
		if slices.Max(slices.Collect(maps.Keys(l.newest))) > max(q.At.Epoch, 1) { // the epoch may have ended anywhere
			one.From = p.First
		}
		ranges = append(ranges, one)
	}
	all.begin("looking for the newest resourceVersion", ranges)
	if err := all.each(ctx, ranges, false, func(*sink.Message, *head) error { return nil }); err != nil {
		return err
	}
	if all.reaches(q.At) {
		return nil
	}
	return &UnknownPointError{q.At, all.holds()}
}

// reaches reports whether something as new as a point was read, in its epoch.
func (l *log) reaches(p Point) bool {
	newest, read := l.newest[p.position().epoch]
	return p.isTime() || read && p.RV <= newest
}

// holds says in words what was read.
func (l *log) holds() string {
	var all []string
	for _, epoch := range slices.Sorted(maps.Keys(l.newest)) {
		all = append(all, fmt.Sprintf("epoch %d up to resourceVersion %d", epoch, l.newest[epoch]))
	}
	return strings.Join(all, " and ")
}
