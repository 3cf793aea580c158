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

// Point says for which moment a state is rebuilt: a time, or a resourceVersion.
type Point struct {
	Time time.Time
	// RV is a resourceVersion; 0 means that Time is set.
	RV uint64
	// Epoch is the epoch that RV belongs to; 0 means that the bus has only one epoch.
	Epoch uint64
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

// String returns the point in words, for messages.
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

// position returns the resourceVersion with its epoch. A point without an epoch belongs to the first one.
func (p Point) position() position { return position{max(p.Epoch, 1), p.RV} }

// holds reports whether an event happened at or before the point, judged by the event alone. The resourceVersion of a
// gap is the last one before the gap, so a gap with the point's own resourceVersion comes after the point.
func (p Point) holds(h *head) (bool, error) {
	if p.isTime() {
		return !h.Time.After(p.Time), nil
	}
	at := h.at()
	if h.Epoch != p.position().epoch || at == "" {
		return h.Epoch <= p.position().epoch, nil
	}
	n, err := strconv.ParseUint(at, 10, 64)
	if err != nil {
		return false, fmt.Errorf("resourceVersion %q of %s cannot be compared: ask for a time", at, h.Collection)
	}
	if h.Type == event.Gap {
		return n < p.RV, nil
	}
	return n <= p.RV, nil
}

// position is a resourceVersion with its epoch. The zero value is lower than every other one.
type position struct{ epoch, version uint64 }

func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.epoch, q.epoch), cmp.Compare(p.version, q.version))
}

// position returns the epoch and resourceVersion of an event. ok is false if the event has no numeric resourceVersion.
func (h *head) position() (p position, ok bool) {
	n, err := strconv.ParseUint(h.at(), 10, 64)
	return position{h.Epoch, n}, err == nil
}

// tailMessages is how many messages at the end of each part are read to find the newest resourceVersion.
const tailMessages = 1024

// known returns an error if the bus has no event as new as the point.
// l has read the events that the answer was made of. If all of them are older, known reads the ends of all topics.
func (q *Query) known(ctx context.Context, l *Log) error {
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
		all = NewLog(r, LogOptions{Cluster: q.Cluster, ClusterUID: l.uid, Progress: q.Progress})
		maps.Copy(all.newest, l.newest)
	}
	var ranges []sink.Range
	for _, p := range all.Parts() {
		one := sink.Range{From: max(p.First, p.End-tailMessages), To: p.End}
		if slices.Max(slices.Collect(maps.Keys(l.newest))) > max(q.At.Epoch, 1) { // the point's epoch has ended: its last event may be anywhere
			one.From = p.First
		}
		ranges = append(ranges, one)
	}
	err := all.each(ctx, "looking for the newest resourceVersion", ranges, false, func(*sink.Message, *head) error { return nil })
	if err != nil {
		return err
	}
	if all.reaches(q.At) {
		return nil
	}
	return fmt.Errorf("%w: %s is not on the bus, which holds %s: name one of these, or a time", ErrNotCovered, q.At, all.holds())
}

func (l *Log) reaches(p Point) bool {
	newest, read := l.newest[p.position().epoch]
	return p.isTime() || read && p.RV <= newest
}

func (l *Log) holds() string {
	var all []string
	for _, epoch := range slices.Sorted(maps.Keys(l.newest)) {
		all = append(all, fmt.Sprintf("epoch %d up to resourceVersion %d", epoch, l.newest[epoch]))
	}
	return strings.Join(all, " and ")
}
