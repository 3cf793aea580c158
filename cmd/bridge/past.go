package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/operate/status/console"
	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// pastFlags select the bus to read.
type pastFlags struct{ config, sink string }

func (f *pastFlags) define(cmd *cobra.Command) {
	configFlag(cmd, &f.config)
	cmd.Flags().StringVar(&f.sink, "sink", "", "the sink whose bus is read; required if several sinks keep events")
}

// past is a bus that keeps events.
type past struct {
	config *config.Config
	name   string // of the sink
	kind   sinkKind
	plan   plan.Plan // as far as it is known without a cluster
}

// open finds the sink.
func (f *pastFlags) open(cmd *cobra.Command) (*past, error) {
	c, err := loadWith(cmd, f.config, nil) // the flag --kubeconfig means another cluster than the configuration
	if err != nil {
		return nil, err
	}
	var found []*config.Sink
	var names []string
	for i := range c.Sinks {
		s := &c.Sinks[i]
		keeps := kindOf(c, s).Read != nil
		switch {
		case f.sink == s.Name && !keeps:
			return nil, &exitError{exitConfig, fmt.Errorf("--sink %s: its bus keeps no events: only Kafka and JetStream do", f.sink)}
		case keeps && (f.sink == "" || f.sink == s.Name):
			found = append(found, s)
		}
		if keeps {
			names = append(names, s.Name)
		}
	}
	switch {
	case len(found) == 1:
		return newPast(c, found[0]), nil
	case len(names) == 0:
		return nil, &exitError{exitConfig, errors.New("no sink of the configuration keeps events: only Kafka and JetStream do")}
	case f.sink == "":
		return nil, &exitError{exitConfig, fmt.Errorf("several sinks keep events: choose one with --sink: %s", strings.Join(names, ", "))}
	}
	return nil, &exitError{exitConfig, fmt.Errorf("--sink %s: the sinks that keep events are %s", f.sink, strings.Join(names, ", "))}
}

func newPast(c *config.Config, s *config.Sink) *past {
	p := &past{config: c, name: s.Name, kind: kindOf(c, s)}
	entries, resources := c.Entries(s), c.ResourcesOf(s)
	for i := range entries {
		entries[i].Options = &resources[i]
	}
	p.plan = plan.Make(entries, c.Exclude, discovery.Builtin(), func(string) ([]string, bool) { return nil, false }, nil)
	return p
}

// resourceNames parses the names of resources in the arguments. It knows short names and singulars of
// Kubernetes' own resources only, because it does not ask a cluster.
func resourceNames(args []string) ([]discovery.Name, error) {
	names := discovery.ParseAll(args)
	for i, n := range names {
		err := n.Check()
		if err == nil && n.IsPattern() {
			err = fmt.Errorf("%q is a pattern: name resources, for example pods or deployments.apps", n)
		}
		if err != nil {
			return nil, &exitError{exitConfig, err}
		}
		if r, err := discovery.Builtin().FindUnversioned(n); err == nil && r.Name != n.Resource() {
			names[i] = discovery.Parse(r.Name + strings.ToLower(n.String())[len(n.Resource()):])
		}
	}
	return names, nil
}

// didYouMean suggests one of Kubernetes' own resources, or of the configured ones, for a name that the bus does not have.
func (p *past) didYouMean(name discovery.Name) string {
	var known []string
	for _, r := range discovery.Builtin().Match(discovery.Parse("*.*")) {
		known = append(known, r.Name)
	}
	for i := range p.config.Sinks {
		for _, r := range p.config.ResourcesOf(&p.config.Sinks[i]) {
			known = append(known, discovery.Parse(r.Name()).Resource())
		}
	}
	if slices.Contains(known, name.Resource()) {
		return ""
	}
	if near := discovery.Nearest(name.Resource(), known, max(1, len(name.Resource())/4)); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// read connects to the bus.
func (p *past) read(ctx context.Context, w bus.Wanted) (sink.Reader, error) {
	r, err := p.kind.Read(ctx, w)
	if err != nil {
		return nil, &exitError{exitEnvironment, err}
	}
	return r, nil
}

// entry returns the entry of a collection, as far as it is known without a cluster, or nil.
func (p *past) entry(c *event.Collection) *config.Resource {
	if e := p.plan.Entry(c); e != nil {
		return e.Options.(*config.Resource)
	}
	return nil
}

// pastError adds the exit code to an error of reading the bus.
func pastError(err error) error {
	var ambiguous *history.AmbiguousError
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &ambiguous):
		return &exitError{exitConfig, err}
	}
	return &exitError{exitEnvironment, err}
}

// ignored counts the messages that were not written by a bridge.
type ignored struct {
	messages int
	first    error
}

func (i *ignored) add(err error) {
	if i.messages++; i.first == nil {
		i.first = err
	}
}

// print prints the number of ignored messages and the reason of the first.
func (i *ignored) print(w io.Writer) {
	if i.messages > 0 {
		terminal.Show(w, "ignored %s; the first: %v", terminal.Count(i.messages, "message"), i.first)
	}
}

// before parses a time given as a duration before now, such as 10m.
func before(s string, now time.Time) (time.Time, bool) {
	d, err := config.ParseDuration(s)
	return now.Add(-d), err == nil && d > 0
}

// parsePoint parses a value of --at or --diff.
func parsePoint(s string, now time.Time) (history.Point, error) {
	if t, ok := before(s, now); ok {
		return history.Point{Time: t}, nil
	}
	p, err := history.ParsePoint(s)
	if err != nil {
		return p, &exitError{exitConfig, err}
	}
	if p.RV == 0 && p.Time.After(now) {
		return p, &exitError{exitConfig, fmt.Errorf("%s is in the future: the time now is %s", s, now.UTC().Format(time.RFC3339))}
	}
	return p, nil
}

// pastProgress shows how much has been read: on a terminal in one line that is redrawn, otherwise in a new line every ten seconds.
type pastProgress struct {
	out      io.Writer
	terminal bool
	last     time.Time
	drawn    bool
}

func newPastProgress(to io.Writer) *pastProgress {
	return &pastProgress{out: to, terminal: isTerminal(to), last: time.Now()}
}

func (p *pastProgress) report(now history.Progress) {
	every := console.ProgressLine
	if p.terminal {
		every = console.ProgressDraw / 5
	}
	if time.Since(p.last) < every {
		return
	}
	p.last = time.Now()
	line := fmt.Sprintf("%s: %d of at most %d messages", now.Doing, now.Messages, now.Total)
	if p.terminal {
		fmt.Fprintf(p.out, "%s%s", console.ClearLine, line)
		p.drawn = true
		return
	}
	fmt.Fprintln(p.out, line)
}

func (p *pastProgress) end() {
	if p.drawn {
		fmt.Fprintf(p.out, "%s", console.ClearLine)
		p.drawn = false
	}
}
