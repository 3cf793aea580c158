package check

import (
	"fmt"
	"slices"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// FrameOptions say what Frames requires beyond its rules.
type FrameOptions struct {
	// Received are frames that must be published, even if they are in a gap.
	Received []kube.Frame
	// NoGap means that there must be no gap but the first snapshot.
	NoGap bool
	// Ends are the resourceVersions at which the bridge's feed ended. Every gap but the first snapshot must begin at one of them. nil: not checked.
	Ends []string
}

// Interval is the part of the history that a gap covers: the changes after From, up to To. To is "" while it is open.
type Interval struct {
	From, To string
	Reason   string
	Detail   string // for people
	Reset    bool
}

func (i Interval) String() string {
	return fmt.Sprintf("gap from %q to %q, reason %s (%s), reset %t", i.From, i.To, i.Reason, i.Detail, i.Reset)
}

// FrameReport is the result of Frames.
type FrameReport struct {
	Problems []string
	Gaps     []Interval // but the first snapshot
	Judged   int        // frames outside of the first snapshot
	Lost     int        // judged frames that are in a gap and not on the bus
}

// Frames compares what a recorder saw of a collection with its events on the bus, which were delivered exactly once to one partition, in this
// order. Its rules:
//
//	once       no version and no deletion is published twice
//	order      versions of an object ascend, and nothing follows its deletion
//	complete   every frame outside of the declared gaps is published
//	exact      at the synced that ends a gap, consumers have the objects and versions that existed at its resourceVersion
//	invented   nothing is published that the recorder did not see, unless it could not see it
func Frames(rec kube.Recording, messages []bus.Message, o FrameOptions) FrameReport {
	f := &frames{rec: rec, copied: map[string]string{}, versions: map[string]*bus.Message{}, deletions: map[string]*bus.Message{}}
	f.known()
	for i := range messages {
		if m := &messages[i]; m.OfCollection() {
			f.ofCollection(m)
		} else {
			f.ofObject(m)
		}
	}
	f.complete()
	f.gapsAsRequired(o)
	for _, r := range o.Received {
		if !f.published(r) {
			f.wrong("complete: the bridge received %+v, and it is not on the bus", r)
		}
	}
	return f.FrameReport
}

// version identifies a version of an object.
func version(uid, rv string) string { return uid + "@" + rv }

type frames struct {
	FrameReport
	rec       kube.Recording
	open      *Interval
	first     *Interval               // the first snapshot
	copied    map[string]string       // what a consumer has: the resourceVersion of each object, by UID
	versions  map[string]*bus.Message // by version
	deletions map[string]*bus.Message // by UID
	recorded  map[string]bool         // versions in the recording
	gone      map[string]bool         // UIDs of deletions in the recording
}

func (f *frames) wrong(format string, args ...any) {
	f.Problems = append(f.Problems, fmt.Sprintf(format, args...))
}

func (f *frames) known() {
	f.recorded, f.gone = map[string]bool{}, map[string]bool{}
	for _, r := range f.rec.Frames {
		if r.Deleted {
			f.gone[r.UID] = true
		} else {
			f.recorded[version(r.UID, r.RV)] = true
		}
	}
	for _, h := range f.rec.Holes {
		for uid, rv := range h.State {
			f.recorded[version(uid, rv)] = true
		}
	}
}

func (f *frames) ofCollection(m *bus.Message) {
	switch {
	case m.Is("gap"):
		if f.open != nil { // another one before its end: both end with the next synced
			return
		}
		f.open = &Interval{From: m.Data.From, Reason: m.Data.Reason, Detail: m.Data.Detail, Reset: m.Data.Reset}
	case m.Is("synced") && f.open != nil:
		f.open.To = m.Data.To
		f.exact(m)
		if f.first == nil {
			f.first = f.open
		} else {
			f.Gaps = append(f.Gaps, *f.open)
		}
		f.open = nil
	}
}

// exact compares the consumer's copy with what existed at the synced.
func (f *frames) exact(m *bus.Message) {
	want, known := f.rec.State(m.Data.To)
	if !known {
		return
	}
	for uid, rv := range want {
		if f.copied[uid] != rv {
			f.wrong("exact: at %s, %s had the version %s, consumers have %q", m, uid, rv, f.copied[uid])
		}
	}
	for uid, rv := range f.copied {
		if want[uid] == "" {
			f.wrong("exact: at %s, %s did not exist, consumers have %s", m, uid, rv)
		}
	}
}

func (f *frames) ofObject(m *bus.Message) {
	uid := m.UID()
	if d := f.deletions[uid]; d != nil {
		f.wrong("order or once: %s follows the deletion %s", m, d)
		return
	}
	if m.Is("deleted") {
		if f.copied[uid] == "" {
			f.wrong("order: %s ends an object that was never published", m)
		}
		if !f.gone[uid] && len(f.rec.Holes) < 2 {
			f.wrong("invented: %s was not deleted", m)
		}
		f.deletions[uid] = m
		delete(f.copied, uid)
		return
	}
	v := version(uid, m.RV())
	switch before := f.versions[v]; {
	case before != nil:
		f.wrong("once: %s, and before %s", m, before)
	case kube.CompareRV(m.RV(), f.copied[uid]) < 0:
		f.wrong("order: %s follows version %s", m, f.copied[uid])
	case !f.recorded[v] && f.rec.Sees(m.RV()):
		f.wrong("invented: the recorder did not see %s", m)
	}
	f.versions[v], f.copied[uid] = m, m.RV()
}

func (f *frames) published(r kube.Frame) bool {
	if r.Deleted {
		d := f.deletions[r.UID]
		return d != nil && d.Attributes["deletionversion"] == r.RV
	}
	return f.versions[version(r.UID, r.RV)] != nil
}

func (f *frames) complete() {
	if f.open != nil {
		f.wrong("complete: the last gap has no synced: %s", f.open)
		return
	}
	if f.first == nil {
		f.wrong("complete: there is no snapshot")
		return
	}
	for _, r := range f.rec.Frames {
		if kube.CompareRV(r.RV, f.first.To) <= 0 {
			continue
		}
		f.Judged++
		if f.published(r) {
			continue
		}
		switch {
		case f.inGap(r.RV) && r.Deleted && f.deletions[r.UID] != nil: // found by the list
		case f.inGap(r.RV):
			f.Lost++
		default:
			f.wrong("complete: the API server sent %+v, it is not on the bus, and no gap covers it", r)
		}
	}
}

func (f *frames) inGap(rv string) bool {
	return slices.ContainsFunc(f.Gaps, func(g Interval) bool {
		return kube.CompareRV(g.From, rv) < 0 && kube.CompareRV(rv, g.To) <= 0
	})
}

func (f *frames) gapsAsRequired(o FrameOptions) {
	for _, g := range f.Gaps {
		switch {
		case o.NoGap:
			f.wrong("gap: want none, got a %s", g)
		case g.Reset:
			f.wrong("gap: a reset: %s", g)
		case o.Ends != nil && !slices.Contains(o.Ends, g.From):
			f.wrong("gap: the feed ended at one of %q, not where this begins: %s", o.Ends, g)
		}
	}
}
