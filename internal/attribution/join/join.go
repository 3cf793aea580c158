package join

import (
	"cmp"
	"container/list"
	"slices"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Object names an object. Its group and resource are those of [audit.ResourceOf].
type Object struct {
	Group, Resource, Namespace, Name string
}

// Resource is the group and the resource of objects.
type Resource struct{ Group, Resource string }

func (o Object) resource() Resource { return Resource{o.Group, o.Resource} }

// Kind says what happened to an object.
type Kind uint8

// The kinds of changes.
const (
	Created Kind = iota + 1
	Changed
	Written // created or changed
	// Removed from the API server, not only from a selection. But if an object had left the selection before, and did not exist any more when that was asked,
	// the version is that with which it left.
	Removed
)

// Change is a change of an object.
type Change struct {
	ID uint64 // the caller's; later changes have higher ones
	Object
	UID  string
	Kind Kind
	// Version is the resourceVersion that the change led to; that of the deletion in Removed. "": not known.
	Version string
	// Before is the resourceVersion of the object directly before. "": not known, or there may be changes in between.
	Before string
	// Seen is what had been written to the inputs when the change was seen, or later. nil: the change was not seen as it happened, for
	// example because a list found it.
	Seen Marks
	// Unrequested says that the API server may have made the change without a request, for example because an Event has expired.
	Unrequested bool
	// Noticed is when a watch or a list has found the change. It is no proof: it only says which candidates are left out. Zero: not known.
	Noticed time.Time
	At      time.Time // when it was passed to the join
}

// Verdict says who made a change.
type Verdict struct {
	Change uint64
	// Exact is the request that made the change; nil: not known.
	Exact *audit.Record
	// Candidates are requests that may have made it, if Exact is nil, sorted by [byDistance]. There may be others.
	Candidates []*audit.Record
	LeftOut    bool   // more than maxCandidates requests may have made it
	Reason     Reason // why it is not exact; "": it is

	request *request // of Exact
	reached state    // by the change, if Exact is not nil
	places  []place  // of the records of Exact and Candidates
}

// Shrink drops the records of a verdict. Its places stay.
func (v *Verdict) Shrink() { v.Exact, v.Candidates, v.request = nil, nil, nil }

// Lower lowers marks to the first record that the verdict is from.
func (v *Verdict) Lower(marks Marks) {
	for _, p := range v.places {
		marks.lower(p)
	}
}

// Reason says why a verdict is not exact.
type Reason string

// The reasons.
const (
	NoRecord   Reason = "no-record"       // no record fits
	Incomplete Reason = "incomplete"      // records of other requests may be missing
	Several    Reason = "several"         // several requests are possible
	NoOutcome  Reason = "outcome-unknown" // the API server does not say whether the possible request has changed this object
	History    Reason = "history"         // the record may belong to an earlier history of the cluster, before its storage was restored
)

// Reasons returns the reasons of verdicts with candidates.
func Reasons() []Reason { return []Reason{Incomplete, Several, NoOutcome, History} }

// Options of a join. All are required, except Complete and After.
type Options struct {
	// Complete says that the inputs get the records of all API servers of the cluster, about all requests that may change objects, and
	// a record of stage RequestReceived before the API server handles the request (audit mode blocking-strict, of the log file or
	// the webhook).
	Complete bool
	// Settle is how long a change waits for records that may still come, if they are not complete.
	Settle time.Duration
	// Keep is how long a change waits for its first record, and a record for its change. Complete records wait longer: see [Join.Floor].
	Keep time.Duration
	// MaxOpen is how long a request may take.
	MaxOpen time.Duration
	// MaxChanges and MaxRequests bound what waits, and MaxBytes the memory of the requests (0: it is not bounded). Where one is exceeded, the
	// oldest ones go: see [Join.Forgotten].
	MaxChanges, MaxRequests, MaxBytes int
	// After is when the present history of the cluster began, by the clocks of the API servers, and late enough for all of them. A
	// request that came before proves nothing. Zero: there was no other history.
	After time.Time
}

// Join joins changes with records. One Join is for the objects of one storage in one history: the resourceVersions of one resource compare.
type Join struct {
	options Options
	// maxChanges and maxBytes are those of options, until Limit sets others.
	maxChanges, maxBytes int
	ended                bool
	objects              map[Object]*object // with changes
	waiting              *list.List         // of *waiting, in order
	requests             requests
	order                order
	judged               map[string]string // with complete records: the latest version of each UID on which there was a verdict
	resolved             resolved
	verdicts             []Verdict
	// forgotten is what Forgotten returns.
	forgotten Forgotten
	steps     int // how often a request was looked at, for tests
}

// Forgotten says that there was no room for requests or changes.
type Forgotten struct {
	Number uint64
	Since  time.Time // of the earliest request or change
}

func (f *Forgotten) add(at time.Time) {
	if f.Number == 0 || at.Before(f.Since) {
		f.Since = at
	}
	f.Number++
}

// object is an object with changes that wait, in order.
type object struct {
	changes []*waiting
	last    *request // that made the last change with an exact verdict
	version string   // of that change
}

// waiting is a change that waits for its verdict.
type waiting struct {
	Change
	queued *list.Element // in Join.waiting
	again  bool          // there was a verdict on the version: another collection has the same change, or it is published again
	late   bool          // requests that can have made it may be forgotten: the caller had said that all changes up to its version were passed on
	open   *request      // a possible one that was not over when that was looked at; nil: none is known
}

// New returns a join that has read nothing.
func New(o Options) *Join {
	return &Join{options: o, maxChanges: o.MaxChanges, maxBytes: o.MaxBytes, objects: map[Object]*object{}, waiting: list.New(), requests: newRequests(), judged: map[string]string{}, resolved: newResolved()}
}

// Limit sets other bounds than [Options].MaxChanges and MaxBytes, for example because the memory is shared with another join now. The number of
// changes does not get larger than MaxChanges. One part of 16 more than maxBytes is used for verdicts that other changes may have as well.
func (j *Join) Limit(maxChanges, maxBytes int, now time.Time) {
	j.maxChanges, j.maxBytes = min(maxChanges, j.options.MaxChanges), maxBytes
	j.resolved.limit = min(maxResolvedBytes, maxBytes/16)
	j.resolved.shrink()
	j.shrink(now)
}

// shrink gives up the oldest requests and changes where there are more than the bounds allow.
func (j *Join) shrink(now time.Time) {
	for j.requests.len() > j.options.MaxRequests || j.maxBytes > 0 && j.requests.bytes > j.maxBytes {
		oldest := j.requests.oldest()
		j.order.loseOf(oldest.object.resource(), now)
		j.forgotten.add(oldest.record.Received)
		j.requests.remove(oldest)
	}
	for j.waiting.Len() > j.maxChanges {
		oldest := j.waiting.Front().Value.(*waiting)
		j.forgotten.add(oldest.At)
		j.inexact(j.objects[oldest.Object], oldest, Incomplete)
	}
}

// state is a state of an object, or its removal.
type state struct {
	uid, version string
	removed      bool
}

// reached returns what a change has led to.
func (c *Change) reached() state { return state{c.UID, c.Version, c.Kind == Removed} }

// resolved has exact verdicts for changes that another collection publishes as well.
type resolved struct {
	of      map[state]resolution
	order   []state
	bytes   int                 // of their records
	limit   int                 // of bytes
	passed  map[Resource]string // up to which version all collections have the changes: see [Join.Passed]
	expired time.Time           // the records of changes until then are not needed any more
}

// resolution is the verdict on a change that came at a time.
type resolution struct {
	Verdict
	at    time.Time
	given []uint64      // the changes that have the verdict
	rival *audit.Record // proves the change as well, for another user; nil: none is known
}

// verdict returns the verdict on a change.
func (r *resolution) verdict(id uint64) Verdict {
	v := r.Verdict
	if r.rival != nil {
		v = Verdict{Reason: Several, Candidates: []*audit.Record{r.Exact, r.rival}, places: r.places}
	}
	v.Change = id
	return v
}

func (r *resolution) size() int {
	if r.rival == nil {
		return r.Exact.Size()
	}
	return r.Exact.Size() + r.rival.Size()
}

func newResolved() resolved {
	return resolved{of: map[state]resolution{}, limit: maxResolvedBytes, passed: map[Resource]string{}}
}

// maxResolved and maxResolvedBytes bound resolved. The oldest ones go.
const maxResolved, maxResolvedBytes = 10_000, 16 << 20

func (a *resolved) add(c *Change, v Verdict) {
	s := c.reached()
	if _, known := a.of[s]; known || s.uid == "" || s.version == "" {
		return
	}
	a.of[s], a.order = resolution{Verdict: v, at: c.At}, append(a.order, s)
	a.bytes += v.Exact.Size()
	a.shrink()
}

// shrink forgets the oldest verdicts where there are too many. The latest one stays.
func (a *resolved) shrink() {
	for len(a.order) > maxResolved || a.bytes > a.limit && len(a.order) > 1 {
		a.forget(a.order[0])
		a.order = a.order[1:]
	}
}

func (a *resolved) forget(s state) {
	r := a.of[s]
	a.bytes -= r.size()
	delete(a.of, s)
}

// find returns the verdict on what a change has led to.
func (a *resolved) find(c *Change) (Verdict, bool) {
	r, known := a.of[c.reached()]
	return r.verdict(c.ID), known
}

// lower lowers marks to the first record of the changes that a collection of some resources may still have to publish.
func (a *resolved) lower(marks Marks, of map[Resource]bool) {
	for s, v := range a.of {
		r := Resource{v.Exact.Group, v.Exact.Resource}
		if of[r] && event.Newer(s.version, a.passed[r]) && v.at.After(a.expired) {
			v.Lower(marks)
		}
	}
}

// forgetPlaces forgets where the records are.
func (a *resolved) forgetPlaces() {
	for s, r := range a.of {
		r.places = nil
		a.of[s] = r
	}
}

// End says that the history of the storage has ended. Requests in the next one may lead to the same resourceVersions, so no verdict is exact
// any more.
func (j *Join) End() { j.ended = true }

// Waiting returns how many changes and how many requests wait.
func (j *Join) Waiting() (changes, requests int) { return j.waiting.Len(), j.requests.len() }

// Forgotten returns what there was no room for since the last call. Verdicts that would have been exact may not be.
func (j *Join) Forgotten() Forgotten {
	f := j.forgotten
	j.forgotten = Forgotten{}
	return f
}

// Lower lowers marks to the first record that the join still needs, also for verdicts that Take has not returned yet. Several collections can have the same
// object of an overlapping resource: so the records of an exact verdict are needed until [Join.Passed] says that all collections have its change, or for
// [Options.Keep].
func (j *Join) Lower(marks Marks, overlapping map[Resource]bool) {
	for i := range j.verdicts {
		j.verdicts[i].Lower(marks)
	}
	j.resolved.lower(marks, overlapping)
	j.requests.all(func(q *request) {
		marks.lower(q.begin)
		marks.lower(q.end)
	})
}

// Take returns the verdicts since the last call. A change gets a second one if a record has come that contradicts the first one: see [Join.contest].
func (j *Join) Take() []Verdict {
	v := j.verdicts
	j.verdicts = nil
	return v
}

// Change adds a change. The changes of an object come in order.
func (j *Join) Change(c Change) {
	o := j.objects[c.Object]
	if o == nil {
		o = &object{}
		j.objects[c.Object] = o
	}
	w := j.newWaiting(o, c)
	w.queued = j.waiting.PushBack(w)
	o.changes = append(o.changes, w)
	j.decide(c.Object, func(other *Change) *request {
		if other != &w.Change {
			return nil
		}
		return j.maker(other)
	})
	j.shrink(c.At)
}

// newWaiting returns a change as it waits for its verdict.
func (j *Join) newWaiting(o *object, c Change) *waiting {
	return &waiting{Change: c, again: j.again(o, &c), late: j.order.hasForgotten(&c)}
}

// Decides reports whether a change would get its verdict at once if [Join.Change] was called now.
func (j *Join) Decides(c Change) bool {
	if _, known := j.resolved.find(&c); known {
		return true
	}
	if j.maker(&c) != nil {
		return true
	}
	if !j.options.Complete {
		return false
	}
	o := j.objects[c.Object]
	if o == nil {
		o = &object{}
	}
	w := j.newWaiting(o, c)
	decided, _ := j.explained(o, append(slices.Clone(o.changes), w))
	return slices.Contains(decided, w)
}

// Return takes a verdict back, because the change was not published after all. The verdict stays true: if it is exact, and the same change comes
// again, it gets the same request. Other collections may have other changes of the object by then, and their requests may be forgotten, so nothing else
// may follow from the records that are left.
func (j *Join) Return(v Verdict, now time.Time) {
	if q := v.request; q != nil {
		if !q.reached(v.reached) {
			q.returned = append(q.returned, v.reached)
		}
		j.requests.restore(q, now)
	}
}

// again reports whether there was a verdict on the version of a change, or another change of that version waits.
func (j *Join) again(o *object, c *Change) bool {
	if judged, known := j.judged[c.UID]; known && !event.Newer(c.Version, judged) {
		return true
	}
	return slices.ContainsFunc(o.changes, func(w *waiting) bool { return w.UID == c.UID && !event.Newer(c.Version, w.Version) })
}

// See sets [Change.Seen] of waiting changes that match and have none.
func (j *Join) See(match func(c *Change) bool, marks Marks) {
	for e := j.waiting.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*waiting); c.Seen == nil && match(&c.Change) {
			c.Seen = marks
		}
	}
}

