package recent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// What an answer has at most. Bodies are what anybody made of an object: a small one can have many lines, and in YAML
// a deep one is large.
const (
	answerBytes = 1 << 20 // of all diffs
	answerLines = 20_000  // of all diffs
	bodyBytes   = 1 << 20 // of a body in YAML
	bodyLines   = 4_000   // of a body in YAML: comparing takes their square
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
	bytes, lines := 0, 0
	for _, k := range slices.Backward(kept) {
		if bytes > answerBytes || lines > answerLines {
			out = append(out, k.show(asked, "no diff: those of later changes take all the room"))
			continue
		}
		shown := k.show(asked, "")
		bytes, lines = bytes+len(shown.Diff), lines+strings.Count(shown.Diff, "\n")
		out = append(out, shown)
	}
	return out
}

// show is what is shown of a change, without a diff where there is a reason against it.
func (k *change) show(asked bool, against string) status.Change {
	out := status.Change{
		Time: k.time.UTC(), Type: k.typ.String(), Namespace: k.namespace, Name: k.name, UID: k.uid,
		ResourceVersion: k.rv, Origin: string(k.origin), Reason: k.reason, ID: k.id, By: []byte("[]"), Who: history.Authors(nil), Users: k.users,
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
	note(history.Note(&event.Received{Type: k.typ, Origin: k.origin, Reason: k.reason, BodyKnown: k.bodyKnown, Truncated: k.truncated, LeftOut: k.leftOut}, false))
	if k.dead != "" {
		note("it went to the dead letters: " + k.dead)
	}
	switch {
	case k.typ != event.Modified:
	case against != "":
		note(against)
	default:
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
	case k.before != nil && (tooLarge(k.before) || tooLarge(k.object)):
		return "", fmt.Sprintf("no diff: in YAML a body may have more than %d lines or %d bytes; `bridge history` shows it", bodyLines, bodyBytes)
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

// tooLarge reports whether an object may be too large in YAML, where each value stands in a line of its own behind two spaces
// for each level, long texts are folded at spaces, and a byte is written as six at most. It takes no memory.
func tooLarge(object []byte) bool {
	lines, folds, depth, deepest := 1, 0, 0, 0
	inText := false
	for i := 0; i < len(object); i++ {
		switch c := object[i]; {
		case inText && c == '\\':
			i++
			if i < len(object) && (object[i] == 'n' || object[i] == 'r' || object[i] == 'u') {
				lines++
			}
		case c == '"':
			inText = !inText
		case inText:
			if c == ' ' {
				folds++
			}
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
			lines++
		case c == '}' || c == ']':
			depth--
		case c == ',':
			lines++
		}
	}
	return lines > bodyLines || 6*len(object)+2*deepest*(lines+folds) > bodyBytes
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
