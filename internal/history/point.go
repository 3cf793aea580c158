package history

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Point is what "at" means: a time, or a resourceVersion.
type Point struct {
	Time time.Time
	// RV is a resourceVersion in the given epoch of the cluster; "" where Time counts.
	RV    uint64
	Epoch uint64 // 0: the bus holds one only
}

// ParsePoint reads a time (RFC 3339), a resourceVersion, or one with its epoch, as
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
		return p, fmt.Errorf("%q is neither a time like 2026-03-14T09:26:00Z nor a resourceVersion", s)
	}
	p.RV = n
	return p, nil
}

// String is the point as it was given.
func (p Point) String() string {
	switch {
	case p.RV == 0:
		return p.Time.UTC().Format(time.RFC3339Nano)
	case p.Epoch == 0:
		return "resourceVersion " + strconv.FormatUint(p.RV, 10)
	}
	return fmt.Sprintf("resourceVersion %d of epoch %d", p.RV, p.Epoch)
}

// isTime reports whether it is one.
func (p Point) isTime() bool { return p.RV == 0 }

// holds reports whether what h tells had happened by then, as far as the bridge knew.
func (p Point) holds(h *head) (bool, error) {
	if p.isTime() {
		return !h.time.After(p.Time), nil
	}
	if p.Epoch != 0 && h.epoch != p.Epoch {
		return h.epoch < p.Epoch, nil
	}
	if h.rv == "" { // nothing was complete yet
		return true, nil
	}
	rv, err := strconv.ParseUint(h.rv, 10, 64)
	if err != nil {
		return false, fmt.Errorf("resourceVersion %q of %s cannot be compared: ask for a time", h.rv, h.collection)
	}
	return rv <= p.RV, nil
}
