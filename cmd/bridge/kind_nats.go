package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/operate/access"
	"github.com/kubebridge/kubebridge/internal/operate/inspect"
	"github.com/kubebridge/kubebridge/internal/operate/move"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

func natsKind(c *config.Config, s *config.Sink) sinkKind {
	k := sinkKind{
		shown: status.Sink{Bus: "nats", Address: natsAddress(s.NATS), Delivery: cmp.Or(s.NATS.Delivery, "exactly-once")},
		open: func(id event.Identity, log *zap.Logger) (sink.Sink, error) {
			return nats.New(nats.Options{Config: *s.NATS, Identity: id, Logger: log})
		},
		templates:   config.Resource{Subject: s.NATS.Subject, Headers: s.Headers},
		deadLetters: s.NATS.DeadSubject(sinkIdentity(c, s)),
		headers:     nats.Headers,
		route: func(r config.Resource) encode.Route {
			headers, _ := shape.ParseHeaders(r.Headers)
			return encode.Route{Subject: template(r.Subject, shape.SubjectNames), Headers: headers}
		},
		check: func(ctx context.Context, b *busCheck) {
			b.found(nats.Check(ctx, nats.Options{Config: *s.NATS, Identity: b.id}, c.InNATS(s)))
		},
		permissions: func(w io.Writer, o access.BusOptions, _ principals) error {
			need, err := access.ForNATS(c, s, o)
			if err != nil {
				return &exitError{exitConfig, fmt.Errorf("sink %q: %w", s.Name, err)}
			}
			return need.WriteText(w)
		},
	}
	if s.NATS.Delivery != "at-most-once" {
		k.read = func(ctx context.Context, w wanted) (sink.Reader, error) {
			all, collections := history.Subjects(subjectRoutes(c, s), c.Cluster, w.resources, w.object)
			if w.stays { // the bridge may close collections whose subject is not in the configuration any more
				all = nil
			}
			return nats.NewReader(ctx, nats.ReaderOptions{Config: *s.NATS, Identity: sinkIdentity(c, s), Subjects: all, Collections: collections, Stays: w.stays})
		}
	}
	if s.NATS.IsLog() {
		k.onBus = func(id event.Identity) (string, move.Bus) {
			return "bucket " + nats.BucketName(id), natsBus{c, s, id}
		}
	}
	if c.InNATS(s) {
		k.store = &busStore{
			open: func(id event.Identity, log *zap.Logger) (sink.Sink, bridge.OpenStore, error) {
				o, err := natsStore(c, s, id, log)
				if err != nil {
					return nil, nil, err
				}
				return o.Sink, nats.NewStore(o), nil
			},
			place: natsBucket(c, s),
		}
	}
	return k
}

func natsAddress(n *nats.Config) string {
	if n.Embedded != nil {
		return "embedded, " + n.Embedded.Listen
	}
	var servers []string
	for _, server := range strings.Split(n.URL, ",") {
		servers = append(servers, nats.WithoutCredentials(server))
	}
	return strings.Join(servers, ", ")
}

// natsStore returns the options of a sink's checkpoint on NATS. They need a sink, which is not opened.
func natsStore(c *config.Config, s *config.Sink, id event.Identity, log *zap.Logger) (o nats.StoreOptions, err error) {
	bus, err := nats.New(nats.Options{Config: *s.NATS, Identity: id, Logger: log})
	if err != nil {
		return o, err
	}
	stream, ok := bus.(*nats.Sink)
	if !ok {
		return o, fmt.Errorf("checkpoint.nats: not possible with delivery %s", s.NATS.Delivery)
	}
	return nats.StoreOptions{Sink: stream, Scratch: c.Checkpoint.NATS.Scratch}, nil
}

func natsBucket(c *config.Config, s *config.Sink) place {
	// Each use of the store gets a sink of its own, which is not opened.
	options := func() (nats.StoreOptions, error) { return natsStore(c, s, sinkIdentity(c, s), zap.NewNop()) }
	return place{
		func(ctx context.Context) (string, error) {
			o, err := options()
			if err != nil {
				return "", err
			}
			name, err := nats.FindStore(ctx, o)
			return "bucket " + name, err
		},
		func(ctx context.Context) (info inspect.Checkpoint, err error) {
			o, err := options()
			if err != nil {
				return info, err
			}
			store, id, err := nats.ReadStore(ctx, o)
			if err != nil {
				return info, err
			}
			defer func() { err = errors.Join(err, store.Close()) }()
			return inspect.Describe("bucket "+store.Name(), id, store)
		},
		func(ctx context.Context, empty bool) error {
			o, err := options()
			if err != nil {
				return err
			}
			return nats.ResetStore(ctx, o, empty)
		},
	}
}

// subjectRoutes returns the subjects that a sink's events may have. All of them are in one stream, in order, so it does not
// matter if the subject of a collection has changed over time.
func subjectRoutes(c *config.Config, s *config.Sink) []history.Route {
	out := []history.Route{{Template: s.NATS.Subject}}
	for _, r := range c.ResourcesOf(s) {
		if of := (history.Route{Template: r.Subject}); r.Subject != "" && !slices.Contains(out, of) {
			out = append(out, of)
		}
	}
	return out
}
