package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// CollectionOptions are what a collection is asked for with, beside its target.
// They may change while it runs.
type CollectionOptions struct {
	SkipSnapshot bool          // what is there at first is not announced
	Types        []event.Type  // of objects' events; nil: all
	SyncedEvery  time.Duration // 0: synced is not repeated
	Resync       time.Duration // between two resyncs; 0: only on demand
	VerifyEvery  time.Duration // between two silent comparisons; 0: never
	Redact       []shape.Rule  // what is hidden of objects, beside what the lane's Shape hides
	Filter       string        // a CEL expression that decides which objects are told; "": all
	Before       bool          // a modified event has the body last told
	Patch        bool          // a modified event has a patch that makes its body of the one last told
	ChangedBy    bool          // an added or modified event has by whom
	Ignore       []string      // paths and presets of what does not matter; a change of nothing else is not told
	// Route is where its events go, as far as that is not where the lane's others do.
	// It is the one exception: what a collection begins with stays while it runs.
	Route Route
}

// wants reports whether events of a type are to be delivered. Present stands for
// Added.
func (o *CollectionOptions) wants(t event.Type) bool {
	if t == event.Present {
		t = event.Added
	}
	return o.Types == nil || t.OfCollection() || slices.Contains(o.Types, t)
}

// Wanted is a collection that a lane is to watch. A target whose version is ""
// is one that the server does not serve: its objects are gone when that is
// proved.
type Wanted struct {
	Target  source.Target
	Options CollectionOptions
}

// Fate is what becomes of a collection that is no longer wanted.
type Fate uint8

// The fates of a collection (design rule 10). Without one it stays as it is.
const (
	Removed    Fate = iota + 1 // closed; nothing is said of its objects
	Unselected                 // closed; its objects left the selection, unless another collection has them
	Vanished                   // closed; its objects are deleted: what they lived in is proved absent
)

var fateReasons = map[Fate]string{Removed: reasonRemoved, Unselected: reasonSelection, Vanished: source.ReasonGone}

// The reasons of collection events that are not the source's.
const (
	reasonReset     = "reset"
	reasonRemoved   = "removed"
	reasonSelection = "selection"
	reasonDrift     = "drift"
	reasonFilter    = "filter"
	reasonResync    = "resync"
	reasonPeriodic  = "periodic"
)

// member is a collection of the lane.
type member struct {
	id        string
	resource  string // for metrics and inventory keys
	owner     uint64 // in its inventory entries
	target    source.Target
	shaper    *shaper // nil until it is first used
	lens      *lens   // nil until it is first used
	meters    *meters // nil until they are first used
	at        []byte  // the key of its position
	key       []byte  // see entryKey
	options   CollectionOptions
	position  event.Position // tentative: enqueued, not yet committed
	stated    event.Position // the last one that a record carries
	quiet     uint64         // the batch that changes the checkpoint for it without a record
	unsaid    []event.KV     // those changes
	note      checkpoint.Note
	list      *listing // nil unless a list is under way
	because   string   // why the lane itself asked for the next list; "": it did not
	survey    *survey  // nil unless one is under way
	reset     string   // the run of the reset it is in; "": none
	declared  bool     // the bus was told of the reset: what comes now only fills up
	resetWhy  string   // of a reset of its own, which the lane's others are not in
	running   bool     // it has a goroutine, which ends with stop
	stop      context.CancelFunc
	done      chan struct{}
	nextSync  time.Time // when synced is to be repeated
	verified  time.Time
	notBefore time.Time     // of the next survey, after one that broke off
	pause     time.Duration // how long it was suspended last; 0: not since it was told something
	resumes   time.Time     // when its suspension ends; zero: it is not suspended
	tally     tally         // for the status
}

func newMember(c event.Collection) *member {
	id := c.ID()
	return &member{id: id, at: checkpoint.PositionKey(id), resource: c.ResourceID(), owner: checkpoint.OwnerOf(&c), target: source.Target{Collection: c}}
}

