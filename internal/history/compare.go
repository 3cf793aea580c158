package history

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/shape"
)

// Difference is what differs between two states, by resource, namespace and name.
type Difference struct {
	Added     int       `json:"added"`
	Removed   int       `json:"removed"`
	Changed   int       `json:"changed"`
	Unchanged int       `json:"unchanged"`
	Objects   []Differs `json:"objects"`
	// LeftOut names what the bus cannot say this of, with the reason.
	LeftOut []LeftOut `json:"leftOut,omitempty"`
}

// LeftOut is a collection, or a resource, that a [Difference] has nothing of.
type LeftOut struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Differs is one object of a [Difference].
type Differs struct {
	What      string   `json:"what"` // "added", "removed", "changed"
	Resource  string   `json:"resource"`
	Name      string   `json:"name"` // with its namespace
	UID       string   `json:"uid"`
	FormerUID string   `json:"formerUID,omitempty"` // where it was made anew in between
	Paths     []string `json:"paths,omitempty"`     // JSON pointers of what changed
	Note      string   `json:"note,omitempty"`
}

// Compare tells what made after of before. What only one of them covers is left out.
func Compare(before, after *State) (*Difference, error) {
	d := &Difference{Objects: []Differs{}}
	for _, m := range slices.Concat(before.Missing, after.Missing) {
		if !slices.ContainsFunc(d.LeftOut, func(l LeftOut) bool { return l.Name == m.Name }) {
			d.LeftOut = append(d.LeftOut, LeftOut{m.Name, m.Why})
		}
	}
	both := map[string]int{}
	for _, c := range before.Collections {
		both[c.Collection] |= 1
	}
	for _, c := range after.Collections {
		both[c.Collection] |= 2
	}
	type key struct{ resource, name string }
	was := map[key]*Object{}
	for i := range before.Objects {
		if o := &before.Objects[i]; both[o.Collection] == 3 {
			was[key{o.ResourceID, o.Name()}] = o
		}
	}
	for i := range after.Objects {
		o := &after.Objects[i]
		if both[o.Collection] != 3 {
			continue
		}
		k := key{o.ResourceID, o.Name()}
		old := was[k]
		delete(was, k)
		one := Differs{What: "added", Resource: o.ResourceID, Name: o.Name(), UID: o.UID}
		switch {
		case old == nil:
			d.Added++
		case old.UID == o.UID && old.ResourceVersion == o.ResourceVersion && bytes.Equal(old.Object, o.Object):
			d.Unchanged++
			continue
		default:
			one.What = "changed"
			if err := one.compare(old, o); err != nil {
				return nil, err
			}
			d.Changed++
		}
		d.Objects = append(d.Objects, one)
	}
	for k, o := range was {
		d.Removed++
		d.Objects = append(d.Objects, Differs{What: "removed", Resource: k.resource, Name: k.name, UID: o.UID})
	}
	slices.SortFunc(d.Objects, func(a, b Differs) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Name, b.Name))
	})
	return d, nil
}

func (d *Differs) compare(old, o *Object) (err error) {
	if old.UID != o.UID {
		d.FormerUID = old.UID
	}
	if old.Unwhole() != "" || o.Unwhole() != "" {
		d.Note = "what changed is not known: a body is not whole on the bus"
		return nil
	}
	if d.Paths, err = Paths(old.Object, o.Object); err != nil {
		return err
	}
	if len(d.Paths) == 0 {
		d.Note = "nothing but its resourceVersion or managedFields"
	}
	return nil
}

// hashPrefix begins every value that the bridge hashed.
const hashPrefix = "hmac+sha256/"

// Hidden reports whether a value of the object is hidden on the bus: hashed, or the
// word that stands for one. What was removed does not show.
func (o *Object) Hidden() bool {
	return bytes.Contains(o.Object, []byte(`"`+hashPrefix)) || bytes.Contains(o.Object, []byte(`"`+shape.Redacted+`"`))
}
