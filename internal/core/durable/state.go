package durable

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Load reads the state of a store, without the inventory.
func Load(store checkpoint.Store) (reconcile.State, error) {
	s := reconcile.State{
		Records: map[string]reconcile.Record{}, Progress: map[string]reconcile.Progress{}, Epochs: map[string]uint64{},
		Drafts: map[string]reconcile.Draft{}, Intents: map[reconcile.Slot][]reconcile.Intent{},
	}
	readers := []struct {
		prefix string
		read   func(key string, value []byte) error
	}{
		{prefixRecord, func(key string, value []byte) (err error) {
			s.Records[key], err = decodeRecord(value)
			return err
		}},
		{prefixPosition, func(key string, value []byte) (err error) {
			s.Progress[key], err = decodeProgress(value)
			return err
		}},
		{prefixDraft, func(key string, value []byte) (err error) {
			s.Drafts[key], err = decodeDraft(value)
			return err
		}},
		{prefixEpoch, func(key string, value []byte) (err error) {
			s.Epochs[key], err = decodeEpoch(value)
			return err
		}},
		{prefixIntent, func(key string, value []byte) error {
			slot, _, err := parseIntentKey([]byte(prefixIntent + key))
			if err != nil {
				return err
			}
			i, err := decodeIntent(value)
			s.Intents[slot] = append(s.Intents[slot], i)
			return err
		}},
	}
	for _, r := range readers {
		prefix := []byte(r.prefix)
		err := store.Scan(prefix, func(key, value []byte) error {
			return giveUp(r.read(string(bytes.TrimPrefix(key, prefix)), value))
		})
		if err != nil {
			return reconcile.State{}, fmt.Errorf("read the checkpoint: %w", err)
		}
	}
	return s, nil
}

// Position reads the position from which a restart watches a collection, "" if it begins with a list, and the collection's record.
func Position(store checkpoint.Store, id string) (string, reconcile.Record, error) {
	s := reconcile.State{Records: map[string]reconcile.Record{}, Progress: map[string]reconcile.Progress{}, Epochs: map[string]uint64{}}
	read := func(key string, decode func(value []byte) error) error {
		value, err := store.Get([]byte(key))
		if err != nil || value == nil {
			return err
		}
		return decode(value)
	}
	err := read(prefixRecord+id, func(value []byte) (err error) {
		s.Records[id], err = decodeRecord(value)
		return err
	})
	if err == nil {
		err = read(prefixPosition+id, func(value []byte) (err error) {
			s.Progress[id], err = decodeProgress(value)
			return err
		})
	}
	if storage := s.Records[id].Properties.Storage; err == nil {
		err = read(prefixEpoch+storage, func(value []byte) (err error) {
			s.Epochs[storage], err = decodeEpoch(value)
			return err
		})
	}
	if err != nil {
		return "", reconcile.Record{}, fmt.Errorf("read the checkpoint: %w", err)
	}
	return s.Position(id), s.Records[id], nil
}

// LoadPlan reads the numbers of the plan from a store.
func LoadPlan(store checkpoint.Store) (plan.Numbers, error) {
	value, err := store.Get([]byte(plan.Key))
	if err != nil {
		return plan.Numbers{}, fmt.Errorf("read the checkpoint: %w", err)
	}
	numbers, err := plan.Decode(value)
	if err != nil {
		return numbers, fmt.Errorf("read the checkpoint: %w", giveUp(fmt.Errorf("%w: %w", checkpoint.ErrCorrupt, err)))
	}
	return numbers, nil
}

// LoadKey reads the key of all digests from a store: those of the inventory, of intents and of kept bodies. The key is secret. It
// returns nil if the store has none yet.
func LoadKey(store checkpoint.Store) ([]byte, error) {
	key, err := store.Get([]byte(digestsKey))
	if err == nil && key != nil && len(key) != keyBytes {
		err = giveUp(fmt.Errorf("%w: the key of digests has %d bytes", checkpoint.ErrCorrupt, len(key)))
	}
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	return key, nil
}

// NewKey makes a key of digests, and the change that stores it. The change must become durable with the first digest, or before it.
func NewKey() (key []byte, change event.KV) {
	key = make([]byte, keyBytes)
	rand.Read(key) // never fails
	return key, event.KV{Key: []byte(digestsKey), Value: key}
}

// Before returns the drafts and intents of a batch. In the mode intents (docs/architecture.md, "The life of an event") they must be
// in the store before the sink gets the records of the batch.
func (m *Memory) Before(b *reconcile.Batch) []event.KV {
	w := m.writer(len(b.Drafts) + len(b.Intents))
	for _, id := range sorted(b.Drafts) {
		w.key(prefixDraft, id).Value = encodeDraft(b.Drafts[id])
	}
	for slot, list := range b.Intents {
		for i := range list {
			w.intended(slot, &list[i])
		}
	}
	return w.done()
}

