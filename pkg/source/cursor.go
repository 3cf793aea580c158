package source

import (
	"hash/maphash"
	"slices"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// cursor follows a watch. One resourceVersion can have many events, so a watch may
// resume from a resourceVersion only after a later one was seen.
type cursor struct {
	resume   string // every event up to this version was seen
	last     string // the latest seen version
	failures int    // errors of the server in watches from resume

	// handled are the handled events of the latest version that has any: a watch from resume begins with them.
	handled []handledEvent
	// continues is true if the present watch continues one that the bridge has closed. It leaves out what was handled before: otherwise a handler
	// that takes longer than maxBlocked for an event, which closes the watch, would get that event from every watch.
	continues bool
}

func (c *cursor) saw(rv string) {
	if !resumable(rv) || !event.Newer(rv, c.last) {
		return
	}
	if c.resume != c.last {
		c.resume, c.failures = c.last, 0
	}
	c.last = rv
}

// handledEvent identifies an event. The same resourceVersion in another history of the server has another object.
type handledEvent struct {
	kind   string // "ADDED", for example
	rv     string
	object uint64 // hash of its JSON
}

var eventSeed = maphash.MakeSeed()

func newHandledEvent(kind string, o *Object) handledEvent {
	return handledEvent{kind, o.ResourceVersion, maphash.Bytes(eventSeed, o.Raw)}
}

// repeats reports whether an event was handled before the watch that continues.
func (c *cursor) repeats(e handledEvent) bool {
	return c.continues && slices.Contains(c.handled, e)
}

// handle records that an event was handled. Bookmarks are always passed on.
func (c *cursor) handle(e handledEvent) {
	if e.kind == string(watch.Bookmark) || e.rv != c.last || slices.Contains(c.handled, e) {
		return
	}
	if len(c.handled) > 0 && c.handled[0].rv != e.rv {
		c.handled = c.handled[:0]
	}
	c.handled = append(c.handled, e)
}
