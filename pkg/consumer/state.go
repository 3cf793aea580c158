package consumer

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// State is a copy of clusters' objects. The zero value is empty and ready. Its
// methods may be called from several goroutines; messages of one partition must
// come in order. All messages of a cluster must come from one sink of one bridge.
type State struct {
	// Compacted must be true if the topics are compacted, or the streams limit the messages per
	// subject, so that messages may be missing that later ones replace. A collection is then
	// complete only while the last message of every partition had AtEnd set. Set it before
	// the first message.
	Compacted bool
	// Remember is the number of deleted objects that are remembered, so that an old message that comes
	// late does not bring one back. 0 means 65536.
	Remember int
	// Durable must be true if Save and Load are used. Set it before the first message.
	Durable bool
	// Lookup, if it is not nil, returns the record with a key as the last Save has written it, or nil. It is for a caller that keeps the objects
	// itself: the copy does not hold them, and what it remembers of each one is in memory only until the next Save. So memory does not grow with the
	// number of objects, but Get, All and Len have none, and Change has no Gone and Shown. Save returns an error of Lookup, and the state is not
	// usable after that. Durable must be set. Set Lookup before the first message.
	Lookup func(key string) ([]byte, error)

	mu          sync.RWMutex
	births      map[string]uint64 // by cluster
	plans       map[resourceKey]plan
	collections map[collectionKey]*collection
	atEnd       map[place]bool
	names       map[Name][]*slot // the slots that hold an object
	ended       []ending         // of the slots of deleted objects, in their order
	endings     uint64           // the number of the last one
	unsaved     *unsaved         // nil: not Durable
	failed      error            // of Lookup
}

// defaultRemember is the default of State.Remember. So many deletions take about 20 MB.
const defaultRemember = 1 << 16

// Name is an object's name in the copy.
type Name struct {
	Cluster   string // the configured name
	Resource  string // "pods", "deployments.apps"
	Namespace string // "" for cluster-scoped objects
	Name      string
}

// NameOf returns the name of an event's object.
func NameOf(e *event.Received) Name {
	return Name{Cluster: e.Cluster, Resource: resourceOf(e), Namespace: e.Namespace, Name: e.Name}
}

func resourceOf(e *event.Received) string {
	c := event.Collection{Group: e.Group, Resource: e.Resource}
	return c.ResourceID()
}

// Change says what one event changed in the copy.
type Change struct {
	// Event is nil if the event changed nothing: it was a repetition, or its collection or incarnation has ended. One of type
	// [event.Attributed] changes nothing either, and is here if its incarnation has not ended: see [Attributions]. Those of the types
	// [event.Denied] and [event.Lost] change nothing, and are here as often as they are read: the ID is the same then.
	Event *event.Received
	// Applied is true if the event itself counts. Event may be set without it, because of the birth that the event has.
	Applied bool
	// Gone are the states of objects that the copy showed before and does not show any more. Shown are
	// the states that it shows now and did not show before. If one of two collections deletes an object that both
	// hold, both may be set. The states are events without their Data.
	Gone, Shown []*event.Received
	// Dropped are the IDs of the collections of the event's cluster whose copy the event has ended: their incarnation has ended, they were
	// closed, or the checkpoint's birth is higher. It may be set although Event is nil.
	Dropped []string
	// Phase is the phase of the message's partition for the event's collection, after the event.
	Phase Phase
}

// Changes reads source until it ends, the caller stops, or ctx is cancelled, and yields the
// changes. It skips repetitions, dead letters and events of unknown types.
//
// For a message that is no event it yields an error that wraps [event.ErrNotEvent]; a
// caller that continues the iteration skips the message. Every other error comes from the source and ends the
// sequence. io.EOF ends the sequence without an error.
func (s *State) Changes(ctx context.Context, source Source) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for {
			m, err := source.Next(ctx)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(Change{}, err)
				}
				return
			}
			change, err := s.Apply(m)
			switch {
			case errors.Is(err, ErrNoEvent), errors.Is(err, event.ErrUnknownType):
				continue
			case err == nil && change.Event == nil:
				continue
			}
			if !yield(change, err) {
				return
			}
		}
	}
}

// Apply applies one message. Errors are those of [Decode]; such a message only advances
// how far its partition was read.
func (s *State) Apply(m Message) (Change, error) {
	e, err := Decode(m)
	return s.Take(m, e), err
}

// Take is Apply for a message for which [Decode] has returned e; nil if it has returned an error.
func (s *State) Take(m Message, e *event.Received) Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	s.atEnd[m.place()] = m.AtEnd
	if e == nil {
		return Change{}
	}
	switch e.Type {
	case event.Attributed:
		return s.attributed(e)
	case event.Denied, event.Lost:
		return Change{Event: e}
	}
	change := Change{}
	if e.Plan != nil {
		s.takePlan(e, &change)
	}
	c := s.collectionOf(e, &change)
	switch {
	case c == nil:
	case e.Type.OfCollection():
		if s.applyCollection(c, e, &m, &change) {
			change.Event = e
		}
	case s.applyObject(c, e, &m, &change):
		change.Event = e
	}
	change.Applied = change.Event != nil
	if c != nil {
		change.Phase = Closed
		if !c.closed {
			change.Phase = c.progressOf(&m).phase
		}
		s.unsaved.read(c.key, m.place())
	}
	if change.Event == nil && len(change.Gone)+len(change.Dropped) > 0 { // the event's birth has ended other collections
		change.Event = e
	}
	return change
}

