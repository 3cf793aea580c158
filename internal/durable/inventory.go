package durable

import (
	"errors"
	"fmt"
	"iter"

	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// Inventory is the committed inventory as internal/reconcile reads it. A read that fails
// returns nil, and [Inventory.Err] has the reason. The caller must then give up everything that was
// decided since. One goroutine uses it; the store may commit meanwhile.
type Inventory struct {
	store checkpoint.Store
	err   error
	like  reconcile.Object // the entry that was decoded last
	scans map[string]*scan // by collection
}

// maxScans bounds the scans that are open at once. Each holds a snapshot of the store.
const maxScans = 8

// scan is a scan of one collection that After continues.
type scan struct {
	from  string // the key of the last call of After
	ahead found  // what that call returned
	ended bool   // there is nothing behind from
	next  func() (found, bool)
	stop  func()
}

type found struct {
	key string
	o   *reconcile.Object
}

// NewInventory returns the inventory that a store holds.
func NewInventory(store checkpoint.Store) *Inventory {
	return &Inventory{store: store, scans: map[string]*scan{}}
}

// Err returns why a read failed, nil if none did.
func (v *Inventory) Err() error { return v.err }

// Close ends the scans that are under way. The inventory can still be used.
func (v *Inventory) Close() {
	for collection := range v.scans {
		v.end(collection)
	}
}

func (v *Inventory) end(collection string) {
	if s := v.scans[collection]; s != nil {
		s.stop()
		delete(v.scans, collection)
	}
}

// Object implements [reconcile.Storage].
func (v *Inventory) Object(collection, key string) *reconcile.Object {
	value, err := v.store.Get(objectKey(reconcile.Slot{Collection: collection, Key: key}))
	if err != nil {
		v.fail(err)
	}
	if err != nil || value == nil {
		return nil
	}
	return v.decode(value)
}

func (v *Inventory) decode(value []byte) *reconcile.Object {
	o, _, err := decodeObject(value, &v.like)
	if err != nil {
		v.fail(giveUp(err))
		return nil
	}
	v.like = o
	return &o
}

func (v *Inventory) fail(err error) {
	v.err = errors.Join(v.err, fmt.Errorf("read the checkpoint: %w", err))
}

// After implements [reconcile.Storage]. Calls with growing keys continue a scan, which does not see
// what is committed after its begin. The key "" always begins one.
func (v *Inventory) After(collection, key string) (string, *reconcile.Object) {
	s := v.scans[collection]
	if s == nil || key == "" || key < s.from {
		s = v.begin(collection)
	}
	s.from = key
	for !s.ended && (s.ahead.o == nil || s.ahead.key <= key) {
		if f, ok := s.next(); ok {
			s.ahead = f
		} else {
			s.ahead, s.ended = found{}, true
		}
	}
	return s.ahead.key, s.ahead.o
}

func (v *Inventory) begin(collection string) *scan {
	v.end(collection)
	if len(v.scans) >= maxScans {
		v.Close() // the next After of such a collection begins another scan
	}
	s := &scan{}
	s.next, s.stop = iter.Pull(v.objects(collection))
	v.scans[collection] = s
	return s
}

// objects are the inventory entries of a collection, in the order of their keys.
func (v *Inventory) objects(collection string) iter.Seq[found] {
	return func(yield func(found) bool) {
		enough := errors.New("enough")
		err := v.store.Scan([]byte(prefixObject+collection+"/"), func(key, value []byte) error {
			slot, err := parseObjectKey(key)
			if err != nil {
				return err
			}
			o := v.decode(value)
			if o == nil || !yield(found{slot.Key, o}) {
				return enough
			}
			return nil
		})
		if err != nil && !errors.Is(err, enough) {
			v.fail(err)
		}
	}
}

// Count returns how many inventory entries a collection has in a store.
func Count(store checkpoint.Store, collection string) (n int64, err error) {
	err = store.Scan([]byte(prefixObject+collection+"/"), func(_, _ []byte) error {
		n++
		return nil
	})
	return n, err
}
