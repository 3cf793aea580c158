package mirror

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Era is a time in which a resource's changes have an order without a gap.
type Era struct {
	Number uint64
	// Began is the time up to which the era before shows everything; Reason says why that ended, or is not complete since.
	// With Reset, what was held does not count any more, from ResetAt on. Collection is the one that Reason may name; "":
	// none.
	Began      time.Time
	Reason     string
	Collection string    `json:",omitzero"`
	Reset      bool      `json:",omitzero"`
	ResetAt    time.Time `json:",omitzero"`
	// From is the epoch with which the era began, if it is known. Events of former epochs belong to an era before.
	From uint64 `json:",omitzero"`
	// Complete is set once the resource was complete in this era, at Since, with the resourceVersion Base of the epoch
	// Epoch.
	Complete bool `json:",omitzero"`
	// First is the Seq of the first position that was served, at Base; 0: not known.
	Base, Epoch uint64
	First       uint64 `json:",omitzero"`
	Since       time.Time
	// MinServed is the highest resourceVersion of a list that ended in this era, or of a change that an era before keeps.
	// Lower ones are not served: the objects at them are not known.
	MinServed proof `json:",omitzero"`
	// Absent: the resource did not exist.
	Absent bool `json:",omitzero"`
	// Skipped is the number of objects that existed and were not published (snapshot: skip).
	Skipped int `json:",omitzero"`
	// Unpublished are the types of a collection's events that are not published, so that it is not known which objects
	// exist.
	Unpublished string `json:",omitzero"`
	// Last is the last position that was served; zero for the newest era.
	Last store.Position
}

// proof is how far a partition proves a collection to be complete.
type proof struct {
	Epoch, Version uint64
	// Gone: the resource, or the collection's namespace, does not exist.
	Gone bool `json:",omitzero"`
	// Time is that of the event that proves it, by the bridge's clock.
	Time time.Time `json:",omitzero"`
}

// below reports whether a resourceVersion of an epoch is a later one.
func (at proof) below(epoch, version uint64) bool {
	return at.Epoch < epoch || at.Epoch == epoch && at.Version < version
}

// collection is what the mirror keeps of a collection beside the consumer's copy.
type collection struct {
	Reached map[string]proof // by partition
	// LastEvents are the times of the collection's last events by partition, by the bridge's clock.
	LastEvents map[string]time.Time
	// Run and Epoch are those of the last gap, Begun the runs of the last gaps by partition. Former are the eras for
	// events of partitions that have not read the last gap, by their runs. Gaps are the last versions before the last
	// gaps, by partition.
	Run, Epoch uint64
	Begun      map[string]uint64
	Former     []runEra
	Gaps       map[string]uint64 `json:",omitzero"`
	// Wrote is the last era in which the collection has a version, Top the highest resourceVersion there. Since is the
	// first era whose complete states include the collection.
	Wrote, Since uint64
	Top          uint64 `json:",omitzero"`
	// Skipped is the number of objects of the last list that were not published (snapshot: skip), and have not changed
	// since.
	Skipped int `json:",omitzero"`
	// Selection is that of the last gap, or of a later synced event.
	Selection event.Selection `json:",omitzero"`

	marked mark // of the last call of MarkReached
}

// Span is a collection with a selection in the complete states of the eras from Since, before Until; 0: it goes on.
type Span struct {
	Collection   string
	Since, Until uint64
	Selection    event.Selection `json:",omitzero"`
}

type runEra struct{ Run, Era uint64 }

// lags reports whether one of n partitions has not read the last gap.
func (c *collection) lags(n int) bool {
	for _, run := range c.Begun {
		if run >= c.Run {
			n--
		}
	}
	return n > 0
}

func (c *collection) wrote(era, version uint64) {
	switch {
	case era == c.Wrote:
		c.Top = max(c.Top, version)
	case era > c.Wrote:
		c.Wrote, c.Top = era, version
	}
}

