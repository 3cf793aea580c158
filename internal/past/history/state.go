package history

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// Rebuild answers q. State.Missing has what is not covered. It is an error if the bus cannot be read or is invalid.
func Rebuild(ctx context.Context, q Query) (*State, error) {
	b := builder{q: &q}
	ignored := map[string]bool{}
	l := NewLog(q.Reader, LogOptions{Cluster: q.Cluster, Progress: q.Progress, Ignored: func(err error) {
		if q.Ignored != nil && !ignored[err.Error()] { // the replay reads messages that the scan has read
			ignored[err.Error()] = true
			q.Ignored(err)
		}
	}})
	s := &scan{Log: l, point: q.At, ledger: newLedger(), asked: b.asked, enough: b.enough}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	if !q.At.isTime() { // the scan reads backwards, and cannot judge whether a collection was open at a resourceVersion
		s.ledger = newLedger()
	}
	b.replay = &replay{scan: s, needs: b.needs, keep: b.keeps, copies: map[string]*collectionCopy{}}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	if err := q.known(ctx, l); err != nil {
		return nil, err
	}
	return b.state()
}

type builder struct {
	*replay
	q   *Query
	out State
}

func (b *builder) asked(group, resource string) bool {
	named := func(n discovery.Name) bool { return n.Matches(group, resource) }
	return len(b.q.Resources) == 0 || slices.ContainsFunc(b.q.Resources, named)
}

// needs reports whether a collection may hold objects that the query asks for.
func (b *builder) needs(id string) bool {
	c := event.ParseCollection(id)
	return b.q.Namespace == "" || c.Namespace == "" || c.Namespace == b.q.Namespace
}

// keeps reports whether the query asks for an object. The Namespace object counts as part of its own namespace.
func (b *builder) keeps(h *head) bool {
	return b.q.Namespace == "" || h.Namespace == b.q.Namespace ||
		h.Group == "" && h.Resource == "namespaces" && h.Name == b.q.Namespace
}

// enough reports whether the scan may end: it has found all collections of the plan, and
// a complete list of each of them.
func (b *builder) enough(s *scan) bool {
	found := map[discovery.Name]bool{} // resources of the query that the scan has found
	for id, m := range s.ledger.collections {
		c := event.ParseCollection(id)
		for _, name := range b.q.Resources {
			if name.Matches(c.Group, c.Resource) {
				found[name] = true
			}
		}
		if !s.ledger.complete(m.resource) {
			return false
		}
	}
	for id, t := range s.tracks {
		m := s.ledger.collections[id]
		if b.needs(id) && t.base == nil && (m == nil || s.ledger.open(m)) {
			return false
		}
	}
	missing := func(n discovery.Name) bool { return !found[n] }
	return len(b.q.Resources) > 0 && !slices.ContainsFunc(b.q.Resources, missing)
}

func (b *builder) state() (*State, error) {
	b.out.ClusterUID = b.uid
	var covered []*collectionCopy
	unpublished := 0
	for _, id := range b.ids() {
		if c := b.copies[id]; c != nil && b.wasClosed(c) {
			b.ledger.take(c.closed)
		}
		c, missing := b.collection(id)
		if missing == nil {
			covered = append(covered, b.copies[id])
			b.out.Collections = append(b.out.Collections, c)
			continue
		}
		if b.unpublished(id) != "" {
			unpublished++
			missing.LeftOut = missing.LeftOut || len(b.q.Resources) == 0
		}
		b.out.Missing = append(b.out.Missing, *missing)
	}
	b.checkPlans()
	for _, name := range b.q.Resources {
		if err := b.checkFound(name); err != nil {
			return nil, err
		}
	}
	if len(b.out.Collections) == 0 && len(b.out.Missing) == 0 {
		b.out.Missing = append(b.out.Missing, Missing{Name: "cluster " + b.q.Cluster, Why: b.noEvents()})
	}
	if len(b.out.Collections) == 0 && unpublished == len(b.out.Missing) { // nothing remains, so leaving them out is an error
		for i := range b.out.Missing {
			b.out.Missing[i].LeftOut = false
		}
	}
	b.unite(covered)
	return &b.out, nil
}

// ids returns the IDs of the collections that were found, sorted.
func (b *builder) ids() []string {
	ids := slices.AppendSeq(slices.Collect(maps.Keys(b.tracks)), maps.Keys(b.copies))
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return !b.needs(id) })
}

