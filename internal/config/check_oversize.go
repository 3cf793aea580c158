package config

import "github.com/kubebridge/kubebridge/internal/bus"

// oversizeTruncate is the default of [Sink.Oversize].
const oversizeTruncate = "truncate"

// oversize checks what happens to an event that the bus does not take.
func (p *problems) oversize(path string, s *Sink) {
	if s.Oversize == "" {
		s.Oversize = oversizeTruncate
	}
	p.oneOf(path+".oversize", s.Oversize, oversizeTruncate, bus.OversizeDeadLetter, "fail")
	if s.traits().Lines && s.Oversize != oversizeTruncate {
		limited := kinds("and", func(t bus.Traits) bool { return !t.Lines })
		p.add(path+".oversize", "%q: only %s have a limit: leave it out", s.Oversize, limited)
	}
}
