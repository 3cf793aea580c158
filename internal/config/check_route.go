package config

import (
	"fmt"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// routes checks the templates of routes: the templates of the sinks, and the templates of resources in
// each sink that has the resource.
func (p *problems) routes(c *Config) {
	used := map[string]bool{} // settings of resources that a sink uses
	for i := range c.Sinks {
		s, path := &c.Sinks[i], fmt.Sprintf("sinks[%d]", i)
		r := router{problems: p, config: c, sink: s, used: used}
		r.own(path)
		list := "resources"
		if len(s.Resources) > 0 {
			list = path + ".resources"
		}
		for j, resource := range c.ResourcesOf(s) {
			r.resource(fmt.Sprintf("%s[%d]", list, j), resource)
		}
	}
	p.unrouted("resources", c.Resources, used)
	for i := range c.Sinks {
		p.unrouted(fmt.Sprintf("sinks[%d].resources", i), c.Sinks[i].Resources, used)
	}
}

// unrouted records the settings that no sink uses.
func (p *problems) unrouted(path string, list []Resource, used map[string]bool) {
	for i, r := range list {
		for _, s := range []struct {
			key, sink string
			set       bool
		}{
			{"topic", "kafka", r.Topic != ""},
			{"key", "kafka", r.Key != ""},
			{"subject", "nats", r.Subject != ""},
			{"headers", "kafka or nats", len(r.Headers) > 0},
		} {
			if at := fmt.Sprintf("%s[%d].%s", path, i, s.key); s.set && !used[at] {
				p.add(at, "it is for a sink of %s, and no such one has this resource: leave it out", s.sink)
			}
		}
	}
}

// router checks templates for one sink.
type router struct {
	*problems
	config *Config
	sink   *Sink
	used   map[string]bool
	shared shape.Headers // headers of the sink
}

// bad records a mistake. It records only the first mistake in a place, because a resource may be
// in several sinks.
func (r *router) bad(at string, err error) {
	if err == nil || r.wrong[at] {
		return
	}
	_, field, _ := cutLast(at, ".")
	r.add(at, "%s", strings.TrimPrefix(err.Error(), field+": "))
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, s, false
}

// own checks the sink's templates that the sink does not check itself.
func (r *router) own(path string) {
	if k := r.sink.Kafka; k != nil {
		r.parse(path+".kafka.topic", k.Topic, shape.TopicNames)
		r.parse(path+".kafka.key", k.Key, shape.KeyNames)
	}
	if n := r.sink.NATS; n != nil {
		r.subject(path+".nats.subject", n.Subject)
	}
	if len(r.sink.Headers) == 0 {
		return
	}
	if !r.sink.hasMessages() {
		r.add(path+".headers", "only messages of kafka and nats have headers: leave it out")
		return
	}
	r.shared = r.headers(path+".headers", r.sink.Headers)
}

func (r *router) parse(at, template string, names []string) bool {
	_, err := shape.ParseTemplate(template, names)
	r.bad(at, err)
	return err == nil
}

// subject parses the template of a NATS subject, and checks that its longest result is within NATS's limit.
func (r *router) subject(at, template string) bool {
	if !r.parse(at, template, shape.SubjectNames) {
		return false
	}
	t, _ := shape.ParseTemplate(template, shape.SubjectNames) // parsed above
	n := t.LongestSubject(r.config.Cluster)
	if n > event.MaxSubject {
		r.bad(at, fmt.Errorf("with the longest names, a subject has %d bytes, and NATS takes %d: leave out what stands there twice", n, event.MaxSubject))
	}
	return n <= event.MaxSubject
}

// headers parses templates of headers and records their mistakes.
func (r *router) headers(path string, templates map[string]string) shape.Headers {
	h, err := shape.ParseHeaders(templates)
	if err == nil {
		return h
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		name, message, _ := strings.Cut(line, ": ")
		r.add(join(path, name), "%s", message)
	}
	return h
}

// resource checks the templates of one resource for each sink that has it.
func (r *router) resource(path string, resource Resource) {
	if k := r.sink.Kafka; k != nil {
		topic, key := k.Topic, k.Key
		if resource.Topic != "" {
			topic = resource.Topic
			r.topic(path+".topic", topic)
		}
		if resource.Key != "" {
			key = resource.Key
			r.used[path+".key"] = true
			if r.parse(path+".key", key, shape.KeyNames) {
				r.bad(path+".key", k.CheckKey(key, topic))
			}
		} else if resource.Topic != "" {
			r.bad(path+".topic", k.CheckKey(key, topic))
		}
		r.length(path, topic, resource)
	}
	if n := r.sink.NATS; n != nil && resource.Subject != "" {
		at := path + ".subject"
		r.used[at] = true
		if r.subject(at, resource.Subject) {
			r.bad(at, n.CheckSubject(resource.Subject, r.config.Cluster))
		}
	}
	if at := path + ".headers"; len(resource.Headers) > 0 && r.sink.hasMessages() {
		first := !r.used[at]
		r.used[at] = true
		own, err := shape.ParseHeaders(resource.Headers)
		if err != nil && first {
			r.headers(at, resource.Headers)
		}
		if all := r.shared.With(own); err == nil && all.Len() > shape.MaxHeaders {
			r.bad(at, fmt.Errorf("with those of sink %q they are %d, %d are the most", r.sink.Name, all.Len(), shape.MaxHeaders))
		}
	}
}

func (r *router) topic(at, template string) {
	r.used[at] = true
	if !r.parse(at, template, shape.TopicNames) {
		return
	}
	r.bad(at, kafka.CheckTopic(template))
	if dead := r.sink.Kafka.DeadLetter; dead != nil && dead.Topic == template {
		r.bad(at, fmt.Errorf("%q is where sink %q puts its dead letters: set another", template, r.sink.Name))
	}
}

// length checks the length of the topic of a named resource. If the name has no group, the group may be
// any.
func (r *router) length(path, template string, resource Resource) {
	t, err := shape.ParseTemplate(template, shape.TopicNames)
	name := discovery.Parse(resource.Name())
	if err != nil || name.IsPattern() {
		return
	}
	group, _ := name.Group()
	if err := kafka.CheckTopic(t.Topic(shape.Values{Cluster: r.config.Cluster, Group: group, Resource: name.Resource(), Entry: resource.Entry})); err != nil && len(r.list) == 0 {
		r.bad(path, err)
	}
}
