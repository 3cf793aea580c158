package config

import "github.com/kubebridge/kubebridge/pkg/event"

// format checks the format of events in a sink's messages.
func (p *problems) format(path string, s *Sink) {
	if s.Format == "" {
		s.Format = event.Structured.String()
	}
	p.oneOf(path, s.Format, event.Structured.String(), event.Binary.String(), event.Plain.String())
	if s.traits().Lines && s.Format == event.Binary.String() {
		p.add(path, "%q: a line has no headers, and would lack the attributes: use structured, or plain for the objects alone", s.Format)
	}
}
