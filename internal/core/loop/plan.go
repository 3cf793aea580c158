package loop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Wanted is a collection that the plan wants.
type Wanted struct {
	ID string
	// Properties returns the properties of the collection. It is called once, from the goroutine of
	// [Loop.Run], before Use and Keep. An error ends the loop.
	Properties func() (reconcile.Properties, error)
	// Use makes the reader and the encoder use the settings of the collection. It is called from the goroutine of [Loop.Run]. nil: they
	// already do.
	Use func()
	// Keep makes the reader and the encoder use the settings with the given properties, which are in effect, instead: what was recorded by
	// them is published first. It returns false, and changes nothing, if no recording waits or is read, or if the settings are not
	// known. It is called as Use is. nil: nothing is recorded.
	Keep func(present reconcile.Properties) bool
	// SyncedEvery, ResyncEvery and VerifyEvery are the intervals of periodic synced events, resyncs
	// and verifications; 0: never.
	SyncedEvery, ResyncEvery, VerifyEvery time.Duration
}

// wantedCollection is a collection of the present plan.
type wantedCollection struct {
	Wanted
	next       reconcile.Properties // that are wanted
	properties reconcile.Properties // that are in effect
	edit       editState
	// Times of the last synced event, the last verification and, for resyncDue, the last resync; zero: none since the start. See passed.
	synced, verified, resynced time.Time
	confirmed                  confirmation
	// After a failed list beside the watch, the next one begins at retryAt, after a pause; zero: the last one did not fail.
	retryAt time.Time
	pause   time.Duration
	// demanded is the lowest run that satisfies the last [Loop.Resync]: the run of a resync or a reset. 0: nothing was demanded.
	demanded uint64
}

// confirmation is what the last periodic synced event says: at what position the collection was, and when it was last known to be in step.
type confirmation struct {
	position string
	inStep   time.Time
}

// sideOver is called at the end of a list beside the watch. After a failed one, the next one waits: the pause doubles each time.
func (w *wantedCollection) sideOver(succeeded bool, at time.Time, resync bool) {
	if succeeded {
		w.retryAt, w.pause = time.Time{}, 0
		return
	}
	w.pause = min(max(firstSidePause, 2*w.pause), lastSidePause)
	w.retryAt = at.Add(w.pause)
	if !resync {
		w.verified = w.retryAt.Add(-w.VerifyEvery) // the verification is due again at retryAt
	}
}

// Plan has the collections of a loop.
type Plan struct {
	Outcomes *plan.Outcomes
	// Wanted has one item for each collection in Wanted, Unserved and Ended of Outcomes.
	Wanted []Wanted
}

// Set passes a plan to the loop. A collection that the plan does not name does not change. The caller removes the targets of Outdated of
// Outcomes before the call, and again afterwards: the loop may set them until it takes the plan.
func (l *Loop) Set(ctx context.Context, p Plan) error {
	return l.do(ctx, func(context.Context) error { return l.set(p) })
}

func (l *Loop) set(p Plan) error {
	if err := l.plan.set(p); err != nil {
		return err
	}
	for _, w := range p.Wanted {
		l.adopt(w.ID)
	}
	for _, id := range p.Outcomes.Outdated {
		l.interrupt(id)
	}
	l.batches.noteLatest(l.plan.number()...)
	for _, w := range p.Wanted {
		l.configure(w.ID)
	}
	for _, id := range p.Outcomes.Removed {
		l.step(reconcile.Remove, id)
	}
	return nil
}

// interrupt ends the reading of a collection by the settings of a plan before: see [plan.Outdated]. Until a plan names it again, it is as after a
// restart: see unnamed.
func (l *Loop) interrupt(id string) {
	if w := l.plan.wanted[id]; w != nil && w.edit == waiting {
		l.Observer.EditWaits(id, false)
	}
	delete(l.plan.wanted, id)
	l.core.Interrupt(id)
}

// planState holds the present plan: its wanted collections, its numbers, and the collections whose events
// must still carry the numbers to consumers. Only Run's goroutine uses it.
type planState struct {
	made          bool // there is a plan; no item is encoded before
	outcomes      *plan.Outcomes
	wanted        map[string]*wantedCollection
	removed       map[string]struct{} // collections that the plan has removed
	numbers       plan.Numbers
	announcements map[string]struct{} // by keys in the store: see announce
	proved        []string            // collections that were absent when the plan was made
}

