package reconcile

import (
	"maps"
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Storage is the committed inventory. Its methods have no errors: a storage that cannot be
// read returns nil and keeps its error, and the caller of [Core.Step] looks at it and
// gives up the core before the next [Core.Seal].
type Storage interface {
	// Object returns the inventory entry of a key, nil for none.
	Object(collection, key string) *Object
	// After returns the first key of an inventory entry that is greater than key; false: there is none.
	After(collection, key string) (string, bool)
	// Each calls do for each inventory entry of a collection. The entry is valid only during the call.
	Each(collection string, do func(key string, o *Object))
}

// inventory is the inventory of all collections as it will be once everything is committed: what the
// store has, and what the batches change of it. It also has what is in doubt.
type inventory struct {
	batches
	storage Storage
	intents doubts
	found   found // the entry that was looked up last
}

type found struct {
	Slot
	o     *Object
	valid bool
}

// object returns an inventory entry, nil for none.
func (v *inventory) object(slot Slot) *Object {
	if !v.found.valid || v.found.Slot != slot {
		v.found = found{slot, v.lookUp(slot), true}
	}
	return v.found.o
}

func (v *inventory) lookUp(slot Slot) *Object {
	for _, p := range v.both() {
		if o, changed := p.object(slot); changed {
			return o
		}
	}
	return v.storage.Object(slot.Collection, slot.Key)
}

// set changes an inventory entry; nil removes it.
func (v *inventory) set(slot Slot, o *Object) {
	v.current.set(slot, o)
	v.found = found{slot, o, true}
}

// drop forgets what is not committed of a collection, and what is in doubt.
func (v *inventory) drop(collection string) {
	v.batches.drop(collection)
	v.found.valid = false
	maps.DeleteFunc(v.intents, func(slot Slot, _ []Intent) bool { return slot.Collection == collection })
}

// settle has the commit of the filling batch remove an intent.
func (v *inventory) settle(slot Slot, uid string) {
	if v.intents.remove(slot, uid) {
		v.current.settled = append(v.current.settled, SettledIntent{slot, uid})
	}
}

// resolved removes the intents of a collection whose list is complete: none of its events is in
// doubt any more.
func (v *inventory) resolved(collection string) {
	for slot, list := range v.intents {
		if slot.Collection != collection {
			continue
		}
		for _, i := range list {
			v.settle(slot, i.UID)
		}
	}
}

// uncommitted returns the keys of a collection with changes that are not committed, or with intents,
// sorted.
func (v *inventory) uncommitted(collection string) []string {
	keys := map[string]struct{}{}
	for _, p := range v.both() {
		for i := range p.changes {
			if p.changes[i].Collection == collection {
				keys[p.changes[i].Key] = struct{}{}
			}
		}
	}
	for slot := range v.intents {
		if slot.Collection == collection {
			keys[slot.Key] = struct{}{}
		}
	}
	return sorted(keys)
}

// next is the first key behind cursor, of those given, which are sorted, or of the store.
func (v *inventory) next(collection string, keys []string, cursor string) (string, bool) {
	i, found := slices.BinarySearch(keys, cursor)
	if found {
		i++
	}
	key, ok := v.storage.After(collection, cursor)
	if i < len(keys) && (!ok || keys[i] < key) {
		return keys[i], true
	}
	return key, ok
}

// each calls do for the keys of a collection, in order, until it returns false.
func (v *inventory) each(collection string, do func(key string) bool) {
	keys := v.uncommitted(collection)
	for key, ok := v.next(collection, keys, ""); ok && do(key); {
		key, ok = v.next(collection, keys, key)
	}
}

// entries calls do for each inventory entry of a collection, in no order. The entry is valid only during the call.
func (v *inventory) entries(collection string, do func(key string, o *Object)) {
	uncommitted := v.uncommitted(collection)
	v.storage.Each(collection, func(key string, o *Object) {
		if _, later := slices.BinarySearch(uncommitted, key); !later {
			do(key, o)
		}
	})
	for _, key := range uncommitted {
		if o := v.object(Slot{collection, key}); o != nil {
			do(key, o)
		}
	}
}

// doubts are the intents of events of which it is not known whether the bus has them.
type doubts map[Slot][]Intent

// since returns the intents of a slot that belong to an incarnation.
func (d doubts) since(incarnation uint64, slot Slot) []Intent {
	return slices.DeleteFunc(slices.Clone(d[slot]), func(i Intent) bool { return i.Run < incarnation })
}

// overtake reports whether a later event of the object than e is in doubt: another publication, or the end of the one that e is. That is so if a
// watch repeats events after a restart.
func (d doubts) overtake(slot Slot, e *ObjectEvent) bool {
	later := find(d[slot], e.Object.UID)
	if later == nil {
		return false
	}
	order := comparePublications(later.Object, e.Object)
	return order > 0 || order == 0 && later.Deleted && e.Type != event.Deleted
}

// remove removes an intent, and reports whether there was one.
func (d doubts) remove(slot Slot, uid string) bool {
	if find(d[slot], uid) == nil {
		return false
	}
	d[slot] = slices.DeleteFunc(slices.Clone(d[slot]), func(i Intent) bool { return i.UID == uid })
	return true
}
