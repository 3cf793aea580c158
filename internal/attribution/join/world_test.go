package join

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

var (
	runs      = flag.Int("join.runs", 300, "random runs of each form")
	firstSeed = flag.Uint64("join.seed", 1, "seed of the first run")
)

// form is what a run may do.
type form struct {
	complete bool // the records of all requests come, in order, with their beginnings
	metadata bool // some records have no objects
	faults   bool // records are lost, repeated, late and out of order; API servers end
	lone     bool // one request at a time
	bounds   bool // the join has little room
	expiry   bool // objects expire, or are deleted with their CustomResourceDefinition
	graceful bool // deletions give objects a grace period, as those of Pods do
	lossy    bool // records are lost, and that is said
	lists    bool // lists find changes that the watch has not seen
	busy     bool // long runs with one object, so that more requests than a verdict names can have made a change
	pair     bool // two collections have all objects, and are suspended sometimes
	early    bool // the caller says too early that all changes were passed on
}

// world is a cluster with two API servers, clients, their audit logs, a watch, and a join.
type world struct {
	t    *testing.T
	rand *rand.Rand
	form form
	now  time.Time

	version uint64
	uids    uint64
	names   uint64
	objects map[string]*stored // by name
	calls   []*call            // open
	number  int                // of calls

	logs  [2][]*audit.Record // as they were written
	loose []loose            // records that come later, or out of order
	read  [2]int
	watch []Change
	seen  int              // of watch
	gone  map[uint64]bool  // changes of watch that nobody finds: a list, because another one followed, or because the object is in left
	left  map[string]bool  // by UID: whether the only collection with the object has published its removal: see ofLeft
	twins []Change         // that come once more
	ends  map[string]*call // by UID: the request that removed the object; nil: none did
	truth map[uint64]*call

	pair [2]member // collections, in the form with this name

	join     *Join
	changes  uint64
	verdicts map[uint64]Verdict
	crowded  int             // verdicts that leave candidates out
	named    int             // of these: with the request that made the change
	lost     map[string]bool // requests with a lost record, by URI
	dry      map[string]bool // requests of which the last record that was read says that they are dry runs, by URI. Not repeated ones, which may be open
	repeated map[string]bool // requests with a record that comes twice, by URI
	then     floor           // marks and version of some time ago
	thenAt   time.Time
}

// member is one of two collections with the same objects.
type member struct {
	seen      int // changes of watch that it has passed on
	committed int // of these, those whose events are committed: they do not come again
	suspended bool
}

type loose struct {
	input  int
	record *audit.Record
}

type stored struct {
	name, uid  string
	version    uint64
	finalizers bool
	ending     bool
	grace      bool // it has a grace period, and is removed by a deletion with another one of 0 only
}

// call is a request of a client.
type call struct {
	number  int
	input   int
	record  audit.Record        // as it will be written
	apply   func(*world, *call) // its next step. If there is another one, it sets it, and applied to false
	applied bool
	ended   bool // the record of its end was written
}

var resource = Object{Group: "apps", Resource: "deployments", Namespace: "shop"}

func newWorld(t *testing.T, seed uint64, f form) *world {
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 7)), form: f, now: time.Unix(1_800_000_000, 0), version: 100,
		objects: map[string]*stored{}, gone: map[uint64]bool{}, left: map[string]bool{}, ends: map[string]*call{}, truth: map[uint64]*call{}, verdicts: map[uint64]Verdict{}, lost: map[string]bool{}, dry: map[string]bool{}, repeated: map[string]bool{},
	}
	o := Options{Complete: f.complete, Settle: 30 * time.Second, Keep: 10 * time.Minute, MaxOpen: time.Minute, MaxChanges: 1000, MaxRequests: 1000}
	if f.bounds {
		o.MaxChanges, o.MaxRequests, o.MaxBytes = 2, 3, 4<<10
	}
	w.join = New(o)
	return w
}

func (w *world) n(n int) int { return w.rand.IntN(n) }

func (w *world) chance(percent int) bool { return w.n(100) < percent }

