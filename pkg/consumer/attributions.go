package consumer

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Attributions remembers who made changes, from events of type [event.Attributed], and from events that say it themselves
// ([event.Received.Actor]). The zero value is empty and ready. Its methods may be called
// from several goroutines.
//
// An event of type Attributed follows the change that it explains, by seconds or minutes, and not every change has one.
type Attributions struct {
	// MaxBytes bounds the memory: what was taken first is forgotten first. 0 means 64 MiB, which is about 50,000 changes.
	MaxBytes int

	mu    sync.RWMutex
	known map[string]*event.Attribution
	keys  []remembered // in the order in which they were taken
	bytes int
}

// remembered is a key of Attributions.known.
type remembered struct {
	key  string
	size int
}

const (
	defaultAttributions = 64 << 20
	// attributionSize is about what an attribution takes in addition to its text.
	attributionSize = 512
)

// Take remembers who made a change, if e says so. e may be nil. An answer with a request replaces one with candidates. Other events have
// no effect, so every [Change.Event] can be taken.
func (a *Attributions) Take(e *event.Received) {
	answer := own(e)
	if answer == nil {
		return
	}
	key, size := changeKey(e), attributionSize
	if e.Actor == nil {
		size += 2 * len(e.Data)
	} else {
		text, _ := json.Marshal(e.Actor) // strings and numbers always encode
		size += 2 * len(text)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known = map[string]*event.Attribution{}
	}
	before := a.known[key]
	if before != nil && (before.Request != nil || answer.Request == nil) {
		return
	}
	a.known[key] = answer
	if before != nil { // its size is not counted again: the new answer has one request instead of several
		return
	}
	a.keys = append(a.keys, remembered{key, size})
	a.bytes += size
	limit := a.MaxBytes
	if limit <= 0 {
		limit = defaultAttributions
	}
	for a.bytes > limit && len(a.keys) > 0 {
		a.bytes -= a.keys[0].size
		delete(a.known, a.keys[0].key)
		a.keys = a.keys[1:]
	}
}

// Of returns who made the change that e has: the last change of an object that [State.Get] or [State.All] has returned, or an added, modified or
// deleted event. It returns nil if that is not known, or not yet. The caller must not change the result.
//
// The answer is about the object's state, not about one event: if a resync or another collection publishes the same state, it is the
// same.
func (a *Attributions) Of(e *event.Received) *event.Attribution {
	if e == nil || e.Type.OfCollection() {
		return nil
	}
	if answer := own(e); answer != nil && answer.Request != nil {
		return answer
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.known[changeKey(e)]
}

// own returns what an event itself says about who made a change; nil: nothing.
func own(e *event.Received) *event.Attribution {
	switch {
	case e == nil:
		return nil
	case e.Actor != nil:
		return &event.Attribution{Explains: e.ID, Request: e.Actor}
	case e.Type == event.Attributed:
		return e.Attribution
	}
	return nil
}

// changeKey identifies the change that an event has or explains: the state that the object has after it; for a deletion, the
// event of the deletion.
func changeKey(e *event.Received) string {
	id := e.ID
	if e.Type == event.Attributed {
		id = e.Attribution.Explains
	}
	if strings.HasSuffix(id, ":deleted") {
		return e.ClusterUID + "/" + id
	}
	return strings.Join([]string{e.ClusterUID, e.Group, e.Resource, e.UID, strconv.FormatUint(e.Epoch, 10), e.ResourceVersion}, "/")
}
