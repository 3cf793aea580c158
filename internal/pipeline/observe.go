package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	first  bool   // nothing is known of what was before
	origin event.Origin
	run    string // of a reset: Present instead of Added, see member.reset
	again  bool   // another one, that broke off, may have begun at the same position
	seen   *keySet
	counts event.Counts
	// reborn are objects whose name another one had, held back until it is known
	// what that one was at last.
	reborn      []*source.Object
	rebornBytes int
	newEpoch    bool // it began with this list, or in it
	refilters   bool // the filter is not the one that what is known was told with
	retell      bool // it began in it
}

// rebornBytes bounds what a list holds back, in bytes.
const rebornBytes = 4 << 20

// observe takes one signal of a collection: it decides, by the tentative
// inventory, what the bus must be told (design rules 2 to 5), and enqueues it.
func (l *Lane) observe(ctx context.Context, m *member, s source.Signal) error {
	switch s.Kind {
	case source.ListBegun:
		return l.listBegun(ctx, m, s)
	case source.Listed:
		l.meters(m).seen.Inc()
		m.tally.read.Add(1)
		return l.listed(ctx, m, s.Object)
	case source.ListEnded:
		return l.listEnded(ctx, m, s)
	case source.Progress:
		l.move(m, s.Resume)
		return l.passed(ctx, m)
	default:
		l.meters(m).seen.Inc()
		if err := l.changed(ctx, m, s); err != nil {
			return err
		}
		return l.passed(ctx, m)
	}
}

func (l *Lane) listBegun(ctx context.Context, m *member, s source.Signal) error {
	l.endSurvey(m)
	reason, detail := s.Reason, s.Detail
	switch {
	case reason == source.ReasonGone:
	case m.because != "":
		reason, detail, m.because = m.because, "", ""
	case m.note.Gone:
		reason, detail = source.ReasonSnapshot, ""
	}
	first := s.RV == "" && (m.position.Epoch < 2 || m.reset != "") || m.note.Gone
	m.list = &listing{
		begun: time.Now(), reason: reason, from: s.RV, first: first, origin: event.Reconcile, seen: newKeySet(),
		again: m.position.Void && !s.NewEpoch && (m.reset == "" || m.declared),
	}
	m.list.newEpoch = s.NewEpoch || s.RV == "" && m.position.Epoch > 1 && m.position.Void // begun by a list that broke off
	if reason == source.ReasonSnapshot {
		m.list.origin = event.Snapshot
	}
	if err := l.look(m); err != nil {
		return err
	}
	m.list.refilters = m.note.Filter != m.lens.filterID
	report := &event.Report{Reason: reason, Detail: detail, From: s.RV}
	if m.reset != "" {
		m.list.run, m.list.origin = m.reset, event.Resync
		report.Reason, report.Reset, report.Detail = reasonReset, !m.declared, cmp.Or(m.resetWhy, l.resetWhy)
		m.declared = true
	}
	if err := l.room(ctx); err != nil {
		return err
	}
	position := event.Position{Epoch: m.position.Epoch, RV: s.RV, Void: true}
	if s.NewEpoch {
		position = nextEpoch(m.position)
	}
	l.set(m, position)
	l.metrics.lists.WithLabelValues(l.id.Sink, m.resource, report.Reason).Inc()
	l.gap(m, report, m.noteLens()...)
	return nil
}

func nextEpoch(p event.Position) event.Position {
	return event.Position{Epoch: max(p.Epoch, 1) + 1, Void: true}
}

// gap says that a list is under way. The caller has made room.
func (l *Lane) gap(m *member, report *event.Report, moved ...event.KV) {
	l.log.Info("gap", m.field(), zapReason(report.Reason), zapDetail(report.Detail), zapRV("from", report.From))
	l.emit(m, &event.Event{
		Type: event.Gap, Origin: m.list.origin, Time: time.Now(), ResourceVersion: report.From, Report: report, Run: m.listRun(),
	}, moved)
}

// listRun tells the gap of a list from what else was said at its position: a list
// that broke off there, in this life or the one before, or that another filter was
// the reason for; the end of everything; a reset; another life of a collection that
// was closed.
func (m *member) listRun() string {
	switch {
	case m.list.again:
		return strconv.FormatInt(m.list.begun.UnixNano(), 36)
	case m.list.reason == source.ReasonGone:
		return source.ReasonGone
	case m.list.run != "":
		return m.list.run
	case m.list.from == "":
		return m.life()
	}
	return ""
}