// pick returns a name that exists, or one of three.
func (w *world) pick() string {
	if w.form.busy {
		return "a"
	}
	return string(rune('a' + w.n(3)))
}

// begin begins a request.
func (w *world) begin() {
	w.number++
	c := &call{number: w.number, input: w.n(2)}
	r := &c.record
	*r = audit.Record{
		ID: fmt.Sprint("id-", w.number), Stage: audit.Received, Level: audit.RequestResponse, Group: resource.Group, Version: "v1",
		Resource: resource.Resource, Namespace: resource.Namespace, Name: w.pick(), Received: w.now, Reached: w.now, URI: fmt.Sprint("/", w.number, "?includeObject=wrong"),
	}
	if w.form.metadata && w.chance(60) {
		r.Level = audit.Metadata
	}
	r.Actor.User.Name = fmt.Sprint("user-", w.number)
	if w.chance(10) {
		r.ID = "chosen" // by the client
	}
	w.choose(c)
	if w.chance(4) {
		r.DryRun, r.Code, c.apply = true, 200, func(*world, *call) {}
		if strings.HasPrefix(r.Verb, "delete") && w.chance(50) { // the option is in the body, which the first record does not have, nor others at level Metadata
			r.DryRun, r.MaybeDryRun = false, true
		}
	}
	if w.form.complete || !w.form.faults && w.chance(50) {
		w.write(c.input, *r)
	}
	w.calls = append(w.calls, c)
}

// choose chooses what a request does.
func (w *world) choose(c *call) {
	r := &c.record
	o := w.objects[r.Name]
	switch w.n(12) {
	case 0, 1:
		r.Verb, c.apply = "create", create
		if w.chance(25) {
			r.Name = "" // generateName
		}
	case 2, 3:
		r.Verb, c.apply = "update", update
		if o != nil && w.chance(70) {
			r.Expected = strconv.FormatUint(o.version, 10)
		} else if w.chance(30) {
			r.Expected = "0"
		}
	case 4, 5, 6:
		r.Verb, c.apply = "patch", func(w *world, c *call) { patch(w, c, w.chance(50)) }
		if w.chance(20) {
			r.Subresource = "status"
		}
	case 7:
		r.Verb, c.apply = "patch", func(w *world, c *call) { // server-side apply
			if w.objects[c.record.Name] == nil {
				create(w, c)
				return
			}
			patch(w, c, w.chance(50))
		}
	case 8:
		r.Verb, c.apply = []string{"patch", "update"}[w.n(2)], finalize
		if r.Verb == "update" && o != nil && w.chance(70) {
			r.Expected = strconv.FormatUint(o.version, 10)
		}
	case 9:
		r.Verb, r.Subresource, c.apply = "create", "binding", func(w *world, c *call) {
			if o := w.objects[c.record.Name]; o != nil {
				w.change(c, o, Changed)
				c.record.Code = 201
				return
			}
			c.record.Code = 404
		}
	case 10:
		r.Verb, c.apply = "delete", func(w *world, c *call) {
			o := w.objects[c.record.Name]
			if o == nil {
				c.record.Code = 404
				return
			}
			c.record.Code = 200
			w.remove(c, o)
		}
	case 11:
		r.Verb, r.Name, c.apply = "deletecollection", "", func(w *world, c *call) {
			selected := []string{}
			for _, name := range []string{"a", "b", "c"} {
				if o := w.objects[name]; o != nil && w.chance(70) {
					selected = append(selected, name)
					w.remove(c, o)
				}
			}
			c.record.Code, c.record.Answer = 200, nil
			if c.record.Level == audit.RequestResponse && w.chance(70) { // else the response is a Table
				c.record.Selected = selected
			}
		}
	}
}

func create(w *world, c *call) {
	name := c.record.Name
	if name == "" {
		w.names++
		name = fmt.Sprint("generated-", w.names)
	}
	if w.objects[name] != nil {
		c.record.Code = 409
		return
	}
	w.uids++
	o := &stored{name: name, uid: fmt.Sprint("uid-", w.uids), finalizers: w.chance(30)}
	w.objects[name] = o
	w.change(c, o, Created)
	c.record.Code = 201
}

