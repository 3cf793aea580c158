package console

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/operate/status"
)

// printHead prints the name, version and state of a bridge.
func printHead(out io.Writer, r *status.Report) {
	terminal.Show(out, "%s on %s: %s (version %s, up %s)", r.Name, r.Cluster, r.Word(), r.Version, r.At.Sub(r.Started).Round(time.Second))
	if r.Waiting != "" {
		terminal.Show(out, "waiting for Kubernetes: %s", r.Waiting)
	}
	if e := r.Election; e != nil {
		terminal.Show(out, "leader: %s", cmp.Or(e.Holder, "nobody"))
	}
	if text := r.Elsewhere(); text != "" {
		terminal.Show(out, "%s", text)
	}
	if r.Watches > 0 {
		terminal.Show(out, "open watches: %d", r.Watches)
	}
	if r.Buffer != nil {
		terminal.Show(out, "disk buffer: %s", r.Buffer.Words())
	}
	if r.Audit != nil {
		terminal.Show(out, "audit records: %s", terminal.Cell(r.Audit.Words(r.At)))
	}
	for i := range r.Sinks {
		if a := r.Sinks[i].Attribution; a != nil {
			terminal.Show(out, "attribution, sink %s: %s", terminal.Cell(r.Sinks[i].Name), a.Words())
		}
	}
}

// Print prints all of a status for people.
func Print(out io.Writer, r *status.Report, _ []byte) error {
	printHead(out, r)
	if len(r.Sinks) == 0 && r.Elsewhere() != "" {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSINK\tSTATE\tDELIVERED\tEVENTS/S\tLAG\tWAITING\tERROR")
	for i := range r.Sinks {
		s := &r.Sinks[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%d of %d\t%s\n", terminal.Cell(s.Name), s.Word(), s.Delivered,
			status.Number(s.Rate), status.Seconds(s.Lag), s.Queue.Events, s.Queue.EventCapacity, terminal.Cell(s.Failing))
	}
	fmt.Fprintln(w, "\nCOLLECTION\tSINK\tROUTE\tSTATE\tPOSITION\tLAG\tEVENTS/S\tOBJECTS\tERROR")
	for _, e := range r.Entries() {
		c := e.Collection
		objects, position := status.Unknown, status.Unknown
		if c.Objects != nil {
			objects = strconv.FormatInt(*c.Objects, 10)
		}
		if c.Position != "" {
			position = c.Position
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", terminal.Cell(c.ID), terminal.Cell(e.Sink.Name), terminal.Cell(cmp.Or(c.Route, "the sink's")), terminal.Cell(c.Words()), terminal.Cell(position),
			status.Seconds(c.Lag), status.Number(c.Rate), objects, terminal.Cell(c.Error))
	}
	return w.Flush()
}

// PrintRates prints the rates and the lags of a status, the busiest collections first.
func PrintRates(out io.Writer, r *status.Report, _ []byte) error {
	printHead(out, r)
	if len(r.Sinks) == 0 && r.Elsewhere() != "" {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSINK\tEVENTS/S\tLAG\tWAITING\tDELIVERED")
	for i := range r.Sinks {
		s := &r.Sinks[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\n", terminal.Cell(s.Name), status.Number(s.Rate), status.Seconds(s.Lag), s.Queue.Events, s.Delivered)
	}
	fmt.Fprintln(w, "\nCOLLECTION\tSINK\tEVENTS/S\tLAG\tDELIVERED\tSTATE")
	entries := r.Entries()
	slices.SortStableFunc(entries, func(a, b status.Entry) int {
		return cmp.Or(compareKnown(b.Collection.Rate, a.Collection.Rate), compareKnown(b.Collection.Lag, a.Collection.Lag))
	})
	for _, e := range entries {
		c := e.Collection
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", terminal.Cell(c.ID), terminal.Cell(e.Sink.Name), status.Number(c.Rate), status.Seconds(c.Lag), c.Delivered, terminal.Cell(c.Words()))
	}
	return w.Flush()
}

// compareKnown compares two numbers. nil is an unknown number, which is less than any other.
func compareKnown(a, b *float64) int {
	value := func(n *float64) float64 {
		if n == nil {
			return -1
		}
		return *n
	}
	return cmp.Compare(value(a), value(b))
}
