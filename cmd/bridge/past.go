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
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// pastFlags say which bus is read.
type pastFlags struct{ config, sink string }

func (f *pastFlags) define(cmd *cobra.Command) {
	configFlag(cmd, &f.config)
	cmd.Flags().StringVar(&f.sink, "sink", "", "the sink whose bus is read; may be left out where only one keeps events")
}

// past is a bus that keeps events, and how they got there.
type past struct {
	config *config.Config
	sink   *config.Sink
	routes []history.Route
	goes   history.Goes
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
			return nil, &exitError{exitConfig, fmt.Errorf("--sink %s: its bus keeps no events that could be read back: Kafka and JetStream do", f.sink)}
		case keeps && (f.sink == "" || f.sink == s.Name):
			found = append(found, s)
		}
		if keeps {
			names = append(names, s.Name)
		}
	}
	switch {
	case len(found) == 1:
		return newPast(c, found[0])
	case len(names) == 0:
		return nil, &exitError{exitConfig, errors.New("no sink of the configuration keeps events that could be read back: Kafka and JetStream do")}
	case f.sink == "":
		return nil, &exitError{exitConfig, fmt.Errorf("several sinks keep events: give --sink: %s", strings.Join(names, ", "))}
	}
	return nil, &exitError{exitConfig, fmt.Errorf("--sink %s: those that keep events are %s", f.sink, strings.Join(names, ", "))}
}

// newPast finds out where the sink's events go.
func newPast(c *config.Config, s *config.Sink) (*past, error) {
	if s.Format == event.Plain.String() {
		return nil, &exitError{exitConfig, fmt.Errorf("sink %q: with `format: plain` the bus does not hold what events say: nothing can be rebuilt from it", s.Name)}
	}
	p := &past{config: c, sink: s}
	var err error
	if s.NATS != nil {
		p.routes = subjectRoutes(c, s)
	} else {
		p.routes, p.goes, err = topicRoutes(c, s)
	}
	if err != nil {
		return nil, &exitError{exitConfig, fmt.Errorf("sink %q: %w", s.Name, err)}
	}
	return p, nil
}

// subjectRoutes are where a sink's events may stand. All are in one stream, in order:
// which of them a resource took, and when, is no matter.
func subjectRoutes(c *config.Config, s *config.Sink) []history.Route {
	out := []history.Route{{Template: s.NATS.Subject}}
	for _, r := range c.ResourcesOf(s) {
		if of := (history.Route{Template: r.Subject}); r.Subject != "" && !slices.Contains(out, of) {
			out = append(out, of)
		}
	}
	return out
}

// topicRoutes are where a sink's events go, and which resource goes where.
func topicRoutes(c *config.Config, s *config.Sink) ([]history.Route, history.Goes, error) {
	main := history.Route{Template: s.Kafka.Topic, OwnKey: s.Kafka.Key != shape.DefaultKey}
	list := c.ResourcesOf(s)
	if !slices.ContainsFunc(list, func(r config.Resource) bool { return r.Topic != "" || r.Key != "" }) {
		return []history.Route{main}, nil, nil
	}
	entries, err := access.NewEntries(c, s)
	if err != nil {
		return nil, nil, err
	}
	out := []history.Route{main} // also of what is not watched any more
	for _, e := range entries {
		r := history.Route{
			Template: cmp.Or(e.Topic, s.Kafka.Topic), Resource: e.Named(), OwnKey: cmp.Or(e.Key, s.Kafka.Key) != shape.DefaultKey,
		}
		if r != main && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	for _, e := range entries {
		for _, of := range entries {
			if e.What == of.What && cmp.Or(e.Topic, s.Kafka.Topic) != cmp.Or(of.Topic, s.Kafka.Topic) {
				return nil, nil, fmt.Errorf("resource %q has entries with several topics: what is where cannot be told, and so not be read back", e.Name())
			}
		}
	}
	type place struct{ group, resource, topic string }
	known := map[place]bool{}
	return out, func(group, resource, topic string) bool {
		at := place{group, resource, topic}
		is, ok := known[at]
		if !ok {
			template := s.Kafka.Topic
			if e := entries.Of(group, resource); e != nil {
				template = cmp.Or(e.Topic, template)
			}
			t, err := shape.ParseTemplate(template, shape.TopicNames)
			is = err == nil && t.Topic(shape.Values{Cluster: c.Cluster, Group: group, Resource: resource}) == topic
			known[at] = is
		}
		return is
	}, nil
}

// read connects to the bus.
func (p *past) read(ctx context.Context, resources []string, object *history.Name) (sink.Reader, error) {
	id := event.Identity{Bridge: p.config.Name, Cluster: p.config.Cluster, Sink: p.sink.Name}
	if conf := p.sink.Kafka; conf != nil {
		r, err := kafka.NewReader(ctx, kafka.ReaderOptions{
			Config: *conf, Identity: id, Topics: history.Topics(p.routes, p.config.Cluster, resources, object),
		})
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

func orAll(resources []string) string {
	if len(resources) == 0 {
		return "any resource"
	}
	return strings.Join(resources, ", ")
}

// untold says which types of event a resource does not tell, by the configuration.
func (p *past) untold(resource string) string {
	c := event.ParseCollection(resource)
	types, named := []string(nil), false
	for _, r := range p.config.ResourcesOf(p.sink) {
		first, rest, _ := strings.Cut(r.Resource, ".")
		group := r.Group
		if group == "" {
			group = rest
		}
		wild := first == "*"
		switch {
		case first != c.Resource && !wild, wild && named:
			continue
		case group != "" && group != "*" && group != c.GroupOrCore() && !strings.HasSuffix(group, "."+c.Group):
			continue
		}
		types, named = r.Types, named || !wild
	}
	all := []string{"added", "modified", "deleted"}
	if types == nil && (resource == "events" || resource == "events.events.k8s.io") {
		types = all[:2] // their deletions are mere expiry
	}
	if types == nil {
		return ""
	}
	return strings.Join(slices.DeleteFunc(all, func(t string) bool { return slices.Contains(types, t) }), " and ")
}

// hides reports whether the configuration lets a filter leave objects of a resource out, and whether a rule takes
// fields out of them. Both are true for a resource that no entry is known to mean.
func (p *past) hides() func(resource string) (filtered, dropped bool) {
	entries, err := access.NewEntries(p.config, p.sink)
	return func(resource string) (filtered, dropped bool) {
		c := event.ParseCollection(resource)
		first := entries.Of(c.Group, c.Resource)
		if err != nil || first == nil {
			return true, true
		}
		for _, e := range entries {
			if e.What != first.What {
				continue
			}
			filtered = filtered || e.Filter != ""
			for _, r := range p.config.Rules(&e.Resource) {
				here := len(r.Resources) == 0 || slices.ContainsFunc(r.Resources, func(of string) bool { return shape.Matches(of, c.Group, c.Resource) })
				dropped = dropped || here && removes(r)
			}
		}
		return filtered, dropped
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

// pastProgress shows how far the reading is: a line that is drawn anew on a terminal,
// one now and then elsewhere.
type pastProgress struct {
	to       io.Writer
	terminal bool
	last     time.Time
	drawn    bool
}

func newPastProgress(to io.Writer) *pastProgress {
	return &pastProgress{to: to, terminal: isTerminal(to), last: time.Now()}
}

func (p *pastProgress) tell(now history.Progress) {
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