func update(w *world, c *call) {
	o := w.objects[c.record.Name]
	switch {
	case o == nil:
		c.record.Code = 404
	case c.record.Expected != "" && c.record.Expected != "0" && c.record.Expected != strconv.FormatUint(o.version, 10):
		c.record.Code = 409
	default:
		patch(w, c, w.chance(50))
	}
}

// patch changes an object, or not: then the answer has the resourceVersion that it has.
func patch(w *world, c *call, changes bool) {
	o := w.objects[c.record.Name]
	if o == nil {
		c.record.Code = 404
		return
	}
	c.record.Code = 200
	if changes {
		w.change(c, o, Changed)
		return
	}
	w.answer(c, o)
}

// finalize removes the finalizers of an object, which ends it in a second step if it is to end.
func finalize(w *world, c *call) {
	o := w.objects[c.record.Name]
	switch {
	case o == nil:
		c.record.Code = 404
		return
	case c.record.Expected != "" && c.record.Expected != strconv.FormatUint(o.version, 10):
		c.record.Code = 409
		return
	case o.ending && !o.grace:
		bare := *o
		bare.finalizers = false
		w.answer(c, &bare) // with the version before
		w.next(c, func(w *world, c *call) {
			if found := w.objects[c.record.Name]; found != nil { // by now it can have another version, or be another one
				w.end(c, found)
			}
		})
	case o.finalizers:
		o.finalizers = false
		w.change(c, o, Changed)
	default:
		w.answer(c, o)
	}
	c.record.Code = 200
}

// next makes the next step of a request, at once or later.
func (w *world) next(c *call, step func(*world, *call)) {
	if c.record.Verb == "deletecollection" || w.chance(50) {
		step(w, c)
		return
	}
	c.apply, c.applied = step, false
}

// remove deletes an object, or marks it.
func (w *world) remove(c *call, o *stored) {
	switch {
	case w.form.graceful && !o.ending && w.chance(70):
		o.ending, o.grace = true, true
		w.change(c, o, Changed)
	case o.grace && w.chance(50): // the request does not shorten the grace period
		w.answer(c, o)
	case o.grace && o.finalizers:
		o.grace = false
		w.change(c, o, Changed)
	case !o.finalizers && (o.grace || w.chance(20)): // two writes
		o.grace = false
		o.ending = true
		w.change(c, o, Changed)
		marked := *o
		w.next(c, func(w *world, c *call) { w.delete(c, &marked) })
	case !o.finalizers:
		found := *o
		w.next(c, func(w *world, c *call) {
			if w.objects[found.name] == nil {
				c.record.Code, c.record.Answer = 404, nil
				return
			}
			w.delete(c, &found)
		})
	case !o.ending:
		o.ending = true
		w.change(c, o, Changed)
	default:
		w.answer(c, o)
	}
}

// delete removes the object that has the name of one that was found before, whatever it is by now.
func (w *world) delete(c *call, found *stored) {
	o := w.objects[found.name]
	if o != nil {
		w.end(c, o)
		o.version = w.version
	} else {
		o = found
	}
	c.record.Answer = nil
	if w.chance(50) { // the resource is one whose deletions return the object
		if w.answer(c, o); o == found && c.record.Answer != nil {
			c.record.Answer.Version = "" // another request was quicker
		}
	}
}

// expire deletes an object without a request.
func (w *world) expire(o *stored) {
	switch {
	case !o.finalizers:
		w.end(nil, o)
	case !o.ending:
		o.ending = true
		w.change(nil, o, Changed)
	}
}

func (w *world) answer(c *call, o *stored) {
	c.record.Answer = nil
	if c.record.Level == audit.RequestResponse {
		c.record.Answer = &audit.Answer{Namespace: resource.Namespace, Name: o.name, UID: o.uid, Version: strconv.FormatUint(o.version, 10), Ending: o.ending, Bare: !o.finalizers && !o.grace}
	}
}