// Withdraw removes the changes that match, because they were not published: they get no verdict.
func (j *Join) Withdraw(match func(id uint64) bool) {
	for e := j.waiting.Front(); e != nil; {
		c := e.Value.(*waiting)
		e = e.Next()
		if match(c.ID) {
			j.remove(j.objects[c.Object], c)
		}
	}
}

// Read adds what was read as the given number of an input: a record, or nil if that number has none for this join. The join keeps the
// record. Numbers of an input increase.
func (j *Join) Read(input int, number uint64, r *audit.Record, now time.Time) {
	j.order.read.raise(input, number)
	if r == nil || r.Resource == "" {
		return
	}
	q := j.requests.add(place{input, number}, r, now)
	if q.outcome() == refused {
		j.requests.remove(q)
	}
	if q.object.Name != "" {
		j.contest(q, Written)
		j.contest(q, Removed)
		j.decide(q.object, func(c *Change) *request {
			if !j.proves(q, c) {
				return nil
			}
			return q
		})
	}
	j.shrink(now)
}

// contest takes exact verdicts back if a request proves the change as well, for another user: one of the two records is wrong then. The changes get
// another verdict, which counts if the first one is not published.
func (j *Join) contest(q *request, kind Kind) {
	a := q.record.Answer
	if a == nil {
		return
	}
	c := Change{Object: q.object, Kind: kind, UID: a.UID, Version: a.Version}
	r, known := j.resolved.of[c.reached()]
	if !known || r.rival != nil || sameUser(r.Exact, q.record) || !j.proves(q, &c) {
		return
	}
	r.rival, r.places = q.record, append(slices.Clone(r.places), q.end)
	j.resolved.of[c.reached()] = r
	j.resolved.bytes += q.record.Size()
	for _, id := range r.given {
		j.verdicts = append(j.verdicts, r.verdict(id))
	}
}

