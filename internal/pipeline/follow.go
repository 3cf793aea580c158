package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// settleTime is how long discovery may trail what a collection found out itself.
const settleTime = 2 * time.Second

// follow keeps a lane's collections in step with what is configured and what the
// server serves.
func (lane *Lane) follow(ctx context.Context, b *Bridge) error {
	f := follower{bridge: b, lane: lane}
	for {
		s := b.horizon.sight(lane.id.Sink)
		if s.catalog != nil {
			if err := f.apply(ctx, s); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
		}
		select {
		case <-s.changed:
		case <-lane.poke:
			if !pause(ctx, settleTime) {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// follower plans for one lane, again and again.
type follower struct {
	bridge  *Bridge
	lane    *Lane
	asked   LaneResources // the last that could be planned
	planned bool
	skipped []string // as last logged
	matched []string // patterns that matched nothing, as last logged
}

func (s *sight) plan(asked LaneResources) plan {
	return newPlan(asked.Resources, asked.Exclude, s.catalog, s.namespaces)
}

func (f *follower) apply(ctx context.Context, s sight) error {
	log := f.lane.log
	p := s.plan(s.asked)
	problem := p.err
	if !f.planned { // later it is waited for, like everything else
		problem = errors.Join(problem, p.missing(s.asked.Resources))
	}
	switch {
	case problem == nil:
		f.asked, f.planned = s.asked, true
	case !f.planned:
		return fmt.Errorf("sink %q: %w", f.lane.id.Sink, problem)
	default:
		log.Error("this configuration cannot be followed; the one before stays", zap.Error(problem))
		if p = s.plan(f.asked); p.err != nil {
			return nil
		}
	}
	if !slices.Equal(f.skipped, p.skipped) {
		f.skipped = p.skipped
		log.Info("resources that patterns leave out", zap.Strings("skipped", p.skipped))
	}
	if !slices.Equal(f.matched, p.unmatched) {
		if f.matched = p.unmatched; len(p.unmatched) > 0 {
			log.Warn("patterns that match nothing now", zap.Strings("patterns", p.unmatched))
		}
	}
	known, err := f.lane.Known(ctx)
	if err != nil {
		return err
	}
	wanted := make([]Wanted, 0, len(p.collections))
	ids := map[string]bool{}
	for _, w := range p.collections {
		wanted = append(wanted, w)
		ids[w.Target.Collection.ID()] = true
	}
	fates := map[string]Fate{}
	for _, c := range known {
		if ids[c.ID()] {
			continue
		}
		w, fate := f.fate(ctx, c, s, &p)
		switch {
		case w != nil:
			wanted = append(wanted, *w)
		case fate != 0:
			fates[c.ID()] = fate
		}
	}
	waiting := maps.Clone(p.unknown)
	maps.Copy(waiting, p.waiting)
	f.lane.Waiting(waiting)
	return f.lane.Set(ctx, wanted, fates, len(p.waiting) == 0)
}

// fate decides what becomes of a collection that the lane knows and the plan
// lacks: it is kept, though the server does not serve it now; or it has a fate;
// or, with neither, it stays as it is until more is known.
func (f *follower) fate(ctx context.Context, c event.Collection, s sight, p *plan) (*Wanted, Fate) {
	var spec *ResourceSpec
	for i := range f.asked.Resources {
		if r := &f.asked.Resources[i]; f.means(r, &c, s.catalog) {
			spec = r
			break
		}
	}
	planned := slices.ContainsFunc(p.collections, func(w Wanted) bool { return w.Target.Collection.ResourceID() == c.ResourceID() })
	switch {
	case spec == nil && planned:
		return nil, Unselected
	case spec == nil:
		return nil, Removed
	}
	_, waits := p.waiting[spec.Name]
	switch served, err := serves(s.catalog, &c); {
	case err != nil || served && waits: // say, in another version than the one that is asked for
		return nil, 0
	case !served:
		delete(p.waiting, spec.Name)
		return &Wanted{
			Target:  source.Target{Collection: c, Resource: source.Resource{Group: c.Group, Name: c.Resource}},
			Options: spec.CollectionOptions,
		}, 0
	}
	if spec.NamespaceSelector != "" {
		if _, known := s.namespaces(spec.NamespaceSelector); !known {
			return nil, 0
		}
	} else if !planned {
		return nil, Removed // a pattern leaves it out
	}
	if c.Namespace != "" && f.bridge.horizon.absent(ctx, c.Namespace) {
		return nil, Vanished
	}
	return nil, Unselected
}

// serves reports whether the server has a collection's resource in any version;
// an error says that this is not known.
func serves(catalog *source.Catalog, c *event.Collection) (bool, error) {
	switch r, err := catalog.Find(c.ResourceID()); {
	case err == nil:
		return r.Group == c.Group && r.Name == c.Resource, nil
	case errors.Is(err, source.ErrNoResource):
		return false, nil
	default:
		return false, err
	}
}

// means reports whether a spec may mean a collection's resource.
func (f *follower) means(r *ResourceSpec, c *event.Collection, catalog *source.Catalog) bool {
	if source.IsPattern(r.Name) {
		return matches(r.Name, c.Group) && !slices.ContainsFunc(f.asked.Exclude, func(e string) bool {
			return e == c.ResourceID() || source.IsPattern(e) && matches(e, c.Group)
		})
	}
	if found, err := catalog.Find(r.Name); err == nil {
		return found.Group == c.Group && found.Name == c.Resource
	} else if errors.Is(err, source.ErrNotWatchable) {
		return false
	}
	versioned, plain := schema.ParseResourceArg(strings.ToLower(r.Name))
	return plain.Resource == c.Resource && plain.Group == c.Group ||
		versioned != nil && versioned.Resource == c.Resource && versioned.Group == c.Group ||
		plain.Group == "" // a short or bare name that nothing answers to now
}

func matches(pattern, group string) bool {
	g, all := source.PatternGroup(pattern)
	return all || g == group
}

// Reconfigure changes what lanes watch. Lanes that are not named, and collections
// that are asked for as before, go on untouched.
func (b *Bridge) Reconfigure(lanes []LaneResources) {
	for _, l := range lanes {
		b.horizon.ask(l)
		b.mu.Lock()
		b.entries[l.Sink] = l
		f := b.followers[l.Sink]
		b.mu.Unlock()
		if f != nil {
			f.Set(planEntries(l.Resources), l.Exclude)
		}
	}
}

// UnknownResourceError says that no lane that is meant watches what was named.
type UnknownResourceError struct{ Sink, Resource string }

func (e *UnknownResourceError) Error() string {
	if e.Sink != "" {
		return fmt.Sprintf("sink %q watches no resource %q", e.Sink, e.Resource)
	}
	return fmt.Sprintf("no sink watches a resource %q", e.Resource)
}

// Resync has the present state of a resource, or of one collection by its ID,
// announced again by one sink, or all when sink is "". It returns the IDs of the
// collections; the error is an *[UnknownResourceError] when there are none.
func (b *Bridge) Resync(ctx context.Context, sink, resource string) ([]string, error) {
	b.mu.Lock()
	lanes, connecting := slices.Clone(b.lanes), b.connecting
	b.mu.Unlock()
	if connecting != "" {
		return nil, fmt.Errorf("the bridge does not know its cluster yet (%s): try again later", connecting)
	}
	if e := b.o.Elector; e != nil && len(lanes) == 0 {
		return nil, fmt.Errorf("this process is a standby: ask the leader, %q", e.Status().Holder)
	}
	var all []string
	for _, l := range lanes {
		of := l.Status().Sink
		if sink != "" && of != sink {
			continue
		}
		name, catalog := resource, b.horizon.sight(of).catalog
		if b.o.Independent {
			catalog = b.cluster.Catalog()
		}
		if catalog != nil {
			if r, err := catalog.Find(resource); err == nil {
				name = (&event.Collection{Group: r.Group, Resource: r.Name}).ResourceID()
			}
		}
		ids, err := l.Resync(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("sink %q: %w", of, err)
		}
		all = append(all, ids...)
	}
	if len(all) == 0 {
		return nil, &UnknownResourceError{sink, resource}
	}
	return all, nil
}