// eraOf returns the number of the era for an event: a former one if its partition has not read the gap that ended it.
func (r *resource) eraOf(c *collection, s *step) uint64 {
	number, begun := r.era().Number, c.Begun[s.message.String()]
	if i := slices.IndexFunc(c.Former, func(f runEra) bool { return f.Run >= begun }); i >= 0 && begun < c.Run {
		number = c.Former[i].Era
	}
	for _, e := range slices.Backward(r.eras) {
		if e.Number <= number && e.From <= s.event.Epoch {
			return e.Number
		}
	}
	return number
}

// mark is the position that a collection is proved to have reached in the partition that is furthest, in a run.
type mark struct {
	run uint64
	proof
}

// Kind is what is known of a resource's objects.
type Kind struct {
	APIVersion, Kind string
	Namespaced       bool
}

// resource is a resource as the writer sees it. Its record has the exported fields; each era has a record of its own.
type resource struct {
	id   store.Resource
	eras []Era // ascending; the last one is the present era

	Kind      Kind
	KindTime  time.Time `json:",omitzero"` // of the event that Kind is of. Older ones do not change it
	Served    store.Position
	Moment    time.Time // what the served position shows everything up to. It is not lower than the event that began the present era
	Restarted time.Time `json:",omitzero"` // the time up to which everything was read before messages were lost, and all was read again
	Time      time.Time // the highest time of an event, by the bridge's clock
	Read      time.Time `json:",omitzero"` // everything that was published by then is applied: see [Mirror.ReadUntil]
	// Waiting is not later than any change of the present era that is not served, if the era is complete; zero: all are
	// served.
	Waiting     time.Time `json:",omitzero"`
	Collections map[string]*collection
	Ended       []Span    `json:",omitzero"` // collections of eras that are retained, which a later era does not have
	ClosedAt    time.Time `json:",omitzero"` // when the bridge closed the last collection: it does not publish the resource any more; zero: it does
	// Unordered is a resourceVersion that is not a number; "": all of the collections are.
	Unordered string         `json:",omitzero"`
	Floor     store.Position // what only lower positions need may be deleted

	changed         bool     // since the last commit
	changedEras     []uint64 // since the last commit, beside the present one
	recheckServed   bool     // the served position may have changed
	recheckComplete bool     // completeness may have changed
	complete        bool     // the union is complete
	run             uint64   // an object event of a higher run may end completeness
	unserved        pendingChanges
	recheckWaiting  bool // Waiting may be earlier than all changes, or that of a store in which it was later than one
}

// tick is the smallest difference between two times in the store.
const tick = time.Microsecond

// until returns the last time whose state is known.
func (r *resource) until() time.Time {
	if !r.Waiting.IsZero() {
		return earlier(r.Read, r.Waiting.Add(-tick))
	}
	return r.Read
}

// waits records that a change of the present era is not served yet.
func (r *resource) waits(t time.Time) {
	if t = t.Truncate(tick); r.era().Complete && (r.Waiting.IsZero() || t.Before(r.Waiting)) {
		r.Waiting = t
	}
}

// findWaiting looks up the changes that are not served, if the served position has moved since.
func (m *Mirror) findWaiting(r *resource) error {
	if !r.recheckWaiting {
		return nil
	}
	r.Waiting, r.recheckWaiting = time.Time{}, false
	if r.unserved.number == 0 {
		return nil
	}
	return m.batch.ChangeTimes(r.id, r.Served, func(_ store.Position, t time.Time) bool {
		r.waits(t)
		return true
	})
}

// readIn reports whether all partitions that the collections were read from are among some.
func (r *resource) readIn(partitions map[string]bool) bool {
	for _, c := range r.Collections {
		for at := range c.Begun {
			if !partitions[at] {
				return false
			}
		}
	}
	return true
}

