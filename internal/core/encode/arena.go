package encode

import (
	"github.com/kubebridge/kubebridge/internal/base/pieces"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// The sizes of chunks of texts, in bytes.
const smallBytes, largeBytes = 1 << 10, 256 << 10

// arena is the memory of the records of one batch.
type arena struct {
	bytes      pieces.Pieces[byte]
	events     pieces.Pieces[event.Event]
	attributes pieces.Pieces[event.Attribute]
	changes    pieces.Pieces[event.KV]
}

// newArena returns an arena. With once, the arena is never reset, and full chunks are left to the garbage collector.
func newArena(once bool) *arena {
	return &arena{
		bytes:      pieces.Pieces[byte]{Small: smallBytes, Large: largeBytes, Once: once},
		events:     pieces.Pieces[event.Event]{Once: once},
		attributes: pieces.Pieces[event.Attribute]{Once: once},
		changes:    pieces.Pieces[event.KV]{Once: once},
	}
}

// room returns memory for a text of n bytes.
func (a *arena) room(n int) []byte { return a.bytes.Room(n) }

// keep returns a text that was appended to the last result of room.
func (a *arena) keep(room, text []byte) []byte { return a.bytes.Appended(room, text) }

// copied returns a copy of a text.
func (a *arena) copied(text []byte) []byte {
	room := a.room(len(text))
	return a.keep(room, append(room, text...))
}

// reset frees all memory of the arena for reuse.
func (a *arena) reset() {
	a.bytes.Reset()
	a.events.Clear()
	a.attributes.Reset()
	a.changes.Reset()
}
