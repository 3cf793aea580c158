package manager

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/kubebridge/kubebridge/internal/scan"
	"github.com/kubebridge/kubebridge/pkg/shape/internal/raw"
)

// Names that the API server itself gives to entries (apimachinery,
// util/managedfields/internal): what the oldest of more than ten updaters owned, and
// what was there before the first server-side apply. No client writes under them.
const (
	ancientChanges   = "ancient-changes"
	beforeFirstApply = "before-first-apply"
)

// evidence is what managedFields show of a manager between two states. A stronger one
// is greater.
type evidence int

const (
	nothing evidence = iota
	owns             // it owns a place that changed
	gained           // it owns more than before
	moved            // its time moved on, or it is new
)

// writers returns the changes of the managers with the strongest evidence. same says
// that the two states differ in their managedFields only.
func (t *Teller) writers(before, after []byte, same bool) ([]Change, error) {
	var changes []Change
	best := owns
	former, now := t.entries[:t.former], t.entries[t.former:]
	formerTime := newest(former)
	lastTime := slices.MaxFunc([][]byte{formerTime, newest(now)}, bytes.Compare)
	for i := range now {
		e := &now[i]
		c := e.change()
		if c.Manager == ancientChanges || c.Manager == beforeFirstApply {
			continue
		}
		var f *entry
		for j := range former {
			if former[j].same(e) {
				f = &former[j]
			}
		}
		found, err := t.compare(e, f, formerTime, same)
		if err == nil {
			t.change, t.certain = &c, found != nothing
			err = t.changed(e, f, before, after)
		}
		if err != nil {
			return nil, fmt.Errorf("managedFields of %s: %w", c.Manager, err)
		}
		if found == nothing && len(c.Paths) > 0 && (t.former == 0 || bytes.Equal(e.time, lastTime)) {
			found = owns
		}
		if found > best {
			best, changes = found, nil
		}
		if found == best {
			changes = append(changes, c)
		}
	}
	t.change = nil
	if best == moved || t.former == 0 {
		return changes, nil
	}
	return oneManager(changes), nil
}

// compare returns what a manager's entry e shows beside its former one f, which is nil
// if it had none. The writer's time is never older than formerTime, the newest of
// before, unless the server noted none: an apply that only takes ownership leaves the
// time as it is, and the object.
func (t *Teller) compare(e, f *entry, formerTime []byte, same bool) (evidence, error) {
	late := bytes.Compare(e.time, formerTime) >= 0 || e.applies() && same
	if t.former == 0 || !late {
		return nothing, nil
	}
	if f == nil || bytes.Compare(e.time, f.time) > 0 {
		return moved, nil
	}
	more, err := t.more(e.fields, f.fields, 0)
	if err != nil || !more {
		return nothing, err
	}
	return gained, nil
}

// changed adds to the change the paths that changed and are e's, and, if it is certain
// that the manager wrote, those that were f's and are gone.
func (t *Teller) changed(e, f *entry, before, after []byte) error {
	t.change.Paths, t.gone = []string{}, false
	err := t.walk(e.fields, before, after)
	if err == nil && t.certain && f != nil {
		t.gone = true
		err = t.walk(f.fields, before, after)
	}
	return err
}

// more reports whether a FieldsV1 has a place that another one has not.
func (t *Teller) more(fields, than []byte, depth int) (bool, error) {
	if bytes.Equal(fields, than) || fields == nil || depth == maxDepth {
		return false, nil
	}
	low := len(t.scratch)
	defer func() { t.scratch = t.scratch[:low] }()
	places, err := t.scratchOf(fields)
	if err != nil {
		return false, err
	}
	others, err := t.scratchOf(than)
	if err != nil {
		return false, err
	}
	if depth > 0 && itself(places) && !itself(others) {
		return true, nil
	}
	for _, p := range places {
		if string(p.Name) == "." {
			continue
		}
		other := raw.Find(others, p.Name)
		if other == nil {
			return true, nil
		}
		if more, err := t.more(p.Value, other, depth+1); more || err != nil {
			return more, err
		}
	}
	return false, nil
}

// itself reports whether the place below which these are is owned itself: {} says so,
// and a dot.
func itself(places []raw.Member) bool {
	return len(places) == 0 || raw.Find(places, []byte(".")) != nil
}

// newest is the newest of the entries' times, quoted and of one form, or nil.
func newest(entries []entry) (t []byte) {
	for i := range entries {
		if bytes.Compare(entries[i].time, t) > 0 {
			t = entries[i].time
		}
	}
	return t
}

// oneManager returns the changes if they are one manager's, else none: one of several is
// the writer, and the others are not.
func oneManager(changes []Change) []Change {
	for _, c := range changes {
		if c.Manager == ancientChanges || c.Manager != changes[0].Manager {
			return nil
		}
	}
	return changes
}

// sameBut reports whether two objects have the same members but for those named.
func sameBut(as, bs children, but ...string) bool {
	within := func(as, bs children) bool {
		for _, m := range as.members {
			if !slices.Contains(but, string(m.Name)) && !bytes.Equal(m.Value, raw.Find(bs.members, m.Name)) {
				return false
			}
		}
		return true
	}
	return within(as, bs) && within(bs, as)
}

// version is the resourceVersion of what has this metadata, 0 if it is no number.
func version(metadata children) uint64 {
	v := raw.Find(metadata.members, []byte("resourceVersion"))
	if len(v) == 0 || v[0] != '"' {
		return 0
	}
	n, _ := strconv.ParseUint(string(scan.Unquote(v)), 10, 64)
	return n
}
