package history

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// costly is the note of a change whose authors are not computed.
const costly = "who changed it is left out: the object takes too many steps to compare"

// Note returns what limits the meaning of an event's diff; "" if nothing does. first is true if no earlier event of the
// object is known.
func Note(e *event.Received, first bool) string {
	var all []string
	add := func(applies bool, text string) {
		if applies {
			all = append(all, text)
		}
	}
	deleted := e.Type == event.Deleted
	add(e.Origin == event.Reconcile && deleted, "found by a list: the time of the deletion and the changes before it are not known")
	add(e.Origin == event.Reconcile && !deleted, "updates in between are not known")
	add(deleted && e.Reason == "left", "it exists, and is not selected any more")
	add(deleted && e.Reason == "unknown", "it may exist outside what the bridge selects")
	add(first && e.Type != event.Added, "earlier states are not on the bus")
	add(slices.Contains(e.LeftOut, "changedby"), costly)
	switch {
	case !e.BodyKnown:
		add(true, "its body is not known")
	case e.Truncated != nil && e.Truncated.Levels > 0:
		add(true, fmt.Sprintf("truncated: its body of %d bytes is nested in more than %d levels", e.Truncated.Size, e.Truncated.Levels))
	case e.Truncated != nil:
		add(true, fmt.Sprintf("truncated: its body of %d bytes did not fit the bus", e.Truncated.Size))
	}
	return strings.Join(all, "; ")
}

// Authors returns the names of the managers, separated by commas.
func Authors(by []Who) string {
	if len(by) == 0 {
		return "unknown"
	}
	var all []string
	for _, w := range by {
		s := w.Manager
		if w.Subresource != "" {
			s += "/" + w.Subresource
		}
		all = append(all, s)
	}
	return strings.Join(all, ", ")
}
