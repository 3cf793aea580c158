package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Query asks for the state of a cluster at a point.
type Query struct {
	Reader    sink.Reader
	Cluster   string // the configured name
	Goes      Goes
	At        Point
	Resources []string // as [Matches] takes them; none: all on the bus
	Namespace string   // only what is in it; "": everything
	// Untold says which types of event a resource's collections do not tell on
	// purpose, so that no state can be rebuilt; nil: none.
	Untold func(resource string) string
	// Whole opens a reader of all resources, for a resourceVersion that is newer than
	// what Reader holds; nil: Reader has all.
	Whole    func(context.Context) (sink.Reader, error)
	Progress func(Progress) // nil: nobody wants to know
}

// State is what collections looked like.
type State struct {
	ClusterUID  string
	Objects     []Object // by resource, namespace and name
	Collections []Covered
	Missing     []Missing
}

// Object is an object as it was last told by then.
type Object struct {
	*event.Received
	ResourceID string // "pods", "deployments.apps"
}

// Name is "namespace/name", or "name".
func (o *Object) Name() string { return nameOf(o.Namespace, o.Received.Name) }

func nameOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Covered is a collection whose state is known.
type Covered struct {
	Collection string
	Resource   string
	Base       time.Time // of the list that the state rests on
	BaseRV     string
	Filtered   bool // a filter left objects of that list out
	// Gap is not nil where the bus was out of date at the point: changes may be
	// missing.
	Gap *event.Received
	// Word is the time of the last event of the collection by then. Silence is true
	// where none came after it: the bridge may have been down since.
	Word    time.Time
	Silence bool
	// Reached is the resourceVersion, of an epoch, up to which it was complete by then; "": that is not known. Only
	// internal/nexthistory finds it out.
	Reached      string
	ReachedEpoch uint64
}

// Missing is a collection, or a resource, that nothing is said of, and why.
type Missing struct {
	Name string // a collection or, where the bus knows none, a resource
	Why  string
	// LeftOut says that no error is made of it: it was no longer watched, by intention, or
	// nobody named it and no bus could cover it.
	LeftOut bool
}

// ErrNotCovered is of a state that the bus does not hold whole.
var ErrNotCovered = errors.New("not covered")

// Err is nil if everything that was asked for is covered. Its lines name what is not.
func (s *State) Err() error {
	var all []error
	for _, m := range s.Missing {
		if !m.LeftOut {
			all = append(all, fmt.Errorf("%w: %s: %s", ErrNotCovered, m.Name, m.Why))
		}
	}
	return errors.Join(all...)
}

// Until is the time of a point, or the last time by which a resourceVersion is known to have been: that of the last
// event by then.
func (s *State) Until(p Point) time.Time {
	t := p.Time
	for _, c := range s.Collections {
		if !p.isTime() && t.Before(c.Word) {
			t = c.Word
		}
	}
	return t
}

// Matches reports whether a resource is meant by a name: "pods", "deployments.apps",
// or "deployments" whatever its group.
func Matches(name, group, resource string) bool {
	c := event.Collection{Group: group, Resource: resource}
	return name == resource || name == c.ResourceID()
}

func (q *Query) asked(group, resource string) bool {
	return len(q.Resources) == 0 || slices.ContainsFunc(q.Resources, func(n string) bool { return Matches(n, group, resource) })
}

func (q *Query) wanted(e *event.Received) bool {
	c := event.ParseCollection(e.Collection)
	return q.asked(c.Group, c.Resource) && (q.Namespace == "" || c.Namespace == "" || c.Namespace == q.Namespace)
}

// keeps reports whether an object is asked for. A namespace is in itself.
func (q *Query) keeps(h *head) bool {
	return q.Namespace == "" || h.namespace == q.Namespace ||
		h.group == "" && h.resource == "namespaces" && h.name == q.Namespace
}

