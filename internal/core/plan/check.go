package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// After a CustomResourceDefinition is deleted, discovery still offers its resource for a short time.
// Therefore a collection that discovery has and the server does not find is tried again.
const (
	checkAttempts = 4
	checkPause    = time.Second
	// checkBusy is how long a request that the server answers with 429 is retried. The server answers 429
	// for some seconds while it creates or replaces the storage of a resource.
	checkBusy    = 20 * time.Second
	checkAtATime = 8
)

// Check asks the API server for every resource of the entries and returns all errors: names and
// patterns that match no resource, entries that need a name, selectors that are not supported,
// and missing permissions. warnings are as in [Plan]. Check does not list collections in namespaces
// that a selector selects.
func Check(ctx context.Context, client *source.Client, entries []Entry, exclude []string) (warnings []string, err error) {
	for began, attempt := time.Now(), 1; ; attempt++ {
		p, err := ask(ctx, client, entries, exclude)
		if err != nil {
			return nil, err
		}
		tried := try(ctx, client, p.Collections)
		missing := attempt < checkAttempts && slices.ContainsFunc(tried, apierrors.IsNotFound)
		busy := time.Since(began) < checkBusy && slices.ContainsFunc(tried, apierrors.IsTooManyRequests)
		if missing || busy {
			select {
			case <-time.After(checkPause):
				continue
			case <-ctx.Done():
			}
		}
		for i, err := range tried {
			tried[i] = p.placed(p.Collections[i].Entry, err)
		}
		warnings, wrong := p.problems()
		return warnings, errors.Join(append(wrong, tried...)...)
	}
}

// ask makes the plan of entries, without the namespaces of selectors.
func ask(ctx context.Context, client *source.Client, entries []Entry, exclude []string) (Plan, error) {
	catalog, err := client.Catalog(ctx)
	if err != nil {
		return Plan{}, err
	}
	return Make(entries, exclude, catalog, func(string) ([]string, bool) { return nil, false }, nil), nil
}

// problems returns the warnings and the errors of a plan, except for namespaces that are not known. A name that several resources have is a warning,
// because the checkpoint, which is not read, may say which one the entry has.
func (p *Plan) problems() (warnings []string, wrong []error) {
	warnings, wrong = p.Warnings, []error{p.Err}
	for _, entry := range slices.Sorted(maps.Keys(p.Waiting)) {
		switch err := p.Waiting[entry]; {
		case errors.Is(err, ErrSeveral):
			warnings = append(warnings, p.placed(entry, err).Error())
		case errors.Is(err, ErrNamespacesUnknown), errors.Is(err, ErrContradiction): // p.Err has the latter
		default:
			wrong = append(wrong, p.placed(entry, err))
		}
	}
	return warnings, wrong
}

// placed puts the place of an entry before an error about it.
func (p *Plan) placed(entry string, err error) error {
	i := slices.IndexFunc(p.in.entries, func(e *parsed) bool { return e.String() == entry })
	if err == nil || p.in.entries[i].Place == "" {
		return err
	}
	return fmt.Errorf("%s: %w", p.in.entries[i].Place, err)
}

// try tries each collection.
func try(ctx context.Context, client *source.Client, collections []Collection) []error {
	tried := make([]error, len(collections))
	var group errgroup.Group
	group.SetLimit(checkAtATime)
	for i := range collections {
		group.Go(func() error {
			tried[i] = client.Try(ctx, collections[i].Target)
			return nil
		})
	}
	_ = group.Wait() // each has its own error
	return tried
}
