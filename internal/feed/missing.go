package feed

import (
	"context"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/durable"
	"github.com/kubebridge/kubebridge/internal/reconcile"
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

// reportMissing passes on the fates of the objects that are missing in the list. The list was
// complete at version.
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
		if page == 0 && f.list.from != "" {
			if err := m.recall(ctx, f.list.from); err != nil {
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
		for _, uid := range key.UIDs {
			if asked == limit || ctx.Err() != nil {
				return asked
			}
			asked++
			m.fates[uid] = fate(m.source.Alive(ctx, name.Namespace, name.Name, uid))
		}
	}
	return asked
}

// recall lists the server's state at the resourceVersion from. It reports each key of m whose last
// body is in that list, and the keys before it. The remaining keys of m stay unreported. Lists and m are
// sorted by key; a body that comes in another order is not used.
func (m *missing) recall(ctx context.Context, from string) error {
	names := make([]source.Name, len(m.keys))
	for i, key := range m.keys {
		names[i] = parseKey(key.Key)
	}
	var failed error
	err := m.source.Recall(ctx, from, names, func(o *source.Object) error {
		i, found := slices.BinarySearchFunc(m.keys, durable.ObjectKey(o.Namespace, o.Name), func(a reconcile.Absentee, key string) int {
			return strings.Compare(a.Key, key)
		})
		if !found || !slices.Contains(m.keys[i].UIDs, o.UID) {
			o.Release()
			return nil
		}
		if failed = m.report(ctx, i); failed == nil {
			failed = m.reportOne(ctx, o)
		}
		return failed
	})
	return m.recalled(ctx, err, failed)
}

// recalled returns the error of a failed recall. It returns nil if only the server's answer is missing: the last bodies
// are then unknown.
func (f *follower) recalled(ctx context.Context, err, failed error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case failed != nil:
		return failed
	case err != nil:
		f.Log.Info("read of deleted objects' last bodies failed, going on without them", zap.String("collection", f.collection), zap.Error(err))
	}
	return nil
}

// recallReplaced lists the server's state at the resourceVersion from. It passes on the last body of each object whose name
// belongs to another object in the list that is about to end.
func (f *follower) recallReplaced(ctx context.Context, from string) error {
	var keys []string
	err := f.slot.lend(ctx, func() (err error) {
		keys, err = f.handler.Replaced(ctx)
		return err
	})
	if err != nil || len(keys) == 0 {
		return err
	}
	names := make([]source.Name, len(keys))
	for i, key := range keys {
		names[i] = parseKey(key)
	}
	var failed error
	err = f.source.Recall(ctx, from, names, func(o *source.Object) error {
		key := durable.ObjectKey(o.Namespace, o.Name)
		failed = f.slot.lend(ctx, func() error { return f.handler.Former(ctx, key, o, len(o.Raw), o.Release) })
		return failed
	})
	return f.recalled(ctx, err, failed)
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

// fate returns the fate of an object.
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
