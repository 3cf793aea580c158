package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// View is a resource at a position.
type View struct {
	Resource Resource
	At       Position
}

// Get returns an object; nil if the view lacks it. Errors of Get, List and Changes wrap [ErrTrimmed] if Trim deletes
// what they read.
func (s *Store) Get(v View, o Name) (found *Object, err error) {
	prefix := objectKey(v.Resource, o)
	err = s.read(v, prefix, end(prefix), func(x *Object) bool {
		kept := *x // read is at its end, so the body is not used again
		found = &kept
		return true
	})
	return found, err
}

// List calls fn for the objects of a namespace, or of all, after a name, in the order of names, until fn returns false.
// fn must not keep o or its body.
func (s *Store) List(v View, namespace string, after Name, fn func(o *Object) bool) error {
	prefix := resourceKey(keyVersion, v.Resource)
	if namespace != "" {
		prefix = appendText(prefix, namespace)
	}
	from := prefix
	if after != (Name{}) {
		from = end(objectKey(v.Resource, after))
	}
	return s.read(v, from, end(prefix), fn)
}

// read calls fn for the objects of a view within keys, until it returns false. An object is only valid during the call.
func (s *Store) read(v View, from, to []byte, fn func(o *Object) bool) (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if err := s.retained(v); err != nil {
		return err
	}
	prefix := len(resourceKey(keyVersion, v.Resource))
	var best Object
	found := false // best is the object of a name
	for ok := it.First(); ok; {
		id, err := readVersionKey(prefix, it.Key())
		if err != nil {
			return err
		}
		if found && best.Name != id.Name {
			if found = false; !fn(&best) {
				return nil
			}
		}
		if id.at.Compare(v.At) > 0 {
			ok = it.SeekGE(versionKey(v.Resource, id.Name, id.collection, v.At))
			continue
		}
		if !s.dropped(v.Resource, id.collection, id.at, v.At) {
			x, body, err := splitVersion(it.Value())
			if err != nil {
				return err
			}
			if !x.Deleted && (!found || x.newerThan(&best.Version)) {
				x.Body = append(best.Body[:0], body...)
				best, found = Object{id.Name, x, id.collection, id.at}, true
			}
		}
		// Skip the older versions. Most objects have few of them in one collection.
		next := end(appendText(objectKey(v.Resource, id.Name), id.collection))
		if ok = it.Next(); ok && string(it.Key()) < string(next) {
			ok = it.SeekGE(next)
		}
	}
	if err := it.Error(); err != nil || !found {
		return err
	}
	fn(&best)
	return nil
}

// newerThan reports whether v is shown instead of w, which a collection with a lower ID holds.
func (v *Version) newerThan(w *Version) bool {
	if v.Epoch != w.Epoch {
		return v.Epoch > w.Epoch
	}
	return v.ResourceVersion > w.ResourceVersion
}

// Change is what a change did to a view.
type Change struct {
	At Position
	Name
	// Before and After are the object before and after the change; nil: there was none.
	Before, After *Object
	// Last is the version that the change wrote: of a deletion, the last state.
	Last Version
}

// Changes calls fn for the changes of a resource after one position, up to and including another, in order, until fn
// returns false. Changes of one object at one resourceVersion count as one; those that do not change the view are left
// out. With a namespace it reads the versions of that only. It returns the cause of ctx if ctx ends, also while nothing
// is called.
func (s *Store) Changes(ctx context.Context, r Resource, namespace string, after, upTo Position, fn func(c *Change) bool) (err error) {
	prefix := len(resourceKey(keyChange, r))
	bounds := pebble.IterOptions{LowerBound: append(changeKey(r, after), 0), UpperBound: append(changeKey(r, upTo), 0)}
	it, err := s.db.NewIter(&bounds)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if err := s.retained(View{r, after}); err != nil {
		return err
	}
	g := group{of: map[Name]int{}}
	for ok := it.First(); ok; ok = it.Next() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		id, err := readChange(prefix, it.Key(), it.Value())
		if err != nil {
			return err
		}
		if namespace != "" && id.Namespace != namespace {
			continue
		}
		if len(g.spans) > 0 && (g.spans[0].at.Era != id.at.Era || g.spans[0].at.Version != id.at.Version) {
			if more, err := s.changes(ctx, r, &g, fn); err != nil || !more {
				return err
			}
			g.reset()
		}
		g.add(id.versionID)
	}
	if err := it.Error(); err != nil {
		return err
	}
	_, err = s.changes(ctx, r, &g, fn)
	return err
}

