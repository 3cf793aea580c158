package reconcile

import (
	"hash/maphash"
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// keySet is a set of keys. It has 128 bits of each, of a keyed hash, since lists are long: with a million
// keys, two are taken for one with a probability of 10^-27.
type keySet map[[2]uint64]struct{}

var hashKeys = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hashOf(key string) [2]uint64 {
	return [2]uint64{maphash.String(hashKeys[0], key), maphash.String(hashKeys[1], key)}
}

func (s keySet) add(key string) { s[hashOf(key)] = struct{}{} }

func (s keySet) remove(key string) { delete(s, hashOf(key)) }

func (s keySet) has(key string) bool {
	_, has := s[hashOf(key)]
	return has
}

// list is a list that reconciles. It is compared with the inventory once it has ended.
type list struct {
	seen    keySet
	absent  bool     // nothing exists: see Absent
	keys    []string // those of [inventory.uncommitted] when the list ended
	cursor  string   // the last key that was compared
	ended   bool
	version string // of the list, once it has ended; "" if nothing exists
	owner   string // see [LastList]
}

// sighted notes which keys the list has. A streamed list has an object's end too: it is gone before the
// list's end.
func (l *list) sighted(s *Sighting) {
	if s.Form == Seen {
		l.seen.add(s.Key)
	} else {
		l.seen.remove(s.Key)
	}
}

// end begins the comparison with the inventory.
func (l *list) end(in *Input, uncommitted []string) {
	l.ended, l.version, l.owner, l.keys = true, in.Version, in.Owner, uncommitted
}

// comparing reports whether the list is complete, and is being compared with the inventory.
func (l *list) comparing() bool { return l != nil && l.ended }

// side is a list beside the watch.
type side struct {
	number  uint64
	seen    keySet
	open    map[string]struct{} // see [side.done]
	touched map[string]struct{} // keys that the watch has changed
	since   string              // the highest version that was seen when it began
	version string              // of the list; "" while it is under way
	samples []Sample            // only these are read; nil: everything
}

// maxSamples is how many samples of a collection are compared. Each costs a request. If one collection of a storage notices another history, all
// do, so few suffice.
const maxSamples = 3

// Sample is an inventory entry, and a resourceVersion at which it was the state of its object.
type Sample struct {
	Key, Position string
	UID, Version  string
	Digest        Digest
}

// addSample adds a sample to the newest ones, the newest first, of which there are at most maxSamples.
func addSample(newest []Sample, s Sample) []Sample {
	n := 0
	for n < len(newest) && !event.Older(newest[n].Version, s.Version) {
		n++
	}
	return slices.Insert(newest, n, s)[:min(len(newest)+1, maxSamples)]
}

func newSide(number uint64, since string) *side {
	return &side{number: number, since: since, seen: keySet{}, open: map[string]struct{}{}, touched: map[string]struct{}{}}
}

// touch notes that the watch changes a key. What it repeats after a restart is no change.
func (l *side) touch(known *Object, s *Sighting) {
	if known != nil && !event.Newer(s.Version, known.Version) {
		return
	}
	delete(l.open, s.Key)
	l.touched[s.Key] = struct{}{}
}

// compare opens a key in which a verification and the inventory differ.
func (l *side) compare(known *Object, s *Sighting) {
	_, touched := l.touched[s.Key]
	if !touched && (known == nil || known.Version != s.Version || known.Digest != s.Digest) {
		l.open[s.Key] = struct{}{}
	}
}

// resync opens a key that a resync leaves to the watch: it has yet to publish or end the object. known is
// the inventory entry from before the sighting.
func (l *side) resync(known *Object, s *Sighting, run uint64) {
	if known == nil || known.Version != s.Version && known.Run != run {
		l.open[s.Key] = struct{}{}
	}
}

// lacks opens a key that the complete list of a verification, or of a resync in a run, does not have.
func (l *side) lacks(key string, known *Object, verifies bool, run uint64) {
	if known == nil || l.seen.has(key) {
		return
	}
	open := known.known() && known.Run != run
	if verifies {
		_, touched := l.touched[key]
		open = !touched
	}
	if open {
		l.open[key] = struct{}{}
	}
}

// done reports whether the list is complete and no key is open: the watch has shown what a resync left to
// it, or a verification and the inventory do not differ. passed: the watch has passed the version of the
// list, and closes no further key.
func (l *side) done(position string) (done, passed bool) {
	if l == nil || l.version == "" {
		return false, false
	}
	return len(l.open) == 0, !event.Older(position, l.version)
}

// forgetting is what is left of an ending inventory.
type forgetting struct {
	keys   []string // those of [inventory.uncommitted] when the forgetting began
	cursor string   // the last key that was forgotten
}
