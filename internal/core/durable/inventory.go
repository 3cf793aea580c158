package durable

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/kubebridge/kubebridge/internal/base/pieces"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// Inventory is the committed inventory, for internal/core/reconcile. A read that fails
// returns nil, and [Inventory.Err] then returns the reason. The caller must check Err and discard all decisions made
// since the failure. Inventory must not be used by two goroutines at a time. The store may commit at any time.
type Inventory struct {
	store checkpoint.Store
	err   error
	like  reconcile.Object // the last decoded entry
	pages map[string]*page // by collection
	key   []byte           // buffer for the key of the last call of Object

	decoded pieces.Pieces[reconcile.Object]
}

const (
	// Numbers of keys: of the first page, which often suffices, and of the largest page, which takes about 2 MB.
	firstPage, largestPage = 256, 20_000
	// maxPages bounds the number of pages that are kept.
	maxPages = 8
)

// page has keys of one collection, in order. Pages are read so that no scan of the store is open between two calls: an
// open scan would keep deleted files on the disk, and would prevent that a store whose disk has failed is opened again.
type page struct {
	from string // all keys are greater than from
	keys []string
	last bool // there are no keys after these
}

// NewInventory returns the inventory of a store.
func NewInventory(store checkpoint.Store) *Inventory {
	return &Inventory{store: store, pages: map[string]*page{}, decoded: pieces.Pieces[reconcile.Object]{Large: 64, Once: true}}
}

// Err returns why a read failed; nil if none failed.
func (v *Inventory) Err() error { return v.err }

// Object implements [reconcile.Storage].
func (v *Inventory) Object(collection, key string) *reconcile.Object {
	v.key = append(append(append(append(v.key[:0], prefixObject...), collection...), '/'), key...)
	value, err := v.store.Get(v.key)
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
	return v.decoded.New(o)
}

func (v *Inventory) fail(err error) {
	v.err = errors.Join(v.err, fmt.Errorf("read the checkpoint: %w", err))
}

// After implements [reconcile.Storage]. Calls with increasing keys read the store in pages, and may miss
// keys that were committed after a page was read. The key "" always reads the store again.
func (v *Inventory) After(collection, key string) (string, bool) {
	p := v.pages[collection]
	if p == nil || key == "" || key < p.from {
		p = v.read(collection, key, firstPage)
	}
	for {
		i, found := slices.BinarySearch(p.keys, key)
		if found {
			i++
		}
		switch {
		case i < len(p.keys):
			return p.keys[i], true
		case p.last:
			return "", false
		}
		p = v.read(collection, key, min(2*len(p.keys), largestPage))
	}
}

// Each implements [reconcile.Storage].
func (v *Inventory) Each(collection string, do func(key string, o *reconcile.Object)) {
	var like reconcile.Object
	prefix := []byte(prefixObject + collection + "/")
	err := v.store.Scan(prefix, func(at, value []byte) error {
		o, _, err := decodeObject(value, &like)
		if err != nil {
			return giveUp(err)
		}
		like = o
		do(string(at[len(prefix):]), &like)
		return nil
	})
	if err != nil {
		v.fail(err)
	}
}

// read reads a page of up to limit keys that are greater than key.
func (v *Inventory) read(collection, key string, limit int) *page {
	if len(v.pages) >= maxPages {
		clear(v.pages)
	}
	p := &page{from: key, last: true}
	v.pages[collection] = p
	full := errors.New("the page is full")
	prefix := []byte(prefixObject + collection + "/")
	first := append(prefix[:len(prefix):len(prefix)], key...)
	err := v.store.Scan(prefix, func(at, _ []byte) error {
		if bytes.Compare(at, first) <= 0 {
			return nil
		}
		if len(p.keys) == limit {
			p.last = false
			return full
		}
		slot, err := parseObjectKey(at)
		p.keys = append(p.keys, slot.Key)
		return err
	})
	if err != nil && !errors.Is(err, full) {
		v.fail(err)
		p.keys, p.last = nil, true
	}
	return p
}

// Count returns the number of a collection's inventory entries of an incarnation, without those of earlier
// incarnations.
func Count(store checkpoint.Store, collection string, incarnation uint64) (int64, error) {
	h, err := Hold(store, collection, reconcile.Record{Incarnation: incarnation})
	if err != nil {
		return 0, fmt.Errorf("read the checkpoint: %w", err)
	}
	return int64(h.Published + h.Unpublished + h.Skipped), nil
}
