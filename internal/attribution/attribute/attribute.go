// Package attribute says who made the changes that a sink publishes, by the records of the API server's audit log.
//
// A change that is published waits in the checkpoint, from the commit of its event on, until a verdict of internal/attribution/join says which
// request made it. The verdict is published as an event of its own ([event.Attributed]), with whose commit the change leaves the checkpoint.
// So where a sink is exactly once, each change is attributed at most once, and no restart forgets one.
//
// With [Options.Wait], a change first waits in memory, before its event is made: see [Attribution.MayWait]. If the verdict is exact
// when the event is made, the event has the request ([event.Event].Actor), and the change does not wait in the checkpoint:
//
//	change                                     leads to
//	seen by a watch, not decided               it waits until it is decided, for Options.Wait at most
//	its event is made, the verdict is exact    carried, until the event is committed
//	its event is made, other cases             waiting
//	carried, its collection is suspended       its request goes back to the join; the collection publishes the change again
package attribute

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// prefix begins the keys of changes that wait: prefix, the collection, "/", the number in hexadecimal digits.
const prefix = "a/"

// positionKey is the key of how far records were read.
const positionKey = "n/audit"

// Options of an Attribution. All are required but MaxBytes and Wait.
type Options struct {
	Join join.Options // After is set by the Attribution
	// Storage returns the storage of a resource of [audit.ResourceOf], in which the resourceVersions of the resource compare. used says that there may be
	// changes of the resource.
	Storage func(r join.Resource) (storage string, used bool)
	Inputs  int // number of inputs
	// MaxBytes bounds the memory of records and of changes that wait, besides the bounds of Join. 0: those of Join are enough.
	MaxBytes int
	// Wait is how long a change waits for its verdict before its event is made. 0: it does not wait, and its event never has its request.
	Wait time.Duration
}

// Attribution has the changes of one sink that wait. One goroutine uses it.
type Attribution struct {
	options      Options
	joins        map[history]*join.Join
	waiting      map[uint64]*Change
	decided      map[uint64]*decision // on changes in waiting, until the attribution is committed
	decidedBytes int                  // of the records of decided
	storing      storing
	// rejected is how often the bus has rejected the event of a verdict. It outlives a suspension of the collection, as decided does.
	rejected map[uint64]int
	carried  map[encode.PublicationID]carried // events with their request, until they are committed
	seen     []moment                         // in order, those of the last two times Options.Wait
	ready    []uint64                         // of decided, to be published
	now      time.Time                        // the latest one that was passed to a method
	upTo     time.Time                        // records that were written to the inputs before it are read: changes wait by this clock
	next     uint64                           // number of the next change or refusal
	refusals refusals
	read     uint64 // the number of the last record
	counts   Counts
	kept     time.Time // when keepVerdicts stored verdicts last

	overlapping map[join.Resource]bool // see Overlap

	histories map[string]begun // by storage; none of a storage in its first history
	stored    map[string]begun // of histories, in the store or on the way there

	store      checkpoint.Store
	generation int // how often the changes of a store were loaded
}

// Counts are numbers since the start, except Waiting.
type Counts struct {
	Waiting    int // changes that wait for their verdict, or for the commit of its event
	Exact      uint64
	Carried    uint64 // exact as well, but the event of the change has the request
	Candidates map[join.Reason]uint64
	Unknown    uint64 // without any record
	Dropped    uint64 // consumers had no copy of the collection any more
	Rejected   uint64 // the bus has taken no event about them
	Refusals   RefusalCounts
}

// Resource is a resource in a storage.
type Resource struct {
	Storage string
	join.Resource
}

