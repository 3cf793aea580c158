package pipeline

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/shape/filter"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// lens is how a member's objects are looked at: what its options ask for, compiled.
type lens struct {
	hide  *shape.Shaper // nil: nothing is hidden
	shape string        // changes with what hide does; "" for no rules

	filter   *filter.Filter  // nil: everything passes
	filterID string          // changes with it
	failures map[string]bool // of the filter, that were logged

	ignore   *shape.Ignore // nil: everything matters
	ignoreID uint64        // see ruleID

	before, patch, changedBy bool // what modified events carry
}

// keeps reports whether bodies are kept as they were told.
func (v *lens) keeps() bool { return v.before || v.patch }

// newLens compiles a collection's options.
func (l *Lane) newLens(c *event.Collection, o *CollectionOptions) (*lens, error) {
	rules, err := shape.Compile(rulesOf(c, o.Redact), l.shape.Secrets)
	if err != nil {
		return nil, &ConfigError{fmt.Errorf("resource %s: redact: %w", c.ResourceID(), err)}
	}
	v := &lens{hide: rules.Of(c.Group, c.Resource), before: o.Before, patch: o.Patch, changedBy: o.ChangedBy}
	if digest := rules.Digest(); digest != "none" {
		v.shape = digest
	}
	if o.Filter != "" {
		if v.filter, err = filter.Compile(o.Filter); err != nil {
			return nil, &ConfigError{fmt.Errorf("resource %s: %w", c.ResourceID(), err)}
		}
		v.filterID = strconv.FormatUint(xxhash.Sum64String(o.Filter), 36)
	}
	if len(o.Ignore) > 0 {
		if v.ignore, err = shape.CompileIgnore(o.Ignore); err != nil {
			return nil, &ConfigError{fmt.Errorf("resource %s: ignore: %w", c.ResourceID(), err)}
		}
		v.ignoreID = ruleID(o.Ignore)
	}
	return v, nil
}

// rulesOf are the rules that are for a collection: a change of another's must not
// change its digest.
func rulesOf(c *event.Collection, rules []shape.Rule) []shape.Rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r shape.Rule) bool {
		if r.Preset == shape.ConfigMapKeys && len(r.Resources) == 0 {
			return c.ResourceID() != "configmaps"
		}
		return len(r.Resources) > 0 && !slices.ContainsFunc(r.Resources, func(pattern string) bool {
			return shape.Matches(pattern, c.Group, c.Resource)
		})
	})
}

// look makes a member's lens.
func (l *Lane) look(m *member) (err error) {
	if m.lens == nil {
		m.lens, err = l.newLens(&m.target.Collection, &m.options)
	}
	return err
}

// retune gives a running member other options. It begins anew, or with a list, if
// what the bus was told depends on those that have changed (design rules 9 and 10).
func (l *Lane) retune(ctx context.Context, m *member, o CollectionOptions) error {
	if reflect.DeepEqual(m.options, o) {
		return nil
	}
	next, err := l.newLens(&m.target.Collection, &o)
	if err != nil {
		return err
	}
	if err := l.look(m); err != nil {
		return err
	}
	if next.shape == m.lens.shape && next.filterID == m.lens.filterID || !m.running {
		m.options, m.lens = o, next // a member that does not run is aligned when it starts
		return l.dropBodies(ctx, m)
	}
	if err := l.halt(ctx, m, observed); err != nil {
		return err
	}
	m.options, m.lens = o, next
	if err := l.align(ctx, m); err != nil {
		return err
	}
	l.start(m)
	return nil
}

// align has a member that is about to start begin as its options want it to, by
// what the checkpoint says of those that it was told with.
func (l *Lane) align(ctx context.Context, m *member) error {
	if err := l.look(m); err != nil {
		return err
	}
	if err := l.dropBodies(ctx, m); err != nil {
		return err
	}
	told := m.position.RV != "" || m.position.Void || m.note.Shape != ""
	switch {
	case m.note.Due != "": // all is told anew
	case told && m.note.Shape != m.lens.shape:
		return l.beginAnew(ctx, m)
	case m.note.Reset != "": // it is under way
		m.reset, m.declared = m.note.Reset, true
	case m.position.Resumable() && m.note.Filter != m.lens.filterID:
		m.because = reasonFilter
		l.set(m, event.Position{Epoch: m.position.Epoch, RV: m.position.RV, Void: true})
	}
	return nil
}

// beginAnew has a member forget what was told of it: it starts with a reset of its
// own (design rule 9).
func (l *Lane) beginAnew(ctx context.Context, m *member) error {
	err := l.inv.each(m.prefix(), m.holds, func(o object) error {
		if err := l.room(ctx); err != nil {
			return err
		}
		l.quietly(m, l.forget(m, o)...)
		return nil
	})
	if err != nil {
		return err
	}
	m.reset, m.declared = newRun(), false
	m.resetWhy = "what may be seen of its objects has changed: other values are hidden"
	l.set(m, event.Position{Epoch: m.position.Epoch, Void: true})
	return nil
}

// makes reports whether bodies of a member are made before they are encoded.
func (m *member) makes() bool { return m.lens != nil && (m.lens.hide != nil || m.lens.keeps()) }

// made is the body of an object as it may be seen, and nil where it leaves as it is
// and nobody looks at it before. It is part of the current batch's memory.
func (l *Lane) made(m *member, o *source.Object) ([]byte, error) {
	if err := l.look(m); err != nil || !m.makes() {
		return nil, err
	}
	if m.lens.hide == nil {
		room := l.current.room(len(o.Raw))
		if l.shape.KeepManagedFields {
			return l.current.keep(room, append(room, o.Raw...)), nil
		}
		return l.current.keep(room, o.AppendWithoutManagedFields(room)), nil
	}
	raw := o.Raw
	if !l.shape.KeepManagedFields {
		l.scratch = o.AppendWithoutManagedFields(l.scratch[:0])
		raw = l.scratch
	}
	b := l.current
	room := b.room(len(raw) + redactedBytes)
	out, err := m.lens.hide.Append(room, raw, o.Namespace+"/"+o.Name)
	if err != nil {
		return nil, err
	}
	if string(out) != string(raw) {
		l.metrics.redacted.WithLabelValues(l.id.Sink, m.resource).Inc()
	}
	return b.keep(room, out), nil
}

// redactedBytes is what hashes usually add to a body at most.
const redactedBytes = 512

// anyFilter is no filter's id: objects were told with more than one.
const anyFilter = "*"

// noteLens has the note say what the member's objects are told with from here on.
// The list that is beginning tells by another filter one after the other: until its
// end there is not one that all were told with.
func (m *member) noteLens() []event.KV {
	next := m.note
	next.Shape, next.Reset, next.Due = m.lens.shape, m.reset, ""
	if m.list.refilters {
		next.Filter = anyFilter
	}
	if next == m.note {
		return nil
	}
	return m.noted(next)
}