// entryKey is an object's inventory key, until it is called again.
func (m *member) entryKey(namespace, name string) []byte {
	m.key = checkpoint.AppendEntryKey(m.key[:0], m.resource, namespace, name)
	return m.key
}

func (m *member) prefix() []byte {
	return checkpoint.EntryPrefix(m.resource, m.target.Collection.Namespace)
}

// holds reports whether an inventory entry is the member's.
func (m *member) holds(key []byte, e *checkpoint.Entry) bool {
	return e.Owner == m.owner && bytes.HasPrefix(key, m.prefix())
}

// show shows a member in the status.
func (l *Lane) show(m *member) {
	c := CollectionStatus{Collection: m.id, Resource: m.resource, Route: l.shape.place(m)}
	m.describe(&c)
	l.add(c, &m.tally)
}

// describe shows what a member's options ask for, and what the server calls the resource
// now, if it serves it.
func (m *member) describe(c *CollectionStatus) {
	c.Diffs = m.options.Before || m.options.Patch
	if r := m.target.Resource; r.Version != "" {
		c.Kind, c.Version = r.Kind, r.APIVersion()
	}
}

func (m *member) field() zap.Field { return zap.String("collection", m.id) }

// inStep reports whether the bus mirrors the collection, as far as it is enqueued.
func (m *member) inStep() bool { return m.list == nil && m.position.Resumable() }

// job is what a member's goroutine is started with.
type job struct {
	member *member
	target source.Target
	from   event.Position
	owner  source.Owner
}

func (l *Lane) start(m *member) {
	ctx, cancel := context.WithCancel(l.collect)
	m.stop, m.done, m.running = cancel, make(chan struct{}), true
	j := job{m, m.target, m.position, source.Owner{CRD: m.note.CRD, Namespace: m.note.Namespace}}
	l.running.Go(func() {
		defer close(j.member.done)
		err := l.cluster.read(ctx, j)
		if ctx.Err() == nil {
			_ = l.pass(ctx, parcel{member: j.member, ended: err}) // fails with ctx only
		}
	})
	l.count(m) // which takes a second for a million: the watch opens meanwhile
}

// observed is what becomes of parcels while a member is halted.
func observed(parcel) bool { return false }

