package pipeline

import (
	"context"
	"errors"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// Check asks the API server for all that a lane needs and returns everything that
// is wrong: names and patterns that mean nothing there, resources asked for twice,
// selectors that are not supported, permissions that are missing. Namespaces that
// a selector chooses are not looked into.
func Check(ctx context.Context, client *source.Client, l LaneResources) error {
	catalog, err := client.Catalog(ctx)
	if err != nil {
		return err
	}
	p := newPlan(l.Resources, l.Exclude, catalog, func(string) ([]string, bool) { return nil, false })
	all := []error{p.err}
	for _, name := range slices.Sorted(maps.Keys(p.waiting)) {
		if err := p.waiting[name]; !errors.Is(err, errNamespacesUnknown) {
			all = append(all, err)
		}
	}
	tried := make([]error, len(p.collections))
	var group errgroup.Group
	group.SetLimit(8)
	for i, w := range p.collections {
		group.Go(func() error {
			tried[i] = client.Try(ctx, w.Target)
			return nil
		})
	}
	_ = group.Wait() // each has its own error
	return errors.Join(append(all, tried...)...)
}
