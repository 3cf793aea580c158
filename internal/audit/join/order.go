package join

import (
	"slices"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Marks say for each input up to which number of its records something is meant. Numbers begin with 1; a missing one is 0.
type Marks []uint64

func (m Marks) of(input int) uint64 {
	if input < len(m) {
		return m[input]
	}
	return 0
}

// reach reports whether m is as far as other for every input.
func (m Marks) reach(other Marks) bool {
	for input := range other {
		if m.of(input) < other[input] {
			return false
		}
	}
	return true
}

// raise raises the mark of an input.
func (m *Marks) raise(input int, number uint64) {
	for len(*m) <= input {
		*m = append(*m, 0)
	}
	(*m)[input] = max((*m)[input], number)
}

// lower lowers the mark of a place's input to the place.
func (m Marks) lower(p place) {
	if p.number != 0 && p.input < len(m) {
		m[p.input] = min(m[p.input], p.number)
	}
}

// order is what is known about the order of records and changes.
//
//	state     records                                       next
//	missing   may be missing up to the marks missing        trusted, when a floor is behind these marks, and no request is open
//	                                                        any more that was open then
//	trusted   none is missing for a change that is later    missing, when records are lost
//	          than since
//
// The zero value is missing.
type order struct {
	read    Marks // up to where records were read
	missing Marks
	lost    time.Time // when records were missing last
	trusted bool
	since   string
	floors  []*floor
}

// floor says that all changes later than version were made by requests that were not over at marks.
type floor struct {
	marks   Marks
	version string
	at      time.Time
}

// maxFloors bounds the floors. Where there are more, every second one goes: fewer requests are excluded then.
const maxFloors = 64

func (o *order) lose(marks Marks, now time.Time) {
	for input, number := range marks {
		o.missing.raise(input, number)
	}
	o.lost, o.trusted = now, false
}

// floor adds a floor, unless a later one was added before. Requests take at most maxOpen.
func (o *order) floor(marks Marks, version string, at time.Time, maxOpen time.Duration) {
	if n := len(o.floors); n > 0 && at.Before(o.floors[n-1].at) {
		return
	}
	if !o.trusted && marks.reach(o.missing) && at.Sub(o.lost) >= maxOpen {
		o.trusted, o.since = true, version
	}
	o.floors = append(o.floors, &floor{slices.Clone(marks), version, at})
	if len(o.floors) > maxFloors {
		for i := range maxFloors / 2 {
			o.floors[i] = o.floors[2*i+1]
		}
		o.floors = o.floors[:maxFloors/2]
	}
}

// before returns the latest floor before a change to version; nil: none is known. None is if the version is not known, or is no number.
func (o *order) before(version string) (latest *floor) {
	for _, f := range o.floors {
		if event.Older(f.version, version) {
			latest = f
		}
	}
	return latest
}

// behind returns the latest floor that is not later than version; nil: none is known.
func (o *order) behind(version string) (latest *floor) {
	for _, f := range o.floors {
		if !event.Newer(f.version, version) {
			latest = f
		}
	}
	return latest
}

// trusts reports whether no record is missing of the requests that can have made a change. Some may not have been read yet.
func (o *order) trusts(c *Change) bool { return o.trusted && event.Older(o.since, c.Version) }
