package durable

import (
	"github.com/kubebridge/kubebridge/internal/base/pieces"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// usualEntry is a size in bytes that is enough for most inventory entries.
const usualEntry = 256

// Memory provides the memory of lists of changes: see [NewMemory].
type Memory struct {
	changes pieces.Pieces[event.KV]
	bytes   pieces.Pieces[byte]
}

// NewMemory returns memory for the changes of a batch.
func NewMemory() *Memory {
	return &Memory{changes: pieces.Pieces[event.KV]{Large: 16 << 10}, bytes: pieces.Pieces[byte]{Small: 1 << 10, Large: 256 << 10}}
}

// Reset makes all memory available again. Lists of changes that were made in it must not be used any more.
func (m *Memory) Reset() {
	m.changes.Clear()
	m.bytes.Reset()
}

// writer makes a list of changes.
type writer struct {
	*Memory
	room, kvs []event.KV
}

// writer returns a writer for about n changes. No other writer may be used before done is called.
func (m *Memory) writer(n int) *writer {
	room := m.changes.Room(n)[:0]
	return &writer{m, room, room}
}

// done returns the list of changes.
func (w *writer) done() []event.KV { return w.changes.Appended(w.room, w.kvs) }

// key appends a change that removes a key. The caller may set its value.
func (w *writer) key(parts ...string) *event.KV {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	key := w.bytes.Take(n)[:0]
	for _, p := range parts {
		key = append(key, p...)
	}
	w.kvs = append(w.kvs, event.KV{Key: key})
	return &w.kvs[len(w.kvs)-1]
}

func (w *writer) object(c *reconcile.Change) {
	kv := w.key(prefixObject, c.Collection, "/", c.Key)
	if c.Object == nil {
		return
	}
	room := w.bytes.Room(usualEntry)
	kv.Value = w.bytes.Appended(room, appendObject(room, c.Object, 0))
}

func (w *writer) intent(slot reconcile.Slot, uid string) *event.KV {
	return w.key(prefixIntent, slot.Collection, "/", slot.Key, "/", uid)
}

func (w *writer) intended(slot reconcile.Slot, i *reconcile.Intent) {
	kv := w.intent(slot, i.UID)
	room := w.bytes.Room(usualEntry)
	kv.Value = w.bytes.Appended(room, appendIntent(room, i))
}

// settled removes the drafts and intents of earlier batches that a batch settles.
func (w *writer) settled(b *reconcile.Batch) {
	for _, id := range b.SettledDrafts {
		w.key(prefixDraft, id)
	}
	for _, i := range b.Settled {
		w.intent(i.Slot, i.UID)
	}
}

func (w *writer) record(id string, r reconcile.Record) {
	w.key(prefixRecord, id).Value = encodeRecord(r)
}

func (w *writer) progress(id string, p reconcile.Progress) {
	kv := w.key(prefixPosition, id)
	value := w.bytes.Take(len(p.Position) + 1 + len(p.Seen))[:0]
	kv.Value = append(append(append(value, p.Position...), ' '), p.Seen...)
}
