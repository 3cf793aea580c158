package spool

import (
	"slices"
	"sync"
)

// handles bounds the files that are open for appending.
type handles struct {
	limit int

	mu   sync.Mutex
	open []*Stream // with an open file, the one that was opened first first
}

// opened is called by a stream that has opened its file, and holds its writer. Files of other streams that are not being written
// are closed if there are too many.
func (h *handles) opened(st *Stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = append(h.open, st)
	for i := 0; i < len(h.open)-1 && len(h.open) > h.limit; {
		other := h.open[i]
		if other == st || !other.writing.TryLock() {
			i++
			continue
		}
		_ = other.w.file.Close() // what was written to it is synced through another handle
		other.w.file = nil
		h.open = slices.Delete(h.open, i, i+1)
		other.writing.Unlock()
	}
}

// closed is called by a stream that is about to close its file, and holds its writer.
func (h *handles) closed(st *Stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.open, st); i >= 0 {
		h.open = slices.Delete(h.open, i, i+1)
	}
}
