// Package nats is the bus nats: messages in a stream of JetStream, and the checkpoint in a bucket; or plain subjects.
package nats

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// Config is the block of the configuration.
type Config nats.Config

func (c *Config) sink() *nats.Config { return (*nats.Config)(c) }

// Traits implements [bus.Config].
func (c *Config) Traits() bus.Traits {
	t := bus.Traits{Headers: true}
	if c.sink().IsLog() {
		t.Keeps = bus.OnBus // the checkpoint trails the stream, so only a sink with a stream of its own can have it there
	}
	if c.Embedded != nil {
		t.Local = "embedded: its directory cannot be shared by the replicas of leaderElection: run a NATS server of its own and set nats.url"
		t.Dirs = map[string]string{"embedded.dir": c.Embedded.Dir}
	}
	return t
}

// Bus implements [bus.Config].
func (c *Config) Bus(s *bus.Setup) *bus.Bus {
	b := &bus.Bus{
		Kind: "nats", Address: c.address(), Delivery: cmp.Or(c.Delivery, "exactly-once"),
		Open: func(id event.Identity, log *zap.Logger) (sink.Sink, error) {
			return nats.New(nats.Options{Config: *c.sink(), Identity: id, Logger: log})
		},
		Same:        c.same,
		Templates:   bus.Resource{Subject: c.Subject, Headers: s.Headers},
		DeadLetters: c.sink().DeadSubject(s.Identity),
		Headers:     nats.Headers,
		Route: func(r *bus.Resource) bus.Route {
			headers, _ := shape.ParseHeaders(r.Headers)
			return bus.Route{Subject: bus.Template(r.Subject, shape.SubjectNames), Headers: headers}
		},
		Check: func(ctx context.Context, id event.Identity, _ []bus.Target) ([]string, error) {
			return nats.Check(ctx, nats.Options{Config: *c.sink(), Identity: id}, c.keepsCheckpoint(s))
		},
		Permissions: func(w io.Writer, o *bus.PermissionOptions) error {
			needs, err := c.needs(s, o)
			if err != nil {
				return err
			}
			return needs.write(w)
		},
	}
	if c.Delivery != "at-most-once" {
		b.Read = func(ctx context.Context, w bus.Wanted) (sink.Reader, error) { return c.read(ctx, s, w) }
	}
	if c.sink().IsLog() {
		b.Checkpoint = func(id event.Identity) bus.Checkpoint {
			return place{id, func() (nats.StoreOptions, error) { return c.storeOptions(s, id, zap.NewNop()) }}
		}
	}
	if c.keepsCheckpoint(s) {
		b.OpenBoth = func(id event.Identity, log *zap.Logger) (sink.Sink, bus.Opened, error) {
			o, err := c.storeOptions(s, id, log)
			if err != nil {
				return nil, nil, err
			}
			return o.Sink, nats.NewStore(o), nil
		}
	}
	return b
}

// keepsCheckpoint reports whether the sink's checkpoint is kept on the NATS that it writes to.
func (c *Config) keepsCheckpoint(s *bus.Setup) bool { return c.Traits().Keeps.OnBus(s.Directory) }

func (c *Config) address() string {
	if c.Embedded != nil {
		return "embedded, " + c.Embedded.Listen
	}
	var servers []string
	for _, server := range strings.Split(c.URL, ",") {
		servers = append(servers, nats.WithoutCredentials(server))
	}
	return strings.Join(servers, ", ")
}

func (c *Config) same(other bus.Config) bool {
	n, ok := other.(*Config)
	if !ok || c.URL != n.URL || c.Stream.Name != n.Stream.Name || c.Delivery != n.Delivery {
		return false
	}
	return c.Embedded == nil || n.Embedded == nil || c.Embedded.Dir == n.Embedded.Dir
}

// storeOptions returns the options of a sink's checkpoint on NATS. They need a sink, which is not opened.
func (c *Config) storeOptions(s *bus.Setup, id event.Identity, log *zap.Logger) (o nats.StoreOptions, err error) {
	to, err := nats.New(nats.Options{Config: *c.sink(), Identity: id, Logger: log})
	if err != nil {
		return o, err
	}
	stream, ok := to.(*nats.Sink)
	if !ok {
		return o, fmt.Errorf("checkpoint.nats: not possible with delivery %s", c.Delivery)
	}
	return nats.StoreOptions{Sink: stream, Scratch: s.Scratch}, nil
}

type place struct {
	id event.Identity
	// options returns those of another sink each time, which is not opened.
	options func() (nats.StoreOptions, error)
}

// Name implements [bus.Checkpoint].
func (p place) Name() string { return "bucket " + nats.BucketName(p.id) }

// Find implements [bus.Checkpoint].
func (p place) Find(ctx context.Context) (string, error) {
	o, err := p.options()
	if err != nil {
		return "", err
	}
	name, err := nats.FindStore(ctx, o)
	return "bucket " + name, err
}

// Read implements [bus.Checkpoint].
func (p place) Read(ctx context.Context, _ string) (bus.Opened, error) {
	o, err := p.options()
	if err != nil {
		return nil, err
	}
	store, id, err := nats.ReadStore(ctx, o)
	if err != nil {
		return nil, err
	}
	return bus.Stored{Opened: store, Name: "bucket " + store.Name(), ID: id}, nil
}

// Claim implements [bus.Checkpoint].
func (p place) Claim(ctx context.Context, _ string) (bus.Opened, error) {
	o, err := p.options()
	if err != nil {
		return nil, err
	}
	return nats.ClaimStore(ctx, o)
}

// Reset implements [bus.Checkpoint].
func (p place) Reset(ctx context.Context, empty bool) error {
	o, err := p.options()
	if err != nil {
		return err
	}
	return nats.ResetStore(ctx, o, empty)
}