// change writes an object. c is nil if no request does.
func (w *world) change(c *call, o *stored, kind Kind) {
	before := ""
	if kind != Created {
		before = strconv.FormatUint(o.version, 10)
	}
	w.version += uint64(1 + w.n(2))
	o.version = w.version
	w.emit(c, o, kind, before)
	if c != nil && c.record.Subresource != "binding" {
		w.answer(c, o)
	}
}

func (w *world) end(c *call, o *stored) {
	before := strconv.FormatUint(o.version, 10)
	w.version++
	delete(w.objects, o.name)
	w.ends[o.uid] = c
	w.emit(c, &stored{name: o.name, uid: o.uid, version: w.version}, Removed, before)
}

func (w *world) emit(c *call, o *stored, kind Kind, before string) {
	w.changes++
	change := Change{ID: w.changes, Object: resource, UID: o.uid, Kind: kind, Version: strconv.FormatUint(o.version, 10), Before: before}
	change.Name = o.name
	if w.chance(10) {
		change.Before = ""
	}
	if kind != Removed && w.chance(10) {
		change.Kind = Written
	}
	change.Unrequested = w.form.expiry && (kind == Removed || o.ending)
	w.truth[w.changes] = c
	w.watch = append(w.watch, change)
}

// repeat makes a record come again.
func (w *world) repeat(input int, r audit.Record) {
	w.loose = append(w.loose, loose{input, &r})
	w.repeated[r.URI] = true
}

// write writes a record to the log of an API server.
func (w *world) write(input int, r audit.Record) {
	if w.form.lossy && (w.chance(4) || w.lost[r.URI] && w.chance(50)) {
		w.lost[r.URI] = true
		w.join.Lost(w.marks(), w.now)
		return
	}
	if w.form.complete && w.form.faults && w.chance(10) { // repeated
		w.repeat(input, r)
	}
	if w.form.faults && !w.form.complete {
		if w.chance(15) {
			return
		}
		if w.chance(15) {
			w.loose = append(w.loose, loose{input, &r})
			return
		}
		if w.chance(10) {
			w.repeat(input, r)
		}
	}
	w.logs[input] = append(w.logs[input], &r)
}

// finish ends a request.
func (w *world) finish(c *call) {
	if c.ended {
		return
	}
	c.ended = true
	r := c.record
	r.Stage, r.Reached, r.Decision = audit.Complete, w.now, "allow"
	if r.MaybeDryRun && r.Level == audit.RequestResponse {
		r.DryRun, r.MaybeDryRun = true, false
	}
	if !c.applied { // its client has waited too long; it may still change something
		r.Code, r.Answer = 504, nil
	} else if w.chance(3) {
		r.Code, r.Answer = 0, nil // the client is gone
	} else if r.Code < 300 && w.chance(10) {
		r.Answer = nil // it is a Table
	} else if r.Code < 300 && w.chance(5) {
		r.Code, r.Answer = []int{400, 406}[w.n(2)], nil // what the request did is done, and the response is in no form that the client accepts
		r.Selected = nil
	} else if r.Code < 300 && strings.HasPrefix(r.Verb, "delete") && w.chance(5) {
		r.Code, r.Answer, r.Selected = 403, nil, nil // by admission, which comes again before the second write, and before each object of a deletecollection
	}
	if r.Name == "" && r.Answer == nil && r.Verb == "create" {
		r.Name = ""
	}
	w.write(c.input, r)
}

