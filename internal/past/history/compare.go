package history

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

// Difference lists how two states differ, sorted by resource, namespace and name.
type Difference struct {
	Added     int                `json:"added"`
	Removed   int                `json:"removed"`
	Changed   int                `json:"changed"`
	Unchanged int                `json:"unchanged"`
	Objects   []ObjectDifference `json:"objects"`
	// LeftOut names the collections and resources that are not compared, with the reason.
	LeftOut []LeftOut `json:"leftOut,omitempty"`
}

// LeftOut is a collection, or a resource, that is not compared.
type LeftOut struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// ObjectDifference is one object of a [Difference].
type ObjectDifference struct {
	What      string   `json:"what"` // "added", "removed", "changed"
	Resource  string   `json:"resource"`
	Name      string   `json:"name"` // with its namespace
	UID       string   `json:"uid"`
	FormerUID string   `json:"formerUID,omitempty"` // if it was deleted and created again in between
	Paths     []string `json:"paths,omitempty"`     // JSON pointers of what changed
	Note      string   `json:"note,omitempty"`
}

// Compare finds how two states differ. An object that only one state has counts as added or removed if both states
// cover a collection that held it. Otherwise it is left out, because the other state does not say whether it existed.
func Compare(ctx context.Context, before, after *State) (*Difference, error) {
	d := &Difference{Objects: []ObjectDifference{}}
	for _, m := range slices.Concat(before.Missing, after.Missing) {
		if !slices.ContainsFunc(d.LeftOut, func(l LeftOut) bool { return l.Name == m.Name }) {
			d.LeftOut = append(d.LeftOut, LeftOut{m.Name, m.Why})
		}
	}
	type key struct{ resource, name string }
	was := map[key]*Object{}
	for i := range before.Objects {
		o := &before.Objects[i]
		was[key{o.ResourceID, o.Name()}] = o
	}
	for i := range after.Objects {
		o := &after.Objects[i]
		k := key{o.ResourceID, o.Name()}
		old := was[k]
		delete(was, k)
		if old == nil && !before.covers(o) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := d.take(old, o); err != nil {
			return nil, err
		}
	}
	for k, o := range was {
		if after.covers(o) {
			d.Removed++
			d.Objects = append(d.Objects, ObjectDifference{What: "removed", Resource: k.resource, Name: k.name, UID: o.UID})
		}
	}
	slices.SortFunc(d.Objects, func(a, b ObjectDifference) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Name, b.Name))
	})
	return d, nil
}

// covers reports whether the state covers one of the collections that held o, an object of another state.
func (s *State) covers(o *Object) bool {
	return slices.ContainsFunc(s.Collections, func(c Covered) bool {
		return slices.ContainsFunc(o.Held, func(e *event.Received) bool { return e.Collection == c.Collection })
	})
}

// take adds an object of the later state. old is the object of that name in the earlier state, or nil.
func (d *Difference) take(old, o *Object) error {
	one := ObjectDifference{What: "added", Resource: o.ResourceID, Name: o.Name(), UID: o.UID}
	if old == nil {
		d.Added++
		d.Objects = append(d.Objects, one)
		return nil
	}
	was, now := comparableBodies(old, o)
	if old.UID == o.UID && was.ResourceVersion == now.ResourceVersion && bytes.Equal(was.Object, now.Object) {
		d.Unchanged++
		return nil
	}
	one.What = "changed"
	if err := one.compare(was, now); err != nil {
		return err
	}
	d.Changed++
	d.Objects = append(d.Objects, one)
	return nil
}

// comparableBodies returns the bodies to compare. If one collection published both states it returns that collection's
// bodies, because entries can leave out different fields.
func comparableBodies(old, o *Object) (was, now *Object) {
	for _, a := range old.Views() {
		for _, b := range o.Views() {
			if a.Collection == b.Collection {
				return &Object{Received: a, ResourceID: old.ResourceID}, &Object{Received: b, ResourceID: o.ResourceID}
			}
		}
	}
	return old, o
}

func (d *ObjectDifference) compare(old, o *Object) (err error) {
	if old.UID != o.UID {
		d.FormerUID = old.UID
	}
	if old.Incomplete() != "" || o.Incomplete() != "" {
		d.Note = "what changed is not known: a body is not whole on the bus"
		return nil
	}
	if d.Paths, err = Paths(old.Object, o.Object); err != nil {
		return err
	}
	switch {
	case len(d.Paths) == 0:
		d.Note = "nothing but its resourceVersion or managedFields"
	case old.Collection != o.Collection:
		d.Note = fmt.Sprintf("published by %s before and by %s after: fields that only one of them has differ, too", old.Collection, o.Collection)
	}
	return nil
}

// hashPrefix is the beginning of every value that the bridge has hashed.
const hashPrefix = "hmac+sha256/"

// Hidden reports whether a value of the object is hashed or redacted on the bus. It cannot detect values that were
// removed.
func (o *Object) Hidden() bool {
	return bytes.Contains(o.Object, []byte(`"`+hashPrefix)) || bytes.Contains(o.Object, []byte(`"`+shape.Redacted+`"`))
}