// life tells the collection from what it was before it was closed, if it was.
func (m *member) life() string {
	if m.note.Lives == 0 {
		return ""
	}
	return strconv.FormatUint(m.note.Lives+1, 10)
}

// unlist forgets an object that was held back, and is gone before the list's end.
// It reports whether there was one.
func (l *listing) unlist(uid string) bool {
	if l == nil {
		return false
	}
	held := len(l.reborn)
	l.reborn = slices.DeleteFunc(l.reborn, func(o *source.Object) bool {
		if o.UID == uid {
			l.rebornBytes -= len(o.Raw)
		}
		return o.UID == uid
	})
	return len(l.reborn) < held
}

func (l *Lane) listed(ctx context.Context, m *member, o *source.Object) error {
	key := m.entryKey(o.Namespace, o.Name)
	m.list.counts.Listed++
	m.list.seen.add(key)
	known, err := l.inv.of(key, o)
	if err != nil {
		return err
	}
	if before := l.before(key, known, o.UID); len(before) > 0 {
		if m.list.rebornBytes+len(o.Raw) <= rebornBytes {
			o.Own()
			m.list.reborn = append(m.list.reborn, o)
			m.list.rebornBytes += len(o.Raw)
			return nil
		}
		for _, old := range before {
			if err := l.end(ctx, m, ending{object: old, origin: event.Reconcile, rv: o.ResourceVersion}); err != nil {
				return err
			}
		}
		known = nil
	}
	return l.compare(ctx, m, o, known)
}

// before returns the objects that had the key before uid, and of which the bus
// was told, or perhaps was.
func (l *Lane) before(key []byte, known *checkpoint.Entry, uid string) []object {
	var list []object
	for _, old := range slices.Sorted(maps.Keys(l.inv.perhaps[string(key)])) {
		if old != uid {
			list = append(list, object{key, l.inv.perhaps[string(key)][old].Entry})
		}
	}
	if known != nil && known.UID != uid {
		if _, doubt := l.inv.doubt(key, known.UID); !doubt {
			list = append(list, object{key, *known})
		}
	}
	return list
}

// compare tells by what a listed object differs from known, the entry of the same
// object, or nil.
func (l *Lane) compare(ctx context.Context, m *member, o *source.Object, known *checkpoint.Entry) error {
	switch {
	case known == nil && l.lateComer(m, o):
		if err := l.wentBack(ctx, m, o); err != nil {
			return err
		}
	case known != nil && compareRV(o.ResourceVersion, known.RV) < 0:
		if known.Owner != m.owner { // which is ahead of this list
			m.list.counts.Unchanged++
			return nil
		}
		if err := l.wentBack(ctx, m, o); err != nil {
			return err
		}
	}
	counts := &m.list.counts
	hash, err := l.hash(m, o)
	if err != nil {
		return err
	}
	t := telling{typ: event.Modified, origin: m.list.origin, hash: hash, count: &counts.Modified}
	same := known != nil && known.RV == o.ResourceVersion
	alike := same && (known.Hash == t.hash || known.APIVersion != o.APIVersion)
	perhaps, doubt := l.inv.doubt(m.entryKey(o.Namespace, o.Name), o.UID)
	switch {
	case doubt && perhaps.hasLeft(known):
		t.announces(m, counts)
		t.returns(known, o)
		t.returns(&perhaps.Entry, o)
	case !doubt && alike && known.Told && m.list.refilters && m.lens.filter != nil && !l.passes(m, o, telling{typ: event.Added, origin: t.origin}):
		return l.leaves(ctx, m, o, *known, t)
	case !doubt && alike && (known.Told || m.options.SkipSnapshot):
		counts.Unchanged++
		l.meters(m).repeated.Inc()
		if known.Owner == m.owner {
			return nil
		}
		if err := l.room(ctx); err != nil {
			return err
		}
		moved := *known
		moved.Owner = m.owner
		l.quietly(m, l.remember(m, m.entryKey(o.Namespace, o.Name), o.UID, &moved)...)
		return nil
	case known != nil && known.Told:
		t.entry = known.Entry
		if same {
			t.again = known.Again + 1
		}
	case m.list.first && m.options.SkipSnapshot:
		counts.Skipped++
		if err := l.room(ctx); err != nil {
			return err
		}
		l.quietly(m, l.remember(m, m.entryKey(o.Namespace, o.Name), o.UID, &checkpoint.Entry{
			UID: o.UID, RV: o.ResourceVersion, Hash: t.hash, APIVersion: o.APIVersion, Kind: o.Kind, Owner: m.owner,
		})...)
		return nil
	default:
		if doubt && m.list.run == "" && perhaps.RV != o.ResourceVersion {
			t.entry = perhaps.Entry.Entry // it was perhaps announced at another version
		} else {
			t.announces(m, counts)
		}
		t.returns(known, o)
	}
	return l.weigh(ctx, m, o, known, t)
}

