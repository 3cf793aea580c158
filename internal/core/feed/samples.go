package feed

import (
	"context"
	"fmt"
	"time"

	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// readSamples passes on what the API server has under the keys of samples: see [reconcile.Sample]. Nothing is passed on before it is certain that
// the answers are of the same cluster, because another one lacks all samples.
func (r *Reader) readSamples(ctx context.Context, t source.Target, samples []reconcile.Sample, h *loop.Handler) error {
	slot := r.newSlot()
	if err := slot.Acquire(ctx, source.First); err != nil {
		return err
	}
	defer slot.Release(source.First)
	c := source.NewCollection(source.Options{Client: r.Client, Target: t})
	states := make([]*source.Object, len(samples))
	versions := make([]string, len(samples))
	passed := 0
	defer func() {
		for _, o := range states[passed:] {
			if o != nil {
				o.Release()
			}
		}
	}()
	last := ""
	for i, s := range samples {
		var err error
		if states[i], versions[i], err = c.StateAt(ctx, s.Position, parseKey(s.Key)); err != nil {
			return fmt.Errorf("compare the newest objects with the API server: %w", err)
		}
		if last == "" || event.Newer(versions[i], last) {
			last = versions[i]
		}
	}
	if err := r.Client.SameCluster(ctx, time.Now()); err != nil {
		return fmt.Errorf("compare the newest objects with the API server: %w", err)
	}
	for i, s := range samples {
		passed = i + 1
		if err := r.passSample(ctx, s, states[i], versions[i], h); err != nil {
			return err
		}
	}
	return h.Input(ctx, &reconcile.Input{Kind: reconcile.SideEnded, Version: last}, 0, nil)
}

// passSample passes on the state of a sample at a version; o is nil if the state does not have it.
func (r *Reader) passSample(ctx context.Context, s reconcile.Sample, o *source.Object, version string, h *loop.Handler) error {
	if o == nil {
		lacking := &reconcile.Sighting{Form: reconcile.Lacking, Origin: reconcile.Resync, Key: s.Key, Version: version}
		return h.Input(ctx, &reconcile.Input{Kind: reconcile.Sighted, Sighting: lacking, Version: version}, 0, nil)
	}
	in := r.newSighted(o, reconcile.Resync)
	in.Version = version
	return h.Input(ctx, &in.Input, len(o.Raw), in.release)
}
