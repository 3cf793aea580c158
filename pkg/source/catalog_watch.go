package source

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

const (
	// pollCatalog is how often discovery runs without a watch event. If the watches of CRDs and APIServices
	// are forbidden, it is the longest delay of a change.
	pollCatalog = 30 * time.Second
	// retryCatalog is the longest pause after a failed discovery.
	retryCatalog = 5 * time.Second
	// quickest is the minimum time between two rounds of discovery in a burst of changes.
	quickest = 250 * time.Millisecond
)

// Discovery shows a change of a CRD or an APIService one or two seconds later, so it runs several times.
func afterChange() []time.Duration {
	return []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}
}

// definitions returns the resources whose changes change the catalog. A server with custom
// resources and aggregated APIs serves both.
func definitions() []Resource {
	return []Resource{
		{Group: "apiextensions.k8s.io", Version: "v1", Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"},
		{Group: "apiregistration.k8s.io", Version: "v1", Name: "apiservices", Kind: "APIService"},
	}
}

// WatchCatalog calls changed with the first catalog, and again whenever the catalog
// changes, until ctx ends. It returns the error of ctx. It detects
// changes by watching CRDs and APIServices, and by discovery every 30 s. If these
// watches are forbidden, it uses discovery only.
//
// trouble may be nil. It is called with an error because of which the catalog may be out of date
// (discovery fails, CRDs cannot be watched) whenever that error changes, and with nil when
// the error is over. WatchCatalog retries in both cases. Both functions are
// called from WatchCatalog's goroutine, one at a time.
func (c *Client) WatchCatalog(ctx context.Context, changed func(*discovery.Catalog), trouble func(error)) error {
	w := &catalogWatch{client: c, occasion: make(chan struct{}, 1), moved: make(chan struct{}, 1), troubles: map[string]error{}}
	if trouble == nil {
		trouble = func(error) {}
	}
	var watches sync.WaitGroup
	defer watches.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, r := range definitions() {
		watches.Go(func() { w.watch(ctx, r) })
	}
	return w.run(ctx, changed, trouble)
}

type catalogWatch struct {
	client   *Client
	occasion chan struct{} // a CRD or an APIService has changed
	moved    chan struct{} // troubles have changed

	mu       sync.Mutex
	troubles map[string]error // errors by operation
}

func (w *catalogWatch) run(ctx context.Context, changed func(*discovery.Catalog), trouble func(error)) error {
	var (
		known       *discovery.Catalog
		asked, late time.Time // time of the last discovery; time of the last change
		reported    = fmt.Sprint(error(nil))
		retry       = listwatch.NewBackoff()
		next        = time.NewTimer(0)
	)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.moved:
			err := w.trouble()
			if s := fmt.Sprint(err); s != reported {
				reported = s
				trouble(err)
			}
			continue
		case <-w.occasion:
			late = time.Now()
			next.Reset(time.Until(asked.Add(quickest)))
			continue
		case <-next.C:
		}
		asked = time.Now()
		catalog, err := w.client.Catalog(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.note("discovery", err)
		wait := pollCatalog*4/5 + rand.N(pollCatalog*2/5)
		if err != nil {
			wait = min(retry.After(err), retryCatalog)
		} else {
			retry.Reset()
			if known == nil || !known.Equal(catalog) {
				known = catalog
				changed(catalog)
			}
		}
		for _, d := range afterChange() {
			if left := time.Until(late.Add(d)); left > 0 {
				wait = min(wait, left)
				break
			}
		}
		next.Reset(wait)
	}
}

// watch follows one of the definitions until ctx ends.
func (w *catalogWatch) watch(ctx context.Context, r Resource) {
	o := Options{
		Client:  w.client,
		Target:  Target{Resource: r, Collection: event.Collection{Group: r.Group, Resource: r.Name, MetadataOnly: true}},
		Handler: w,
		OnState: func(s State) {
			if s.Err != nil || s.Phase == Watching {
				w.note(r.Name, s.Err)
			}
		},
	}
	for {
		err := NewCollection(o).Run(ctx, event.Position{})
		if ctx.Err() != nil {
			return
		}
		w.note(r.Name, err) // this server does not serve the definition
		if listwatch.Sleep(ctx, pollCatalog) != nil {
			return
		}
	}
}

// Handle implements [Handler]: every change of a definition causes a round of discovery.
func (w *catalogWatch) Handle(_ context.Context, s Signal) error {
	switch s.Kind {
	case ListEnded, Added, Modified, Deleted:
		nudge(w.occasion)
	case ListBegun, Listed, Progress:
	}
	return nil
}

// note records an error of the catalog. nil ends the error, and causes a round of discovery because changes may
// have been missed.
func (w *catalogWatch) note(what string, err error) {
	w.mu.Lock()
	before := w.troubles[what]
	if err == nil {
		delete(w.troubles, what)
	} else {
		w.troubles[what] = fmt.Errorf("%s: %w", what, err)
	}
	w.mu.Unlock()
	if before != nil && err == nil {
		nudge(w.occasion)
	}
	if before != nil || err != nil {
		nudge(w.moved)
	}
}

func (w *catalogWatch) trouble() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for name := range w.troubles {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []error
	for _, name := range names {
		all = append(all, w.troubles[name])
	}
	return errors.Join(all...)
}

func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
