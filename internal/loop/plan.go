package loop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/durable"
	"github.com/kubebridge/kubebridge/internal/plan"
	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Wanted is a collection that the plan wants.
type Wanted struct {
	ID string
	// Configure returns the properties of the collection. It is called once, from the goroutine of
	// [Loop.Run]: what the reader and the encoder know of the collection changes at the same
	// time. An error ends the loop.
	Configure func() (reconcile.Properties, error)
	// SyncedEvery, ResyncEvery and VerifyEvery are the intervals of periodic synced events, resyncs
	// and verifications; 0: never.
	SyncedEvery, ResyncEvery, VerifyEvery time.Duration
}

// wanted is a collection of the present plan.
type wanted struct {
	Wanted
	properties reconcile.Properties
	// When it synced and was verified last; zero: not since the start. See passed.
	synced, verified time.Time
}

// Plan says which collections a loop has.
type Plan struct {
	Outcomes *plan.Outcomes
	// Wanted has one item for each collection in Wanted, Unserved and Ended of Outcomes.
	Wanted []Wanted
}

// Set passes on a plan. A collection that it does not name goes on as it is.
func (l *Loop) Set(ctx context.Context, p Plan) error {
	return l.do(ctx, func(context.Context) error { return l.set(p) })
}

func (l *Loop) set(p Plan) error {
	for _, w := range p.Wanted {
		properties, err := w.Configure()
		if err != nil {
			return fmt.Errorf("collection %s: %w", w.ID, err)
		}
		next := &wanted{Wanted: w, properties: properties}
		if before := l.wanted[w.ID]; before != nil {
			next.synced, next.verified = before.synced, before.verified
		}
		l.wanted[w.ID] = next
		delete(l.removed, w.ID)
	}
	for _, id := range p.Outcomes.Removed {
		delete(l.wanted, id)
		l.removed[id] = struct{}{}
	}
	l.number(p.Outcomes)
	for _, w := range p.Wanted {
		l.configure(w.ID)
	}
	for _, id := range p.Outcomes.Removed {
		l.step(reconcile.Remove, id)
	}
	l.planned = true
	return nil
}

// number gives the plan its number.
func (l *Loop) number(o *plan.Outcomes) {
	next, changes := l.numbers.Next(o, func(c *plan.Collection) string { return digest(l.wanted[c.ID()].properties) }, now())
	value := next.Encode()
	if bytes.Equal(value, l.numbers.Encode()) {
		return
	}
	l.numbers = next
	l.filling.notes = append(l.filling.notes, event.KV{Key: []byte(plan.Key), Value: value})
	for _, id := range changes.Edited {
		l.owe(durable.OwedEditKey(id))
	}
	for _, resource := range changes.Resources {
		l.owe(durable.OwedPlanKey(resource))
	}
}

