package recent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/internal/history"
	"github.com/kubebridge/kubebridge/internal/status"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Of returns the changes of a sink's collection, newest first. asked says whether its
// events have diffs by configuration: why one has none depends on that.
func (c *Changes) Of(sink, collection string, asked bool) []status.Change {
	var kept []*change
	c.mu.Lock()
	if r := c.rings[place{sink, collection}]; r != nil {
		kept = slices.Clone(r.changes)
	}
	c.mu.Unlock()
	c.looking.Lock()
	defer c.looking.Unlock()
	out := make([]status.Change, 0, len(kept))
	for _, k := range slices.Backward(kept) {
		out = append(out, k.show(asked))
	}
	return out
}

func (k *change) show(asked bool) status.Change {
	out := status.Change{
		Time: k.time.UTC(), Type: k.typ.String(), Namespace: k.namespace, Name: k.name, UID: k.uid,
		ResourceVersion: k.rv, Origin: string(k.origin), Reason: k.reason, ID: k.id, By: []byte("[]"), Who: history.Authors(nil),
	}
	var who []history.Who
	if json.Unmarshal(k.changedBy, &who) == nil {
		out.By, out.Who = k.changedBy, history.Authors(who)
	}
	var notes []string
	note := func(s string) {
		if s != "" {
			notes = append(notes, s)
		}
	}
	note(history.Note(&event.Received{Type: k.typ, Origin: k.origin, Reason: k.reason, BodyKnown: k.bodyKnown, Truncated: k.truncated}, false))
	if k.dead != "" {
		note("it went to the dead letters: " + k.dead)
	}
	if k.typ == event.Modified {
		diff, why := k.diff(asked)
		out.Diff = diff
		note(why)
	}
	out.Note = strings.Join(notes, "; ")
	return out
}

// diff is what changed, as text, or why that is not shown.
func (k *change) diff(asked bool) (diff, why string) {
	var err error
	switch {
	case k.before != nil:
		diff, err = history.Diff(k.before, k.object)
	case k.patch != nil:
		diff, err = patchText(k.patch)
	case k.unkept > 0:
		return "", fmt.Sprintf("no diff: it takes %d bytes, and %d are kept", k.unkept, changeBytes)
	case !asked:
		return "", "no diff: `diff` is off for this resource"
	default:
		return "", "no diff: it is not certain which body was published before"
	}
	switch {
	case err != nil:
		return "", "no diff: " + err.Error()
	case diff == "":
		return "", "nothing but its resourceVersion or managedFields"
	}
	return diff, ""
}

// patchText is a JSON Patch for people: a line for each operation. + adds, - removes, and
// ~ replaces or moves. The values that were there before are not part of it.
func patchText(patch []byte) (string, error) {
	var operations []struct {
		Op, Path, From string
		Value          json.RawMessage
	}
	if err := json.Unmarshal(patch, &operations); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, o := range operations {
		switch {
		case o.Path == "/metadata/resourceVersion":
		case o.Op == "add":
			fmt.Fprintf(&b, "+%s: %s\n", o.Path, o.Value)
		case o.Op == "remove":
			fmt.Fprintf(&b, "-%s\n", o.Path)
		case o.From != "":
			fmt.Fprintf(&b, "~%s: %s of %s\n", o.Path, o.Op, o.From)
		default:
			fmt.Fprintf(&b, "~%s: %s\n", o.Path, o.Value)
		}
	}
	return b.String(), nil
}
