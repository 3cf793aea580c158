package plan

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// settleTime is the pause before another plan. Discovery may show a change later than a reader has found it.
const settleTime = 2 * time.Second

// FollowerOptions are the options of a follower. All are required.
type FollowerOptions struct {
	Cluster *Cluster // Run by the caller
	// Known returns the collections of the checkpoint. An error ends Run.
	Known func(ctx context.Context) ([]Known, error)
	// Apply takes a new plan, and the collections that it was made with. It is called from Run's goroutine whenever the plan may have changed.
	// An error ends Run.
	Apply func(ctx context.Context, p *Plan, known []Known) error
	// Rejected is called when entries of [Follower.Set] contradict each other or the server. The
	// previous entries stay in force until others are set or the contradiction is over.
	Rejected func(err error)
}

// Follower makes the plans of one sink.
type Follower struct {
	o     FollowerOptions
	again chan struct{}

	mu       sync.Mutex
	set      configuration // the last one
	accepted configuration // the last configuration that could be planned, written by Run; number 0: there is none

	ended bool // Run has returned

	rejected string // the last reported error; only Run's goroutine uses it
}

// configuration is what [Follower.Set] was called with.
type configuration struct {
	number  uint64
	entries []Entry
	exclude []string
}

// NewFollower returns a follower that is not running. Call Set before Run.
func NewFollower(o FollowerOptions) *Follower {
	return &Follower{o: o, again: make(chan struct{}, 1)}
}

// Set changes the configuration. It may be called at any time, and does nothing after Run.
func (f *Follower) Set(entries []Entry, exclude []string) {
	f.mu.Lock()
	f.set = configuration{f.set.number + 1, entries, exclude}
	f.mu.Unlock()
	f.need()
}

// need makes the cluster follow the selectors of both configurations.
func (f *Follower) need() {
	f.o.Cluster.need(f, func() (selectors []string, needed bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return append(f.accepted.selectors(), f.set.selectors()...), !f.ended
	})
}

func (c *configuration) selectors() (all []string) {
	for i := range c.entries {
		if s := c.entries[i].NamespaceSelector; s != "" {
			all = append(all, s)
		}
	}
	return all
}

// Replan makes Run call Apply again. It is called when a reader has found that a resource or a namespace is absent or
// that a collection has ended. Run pauses before, so that discovery can show the same.
func (f *Follower) Replan() {
	select {
	case f.again <- struct{}{}:
	default:
	}
}

// Run makes plans until ctx ends, and then returns nil. If the first configuration cannot be planned,
// it returns a *[ConfigError] or an *[EnvironmentError].
func (f *Follower) Run(ctx context.Context) error {
	f.need()
	defer f.end()
	for {
		catalog, namespaces, changed := f.o.Cluster.now()
		if catalog != nil {
			err := f.apply(ctx, catalog, namespaces)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-f.again:
			select {
			case <-time.After(settleTime):
			case <-ctx.Done():
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *Follower) apply(ctx context.Context, catalog *discovery.Catalog, namespaces Namespaces) error {
	known, err := f.o.Known(ctx)
	if err != nil {
		return err
	}
	p, err := f.plan(func(c configuration) Plan { return Make(c.entries, c.exclude, catalog, namespaces, known) })
	if err != nil {
		return err
	}
	return f.o.Apply(ctx, &p, known)
}

// plan makes the plan of the configuration that was set, or of the one that was accepted before. A
// configuration is contradictory if its entries contradict each other or the server.
//
//	what was set                       plan
//	no contradiction                   made of it; it is accepted
//	contradicts, nothing is accepted   an error
//	contradicts, accepted before       made of it: the cluster has changed, and entries wait
//	contradicts, another is accepted   made of the accepted one; rejected
func (f *Follower) plan(planOf func(configuration) Plan) (Plan, error) {
	f.mu.Lock()
	set := f.set
	f.mu.Unlock()
	p := planOf(set)
	first := f.accepted.number == 0
	switch {
	case p.Err == nil && !first:
		f.accept(set)
	case first:
		if err := errors.Join(p.Err, p.Missing()); err != nil {
			return p, err
		}
		f.accept(set)
	case set.number != f.accepted.number:
		if text := p.Err.Error(); text != f.rejected {
			f.rejected = text
			f.o.Rejected(p.Err)
		}
		return planOf(f.accepted), nil
	}
	return p, nil
}

// end makes the cluster follow the selectors no longer, also if Set is called later.
func (f *Follower) end() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.o.Cluster.forget(f)
}

func (f *Follower) accept(set configuration) {
	f.rejected = ""
	if f.accepted.number == set.number {
		return
	}
	before := f.accepted.selectors()
	f.mu.Lock()
	f.accepted = set
	f.mu.Unlock()
	still := set.selectors()
	if slices.ContainsFunc(before, func(selector string) bool { return !slices.Contains(still, selector) }) {
		f.need()
	}
}