// digest is a digest of properties. Skip, which matters at the begin of a collection only, is left
// out.
func digest(p reconcile.Properties) string {
	p.Skip = false
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings, numbers and booleans
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

func (l *Loop) configure(id string) {
	w := l.wanted[id]
	if _, suspended := l.suspended[id]; w == nil || suspended {
		return
	}
	properties := w.properties
	properties.Skip = properties.Skip && l.numbers.First(id)
	l.core.Step(&reconcile.Input{Kind: reconcile.Configure, Collection: id, Properties: properties, Now: now()})
}

// owe notes that consumers must get an event with the numbers of the plan. The note is durable
// before the event. The commit of the event removes it: see paid.
func (l *Loop) owe(key []byte) {
	l.owed[string(key)] = struct{}{}
	l.filling.notes = append(l.filling.notes, event.KV{Key: key, Value: []byte("1")})
}

// paid returns the changes that remove the notes of owe which an event about a collection fulfils.
func (l *Loop) paid(id string) (changes []event.KV) {
	for _, key := range [][]byte{durable.OwedEditKey(id), durable.OwedPlanKey(Resource(id))} {
		if _, owed := l.owed[string(key)]; owed {
			delete(l.owed, string(key))
			changes = append(changes, event.KV{Key: key})
		}
	}
	return changes
}

// owes reports whether an event about a collection must carry the numbers of the plan.
func (l *Loop) owes(id string) bool {
	_, edit := l.owed[string(durable.OwedEditKey(id))]
	_, resource := l.owed[string(durable.OwedPlanKey(Resource(id)))]
	return edit || resource
}

// loadPlan reads the numbers of the plan and what is owed of them.
func (l *Loop) loadPlan() error {
	stored, err := durable.LoadPlan(l.Store)
	if err != nil {
		return err
	}
	if stored.Number > l.numbers.Number {
		l.numbers = stored
	}
	owed, err := durable.Owed(l.Store)
	if err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	for _, key := range owed {
		l.owed[key] = struct{}{}
	}
	return nil
}

// Numbers returns what events about a collection say of the plan. It is called from Run's goroutine.
func (l *Loop) Numbers(id string) *event.Plan {
	c := event.ParseCollection(id)
	return l.numbers.Of(&c)
}

// replaced reports whether every wanted collection of a collection's resource has synced.
func (l *Loop) replaced(id string) bool {
	for other := range l.wanted {
		if Resource(other) == Resource(id) && !l.core.Settled(other) {
			return false
		}
	}
	return true
}

// Resource is the resource of a collection's ID: "deployments.apps" of "deployments.apps:canary@shop".
func Resource(id string) string {
	if i := strings.IndexAny(id, ":@"); i >= 0 {
		return id[:i]
	}
	return id
}

// Known returns the collections that are in the store or wanted, as [plan.Plan.Outcomes] wants them.
func (l *Loop) Known(ctx context.Context) ([]plan.Known, error) {
	var all []plan.Known // not to be looked at if ctx has ended: the loop may still write it
	err := l.do(ctx, func(context.Context) error {
		for _, id := range l.core.IDs() {
			properties := l.core.Collection(id).Properties
			all = append(all, plan.Known{ID: id, Held: l.held(id), Selection: properties.Selection, Storage: properties.Storage})
		}
		for id := range l.suspended {
			k := plan.Known{ID: id, Held: plan.Objects}
			if w := l.wanted[id]; w != nil {
				k.Selection, k.Storage = w.properties.Selection, w.properties.Storage
			}
			all = append(all, k)
		}
		l.proved = l.absent()
		return l.inventory.Err()
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b plan.Known) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

func (l *Loop) held(id string) plan.Held {
	switch c := l.core.Collection(id); {
	case c.Phase == reconcile.Absent && c.Incarnation == 0:
		return plan.NothingExists
	case c.Phase == reconcile.Closed || c.Incarnation == 0:
		return plan.Nothing
	case c.Phase == reconcile.Absent, c.Phase == reconcile.InStep && !l.core.Holds(id):
		return plan.Empty
	}
	return plan.Objects
}

// absent returns the collections in the phase [reconcile.Absent], sorted.
func (l *Loop) absent() (ids []string) {
	for _, id := range l.core.IDs() {
		if l.core.Collection(id).Phase == reconcile.Absent {
			ids = append(ids, id)
		}
	}
	return ids
}

// Resync has every object of those collections published again for which match returns true. It
// returns their IDs. Collections that are not in step follow when they are.
func (l *Loop) Resync(ctx context.Context, match func(id string) bool) ([]string, error) {
	var ids []string // as in Known
	err := l.do(ctx, func(context.Context) error {
		for id := range l.wanted {
			if match(id) {
				ids = append(ids, id)
				l.step(reconcile.Demand, id)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(ids)
	return ids, nil
}

// do runs f in the loop's goroutine. An error of f also ends the loop. If ctx ends first, do returns,
// and f may still be running. If the loop has ended, f does not run.
func (l *Loop) do(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	call := func(ctx context.Context) error {
		err := f(ctx)
		done <- err
		return err
	}
	select {
	case l.calls <- call:
	case <-l.ended:
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ErrEnded is returned by a method of a loop whose Run has returned. The reason is in what Run returned.
var ErrEnded = errors.New("the sink has ended")