// span are the changes of an object at one resourceVersion: the last, and the position of the first.
type span struct {
	versionID
	first    Position
	replaced bool // by a later span of the same object
}

// group are the spans of one era and resourceVersion. All objects that a list showed to be deleted can be in one.
type group struct {
	spans []span
	of    map[Name]int // the span of an object that is not replaced
}

func (g *group) add(id versionID) {
	first := id.at
	if i, ok := g.of[id.Name]; ok {
		first, g.spans[i].replaced = g.spans[i].first, true
	}
	g.of[id.Name] = len(g.spans)
	g.spans = append(g.spans, span{versionID: id, first: first})
}

// reset removes the spans. To clear the map would take as long as its largest group, each time.
func (g *group) reset() {
	for i := range g.spans {
		delete(g.of, g.spans[i].Name)
	}
	g.spans = g.spans[:0]
}

// changes calls fn for the changes of a group, and reports whether more are wanted.
func (s *Store) changes(ctx context.Context, r Resource, g *group, fn func(c *Change) bool) (more bool, err error) {
	for _, x := range g.spans {
		if x.replaced {
			continue
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		c := Change{At: x.at, Name: x.Name}
		if c.Before, err = s.Get(View{r, x.first.before()}, x.Name); err != nil {
			return false, err
		}
		if c.After, err = s.Get(View{r, x.at}, x.Name); err != nil {
			return false, err
		}
		if same(c.Before, c.After) {
			continue
		}
		if c.After != nil && c.After.At == x.at && c.After.Collection == x.collection {
			c.Last = c.After.Version
		} else if c.Last, err = s.version(r, x.versionID); err != nil {
			return false, fmt.Errorf("a change of %s: %w", r.Name, err)
		}
		if !fn(&c) {
			return false, nil
		}
	}
	return true, nil
}

func (s *Store) version(r Resource, id versionID) (v Version, err error) {
	value, err := s.get(versionKey(r, id.Name, id.collection, id.at))
	if err == nil {
		v, v.Body, err = splitVersion(value)
	}
	return v, err
}

// same reports whether two objects look the same to clients. They can be those of two collections.
func same(a, b *Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.At == b.At && a.Collection == b.Collection || a.UID == b.UID && a.Epoch == b.Epoch &&
		a.ResourceVersion == b.ResourceVersion && a.Extent == b.Extent && bytes.Equal(a.Body, b.Body)
}

// CountAt returns how many changes have a resourceVersion in an era, but not more than two.
func (s *Store) CountAt(r Resource, era, version uint64) (n int, err error) {
	prefix := changeKey(r, Position{Era: era, Version: version})
	for range rows(s.db, prefix[:len(prefix)-8], end(prefix[:len(prefix)-8]), &err) {
		if n++; n == 2 {
			break
		}
	}
	return n, err
}

// Moment returns the position that shows what was published up to a time, and the time with which it was recorded.
func (s *Store) Moment(r Resource, t time.Time) (at Position, since time.Time, found bool, err error) {
	prefix := resourceKey(keyMoment, r)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: append(momentKey(r, t.UnixMicro()), 0)})
	if err != nil {
		return at, since, false, err
	}
	if found = it.Last(); found {
		at, since = readPosition(it.Value()), momentTime(it.Key())
	}
	return at, since, found, errors.Join(it.Error(), it.Close())
}
