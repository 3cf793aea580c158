package stdout

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// printer writes events for people.
type printer struct{ color bool }

// Line returns a function that appends an event in the format [Pretty].
func Line(color bool) func(dst []byte, r *event.Record) []byte { return printer{color}.append }

// ANSI colours of the types.
var colors = map[event.Type]string{
	event.Added: "32", event.Modified: "33", event.Deleted: "31", event.Present: "36",
	event.Gap: "35", event.Synced: "34", event.Closed: "90", event.Attributed: "90", event.Denied: "33", event.Lost: "35",
}

func (p printer) append(dst []byte, r *event.Record) []byte {
	e := r.Event
	dst = e.Time.Local().AppendFormat(dst, "15:04:05.000 ")
	word := fmt.Sprintf("%-8s", strings.ToUpper(e.Type.String()))
	if p.color {
		word = "\x1b[" + colors[e.Type] + "m" + word + "\x1b[0m"
	}
	dst = append(dst, word...)
	text := ""
	if e.Type.OfCollection() {
		text = e.Collection.ID() + ": " + sentence(e)
	} else {
		text = object(e)
	}
	return append(append(append(dst, ' '), terminal.Legible(text)...), '\n')
}

func object(e *event.Event) string {
	name := e.Name
	if e.Namespace != "" {
		name = e.Namespace + "/" + name
	}
	of := e.Collection.ResourceID()
	if e.Collection.Entry != "" {
		of += ":" + e.Collection.Entry
	}
	if l := e.Loss; l != nil {
		return e.Collection.ID() + ": audit records may be missing, until " + l.Until + ": " + l.Detail
	}
	if d := e.Denial; d != nil {
		return strings.Join(strings.Fields(of+" "+name), " ") + " " + string(e.Origin) + ", " + d.Request.Verb + " by " + d.Request.Sender()
	}
	s := fmt.Sprintf("%s %s rv=%s %s", of, name, e.ResourceVersion, e.Origin)
	switch e.Reason {
	case "left":
		s += ", left the selection"
	case "unknown":
		s += ", gone or no longer selected"
	}
	if e.DeletionVersion != "" {
		s += ", ended by rv " + e.DeletionVersion
	}
	if e.Type == event.Deleted && e.Object == nil {
		s += ", last state not known"
	}
	switch a := e.Attribution; {
	case e.Actor != nil:
		s += ", by " + e.Actor.Sender()
	case a == nil:
	case a.Request != nil:
		s += ", " + e.Explained.String() + " by " + a.Request.Sender()
	default:
		s += fmt.Sprintf(", %s by one of %d users or another one, %s", e.Explained, len(a.Candidates), a.Reason)
	}
	if e.Truncated != nil {
		s += fmt.Sprintf(", body of %d bytes left out", e.Truncated.Size)
	}
	return s
}

func sentence(e *event.Event) string {
	r := e.Report
	if r == nil {
		r = &event.Report{}
	}
	var parts []string
	switch e.Type {
	case event.Gap:
		switch {
		case r.Reset:
			parts = append(parts, "a list of all objects begins")
		case r.From != "":
			parts = append(parts, "comparing with the published state, rv "+r.From)
		default:
			parts = append(parts, "comparing with the published state")
		}
	case event.Synced:
		to := r.To
		to = cmp.Or(to, e.ResourceVersion)
		parts = append(parts, "complete up to rv "+to)
		if r.Since != nil {
			parts[0] += fmt.Sprintf(" after %v", e.Time.Sub(*r.Since).Round(time.Millisecond))
		}
		if r.Counts != nil {
			parts = append(parts, counts(r.Counts))
		}
	default:
		parts = append(parts, "no longer watched")
	}
	detail := r.Detail
	if r.Reason == event.ReasonExpired {
		detail = "" // the API server's words for the same
	}
	if why := strings.Join(nonEmpty(string(r.Reason), detail), ", "); why != "" {
		parts = append(parts, why)
	}
	return strings.Join(parts, "; ")
}

// counts lists how many objects were listed, and the other numbers that are not zero.
func counts(c *event.Counts) string {
	parts := []string{fmt.Sprintf("%d listed", c.Listed)}
	for _, n := range []struct {
		n    int
		what string
	}{
		{c.Added, "added"},
		{c.Modified, "modified"},
		{c.Deleted, "deleted"},
		{c.Present, "present"},
		{c.Unchanged, "unchanged"},
		{c.Skipped, "skipped"},
		{c.Filtered, "filtered"},
	} {
		if n.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.n, n.what))
		}
	}
	return strings.Join(parts, ", ")
}

func nonEmpty(all ...string) []string {
	var out []string
	for _, s := range all {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}
