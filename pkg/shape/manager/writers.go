package manager

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/kubebridge/kubebridge/internal/base/scan"
	"github.com/kubebridge/kubebridge/pkg/shape/internal/raw"
)

// Names that the API server gives to entries of its own (apimachinery,
// util/managedfields/internal): for the fields of the oldest of more than ten updaters, and for
// fields that existed before the first server-side apply. No client writes under them.
const (
	ancientChanges   = "ancient-changes"
	beforeFirstApply = "before-first-apply"
)

// evidence says how strongly managedFields show that a manager wrote between two states. Stronger evidence is greater.
type evidence int

const (
	nothing evidence = iota
	owns             // it owns a changed place
	gained           // it owns more than before
	moved            // its time advanced, or it is new
)

// writers returns the changes of the managers with the strongest evidence. same is true if
// the two states differ only in their managedFields.
func (f *Finder) writers(before, after []byte, same bool) ([]Change, error) {
	var changes []Change
	best := owns
	former, now := f.entries[:f.former], f.entries[f.former:]
	formerTime := newest(former)
	lastTime := slices.MaxFunc([][]byte{formerTime, newest(now)}, bytes.Compare)
	slices.SortStableFunc(former, func(a, b entry) int { f.others++; return a.compare(&b) })
	for i := range now {
		e := &now[i]
		c := e.change()
		if c.Manager == ancientChanges || c.Manager == beforeFirstApply {
			continue
		}
		prior := priorOf(e, former)
		found, err := f.compare(e, prior, formerTime, same)
		if err == nil {
			f.change, f.certain = &c, found != nothing
			err = f.changed(e, prior, before, after)
		}
		if err != nil {
			return nil, fmt.Errorf("managedFields of %s: %w", c.Manager, err)
		}
		if found == nothing && len(c.Paths) > 0 && (f.former == 0 || bytes.Equal(e.time, lastTime)) {
			found = owns
		}
		if found > best {
			best, changes = found, nil
		}
		if found == best {
			changes = append(changes, c)
		}
	}
	f.change = nil
	if best == moved || f.former == 0 {
		return changes, nil
	}
	return oneManager(changes), nil
}

// priorOf returns the last of the sorted former entries that belongs to e's manager; nil if there is none.
func priorOf(e *entry, former []entry) *entry {
	behind, _ := slices.BinarySearchFunc(former, e, func(f entry, e *entry) int {
		if f.compare(e) <= 0 {
			return -1
		}
		return 1
	})
	if behind == 0 || former[behind-1].compare(e) != 0 {
		return nil
	}
	return &former[behind-1]
}

// compare returns the evidence in a manager's entry e, compared with its former entry prior, which is nil if it had
// none. A writer's time is never older than formerTime, the newest time of the former state. The exception is an apply
// that only takes ownership: it changes neither the time nor the rest of the object.
func (f *Finder) compare(e, prior *entry, formerTime []byte, same bool) (evidence, error) {
	late := bytes.Compare(e.time, formerTime) >= 0 || e.applies() && same
	if f.former == 0 || !late {
		return nothing, nil
	}
	if prior == nil || bytes.Compare(e.time, prior.time) > 0 {
		return moved, nil
	}
	more, err := f.ownsMore(e.fields, prior.fields, 0)
	if err != nil || !more {
		return nothing, err
	}
	return gained, nil
}

// changed adds to the change the changed paths that e owns. If it is certain
// that the manager wrote, it adds the paths that prior owned and that are gone.
func (f *Finder) changed(e, prior *entry, before, after []byte) error {
	f.change.Paths, f.gone = []string{}, false
	err := f.walk(e.fields, before, after, 0)
	if err == nil && f.certain && prior != nil {
		f.gone = true
		err = f.walk(prior.fields, before, after, 0)
	}
	return err
}

// ownsMore reports whether fields has a place that than does not have.
func (f *Finder) ownsMore(fields, than []byte, depth int) (bool, error) {
	if bytes.Equal(fields, than) || fields == nil || depth == maxDepth {
		return false, nil
	}
	low := len(f.scratch)
	defer func() { f.scratch = f.scratch[:low] }()
	places, err := f.scratchOf(fields)
	if err != nil {
		return false, err
	}
	others, err := f.scratchOf(than)
	if err != nil {
		return false, err
	}
	if f.Steps() > f.budget {
		return false, ErrCostly
	}
	raw.Sort(others)
	if depth > 0 && ownsContainer(places) && !ownsContainer(others) {
		return true, nil
	}
	for _, p := range places {
		if string(p.Name) == "." {
			continue
		}
		other := raw.Lookup(others, p.Name)
		if other == nil {
			return true, nil
		}
		if more, err := f.ownsMore(p.Value, other, depth+1); more || err != nil {
			return more, err
		}
	}
	return false, nil
}

// ownsContainer reports whether the container of the places is owned itself: {} or a dot says so.
func ownsContainer(places []raw.Member) bool {
	return len(places) == 0 || raw.Find(places, []byte(".")) != nil
}

// newest returns the newest of the entries' times, quoted; nil if there is none. All times have one form, so that they are compared as
// bytes.
func newest(entries []entry) (t []byte) {
	for i := range entries {
		if bytes.Compare(entries[i].time, t) > 0 {
			t = entries[i].time
		}
	}
	return t
}

// oneManager returns the changes if all belong to one manager. Otherwise it returns none, because only one of the managers is
// the writer, and it is not known which.
func oneManager(changes []Change) []Change {
	for _, c := range changes {
		if c.Manager == ancientChanges || c.Manager != changes[0].Manager {
			return nil
		}
	}
	return changes
}

// equalExcept reports whether two objects have the same members, except those named.
func (p *pair) equalExcept(but ...string) bool {
	within := func(as, bs children) bool {
		for _, m := range as.members {
			if !slices.Contains(but, string(m.Name)) && !bytes.Equal(m.Value, raw.Lookup(bs.members, m.Name)) {
				return false
			}
		}
		return true
	}
	return within(p.a, p.b) && within(p.b, p.a)
}

// version returns the resourceVersion in this metadata; 0 if it is no number.
func (c *children) version() uint64 {
	v := c.member("resourceVersion")
	if len(v) == 0 || v[0] != '"' {
		return 0
	}
	n, _ := strconv.ParseUint(string(scan.Unquote(v)), 10, 64)
	return n
}
