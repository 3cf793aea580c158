package pipeline

import (
	"context"
	"strings"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape/filter"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// maxFilterErrors bounds how many different errors of a filter are logged.
const maxFilterErrors = 10

// weigh tells a change unless the collection's filter leaves it out, or nothing of it
// matters (design rule 5). known is the object's entry, nil for none.
func (l *Lane) weigh(ctx context.Context, m *member, o *source.Object, known *checkpoint.Entry, t telling) error {
	if err := l.look(m); err != nil {
		return err
	}
	t.known = known
	pass := m.lens.filter == nil || l.passes(m, o, t)
	if pass {
		if m.lens.ignore != nil {
			t.rest = l.rest(m, o)
			_, doubt := l.inv.doubt(m.entryKey(o.Namespace, o.Name), o.UID)
			doubt = doubt && m.list != nil // a watch comes to what was in flight, from what was committed
			if t.typ == event.Modified && known != nil && known.Told && t.rest != 0 && known.Rest == t.rest && !doubt {
				return l.ignored(ctx, m, o, known, t.hash)
			}
		}
		if t.count != nil {
			*t.count++
		}
		return l.tell(ctx, m, o, t)
	}
	if was, told := l.toldOf(m, o, known); told {
		return l.leaves(ctx, m, o, was, t)
	}
	l.metrics.filtered.WithLabelValues(l.id.Sink, m.resource, t.typ.String()).Inc()
	if m.list != nil {
		m.list.counts.Filtered++
	}
	next := seen(m, o, t.hash, known)
	if known != nil && *known == next {
		return nil
	}
	if err := l.room(ctx); err != nil {
		return err
	}
	l.quietly(m, l.remember(m, m.entryKey(o.Namespace, o.Name), o.UID, &next)...)
	return nil
}

// toldOf is what the bus was told of an object, or perhaps was. A watch repeats what
// was in flight, from what was committed.
func (l *Lane) toldOf(m *member, o *source.Object, known *checkpoint.Entry) (checkpoint.Entry, bool) {
	if perhaps, doubt := l.inv.doubt(m.entryKey(o.Namespace, o.Name), o.UID); doubt && m.list != nil {
		return perhaps.Entry, true
	}
	if known != nil && known.Told {
		return *known, true
	}
	return checkpoint.Entry{}, false
}

// seen is the entry of an object that the bus does not know, or is told to forget. Of
// an announcement at the same version it keeps what makes the next one's id another.
func seen(m *member, o *source.Object, hash uint64, known *checkpoint.Entry) checkpoint.Entry {
	next := checkpoint.Entry{UID: o.UID, RV: o.ResourceVersion, Hash: hash, APIVersion: o.APIVersion, Kind: o.Kind, Owner: m.owner}
	if known != nil && known.UID == o.UID && known.RV == o.ResourceVersion {
		next.Entry, next.Again = known.Entry, known.Again
	}
	return next
}

// leaves tells that an object no longer passes the filter.
func (l *Lane) leaves(ctx context.Context, m *member, o *source.Object, was checkpoint.Entry, t telling) error {
	next := seen(m, o, t.hash, &was)
	return l.end(ctx, m, ending{
		object: object{m.entryKey(o.Namespace, o.Name), was}, origin: t.origin, rv: o.ResourceVersion, last: o, left: true, stays: &next,
	})
}

// ignored moves what was seen of an object whose change does not matter.
func (l *Lane) ignored(ctx context.Context, m *member, o *source.Object, known *checkpoint.Entry, hash uint64) error {
	if s := m.survey; m.list == nil && s.untold(m.entryKey(o.Namespace, o.Name)) {
		// It is what the resync's list will be compared with, and nothing else tells it.
		s.retold[string(m.key)] = struct{}{}
		return l.tell(ctx, m, o, telling{typ: event.Present, origin: event.Resync, entry: known.Entry, hash: hash, rest: known.Rest, known: known})
	}
	l.metrics.ignored.WithLabelValues(l.id.Sink, m.resource).Inc()
	if m.list != nil {
		m.list.counts.Unchanged++
	}
	if err := l.room(ctx); err != nil {
		return err
	}
	next := *known
	if next.RV != o.ResourceVersion {
		next.Again = 0
	}
	next.RV, next.Hash, next.APIVersion, next.Kind, next.Owner = o.ResourceVersion, hash, o.APIVersion, o.Kind, m.owner
	l.quietly(m, l.remember(m, m.entryKey(o.Namespace, o.Name), o.UID, &next)...)
	return nil
}

// passes reports whether an event passes the member's filter. One that it cannot
// judge does.
func (l *Lane) passes(m *member, o *source.Object, t telling) bool {
	typ := t.typ
	if typ == event.Present {
		typ = event.Added
	}
	c := &m.target.Collection
	var before former
	if m.lens.filter.Uses("before") {
		var err error
		if before, err = l.lastTold(m, m.entryKey(o.Namespace, o.Name), t.known); err != nil {
			l.log.Warn("the filter is asked without the state before", m.field(), zap.Error(err))
		}
	}
	pass, err := m.lens.filter.Match(&filter.Input{
		Object: o.Raw, Before: before.body, Type: typ.String(), Origin: string(t.origin),
		Resource: c.Resource, Group: c.Group, Namespace: o.Namespace, Name: o.Name,
	})
	if err != nil {
		l.metrics.filterErrors.WithLabelValues(l.id.Sink, m.resource).Inc()
		l.filterFails(m, err)
	}
	return pass
}

// filterFails logs each error of a filter once. It may tell values of the object that
// are to be hidden.
func (l *Lane) filterFails(m *member, err error) {
	text := err.Error()
	if m.lens.hide != nil {
		text = "why is not told, since values of these objects are hidden"
	}
	if len(m.lens.failures) >= maxFilterErrors || m.lens.failures[text] {
		return
	}
	if m.lens.failures == nil {
		m.lens.failures = map[string]bool{}
	}
	m.lens.failures[text] = true
	l.log.Warn("the filter cannot judge an event, which passes; this is logged once", m.field(), zap.String("because", text))
}

// ruleID tells lists of ignored paths apart, in the upper 16 bits.
func ruleID(list []string) uint64 {
	return xxhash.Sum64String("1\x00"+strings.Join(list, "\x00")) &^ (1<<48 - 1)
}