func newPlanned() *planState {
	return &planState{wanted: map[string]*wantedCollection{}, removed: map[string]struct{}{}, announcements: map[string]struct{}{}}
}

// set applies a plan, except for its settings: see [Loop.adopt].
func (n *planState) set(p Plan) error {
	for _, w := range p.Wanted {
		properties, err := w.Properties()
		if err != nil {
			return fmt.Errorf("collection %s: %w", w.ID, err)
		}
		next := &wantedCollection{Wanted: w, next: properties}
		if before := n.wanted[w.ID]; before != nil {
			next.properties, next.edit = before.properties, before.edit
			next.synced, next.verified, next.resynced = before.synced, before.verified, before.resynced
			next.confirmed = before.confirmed
			next.retryAt, next.pause, next.demanded = before.retryAt, before.pause, before.demanded
		}
		n.wanted[w.ID] = next
		delete(n.removed, w.ID)
	}
	for _, id := range p.Outcomes.Removed {
		delete(n.wanted, id)
		n.removed[id] = struct{}{}
	}
	n.made, n.outcomes = true, p.Outcomes
	return nil
}

// number gives the plan its number, if the collections or the settings that are in effect have changed. An edit that waits does not count, so
// that no event carries its number before the gap of the edit. It returns the changes of the store that must be durable before the next event.
func (n *planState) number() (notes []event.KV) {
	next, changes := n.numbers.Next(n.outcomes, func(c *plan.Collection) string { return digest(n.wanted[c.ID()].properties) }, milliseconds(time.Now()))
	value := next.Encode()
	if bytes.Equal(value, n.numbers.Encode()) {
		return nil
	}
	n.numbers = next
	notes = append(notes, event.KV{Key: []byte(plan.Key), Value: value})
	for _, id := range changes.Edited {
		notes = append(notes, n.announce(durable.OwedEditKey(id)))
	}
	for _, resource := range changes.Resources {
		notes = append(notes, n.announce(durable.OwedPlanKey(resource)))
	}
	return notes
}

