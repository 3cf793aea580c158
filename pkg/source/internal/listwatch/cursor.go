package listwatch

import (
	"hash/maphash"
	"slices"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Cursor follows a watch. One resourceVersion can have many events, so a watch may
// resume from a resourceVersion only after a later one was seen.
type Cursor struct {
	Resume   string // every event up to this version was seen
	Last     string // the latest seen version
	Failures int    // errors of the server in watches from resume

	// handled are the handled events of the latest version that has any: a watch from resume begins with them.
	handled []Event
	// Continues is true if the present watch continues one that the bridge has closed. It leaves out what was handled before: otherwise a handler
	// that takes longer than MaxBlocked for an event, which closes the watch, would get that event from every watch.
	Continues bool
}

// Saw records that an event or a bookmark was seen.
func (c *Cursor) Saw(rv string) {
	if !Resumable(rv) || !event.Newer(rv, c.Last) {
		return
	}
	if c.Resume != c.Last {
		c.Resume, c.Failures = c.Last, 0
	}
	c.Last = rv
}

// Event identifies an event. The same resourceVersion in another history of the server has another object.
type Event struct {
	kind   string // "ADDED", for example
	rv     string
	object uint64 // hash of its JSON
}

var eventSeed = maphash.MakeSeed()

// NewEvent returns the identity of an event of a kind ("ADDED", for example) about an object.
func NewEvent(kind, rv string, json []byte) Event {
	return Event{kind, rv, maphash.Bytes(eventSeed, json)}
}

// Repeats reports whether an event was handled before the watch that continues.
func (c *Cursor) Repeats(e Event) bool {
	return c.Continues && slices.Contains(c.handled, e)
}

// Handle records that an event was handled. Bookmarks are always passed on.
func (c *Cursor) Handle(e Event) {
	if e.kind == string(watch.Bookmark) || e.rv != c.Last || slices.Contains(c.handled, e) {
		return
	}
	if len(c.handled) > 0 && c.handled[0].rv != e.rv {
		c.handled = c.handled[:0]
	}
	c.handled = append(c.handled, e)
}
