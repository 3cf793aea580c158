// Package http is the bus http: requests to a server. It cannot be read back, and the checkpoint is in a directory.
package http

import (
	"fmt"
	"io"
	"net/url"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/http"
)

// Config is the block of the configuration.
type Config http.Config

// Complete implements [bus.Config].
func (c *Config) Complete(*bus.Setup) error {
	done, err := http.Config(*c).Complete()
	*c = Config(done)
	return err
}

// Traits implements [bus.Config].
func (c *Config) Traits() bus.Traits {
	return bus.Traits{Files: map[string]string{"tokenFile": c.TokenFile, "tls.ca": c.TLS.CA, "tls.cert": c.TLS.Cert, "tls.key": c.TLS.Key}}
}

// Check implements [bus.Config].
func (c *Config) Check(k *bus.Checker) {
	k.Parse(k.At+".url", c.URL, shape.TopicNames)
	if k.Oversize == bus.OversizeDeadLetter {
		k.Add(k.Sink+".oversize", "%q: http has no place for dead letters: use truncate or fail", k.Oversize)
	}
	if u, err := url.Parse(http.Config(*c).Address()); err == nil && u.Scheme == "http" && c.TokenFile != "" && !bus.IsLocal(u.Host) {
		k.Warn(k.At+".tokenFile", "the token is sent without TLS: others on the network can read it: begin the address with https://")
	}
}

// Bus implements [bus.Config].
func (c *Config) Bus(*bus.Setup) *bus.Bus {
	return &bus.Bus{
		Kind: "http", Address: http.Config(*c).Address(), Delivery: "at-least-once",
		Open: func(event.Identity, *zap.Logger) (sink.Sink, error) {
			return http.New(http.Options{Config: http.Config(*c)})
		},
		Permissions: func(w io.Writer, _ *bus.PermissionOptions) error {
			_, err := fmt.Fprintln(w, "# The server decides who may send events to it: see http.tokenFile and http.tls.")
			return err
		},
		Headers: func(*event.Record) []event.Attribute { return nil },
		Route: func(*bus.Resource) bus.Route {
			return bus.Route{Topic: bus.Template(c.URL, shape.TopicNames)}
		},
	}
}
