package config

import (
	"fmt"
	"strings"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

// report takes the mistakes that the blocks of sinks find.
type report struct {
	*problems
	used map[string]bool // settings of resources that a sink uses
}

// Add implements [bus.Mistakes].
func (r report) Add(path, format string, args ...any) { r.add(path, format, args...) }

// Warn implements [bus.Mistakes].
func (r report) Warn(path, format string, args ...any) { r.warn(path, format, args...) }

// IsWrong implements [bus.Mistakes].
func (r report) IsWrong(path string) bool { return path == "" && len(r.list) > 0 || r.wrong[path] }

// Use implements [bus.Mistakes].
func (r report) Use(path string) { r.used[path] = true }

// routes lets each sink's block check itself against what is around it, with the templates of routes; and checks headers.
func (p *problems) routes(c *Config) {
	r := report{p, map[string]bool{}}
	var before []bus.Other
	for i := range c.Sinks {
		s, path := &c.Sinks[i], fmt.Sprintf("sinks[%d]", i)
		k := &bus.Checker{Mistakes: r, Setup: c.Setup(s), Sink: path, Before: before}
		list := "resources"
		if len(s.Resources) > 0 {
			list = join(path, list)
		}
		for j := range k.Resources {
			k.Resources[j].Path = fmt.Sprintf("%s[%d]", list, j)
		}
		b, ok := s.block()
		if ok {
			k.At = join(path, b.kind)
			b.Check(k)
			before = append(before, bus.Other{Name: s.Name, Config: b.Config})
		}
		r.headers(k, ok && b.Traits().Headers)
	}
	r.unrouted("resources", c.Resources)
	for i := range c.Sinks {
		r.unrouted(fmt.Sprintf("sinks[%d].resources", i), c.Sinks[i].Resources)
	}
}

// unrouted records the settings that no sink uses.
func (r report) unrouted(path string, list []Resource) {
	for i, one := range list {
		for _, s := range []struct {
			key, sink string
			set       bool
		}{
			{"topic", "kafka", one.Topic != ""},
			{"key", "kafka", one.Key != ""},
			{"subject", "nats", one.Subject != ""},
			{"headers", kinds("or", withHeaders), len(one.Headers) > 0},
		} {
			if at := fmt.Sprintf("%s[%d].%s", path, i, s.key); s.set && !r.used[at] {
				r.add(at, "it is for a sink of %s, and no such one has this resource: leave it out", s.sink)
			}
		}
	}
}

// headers checks the templates of headers of a sink and its resources.
func (r report) headers(k *bus.Checker, supported bool) {
	if !supported {
		if len(k.Headers) > 0 {
			r.add(k.Sink+".headers", "only messages of %s have headers: leave it out", kinds("and", withHeaders))
		}
		return
	}
	shared := r.parseHeaders(k.Sink+".headers", k.Headers)
	for i := range k.Resources {
		resource := &k.Resources[i]
		at := resource.Path + ".headers"
		if len(resource.Headers) == 0 {
			continue
		}
		first := !r.used[at]
		r.Use(at)
		own, err := shape.ParseHeaders(resource.Headers)
		if err != nil && first {
			r.parseHeaders(at, resource.Headers)
		}
		if all := shared.With(own); err == nil && all.Len() > shape.MaxHeaders {
			k.Bad(at, fmt.Errorf("with those of sink %q they are %d, %d are the most", k.Identity.Sink, all.Len(), shape.MaxHeaders))
		}
	}
}

func withHeaders(t bus.Traits) bool { return t.Headers }

func (r report) parseHeaders(path string, templates map[string]string) shape.Headers {
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