func sameUser(a, b *audit.Record) bool {
	if (a.Actor.Impersonated == nil) != (b.Actor.Impersonated == nil) || a.Actor.User.Name != b.Actor.User.Name {
		return false
	}
	return a.Actor.Impersonated == nil || a.Actor.Impersonated.Name == b.Actor.Impersonated.Name
}

// rival returns a request of another user that proves a change as well as a request that is said to have made it.
func (j *Join) rival(q *request, c *Change) *request {
	for _, other := range j.requests.about(c.Object) {
		j.steps++
		if !sameUser(other.record, q.record) && j.proves(other, c) {
			return other
		}
	}
	return nil
}

// Settle gives the verdicts that the records read so far, and the time, allow. Call it before the caller waits, and once a second.
func (j *Join) Settle(now time.Time) {
	j.resolved.expired = now.Add(-j.options.Keep)
	j.requests.all(func(q *request) {
		if !q.over() && now.Sub(q.at) >= j.options.MaxOpen { // the API server may have ended without a record
			q.expired = now
		}
	})
	stuck := j.order.stuck(now, j.options.Keep)
	j.forget(func(q *request) bool {
		r := q.object.resource()
		if !q.over() || now.Sub(q.at) < j.options.Keep || j.options.Complete && !stuck[r] {
			return false
		}
		if j.options.Complete {
			j.order.loseOf(r, now)
		}
		return true
	})
	for key := range j.objects {
		j.settle(key, now)
	}
}

