package pipeline

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// inventory is the tentative one (design rule 3): what the store has committed,
// overlaid with what is enqueued. Only the lane's goroutine uses it.
type inventory struct {
	store   checkpoint.Store
	pending map[string]pending // of the batch that fills
	flying  map[string]pending // of the batch that is being written
	text    event.Text         // keys
	// perhaps holds the intents that a crash left behind: what the bus was perhaps
	// told of objects, by inventory key and UID. Only lists consult it, since
	// a resumed watch repeats what was in flight anyway.
	perhaps map[string]map[string]intent
}

// intent is what a crash left open: the bus was told, or perhaps was, what Entry says,
// and perhaps more: that the object left.
type intent struct {
	checkpoint.Entry
	left bool
}

// pending is an enqueued change of one key.
type pending struct {
	entry *checkpoint.Entry // nil: the object is gone
	of    *member
	// body is the one kept of it, nil for none, where that changes, too.
	body  []byte
	keeps bool
}

func newInventory(store checkpoint.Store) (*inventory, error) {
	v := &inventory{store: store, pending: map[string]pending{}, flying: map[string]pending{}, perhaps: map[string]map[string]intent{}}
	return v, v.readIntents(checkpoint.IntentPrefix("", ""))
}

// doubt is what a crash left open of an object.
func (v *inventory) doubt(key []byte, uid string) (intent, bool) {
	i, ok := v.perhaps[string(key)][uid]
	return i, ok
}

// hasLeft reports whether consumers were perhaps told that the object is not there any
// more, and may have been told since that it is: only an announcement of its own brings
// it back for certain. known is its committed entry, or nil.
func (i *intent) hasLeft(known *checkpoint.Entry) bool {
	return i.left || known != nil && known.Told && known.Entry != i.Entry.Entry
}

// readIntents takes in what the store knows of intents.
func (v *inventory) readIntents(prefix []byte) error {
	return v.store.Scan(prefix, func(key, value []byte) error {
		resource, namespace, name, uid, err := checkpoint.ParseIntentKey(key)
		if err != nil {
			return err
		}
		e, err := checkpoint.DecodeEntry(value)
		if err != nil {
			return fmt.Errorf("intent %s: %w", key, err)
		}
		k := string(checkpoint.EntryKey(resource, namespace, name))
		if v.perhaps[k] == nil {
			v.perhaps[k] = map[string]intent{}
		}
		i := intent{Entry: e, left: !e.Told}
		i.Told = true
		v.perhaps[k][uid] = i
		return nil
	})
}

// drop forgets what is enqueued of a member.
func (v *inventory) drop(m *member) {
	for _, enqueued := range []map[string]pending{v.pending, v.flying} {
		maps.DeleteFunc(enqueued, func(_ string, p pending) bool { return p.of == m })
	}
}

// enqueued returns the change of a key that is not committed yet.
func (v *inventory) enqueued(key []byte) (pending, bool) {
	p, ok := v.pending[string(key)]
	if !ok {
		p, ok = v.flying[string(key)]
	}
	return p, ok
}

// allEnqueued are the changes that are not committed yet, the last of each key.
func (v *inventory) allEnqueued() iter.Seq2[string, pending] {
	return func(yield func(string, pending) bool) {
		for key, p := range v.pending {
			if !yield(key, p) {
				return
			}
		}
		for key, p := range v.flying {
			if _, again := v.pending[key]; !again && !yield(key, p) {
				return
			}
		}
	}
}

// get returns what the bus will have been told of the key, nil for nothing.
func (v *inventory) get(key []byte) (*checkpoint.Entry, error) {
	return v.lookUp(key, &checkpoint.Entry{})
}

// of is get for the key of an object.
func (v *inventory) of(key []byte, o *source.Object) (*checkpoint.Entry, error) {
	return v.lookUp(key, &checkpoint.Entry{UID: o.UID, APIVersion: o.APIVersion, Kind: o.Kind})
}

// lookUp is get for an entry that is likely to be like another.
func (v *inventory) lookUp(key []byte, like *checkpoint.Entry) (*checkpoint.Entry, error) {
	if p, ok := v.enqueued(key); ok {
		return p.entry, nil
	}
	value, err := v.store.Get(key)
	if err != nil || value == nil {
		return nil, err
	}
	e, err := checkpoint.DecodeEntryLike(value, like)
	if err != nil {
		return nil, fmt.Errorf("inventory %s: %w", key, err)
	}
	return &e, nil
}

// set enqueues a change of a member's for the batch and returns how the store will
// record it.
func (v *inventory) set(b *batch, key []byte, e *checkpoint.Entry, of *member) event.KV {
	p := pending{entry: e, of: of}
	if of.lens != nil && of.lens.keeps() {
		was := v.pending[string(key)]
		p.body, p.keeps = was.body, was.keeps
	}
	v.pending[v.text.Of(key)] = p
	room := b.room(len(key))
	kv := event.KV{Key: b.keep(room, append(room, key...))}
	if e != nil {
		room = b.room(entryBytes)
		kv.Value = b.keep(room, checkpoint.AppendEntry(room, e))
	}
	return kv
}

// setBody enqueues a change of the body that is kept of an object, whose entry e is
// enqueued too, and returns how the store will record it.
func (v *inventory) setBody(b *batch, key, body []byte, e *checkpoint.Entry, of *member) []event.KV {
	p, ok := v.pending[string(key)]
	if !ok {
		p = pending{entry: e, of: of}
	}
	p.body, p.keeps = body, true
	v.pending[v.text.Of(key)] = p
	return append(b.states.take(1)[:0], event.KV{Key: checkpoint.BodyKeyOf(key), Value: body})
}

