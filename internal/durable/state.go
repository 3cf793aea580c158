package durable

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/kubebridge/kubebridge/internal/plan"
	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Load reads what a store holds beside the inventory.
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

// LoadPlan reads the numbers of the plan that a store holds.
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

// Before are the changes that a store which is not atomic with the sink must hold before the sink
// gets the records of a batch: its drafts and its intents.
func Before(b *reconcile.Batch) []event.KV {
	kvs := make([]event.KV, 0, len(b.Drafts)+len(b.Intents))
	for _, id := range sorted(b.Drafts) {
		kvs = append(kvs, event.KV{Key: []byte(prefixDraft + id), Value: encodeDraft(b.Drafts[id])})
	}
	for slot, list := range b.Intents {
		for i := range list {
			kvs = append(kvs, event.KV{Key: intentKey(slot, list[i].UID), Value: encodeIntent(&list[i])})
		}
	}
	return kvs
}

// Changes are the changes that a batch commits. intents says that [Before] was written.
func Changes(b *reconcile.Batch, intents bool) []event.KV {
	kvs := make([]event.KV, 0, len(b.Changes)+len(b.Records)+2*len(b.Progress)+len(b.Epochs))
	for i := range b.Changes {
		kvs = append(kvs, object(&b.Changes[i]))
	}
	for _, id := range sorted(b.Records) {
		kvs = append(kvs, record(id, b.Records[id]))
	}
	for _, id := range sorted(b.Progress) {
		kvs = append(kvs, progress(id, b.Progress[id]))
		if intents {
			kvs = append(kvs, event.KV{Key: []byte(prefixDraft + id)})
		}
	}
	for _, storage := range sorted(b.Epochs) {
		kvs = append(kvs, event.KV{Key: []byte(prefixEpoch + storage), Value: encodeEpoch(b.Epochs[storage])})
	}
	if !intents {
		return kvs
	}
	for slot, list := range b.Intents {
		for i := range list {
			kvs = append(kvs, event.KV{Key: intentKey(slot, list[i].UID)})
		}
	}
	for _, i := range b.Settled {
		kvs = append(kvs, event.KV{Key: intentKey(i.Slot, i.UID)})
	}
	return kvs
}

// ItemChanges are the changes that are written to the bus with one item, if the bus is the log. A
// start applies them to the store.
func ItemChanges(i *reconcile.Item) []event.KV {
	kvs := make([]event.KV, 0, len(i.Changes)+3)
	for n := range i.Changes {
		kvs = append(kvs, object(&i.Changes[n]))
	}
	if i.Record != nil {
		kvs = append(kvs, record(i.Collection, *i.Record))
	}
	return append(kvs, progress(i.Collection, i.Progress))
}

// Silent are the changes of a batch that are in no item's [ItemChanges]: what has changed without an
// item, and a record as it is after the collection's last item.
func Silent(b *reconcile.Batch) (kvs []event.KV) {
	items := map[reconcile.Slot]bool{}
	records := map[string]*reconcile.Record{} // of the last item that has one
	collections := map[string]bool{}
	for i := range b.Items {
		for n := range b.Items[i].Changes {
			items[b.Items[i].Changes[n].Slot] = true
		}
		collections[b.Items[i].Collection] = true
		if r := b.Items[i].Record; r != nil {
			records[b.Items[i].Collection] = r
		}
	}
	for i := range b.Changes {
		if !items[b.Changes[i].Slot] {
			kvs = append(kvs, object(&b.Changes[i]))
		}
	}
	for _, id := range sorted(b.Progress) {
		r, changed := b.Records[id]
		changed = changed && (records[id] == nil || *records[id] != r)
		if changed {
			kvs = append(kvs, record(id, r))
		}
		if changed || !collections[id] { // a record goes with the progress of its time
			kvs = append(kvs, progress(id, b.Progress[id]))
		}
	}
	return kvs
}

// Removed are the slots whose inventory entries are removed by changes.
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

// ResetChanges are the changes by which a store gives up what consumers have been sent: every
// collection that is not closed ends its incarnation.
func ResetChanges(s reconcile.State) (kvs []event.KV) {
	for _, id := range sorted(s.Records) {
		r := s.Records[id]
		if d, ok := s.Drafts[id]; ok { // its run may be on the bus
			r.Run, r.Epoch = max(r.Run, d.Run), max(r.Epoch, d.Epoch)
			kvs = append(kvs, event.KV{Key: []byte(prefixDraft + id)})
		}
		if r.Phase != reconcile.Closed && r.Phase != reconcile.New {
			r.Unwanted = r.Unwanted || r.Phase == reconcile.Leaving
			r.Phase = reconcile.Ending
		}
		kvs = append(kvs, record(id, r))
	}
	for slot, list := range s.Intents {
		for i := range list {
			kvs = append(kvs, event.KV{Key: intentKey(slot, list[i].UID)})
		}
	}
	return kvs
}

func object(c *reconcile.Change) event.KV {
	kv := event.KV{Key: objectKey(c.Slot)}
	if c.Object != nil {
		kv.Value = appendObject(make([]byte, 0, 64), c.Object, 0)
	}
	return kv
}

func record(id string, r reconcile.Record) event.KV {
	return event.KV{Key: []byte(prefixRecord + id), Value: encodeRecord(r)}
}

func progress(id string, p reconcile.Progress) event.KV {
	return event.KV{Key: []byte(prefixPosition + id), Value: encodeProgress(p)}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