// Begin says that records are read from behind marks on, and that those before may be missing. Their numbers may have been used before, for other
// records, so the join forgets requests and their order. What waits is not seen: see [Change.Seen].
func (j *Join) Begin(marks Marks, now time.Time) {
	j.requests.all(func(q *request) { q.queued = nil })
	j.requests = newRequests()
	j.resolved.forgetPlaces()
	j.order.restart(marks, now)
	for _, o := range j.objects {
		o.last, o.version = nil, ""
		for _, c := range o.changes {
			c.Seen = nil
		}
	}
}

// Lost says that records may be missing that were written to the inputs up to marks, for example because an input begins there.
func (j *Join) Lost(marks Marks, now time.Time) { j.order.lose(marks, now) }

// Use says that the records of a resource are read and kept from now on, unless that was said before. Those of requests before may be missing. Where it
// is never called, there are none before.
func (j *Join) Use(r Resource, now time.Time) {
	if j.options.Complete && !j.order.counter(r).used {
		j.order.counter(r).used = true
		j.order.loseOf(r, now)
	}
}

// Idle says that changes of a resource do not come any more. Its requests are then forgotten after [Options.Keep], and if it is used again, those before
// may be missing.
func (j *Join) Idle(r Resource, now time.Time) {
	delete(j.order.resources, r)
	delete(j.resolved.passed, r)
	if j.options.Complete {
		j.forget(func(q *request) bool { return q.object.resource() == r && q.over() && now.Sub(q.at) >= j.options.Keep })
	}
}