// enough reports whether no other collection can matter: one that holds all objects
// that are asked for has its base, of every resource that is asked for.
func (q *Query) enough(tracks map[string]*track) bool {
	if len(q.Resources) == 0 {
		return false
	}
	for _, name := range q.Resources {
		whole := false
		for id, t := range tracks {
			c := event.ParseCollection(id)
			all := c.LabelSelector == "" && c.FieldSelector == "" && (c.Namespace == "" || c.Namespace == q.Namespace)
			whole = whole || all && t.base != nil && Matches(name, c.Group, c.Resource)
		}
		if !whole {
			return false
		}
	}
	for _, t := range tracks {
		if last, _ := t.last(); t.base == nil && last != nil && last.event.Type != event.Closed {
			return false
		}
	}
	return true
}

// Rebuild answers q. What is not covered is in State.Missing; an error is of the bus, or
// of what stands on it.
func Rebuild(ctx context.Context, q Query) (*State, error) {
	l := newLog(q.Reader, q.Cluster, q.Goes, q.Progress)
	s := scan{log: l, point: q.At, wanted: q.wanted, enough: q.enough}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	out := &State{}
	var based []*track
	unpublished := map[string]bool{}
	for _, t := range sorted(s.tracks) {
		untold := ""
		if q.Untold != nil {
			c := event.ParseCollection(t.id)
			untold = q.Untold(c.ResourceID())
		}
		switch {
		case untold != "":
			unpublished[t.id] = true
			out.Missing = append(out.Missing, Missing{
				Name: t.id, LeftOut: len(q.Resources) == 0,
				Why: "its " + untold + " events are not published (types): its state cannot be rebuilt",
			})
		case t.base == nil:
			out.Missing = append(out.Missing, s.why(t))
		default:
			based = append(based, t)
		}
	}
	r := newReplay(l, q.At, based, q.keeps)
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	if err := q.known(ctx, l); err != nil {
		return nil, err
	}
	out.ClusterUID = l.uid
	left := map[string]bool{}
	for _, t := range based {
		c, missing := r.covered(t)
		if missing != nil {
			out.Missing = append(out.Missing, *missing)
			left[t.id] = true
			continue
		}
		out.Collections = append(out.Collections, c)
	}
	for _, name := range q.Resources {
		if err := out.unheard(name, &s); err != nil {
			return nil, err
		}
	}
	if len(out.Collections) == 0 && len(out.Missing) == 0 {
		out.Missing = append(out.Missing, Missing{Name: "cluster " + q.Cluster, Why: s.silent()})
	}
	if len(out.Collections) == 0 && len(unpublished) == len(out.Missing) { // what is left out is all there is
		for i := range out.Missing {
			out.Missing[i].LeftOut = false
		}
	}
	return out, out.collect(r, left)
}

// collect decodes what exists.
func (s *State) collect(r *replay, left map[string]bool) error {
	for key, e := range r.objects {
		if !e.exists || left[e.collection] {
			continue
		}
		o, err := decode(e.headers, e.value)
		if err != nil {
			return fmt.Errorf("message %d of %s: %w: %w", e.offset, r.Parts()[e.part].Name, ErrForeign, err)
		}
		e.value = nil
		o.Data = nil
		s.Objects = append(s.Objects, Object{Received: o, ResourceID: key.resource})
	}
	slices.SortFunc(s.Objects, func(a, b Object) int {
		return cmp.Or(strings.Compare(a.ResourceID, b.ResourceID), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Received.Name, b.Received.Name), a.Time.Compare(b.Time))
	})
	return nil
}

