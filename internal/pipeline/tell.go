package pipeline

import (
	"context"
	"time"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// telling is how an object's event is to be told.
type telling struct {
	typ    event.Type
	origin event.Origin
	entry  string // "": it is announced with this event
	again  uint64 // how often this resourceVersion was told before
	hash   uint64
	rest   uint64            // see lens.rest; 0: not known
	count  *int              // of a list, that counts it; nil: none does
	known  *checkpoint.Entry // of the object; nil: none
}

// returns counts an announcement at a resourceVersion that known, the same
// object before it left the selection, was told at already (design rule 7).
func (t *telling) returns(known *checkpoint.Entry, o *source.Object) {
	if known != nil && known.Entry != "" && known.RV == o.ResourceVersion {
		t.again = max(t.again, known.Again+1)
	}
}

// announces has an object of a list told as one that consumers have not.
func (t *telling) announces(m *member, counts *event.Counts) {
	t.typ, t.count = event.Added, &counts.Added
	switch {
	case m.list.run != "":
		t.typ, t.count = event.Present, &counts.Present
	case m.list.from == "": // perhaps it was announced before the collection was closed
		t.again = max(t.again, m.note.Lives)
	}
}

// tell enqueues an event with the object's body. One of a type that nobody wants
// moves the inventory as if it had been told: what comes after it depends on that.
func (l *Lane) tell(ctx context.Context, m *member, o *source.Object, t telling) error {
	if err := l.room(ctx); err != nil {
		return err
	}
	announces := t.entry == ""
	if t.entry == "" {
		t.entry = event.Revision(o.ResourceVersion, t.again)
	}
	key := m.entryKey(o.Namespace, o.Name)
	entry := &checkpoint.Entry{
		UID: o.UID, RV: o.ResourceVersion, Hash: t.hash, Told: true, Entry: t.entry, Again: t.again,
		APIVersion: o.APIVersion, Kind: o.Kind, Owner: m.owner, Rest: t.rest,
	}
	if !m.options.wants(t.typ) {
		l.metrics.filtered.WithLabelValues(l.id.Sink, m.resource, t.typ.String()).Inc()
		l.quietly(m, l.remember(m, key, o.UID, entry)...)
		return nil
	}
	ev := l.event()
	*ev = event.Event{
		Type: t.typ, Origin: t.origin, Time: time.Now(),
		APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
		ResourceVersion: o.ResourceVersion, Entry: t.entry, Again: t.again,
	}
	var err error
	if ev.Object, err = l.made(m, o); err != nil {
		l.withhold(m, ev, err)
		if ev.DeadLetter != nil && announces {
			*entry, announces = untold(*entry), false
		}
	}
	kept, err := l.compared(m, key, ev, o, entry, &t)
	if err != nil {
		return err
	}
	if t.typ == event.Present {
		ev.Run = m.run()
	}
	moved := l.remember(m, key, o.UID, entry)
	l.emitObject(m, ev, o, moved, kept...)
	enqueued := &l.current.of[len(l.current.of)-1]
	if announces {
		enqueued.announces = moved[0].Key
	}
	if m.lens.keeps() {
		enqueued.key = moved[0].Key
		if t.known != nil && t.known.Told {
			enqueued.was = t.known.Body
		}
	}
	return nil
}

// compared tells in an event what changed, where the options ask for it, and returns
// what is kept of it for the next one.
func (l *Lane) compared(m *member, key []byte, ev *event.Event, o *source.Object, entry *checkpoint.Entry, t *telling) ([]event.KV, error) {
	if !m.lens.keeps() && !m.lens.changedBy {
		return nil, nil
	}
	if ev.DeadLetter != nil { // the bus has what it had
		if t.known != nil && entry.Told {
			entry.Body = t.known.Body
		}
		return nil, nil
	}
	var before former
	if ev.Type == event.Modified {
		var err error
		if before, err = l.lastTold(m, key, t.known); err != nil {
			return nil, err
		}
	}
	if ev.Type != event.Present {
		if err := l.tellChange(m, ev, o, before); err != nil {
			return nil, err
		}
	}
	return l.keep(m, key, ev.Object, entry, t.known), nil
}

// event returns the memory of an event of the current batch.
func (l *Lane) event() *event.Event { return &l.current.events.take(1)[0] }

// run is of the reset or resync that a member's present events belong to.
func (m *member) run() string {
	if m.list != nil {
		return m.list.run
	}
	return m.survey.run
}

// ending is the end of an object, for the bus.
type ending struct {
	object
	origin event.Origin
	rv     string            // of the deletion, or of the list that lacked it; "": neither is known
	last   *source.Object    // its last body; nil: not known
	left   bool              // it only left the selection
	stays  *checkpoint.Entry // the object is still in the collection, and only not told any more; nil: it is not
}

// end enqueues the end of an object. Of one that the bus was not told of, nothing
// is said.
func (l *Lane) end(ctx context.Context, m *member, e ending) error {
	if err := l.room(ctx); err != nil {
		return err
	}
	known, err := l.inv.get(e.key)
	if err != nil {
		return err
	}
	var body []byte
	if e.last == nil && m.options.wants(event.Deleted) {
		if body, err = l.lastPublishedBody(m, e.key, &e.entry); err != nil {
			return err
		}
	}
	var moved, kept []event.KV
	if e.stays != nil {
		moved = l.remember(m, e.key, e.entry.UID, e.stays)
		kept = l.unkeep(m, e.key, &e.entry, e.stays)
	} else if known != nil && known.UID == e.entry.UID {
		var next *checkpoint.Entry
		if e.left && e.origin == event.Reconcile { // it may come back as it is
			untold := *known
			untold.Told, untold.Body = false, 0
			next = &untold
		} else {
			m.tally.objects.Add(-1)
		}
		moved = l.remember(m, e.key, e.entry.UID, next)
		kept = l.unkeep(m, e.key, &e.entry, next)
	} else if kv, ok := l.inv.settle(e.key, e.entry.UID); ok {
		moved = []event.KV{kv} // only an intent knew it; the name may belong to another by now
	}
	if e.entry.Told && !m.options.wants(event.Deleted) {
		l.metrics.filtered.WithLabelValues(l.id.Sink, m.resource, event.Deleted.String()).Inc()
	}
	if !e.entry.Told || !m.options.wants(event.Deleted) {
		l.quietly(m, append(moved, kept...)...)
		return nil
	}
	if m.list != nil {
		m.list.counts.Deleted++
	}
	_, namespace, name, err := checkpoint.ParseEntryKey(e.key)
	if err != nil {
		return err
	}
	if e.rv == "" {
		e.rv = e.entry.RV // not older than anything that was told of it
	}
	ev := l.event()
	*ev = event.Event{
		Type: event.Deleted, Origin: e.origin, Time: time.Now(),
		APIVersion: e.entry.APIVersion, Kind: e.entry.Kind, Namespace: namespace, Name: name, UID: e.entry.UID,
		ResourceVersion: e.rv, Entry: e.entry.Entry, Object: body,
	}
	if e.left {
		ev.Reason = "left"
	}
	if e.last != nil {
		ev.APIVersion, ev.Kind = e.last.APIVersion, e.last.Kind
		if ev.Object, err = l.made(m, e.last); err != nil {
			l.withhold(m, ev, err)
		}
	}
	from := origin{m, l.current.numbered}
	l.emitObject(m, ev, e.last, moved, kept...)
	if e.left { // and perhaps comes back
		e.entry.Told = false
		l.current.intend(from, intentKey(e.key, e.entry.UID), checkpoint.EncodeEntry(e.entry))
	}
	return nil
}

// forget removes an object from the inventory in the current batch.
func (l *Lane) forget(m *member, o object) []event.KV {
	moved := l.remember(m, o.key, o.entry.UID, nil)
	return append(moved, l.unkeep(m, o.key, &o.entry, nil)...)
}

// remember moves the inventory in the current batch. What a crash left open is settled
// by it, but by a watch only when that comes to what was in flight: a list may be first.
func (l *Lane) remember(m *member, key []byte, uid string, next *checkpoint.Entry) []event.KV {
	kvs := append(l.current.states.take(stateRoom)[:0], l.inv.set(l.current, key, next, m))
	if i, doubt := l.inv.doubt(key, uid); doubt && m.list == nil && next != nil && !i.left && compareRV(next.RV, i.RV) < 0 {
		return kvs
	}
	if kv, ok := l.inv.settle(key, uid); ok {
		kvs = append(kvs, kv)
	}
	return kvs
}
