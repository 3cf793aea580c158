// Package stdout is the bus stdout: lines on the standard output.
package stdout

import (
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

// Config is the block of the configuration.
type Config stdout.Config

// Complete implements [bus.Config].
func (c *Config) Complete(*bus.Setup) error {
	done, err := stdout.Config(*c).Complete()
	*c = Config(done)
	return err
}

// Traits implements [bus.Config].
func (c *Config) Traits() bus.Traits { return bus.Traits{Lines: true, Keeps: bus.Nowhere} }

// Check implements [bus.Config].
func (c *Config) Check(k *bus.Checker) {
	if c.Format == stdout.Pretty && k.Format != event.Structured.String() && k.Format != event.Binary.String() {
		k.Add(k.Sink+".format", "%q: stdout.format pretty does not show it: leave one of the two out", k.Format)
	}
}

// Bus implements [bus.Config].
func (c *Config) Bus(s *bus.Setup) *bus.Bus {
	return &bus.Bus{
		Kind: "stdout", Prints: true,
		Open: func(event.Identity, *zap.Logger) (sink.Sink, error) {
			o := stdout.Options{Config: stdout.Config(*c)}
			if c.Format != stdout.Pretty {
				o.Writer = s.Stdout
			}
			return stdout.New(o)
		},
	}
}