// step does something.
func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.n(300)) * time.Millisecond)
	if w.form.bounds && w.chance(5) {
		w.join.Limit(1+w.n(2), (1+w.n(4))<<10, w.now)
	}
	switch k := w.n(20); {
	case k < 4:
		if !w.form.lone || len(w.calls) == 0 {
			w.begin()
		}
	case k < 8 && len(w.calls) > 0:
		c := w.calls[w.n(len(w.calls))]
		w.apply(c)
	case k < 12 && len(w.calls) > 0:
		i := w.n(len(w.calls))
		if c := w.calls[i]; c.applied || w.chance(3) && !w.form.lone {
			w.finish(c)
			if c.applied {
				w.calls = slices.Delete(w.calls, i, i+1)
			}
		}
	case k < 15:
		w.readOne(w.n(2))
	case k < 18:
		switch {
		case w.form.pair:
			w.watchMember(w.n(2))
		case w.form.lists && w.chance(20):
			w.list()
		default:
			w.watchOne()
		}
	case k == 18 && (w.chance(30) || w.form.lossy):
		if o := w.objects[w.pick()]; o != nil && w.form.expiry {
			w.expire(o)
		}
		if w.form.faults && w.chance(20) {
			w.crash(w.n(2))
		}
		if w.form.lossy && w.chance(3) {
			w.restart()
		}
		if w.form.lossy && w.chance(30) {
			w.endAll()
			w.now = w.now.Add(w.join.options.MaxOpen)
		}
	case k == 19:
		if w.chance(30) || w.form.lossy {
			marks, version, at := w.marks(), strconv.FormatUint(w.version, 10), w.now
			if w.chance(50) { // one from some time ago
				then, thenAt := w.then, w.thenAt
				w.then, w.thenAt = floor{marks: marks, version: version}, w.now
				marks, at = then.marks, thenAt
				if w.chance(50) && then.version != "" {
					version = then.version
				}
			}
			w.join.Floor(resource.resource(), marks, version, at)
		}
		if w.form.early {
			w.passEarly()
		}
		w.settle()
	}
	w.take()
}

// apply makes the next step of a request, if there is one.
func (w *world) apply(c *call) {
	if !c.applied {
		c.applied = true
		c.apply(w, c)
	}
}

// passEarly says that all changes were passed on, also those that the watch has still to bring, when all records are read.
func (w *world) passEarly() {
	for w.read[0] < len(w.logs[0]) || w.read[1] < len(w.logs[1]) {
		w.readOne(0)
		w.readOne(1)
	}
	version := strconv.FormatUint(w.version, 10)
	w.join.Floor(resource.resource(), w.marks(), version, w.now)
	w.join.Passed(resource.resource(), version)
}

// crash ends an API server: what its requests have changed is changed, and there is no record of their end.
func (w *world) crash(input int) {
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool { return c.input == input })
}

// restart loses all records, and numbers those that follow from 1 on.
func (w *world) restart() {
	w.logs, w.read, w.then = [2][]*audit.Record{}, [2]int{}, floor{}
	w.join.Begin(w.marks(), w.now)
}

func (w *world) marks() Marks { return Marks{uint64(len(w.logs[0])), uint64(len(w.logs[1]))} }

func (w *world) readOne(input int) {
	if len(w.loose) > 0 && w.chance(30) {
		i := w.n(len(w.loose))
		l := w.loose[i]
		w.loose = slices.Delete(w.loose, i, i+1)
		w.logs[l.input] = append(w.logs[l.input], l.record)
	}
	if w.read[input] < len(w.logs[input]) {
		r := w.logs[input][w.read[input]]
		w.read[input]++
		w.join.Read(input, uint64(w.read[input]), r, w.now)
		w.take()
		w.dry[r.URI] = r.DryRun && !w.repeated[r.URI]
	}
}

// ofTwin is added to the ID of a change that comes once more, from another collection with the same object. ofLeft is added if the change made the object
// leave the selection of the collection, and the object did not exist any more when that was asked: then the change comes as its removal.
const ofTwin, ofLeft = 1 << 32, 1 << 33

