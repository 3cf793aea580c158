package config

import (
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

// format checks the format of events in a sink's messages.
func (p *problems) format(path string, s *Sink) {
	if s.Format == "" {
		s.Format = event.Structured.String()
	}
	p.oneOf(path, s.Format, event.Structured.String(), event.Binary.String(), event.Plain.String())
	switch {
	case s.writesLines() && s.Format == event.Binary.String():
		p.add(path, "%q: a line has no headers, and would lack the attributes: use structured, or plain for the objects alone", s.Format)
	case s.Stdout != nil && s.Stdout.Format == stdout.Pretty && s.Format != event.Structured.String():
		p.add(path, "%q: stdout.format pretty does not show it: leave one of the two out", s.Format)
	}
}