// pendingChanges are the changes of the present era after the served position, as far as they are known without the
// store.
type pendingChanges struct {
	number int // 0, 1, or several: more than 1 or not known
	at     store.Position
	time   time.Time // of the change at at, if it is one
}

const several = 2

func (r *resource) era() *Era { return &r.eras[len(r.eras)-1] }

// findEra returns the era with a number; nil if it is not among ascending eras.
func findEra(eras []Era, number uint64) *Era {
	i, found := slices.BinarySearchFunc(eras, number, func(e Era, n uint64) int { return cmp.Compare(e.Number, n) })
	if !found {
		return nil
	}
	return &eras[i]
}

func (r *resource) wasComplete(number uint64) bool {
	e := findEra(r.eras, number)
	return e != nil && e.Complete
}

func recordOf(r store.Resource) string { return resourcePrefix + r.Cluster + "/" + r.Name }

// eraRecord returns the name of the record of an era. The records of a resource have the order of its eras.
func eraRecord(r store.Resource, number uint64) string {
	return fmt.Sprintf("%s%020d", eraRecords(r), number)
}

func eraRecords(r store.Resource) string { return eraPrefix + r.Cluster + "/" + r.Name + "/" }

// save adds the records of what has changed.
func (r *resource) save(records map[string]any) {
	records[recordOf(r.id)], records[eraRecord(r.id, r.era().Number)] = r, r.era()
	for _, number := range r.changedEras {
		if e := findEra(r.eras, number); e != nil {
			records[eraRecord(r.id, number)] = e
		}
	}
	r.changed, r.changedEras = false, nil
}

type step struct {
	message consumer.Message
	event   *event.Received
	change  consumer.Change
}

// begin starts an era, unless the present one is not complete yet: it was never served, so it goes on.
func (m *Mirror) begin(r *resource, s *step, id, reason string, reset bool) error {
	now := r.era()
	if now.Complete {
		return m.nextEra(r, s, id, reason, reset)
	}
	now.Reason, now.Collection = reason, id
	if reset && !now.Reset {
		now.Reset, now.ResetAt = true, s.event.Time
	}
	return nil
}

func (m *Mirror) nextEra(r *resource, s *step, id, reason string, reset bool) error {
	now := r.era()
	now.Last = r.Served
	r.Moment = later(r.Moment, s.event.Time)
	next := Era{Number: now.Number + 1, Began: s.event.Time, Reason: reason, Collection: id, Reset: reset, From: now.From}
	if r.unserved.number > 0 {
		err := m.batch.ChangeTimes(r.id, r.Served, func(_ store.Position, t time.Time) bool {
			next.Began = earlier(next.Began, t)
			return true
		})
		if err != nil {
			return err
		}
	}
	next.Began = later(next.Began, r.Restarted)
	moved, left, err := m.batch.MoveAfter(r.id, r.Served, next.Number, slices.Concat(s.change.Dropped, []string{id}))
	if err != nil {
		return err
	}
	for id, version := range moved {
		if c := r.Collections[id]; c != nil {
			c.wrote(next.Number, version)
		}
	}
	for other, c := range r.Collections {
		for i := range c.Former {
			if other != id && c.Former[i].Era == now.Number {
				c.Former[i].Era = next.Number
			}
		}
	}
	epoch := now.Epoch
	r.eras, r.changedEras = append(r.eras, next), append(r.changedEras, now.Number)
	r.raiseMinServed(epoch, r.Served.Version)
	c := r.Collections[id]
	for _, change := range left {
		if c != nil && !reset && change.Collection == id {
			r.raiseMinServed(c.Epoch, change.At.Version)
		}
	}
	r.changed, r.unserved.number, r.Waiting = true, several, time.Time{}
	return nil
}