// lateComer reports whether an object that nobody knows is no younger than what
// is known to be complete: in one history that cannot be.
func (l *Lane) lateComer(m *member, o *source.Object) bool {
	_, doubt := l.inv.doubt(m.entryKey(o.Namespace, o.Name), o.UID)
	return !doubt && !m.list.first && m.list.from != "" && m.list.reason != reasonDrift && compareRV(o.ResourceVersion, m.list.from) <= 0
}

// wentBack begins an epoch in the middle of a list: an object is older than it
// can be, so the server's history is another one, whose counter had passed the
// position before anybody looked (design rule 8).
func (l *Lane) wentBack(ctx context.Context, m *member, o *source.Object) error {
	if m.list.newEpoch {
		return nil
	}
	m.list.newEpoch = true
	if err := l.room(ctx); err != nil {
		return err
	}
	l.set(m, nextEpoch(m.position))
	// What this list has told by now was told in the old epoch, and may have been
	// ignored: all is told again when it ends.
	next := m.note
	next.Resync = newRun()
	m.list.retell = true
	l.gap(m, &event.Report{
		Reason: source.ReasonHistory, From: m.list.from,
		Detail: fmt.Sprintf("%s is at resourceVersion %s, older than what was told: the history is another one", o.Name, o.ResourceVersion),
	}, m.noted(next)...)
	return nil
}