func (w *world) watchOne() {
	if len(w.twins) > 0 && w.chance(20) {
		c := w.twins[0]
		w.twins = w.twins[1:]
		c.ID, c.At, c.Seen = c.ID+ofTwin, w.now, w.marks()
		w.join.Change(w.leave(c))
		return
	}
	if w.seen == len(w.watch) {
		return
	}
	c := w.watch[w.seen]
	w.seen++
	c.At = w.now
	if !w.chance(5) {
		c.Seen, c.Noticed = w.marks(), w.now
	}
	if w.chance(10) {
		w.twins = append(w.twins, c)
	}
	if w.left[c.UID] { // no collection has the object
		w.gone[c.ID] = true
		return
	}
	c = w.leave(c)
	w.left[c.UID] = c.ID >= ofLeft
	w.join.Change(c)
	if w.chance(20) {
		w.join.Passed(resource.resource(), c.Version)
	}
}

// watchMember passes a change on from one of two collections, or suspends or resumes the collection.
func (w *world) watchMember(side int) {
	m := &w.pair[side]
	switch {
	case m.suspended && w.chance(30):
		w.resume(side)
	case m.suspended:
	case w.chance(10):
		m.suspended = true
	case m.seen < len(w.watch):
		c := w.watch[m.seen]
		m.seen++
		if w.chance(50) {
			m.committed += w.n(m.seen - m.committed + 1)
		}
		c.ID, c.At = c.ID+uint64(side)*ofTwin, w.now
		if !w.chance(5) {
			c.Seen, c.Noticed = w.marks(), w.now
		}
		w.join.Change(c)
	}
	if passed := min(w.pair[0].seen, w.pair[1].seen); passed > 0 && !w.pair[0].suspended && !w.pair[1].suspended && w.chance(20) {
		w.join.Passed(resource.resource(), w.watch[passed-1].Version)
	}
}

// resume continues a collection where it was committed. Changes that are committed still wait for their verdict, and nobody knows when they were seen.
func (w *world) resume(side int) {
	m := &w.pair[side]
	m.suspended = false
	w.take()
	waits := map[uint64]bool{}
	w.join.Withdraw(func(id uint64) bool {
		waits[id] = id/ofTwin == uint64(side)
		return waits[id]
	})
	for i, c := range w.watch[:m.seen] {
		c.ID += uint64(side) * ofTwin
		v, given := w.verdicts[c.ID]
		switch {
		case i < m.committed && waits[c.ID]:
			c.At = w.now
			w.join.Change(c)
		case i >= m.committed && given:
			delete(w.verdicts, c.ID)
			w.join.Return(v, w.now)
		}
	}
	m.seen = m.committed
}

// leave makes the removal of an object of some of its changes, if the object does not exist any more.
func (w *world) leave(c Change) Change {
	made := w.truth[c.ID%ofTwin]
	if _, ended := w.ends[c.UID]; ended && made != nil && (made.record.Verb == "patch" || made.record.Verb == "update") && c.Kind != Created && c.Kind != Removed && w.chance(50) {
		c.ID, c.Kind = c.ID+ofLeft, Removed
	}
	return c
}

// list passes on what a list finds: of each object only the last of the changes that the watch has not seen, and no removal of an object that nobody has
// seen. The version of a removal is not known then.
func (w *world) list() {
	known := map[string]bool{}
	for _, c := range w.watch[:w.seen] {
		known[c.UID] = c.Kind != Removed
	}
	unseen := w.watch[w.seen:]
	w.seen = len(w.watch)
	for i, c := range unseen {
		if slices.ContainsFunc(unseen[i+1:], func(later Change) bool { return later.UID == c.UID }) || c.Kind == Removed && !known[c.UID] || w.left[c.UID] {
			w.gone[c.ID] = true
			continue
		}
		switch {
		case c.Kind == Removed:
			c.Version = ""
		case known[c.UID]:
			c.Kind = Changed
		default:
			c.Kind = Written
		}
		c.Before, c.At, c.Noticed = "", w.now, w.now
		w.join.Change(c)
	}
	w.join.Passed(resource.resource(), strconv.FormatUint(w.version, 10))
}

// settle settles. In a busy world, changes wait until the records that are written are read, as the callers of a join have it.
func (w *world) settle() {
	for input := range w.logs {
		for w.form.busy && w.read[input] < len(w.logs[input]) {
			w.readOne(input)
		}
	}
	w.join.Settle(w.now)
}

