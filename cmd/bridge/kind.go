package main

import (
	"context"
	"errors"
	"io"
	"os"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/operate/access"
	"github.com/kubebridge/kubebridge/internal/operate/move"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	filesink "github.com/kubebridge/kubebridge/pkg/sink/file"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

// sinkKind holds the behaviour of a configured sink that depends on its kind. For a new kind of sink,
// add a function that returns a sinkKind, and a case in kindOf.
type sinkKind struct {
	// shown is the sink's address in the status, without credentials.
	shown status.Sink
	// open makes the sink without its checkpoint.
	open func(id event.Identity, log *zap.Logger) (sink.Sink, error)

	// The fields below are zero for kinds that do not have the feature.

	prints      bool            // on the standard output
	templates   config.Resource // the sink's own, where a resource has its
	deadLetters string          // template of the dead letters' topic or subject
	tombstones  bool            // deletions have null values
	// headers are those of a record's message; nil: the sink writes lines, without routes, keys and headers.
	headers func(*event.Record) []event.Attribute
	// route parses those templates of a resource that this kind uses. They have been validated.
	route func(templates config.Resource) encode.Route
	store *busStore // the checkpoint on the bus; nil: it is kept in a directory
	// onBus returns where the checkpoint is on the bus, also if it is kept in a directory.
	onBus func(id event.Identity) (name string, bus move.Bus)
	// check asks the bus and adds its findings to the check.
	check func(ctx context.Context, b *busCheck)
	// read reads back the events of resources, or of one object; nil: the bus keeps no events.
	read func(ctx context.Context, w wanted) (sink.Reader, error)
	// permissions prints the permissions that the sink needs; nil: it needs none.
	permissions func(w io.Writer, o access.BusOptions, who principals) error
}

// busStore is a checkpoint that is kept on the sink's bus.
type busStore struct {
	open  func(id event.Identity, log *zap.Logger) (sink.Sink, bridge.OpenStore, error) // with its sink
	place place
}

// kindOf describes a configured sink by its kind.
func kindOf(c *config.Config, s *config.Sink) sinkKind {
	switch {
	case s.Kafka != nil:
		return kafkaKind(c, s)
	case s.NATS != nil:
		return natsKind(c, s)
	case s.File != nil:
		return fileKind(s)
	default:
		return stdoutKind(s)
	}
}

func fileKind(s *config.Sink) sinkKind {
	return sinkKind{
		shown: status.Sink{Bus: "file", Address: s.File.Path},
		open: func(event.Identity, *zap.Logger) (sink.Sink, error) {
			return filesink.New(filesink.Options{Config: *s.File})
		},
	}
}

func stdoutKind(s *config.Sink) sinkKind {
	return sinkKind{
		shown: status.Sink{Bus: "stdout"}, prints: true,
		open: func(event.Identity, *zap.Logger) (sink.Sink, error) {
			o := stdout.Options{Config: *s.Stdout}
			if o.Config.Format != stdout.Pretty {
				o.Writer = document(os.Stdout)
			}
			return stdout.New(o)
		},
	}
}

// openBoth opens a sink and its checkpoint. The checkpoint is on the bus if the kind has a store there, else in directory, or in
// memory if directory is empty.
func (k *sinkKind) openBoth(ctx context.Context, directory string, id event.Identity, log *zap.Logger) (sink.Sink, bridge.OpenStore, error) {
	if k.store != nil {
		return k.store.open(id, log)
	}
	store, err := openDirectory(directory, id)
	if err != nil {
		return nil, nil, err
	}
	if k.onBus != nil {
		_, bus := k.onBus(id)
		if err := move.Settle(ctx, move.End{Store: store, Name: "directory " + directory}, bus); err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
	}
	bus, err := k.open(id, log)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return bus, store, nil
}

func openDirectory(path string, id event.Identity) (*file.Store, error) {
	if path == "" {
		return file.OpenMem(id)
	}
	return file.Open(path, id, file.Options{})
}

// routeOf returns the route of events. A resource's own templates take precedence over the templates of the sink.
func (k *sinkKind) routeOf(templates config.Resource) encode.Route {
	if k.route == nil {
		return encode.Route{}
	}
	return k.route(templates)
}

// template parses a template that has been validated; nil for an empty text.
func template(text string, names []string) *shape.Template {
	if text == "" {
		return nil
	}
	t, _ := shape.ParseTemplate(text, names)
	return t
}

// sinkIdentity returns the identity of a sink's events without the UID of the cluster, which the configuration does not have.
func sinkIdentity(c *config.Config, s *config.Sink) event.Identity {
	return event.Identity{Bridge: c.Name, Cluster: c.Cluster, Sink: s.Name}
}