// nextEpoch starts an era because the cluster was restored, at lower resourceVersions. Lists show what differs from the
// state before, so that state stays in a former era that is never served: there, deletions count also above the list's
// resourceVersion.
func (m *Mirror) nextEpoch(r *resource, s *step, id, reason string, reset bool) error {
	if err := m.begin(r, s, id, reason, reset); err != nil {
		return err
	}
	now := r.era()
	if now.From == 0 || now.From >= s.event.Epoch {
		return nil
	}
	next := Era{
		Number: now.Number + 1, Began: later(s.event.Time, r.Restarted), Reason: reason, Collection: id, Reset: now.Reset, ResetAt: now.ResetAt, From: s.event.Epoch,
	}
	r.eras, r.changedEras = append(r.eras, next), append(r.changedEras, now.Number)
	r.changed, r.unserved.number = true, several
	return nil
}

// restart begins again at a time later than all that was shown: messages are read again. What was shown stays as it
// was.
func (r *resource) restart(at time.Time) {
	r.Restarted = later(r.Restarted, at)
	if now := r.era(); !now.Complete {
		now.From = 0
	}
	r.Time, r.Unordered, r.changed = time.Time{}, "", true
}

// raiseMinServed keeps lower resourceVersions from being served in the present era, if it is not complete yet.
func (r *resource) raiseMinServed(epoch, version uint64) {
	now := r.era()
	if !now.Complete && now.MinServed.below(epoch, version) {
		now.MinServed = proof{Epoch: epoch, Version: version}
	}
}

