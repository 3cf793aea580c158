package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/kubebridge/internal/access"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/history"
	"github.com/kubebridge/kubebridge/internal/plan"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// pastFlags choose the bus that is read.
type pastFlags struct{ config, sink string }

func (f *pastFlags) define(cmd *cobra.Command) {
	configFlag(cmd, &f.config)
	cmd.Flags().StringVar(&f.sink, "sink", "", "the sink whose bus is read; required if several sinks keep events")
}

// past is a bus that keeps events.
type past struct {
	config *config.Config
	sink   *config.Sink
	routes []history.Route
	plan   plan.Plan // as far as it is known without a cluster
}

// open finds the sink.
func (f *pastFlags) open(ctx context.Context) (*past, error) {
	c, err := loadWith(ctx, f.config, nil) // a kubeconfig that is given is of another cluster
	if err != nil {
		return nil, err
	}
	var found []*config.Sink
	var names []string
	for i := range c.Sinks {
		s := &c.Sinks[i]
		keeps := s.Kafka != nil || s.NATS != nil && s.NATS.Delivery != "at-most-once"
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
		return nil, &exitError{exitConfig, fmt.Errorf("several sinks keep events: give --sink: %s", strings.Join(names, ", "))}
	}
	return nil, &exitError{exitConfig, fmt.Errorf("--sink %s: the sinks that keep events are %s", f.sink, strings.Join(names, ", "))}
}

func newPast(c *config.Config, s *config.Sink) *past {
	p := &past{config: c, sink: s}
	entries, resources := c.Entries(s), c.ResourcesOf(s)
	for i := range entries {
		entries[i].Options = &resources[i]
	}
	p.plan = plan.Make(entries, c.Exclude, access.Builtin(), func(string) ([]string, bool) { return nil, false })
	if s.NATS != nil {
		p.routes = subjectRoutes(c, s)
	} else {
		p.routes = topicRoutes(c, s)
	}
	return p
}

// subjectRoutes are the subjects that a sink's events may have. All are in one stream, in order: it does not matter
// which of them a collection had when.
func subjectRoutes(c *config.Config, s *config.Sink) []history.Route {
	out := []history.Route{{Template: s.NATS.Subject}}
	for _, r := range c.ResourcesOf(s) {
		if of := (history.Route{Template: r.Subject}); r.Subject != "" && !slices.Contains(out, of) {
			out = append(out, of)
		}
	}
	return out
}