// take judges verdicts.
func (w *world) take() {
	for _, v := range w.join.Take() {
		if _, twice := w.verdicts[v.Change]; twice {
			w.t.Errorf("change %d got a second verdict", v.Change)
		}
		w.verdicts[v.Change] = v
		c := w.watch[v.Change%ofTwin-1]
		made := w.truth[c.ID]
		if v.Change >= ofLeft {
			made = w.ends[c.UID]
		}
		if v.Exact != nil {
			if made == nil || v.Exact.URI != made.record.URI {
				w.t.Errorf("%+v was made by %s, and the verdict says %s", c, name(made), describe(v.Exact))
			}
			continue
		}
		if v.Reason == "" {
			w.t.Errorf("the verdict on change %d has no reason", v.Change)
		}
		for _, r := range v.Candidates {
			if w.dry[r.URI] {
				w.t.Errorf("%+v has the candidate %s, which is a dry run", c, describe(r))
			}
		}
		if v.Reason == NoRecord != (len(v.Candidates) == 0) {
			w.t.Errorf("the verdict on change %d has reason %s and %d candidates", v.Change, v.Reason, len(v.Candidates))
		}
		if v.LeftOut && len(v.Candidates) != maxCandidates {
			w.t.Errorf("the verdict on change %d leaves candidates out, and has %d", v.Change, len(v.Candidates))
		}
		if v.Change >= ofTwin || made == nil || w.form.busy && !made.ended { // the request of a twin can be forgotten; others have no record yet
			continue
		}
		w.judge(c, v, made)
	}
}

// judge judges a verdict with candidates. If no record is missing, the request that made the change is one of them, or the verdict says that some are left
// out.
func (w *world) judge(c Change, v Verdict, made *call) {
	named := slices.ContainsFunc(v.Candidates, func(r *audit.Record) bool { return r.URI == made.record.URI })
	if v.LeftOut {
		w.crowded++
		if named {
			w.named++
		}
	}
	whole := (w.form.complete || !w.form.faults) && !w.form.pair // the request of a change that comes again can be forgotten
	if whole && !named && !v.LeftOut && !w.form.bounds && !w.form.lossy && !w.form.early {
		w.t.Errorf("%+v was made by %s, and the verdict %s with %d candidates does not name it", c, name(made), v.Reason, len(v.Candidates))
	}
}

func name(c *call) string {
	if c == nil {
		return "no request"
	}
	return describe(&c.record)
}

func describe(r *audit.Record) string {
	return fmt.Sprintf("%s (%s %s/%s expecting %q, code %d, answer %+v)", r.URI, r.Verb, r.Name, r.Subresource, r.Expected, r.Code, r.Answer)
}

// endAll ends all requests.
func (w *world) endAll() {
	for _, c := range w.calls {
		for !c.applied {
			w.apply(c)
		}
		w.finish(c)
	}
	w.calls = nil
}

// unseen reports whether changes are to be passed on.
func (w *world) unseen() bool {
	if w.form.pair {
		return slices.ContainsFunc(w.pair[:], func(m member) bool { return m.suspended || m.seen < len(w.watch) })
	}
	return w.seen < len(w.watch)
}

// run makes a random run. It returns how many verdicts are exact, and how many changes were made by requests when the records were
// trusted.
func (w *world) run(steps int) (exact, all int) {
	w.join.Lost(Marks{0, 0}, w.now)
	w.now = w.now.Add(2 * time.Minute)
	w.join.Floor(resource.resource(), w.marks(), strconv.FormatUint(w.version, 10), w.now)
	for range steps {
		w.step()
	}
	w.endAll()
	for w.unseen() || w.read[0] < len(w.logs[0]) || w.read[1] < len(w.logs[1]) || len(w.loose) > 0 {
		w.readOne(0)
		w.readOne(1)
		if w.form.pair {
			w.watchMember(0)
			w.watchMember(1)
		} else {
			w.watchOne()
		}
		w.settle()
		w.take()
	}
	for range 12 {
		w.now = w.now.Add(time.Minute)
		w.settle()
		w.take()
	}
	for _, c := range w.watch {
		v, given := w.verdicts[c.ID]
		if _, left := w.verdicts[c.ID+ofLeft]; left || w.gone[c.ID] {
			continue
		}
		if !given {
			w.t.Errorf("no verdict on %+v", c)
		}
		if _, given := w.verdicts[c.ID+ofTwin]; w.form.pair && !given {
			w.t.Errorf("no verdict on %+v in the second collection", c)
		}
		all++
		if v.Exact != nil {
			exact++
		}
	}
	if changes, _ := w.join.Waiting(); changes != 0 {
		w.t.Errorf("%d changes wait", changes)
	}
	return exact, all
}