// Floor says that the state of a resource in the API server was not later than version at some time after marks had been written to the inputs, which
// was at the time at. One that is older than another one has no effect. With complete records, call it every minute or so for each resource: verdicts
// are exact for changes later than the first floor after [Options.MaxOpen].
func (j *Join) Floor(r Resource, marks Marks, version string, at time.Time) {
	j.order.floor(r, &floor{slices.Clone(marks), version, at}, j.options.MaxOpen)
}

// Passed says that all changes of a resource up to version were passed to the join. Requests that can have made no later one are forgotten. If such a
// change is added nevertheless, its verdict is not exact, unless one record is proof.
func (j *Join) Passed(r Resource, version string) {
	j.resolved.passed[r] = version
	c := j.order.resources[r]
	if c == nil {
		return
	}
	c.passing = true
	if floor := c.behind(version); floor != nil && floor != c.passed {
		c.passed = floor
		if !event.Older(floor.version, c.forgotten) {
			c.forgotten = floor.version
		}
		j.forget(func(q *request) bool { return q.object.resource() == r && q.overAt(floor) })
	}
}

// forget forgets the requests that match, unless a waiting change may need them.
func (j *Join) forget(match func(*request) bool) {
	tests := map[Object][]func(*request) bool{} // of the changes of an object
	needed := func(key Object, q *request) bool {
		of, known := tests[key]
		if o := j.objects[key]; !known && o != nil {
			for _, c := range o.changes {
				of = append(of, j.possibleFor(o, c))
			}
			tests[key] = of
		}
		return slices.ContainsFunc(of, func(possible func(*request) bool) bool { return possible(q) })
	}
	keep := func(q *request) bool {
		if q.object.Name != "" {
			return needed(q.object, q)
		}
		for key := range j.objects {
			if q.object.has(key) && needed(key, q) {
				return true
			}
		}
		return false
	}
	j.requests.removeIf(func(q *request) bool { return match(q) && !keep(q) })
}

// settle gives the changes of an object the verdicts that are possible now.
func (j *Join) settle(key Object, now time.Time) {
	j.decide(key, func(*Change) *request { return nil })
	o := j.objects[key]
	if o == nil {
		return
	}
	for _, c := range slices.Clone(o.changes) {
		waited := now.Sub(c.At)
		if j.certain(c) || waited < j.options.Settle {
			continue
		}
		if waited >= j.options.Keep || len(j.possible(o, c)) > 0 {
			why := Incomplete
			if j.ended {
				why = History
			}
			j.inexact(o, c, why)
		}
	}
}

