package join

import (
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
type order struct {
	read      Marks // up to where records were read
	lost      loss
	resources map[Resource]*counter
}

// loss says that records may be missing up to marks.
type loss struct {
	marks Marks
	at    time.Time // when they were missing last
}

func (l *loss) add(marks Marks, now time.Time) {
	for input, number := range marks {
		l.marks.raise(input, number)
	}
	l.at = now
}

// over reports whether a floor is behind these records, and behind all requests that were open then.
func (l *loss) over(f *floor, maxOpen time.Duration) bool {
	return f.marks.reach(l.marks) && f.at.Sub(l.at) >= maxOpen
}

// counter is what is known about the resourceVersions of a resource. Each resource may have an etcd of its own (--etcd-servers-overrides of the API
// server), so those of two resources do not compare.
//
//	state     records                                       next
//	missing   may be missing up to a loss                   trusted, when a floor is behind the losses
//	trusted   none is missing for a change that is later    missing, when records are lost
//	          than since
//
// The zero value is missing.
type counter struct {
	used      bool // see [Join.Use]
	missing   loss // of records of this resource: of the time before it was used, and those that there was no room for
	trusted   bool
	since     string
	floors    []*floor
	passed    *floor    // of the last call of [Join.Passed]
	passing   bool      // Passed was called since the last Settle
	passedAt  time.Time // of the last Settle with passing, or of the first one
	forgotten string    // the requests of changes up to this version may be forgotten
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
	o.lost.add(marks, now)
	for _, c := range o.resources {
		c.trusted = false
	}
}

// loseOf says that records of one resource are missing among those that were read. Requests are looked at for changes of their own resource only, so no
// other one needs them.
func (o *order) loseOf(r Resource, now time.Time) {
	c := o.counter(r)
	c.missing.add(o.read, now)
	c.trusted = false
}

// restart forgets all but which resources are used: records are read from marks on.
func (o *order) restart(marks Marks, now time.Time) {
	before := o.resources
	*o = order{}
	for r, c := range before {
		o.counter(r).used = c.used
	}
	o.lose(marks, now)
}

// stuck returns the resources that have not been passed for a time, such as those of which a collection cannot be listed.
func (o *order) stuck(now time.Time, keep time.Duration) map[Resource]bool {
	all := map[Resource]bool{}
	for r, c := range o.resources {
		if c.passing || c.passedAt.IsZero() {
			c.passing, c.passedAt = false, now
		}
		if now.Sub(c.passedAt) >= keep {
			all[r] = true
		}
	}
	return all
}

// counter returns the counter of a resource, which may be new.
func (o *order) counter(r Resource) *counter {
	if o.resources == nil {
		o.resources = map[Resource]*counter{}
	}
	if o.resources[r] == nil {
		o.resources[r] = &counter{}
	}
	return o.resources[r]
}

// floor adds a floor of a resource, unless a later one was added before. Requests take at most maxOpen.
func (o *order) floor(r Resource, f *floor, maxOpen time.Duration) {
	c := o.counter(r)
	if n := len(c.floors); n > 0 && f.at.Before(c.floors[n-1].at) {
		return
	}
	if !c.trusted && o.lost.over(f, maxOpen) && c.missing.over(f, maxOpen) {
		c.trusted, c.since = true, f.version
	}
	c.floors = append(c.floors, f)
	if len(c.floors) > maxFloors {
		for i := range maxFloors / 2 {
			c.floors[i] = c.floors[2*i+1]
		}
		c.floors = c.floors[:maxFloors/2]
	}
}

// before returns the latest floor before a change to version; nil: none is known. None is if the version is not known, or is no number.
func (o *order) before(r Resource, version string) (latest *floor) {
	c := o.resources[r]
	if c == nil {
		return nil
	}
	for _, f := range c.floors {
		if event.Older(f.version, version) {
			latest = f
		}
	}
	return latest
}

// behind returns the latest floor that is not later than version; nil: none is known.
func (c *counter) behind(version string) (latest *floor) {
	for _, f := range c.floors {
		if !event.Newer(f.version, version) {
			latest = f
		}
	}
	return latest
}

// trusts reports whether no record is missing of the requests that can have made a change. Some may not have been read yet.
func (o *order) trusts(change *Change) bool {
	c := o.resources[change.resource()]
	return c != nil && c.trusted && event.Older(c.since, change.Version)
}

// hasForgotten reports whether requests that can have made a change may be forgotten.
func (o *order) hasForgotten(change *Change) bool {
	c := o.resources[change.resource()]
	return c != nil && c.forgotten != "" && !event.Older(c.forgotten, change.Version)
}