// No verdict names a request that has not made the change: whatever clients do at the same time, and whatever happens to records that
// are not said to be complete.
func TestRandom(t *testing.T) {
	for _, test := range []struct {
		name    string
		form    form
		percent int // of verdicts that are exact, at least
	}{
		{"complete", form{complete: true}, 55},
		{"complete, one request at a time", form{complete: true, lone: true}, 80},
		{"complete, also at level Metadata", form{complete: true, metadata: true}, 40},
		{"complete, API servers end", form{complete: true, faults: true}, 40},
		{"complete, API servers end, also at level Metadata", form{complete: true, metadata: true, faults: true}, 25},
		{"complete, objects expire", form{complete: true, metadata: true, faults: true, expiry: true}, 25},
		{"complete, objects have grace periods", form{complete: true, graceful: true}, 40},
		{"complete, but for records of which the loss is said", form{complete: true, lossy: true}, 25},
		{"complete, little room", form{complete: true, bounds: true, metadata: true}, 1},
		{"complete, also lists", form{complete: true, metadata: true, lists: true}, 25},
		{"not complete, also lists", form{lists: true}, 30},
		{"complete, collections are suspended", form{complete: true, pair: true}, 25},
		{"complete, collections are suspended, API servers end, also at level Metadata", form{complete: true, pair: true, metadata: true, faults: true}, 10},
		{"not complete, collections are suspended", form{pair: true}, 10},
		{"complete, requests are forgotten too early", form{complete: true, early: true}, 20},
		{"complete, requests are forgotten too early, also at level Metadata", form{complete: true, metadata: true, early: true}, 10},
		{"not complete", form{}, 20},
		{"not complete, objects have grace periods", form{graceful: true}, 15},
		{"not complete, also at level Metadata", form{metadata: true}, 5},
		{"records are lost, repeated, late", form{faults: true, expiry: true}, 10},
		{"records are lost, repeated, late, little room", form{faults: true, metadata: true, bounds: true}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			exact, all := 0, 0
			for seed := range uint64(*runs) {
				w := newWorld(t, *firstSeed+seed, test.form)
				e, a := w.run(80)
				exact, all = exact+e, all+a
				if t.Failed() {
					t.Fatalf("seed %d", *firstSeed+seed)
				}
			}
			t.Logf("%d of %d verdicts are exact", exact, all)
			if exact*100 < all*test.percent {
				t.Errorf("fewer than %d %% of the verdicts are exact", test.percent)
			}
		})
	}
}

// If more requests can have made a change than a verdict names, the verdict says so, and names the likeliest ones: an object that many clients write has
// useful candidates, too.
func TestCrowdedCandidates(t *testing.T) {
	crowded, named := 0, 0
	for seed := range uint64(*runs / 10) {
		w := newWorld(t, *firstSeed+seed, form{metadata: true, busy: true})
		w.run(400)
		crowded, named = crowded+w.crowded, named+w.named
		if t.Failed() {
			t.Fatalf("seed %d", *firstSeed+seed)
		}
	}
	t.Logf("%d of %d verdicts that leave candidates out name the right request", named, crowded)
	if crowded < *runs/10 || named*100 < crowded*80 {
		t.Errorf("%d of %d verdicts that leave candidates out name the right request", named, crowded)
	}
}