// Change is a published change whose request is not known yet.
type Change struct {
	Number      uint64     `json:"-"`
	Collection  string     `json:"-"`
	Type        event.Type `json:"t"`
	Run         string     `json:"r"`
	Incarnation uint64     `json:"i"`
	APIVersion  string     `json:"a"`
	Kind        string     `json:"k"`
	Namespace   string     `json:"n,omitzero"`
	Name        string     `json:"m"`
	UID         string     `json:"u"`
	Published   string     `json:"p"` // resourceversion of the event
	// Made, Before, Did and Unrequested are as in [join.Change]: Version, Before, Kind and Unrequested.
	Made        string    `json:"v,omitzero"`
	Before      string    `json:"b,omitzero"`
	Did         join.Kind `json:"d"`
	Unrequested bool      `json:"x,omitzero"`
	Noticed     time.Time `json:"o,omitzero"` // as in [join.Change]; zero in changes of former versions
	Storage     string    `json:"s,omitzero"`
	Epoch       uint64    `json:"e"`
	// Verdict is what the event will say, if that is stored before it is published: see [Attribution.Keep].
	Verdict *event.Attribution `json:"y,omitzero"`

	live time.Time // when a watch has seen the change; zero: it has not, or before a restart
}

// New returns an Attribution without changes.
func New(o Options) *Attribution {
	return &Attribution{options: o, joins: map[history]*join.Join{}, histories: map[string]begun{}, waiting: map[uint64]*Change{}, decided: map[uint64]*decision{}, rejected: map[uint64]int{}, carried: map[encode.PublicationID]carried{}, next: 1, refusals: newRefusals(), counts: Counts{Candidates: map[join.Reason]uint64{}}}
}

// load continues with the changes in a store. What was there before is forgotten.
func (a *Attribution) load(store checkpoint.Store, now time.Time) error {
	a.joins, a.waiting, a.decided, a.ready = map[history]*join.Join{}, map[uint64]*Change{}, map[uint64]*decision{}, nil
	a.decidedBytes, a.storing = 0, storing{}
	clear(a.rejected)
	clear(a.carried)
	a.seen = nil
	a.store = store
	a.generation++
	a.tick(now)
	if err := a.loadHistories(); err != nil {
		return err
	}
	if err := a.scan(store, prefix, now); err != nil {
		return err
	}
	return a.refusals.load(store, a.nextID)
}

// Restore implements [loop.Chronicle]. Verdicts on the changes of a collection that are in the store stay. Other changes were not committed: they
// come again with other numbers.
func (a *Attribution) Restore(store checkpoint.Store, collection string, now time.Time) error {
	if collection == "" {
		return a.load(store, now)
	}
	for _, j := range a.joins { // a change that has a verdict must not get another one
		a.take(j)
	}
	before := map[uint64]*Change{}
	for number, c := range a.waiting {
		if c.Collection == collection {
			before[number] = c
			delete(a.waiting, number)
		}
	}
	for _, j := range a.joins {
		j.Withdraw(func(number uint64) bool { return a.waiting[number] == nil })
	}
	a.ready = slices.DeleteFunc(a.ready, func(number uint64) bool { return a.waiting[number] == nil })
	a.takeBack(collection, now)
	if err := a.scan(store, prefix+collection+"/", now); err != nil {
		return err
	}
	for number, c := range before {
		if d := a.decided[number]; d != nil && a.waiting[number] == nil {
			a.joinOf(c, now).Return(d.verdict, now)
			a.forget(number)
		}
	}
	return a.refusals.restore(store, collection, &a.counts.Refusals)
}

// nextID returns the number of the next change or refusal.
func (a *Attribution) nextID() uint64 {
	a.next++
	return a.next - 1
}

