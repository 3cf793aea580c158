package durable

import (
	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// maxChunk bounds the chunks of memory that keys and values share, in bytes.
const maxChunk = 64 << 10

// writer makes a list of changes. Keys and values share memory.
type writer struct {
	kvs   []event.KV
	chunk []byte
}

// newWriter returns a writer of about n changes.
func newWriter(n int) *writer {
	return &writer{kvs: make([]event.KV, 0, n), chunk: make([]byte, 0, min(96*n, maxChunk))}
}

// keep returns what was appended to the chunk from a length on.
func (w *writer) keep(from int) []byte { return w.chunk[from:len(w.chunk):len(w.chunk)] }

// key appends a change that removes a key. The caller may set its value.
func (w *writer) key(parts ...string) *event.KV {
	if cap(w.chunk)-len(w.chunk) < 512 && len(w.chunk) > 512 {
		w.chunk = make([]byte, 0, maxChunk)
	}
	from := len(w.chunk)
	for _, p := range parts {
		w.chunk = append(w.chunk, p...)
	}
	w.kvs = append(w.kvs, event.KV{Key: w.keep(from)})
	return &w.kvs[len(w.kvs)-1]
}

func (w *writer) object(c *reconcile.Change) {
	kv := w.key(prefixObject, c.Collection, "/", c.Key)
	if c.Object == nil {
		return
	}
	from := len(w.chunk)
	w.chunk = appendObject(w.chunk, c.Object, 0)
	kv.Value = w.keep(from)
}

func (w *writer) intent(slot reconcile.Slot, uid string) *event.KV {
	return w.key(prefixIntent, slot.Collection, "/", slot.Key, "/", uid)
}

func (w *writer) intended(slot reconcile.Slot, i *reconcile.Intent) {
	kv := w.intent(slot, i.UID)
	from := len(w.chunk)
	w.chunk = appendIntent(w.chunk, i)
	kv.Value = w.keep(from)
}

func (w *writer) record(id string, r reconcile.Record) {
	w.key(prefixRecord, id).Value = encodeRecord(r)
}

func (w *writer) progress(id string, p reconcile.Progress) {
	kv := w.key(prefixPosition, id)
	from := len(w.chunk)
	w.chunk = append(append(append(w.chunk, p.Position...), ' '), p.Seen...)
	kv.Value = w.keep(from)
}