// covered verifies a base: as many objects were told as were listed.
func (r *replay) covered(t *track) (c Covered, missing *Missing) {
	p := event.ParseCollection(t.id)
	c = Covered{Collection: t.id, Resource: p.ResourceID(), Base: t.synced.Time, BaseRV: t.synced.ResourceVersion, Silence: true}
	c.Filtered = t.synced.Report.Counts.Filtered > 0
	for _, f := range r.follows[t.id] {
		if f.closed != nil && f.closed.Report.Reason != "gone" {
			return c, &Missing{Name: t.id, LeftOut: true, Why: fmt.Sprintf("it is not watched since %s (%s)", stamp(f.closed.Time), f.closed.Report.Reason)}
		}
		// A gap begins behind the resourceVersion that it names.
		if f.open != nil && (r.point.isTime() || f.open.ResourceVersion != strconv.FormatUint(r.point.RV, 10)) {
			c.Gap = f.open
		}
		if f.wasIn && f.syncedIn != r.point.Epoch {
			return c, &Missing{Name: t.id, Why: fmt.Sprintf("its first list of epoch %d was not complete at resourceVersion %d", r.point.Epoch, r.point.RV)}
		}
		if f.late {
			return c, &Missing{Name: t.id, Why: fmt.Sprintf("the list that ended at %s was not through by then", stamp(t.synced.Time))}
		}
		if c.Word.Before(f.word) {
			c.Word = f.word
		}
		if !f.nextWord.IsZero() {
			c.Silence = false
		}
	}
	counts, told := t.synced.Report.Counts, r.counted[t.id]
	want := counts.Listed - counts.Filtered
	if t.synced.Report.Reason == reasonResync { // beside which the watch tells of others, and of the end of some
		want += counts.Added - counts.Deleted
	}
	if told != want {
		return c, &Missing{Name: t.id, Why: fmt.Sprintf("of the %d objects of %s (resourceVersion %s) the bus holds %d by then: the others are dead letters, or were told later",
			want, stamp(t.synced.Time), t.synced.ResourceVersion, told)}
	}
	return c, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// why is why a collection has no base.
func (s *scan) why(t *track) Missing {
	last, next := t.last()
	switch {
	case last == nil && next != nil:
		return Missing{Name: t.id, Why: fmt.Sprintf("what the bus holds of it begins after %s, at %s", s.point, stamp(next.event.Time))}
	case last == nil:
		return Missing{Name: t.id, Why: "what the bus holds of it begins after " + s.point.String()}
	case last.event.Type == event.Closed:
		return Missing{Name: t.id, LeftOut: true, Why: fmt.Sprintf("it is not watched since %s (%s)", stamp(last.event.Time), last.event.Report.Reason)}
	case last.event.Type == event.Gap && last.event.Report.From == "":
		return Missing{Name: t.id, Why: fmt.Sprintf("its first list began at %s and was not through by then", stamp(last.event.Time))}
	}
	return Missing{Name: t.id, Why: fmt.Sprintf("no snapshot, reset or resync that tells every object stands on the bus by then, which goes back to %s: `bridge resync` makes one for the future",
		stamp(s.earliest))}
}

// silent says from when on the bus tells anything.
func (s *scan) silent() string {
	if s.earliest.IsZero() {
		return "the bus holds nothing of it by then"
	}
	return "the bus holds nothing of it by then; it goes back to " + stamp(s.earliest)
}

// unheard adds what was asked for and no collection is of. A name that means two
// resources is an error.
func (s *State) unheard(name string, of *scan) error {
	var found []string
	for _, c := range s.Collections {
		found = append(found, c.Resource)
	}
	ended := ""
	for _, m := range s.Missing {
		c := event.ParseCollection(m.Name)
		if m.LeftOut && Matches(name, c.Group, c.Resource) {
			ended = m.Why
			continue
		}
		found = append(found, c.ResourceID())
	}
	slices.Sort(found)
	found = slices.DeleteFunc(slices.Compact(found), func(id string) bool {
		c := event.ParseCollection(id)
		return !Matches(name, c.Group, c.Resource)
	})
	switch {
	case len(found) > 1 && !slices.Contains(found, name):
		return &AmbiguousError{Name: name, Of: found}
	case len(found) > 0:
		return nil
	case ended != "":
		s.Missing = append(s.Missing, Missing{Name: name, Why: ended})
	default:
		s.Missing = append(s.Missing, Missing{Name: name, Why: of.silent()})
	}
	return nil
}

// AmbiguousError is of a name that several resources have.
type AmbiguousError struct {
	Name string
	Of   []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q may be %s: name one", e.Name, strings.Join(e.Of, " or "))
}

// Value is the object, decoded.
func (o *Object) Value() (map[string]any, error) {
	var v map[string]any
	d := json.NewDecoder(strings.NewReader(string(o.Object)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", o.ResourceID, o.Name(), err)
	}
	return v, nil
}

// Unwhole says why the object cannot be taken for what it was; "" if it can.
func (o *Object) Unwhole() string {
	switch {
	case !o.BodyKnown:
		return "its body is not known"
	case o.Truncated != nil:
		return "it was truncated"
	}
	return ""
}