// unpublished returns the event types that are not published for an open collection; "": all are, or nothing says so.
func (b *builder) unpublished(id string) string {
	if m := b.ledger.collections[id]; m != nil && b.ledger.open(m) {
		return strings.Join(m.selection.Types.LeftOut(), " and ")
	}
	return ""
}

// collection returns the coverage of a collection, or why its state is not known.
func (b *builder) collection(id string) (Covered, *Missing) {
	missing := func(leftOut bool, why string, args ...any) (Covered, *Missing) {
		return Covered{}, &Missing{Name: id, Why: fmt.Sprintf(why, args...), LeftOut: leftOut}
	}
	m, c := b.ledger.collections[id], b.copies[id]
	switch types := b.unpublished(id); {
	case types != "":
		return missing(false, "its %s events are not published (types): its state cannot be rebuilt", types)
	case m != nil && m.incarnation < b.ledger.birth: // the plan may be complete without it
		return missing(b.ledger.complete(m.resource), "the sink lost its checkpoint, and had not listed it again by then")
	case m != nil && m.closed != nil:
		return missing(true, "it is not watched since %s (%s)", stamp(m.closed.Time), m.closed.Report.Reason)
	case m == nil: // the configuration at the point may not have it
		complete := b.ledger.complete(event.ParseCollection(id).ResourceID())
		return missing(complete, "what the bus holds of it begins after %s", b.point)
	case c == nil || c.base == nil && c.lastGap == nil:
		return missing(false, "no reset or resync by then that publishes every object is on the bus, which goes back to %s: "+
			"`bridge resync` makes one for later times", stamp(b.earliest))
	case c.base == nil || c.base.synced.Incarnation != m.incarnation:
		return missing(false, "a list that publishes every object began at %s (%s), and was not complete by then",
			stamp(c.lastGap.Time), c.lastGap.Report.Reason)
	}
	lacks := ""
	if !b.latest[c.base.log] { // on a log that keeps only the latest events, later ones have replaced parts of the list
		lacks = c.base.incomplete()
	}
	if why := cmp.Or(lacks, b.unreached(c)); why != "" {
		return missing(false, "%s", why)
	}
	return b.covered(c), nil
}

// incomplete returns why a list is not complete; "" if it is.
func (l *list) incomplete() string {
	n := l.synced.Report.Counts
	when := fmt.Sprintf("%s (resourceVersion %s)", stamp(l.synced.Time), l.synced.ResourceVersion)
	switch {
	case n == nil:
		return "the list of " + when + " does not say how many objects it had"
	case n.Skipped > 0:
		return fmt.Sprintf("%d objects of the list of %s were not to be published (snapshot: skip)", n.Skipped, when)
	}
	want := n.Listed - n.Filtered
	if l.resync { // objects that the watch has changed since the gap are not published by the list
		want = n.Present
	}
	if l.held != want {
		return fmt.Sprintf("of the %d objects of the list of %s the bus holds %d: "+
			"the others are dead letters, or were published later", want, when, l.held)
	}
	return ""
}

// reached returns the position up to which every part of a collection is known to be complete.
func (b *builder) reached(c *collectionCopy) (least position) {
	for _, f := range b.baseParts(c) {
		if least == (position{}) || f.reached.compare(least) < 0 {
			least = f.reached
		}
	}
	return least
}

// baseParts returns the parts of the topic or stream that has the collection's base list.
func (b *builder) baseParts(c *collectionCopy) (parts []*partProgress) {
	for i, f := range c.progress {
		if b.Parts()[i].Log == c.base.log {
			parts = append(parts, f)
		}
	}
	return parts
}

// unreached returns why the bus does not prove the collection's state at the point's resourceVersion; "" if it does.
func (b *builder) unreached(c *collectionCopy) string {
	if b.point.isTime() {
		return ""
	}
	for _, f := range b.baseParts(c) {
		if b.point.Epoch != 0 && f.epoch != b.point.Epoch {
			return fmt.Sprintf("its first list of epoch %d was not complete at resourceVersion %d", b.point.Epoch, b.point.RV)
		}
	}
	if b.reached(c).version == 0 {
		return "the bus does not show up to which resourceVersion of the epoch it was complete"
	}
	return ""
}