// Changes returns the changes that a batch commits. intents is true if the changes of [Memory.Before] were written.
func (m *Memory) Changes(b *reconcile.Batch, intents bool) []event.KV {
	w := m.writer(len(b.Changes) + len(b.Records) + 2*len(b.Progress) + len(b.Epochs) + len(b.Intents) + len(b.Settled))
	for i := range b.Changes {
		w.object(&b.Changes[i])
	}
	for _, id := range sorted(b.Records) {
		w.record(id, b.Records[id])
	}
	for _, id := range sorted(b.Progress) {
		w.progress(id, b.Progress[id])
	}
	for _, storage := range sorted(b.Epochs) {
		w.key(prefixEpoch, storage).Value = strconv.AppendUint(nil, b.Epochs[storage], 10)
	}
	w.settled(b)
	if !intents {
		return w.done()
	}
	for _, id := range sorted(b.Drafts) {
		w.key(prefixDraft, id)
	}
	for slot, list := range b.Intents {
		for i := range list {
			w.intent(slot, list[i].UID)
		}
	}
	return w.done()
}

// ItemChanges returns the changes that are written to the bus together with one item, in the mode log. The next
// start applies them to the store.
func (m *Memory) ItemChanges(i *reconcile.Item) []event.KV {
	w := m.writer(len(i.Changes) + 2)
	for n := range i.Changes {
		w.object(&i.Changes[n])
	}
	if i.Record != nil {
		r := *i.Record
		r.Properties.FilterText = "" // not for those who read the bus; without it, an edit of the filter by the next start does not wait
		w.record(i.Collection, r)
	}
	w.progress(i.Collection, i.Progress)
	return w.done()
}

// Silent returns the changes of a batch that are not in the [Memory.ItemChanges] of any item: changes without an
// item, records that changed after the collection's last item, and removals of what is not in doubt any more.
func (m *Memory) Silent(b *reconcile.Batch) []event.KV {
	items := make(map[reconcile.Slot]struct{}, len(b.Items))
	records := map[string]*reconcile.Record{} // by collection: the record of its last item that has one
	collections := map[string]bool{}
	for i := range b.Items {
		for n := range b.Items[i].Changes {
			items[b.Items[i].Changes[n].Slot] = struct{}{}
		}
		collections[b.Items[i].Collection] = true
		if r := b.Items[i].Record; r != nil {
			records[b.Items[i].Collection] = r
		}
	}
	w := m.writer(1)
	for i := range b.Changes {
		if _, has := items[b.Changes[i].Slot]; !has {
			w.object(&b.Changes[i])
		}
	}
	for _, id := range sorted(b.Progress) {
		r, changed := b.Records[id]
		changed = changed && (records[id] == nil || *records[id] != r)
		if changed {
			w.record(id, r)
		}
		if changed || !collections[id] { // a record and its progress are written together
			w.progress(id, b.Progress[id])
		}
	}
	w.settled(b)
	return w.done()
}

// Removed returns the slots whose inventory entries are removed by changes.
func Removed(changes []event.KV) (slots []reconcile.Slot) {
	for _, kv := range changes {
		if kv.Value != nil || !bytes.HasPrefix(kv.Key, []byte(prefixObject)) {
			continue
		}
		if slot, err := parseObjectKey(kv.Key); err == nil {
			slots = append(slots, slot)
		}
	}
	return slots
}

// ResetChanges returns the changes that replace the state of a store by [reconcile.State.Reset], so that every collection
// begins a new incarnation.
func ResetChanges(s reconcile.State) []event.KV {
	next := s.Reset()
	w := NewMemory().writer(2*len(next.Records) + len(s.Drafts))
	for _, id := range sorted(next.Records) {
		w.record(id, next.Records[id])
		w.progress(id, next.Progress[id])
	}
	for _, id := range sorted(s.Drafts) {
		w.key(prefixDraft, id)
	}
	return w.done()
}

// Kept returns what a reset leaves in a store, besides what [ResetChanges] replaces and the inventory, which the next incarnations write
// again. A store that has lost everything needs it: without the key of digests, for example, every object of the next list would count as
// modified.
func Kept(store checkpoint.Store) (changes []event.KV, err error) {
	for _, prefix := range []string{prefixEpoch, prefixNote, prefixEntry, string(checkpoint.MoveKey()), string(checkpoint.RunningKey())} {
		err := store.Scan([]byte(prefix), func(key, value []byte) error {
			changes = append(changes, event.KV{Key: bytes.Clone(key), Value: bytes.Clone(value)})
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read the checkpoint: %w", err)
		}
	}
	return changes, nil
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
