package main

import (
	"context"
	"errors"
	"os"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/operate/move"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// sinkKind is the bus of a configured sink.
type sinkKind struct{ *bus.Bus }

// kindOf describes the bus of a configured sink.
func kindOf(c *config.Config, s *config.Sink) sinkKind {
	setup := c.Setup(s)
	setup.Stdout = document(os.Stdout)
	return sinkKind{s.Block().Bus(setup)}
}

// openBoth opens a sink and its checkpoint. The checkpoint is on the bus if the bus keeps it there, else in directory, or in
// memory if directory is empty.
func (k *sinkKind) openBoth(
	ctx context.Context, directory string, id event.Identity, log *zap.Logger,
) (sink.Sink, bridge.OpenStore, error) {
	if k.OpenBoth != nil {
		return k.OpenBoth(id, log)
	}
	store, err := openDirectory(directory, id)
	if err != nil {
		return nil, nil, err
	}
	if k.Checkpoint != nil {
		if err := move.Settle(ctx, move.End{Store: store, Name: "directory " + directory}, k.Checkpoint(id)); err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
	}
	to, err := k.Open(id, log)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return to, store, nil
}

func openDirectory(path string, id event.Identity) (*file.Store, error) {
	if path == "" {
		return file.OpenMem(id)
	}
	return file.Open(path, id, file.Options{})
}

// routeOf returns the route of events. A resource's own templates take precedence over the templates of the sink.
func (k *sinkKind) routeOf(templates *bus.Resource) encode.Route {
	if k.Route == nil {
		return encode.Route{}
	}
	return encode.Route(k.Route(templates))
}

// sinkIdentity returns the identity of a sink's events without the UID of the cluster, which the configuration does not have.
func sinkIdentity(c *config.Config, s *config.Sink) event.Identity { return c.Setup(s).Identity }
