package bus

import (
	"fmt"
	"net"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/shape"
)

// Mistakes takes what is found in a configuration. A path is that of a setting: sinks[0].kafka.topic.
type Mistakes interface {
	// Add records a mistake: the configuration is rejected.
	Add(path, format string, args ...any)
	// Warn records a setting that works but looks unintended.
	Warn(path, format string, args ...any)
	// IsWrong reports whether a mistake is recorded at a path, or anywhere with "".
	IsWrong(path string) bool
	// Use records that a setting of a resource is used by a sink.
	Use(path string)
}

// Checker is the check of one sink.
type Checker struct {
	Mistakes
	*Setup
	Sink   string // path of the sink
	At     string // path of its block
	Before []Other
}

// Other is a sink before the one that is checked.
type Other struct {
	Name   string
	Config Config
}

// Bad records an error at a path, unless a mistake is recorded there: a resource may be in several sinks.
func (c *Checker) Bad(at string, err error) {
	if err == nil || c.IsWrong(at) {
		return
	}
	c.Add(at, "%s", strings.TrimPrefix(err.Error(), at[strings.LastIndexByte(at, '.')+1:]+": "))
}

// Parse checks a template.
func (c *Checker) Parse(at, template string, names []string) bool {
	_, err := shape.ParseTemplate(template, names)
	c.Bad(at, err)
	return err == nil
}

// Apart records a mistake if a sink before this one needs the same file, port or stream. what is what both would do with it, and the remedy.
func Apart[C Config](c *Checker, at, what string, clash func(other C) bool) {
	for _, other := range c.Before {
		if its, ok := other.Config.(C); ok && clash(its) {
			c.Add(at, "sinks %q and %q would both %s", other.Name, c.Identity.Sink, what)
			return
		}
	}
}

// IsLocal reports whether a host, or host:port, is reachable only from this machine.
func IsLocal(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

// CompleteDeadLetter sets the place of dead letters to its defaults if the sink needs one, and rejects one that the sink would not use.
func CompleteDeadLetter[T any](s *Setup, at **T) error {
	switch wanted := s.Oversize == OversizeDeadLetter; {
	case wanted && *at == nil:
		*at = new(T)
	case !wanted && *at != nil:
		return fmt.Errorf("deadLetter: it is not used with oversize %q: leave it out, or set `oversize: dead-letter`", s.Oversize)
	}
	return nil
}
