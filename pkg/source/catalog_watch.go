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
)

const (
	// pollCatalog is how often the server is asked without an occasion: how long a
	// change goes unseen where CRDs and APIServices may not be watched.
	pollCatalog = 30 * time.Second
	// retryCatalog is the longest wait for a server that could not be asked.
	retryCatalog = 5 * time.Second
	// quickest is the time between two rounds when changes come in a burst.
	quickest = 250 * time.Millisecond
)

// What discovery answers trails a change of a CRD or an APIService by a second or
// two, so it is asked several times.
func afterChange() []time.Duration {
	return []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}
}

// definitions are what the catalog changes with. Both are served wherever custom
// resources and aggregated APIs are.
func definitions() []Resource {
	return []Resource{
		{Group: "apiextensions.k8s.io", Version: "v1", Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"},
		{Group: "apiregistration.k8s.io", Version: "v1", Name: "apiservices", Kind: "APIService"},
	}
}

// WatchCatalog calls changed with what the server serves as soon as that is known,
// and again whenever it changes, until ctx ends. It returns the error of ctx. It sees
// changes by watching CRDs and APIServices, and by asking every 30 s; where those
// watches are forbidden, only by asking.
//
// trouble may be nil. It is called with what keeps the catalog from being up to date
// (discovery fails, CRDs cannot be watched) whenever that changes, and with nil when
// the trouble is over. WatchCatalog keeps trying in either case. Both functions are
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
	occasion chan struct{} // something that the catalog depends on has changed
	moved    chan struct{} // troubles have changed

	mu       sync.Mutex
	troubles map[string]error // by what is in trouble
}

func (w *catalogWatch) run(ctx context.Context, changed func(*discovery.Catalog), trouble func(error)) error {
	var (
		known       *discovery.Catalog
		asked, late time.Time // when the server was asked; when a change was seen
		reported    = fmt.Sprint(error(nil))
		retry       = newBackoff()
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
			wait = min(retry.after(err), retryCatalog)
		} else {
			retry.reset()
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
		w.note(r.Name, err) // this server has no such thing
		if sleep(ctx, pollCatalog) != nil {
			return
		}
	}
}

// Handle implements [Handler]: whatever happens to a definition is an occasion.
func (w *catalogWatch) Handle(_ context.Context, s Signal) error {
	switch s.Kind {
	case ListEnded, Added, Modified, Deleted:
		nudge(w.occasion)
	case ListBegun, Listed, Progress:
	}
	return nil
}

// note keeps what troubles the catalog; nil is: nothing any more, and what was
// missed meanwhile is an occasion.
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