// absent returns what the list of a member that has just ended lacks, at most
// maxRecalled objects, and what gave its name to another object, which is bounded by
// [rebornBytes].
func (l *Lane) absent(m *member) ([]vanished, error) {
	list := m.list
	if list == nil {
		return nil, nil
	}
	var out []vanished
	enough := errors.New("enough")
	err := l.inv.each(m.prefix(), func(key []byte, e *checkpoint.Entry) bool {
		return e.Told && m.holds(key, e) && !list.seen.has(key)
	}, func(o object) error {
		if len(out) == maxRecalled {
			return enough
		}
		out = append(out, vanish(o))
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		return nil, err
	}
	for _, o := range list.reborn {
		key := m.entryKey(o.Namespace, o.Name)
		known, err := l.inv.get(key)
		if err != nil {
			return nil, err
		}
		for _, old := range l.before(key, known, o.UID) {
			v := vanish(old)
			v.reborn = true
			out = append(out, v)
		}
	}
	return out, nil
}

// recalled tells the end of an object of which more is known than its absence.
func (l *Lane) recalled(ctx context.Context, m *member, r *recalled) error {
	known, err := l.inv.get(r.key)
	if err != nil {
		return err
	}
	if _, doubt := l.inv.doubt(r.key, r.uid); doubt || known == nil || known.UID != r.uid || !known.Told || m.list == nil {
		return nil // an intent knows more, or only it does; the list's end settles that
	}
	return l.end(ctx, m, ending{
		object: object{r.key, *known}, origin: event.Reconcile, rv: r.rv, last: r.object, left: r.left,
	})
}

func (l *Lane) listEnded(ctx context.Context, m *member, s source.Signal) error {
	list := m.list
	err := l.inv.each(m.prefix(), func(key []byte, e *checkpoint.Entry) bool {
		return m.holds(key, e) && !list.seen.has(key)
	}, func(o object) error {
		return l.end(ctx, m, ending{object: o, origin: event.Reconcile, rv: s.RV})
	})
	if err != nil {
		return err
	}
	for _, o := range list.reborn {
		key := m.entryKey(o.Namespace, o.Name)
		known, err := l.inv.get(key)
		if err != nil {
			return err
		}
		for _, old := range l.before(key, known, o.UID) {
			if err := l.end(ctx, m, ending{object: old, origin: event.Reconcile, rv: o.ResourceVersion}); err != nil {
				return err
			}
		}
		if known, err = l.inv.get(key); err != nil {
			return err
		}
		if err := l.compare(ctx, m, o, known); err != nil {
			return err
		}
	}
	if err := l.room(ctx); err != nil {
		return err
	}
	run := m.listRun()
	m.list = nil
	l.metrics.listed.WithLabelValues(l.id.Sink, m.resource, list.reason).Inc()
	l.move(m, s.Resume)
	l.count(m)
	reason := list.reason
	if list.run != "" {
		reason, m.reset, m.resetWhy = reasonReset, "", ""
	}
	if list.retell {
		l.quietly(m, listNoted(m, list, s)...)
		return l.beginSurvey(ctx, m, m.note.Resync) // which says when all is in step
	}
	at := s.RV
	if at == "" {
		at = list.from
	}
	l.log.Info("synced", m.field(), zapReason(reason), zapRV("resourceVersion", s.RV), zapCounts(list.counts))
	l.emit(m, &event.Event{
		Type: event.Synced, Origin: list.origin, Time: time.Now(), ResourceVersion: at, Run: run,
		Report: &event.Report{Reason: reason, From: list.from, To: s.RV, Since: &list.begun, Counts: &list.counts},
	}, listNoted(m, list, s))
	l.resetDone()
	return l.closeDue(ctx)
}

// listNoted remembers what the end of a list told beside the objects.
func listNoted(m *member, list *listing, s source.Signal) []event.KV {
	next := m.note
	next.CRD, next.Namespace = s.Owner.CRD, s.Owner.Namespace
	next.Gone, next.Reset, next.Filter = list.reason == source.ReasonGone, "", m.lens.filterID
	m.nextSync, m.verified = time.Now().Add(m.options.SyncedEvery), time.Now()
	return m.noted(next)
}

// noted moves the note, and returns how the store will record it.
func (m *member) noted(next checkpoint.Note) []event.KV {
	m.note = next
	return []event.KV{{Key: checkpoint.NoteKey(m.id), Value: checkpoint.EncodeNote(next)}}
}

// changed takes a watch event. What the bus already knows is dropped: a watch is
// resumed from before what it last saw.
func (l *Lane) changed(ctx context.Context, m *member, s source.Signal) error {
	o := s.Object
	key := m.entryKey(o.Namespace, o.Name)
	known, err := l.inv.of(key, o)
	if err != nil {
		return err
	}
	stale := known != nil && m.list == nil && compareRV(o.ResourceVersion, known.RV) < 0
	if s.Kind == source.Deleted {
		l.move(m, s.Resume)
		if m.list.unlist(o.UID) { // its name was seen: the list's end misses nobody who had it
			for _, old := range l.before(key, known, "") {
				e := ending{object: old, origin: event.Reconcile, rv: o.ResourceVersion}
				if old.entry.UID == o.UID {
					e.last, e.left = o, s.Left
				}
				if err := l.end(ctx, m, e); err != nil {
					return err
				}
			}
			return nil
		}
		if known == nil || known.UID != o.UID || known.Owner != m.owner || stale {
			l.meters(m).repeated.Inc()
			return nil
		}
		m.survey.touch(key)
		return l.end(ctx, m, ending{object: object{key, *known}, origin: event.Watch, rv: o.ResourceVersion, last: o, left: s.Left})
	}
	t := telling{typ: event.Added, origin: event.Watch}
	switch {
	case known == nil:
	case stale || known.RV == o.ResourceVersion && known.UID == o.UID:
		l.move(m, s.Resume)
		l.meters(m).repeated.Inc()
		return nil
	case known.UID != o.UID: // the watch did not tell the end of the old one
		if err := l.end(ctx, m, ending{object: object{key, *known}, origin: event.Reconcile, rv: o.ResourceVersion}); err != nil {
			return err
		}
		known = nil
	case known.Told:
		t.typ, t.entry = event.Modified, known.Entry
	}
	if t.hash, err = l.hash(m, o); err != nil {
		return err
	}
	l.move(m, s.Resume)
	if known == nil {
		m.tally.objects.Add(1)
	}
	err = l.weigh(ctx, m, o, known, t)
	m.survey.touch(m.entryKey(o.Namespace, o.Name))
	return err
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
	l.moved[m] = p
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