// begin makes the zero value usable.
func (s *State) begin() {
	if s.collections != nil {
		return
	}
	s.births, s.plans, s.collections = map[string]uint64{}, map[resourceKey]plan{}, map[collectionKey]*collection{}
	s.atEnd, s.names = map[place]bool{}, map[Name][]*slot{}
	if s.Durable {
		s.unsaved = newUnsaved()
	}
}

// attributed returns an event that says who made a change, unless consumers have dropped the object's collection since.
func (s *State) attributed(e *event.Received) Change {
	c := s.collections[collectionKey{e.Cluster, e.Collection}]
	if c == nil || c.closed || e.Incarnation != c.incarnation {
		return Change{}
	}
	return Change{Event: e}
}

// Get returns an object as it is shown: the event without its Data, Before and Patch. If several objects have the name, it returns
// the one with the highest version. The caller must not change it.
func (s *State) Get(n Name) (*event.Received, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var newest *event.Received
	for _, e := range s.shown(n) {
		if newest == nil || compareVersions(e, newest) > 0 {
			newest = e
		}
	}
	return newest, newest != nil
}

// All returns the objects at the time of the call, in the order of their names. While the
// collections of a resource are read to different versions, two objects can have one
// name: one that is already deleted, and its successor. The caller must not change them.
func (s *State) All() iter.Seq2[Name, *event.Received] {
	s.mu.RLock()
	var names []Name
	var objects []*event.Received
	for _, n := range slices.SortedFunc(maps.Keys(s.names), compareNames) {
		for _, e := range s.shown(n) {
			names, objects = append(names, n), append(objects, e)
		}
	}
	s.mu.RUnlock()
	return func(yield func(Name, *event.Received) bool) {
		for i, n := range names {
			if !yield(n, objects[i]) {
				return
			}
		}
	}
}

func compareNames(a, b Name) int {
	return cmp.Or(
		cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
	)
}

// Len returns the number of names of objects that the copy holds.
func (s *State) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.names)
}

// AsOf says up to which position a copy is complete. Later changes may be in the copy as well.
type AsOf struct {
	Epoch uint64
	// ResourceVersion is "" if the resource, or the namespace of one of its collections, did not exist at
	// Time. No version describes that, because it may exist again at the version that another collection has reached.
	ResourceVersion string
	Time            time.Time // time of the last synced event, by the bridge's clock
}

// lowerTo sets a to the lower of a and b. The zero value counts as higher than all others; an empty ResourceVersion counts as lower
// than any other.
func (a *AsOf) lowerTo(b AsOf) {
	if a.Epoch == 0 || a.ResourceVersion != "" &&
		(b.ResourceVersion == "" || compareVersion(b.Epoch, b.ResourceVersion, a.Epoch, a.ResourceVersion) < 0) {
		a.Epoch, a.ResourceVersion = b.Epoch, b.ResourceVersion
	}
	if a.Time.IsZero() || b.Time.Before(a.Time) {
		a.Time = b.Time
	}
}

// Complete reports whether the copy has every object of a resource ("pods",
// "deployments.apps") that the sink's configuration selects, and as of when. The result is the lowest
// position of the resource's collections; [State.Collections] has the position of each. An object
// that moves between two collections may be missing, or be held by both, until both were
// read past the move.
//
// The time does not advance while there are no events, unless the bridge is configured to
// repeat synced events (syncedEvery) and the API server answers it.
func (s *State) Complete(cluster, resource string) (at AsOf, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.plans[resourceKey{cluster, resource}]
	edits := map[string]uint64{}
	for key, c := range s.collections {
		if c.resource != (resourceKey{cluster, resource}) || c.closed {
			continue
		}
		last, inStep := s.inStep(c)
		if !inStep {
			return AsOf{}, false
		}
		at.lowerTo(last.asOf)
		edits[key.id] = last.edit
	}
	if len(edits) == 0 || event.PlanDigest(edits) != p.digest {
		return AsOf{}, false
	}
	return at, true
}

// Resources returns cluster and resource ("pods") of each resource that has a collection which
// is not closed, sorted. [State.Complete] reports whether the copy has all objects of one.
func (s *State) Resources() iter.Seq2[string, string] {
	s.mu.RLock()
	var all []resourceKey
	for _, c := range s.collections {
		if !c.closed {
			all = append(all, c.resource)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b resourceKey) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.resource, b.resource))
	})
	all = slices.Compact(all)
	return func(yield func(string, string) bool) {
		for _, r := range all {
			if !yield(r.cluster, r.resource) {
				return
			}
		}
	}
}

// Collection describes the copy of a collection.
type Collection struct {
	Cluster string
	ID      string // see [event.ParseCollection]
	// Phase is the lowest phase of its partitions.
	Phase       Phase
	Run         uint64 // the highest run that was read
	Incarnation uint64
	// Reason is the reason of the last gap, synced or closed event.
	Reason event.Reason
	// AsOf is the lowest position of the last synced events of its partitions.
	AsOf AsOf
}

// Collection returns a collection; ok is false if the copy has not seen it.
func (s *State) Collection(cluster, id string) (found Collection, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.collections[collectionKey{cluster, id}]
	if c == nil {
		return Collection{}, false
	}
	return s.describe(c), true
}

func (s *State) describe(c *collection) Collection {
	last, _ := s.inStep(c)
	return Collection{
		Cluster: c.key.cluster, ID: c.key.id, Phase: s.phase(c), Run: c.run, Incarnation: c.incarnation, Reason: c.reason, AsOf: last.asOf,
	}
}

// Collections returns all collections that the copy has seen, including closed ones, sorted.
func (s *State) Collections() []Collection {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []Collection
	for _, c := range s.collections {
		all = append(all, s.describe(c))
	}
	slices.SortFunc(all, func(a, b Collection) int { return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.ID, b.ID)) })
	return all
}