func earlier(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

func later(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

func (m *Mirror) dropped(r *resource, s *step, id, reason string) error {
	c := r.Collections[id]
	if c == nil {
		return nil
	}
	if err := m.begin(r, s, id, reason, true); err != nil {
		return err
	}
	r.Moment = later(r.Moment, s.event.Time)
	delete(r.Collections, id)
	if until := r.era().Number; c.Since < until {
		r.Ended = append(r.Ended, Span{id, c.Since, until, c.Selection})
	}
	if len(r.Collections) == 0 { // no list counts any more; epochs begin again if the checkpoint was lost
		r.era().MinServed, r.era().From, r.Unordered = proof{}, 0, ""
		if s.event.Type == event.Closed && s.event.Collection == id {
			r.ClosedAt = s.event.Time
		}
	}
	r.changed, r.recheckComplete = true, true
	return m.batch.Drop(r.id, id, r.era().Number, m.seq)
}

func (m *Mirror) apply(r *resource, s *step) error {
	e := s.event
	r.Time, r.changed = later(r.Time, e.Time), true
	if e.Type == event.Closed {
		return nil // the collection was dropped
	}
	c := r.Collections[e.Collection]
	if c == nil {
		if err := m.begin(r, s, e.Collection, "the collection "+e.Collection+" was added", false); err != nil {
			return err
		}
		c = &collection{Reached: map[string]proof{}, LastEvents: map[string]time.Time{}, Begun: map[string]uint64{}, Since: r.era().Number}
		r.Collections[e.Collection], r.ClosedAt = c, time.Time{}
	}
	if now := r.era(); now.From == 0 {
		now.From = cmp.Or(now.Epoch, e.Epoch)
	}
	c.LastEvents[s.message.String()] = e.Time
	if e.Type.OfCollection() {
		r.recheckComplete = true
		return m.applyCollection(r, c, s)
	}
	return m.applyObject(r, c, s)
}

func (m *Mirror) applyCollection(r *resource, c *collection, s *step) error {
	e, at := s.event, s.message.String()
	if e.Type == event.Synced {
		version, ok := m.number(r, c, e, e.ResourceVersion)
		was, listed := c.Reached[at]
		if !listed {
			r.raiseMinServed(e.Epoch, version)
		}
		if e.Run >= c.Run { // else it is of a partition that is behind
			r.selected(c, e)
		}
		if err := m.skipped(r, c, s); err != nil {
			return err
		}
		switch {
		case e.ResourceVersion == "":
			c.Reached[at] = proof{Gone: true, Time: e.Time}
		case ok && (was.Gone || was.Epoch != e.Epoch || was.Version < version):
			c.Reached[at] = proof{Epoch: e.Epoch, Version: version, Time: e.Time}
		}
		return nil
	}
	// A resync of a partition that is in step goes on in the present era.
	continues := event.GapCause(e.Report.Reason).Resync && s.change.Phase == consumer.InStep
	if !continues {
		delete(c.Reached, at)
		if c.Gaps == nil {
			c.Gaps = map[string]uint64{}
		}
		c.Gaps[at] = m.seq
	} else if c.Run < e.Run { // the selection is the same
		c.Run = e.Run
	}
	if c.Begun[at] = e.Run; e.Run <= c.Run { // the era goes on, or the copy of another partition began it
		if !c.lags(s.message.Partitions) {
			c.Former = nil
		}
		return nil
	}
	if n := len(c.Former) - 1; n >= 0 && c.Former[n].Era == r.era().Number {
		c.Former[n].Run = c.Run
	} else {
		c.Former = append(slices.Clip(c.Former), runEra{c.Run, r.era().Number})
	}
	if c.Wrote == r.era().Number { // the gap may hide objects that existed at what was read before
		r.raiseMinServed(c.Epoch, c.Top)
	}
	reason := fmt.Sprintf("a gap began in the collection %s (%s)", e.Collection, e.Report.Reason)
	err := m.nextEpoch(r, s, e.Collection, reason, e.Report.Reset && c.Wrote != 0)
	r.Moment = later(r.Moment, e.Time)
	c.Run, c.Epoch = e.Run, e.Epoch
	r.selected(c, e)
	if !c.lags(s.message.Partitions) {
		c.Former = nil
	}
	return err
}

// selected notes the selection of a gap or synced event, from the present era on. Eras with one selection are one span,
// also over a reset.
func (r *resource) selected(c *collection, e *event.Received) {
	now := r.era().Number
	if c.Selection != e.Report.Selection && c.Since < now {
		r.Ended = append(r.Ended, Span{e.Collection, c.Since, now, c.Selection})
		c.Since = now
	}
	c.Selection = e.Report.Selection
	before := slices.IndexFunc(r.Ended, func(x Span) bool {
		return x.Collection == e.Collection && x.Until == c.Since && x.Selection == c.Selection
	})
	if before >= 0 {
		c.Since, r.Ended = r.Ended[before].Since, slices.Delete(slices.Clone(r.Ended), before, before+1)
	}
}

// skipped notes how many objects of a list were not published. An era's states have all of the objects, or lack some.
func (m *Mirror) skipped(r *resource, c *collection, s *step) error {
	e := s.event
	n := e.Report.Counts
	if n == nil || e.Run < c.Run || n.Skipped == c.Skipped { // e.Run: of a partition that is behind
		return nil
	}
	some := c.Skipped > 0
	c.Skipped = n.Skipped
	if some == (n.Skipped > 0) || !r.era().Complete {
		return nil
	}
	return m.begin(r, s, e.Collection, "a list of the collection "+e.Collection+" showed other objects that are not published (snapshot: skip)", false)
}

// lastEvent returns the time of the oldest of the partitions' last events; zero if a partition had none.
func (r *resource) lastEvent() (oldest time.Time) {
	var all []time.Time
	for _, c := range r.Collections {
		for part := range c.Begun {
			all = append(all, c.LastEvents[part])
		}
	}
	if len(all) > 0 {
		oldest = earlier(all...)
	}
	return oldest
}

// number parses a resourceVersion. One that is no number makes the resource unordered, unless a list of the collection
// had a number: no API server sends it then, and the event is ignored.
func (m *Mirror) number(r *resource, c *collection, e *event.Received, version string) (uint64, bool) {
	if version == "" {
		return 0, true
	}
	n, err := strconv.ParseUint(version, 10, 64)
	numbered := func(at proof) bool { return at.Version > 0 }
	switch {
	case err == nil:
	case r.Unordered == "" && slices.ContainsFunc(slices.Collect(maps.Values(c.Reached)), numbered):
		m.Ignored(fmt.Errorf("event %q: its resourceVersion %q is not a number, and those of the collection are",
			e.ID, version))
	default:
		r.Unordered, r.changed = version, true
	}
	return n, err == nil
}

// noteKind takes the kind of the resource from an event of an object. A deletion has the API version of the last
// publication, and a partition that is behind has older events.
func (r *resource) noteKind(e *event.Received) {
	present := e.Type != event.Deleted && !e.Time.Before(r.KindTime)
	if present {
		r.KindTime = e.Time
	}
	if present || r.Kind.Kind == "" {
		r.Kind = Kind{e.APIVersion, e.Kind, e.Namespace != ""}
	}
}

func (m *Mirror) applyObject(r *resource, c *collection, s *step) error {
	e := s.event
	r.noteKind(e)
	text := e.ResourceVersion
	if e.Type == event.Deleted {
		text = e.DeletionVersion
	}
	version, ok := m.number(r, c, e, text)
	if !ok {
		return nil
	}
	if e.Run > r.run {
		r.recheckComplete = true
	}
	name := store.Name{Namespace: e.Namespace, Name: e.Name}
	at, newest, found, err := m.batch.Newest(r.id, name, e.Collection)
	if err != nil {
		return err
	}
	known := found && !m.batch.Dropped(r.id, e.Collection, at, store.Position{Era: r.era().Number})
	era := r.eraOf(c, s)
	// What a list shows can have a lower resourceVersion than what was read of the collection before, for an object that
	// an earlier list had proved to be absent. What was read before replaces nothing then. If the era before was complete,
	// it is there.
	replaced := known && at.Era == era && at.Seq <= c.Gaps[s.message.String()] && !r.wasComplete(era) && newest.Epoch <= e.Epoch
	if known && !replaced && r.repeats(e, version, era, at, &newest) {
		m.prove(r, c, s, version, text != "")
		return nil
	}
	if now := r.era(); now.Complete && (version < r.Served.Version || text == "") {
		reason := fmt.Sprintf("a change of resourceVersion %d was published after resourceVersion %d was complete", version, r.Served.Version)
		if err := m.begin(r, s, e.Collection, reason, false); err != nil {
			return err
		}
		r.recheckComplete = true
		era = r.eraOf(c, s)
	}
	if known && !replaced && at.Era == era { // a deletion without a version, or of the same version
		version = max(version, at.Version)
	}
	m.seq++
	v, err := versionOf(e)
	if err != nil {
		return err
	}
	put := store.Position{Era: era, Version: version, Seq: m.seq}
	if found && at.Era == era && at.Compare(put) > 0 { // replaced, or dropped
		if err := m.batch.RemoveAfter(r.id, name, e.Collection, put); err != nil {
			return err
		}
	}
	c.wrote(era, version)
	if err := m.batch.Put(r.id, name, e.Collection, put, &v); err != nil {
		return err
	}
	if era == r.era().Number {
		r.unserved = pendingChanges{min(r.unserved.number+1, several), put, e.Time}
		r.waits(e.Time)
	} else {
		r.leftOut(put, e.Time)
		r.raiseMinServed(e.Epoch, version)
	}
	m.prove(r, c, s, version, text != "")
	return nil
}

// versionOf returns what the store keeps of an event.
func versionOf(e *event.Received) (v store.Version, err error) {
	own, _ := strconv.ParseUint(e.ResourceVersion, 10, 64)
	v = store.Version{Deleted: e.Type == event.Deleted, UID: e.UID, Epoch: e.Epoch, ResourceVersion: own, Time: e.Time, Body: e.Object}
	switch {
	case !e.BodyKnown:
		v.Extent = store.Identity
		v.Body, err = identity(e)
	case e.Truncated != nil:
		v.Extent = store.Head
	}
	if e.Truncated != nil {
		v.Fields = e.Truncated.Fields
	}
	return v, err
}

// identity returns the JSON of an object of which the event has only the identity, with the resourceVersion that
// clients need to watch.
func identity(e *event.Received) ([]byte, error) {
	metadata := map[string]string{"name": e.Name, "uid": e.UID, "resourceVersion": e.ResourceVersion}
	if e.Namespace != "" {
		metadata["namespace"] = e.Namespace
	}
	return json.Marshal(map[string]any{"apiVersion": e.APIVersion, "kind": e.Kind, "metadata": metadata})
}

// leftOut records that a change of an era that has ended is not served.
func (r *resource) leftOut(at store.Position, t time.Time) {
	ended, next := findEra(r.eras, at.Era), findEra(r.eras, at.Era+1)
	if ended != nil && next != nil && ended.Complete && at.Compare(ended.Last) > 0 {
		next.Began = later(earlier(next.Began, t), r.Restarted)
		r.changedEras = append(r.changedEras, next.Number)
	}
}

// repeats reports whether the store has an event's state in an era already, or a later one. In an era that is not
// complete, an object is written again: its body can differ at one resourceVersion. In a complete era, a resync can
// show a new resourceVersion below the served one: ignore or types left its change out on the bus, so it is left out
// here.
func (r *resource) repeats(e *event.Received, version, era uint64, at store.Position, newest *store.Version) bool {
	same := newest.UID == e.UID && newest.Deleted == (e.Type == event.Deleted)
	switch {
	case newest.Epoch != e.Epoch:
		return newest.Epoch > e.Epoch
	case at.Era == era && version < at.Version && version != 0:
		return true
	case at.Era == era && version == at.Version:
		return same
	case e.Type == event.Present && r.wasComplete(era):
		own, _ := strconv.ParseUint(e.ResourceVersion, 10, 64)
		leftOut := era == r.era().Number && newest.ResourceVersion < own && own <= r.Served.Version
		return same && (newest.ResourceVersion == own || leftOut)
	}
	return false
}

// prove records that a watch event proves the collection to be complete up to its resourceVersion.
func (m *Mirror) prove(r *resource, c *collection, s *step, version uint64, versioned bool) {
	if !versioned || s.event.Origin != event.Watch || s.change.Phase != consumer.InStep {
		return
	}
	at := s.message.String()
	if was := c.Reached[at]; was.Epoch == s.event.Epoch && !was.Gone && was.Version <= version {
		c.Reached[at] = proof{Epoch: s.event.Epoch, Version: version, Time: s.event.Time}
	}
	r.recheckServed = true
}

// simple reports whether every watch event moves the served position, so it is worth computing each time.
func (r *resource) simple() bool {
	for _, c := range r.Collections {
		return len(r.Collections) == 1 && len(c.Reached) == 1
	}
	return false
}

// serve moves the served position, if the resource is complete.
func (m *Mirror) serve(r *resource) error {
	recheck := r.recheckComplete
	r.recheckServed, r.recheckComplete = false, false
	if recheck {
		_, r.complete = m.state.Complete(r.id.Cluster, r.id.Name)
		r.run = 0
		for id := range r.Collections {
			if c, ok := m.state.Collection(r.id.Cluster, id); ok {
				r.run = max(r.run, c.Run)
			}
		}
	}
	if !r.complete || r.Unordered != "" {
		return nil
	}
	now, epoch, version, absent := r.era(), uint64(0), ^uint64(0), true
	var proved time.Time // of the version
	for _, c := range r.Collections {
		if len(c.Reached) == 0 {
			return nil
		}
		for _, at := range c.Reached {
			switch {
			case at.Gone:
				if absent {
					proved = later(proved, at.Time)
				}
				continue
			case !absent && at.Epoch != epoch: // of one epoch soon
				return nil
			case absent || at.Version < version:
				proved = at.Time
			case at.Version == version:
				proved = later(proved, at.Time)
			}
			epoch, version, absent = at.Epoch, min(version, at.Version), false
		}
	}
	if next := (proof{Epoch: epoch, Version: version}); !now.Complete && !absent && next.below(now.MinServed.Epoch, now.MinServed.Version) {
		return nil
	}
	if !absent && epoch < now.From { // of that epoch soon
		return nil
	}
	if absent { // no resourceVersion says when
		epoch, version = now.Epoch, r.Served.Version
	}
	next := store.Position{Era: now.Number, Version: version, Seq: m.seq}
	if now.Complete && next.Compare(r.Served) <= 0 {
		return nil
	}
	if !now.Complete {
		now.Epoch = epoch
	}
	if err := m.setMoments(r, next, proved); err != nil {
		return err
	}
	r.Served, r.changed = next, true
	if now.Complete {
		return nil
	}
	now.Complete, now.Base, now.First, now.Since, now.Absent = true, version, next.Seq, r.Moment, absent
	for _, c := range r.Collections {
		now.Skipped += c.Skipped
		now.Unpublished = cmp.Or(now.Unpublished, unpublished(c.Selection))
	}
	return m.findWaiting(r) // changes are noted only in an era that is complete
}

// setMoments records the times of the positions from the served one up to the next. A position's time is the highest of
// a change up to it, also if partitions are read one after the other. An era begins with the position at which it
// became complete, at a time that was not shown without it. proved is the time of the event that proves the next
// position.
func (m *Mirror) setMoments(r *resource, next store.Position, proved time.Time) error {
	after, complete := r.Served, r.era().Complete
	if !complete {
		after = store.Position{Era: next.Era}
	}
	t, last := r.Moment, after
	if !complete {
		t = later(t, r.Read.Add(tick))
	}
	add := func(at store.Position, when time.Time) error {
		before, until := last, t
		last, t = at, later(t, when)
		if !complete || before == after || before.Version == at.Version {
			return nil
		}
		return m.batch.SetMoment(r.id, until, before)
	}
	switch u := &r.unserved; {
	case complete && u.number == 1 && u.at.Compare(next) <= 0:
		u.number = 0
		if err := add(u.at, u.time); err != nil {
			return err
		}
	case !complete || u.number == several:
		u.number = 0
		var failed error
		err := m.batch.ChangeTimes(r.id, after, func(at store.Position, when time.Time) bool {
			if at.Compare(next) > 0 {
				u.number = several
				return false
			}
			failed = add(at, when)
			return failed == nil
		})
		if err := errors.Join(err, failed); err != nil {
			return err
		}
	}
	if !complete || last == after || last.Version != next.Version {
		if complete && last != after {
			if err := m.batch.SetMoment(r.id, t, last); err != nil {
				return err
			}
		}
		t = later(t, proved)
	}
	r.Moment, r.recheckWaiting = t, true
	if r.unserved.number == 0 {
		r.Waiting = time.Time{}
	}
	return m.batch.SetMoment(r.id, t, next)
}

func (r *resource) published() *Resource {
	p := &Resource{
		ID: r.id, Kind: r.Kind, KindTime: r.KindTime, Eras: slices.Clone(r.eras), Served: r.Served, Floor: r.Floor, Time: r.Time, LastEvent: r.lastEvent(),
		Complete: r.complete && r.era().Complete, Unordered: r.Unordered, Collections: slices.Sorted(maps.Keys(r.Collections)), Closed: !r.ClosedAt.IsZero(), Until: r.until(),
	}
	p.spans = slices.Clone(r.Ended)
	for _, id := range p.Collections {
		p.spans = append(p.spans, Span{Collection: id, Since: r.Collections[id].Since, Selection: r.Collections[id].Selection})
	}
	return p
}
