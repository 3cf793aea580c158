package pipeline

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// listing is a list under way.
type listing struct {
	begun  time.Time
	reason string
	from   string // the last resourceVersion known to be complete
	origin event.Origin
	run    string // of a reset: Present instead of Added, see member.reset
	seen   *keySet
	counts event.Counts
}

// observe takes one signal of a collection: it decides, by the tentative
// inventory, what the bus must be told (design rules 2 to 5), and enqueues it.
func (l *Lane) observe(ctx context.Context, m *member, s source.Signal) error {
	switch s.Kind {
	case source.ListBegun:
		return l.listBegun(ctx, m, s)
	case source.Listed:
		l.metrics.seen.WithLabelValues(l.id.Sink, m.resource).Inc()
		return l.listed(ctx, m, s.Object)
	case source.ListEnded:
		return l.listEnded(ctx, m, s)
	case source.Progress:
		l.move(m, s.Resume)
		return nil
	default:
		l.metrics.seen.WithLabelValues(l.id.Sink, m.resource).Inc()
		return l.changed(ctx, m, s)
	}
}

func (l *Lane) listBegun(ctx context.Context, m *member, s source.Signal) error {
	m.list = &listing{begun: time.Now(), reason: s.Reason, from: s.RV, origin: event.Reconcile, seen: newKeySet()}
	if s.Reason == source.ReasonSnapshot {
		m.list.origin = event.Snapshot
	}
	report := &event.Report{Reason: s.Reason, Detail: s.Detail, From: s.RV}
	if m.reset != "" {
		m.list.run, m.list.origin = m.reset, event.Resync
		report.Reason, report.Reset, report.Detail = reasonReset, !m.declared, l.resetWhy
		m.declared = true
	}
	if err := l.room(ctx); err != nil {
		return err
	}
	l.set(m, event.Position{Epoch: m.position.Epoch, RV: s.RV, Void: true})
	l.log.Info("list begins", m.field(), zapReason(report.Reason), zapRV("from", s.RV))
	l.metrics.lists.WithLabelValues(l.id.Sink, m.resource, report.Reason).Inc()
	l.emit(m, &event.Event{
		Type: event.Gap, Origin: m.list.origin, Time: m.list.begun, ResourceVersion: s.RV, Report: report,
	}, nil)
	return nil
}

func (l *Lane) listed(ctx context.Context, m *member, o *source.Object) error {
	key := m.entryKey(o.Namespace, o.Name)
	m.list.counts.Listed++
	m.list.seen.add(key)
	known, err := l.inv.get(key)
	if err != nil {
		return err
	}
	hash := o.Hash()
	// Whoever had this name before, and was perhaps told of, is gone.
	for _, uid := range slices.Sorted(maps.Keys(l.inv.perhaps[string(key)])) {
		if uid == o.UID || known != nil && known.UID == uid {
			continue
		}
		if err := l.gone(ctx, m, object{key, l.inv.perhaps[string(key)][uid]}, o.ResourceVersion); err != nil {
			return err
		}
	}
	if known != nil && known.UID != o.UID {
		if err := l.gone(ctx, m, object{key, *known}, o.ResourceVersion); err != nil {
			return err
		}
		known = nil
	}
	typ, entry := event.Modified, o.ResourceVersion
	switch {
	case known != nil && known.RV == o.ResourceVersion && (known.Hash == hash || known.APIVersion != o.APIVersion):
		m.list.counts.Unchanged++
		l.metrics.repeated.WithLabelValues(l.id.Sink, m.resource).Inc()
		return nil
	case known != nil:
		entry = known.Entry
		m.list.counts.Modified++
	case m.list.run != "":
		typ = event.Present
		m.list.counts.Present++
	default:
		typ = event.Added
		if perhaps, ok := l.inv.perhaps[string(key)][o.UID]; ok && perhaps.Entry != o.ResourceVersion {
			typ, entry = event.Modified, perhaps.Entry // it was perhaps announced at another version
			m.list.counts.Modified++
		} else {
			m.list.counts.Added++
		}
	}
	return l.tell(ctx, m, o, telling{typ: typ, origin: m.list.origin, entry: entry, hash: hash})
}

func (l *Lane) listEnded(ctx context.Context, m *member, s source.Signal) error {
	list := m.list
	gone, err := l.inv.missing(m.prefix(), list.seen)
	if err != nil {
		return err
	}
	for _, o := range gone {
		if err := l.gone(ctx, m, o, s.RV); err != nil {
			return err
		}
	}
	if err := l.room(ctx); err != nil {
		return err
	}
	m.list = nil
	l.move(m, s.Resume)
	reason := list.reason
	if list.run != "" {
		reason, m.reset = reasonReset, ""
	}
	l.log.Info("in step", m.field(), zapReason(reason), zapRV("resourceVersion", s.RV), zapCounts(list.counts))
	l.emit(m, &event.Event{
		Type: event.Synced, Origin: list.origin, Time: time.Now(), ResourceVersion: s.RV,
		Report: &event.Report{Reason: reason, From: list.from, To: s.RV, Since: &list.begun, Counts: &list.counts},
	}, nil)
	l.resetDone()
	return nil
}