// topicRoutes are the topics that a sink's events may be in. The sink's own also has those of resources that are not
// configured any more.
func topicRoutes(c *config.Config, s *config.Sink) []history.Route {
	out := []history.Route{{Template: s.Kafka.Topic}}
	for _, e := range c.ResourcesOf(s) {
		r := history.Route{Template: cmp.Or(e.Topic, s.Kafka.Topic), Resource: resourceID(discovery.Parse(e.Name()))}
		if r.Template != s.Kafka.Topic && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// resourceID is the ID of the resource that a name means, "" for a pattern, and if only the cluster could say.
func resourceID(n discovery.Name) string {
	r, _, err := access.Builtin().Identify(n)
	if n.IsPattern() || err != nil {
		return ""
	}
	c := event.Collection{Group: r.Group, Resource: r.Resource}
	return c.ResourceID()
}

// resourceNames reads the names of resources that somebody asks for.
func resourceNames(args []string) ([]discovery.Name, error) {
	names := discovery.ParseAll(args)
	for _, n := range names {
		err := n.Check()
		if err == nil && n.IsPattern() {
			err = fmt.Errorf("%q is a pattern: name resources, for example pods or deployments.apps", n)
		}
		if err != nil {
			return nil, &exitError{exitConfig, err}
		}
	}
	return names, nil
}

// read connects to the bus.
func (p *past) read(ctx context.Context, resources []discovery.Name, object *history.Name) (sink.Reader, error) {
	id := event.Identity{Bridge: p.config.Name, Cluster: p.config.Cluster, Sink: p.sink.Name}
	if conf := p.sink.Kafka; conf != nil {
		r, err := kafka.NewReader(ctx, kafka.Options{Config: *conf, Identity: id}, history.Topics(p.routes, p.config.Cluster, resources))
		if err != nil {
			return nil, &exitError{exitEnvironment, err}
		}
		if len(r.Parts()) == 0 {
			r.Close()
			var like []string
			for _, of := range p.routes {
				if !slices.Contains(like, of.Template) {
					like = append(like, of.Template)
				}
			}
			return nil, &exitError{exitEnvironment, fmt.Errorf("not covered: there is no topic like %s for %s", strings.Join(like, ", "), orAll(resources))}
		}
		return r, nil
	}
	all, collections := history.Subjects(p.routes, p.config.Cluster, resources, object)
	r, err := nats.NewReader(ctx, nats.ReaderOptions{Config: *p.sink.NATS, Identity: id, Subjects: all, Collections: collections})
	if err != nil {
		return nil, &exitError{exitEnvironment, err}
	}
	return r, nil
}

func orAll(resources []discovery.Name) string {
	if len(resources) == 0 {
		return "any resource"
	}
	var names []string
	for _, n := range resources {
		names = append(names, n.String())
	}
	return strings.Join(names, ", ")
}

// entry is the entry of a collection, as far as it is known without a cluster; nil for none.
func (p *past) entry(c *event.Collection) *config.Resource {
	if e := p.plan.Entry(c); e != nil {
		return e.Options.(*config.Resource)
	}
	return nil
}

// unpublished says which types of event the configuration does not publish of a collection.
func (p *past) unpublished() func(collection string) string {
	return func(collection string) string {
		c := event.ParseCollection(collection)
		all := []string{"added", "modified", "deleted"}
		types := all
		if e := p.entry(&c); e != nil && e.Types != nil {
			types = e.Types
		} else if plan.Expires(&c) {
			types = all[:2]
		}
		return strings.Join(slices.DeleteFunc(all, func(t string) bool { return slices.Contains(types, t) }), " and ")
	}
}

// collection is a collection with its selectors, as the configuration has them. It has no resource if the
// configuration does not have its entry.
func (p *past) collection() func(id string) event.Collection {
	return func(id string) event.Collection {
		c := event.ParseCollection(id)
		e := p.entry(&c)
		if e == nil {
			return event.Collection{}
		}
		fields := slices.DeleteFunc([]string{e.FieldSelector}, func(s string) bool { return s == "" })
		if c.Namespace == "" {
			for _, n := range e.ExcludeNamespaces {
				fields = append(fields, "metadata.namespace!="+n)
			}
		}
		c.LabelSelector, c.FieldSelector, c.MetadataOnly = e.LabelSelector, strings.Join(fields, ","), e.MetadataOnly
		return c
	}
}

// hides reports whether the filter of a collection leaves objects out, and whether a rule takes fields out of them.
// Both are true for a collection that the configuration does not have.
func (p *past) hides() func(collection string) (filtered, dropped bool) {
	return func(collection string) (filtered, dropped bool) {
		c := event.ParseCollection(collection)
		e := p.entry(&c)
		if e == nil {
			return true, true
		}
		for _, r := range p.config.Rules(e) {
			dropped = dropped || r.Concerns(c.Group, c.Resource) && removes(r)
		}
		return e.Filter != "", dropped
	}
}

// removes reports whether a rule takes fields out that a restore would put back.
func removes(r shape.Rule) bool {
	if r.Preset != "" {
		return r.With != shape.WithHash && r.With != shape.WithMask
	}
	return r.With == shape.WithRemove && slices.ContainsFunc(r.Paths, func(path string) bool {
		return path != "status" && !strings.HasPrefix(path, "status.") && path != "metadata.managedFields"
	})
}

// pastError gives an error of reading its exit code.
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

// parsePoint reads what --at and --diff take.
func parsePoint(s string, now time.Time) (history.Point, error) {
	p, err := history.ParsePoint(s)
	if err != nil {
		return p, &exitError{exitConfig, err}
	}
	if p.RV == 0 && p.Time.After(now) {
		return p, &exitError{exitConfig, fmt.Errorf("%s is in the future: it is %s", s, now.UTC().Format(time.RFC3339))}
	}
	return p, nil
}

// pastProgress shows how much has been read: on a terminal in one line, elsewhere in a line every ten seconds.
type pastProgress struct {
	to       io.Writer
	terminal bool
	last     time.Time
	drawn    bool
}

func newPastProgress(to io.Writer) *pastProgress {
	return &pastProgress{to: to, terminal: isTerminal(to), last: time.Now()}
}

func (p *pastProgress) report(now history.Progress) {
	every := progressLine
	if p.terminal {
		every = progressDraw / 5
	}
	if time.Since(p.last) < every {
		return
	}
	p.last = time.Now()
	line := fmt.Sprintf("%s: %d of at most %d messages", now.Doing, now.Messages, now.Of)
	if p.terminal {
		fmt.Fprintf(p.to, "%s%s", clearLine, line)
		p.drawn = true
		return
	}
	fmt.Fprintln(p.to, line)
}

func (p *pastProgress) end() {
	if p.drawn {
		fmt.Fprintf(p.to, "%s", clearLine)
		p.drawn = false
	}
}
