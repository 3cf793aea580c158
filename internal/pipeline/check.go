package pipeline

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// Check asks the API server for all that a lane needs and returns everything that
// is wrong: names and patterns that mean nothing there, resources asked for twice,
// selectors that are not supported, permissions that are missing. Namespaces that
// a selector chooses are not looked into.
func Check(ctx context.Context, client *source.Client, l LaneResources) error {
	for began, attempt := time.Now(), 1; ; attempt++ {
		tried, err := check(ctx, client, l)
		missing := attempt < checkAttempts && slices.ContainsFunc(tried, apierrors.IsNotFound)
		busy := time.Since(began) < checkBusy && slices.ContainsFunc(tried, apierrors.IsTooManyRequests)
		if !missing && !busy {
			return errors.Join(append([]error{err}, tried...)...)
		}
		select {
		case <-ctx.Done():
			return errors.Join(append([]error{err}, tried...)...)
		case <-time.After(checkPause):
		}
	}
}

// Discovery trails the end of a CustomResourceDefinition: a collection that is
// offered and not found is looked for again.
const (
	checkAttempts = 4
	checkPause    = time.Second
	// checkBusy is how long a server is asked again that wants to be asked later. It says so for
	// some seconds of a resource whose storage it makes or replaces.
	checkBusy = 20 * time.Second
)

// check returns what became of each collection, and what else is wrong.
func check(ctx context.Context, client *source.Client, l LaneResources) (tried []error, err error) {
	catalog, err := client.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	p := newPlan(l.Resources, l.Exclude, catalog, func(string) ([]string, bool) { return nil, false })
	all := []error{p.err}
	for _, name := range slices.Sorted(maps.Keys(p.waiting)) {
		if err := p.waiting[name]; !errors.Is(err, errNamespacesUnknown) {
			all = append(all, err)
		}
	}
	tried = make([]error, len(p.collections))
	var group errgroup.Group
	group.SetLimit(8)
	for i, w := range p.collections {
		group.Go(func() error {
			tried[i] = client.Try(ctx, w.Target)
			return nil
		})
	}
	_ = group.Wait() // each has its own error
	return tried, errors.Join(all...)
}
