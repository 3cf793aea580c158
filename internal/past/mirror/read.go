package mirror

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
)

var (
	// ErrIncomplete is returned for a resource of which the bus has not shown a complete state yet, or since a reset.
	ErrIncomplete = errors.New("not complete")
	// ErrExpired is returned for a resourceVersion or time that is not covered.
	ErrExpired = errors.New("not covered")
	// ErrTooNew is returned for a resourceVersion that the resource has not reached.
	ErrTooNew = errors.New("too large resource version")
	// ErrUnread is returned for a time whose state is not known yet: messages of it may not be read, or are not served.
	ErrUnread = errors.New("not read yet")
	// ErrAbsent is returned for a resource that does not exist in the cluster, or that the bridge does not publish any
	// more.
	ErrAbsent = errors.New("the resource does not exist")
)

// Resource is what readers see of a resource. It does not change; [Mirror.Resource] returns a newer one.
type Resource struct {
	ID          store.Resource
	Kind        Kind
	KindTime    time.Time // of the last event that Kind is of, by the bridge's clock; zero: it is that of a deletion
	Eras        []Era     // ascending; the last one is the present era
	Served      store.Position
	Floor       store.Position // lower positions are not retained; zero: all are
	Time        time.Time      // the highest of an event, by the bridge's clock
	LastEvent   time.Time      // of the partition whose last event is the oldest; zero: a partition had none
	Complete    bool           // the union is complete, and the present era is served
	Unordered   string         // a resourceVersion that is not a number; "": all are numbers
	Collections []string       // that are not closed, sorted; empty also if messages were lost and no collection was read again yet
	Closed      bool           // the bridge has closed every collection: it does not publish the resource any more
	Until       time.Time      // the last time whose state is known: see [Mirror.AtTime]

	spans []Span
}

// Resource returns a resource; nil if the bus has no event of it.
func (m *Mirror) Resource(id store.Resource) *Resource {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.published[id]
}

// Resources returns the resources of a cluster, by name.
func (m *Mirror) Resources(cluster string) []*Resource {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := slices.SortedFunc(maps.Values(m.published), func(a, b *Resource) int { return strings.Compare(a.ID.Name, b.ID.Name) })
	return slices.DeleteFunc(all, func(r *Resource) bool { return r.ID.Cluster != cluster })
}