func (b *builder) covered(c *collectionCopy) Covered {
	s := c.base.synced
	out := Covered{
		Collection: c.id, Resource: c.resource, Base: s.Time, BaseRV: s.ResourceVersion, Selection: b.ledger.collections[c.id].selection,
		Filtered: s.Report.Counts != nil && s.Report.Counts.Filtered > 0, Last: c.last, Silent: c.firstAfter.IsZero(),
		Replaced: b.latest[c.base.log] && !c.firstAfter.IsZero(),
	}
	for _, f := range b.baseParts(c) {
		if f.open != nil && (out.Gap == nil || out.Gap.Run < f.open.Run) {
			out.Gap = f.open
		}
	}
	at := b.reached(c)
	if at.version > 0 {
		out.Reached, out.ReachedEpoch = strconv.FormatUint(at.version, 10), at.epoch
	}
	out.Behind = !b.point.isTime() && at.compare(b.point.position()) < 0
	return out
}

// checkPlans adds the resources that have a collection in the plan but not on the bus. It skips resources with an open
// gap or an incomplete list: these are reported as incomplete already.
func (b *builder) checkPlans() {
	if !b.point.isTime() {
		return
	}
	const why = "the configuration has other collections of it than the bus had by then"
	weak := map[string]bool{} // resources that are reported as incomplete
	for _, m := range b.out.Missing {
		if !m.LeftOut {
			weak[event.ParseCollection(m.Name).ResourceID()] = true
		}
	}
	for _, c := range b.out.Collections {
		if c.Gap != nil {
			weak[c.Resource] = true
		}
	}
	for _, c := range b.out.Collections {
		if !weak[c.Resource] && !b.ledger.complete(c.Resource) {
			weak[c.Resource] = true
			b.out.Missing = append(b.out.Missing, Missing{Name: c.Resource, Why: why})
		}
	}
}

// unite collects the objects of all collections. For each name it takes the publication with the highest version, at
// first the first collection's. An object with a lower version and another UID does not exist any more.
func (b *builder) unite(covered []*collectionCopy) {
	all := map[consumer.Name]*Object{}
	for _, c := range covered { // in the order of their IDs
		for n, e := range c.state.All() {
			o := all[n]
			if o == nil {
				o = &Object{Received: e, ResourceID: n.Resource}
				all[n] = o
			}
			if newer(e, o.Received) {
				o.Received = e
			}
			o.Held = append(o.Held, e)
		}
	}
	for _, o := range all {
		o.Held = slices.DeleteFunc(o.Held, func(e *event.Received) bool { return e.UID != o.UID })
		b.out.Objects = append(b.out.Objects, *o)
	}
	slices.SortFunc(b.out.Objects, func(x, y Object) int {
		return cmp.Or(strings.Compare(x.ResourceID, y.ResourceID), strings.Compare(x.Namespace, y.Namespace),
			strings.Compare(x.Received.Name, y.Received.Name))
	})
}

// newer reports whether publication a is of a higher epoch and version than b.
func newer(a, b *event.Received) bool {
	if a.Epoch != b.Epoch {
		return a.Epoch > b.Epoch
	}
	return event.Older(b.ResourceVersion, a.ResourceVersion)
}

// noEvents returns the message for a query that found no events.
func (b *builder) noEvents() string {
	why := "the bus holds no events of it up to then"
	if !b.earliest.IsZero() {
		why += "; it goes back to " + stamp(b.earliest)
	}
	return why
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// checkFound adds to Missing a resource that no collection has. A name that means two resources is an error.
func (b *builder) checkFound(name discovery.Name) error {
	var found []string
	ended, matches := "", func(c event.Collection) bool { return name.Matches(c.Group, c.Resource) }
	for _, c := range b.out.Collections {
		found = append(found, c.Resource)
	}
	for _, m := range b.out.Missing {
		c := event.ParseCollection(m.Name)
		if m.LeftOut && matches(c) {
			ended = m.Why
			continue
		}
		found = append(found, c.ResourceID())
	}
	slices.Sort(found)
	found = slices.DeleteFunc(slices.Compact(found), func(id string) bool { return !matches(event.ParseCollection(id)) })
	switch {
	case len(found) > 1 && !slices.Contains(found, name.Unversioned()):
		return &AmbiguousError{Name: name.String(), Candidates: found}
	case len(found) == 0:
		b.out.Missing = append(b.out.Missing, Missing{Name: name.String(), Why: cmp.Or(ended, b.noEvents())})
	}
	return nil
}