// body returns what is kept of an object, as [Lane.keep] encodes it; nil is nothing.
func (v *inventory) body(key []byte) ([]byte, error) {
	for _, enqueued := range []map[string]pending{v.pending, v.flying} {
		if p, ok := enqueued[string(key)]; ok && p.keeps {
			return p.body, nil
		}
	}
	return v.store.Get(checkpoint.BodyKeyOf(key))
}

// restate follows what moves, those of the batch that is enqueued, now say of a key.
func (v *inventory) restate(key []byte, moves []move) {
	p, ok := v.pending[string(key)]
	if !ok {
		return
	}
	for i := len(moves) - 1; i >= 0; i-- {
		if !bytes.Equal(moves[i].Key, key) {
			continue
		}
		p.entry = nil
		if e, err := checkpoint.DecodeEntry(moves[i].Value); err == nil {
			p.entry = &e
		}
		v.pending[string(key)] = p
		return
	}
}

// dispatched is told that the batch is being written, and committed that the store
// knows it.
func (v *inventory) dispatched() { v.pending, v.flying = v.flying, v.pending }

func (v *inventory) committed() { clear(v.flying) }

// forget drops everything that is enqueued.
func (v *inventory) forget() {
	clear(v.pending)
	clear(v.flying)
}

// settle forgets the intent for an object whose fate is enqueued, and returns
// the change that removes it from the store, if there is one.
func (v *inventory) settle(key []byte, uid string) (event.KV, bool) {
	m := v.perhaps[string(key)]
	if _, ok := m[uid]; !ok {
		return event.KV{}, false
	}
	delete(m, uid)
	if len(m) == 0 {
		delete(v.perhaps, string(key))
	}
	return event.KV{Key: intentKey(key, uid)}, true
}

func intentKey(entryKey []byte, uid string) []byte {
	resource, namespace, name, _ := checkpoint.ParseEntryKey(entryKey) // made by EntryKey: cannot fail
	return checkpoint.IntentKey(resource, namespace, name, uid)
}

// object is an inventory key with what is known under it.
type object struct {
	key   []byte
	entry checkpoint.Entry
}

// predicate decides which objects of the inventory are meant.
type predicate func(key []byte, e *checkpoint.Entry) bool

// each calls do for the objects under the prefix that which selects, in key order:
// those that are committed, those that are enqueued, and those that are in doubt. It
// stops at do's error and returns it. do may enqueue changes of the object that it is
// called with, and wait for commits. Nothing is collected but the keys of what is
// enqueued or in doubt, so the memory does not grow with the inventory.
func (v *inventory) each(prefix []byte, which predicate, do func(object) error) error {
	judge := func(key []byte, e checkpoint.Entry) error {
		if _, doubt := v.doubt(key, e.UID); doubt {
			return nil // the intent knows more
		}
		if !which(key, &e) {
			return nil
		}
		return do(object{bytes.Clone(key), e})
	}
	tentative := v.tentative(prefix)
	keys := slices.Sorted(maps.Keys(tentative))
	// What stands before key, or all of it, of the keys that the scan does not judge.
	overlay := func(key []byte) error {
		for len(keys) > 0 && (key == nil || keys[0] < string(key)) {
			k := []byte(keys[0])
			keys = keys[1:]
			if tentative[string(k)] {
				if e, err := v.get(k); err != nil {
					return err
				} else if e != nil {
					if err := judge(k, *e); err != nil {
						return err
					}
				}
			}
			for _, uid := range v.inDoubt(k) {
				i, ok := v.doubt(k, uid)
				if !ok || !which(k, &i.Entry) {
					continue
				}
				if err := do(object{k, i.Entry}); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err := v.store.Scan(prefix, func(key, value []byte) error {
		if err := overlay(key); err != nil {
			return err
		}
		if tentative[string(key)] { // the scan's snapshot is older than the enqueued change
			return nil
		}
		e, err := checkpoint.DecodeEntry(value)
		if err != nil {
			return fmt.Errorf("inventory %s: %w", key, err)
		}
		return judge(key, e)
	})
	if err != nil {
		return err
	}
	return overlay(nil)
}

// tentative are the keys under the prefix that are enqueued, true, or only in doubt,
// false.
func (v *inventory) tentative(prefix []byte) map[string]bool {
	keys := map[string]bool{}
	for k := range v.perhaps {
		if strings.HasPrefix(k, string(prefix)) {
			keys[k] = false
		}
	}
	for k := range v.allEnqueued() {
		if strings.HasPrefix(k, string(prefix)) {
			keys[k] = true
		}
	}
	return keys
}

// inDoubt are the UIDs of the objects in doubt that have a key, the oldest first.
func (v *inventory) inDoubt(key []byte) []string {
	m := v.perhaps[string(key)]
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(compareRV(m[a].RV, m[b].RV), strings.Compare(a, b))
	})
}

// keySet remembers keys by 64-bit hashes, eight bytes each, with a seed of its
// own: should two keys collide, they will not do so again in the next list.
type keySet struct {
	seed   maphash.Seed
	hashes []uint64
	sorted bool
}

func newKeySet() *keySet { return &keySet{seed: maphash.MakeSeed()} }

func (s *keySet) add(key []byte) {
	s.hashes = append(s.hashes, maphash.Bytes(s.seed, key))
	s.sorted = false
}

func (s *keySet) has(key []byte) bool {
	if !s.sorted {
		slices.Sort(s.hashes)
		s.sorted = true
	}
	_, found := slices.BinarySearch(s.hashes, maphash.Bytes(s.seed, key))
	return found
}
