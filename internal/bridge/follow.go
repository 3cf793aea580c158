package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/core/loop"
	planning "github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// followPlan applies a new plan whenever the resources of the sink or the resources that the API server serves change.
func (p *Pipeline) followPlan(ctx context.Context, b *Bridge) error {
	departures := planning.NewDepartures(b.cluster)
	f := planning.NewFollower(planning.FollowerOptions{
		Cluster: b.cluster,
		Known:   p.known,
		Apply: func(ctx context.Context, made *planning.Plan, known []planning.Known) error {
			return p.apply(ctx, made, departures.Outcomes(ctx, made, known), known)
		},
		Rejected: func(err error) { p.log.Error("new configuration rejected; keeping the previous one", zap.Error(err)) },
	})
	p.mu.Lock()
	p.again = f.Replan
	p.mu.Unlock()
	ended := b.follow(p.name, f)
	defer ended()
	err := f.Run(ctx)
	if errors.Is(err, loop.ErrEnded) {
		return nil // Run returns the reason
	}
	return err
}

// follower is a [planning.Follower]; another one in tests.
type follower interface {
	Set(entries []planning.Entry, exclude []string)
}

// follow passes the resources of a sink on to f, now and whenever they change, until ended is called.
func (b *Bridge) follow(sink string, f follower) (ended func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.followers[sink] = f
	wanted := b.entries[sink]
	f.Set(wanted.Entries, wanted.Exclude) // before Reconfigure passes others on
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.followers, sink)
	}
}

func resourcesOf(sinks []SinkSpec) (all []SinkResources) {
	for i := range sinks {
		all = append(all, sinks[i].SinkResources)
	}
	return all
}

// planTrouble logs an error because of which plans may be out of date, repeatedly until it is over.
func (b *Bridge) planTrouble(what string, err error) {
	if b.outage.met(what, err) {
		b.outage.reminder.failed(what, failure{message: "plan update failed; trying again", err: err, advice: advice(err, adviceCollection), fields: []zap.Field{zap.String("what", what)}})
		return
	}
	if err == nil {
		b.outage.reminder.works(what)
	}
}

// Reconfigure changes the resources of sinks. It does not interrupt other sinks, nor collections that do not
// change.
func (b *Bridge) Reconfigure(sinks []SinkResources) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range sinks {
		b.entries[s.Sink] = s
		if f := b.followers[s.Sink]; f != nil {
			f.Set(s.Entries, s.Exclude)
		}
	}
}

// UnknownResourceError is returned when a sink, or every sink if Sink is "", does not watch a resource.
type UnknownResourceError struct{ Sink, Resource string }

func (e *UnknownResourceError) Error() string {
	if e.Sink != "" {
		return fmt.Sprintf("sink %q watches no resource %q", e.Sink, e.Resource)
	}
	return fmt.Sprintf("no sink watches a resource %q", e.Resource)
}

// Resync makes one sink, or all sinks if sink is "", publish the present state of a
// resource, or of one collection by its ID, again. It returns the IDs of the
// collections, or an *[UnknownResourceError] if there are none.
func (b *Bridge) Resync(ctx context.Context, sink, resource string) ([]string, error) {
	b.mu.Lock()
	pipelines, connecting := slices.Clone(b.pipelines), b.connecting
	b.mu.Unlock()
	if connecting != "" {
		return nil, fmt.Errorf("the bridge does not know its cluster yet (%s): try again later", connecting)
	}
	if e := b.o.Elector; e != nil && len(pipelines) == 0 {
		return nil, fmt.Errorf("this process is a standby: ask the leader, %q", e.Status().Holder)
	}
	if sink != "" {
		pipelines = slices.DeleteFunc(pipelines, func(p *Pipeline) bool { return p.name != sink })
	}
	names := b.watchedAs(resource, pipelines)
	if len(names) > 1 {
		return nil, fmt.Errorf("%q may mean %s: write the plural and the group", resource, strings.Join(names, " or "))
	}
	var all []string
	for _, p := range pipelines {
		ids, err := p.Resync(ctx, names[0])
		if err != nil {
			return nil, fmt.Errorf("sink %q: %w", p.name, err)
		}
		all = append(all, ids...)
	}
	if len(all) == 0 {
		return nil, &UnknownResourceError{sink, resource}
	}
	return all, nil
}

// watchedAs returns the resources that a name may mean and that pipelines watch; the name if they watch none of them.
func (b *Bridge) watchedAs(name string, pipelines []*Pipeline) (watched []string) {
	var choices []schema.GroupResource
	if catalog := b.cluster.Catalog(); catalog != nil {
		var clear bool
		if choices, clear = catalog.Choices(discovery.Parse(name)); clear {
			choices = choices[:1]
		}
	}
	for _, r := range choices {
		if slices.ContainsFunc(pipelines, func(p *Pipeline) bool { return p.shows(r.String()) }) {
			watched = append(watched, r.String())
		}
	}
	if len(watched) == 0 {
		return []string{name}
	}
	return watched
}