// decide gives the changes of an object the verdicts that the records read so far allow, however long the changes have waited: only [Join.Settle] knows
// whether other records are still to be read. news returns the request that has made a change, if this can be known since the last call.
func (j *Join) decide(key Object, news func(*Change) *request) {
	o := j.objects[key]
	if o == nil {
		return
	}
	for _, c := range slices.Clone(o.changes) {
		if v, known := j.resolved.find(&c.Change); known {
			j.verdict(o, c, v)
		} else if q := news(&c.Change); q != nil {
			j.exact(o, c, q)
		}
	}
	for j.settleCertain(o) {
	}
}

// maker returns the request that has made a change, if one record says so alone, or if an earlier verdict on the same change did.
func (j *Join) maker(c *Change) *request {
	for _, q := range j.requests.about(c.Object) {
		j.steps++
		if q.reached(c.reached()) || j.proves(q, c) {
			return q
		}
	}
	return nil
}

// settleCertain gives verdicts to changes of which all possible requests are known and over. It returns false if there are none.
func (j *Join) settleCertain(o *object) bool {
	changes, requests := j.explained(o, o.changes)
	for i, only := range requests {
		c := changes[i]
		switch {
		case only == nil:
			j.inexact(o, c, Several)
		case !effective(only, &c.Change):
			j.inexact(o, c, NoOutcome)
		case j.ofEarlierHistory(only):
			j.inexact(o, c, History)
		default:
			j.exact(o, c, only)
		}
	}
	return len(changes) > 0
}

// explained returns those of an object's first changes of which all possible requests are known and over, and what explain says about them. Later changes
// wait for the first ones.
func (j *Join) explained(o *object, all []*waiting) (changes []*waiting, requests []*request) {
	var possible [][]*request
	looked := 0
	for _, c := range all {
		if looked == maxTogether {
			break
		}
		if !j.certain(c) || !j.order.read.reach(c.Seen) {
			continue
		}
		looked++
		if c.open != nil && c.open.queued != nil && !c.open.over() {
			continue
		}
		list := j.possible(o, c)
		if i := slices.IndexFunc(list, func(q *request) bool { return !q.over() }); i >= 0 {
			c.open = list[i]
			continue
		}
		changes, possible = append(changes, c), append(possible, list)
	}
	return changes, explain(changes, possible)
}

// certain reports whether the request that made a change is, or will be, among those that are read.
func (j *Join) certain(c *waiting) bool {
	return j.options.Complete && !j.ended && !c.again && !c.late && c.Seen != nil && c.Version != "" && j.order.trusts(&c.Change) && !j.hasLeft(&c.Change)
}

// hasLeft reports whether an answer shows that an object existed in the version of its removal, or later. Then it has only left the selection of the
// collection with that version, and something later has removed it: see [Removed].
func (j *Join) hasLeft(c *Change) bool {
	return c.Kind == Removed && slices.ContainsFunc(j.requests.of[c.Object], func(q *request) bool {
		a := q.record.Answer
		return a != nil && a.UID == c.UID && (a.Version == c.Version && !removes(q.record) || event.Older(c.Version, a.Version))
	})
}

// possible returns the requests that can have made a change.
func (j *Join) possible(o *object, c *waiting) (possible []*request) {
	test := j.possibleFor(o, c)
	for _, q := range j.requests.about(c.Object) {
		if test(q) {
			possible = append(possible, q)
		}
	}
	return possible
}

// possibleFor returns a function that reports whether a request about the object can have made a change, by the records so far. Only complete records are
// in an order.
func (j *Join) possibleFor(o *object, c *waiting) func(*request) bool {
	alone := func(q *request) bool {
		j.steps++
		return !q.restored && can(q, &c.Change)
	}
	if !j.options.Complete {
		return alone
	}
	floor, answered := j.order.before(c.resource(), c.Version), j.answered(c)
	return func(q *request) bool {
		switch {
		case !alone(q):
		case q.overAt(floor): // over before the state to which the change was made
		case c.Seen != nil && q.begin.number > c.Seen.of(q.begin.input): // begun after the change
		case answered.of(q.begin.input) != 0 && q.begin.number > answered.of(q.begin.input): // begun after an answer that has the change, or a later one
		case o.last != nil && event.Older(o.version, c.Version) && q.end.before(o.last.begin): // over before an earlier change
		default:
			return true
		}
		return false
	}
}

