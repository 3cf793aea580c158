package config

import (
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// The values of [Sink.Oversize].
const (
	oversizeTruncate   = "truncate"
	oversizeDeadLetter = "dead-letter"
	oversizeFail       = "fail"
)

// oversize sets a sink's default place for dead letters if it needs one, and rejects a place
// that the sink would not use.
func (p *problems) oversize(path string, s *Sink) {
	if s.Oversize == "" {
		s.Oversize = oversizeTruncate
	}
	p.oneOf(path+".oversize", s.Oversize, oversizeTruncate, oversizeDeadLetter, oversizeFail)
	wanted := s.Oversize == oversizeDeadLetter
	switch {
	case s.writesLines() && s.Oversize != oversizeTruncate:
		p.add(path+".oversize", "%q: only kafka and nats have a limit: leave it out", s.Oversize)
	case s.Kafka != nil && s.Kafka.DeadLetter != nil && !wanted:
		p.add(path+".kafka.deadLetter", "it is not used with oversize %q: leave it out, or set `oversize: dead-letter`", s.Oversize)
	case s.NATS != nil && s.NATS.DeadLetter != nil && !wanted:
		p.add(path+".nats.deadLetter", "it is not used with oversize %q: leave it out, or set `oversize: dead-letter`", s.Oversize)
	}
	if wanted && s.Kafka != nil && s.Kafka.DeadLetter == nil {
		s.Kafka.DeadLetter = &kafka.DeadLetter{}
	}
	if wanted && s.NATS != nil && s.NATS.DeadLetter == nil {
		s.NATS.DeadLetter = &nats.DeadLetter{}
	}
}
