package consumer

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// version is a resourceVersion in one of a cluster's histories.
type version struct {
	epoch uint64
	rv    string
}

// compare orders versions. Those of one epoch that are not both numbers are equal,
// or a is the newer: they cannot be compared otherwise.
func compare(a, b version) int {
	if a.epoch != b.epoch || a.rv == b.rv {
		return cmp.Compare(a.epoch, b.epoch)
	}
	x, errX := number(a.rv)
	y, errY := number(b.rv)
	if errX != nil || errY != nil {
		return 1
	}
	return cmp.Compare(x, y)
}

// number is a resourceVersion's; that of the beginning, which has none, is 0.
func number(rv string) (uint64, error) {
	if rv == "" {
		return 0, nil
	}
	return strconv.ParseUint(rv, 10, 64)
}

// objectKey names an object for ever. The same uid may live in two resources: an
// Event in that of core and that of events.k8s.io.
type objectKey struct{ cluster, group, resource, uid string }

// place is where order holds.
type place struct {
	topic     string
	partition int
}

// entry is what is known of one object, also after its end.
type entry struct {
	key        objectKey
	object     *event.Received // nil: it does not exist, or is not known to
	name       Name
	collection collectionKey // of which it was told last
	place      place
	seen       version   // of the newest state told
	told       []telling // at that version
	ends       []telling // of its existence: few, since objects rarely come back
	drop       *drop     // not nil: a drop removed it, and it has not been told since
}

// tellObject takes an event about an object.
//
// A deletion does not move what was seen: one that a list proved carries the
// list's resourceVersion, and an object that only left the selection may come back
// as old as it was.
func (s *State) tellObject(e *event.Received, m Message) (gone []*event.Received, news bool) {
	key := objectKey{e.Cluster, e.Group, e.Resource, e.UID}
	at := version{e.Epoch, e.ResourceVersion}
	known := s.entries[key]
	if known != nil && known.isOld(e, at) {
		return nil, false
	}
	name := NameOf(e)
	if e.Type != event.Deleted {
		// An object cannot have a name that a newer one has; the older one's
		// deletion may be missing where the topic is compacted.
		if holder := s.names[name]; holder != nil && holder != known {
			if compare(at, holder.seen) < 0 {
				return nil, false
			}
			gone = append(gone, s.remove(holder))
		}
	}
	if known == nil {
		known = &entry{key: key, seen: at}
		s.entries[key] = known
	}
	if known.object != nil {
		gone = append(gone, s.remove(known))
	}
	known.name, known.drop = name, nil
	known.collection, known.place = collectionKey{e.Cluster, e.Collection}, place{m.Topic, m.Partition}
	if e.Type == event.Deleted {
		known.ends = append(known.ends, tellingOf(e))
		s.forget(known)
		return gone, true
	}
	if at != known.seen {
		known.seen, known.told = at, nil
	}
	known.told = append(known.told, tellingOf(e))
	kept := *e
	kept.Data = nil
	known.object = &kept
	s.names[name] = known
	return gone, true
}

// isOld reports whether the copy has what e tells, or something newer.
func (k *entry) isOld(e *event.Received, at version) bool {
	now := tellingOf(e)
	// An object that left the selection, came back and left again may have ended
	// twice under one id where a reset has come between.
	ended := func(x telling) bool { return x.id == now.id && (k.object == nil || x == now) }
	if slices.ContainsFunc(k.ends, ended) {
		return true
	}
	if k.drop == nil {
		return slices.ContainsFunc(k.told, func(x telling) bool { return x.id == now.id }) || compare(at, k.seen) < 0
	}
	// What a drop removed may be told again under the id that it had.
	switch {
	case k.drop.tells(e):
		return false
	case slices.Contains(k.told, now):
		return true
	case at.epoch < k.seen.epoch: // as a bridge that has lost its checkpoint may tell
		return e.Time.Before(k.drop.time)
	}
	return compare(at, k.seen) < 0
}

// remove takes an object out of the copy.
func (s *State) remove(k *entry) *event.Received {
	last := k.object
	k.object = nil
	delete(s.names, k.name)
	s.forget(k)
	return last
}

// forget remembers the ends of the last objects, and forgets those before.
func (s *State) forget(k *entry) {
	if n := len(s.removed); n > 0 && s.removed[n-1] == k {
		return
	}
	s.removed = append(s.removed, k)
	limit := s.Remember
	if limit <= 0 {
		limit = defaultRemember
	}
	for len(s.removed) > limit {
		if oldest := s.removed[0]; oldest.object == nil && s.entries[oldest.key] == oldest {
			delete(s.entries, oldest.key)
		}
		s.removed = s.removed[1:]
	}
}
