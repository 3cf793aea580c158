package main

import (
	"context"
	"errors"
	"io"
	"os"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/access"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/encode"
	"github.com/kubebridge/kubebridge/internal/history"
	"github.com/kubebridge/kubebridge/internal/pipeline"
	"github.com/kubebridge/kubebridge/internal/status"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	filesink "github.com/kubebridge/kubebridge/pkg/sink/file"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// sinkKind is what the program does with a configured sink that depends on its kind. A new kind of sink
// has a function that makes one, and a case in kindOf.
type sinkKind struct {
	// shown is what the status shows of where it writes, without credentials.
	shown status.Sink
	// open makes the sink alone.
	open func(id event.Identity, log *zap.Logger) (sink.Sink, error)

	// The rest is the zero value where a kind does not have it.

	prints      bool            // on the standard output
	templates   config.Resource // the sink's own, where a resource has its
	deadLetters string          // template of their topic or subject
	tombstones  bool            // deletions have null values
	// headers are those of a record's message; nil: the sink writes lines, without routes, keys and headers.
	headers func(*event.Record) []event.Attribute
	// route parses the templates of a resource that are for this kind. They have been checked.
	route func(templates config.Resource) encode.Route
	store *busStore // the checkpoint on the bus; nil: it is kept in a directory
	// check asks the bus, and adds what it finds to the check.
	check func(ctx context.Context, b *busCheck)
	// read reads back the events of resources, or of one object; nil: the bus keeps no events.
	read func(ctx context.Context, resources []discovery.Name, object *history.Name) (sink.Reader, error)
	// permissions prints what has to be granted; nil: nothing.
	permissions func(w io.Writer, o access.BusOptions, who principals) error
}

// busStore is a checkpoint that is kept on the sink's bus.
type busStore struct {
	open  func(id event.Identity, log *zap.Logger) (sink.Sink, pipeline.OpenStore, error) // with its sink
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

// openBoth opens a sink and its checkpoint, which is in a directory where the bus does not keep it; without one it is in memory.
func (k *sinkKind) openBoth(directory string, id event.Identity, log *zap.Logger) (sink.Sink, pipeline.OpenStore, error) {
	if k.store != nil {
		return k.store.open(id, log)
	}
	store, err := openDirectory(directory, id)
	if err != nil {
		return nil, nil, err
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

// routeOf is where events go by the templates of a sink, or by those that a resource has of its own.
func (k *sinkKind) routeOf(templates config.Resource) encode.Route {
	if k.route == nil {
		return encode.Route{}
	}
	return k.route(templates)
}

// template parses a template that has been checked, nil for none.
func template(text string, names []string) *shape.Template {
	if text == "" {
		return nil
	}
	t, _ := shape.ParseTemplate(text, names)
	return t
}

// sinkIdentity is the identity of a sink's events without the UID of the cluster, which only the cluster knows.
func sinkIdentity(c *config.Config, s *config.Sink) event.Identity {
	return event.Identity{Bridge: c.Name, Cluster: c.Cluster, Sink: s.Name}
}