// changed takes a watch event. What the bus already knows is dropped: a watch is
// resumed from before what it last saw.
func (l *Lane) changed(ctx context.Context, m *member, s source.Signal) error {
	o := s.Object
	key := m.entryKey(o.Namespace, o.Name)
	known, err := l.inv.get(key)
	if err != nil {
		return err
	}
	stale := known != nil && compareRV(o.ResourceVersion, known.RV) < 0
	if s.Kind == source.Deleted {
		l.move(m, s.Resume)
		if known == nil || known.UID != o.UID || stale {
			l.metrics.repeated.WithLabelValues(l.id.Sink, m.resource).Inc()
			return nil
		}
		return l.tell(ctx, m, o, telling{typ: event.Deleted, origin: event.Watch, entry: known.Entry})
	}
	t := telling{typ: event.Added, origin: event.Watch, entry: o.ResourceVersion}
	switch {
	case known == nil:
	case stale || known.RV == o.ResourceVersion:
		l.move(m, s.Resume)
		l.metrics.repeated.WithLabelValues(l.id.Sink, m.resource).Inc()
		return nil
	case known.UID == o.UID:
		t.typ, t.entry = event.Modified, known.Entry
	default: // the watch did not tell the end of the old one
		if err := l.gone(ctx, m, object{key, *known}, o.ResourceVersion); err != nil {
			return err
		}
	}
	t.hash = o.Hash()
	l.move(m, s.Resume)
	return l.tell(ctx, m, o, t)
}

// telling is how an object's event is to be told.
type telling struct {
	typ    event.Type
	origin event.Origin
	entry  string
	hash   uint64
}

// tell enqueues an event with the object's body.
func (l *Lane) tell(ctx context.Context, m *member, o *source.Object, t telling) error {
	if err := l.room(ctx); err != nil {
		return err
	}
	key := m.entryKey(o.Namespace, o.Name)
	ev := &event.Event{
		Type: t.typ, Origin: t.origin, Time: time.Now(),
		APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
		ResourceVersion: o.ResourceVersion, Entry: t.entry, Object: l.body(m, o),
	}
	if t.typ == event.Present {
		ev.Run = m.list.run
	}
	var next *checkpoint.Entry
	if t.typ != event.Deleted {
		next = &checkpoint.Entry{
			UID: o.UID, RV: o.ResourceVersion, Hash: t.hash, Told: true, Entry: t.entry,
			APIVersion: o.APIVersion, Kind: o.Kind,
		}
	}
	l.emit(m, ev, l.remember(key, o.UID, next))
	return nil
}

// gone enqueues the end of an object that nobody saw end. rv is where its
// absence was seen.
func (l *Lane) gone(ctx context.Context, m *member, o object, rv string) error {
	if err := l.room(ctx); err != nil {
		return err
	}
	_, namespace, name, err := checkpoint.ParseEntryKey(o.key)
	if err != nil {
		return err
	}
	known, err := l.inv.get(o.key)
	if err != nil {
		return err
	}
	var moved []event.KV
	if known != nil && known.UID == o.entry.UID {
		moved = l.remember(o.key, o.entry.UID, nil)
	} else if kv, ok := l.inv.settle(o.key, o.entry.UID); ok {
		moved = []event.KV{kv} // only an intent knew it; the name may belong to another by now
	}
	m.list.countDeleted()
	l.emit(m, &event.Event{
		Type: event.Deleted, Origin: event.Reconcile, Time: time.Now(),
		APIVersion: o.entry.APIVersion, Kind: o.entry.Kind, Namespace: namespace, Name: name, UID: o.entry.UID,
		ResourceVersion: rv, Entry: o.entry.Entry,
	}, moved)
	return nil
}

func (l *listing) countDeleted() {
	if l != nil {
		l.counts.Deleted++
	}
}

// remember moves the inventory in the current batch.
func (l *Lane) remember(key []byte, uid string, next *checkpoint.Entry) []event.KV {
	kvs := []event.KV{l.inv.set(key, next, l.current.Seq)}
	if kv, ok := l.inv.settle(key, uid); ok {
		kvs = append(kvs, kv)
	}
	return kvs
}

// move lets the next commit record that everything up to rv is enqueued.
func (l *Lane) move(m *member, rv string) {
	if rv != "" && (m.position.RV != rv || m.position.Void) {
		l.set(m, event.Position{Epoch: m.position.Epoch, RV: rv})
	}
}

func (l *Lane) set(m *member, p event.Position) {
	l.begins()
	m.position = p
	l.moved[m.id] = p
}

// compareRV orders resourceVersions; those that are not numbers are equal or
// newer (see source's cursor).
func compareRV(a, b string) int {
	n, err := resourceversion.CompareResourceVersion(a, b)
	switch {
	case err == nil:
		return n
	case a == b:
		return 0
	default:
		return 1
	}
}