// answered returns for each input where the first request was over whose answer has a change, or a later one.
func (j *Join) answered(c *waiting) (first Marks) {
	for _, q := range j.requests.about(c.Object) {
		j.steps++
		if a := q.record.Answer; a == nil || a.UID != c.UID || q.restored || q.end.number == 0 || event.Newer(c.Version, a.Version) {
			continue
		}
		if first.of(q.end.input) == 0 {
			first.raise(q.end.input, q.end.number)
		}
		first.lower(q.end)
	}
	return first
}

// ofEarlierHistory reports whether a request may have come in another history than the changes.
func (j *Join) ofEarlierHistory(q *request) bool {
	return j.ended || !j.options.After.IsZero() && !q.record.Received.After(j.options.After)
}

// exact gives a change the verdict that a request has made it, unless another user's request proves it as well.
func (j *Join) exact(o *object, c *waiting, q *request) {
	if j.rival(q, &c.Change) != nil {
		j.inexact(o, c, Several)
		return
	}
	v := Verdict{Change: c.ID, Exact: q.record, request: q, reached: c.reached(), places: []place{q.begin, q.end}}
	if c.again || q.reached(v.reached) { // the request is counted for another change of the version
		j.verdict(o, c, v)
		return
	}
	j.resolved.add(&c.Change, v)
	j.verdict(o, c, v)
	if o.last == nil || event.Newer(c.Version, o.version) {
		o.last, o.version = q, c.Version
	}
	if q.made++; q.made >= capacity(q.record) {
		j.requests.remove(q)
	}
}

// maxCandidates bounds the candidates of a verdict.
const maxCandidates = 16

// byDistance sorts requests by how far they were, in time, from the moment at which a change was noticed. A change is noticed soon after it is made, so
// the request that made it is among the first, also if the clocks of the API servers are not quite right. Where the moment is not known, the latest
// requests come first.
func byDistance(list []*request, noticed time.Time) {
	slices.SortStableFunc(list, func(a, b *request) int {
		if noticed.IsZero() {
			return b.record.Received.Compare(a.record.Received)
		}
		return cmp.Compare(a.distance(noticed), b.distance(noticed))
	})
}

// inexact gives a change a verdict with candidates.
func (j *Join) inexact(o *object, c *waiting, why Reason) {
	v := Verdict{Change: c.ID, Reason: why}
	possible := j.possible(o, c)
	byDistance(possible, c.Noticed)
	v.LeftOut = len(possible) > maxCandidates
	for _, q := range possible[:min(len(possible), maxCandidates)] {
		v.Candidates, v.places = append(v.Candidates, q.record), append(v.places, q.begin, q.end)
	}
	if len(possible) == 0 {
		v.Reason = NoRecord
	}
	j.verdict(o, c, v)
}

func (j *Join) verdict(o *object, c *waiting, v Verdict) {
	j.remove(o, c)
	j.judge(c)
	j.verdicts = append(j.verdicts, v)
	if r, known := j.resolved.of[c.reached()]; known {
		r.given = append(r.given, c.ID)
		j.resolved.of[c.reached()] = r
	}
}

// judge remembers that there is a verdict on a version. Its request can be forgotten then, so a second verdict on the same version must not be from
// what is left.
func (j *Join) judge(c *waiting) {
	if !j.options.Complete || c.UID == "" || c.Version == "" {
		return
	}
	if before, known := j.judged[c.UID]; known && !event.Newer(c.Version, before) {
		return
	}
	if len(j.judged) >= j.options.MaxChanges {
		clear(j.judged)
		j.order.lose(j.order.read, c.At)
	}
	j.judged[c.UID] = c.Version
}

// remove removes a change.
func (j *Join) remove(o *object, c *waiting) {
	j.waiting.Remove(c.queued)
	o.changes = slices.DeleteFunc(o.changes, func(other *waiting) bool { return other == c })
	if len(o.changes) == 0 {
		delete(j.objects, c.Object)
	}
}