// digest returns a digest of properties. It does not include Skip, which matters only when a collection
// begins, and FilterText, of which Filter is a digest.
func digest(p reconcile.Properties) string {
	p.Skip, p.FilterText = false, ""
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings, numbers and booleans always encode
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// properties returns the properties of a wanted collection.
func (n *planState) properties(id string) (p reconcile.Properties, wanted bool) {
	w := n.wanted[id]
	if w == nil {
		return p, false
	}
	p = w.properties
	p.Skip = p.Skip && n.numbers.First(id)
	return p, true
}

// announce returns a note that a coming event must carry the numbers of the plan to consumers. The note must be durable
// before the event. The commit of the event removes the note: see announced.
func (n *planState) announce(key []byte) event.KV {
	n.announcements[string(key)] = struct{}{}
	return event.KV{Key: key, Value: []byte("1")}
}

// announced returns the changes that remove the notes of announce for which an event about a collection is enough.
func (n *planState) announced(id string) (changes []event.KV) {
	for _, key := range [][]byte{durable.OwedEditKey(id), durable.OwedPlanKey(Resource(id))} {
		if _, due := n.announcements[string(key)]; due {
			delete(n.announcements, string(key))
			changes = append(changes, event.KV{Key: key})
		}
	}
	return changes
}

// announceAgain restores notes that are not durable yet, after the events that carried the numbers were discarded.
func (n *planState) announceAgain(notes []event.KV) {
	for _, kv := range notes {
		if durable.IsOwed(kv.Key) {
			n.announcements[string(kv.Key)] = struct{}{}
		}
	}
}

// announcementDue reports whether an event about a collection must carry the numbers of the plan.
func (n *planState) announcementDue(id string) bool {
	_, edit := n.announcements[string(durable.OwedEditKey(id))]
	_, resource := n.announcements[string(durable.OwedPlanKey(Resource(id)))]
	return edit || resource
}

// load reads the numbers of the plan and the notes of announce.
func (n *planState) load(store checkpoint.Store) error {
	stored, err := durable.LoadPlan(store)
	if err != nil {
		return err
	}
	if stored.Number > n.numbers.Number {
		n.numbers = stored
	}
	owed, err := durable.Owed(store)
	if err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	for _, key := range owed {
		n.announcements[key] = struct{}{}
	}
	return nil
}

// reborn gives the plan another birth, and returns the note that must be durable before the next event, or nil if there was no
// plan yet.
func (n *planState) reborn(store checkpoint.Store) ([]event.KV, error) {
	if err := n.load(store); err != nil || n.numbers.Birth == 0 {
		return nil, err
	}
	n.numbers = n.numbers.Reborn(milliseconds(time.Now()))
	return []event.KV{{Key: []byte(plan.Key), Value: n.numbers.Encode()}}, nil
}

// Numbers returns the numbers of the plan that events about a collection carry. It is called from Run's goroutine.
func (l *Loop) Numbers(id string) *event.Plan {
	c := event.ParseCollection(id)
	return l.plan.numbers.Of(&c)
}

// unnamed reports whether no plan since the start, or since the last edit of its entry, has said what becomes of a collection of the store, because it
// is not known well enough what the API server has. How events about it are published is not known either.
func (l *Loop) unnamed(id string) bool {
	_, removed := l.plan.removed[id]
	return l.plan.wanted[id] == nil && !removed && l.core.Collection(id) != nil
}

// replaced reports whether every wanted collection of a collection's resource has synced, and none is about to come.
func (n *planState) replaced(id string, core *reconcile.Core) bool {
	if !n.made || n.outcomes.Lacks(id) {
		return false
	}
	for other := range n.wanted {
		if Resource(other) == Resource(id) && !core.Settled(other) {
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

// Known returns the collections that are in the store or wanted, in the form that [plan.Plan.Outcomes] takes.
func (l *Loop) Known(ctx context.Context) ([]plan.Known, error) {
	var all []plan.Known // not used if ctx has ended, because the loop may still write it
	err := l.do(ctx, func(context.Context) error {
		for _, id := range l.core.IDs() {
			all = append(all, l.known(id))
		}
		for id := range l.suspended.until {
			k := plan.Known{ID: id, Held: plan.Objects}
			if w := l.plan.wanted[id]; w != nil {
				k.Selection, k.Storage = w.properties.Selection, w.properties.Storage
			}
			all = append(all, k)
		}
		l.plan.proved = absent(l.core)
		return l.inventory.Err()
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b plan.Known) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// known returns a collection of the core.
func (l *Loop) known(id string) plan.Known {
	c := l.core.Collection(id)
	k := plan.Known{
		ID: id, Held: held(l.core, id), Leaving: c.Phase == reconcile.Leaving || c.Phase == reconcile.Ending && c.Unwanted,
		Selection: c.Properties.Selection, Storage: c.Properties.Storage,
	}
	if reading := l.reads.open[id]; reading != nil && reading.number == l.core.Reading(id).Number {
		k.Read = reading.inStep
	}
	return k
}

// held returns the copy of a collection that consumers have.
func held(core *reconcile.Core, id string) plan.Held {
	switch c := core.Collection(id); {
	case c.Phase == reconcile.Absent && c.Incarnation == 0:
		return plan.NothingExists
	case c.Phase == reconcile.Closed || c.Incarnation == 0:
		return plan.Nothing
	case c.Phase == reconcile.Absent:
		return plan.Gone
	case c.Phase == reconcile.InStep && !core.Holds(id):
		return plan.Empty
	}
	return plan.Objects
}

// absent returns the collections in the phase [reconcile.Absent], sorted.
func absent(core *reconcile.Core) (ids []string) {
	for _, id := range core.Open() {
		if core.Collection(id).Phase == reconcile.Absent {
			ids = append(ids, id)
		}
	}
	return ids
}

// Resync publishes every object of the collections again for which match returns true. It
// returns the IDs of these collections. A collection that has not synced, is suspended, or is resyncing, resyncs after that.
func (l *Loop) Resync(ctx context.Context, match func(id string) bool) ([]string, error) {
	var ids []string // as in Known
	err := l.do(ctx, func(context.Context) error {
		for id, w := range l.plan.wanted {
			if !match(id) {
				continue
			}
			ids = append(ids, id)
			c := l.core.Collection(id)
			switch {
			case c == nil: // suspended
				w.demanded = l.number(time.Now())
			case c.Phase != reconcile.Absent:
				w.demanded = max(l.number(time.Now()), c.Full+1)
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
