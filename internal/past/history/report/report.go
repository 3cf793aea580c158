// Package report shows what history reads to people.
package report

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/internal/past/history/restore"
)

// Coverage prints, for each collection, the list that the state is based on, the resourceVersion reached, and what may be missing.
func Coverage(w io.Writer, s *history.State, at history.Point) {
	for _, line := range leftOut(s) {
		terminal.Show(w, "%s", line)
	}
	for i := range s.Collections {
		c := &s.Collections[i]
		terminal.Show(w, "%s: at %s, from the list of %s (resourceVersion %s), %s", c.Collection, at, c.Base.UTC().Format(time.RFC3339), c.BaseRV, reached(c))
		for _, note := range c.Selection.Notes(c.Collection) {
			terminal.Show(w, "  %s", note)
		}
		if c.Gap != nil {
			terminal.Show(w, "  incomplete: a gap is open since %s (%s): changes may be missing", c.Gap.Time.UTC().Format(time.RFC3339), c.Gap.Report.Reason)
		}
		if c.Behind {
			terminal.Show(w, "  incomplete: the bus does not show that it had reached %s: changes may be missing", at)
		}
		if c.Replaced {
			terminal.Show(w, "  incomplete: the topic keeps only the last event of each object: states that later events have replaced are missing")
		}
		if c.Silent {
			terminal.Show(w, "  the last event of it on the bus is of %s: the bus does not show whether the bridge was watching after that", c.Last.UTC().Format(time.RFC3339))
		}
	}
}

// reached describes up to which resourceVersion a collection was complete.
func reached(c *history.Covered) string {
	switch {
	case c.Reached == "":
		return "complete up to an unknown resourceVersion"
	case c.ReachedEpoch > 1:
		return fmt.Sprintf("complete up to resourceVersion %s of epoch %d", c.Reached, c.ReachedEpoch)
	}
	return "complete up to resourceVersion " + c.Reached
}

// leftOut names the collections and resources that the state leaves out on purpose.
func leftOut(s *history.State) (lines []string) {
	for _, m := range s.Missing {
		if m.LeftOut {
			lines = append(lines, fmt.Sprintf("left out: %s: %s", m.Name, m.Why))
		}
	}
	return lines
}

// State prints objects in a form that kubectl accepts, until ctx ends.
func State(ctx context.Context, out, notes io.Writer, s *history.State, output string) error {
	w := bufio.NewWriter(out)
	if output == "json" {
		fmt.Fprintf(w, `{"apiVersion":"v1","kind":"List","items":[`)
	}
	for i := range s.Objects {
		if err := ctx.Err(); err != nil {
			return err
		}
		o := &s.Objects[i]
		if why := o.Incomplete(); why != "" {
			terminal.Show(notes, "%s %s is not whole: %s", o.ResourceID, o.Name(), why)
		} else if o.Hidden() {
			terminal.Show(notes, "%s %s has values that are hidden on the bus", o.ResourceID, o.Name())
		}
		if output == "json" {
			if i > 0 {
				fmt.Fprintf(w, ",")
			}
			fmt.Fprintf(w, "\n%s", o.Object)
			continue
		}
		text, err := history.YAML(o.Object)
		if err != nil {
			return fmt.Errorf("print %s %s: %w", o.ResourceID, o.Name(), err)
		}
		fmt.Fprintln(w, "---")
		if i == 0 { // once, as YAML comments
			for _, line := range leftOut(s) {
				fmt.Fprintln(w, "# "+terminal.Legible(line))
			}
		}
		fmt.Fprintf(w, "%s", text)
	}
	if output == "json" {
		fmt.Fprintln(w, "]}")
	}
	return w.Flush()
}

// Difference prints the differences of two states for people.
func Difference(out io.Writer, d *history.Difference) error {
	w := bufio.NewWriter(out)
	terminal.Show(w, "%d added, %d removed, %d changed, %d unchanged", d.Added, d.Removed, d.Changed, d.Unchanged)
	for _, o := range d.Objects {
		another := ""
		if o.FormerUID != "" {
			another = "  (deleted and created again: another uid)"
		}
		terminal.Show(w, "%s %s %s%s", map[string]string{"added": "+", "removed": "-", "changed": "~"}[o.What], o.Resource, o.Name, another)
		for _, path := range o.Paths {
			terminal.Show(w, "    %s", path)
		}
		if o.Note != "" {
			terminal.Show(w, "    %s", o.Note)
		}
	}
	return w.Flush()
}

// Restored prints the outcome for an object, for people.
func Restored(w io.Writer, l restore.Line) {
	if l.Why != "" {
		terminal.Show(w, "%-9s %s: %s", l.What, l.Object, l.Why)
		return
	}
	terminal.Show(w, "%-9s %s", l.What, l.Object)
}

const bold, red, green, cyan, plainText = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[0m"

// Change prints a change for people.
func Change(w io.Writer, c *history.Change, paint bool) error {
	style := func(code, s string) string {
		s = terminal.Legible(s)
		if paint && code != "" {
			return code + s + plainText
		}
		return s
	}
	var b strings.Builder
	name := c.Name
	if c.Namespace != "" {
		name = c.Namespace + "/" + name
	}
	fmt.Fprintln(&b, style(bold, fmt.Sprintf("%s  %s  %s %s  by %s", c.Time.UTC().Format(time.RFC3339Nano), c.Type, c.Resource, name, history.Authors(c.By))))
	terminal.Show(&b, "  resourceVersion %s, %s, uid %s", c.ResourceVersion, c.Origin, c.UID)
	if c.FormerUID != "" {
		terminal.Show(&b, "  another object than before: uid was %s", c.FormerUID)
	}
	for _, line := range history.Users(c.Attribution) {
		terminal.Show(&b, "  %s", line)
	}
	if c.Note != "" {
		terminal.Show(&b, "  (%s)", c.Note)
	}
	for line := range strings.Lines(c.Diff) {
		line = strings.TrimRight(line, "\n")
		code := map[byte]string{'@': cyan, '+': green, '-': red}[(line + " ")[0]]
		fmt.Fprintln(&b, "  "+style(code, line))
	}
	fmt.Fprintln(&b)
	_, err := io.WriteString(w, b.String())
	return err
}