// halt ends a member's goroutines. What they had read is observed first, unless
// it is to be dropped.
func (l *Lane) halt(ctx context.Context, m *member, drop func(parcel) bool) error {
	l.endSurvey(m)
	if !m.running {
		return nil
	}
	m.stop()
	m.running = false
	defer func() { m.list = nil }() // another run begins it anew
	take := func(p parcel) error {
		if drop(p) {
			l.budget.Release(p.bytes)
			return nil
		}
		return l.take(ctx, p)
	}
	for stopped := false; !stopped; {
		select {
		case l.pings <- struct{}{}:
		case <-m.done:
			stopped = true
		case p := <-l.in:
			if err := take(p); err != nil {
				return err
			}
		}
	}
	for {
		select {
		case p := <-l.in:
			if err := take(p); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// ended is told that a collection's goroutine ended by itself.
func (l *Lane) ended(ctx context.Context, m *member, err error) error {
	if herr := l.halt(ctx, m, observed); herr != nil {
		return herr
	}
	if !errors.Is(err, source.ErrGone) {
		return err
	}
	l.log.Info("collection is gone", m.field())
	l.lookAgain() // it may be back already
	return nil
}

// lookAgain has whoever decides what the lane watches do so again.
func (l *Lane) lookAgain() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// Known returns the collections that the lane watches or its checkpoint knows.
func (l *Lane) Known(ctx context.Context) ([]event.Collection, error) {
	var list []event.Collection
	err := l.do(ctx, func(context.Context) error {
		known := map[string]bool{}
		for id := range l.members {
			known[id] = true
		}
		err := l.reads.Scan(checkpoint.PositionPrefix(), func(key, _ []byte) error {
			known[checkpoint.PositionOf(key)] = true
			return nil
		})
		for _, id := range slices.Sorted(maps.Keys(known)) {
			list = append(list, event.ParseCollection(id))
		}
		return err
	})
	if err != nil { // the lane may still be at it
		return nil, err
	}
	return list, nil
}

// Set tells the running lane what to watch from now on: wanted, and what becomes
// of collections that are not among them. Those of which fates says nothing go
// on as they are. complete says that wanted holds all that is configured.
func (l *Lane) Set(ctx context.Context, wanted []Wanted, fates map[string]Fate, complete bool) error {
	return l.do(ctx, func(ctx context.Context) error {
		for _, w := range wanted {
			if err := l.want(ctx, w); err != nil {
				return err
			}
		}
		for _, id := range slices.Sorted(maps.Keys(fates)) {
			if err := l.close(ctx, id, fates[id]); err != nil {
				return err
			}
		}
		if err := l.closeDue(ctx); err != nil {
			return err
		}
		l.settled = complete
		l.resetDone()
		return nil
	})
}

// want makes a target a member, or moves a member to it.
func (l *Lane) want(ctx context.Context, w Wanted) error {
	id := w.Target.Collection.ID()
	m := l.members[id]
	switch {
	case m == nil && l.closing[id] == nil:
		return l.join(ctx, w)
	case m == nil: // back before it was closed
		m = l.closing[id]
		delete(l.closing, id)
		l.members[id] = m
		l.show(m)
	case w.Target.Resource.Version == "" || (m.running || !m.resumes.IsZero()) && m.target.Resource == w.Target.Resource:
		if err := l.retune(ctx, m, w.Options); err != nil {
			return err
		}
		l.status.changed(m.id, m.describe)
		return nil
	}
	if err := l.halt(ctx, m, observed); err != nil {
		return err
	}
	l.log.Info("collection moves", m.field(), zap.Stringer("gvr", w.Target.Resource), zap.String("kind", w.Target.Resource.Kind))
	m.target, m.options, m.lens = w.Target, w.Options, nil
	l.status.changed(m.id, m.describe)
	if err := l.align(ctx, m); err != nil {
		return err
	}
	l.start(m)
	return nil
}

func (l *Lane) join(ctx context.Context, w Wanted) error {
	m := newMember(w.Target.Collection)
	m.target, m.options = w.Target, w.Options
	if s, ok := l.shut[m.id]; ok {
		m.note.Lives = s.lives
	} else if _, err := l.recallMember(m); err != nil {
		return err
	}
	m.verified = time.Now()
	if m.note.Resynced.IsZero() {
		m.note.Resynced = m.verified
	}
	l.members[m.id] = m
	l.show(m)
	if m.note.Gone && w.Target.Resource.Version == "" {
		l.stateChanged(m.id, m.resource, source.State{Phase: source.Gone, Since: time.Now()})
		return nil
	}
	if w.Target.Resource.Version == "" {
		l.log.Info("collection joins, though the server does not serve it now", m.field())
	} else {
		l.log.Info("collection joins", m.field(), zap.Stringer("gvr", w.Target.Resource),
			zap.String("kind", w.Target.Resource.Kind), zapPosition(m.position))
	}
	if err := l.align(ctx, m); err != nil {
		return err
	}
	l.start(m)
	return nil
}

// recallMember reads what the checkpoint knows of a member, if anything.
func (l *Lane) recallMember(m *member) (known bool, err error) {
	note, err := l.reads.Get(checkpoint.NoteKey(m.id))
	if err != nil {
		return false, err
	}
	switch {
	case note == nil && l.resetRun != "": // what the bus has of it is not known
		m.reset, m.declared = l.resetRun, false
	case note != nil:
		if m.note, err = checkpoint.DecodeNote(note); err != nil {
			return false, fmt.Errorf("collection %s: %w", m.id, err)
		}
		if !m.note.Resynced.IsZero() {
			m.note.Resynced = aged(m.note.Resynced, time.Now())
		}
		if m.note.Due != "" {
			m.reset, m.declared = m.note.Due, false
		}
	}
	position, err := l.reads.Get(checkpoint.PositionKey(m.id))
	if err != nil || position == nil {
		return false, err
	}
	if m.position, err = checkpoint.DecodePosition(position); err != nil {
		return false, fmt.Errorf("collection %s: %w", m.id, err)
	}
	m.stated = m.position
	return true, nil
}

// aged is a time of the checkpoint as this process measures its age, whatever becomes
// of the clock meanwhile. What seems to be yet to come is of a clock that has been set
// back since: it counts from now.
func aged(stored, now time.Time) time.Time { return now.Add(-max(0, now.Sub(stored))) }

// close ends a collection: what was read of it is told, then its fate.
func (l *Lane) close(ctx context.Context, id string, fate Fate) error {
	m := l.members[id]
	switch {
	case m != nil:
		if err := l.halt(ctx, m, observed); err != nil {
			return err
		}
		delete(l.members, id)
		l.remove(m.id, m.resource)
	case l.closing[id] != nil:
		m = l.closing[id]
	default: // only the checkpoint knows it
		m = newMember(event.ParseCollection(id))
		if _, shut := l.shut[id]; shut {
			return nil
		}
		if known, err := l.recallMember(m); !known || err != nil {
			return err
		}
	}
	if fate == Unselected {
		l.closing[id] = m // until it is known which of its objects another collection has
		return nil
	}
	delete(l.closing, id)
	err := l.inv.each(m.prefix(), m.holds, func(o object) error {
		if fate == Vanished {
			return l.end(ctx, m, ending{object: o, origin: event.Reconcile})
		}
		if err := l.room(ctx); err != nil {
			return err
		}
		l.quietly(m, l.forget(m, o)...)
		return nil
	})
	if err != nil {
		return err
	}
	return l.closed(ctx, m, fateReasons[fate])
}

// closeDue closes the collections that left the selection, as soon as all others
// of their resource are in step: what these do not hold has left with them.
func (l *Lane) closeDue(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(l.closing)) {
		c := l.closing[id]
		var others []*member
		inStep := true
		for _, m := range l.members {
			if m.resource == c.resource {
				others = append(others, m)
				inStep = inStep && (m.inStep() || m.note.Gone)
			}
		}
		if !inStep {
			continue
		}
		leaves := func(key []byte, e *checkpoint.Entry) bool {
			return e.Told && c.holds(key, e) && !slices.ContainsFunc(others, func(m *member) bool { return m.holds(key, e) })
		}
		err := l.inv.each(c.prefix(), leaves, func(o object) error {
			return l.end(ctx, c, ending{object: o, origin: event.Reconcile, left: true})
		})
		if err != nil {
			return err
		}
		delete(l.closing, id)
		if err := l.closed(ctx, c, reasonSelection); err != nil {
			return err
		}
	}
	return nil
}

// closed says that a collection is no longer watched, and forgets it. Where a reset of
// it is due, consumers drop their copy: of what left meanwhile nobody tells them.
func (l *Lane) closed(ctx context.Context, m *member, reason string) error {
	if m.reset != "" && !m.declared {
		if err := l.listBegun(ctx, m, source.Signal{Kind: source.ListBegun}); err != nil {
			return err
		}
		m.list = nil
	}
	if err := l.room(ctx); err != nil {
		return err
	}
	l.log.Info("collection closed", m.field(), zapReason(reason))
	rv := m.position.RV
	m.position, m.stated = event.Position{Epoch: m.position.Epoch}, event.Position{Epoch: m.position.Epoch}
	delete(l.moved, m)
	l.shut[m.id] = shut{l.current.Seq, m.note.Lives + 1}
	l.emit(m, &event.Event{
		Type: event.Closed, Origin: event.Reconcile, Time: time.Now(), ResourceVersion: rv, Run: m.life(),
		Report: &event.Report{Reason: reason, From: rv},
	}, []event.KV{
		{Key: checkpoint.PositionKey(m.id)},
		{Key: checkpoint.NoteKey(m.id), Value: checkpoint.EncodeNote(checkpoint.Note{Lives: m.note.Lives + 1})},
	})
	return nil
}
