package feed

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/source"
)

const (
	// maxAsked bounds the requests per list that check whether a missing object exists.
	maxAsked = 500
	// maxRecalled bounds the number of missing keys of a list for which the reader looks for the last body. The
	// keys are in memory, about 300 bytes each; the bodies are not.
	maxRecalled = 10_000
	// missingPage is how many missing keys are handled at once after the first maxRecalled.
	missingPage = 1000
)

// reportMissing passes on the fates of the objects that are missing in the list. The list was complete at version.
func (f *follower) reportMissing(ctx context.Context, version string) error {
	for page, asked := 0, 0; ; page++ {
		limit := missingPage
		if page == 0 {
			limit = maxRecalled
		}
		m := missing{follower: f, version: version}
		err := f.slot.lend(ctx, func() (err error) {
			m.keys, err = f.handler.Missing(ctx, limit)
			return err
		})
		if err != nil || len(m.keys) == 0 {
			return err
		}
		if f.mayLeave() {
			asked += m.ask(ctx, maxAsked-asked)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if page == 0 {
			if err := m.recall(ctx); err != nil {
				return err
			}
		}
		if err := m.report(ctx, len(m.keys)); err != nil {
			return err
		}
	}
}

// mayLeave reports whether an object that is missing in a list may still exist.
func (f *follower) mayLeave() bool {
	c := &f.target.Collection
	return (c.LabelSelector != "" || c.FieldSelector != "") && !f.list.absent
}

// missing are keys that are missing in a list, in order, with the known fates.
type missing struct {
	*follower
	version string // of the list
	keys    []reconcile.Absentee
	fates   map[string]reconcile.Fate // by uid; nil: all are gone
}

// ask asks the server for the fates of up to limit objects, and returns the number of requests.
func (m *missing) ask(ctx context.Context, limit int) (asked int) {
	m.fates = map[string]reconcile.Fate{}
	for _, key := range m.keys {
		name := parseKey(key.Key)
		for _, o := range key.Objects {
			if asked == limit || ctx.Err() != nil {
				return asked
			}
			asked++
			m.fates[o.UID] = fate(m.source.Alive(ctx, name.Namespace, name.Name, o.UID))
		}
	}
	return asked
}

// recall reports each key of m whose last body the server still has, and the keys before it. The remaining keys of m stay unreported.
func (m *missing) recall(ctx context.Context) error {
	reported := 0
	return m.lastBodies(ctx, m.keys, func(i int, o *source.Object) error {
		if err := m.report(ctx, i-reported); err != nil {
			return err
		}
		reported = i + 1
		return m.reportOne(ctx, o)
	})
}

// recallReplaced passes on the last body of each object whose name belongs to another object in the list that is about to end.
func (f *follower) recallReplaced(ctx context.Context) error {
	var replaced []reconcile.Absentee
	err := f.slot.lend(ctx, func() (err error) {
		replaced, err = f.handler.Replaced(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return f.lastBodies(ctx, replaced, func(i int, o *source.Object) error {
		return f.slot.lend(ctx, func() error { return f.handler.Former(ctx, replaced[i].Key, o, len(o.Raw), o.Release) })
	})
}

// lastBodies calls found with the last body of each of the objects that the server had before the list, in order: with the one of the latest
// of [list.past] that has it. found passes it on, or releases it. If a body is not found, it may still have existed.
func (f *follower) lastBodies(ctx context.Context, absent []reconcile.Absentee, found func(i int, o *source.Object) error) error {
	past := make([]*pastState, len(f.list.past))
	for n, rv := range f.list.past {
		past[n] = &pastState{objects: f.stateAt(ctx, rv, absent)}
		defer past[n].close()
	}
	for i := range absent {
		for _, state := range past {
			if o := state.take(i); o != nil {
				if err := found(i, o); err != nil {
					return err
				}
				break
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// stateAt yields the absent objects that the server had at rv, with their places in absent. Both it and absent are sorted by key.
func (f *follower) stateAt(ctx context.Context, rv string, absent []reconcile.Absentee) iter.Seq2[int, *source.Object] {
	return func(yield func(int, *source.Object) bool) {
		names := make([]source.Name, len(absent))
		for i, key := range absent {
			names[i] = parseKey(key.Key)
		}
		err := f.source.Recall(ctx, rv, names, func(o *source.Object) error {
			i, known := slices.BinarySearchFunc(absent, durable.ObjectKey(o.Namespace, o.Name), func(a reconcile.Absentee, key string) int {
				return strings.Compare(a.Key, key)
			})
			switch {
			case !known || !absent[i].Had(o.UID, o.ResourceVersion):
				o.Release()
			case !yield(i, o):
				return errEnough
			}
			return nil
		})
		if err != nil && ctx.Err() == nil && !errors.Is(err, errEnough) {
			f.Log.Info("read of deleted objects' last bodies failed, going on without them", zap.String("collection", f.collection), zap.Error(err))
		}
	}
}

var errEnough = errors.New("nobody reads on")

// pastState reads a state of the server. It asks the server when the first object is taken.
type pastState struct {
	objects iter.Seq2[int, *source.Object]
	next    func() (int, *source.Object, bool)
	stop    func()
	i       int
	object  *source.Object // at place i; nil: there is none left
}

// take returns the object at place i; nil: the state does not have it. i rises from call to call.
func (p *pastState) take(i int) *source.Object {
	if p.next == nil {
		p.next, p.stop = iter.Pull2(p.objects)
		p.i, p.object, _ = p.next()
	}
	for p.object != nil && p.i < i {
		p.object.Release()
		p.i, p.object, _ = p.next()
	}
	if p.object == nil || p.i > i {
		return nil
	}
	o := p.object
	p.i, p.object, _ = p.next()
	return o
}

func (p *pastState) close() {
	if p.next == nil {
		return
	}
	if p.object != nil {
		p.object.Release()
	}
	p.stop()
}

// report reports the next n keys without a body.
func (m *missing) report(ctx context.Context, n int) error {
	for range n {
		if err := m.reportOne(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// reportOne reports the next key, with the last body of one of its objects; nil: the body is not known.
func (m *missing) reportOne(ctx context.Context, o *source.Object) error {
	s := &reconcile.Sighting{Form: reconcile.Lacking, Origin: reconcile.List, Key: m.keys[0].Key, Version: m.version}
	size, release := 0, func() {}
	if o != nil {
		s.Body, size, release = o, len(o.Raw), o.Release
	}
	if m.fates != nil {
		s.Fates = m.fate
	}
	m.keys = m.keys[1:]
	return m.input(ctx, &reconcile.Input{Kind: reconcile.ListLacks, Key: s.Key, Sighting: s}, size, release)
}

func (m *missing) fate(uid string) reconcile.Fate {
	if fate, asked := m.fates[uid]; asked {
		return fate
	}
	return reconcile.Unknown
}

// parseKey reverses [durable.ObjectKey].
func parseKey(key string) source.Name {
	namespace, name, _ := strings.Cut(key, "/")
	return source.Name{Namespace: namespace, Name: name}
}