// Clusters returns the names of the clusters that the bus has events of.
func (m *Mirror) Clusters() (names []string) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for id := range m.published {
		names = append(names, id.Cluster)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Until returns the time up to which everything that was published is applied: see [Mirror.ReadUntil].
func (m *Mirror) Until() time.Time {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.until
}

// Commits returns a channel that is closed at the next commit. Call it before [Mirror.Resource], so that no commit is
// missed.
func (m *Mirror) Commits() <-chan struct{} {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.commits
}

// Store returns the store, to read views.
func (m *Mirror) Store() *store.Store { return m.store }

// For returns the resource for a client that may see some namespaces: reasons do not name collections of others.
func (r *Resource) For(sees func(namespace string) bool) *Resource {
	hidden := func(e Era) bool {
		namespace := event.ParseCollection(e.Collection).Namespace
		return namespace != "" && !sees(namespace)
	}
	if r == nil || !slices.ContainsFunc(r.Eras, hidden) {
		return r
	}
	other := *r
	other.Eras = slices.Clone(r.Eras)
	for i := range other.Eras {
		if e := &other.Eras[i]; hidden(*e) {
			e.Reason = strings.Replace(e.Reason, "the collection "+e.Collection, "a collection of another namespace", 1)
			e.Collection = ""
		}
	}
	return &other
}

// Present returns the present era.
func (r *Resource) Present() *Era { return &r.Eras[len(r.Eras)-1] }

// eraOf returns an era by its number; nil if it is not retained.
func (r *Resource) eraOf(number uint64) *Era { return findEra(r.Eras, number) }

// Latest returns the served position. Errors wrap [ErrIncomplete] or [ErrAbsent].
func (r *Resource) Latest() (store.Position, error) {
	now := r.Present()
	switch {
	case r.Unordered != "":
		return r.Served, fmt.Errorf("%w: its resourceVersions have no order: one is %q", ErrIncomplete, r.Unordered)
	case r.Closed:
		return r.Served, fmt.Errorf("%w: the bridge does not publish it any more: %s", ErrAbsent, now.Reason)
	case r.Served.Era == 0:
		return r.Served, fmt.Errorf("%w: the first list has not ended", ErrIncomplete)
	case r.Served.Era != now.Number && now.Reset:
		return r.Served, fmt.Errorf("%w: %s, and its list has not ended", ErrIncomplete, now.Reason)
	}
	e := r.eraOf(r.Served.Era)
	switch {
	case e != nil && e.Absent:
		return r.Served, fmt.Errorf("%w in the cluster", ErrAbsent)
	case e != nil && e.lacks() != "":
		return r.Served, fmt.Errorf("%w: %s", ErrIncomplete, e.lacks())
	}
	return r.Served, nil
}

// Unpublished returns types of events that are not published, for which no present state is served; "": there are none.
func (r *Resource) Unpublished() string {
	if e := r.eraOf(r.Served.Era); e != nil {
		return e.Unpublished
	}
	return ""
}

// lacks says why the era's states are not those of the cluster; "": they are.
func (e *Era) lacks() string {
	switch {
	case e.Unpublished != "":
		return fmt.Sprintf("its %s events are not published, so it is not known which objects exist: "+
			"set types: [added, modified, deleted] in its entry", e.Unpublished)
	case e.Skipped == 0:
		return ""
	}
	return fmt.Sprintf("%d objects existed before the bridge began, and were not published (snapshot: skip)", e.Skipped)
}

// Gap returns the reason for which the present state is not served; "" if it is.
func (r *Resource) Gap() string {
	switch now := r.Present(); {
	case !now.Complete && now.Reason == "":
		return "its first list has not ended"
	case !now.Complete:
		return now.Reason
	case !r.Complete:
		return "the bridge's configuration, or the number of a topic's partitions, changes"
	}
	return ""
}

// limit returns the highest position of an era that was served; ok is false if there is none.
func (r *Resource) limit(e *Era) (store.Position, bool) {
	if e.Number == r.Served.Era {
		return r.Served, e.Complete
	}
	return e.Last, e.Complete
}

// AtVersion returns the position of a resourceVersion in an epoch; 0: any. It must have been complete in some era.
// Errors wrap [ErrExpired] or [ErrTooNew].
func (r *Resource) AtVersion(version, epoch uint64) (store.Position, error) {
	var found []Era
	for _, e := range r.Eras {
		last, ok := r.limit(&e)
		if ok && e.Base <= version && version <= last.Version && (epoch == 0 || e.Epoch == epoch) && !e.Absent {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		if e := r.eraOf(r.Served.Era); e != nil && version > r.Served.Version && (epoch == 0 || e.Epoch == epoch) {
			return store.Position{}, fmt.Errorf("%w: %d, current: %d", ErrTooNew, version, r.Served.Version)
		}
		return store.Position{}, fmt.Errorf("%w: no complete state of %s at resourceVersion %d is retained", ErrExpired, r.ID.Name, version)
	}
	e := found[len(found)-1]
	if e.lacks() != "" {
		return store.Position{}, fmt.Errorf("%w: %s", ErrExpired, e.lacks())
	}
	if epoch == 0 && found[0].Epoch != e.Epoch {
		return store.Position{}, fmt.Errorf("%w: resourceVersion %d is of several epochs of the cluster: "+
			"ask for a time, or for e%d:%d", ErrExpired, version, e.Epoch, version)
	}
	at := store.Position{Era: e.Number, Version: version, Seq: ^uint64(0)}
	if last, _ := r.limit(&e); at.Compare(last) > 0 {
		at = last
	}
	if at.Compare(r.Floor) < 0 {
		return at, fmt.Errorf("%w: resourceVersion %d of %s is older than the retention", ErrExpired, version, r.ID.Name)
	}
	return at, nil
}

// Watch returns the position after which a watch from a resourceVersion begins, in the view of [Resource.Latest] or of
// the past. Errors wrap [ErrExpired] or [ErrTooNew].
func (r *Resource) Watch(version uint64, view store.Position) (store.Position, error) {
	e := r.eraOf(view.Era)
	switch {
	case e == nil:
		return view, fmt.Errorf("%w: it is not retained", ErrExpired)
	case view == r.Served && view.Era != r.Present().Number:
		return view, fmt.Errorf("%w: changes may be missing: %s", ErrExpired, r.Gap())
	case version > view.Version:
		return view, fmt.Errorf("%w: %d, current: %d", ErrTooNew, version, view.Version)
	case version < e.Base:
		why := strings.TrimSuffix("changes before it may be missing: "+e.Reason, ": ")
		return view, fmt.Errorf("%w: too old resource version: %d (%d): %s", ErrExpired, version, e.Base, why)
	}
	at := store.Position{Era: e.Number, Version: version, Seq: ^uint64(0)}
	if at.Compare(r.Floor) < 0 {
		return at, fmt.Errorf("%w: too old resource version: %d (%d): older changes are not retained", ErrExpired, version, r.Floor.Version)
	}
	// Lists at the base have what came before First, such as the deletions that the era's first list showed.
	first := store.Position{Era: e.Number, Version: version, Seq: e.First}
	if e.Complete && version == e.Base && e.First != 0 && first.Compare(r.Floor) >= 0 {
		return first, nil
	}
	return at, nil
}

// Past is a resource as of a time.
type Past struct {
	At    store.Position
	Since time.Time // of the event that led to it
	Gap   string    // why changes before the time may be missing; "": none is known to be
}

// AtTime returns the resource with everything that was published by a time, unless a message that is still to be read
// or served could change that. Errors wrap [ErrUnread], [ErrExpired] or [ErrAbsent].
func (m *Mirror) AtTime(r *Resource, t time.Time) (p Past, err error) {
	stamp := t.UTC().Format(time.RFC3339Nano)
	if t.After(r.Until) {
		until := r.Until.UTC().Format(time.RFC3339Nano)
		return p, fmt.Errorf("%w: %s at %s, which is known up to %s", ErrUnread, r.ID.Name, stamp, until)
	}
	at, since, found, err := m.store.Moment(r.ID, t)
	if err != nil {
		return p, err
	}
	if !found || at.Compare(r.Floor) < 0 {
		return p, fmt.Errorf("%w: no complete state of %s at %s is retained", ErrExpired, r.ID.Name, stamp)
	}
	p = Past{At: at, Since: since}
	for _, e := range r.Eras {
		switch {
		case e.Number == at.Era && e.Absent:
			return p, fmt.Errorf("%w in the cluster at %s", ErrAbsent, stamp)
		case e.Number == at.Era && e.lacks() != "":
			return p, fmt.Errorf("%w: %s", ErrExpired, e.lacks())
		case e.Number <= at.Era || e.Began.After(t):
		case e.Reset && !t.Before(e.ResetAt):
			return p, fmt.Errorf("%w: %s, and its list had not ended at %s", ErrExpired, e.Reason, stamp)
		default:
			p.Gap = e.Reason
		}
	}
	return p, nil
}