func (a *Attribution) scan(store checkpoint.Store, from string, now time.Time) error {
	var found []*Change
	err := store.Scan([]byte(from), func(key, value []byte) error {
		rest := strings.TrimPrefix(string(key), prefix)
		slash := strings.LastIndexByte(rest, '/')
		if slash < 0 {
			return fmt.Errorf("%w: key %q of a change that waits for its request", checkpoint.ErrCorrupt, key)
		}
		c := &Change{Collection: rest[:slash]}
		if _, err := fmt.Sscanf(rest[slash+1:], "%016x", &c.Number); err != nil {
			return fmt.Errorf("%w: key %q of a change that waits for its request", checkpoint.ErrCorrupt, key)
		}
		if err := json.Unmarshal(value, c); err != nil {
			return fmt.Errorf("%w: change %q that waits for its request: %w", checkpoint.ErrCorrupt, key, err)
		}
		found = append(found, c)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	slices.SortFunc(found, func(x, y *Change) int { return int(int64(x.Number - y.Number)) })
	for _, c := range found {
		a.next = max(a.next, c.Number+1)
		a.wait(c, now)
	}
	return nil
}

// Counts returns a copy of the numbers. Candidates has all reasons.
func (a *Attribution) Counts() Counts {
	out := a.counts
	out.Waiting, out.Refusals.Waiting = len(a.waiting), len(a.refusals.byID)
	out.Candidates = map[join.Reason]uint64{}
	for _, reason := range join.Reasons() {
		out.Candidates[reason] = a.counts.Candidates[reason]
	}
	return out
}

// wait adds a change to its join, unless there is a verdict on it.
func (a *Attribution) wait(c *Change, now time.Time) {
	a.waiting[c.Number] = c
	if a.decided[c.Number] == nil && c.Verdict != nil {
		a.decide(restored(c))
	}
	if d := a.decided[c.Number]; d != nil {
		d.sent = false
		a.ready = append(a.ready, c.Number)
		return
	}
	j, change := a.joinOf(c, now), a.joined(c)
	j.Use(join.Resource{Group: change.Group, Resource: change.Resource}, now)
	j.Change(change)
}

// joined returns a change as its join has it.
func (a *Attribution) joined(c *Change) join.Change {
	collection := event.ParseCollection(c.Collection)
	of := ResourceOf(&collection)
	return join.Change{
		ID: c.Number, Object: join.Object{Group: of.Group, Resource: of.Resource, Namespace: c.Namespace, Name: audit.Shortened(c.Name)}, UID: c.UID,
		Kind: c.Did, Version: c.Made, Before: c.Before, Seen: a.marksAfter(c.live), Unrequested: c.Unrequested, Noticed: c.Noticed, At: a.now,
	}
}

// await adds a change whose event is in the batch that fills, and returns the change of the checkpoint that is to be committed
// with the event. live says that a watch has just seen it; otherwise a list has.
func (a *Attribution) await(c *Change, live bool, now time.Time) event.KV {
	a.tick(now)
	c.Number, c.Storage, c.Noticed = a.nextID(), a.storageOf(c), now.UTC().Truncate(time.Millisecond)
	c.Unrequested = c.Unrequested || c.Storage != "" // another API server may make changes without a request to this one
	if live {
		c.live = now
	}
	value, _ := json.Marshal(c) // strings and numbers always encode
	a.wait(c, now)
	return event.KV{Key: key(c), Value: value}
}

func key(c *Change) []byte { return fmt.Appendf(nil, "%s%s/%016x", prefix, c.Collection, c.Number) }

// tick notes the present time.
func (a *Attribution) tick(now time.Time) {
	if now.After(a.now) {
		a.now = now
	}
}

// Read adds a record. Numbers increase, also from one input to another.
func (a *Attribution) Read(number uint64, r *audit.Record, now time.Time) {
	a.tick(now)
	resource := join.Resource{Group: r.Group, Resource: r.Resource}
	storage, used := a.options.Storage(resource)
	if used {
		a.join(a.present(storage), now).Use(resource, now) // its first change may come after the record
	}
	for h, j := range a.joins {
		if h.storage == storage {
			j.Read(r.Input, number, r, now)
		}
		for input := range a.options.Inputs {
			j.Read(input, number, nil, now)
		}
	}
	a.read = number
}

// Skip says that the numbers up to one have no records: only offsets, or the records are missing. Then Lost is called, too.
func (a *Attribution) Skip(number uint64, now time.Time) {
	a.tick(now)
	if number <= a.read {
		return
	}
	for _, j := range a.joins {
		for input := range a.options.Inputs {
			j.Read(input, number, nil, now)
		}
	}
	a.read = number
}

func (a *Attribution) storageOf(c *Change) string {
	of := event.ParseCollection(c.Collection)
	storage, _ := a.options.Storage(ResourceOf(&of))
	return storage
}

// ResourceOf returns the resource of a collection as audit records of its objects have it.
func ResourceOf(c *event.Collection) join.Resource {
	group, resource := audit.ResourceOf(c.Group, c.Resource)
	return join.Resource{Group: group, Resource: resource}
}

// marks returns a number as the mark of each input.
func (a *Attribution) marks(number uint64) join.Marks {
	m := make(join.Marks, a.options.Inputs)
	for input := range m {
		m[input] = number
	}
	return m
}

// Caught says that all records that were written to the inputs before at have at most the given number.
func (a *Attribution) Caught(at time.Time, number uint64) {
	marks := a.marks(number)
	a.remember(at, number)
	if number <= a.read && at.After(a.upTo) {
		a.upTo = at
	}
	for _, j := range a.joins {
		j.See(func(c *join.Change) bool {
			w := a.waiting[c.ID]
			return w != nil && !w.live.IsZero() && !w.live.After(at)
		}, marks)
	}
}

// Lost says that records may be missing.
func (a *Attribution) Lost(now time.Time) {
	for _, j := range a.joins {
		j.Lost(a.marks(a.read), now)
	}
}

// Floor is that of [join.Join.Floor], for the records of all inputs up to a number.
func (a *Attribution) Floor(r Resource, version string, number uint64, at, now time.Time) {
	j := a.join(a.present(r.Storage), now) // the first record or change may come much later
	j.Use(r.Resource, now)
	j.Floor(r.Resource, a.marks(number), version, at)
}

// Passed says that all changes of a resource up to version were published.
func (a *Attribution) Passed(r Resource, version string) {
	if j := a.joins[a.present(r.Storage)]; j != nil {
		j.Passed(r.Resource, version)
	}
}

// Overlap says of which resources several collections can have the same object. The records of a change are then needed until all have published it.
func (a *Attribution) Overlap(resources map[join.Resource]bool) { a.overlapping = resources }

// Idle says that no collection has the resource any more.
func (a *Attribution) Idle(r Resource) {
	if j := a.joins[a.present(r.Storage)]; j != nil {
		j.Idle(r.Resource, a.upTo)
	}
}

// Forgotten returns what there was no room for since the last call: who made a change may be not known because of that.
func (a *Attribution) Forgotten() (all join.Forgotten) {
	for _, j := range a.joins {
		f := j.Forgotten()
		if f.Number > 0 && (all.Number == 0 || f.Since.Before(all.Since)) {
			all.Since = f.Since
		}
		all.Number += f.Number
	}
	return all
}

// Later takes changes back that Ready has returned, because there is no room for them.
func (a *Attribution) Later(list []*Change) {
	for _, c := range list {
		a.ready = append(a.ready, c.Number)
	}
}

// Ready settles what can be settled, and returns the changes that have a verdict, in their order. The caller publishes each of them, or
// calls Drop or Later. Changes wait for records by the times of [Attribution.Caught], so none is given up while its record is not read.
func (a *Attribution) Ready(now time.Time) []*Change {
	a.tick(now)
	for _, j := range a.joins {
		j.Settle(a.upTo)
		a.take(j)
	}
	a.forgetEnded()
	slices.Sort(a.ready)
	var ready []*Change
	for _, number := range a.ready {
		ready = append(ready, a.waiting[number])
	}
	a.ready = nil
	return ready
}

// take takes the verdicts of a join.
func (a *Attribution) take(j *join.Join) {
	for _, v := range j.Take() {
		switch {
		case a.waiting[v.Change] == nil:
		case a.decided[v.Change] == nil:
			a.decide(made(v))
			a.ready = append(a.ready, v.Change)
		case !a.decided[v.Change].sent: // the later verdict counts
			a.revoke(v.Change)
			a.decide(made(v))
		}
	}
}
