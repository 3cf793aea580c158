package mirror

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/bustest"
)

var pods = store.Resource{Cluster: "test", Name: "pods"}

// objects are uids and versions by name.
type objects map[string]string

// copier reads the bus of a world into a mirror, and checks what clients would see.
type copier struct {
	*bustest.World
	fs     vfs.FS
	store  *store.Store
	mirror *Mirror

	pos       map[bustest.Place]int // applied
	first     map[bustest.Place]int // that the bus has
	begun     map[bustest.Place]bool
	cut, late bool
	marked    map[bustest.Place]int // the ends of the partitions behind the last mark; nil: none

	selections map[string]map[uint64]string // by collection and run
	epoch      uint64                       // the highest that was published
	watched    objects                      // the copy of a client that watches
	watchedAt  store.Position
	past       map[store.Position]objects // what was served
	described  map[uint64]string          // what was said that the collections have, by era
	served     int                        // how often a new position was served
	proved     int                        // how often a mark was proved
	continued  int                        // how often a watch continued over changes
	timed      int                        // how often a time was shown that is not the present
	events     []timedVersion             // that were applied
	ends       map[bustest.Place]int      // of the partitions when everything was read
	answers    []answer                   // that were given about times
	compared   int                        // how often an answer was compared with one that was given before
	unknown    map[string][2]uint64       // by collection that does not exist: the resourceVersions between which it is not known what it had
}

// timedVersion is the resourceVersion of an event, with its time.
type timedVersion struct {
	version uint64
	time    time.Time
}

// answer is what was shown at a time.
type answer struct {
	time    time.Time
	objects objects
	ends    map[bustest.Place]int // of the partitions when everything was read
}

func newCopier(w *bustest.World) *copier {
	w.Compacts = false
	c := &copier{
		World: w, fs: vfs.NewMem(), pos: map[bustest.Place]int{}, first: map[bustest.Place]int{}, begun: map[bustest.Place]bool{}, past: map[store.Position]objects{}, described: map[uint64]string{},
		selections: map[string]map[uint64]string{}, unknown: map[string][2]uint64{},
	}
	c.open()
	return c
}

func (c *copier) must(err error) {
	if err != nil {
		c.T.Fatalf("%v", err)
	}
}

func (c *copier) open() {
	var err error
	c.store, err = store.Open("/data", store.Options{FS: c.fs})
	c.must(err)
	c.mirror, err = Open(c.store)
	c.must(err)
}

// restart ends the program without the batch that is open. The messages of that batch are read again.
func (c *copier) restart() {
	c.must(c.mirror.Close())
	c.must(c.store.Close())
	c.open()
	c.marked = nil
	for _, at := range c.places() {
		c.pos[at] = c.first[at]
		if o, known := c.mirror.Offset(name(at)); known {
			c.pos[at] = int(o.Next)
		}
	}
}

func name(at bustest.Place) string { return fmt.Sprintf("%s/%d", at.Topic, at.Partition) }

func (c *copier) places() (all []bustest.Place) {
	for topic, n := range c.Partitions {
		for p := range n {
			all = append(all, bustest.Place{Topic: topic, Partition: p})
		}
	}
	slices.SortFunc(all, func(a, b bustest.Place) int { return strings.Compare(name(a), name(b)) })
	return all
}

// next applies the next message of a partition.
func (c *copier) next(at bustest.Place) bool {
	log := c.Bus[at]
	if c.pos[at] >= len(log) {
		return false
	}
	m := log[c.pos[at]]
	c.pos[at]++
	c.begun[at] = true
	e, err := consumer.Decode(m.Message)
	if errors.Is(err, consumer.ErrNoEvent) {
		return true
	}
	c.must(err)
	c.T.Logf("%s %d: %s", name(at), c.pos[at], m.What)
	c.epoch = max(c.epoch, e.Epoch)
	if c.selections[m.Collection] == nil {
		c.selections[m.Collection] = map[uint64]string{}
	}
	if !m.Closed { // it has the selection of a later configuration
		c.selections[m.Collection][m.Run] = m.Selection
	}
	c.must(c.mirror.Apply(m.Message, e))
	switch {
	case e.Type == event.Gap:
		from, _ := strconv.ParseUint(e.Report.From, 10, 64)
		c.unknown[m.Collection] = [2]uint64{from, from}
	case e.Type == event.Closed:
		delete(c.unknown, m.Collection)
	case e.Type == event.Synced && e.ResourceVersion == "":
		c.unknown[m.Collection] = [2]uint64{c.unknown[m.Collection][0], uint64(m.At)}
	}
	version := e.ResourceVersion
	if e.Type == event.Deleted {
		version = e.DeletionVersion
	}
	number, _ := strconv.ParseUint(version, 10, 64)
	c.events = append(c.events, timedVersion{number, e.Time})
	return true
}

func (c *copier) commit() {
	c.prove()
	offsets := map[string]Offset{}
	for at, n := range c.pos {
		offsets[name(at)] = Offset{Log: at.Topic, Next: int64(n)}
	}
	c.must(c.mirror.Commit(offsets))
	c.readUntil()
	c.check()
}

// readUntil says how far the bus was read, if it was read to its end.
func (c *copier) readUntil() {
	all, ends := map[string]bool{}, map[bustest.Place]int{}
	for _, at := range c.places() {
		if c.pos[at] < len(c.Bus[at]) {
			return
		}
		all[name(at)], ends[at] = true, len(c.Bus[at])
	}
	c.ends = ends
	c.must(c.mirror.ReadUntil(time.Unix(int64(c.Clock), 0), all))
}

// mark remembers what was read, if a batch reaches all partitions at once. Once all partitions are read to their present ends, what was read
// before is proved. Sometimes a partition is not seen then, and nothing is proved about it.
func (c *copier) mark() {
	if !c.Exact {
		return
	}
	c.mirror.MarkReached()
	c.marked = map[bustest.Place]int{}
	hidden := bustest.Place{}
	if places := c.places(); rapid.IntRange(0, 3).Draw(c.T, "hides") == 0 {
		hidden = rapid.SampledFrom(places).Draw(c.T, "hidden")
	}
	for at, log := range c.Bus {
		if at != hidden {
			c.marked[at] = len(log)
		}
	}
}

func (c *copier) prove() {
	if c.marked == nil {
		return
	}
	seen := map[string]bool{}
	for at, end := range c.marked {
		if c.pos[at] < end {
			return
		}
		seen[name(at)] = true
	}
	c.mirror.ProveMarked(seen)
	c.proved++
	c.marked = nil
}

// list returns the objects of a view.
func (c *copier) list(at store.Position) objects {
	out := objects{}
	c.must(c.store.List(store.View{Resource: pods, At: at}, "", store.Name{}, func(o *store.Object) bool {
		if out[o.Name.Name] != "" {
			c.T.Fatalf("%s is listed twice", o.Name.Name)
		}
		var body struct {
			Metadata struct{ UID, ResourceVersion string }
		}
		c.must(json.Unmarshal(o.Body, &body))
		if o.UID != body.Metadata.UID || strconv.FormatUint(o.ResourceVersion, 10) != body.Metadata.ResourceVersion {
			c.T.Fatalf("%s has the body %s", o.UID, o.Body)
		}
		out[o.Name.Name] = fmt.Sprintf("%s@%d", o.UID, o.ResourceVersion)
		return true
	}))
	return out
}

// check compares what is served with the cluster, and the copy of a client that watches with a list.
func (c *copier) check() {
	r := c.mirror.Resource(pods)
	if r == nil {
		return
	}
	at, err := r.Latest()
	if err != nil {
		return
	}
	got := c.list(at)
	if _, ok := c.past[at]; !ok {
		c.served++
	}
	c.past[at] = got
	era := r.eraOf(at.Era)
	if era.Epoch == c.epoch && c.epoch == c.highest() && at.Era == r.Present().Number && !c.isUnknown(at.Version) {
		c.T.Logf("served: %v", at)
		if diff := cmp.Diff(c.truth(r, int(at.Version)), got); diff != "" {
			c.T.Fatalf("at %v (-cluster +served):\n%s", at, diff)
		}
	}
	c.describes(r, at)
	c.watch(r, at, got)
	c.resume(r, at, got)
	c.time(r)
}

// describes checks what is said that the collections have: in the present era what their events say, and in retained eras what was said of them before.
func (c *copier) describes(r *Resource, at store.Position) {
	said := func(era uint64) string {
		var parts []string
		for _, x := range r.spans {
			if x.within(era) {
				parts = append(parts, fmt.Sprintf("%s has %q", x.Collection, x.Selection.Labels))
			}
		}
		slices.Sort(parts)
		return strings.Join(parts, ", ")
	}
	if at.Era == r.Present().Number {
		var want []string
		for _, id := range r.Collections {
			x, _ := c.mirror.state.Collection("test", id)
			want = append(want, fmt.Sprintf("%s has %q", id, c.selections[id][x.Run]))
		}
		if got, want := said(at.Era), strings.Join(want, ", "); got != want && r.Complete {
			c.T.Fatalf("at %v it is said that %s, want %s", at, got, want)
		}
	}
	if r.Complete {
		c.described[at.Era] = said(at.Era)
	}
	for era, before := range c.described {
		if r.eraOf(era) != nil && said(era) != before {
			c.T.Fatalf("of era %d it is said that %s, before it was %s", era, said(era), before)
		}
	}
}

// isUnknown reports whether it is not known which objects existed at a resourceVersion: nobody watched a collection then, and when it was read again
// its resource did not exist. No resourceVersion says when that was. Later versions are known until a message that was not read says that the resource
// exists again: messages of two topics have no order.
func (c *copier) isUnknown(version uint64) bool {
	for id, of := range c.unknown {
		if of[0] < version && version < of[1] || of[1] != of[0] && len(c.Partitions) > 1 && c.returns(id) {
			return true
		}
	}
	return false
}

// returns reports whether a gap of a collection was not read yet.
func (c *copier) returns(id string) bool {
	for at, log := range c.Bus {
		if slices.ContainsFunc(log[min(c.pos[at], len(log)):], func(m *bustest.Sent) bool { return m.Collection == id && m.Gap }) {
			return true
		}
	}
	return false
}

// time checks what is shown at a time: nothing that was published later, and everything before.
func (c *copier) time(r *Resource) {
	from, to := int64(0), int64(c.Clock)+1
	if moment, until := c.mirror.all[pods].Moment.Unix(), r.Until.Unix(); 0 < moment && moment <= until && rapid.Bool().Draw(c.T, "of the served position") {
		from, to = moment, until // changes of these times may not be served yet
	}
	t := time.Unix(rapid.Int64Range(from, to).Draw(c.T, "time"), 0)
	p, err := c.mirror.AtTime(r, t)
	if err != nil {
		return
	}
	if p.At != r.Served {
		c.timed++
	}
	c.answers = append(c.answers, answer{t, c.list(p.At), c.ends})
	c.again(rapid.SampledFrom(c.answers).Draw(c.T, "answer"))
	c.must(c.store.List(store.View{Resource: pods, At: p.At}, "", store.Name{}, func(o *store.Object) bool {
		if o.Time.After(t) && !c.cut { // a partition that has lost its first messages can show later ones too early
			c.T.Fatalf("at %d, that is at %v, the object %s of %d is shown at %v", t.Unix(), p.At, o.Name.Name, o.Time.Unix(), o.At)
		}
		return true
	}))
	e := r.eraOf(p.At.Era)
	if e.Epoch == c.epoch && c.epoch == c.highest() && p.At.Era == r.Present().Number && !c.isUnknown(p.At.Version) {
		if diff := cmp.Diff(c.truth(r, int(p.At.Version)), c.list(p.At)); diff != "" {
			c.T.Fatalf("at %d, that is at %v (-cluster +shown):\n%s", t.Unix(), p.At, diff)
		}
	}
	if c.cut || c.highest() > 1 || p.Gap != "" { // times of messages that were read twice, or of higher versions
		return
	}
	last, _ := r.limit(e)
	c.must(c.store.Changes(context.Background(), pods, "", p.At, last, func(x *store.Change) bool {
		late := slices.ContainsFunc(c.events, func(e timedVersion) bool { return e.version <= x.At.Version && e.time.After(t) })
		if !late {
			c.T.Fatalf("at %d, that is at %v, the change %v of %d is not shown, and nothing up to it was published later", t.Unix(), p.At, x.At, x.Last.Time.Unix())
		}
		return false
	}))
}

// again checks that an answer about a time does not change, unless messages with earlier times were published after everything was read.
func (c *copier) again(a answer) {
	for at, log := range c.Bus {
		for _, m := range log[min(a.ends[at], len(log)):] {
			e, err := consumer.Decode(m.Message)
			if errors.Is(err, consumer.ErrNoEvent) {
				continue
			}
			if c.must(err); !e.Time.After(a.time) {
				return
			}
		}
	}
	p, err := c.mirror.AtTime(c.mirror.Resource(pods), a.time)
	if err != nil {
		return
	}
	c.compared++
	if diff := cmp.Diff(a.objects, c.list(p.At)); diff != "" {
		c.T.Fatalf("the answer about %d, now from %v, has changed (-before +now):\n%s", a.time.Unix(), p.At, diff)
	}
}

// highest returns the highest epoch of the cluster.
func (c *copier) highest() uint64 {
	newest := uint64(1)
	for _, log := range c.Bus {
		for _, m := range log {
			newest = max(newest, m.Epoch)
		}
	}
	return newest
}

// truth returns what the collections select at a resourceVersion.
func (c *copier) truth(r *Resource, version int) objects {
	out, versions := objects{}, map[string]int{}
	for _, id := range r.Collections {
		x, _ := c.mirror.state.Collection("test", id)
		for name, t := range c.Cluster.At(version, c.selections[id][x.Run]) {
			if t.Version > versions[name] {
				out[name], versions[name] = fmt.Sprintf("%d@%d", t.UID, t.Version), t.Version
			}
		}
	}
	return out
}

// watch lets a client continue that has followed all changes. It lists again where the watch expires.
func (c *copier) watch(r *Resource, at store.Position, want objects) {
	if c.watched == nil || c.watchedAt.Era != at.Era {
		c.watched, c.watchedAt = maps.Clone(want), at
		return
	}
	c.follow(c.watchedAt, at, c.watched)
	if diff := cmp.Diff(want, c.watched); diff != "" {
		c.T.Fatalf("a watch from %v to %v (-list +watch):\n%s", c.watchedAt, at, diff)
	}
	c.watchedAt = at
}

// follow applies changes to a client's copy.
func (c *copier) follow(from, to store.Position, have objects) {
	last := from
	c.must(c.store.Changes(context.Background(), pods, "", from, to, func(x *store.Change) bool {
		c.continued++
		if x.At.Compare(last) <= 0 {
			c.T.Fatalf("change %v follows %v", x.At, last)
		}
		last = x.At
		if b, a := x.Before, x.After; b != nil && a != nil && b.UID == a.UID && b.Epoch == a.Epoch && bytes.Equal(b.Body, a.Body) {
			c.T.Fatalf("the change %v of %s changes nothing", x.At, x.Name.Name)
		}
		if x.After == nil {
			delete(have, x.Name.Name)
		} else {
			if x.After.ResourceVersion > x.At.Version {
				c.T.Fatalf("at %v an object has resourceVersion %d", x.At, x.After.ResourceVersion)
			}
			have[x.Name.Name] = fmt.Sprintf("%s@%d", x.After.UID, x.After.ResourceVersion)
		}
		return true
	}))
}

// resume watches from some resourceVersion that can be resumed.
func (c *copier) resume(r *Resource, at store.Position, want objects) {
	version := rapid.Uint64Range(0, at.Version+1).Draw(c.T, "resumed")
	from, err := r.Watch(version, at)
	if err != nil {
		if e := r.Present(); e.Complete && version >= e.Base && version <= at.Version {
			c.T.Fatalf("a watch from %d is refused (%v), complete are %d to %d", version, err, e.Base, at.Version)
		}
		return
	}
	p, err := r.AtVersion(version, r.Present().Epoch)
	c.must(err)
	have := c.list(p)
	n, err := c.store.CountAt(pods, from.Era, version)
	if c.must(err); n > 1 { // all changes of the version again, as the API does
		from.Seq, p.Seq = 0, 0
	}
	if from.Compare(at) < 0 {
		c.follow(p, at, have)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		c.T.Fatalf("a watch resumed from %d to %v (-list +watch):\n%s", version, at, diff)
	}
}

// act does one random step of a cluster, a bridge, a bus or the mirror.
func (c *copier) act() {
	ids := c.Core.IDs()
	if len(ids) == 0 {
		c.Configure()
		return
	}
	id := rapid.SampledFrom(ids).Draw(c.T, "id")
	switch n := rapid.IntRange(0, 99).Draw(c.T, "action"); {
	case n < 20:
		c.Change()
	case n < 50:
		for range rapid.IntRange(1, 8).Draw(c.T, "steps") {
			c.ReadNext(id)
		}
	case n < 60:
		c.Seal()
	case n < 63:
		c.Configure()
	case n < 67:
		c.disturb(id)
	case n < 68:
		c.Crash()
	case n < 70:
		c.Drain()
	case n < 72:
		c.restart()
	case n < 73 && c.cut:
		c.lose()
	case n < 76 && !c.Vanishes: // everything is published and read, and one collection has come further than another
		for c.Flying != nil || !c.Core.Idle() {
			c.Seal()
		}
		c.readAll()
	case n < 82:
		c.commit()
	default:
		c.consume()
	}
}

// disturb does one of the rare steps.
func (c *copier) disturb(id string) {
	switch rapid.IntRange(1, 6).Draw(c.T, "disturbance") {
	case 1:
		c.Reset()
	case 2:
		c.Step(&reconcile.Input{Kind: reconcile.Demand, Collection: id})
	case 3:
		c.Expire()
	case 4:
		c.Step(&reconcile.Input{Kind: reconcile.Confirm, Collection: id})
	case 5:
		c.Restore()
	case 6:
		if rapid.IntRange(0, 2).Draw(c.T, "lost") == 0 {
			c.Forget()
		}
	}
}

// lose makes the bus remove messages that were not read. Partitions that have lost nothing are read from their beginnings again.
func (c *copier) lose() {
	c.must(c.mirror.Forget("messages were lost"))
	c.marked = nil
	for _, at := range c.places() {
		c.begun[at] = true // its beginning is not removed again
		if rapid.Bool().Draw(c.T, "loses") {
			c.first[at] = c.pos[at] + rapid.IntRange(0, len(c.Bus[at])-c.pos[at]).Draw(c.T, "lost")
		}
		c.pos[at] = c.first[at]
	}
	c.check()
}

func (c *copier) consume() {
	at := rapid.SampledFrom(c.places()).Draw(c.T, "place")
	log := c.Bus[at]
	if len(log) == 0 {
		return
	}
	switch n := rapid.IntRange(0, 9).Draw(c.T, "reading"); {
	case n == 0:
		c.pos[at] -= rapid.IntRange(0, c.pos[at]-c.first[at]).Draw(c.T, "again")
	case n == 1 && c.late:
		c.Bus[at] = append(log, log[rapid.IntRange(0, len(log)-1).Draw(c.T, "late")])
	case n < 4 && c.cut && !c.begun[at] && len(c.answers) == 0:
		c.Bus[at] = slices.Clone(log[rapid.IntRange(0, len(log)).Draw(c.T, "gone"):])
	case n == 4:
		c.readAll()
	default:
		for range rapid.IntRange(1, 8).Draw(c.T, "messages") {
			c.next(at)
		}
		if rapid.IntRange(0, 2).Draw(c.T, "mark") == 0 {
			c.mark()
		}
	}
}

func (c *copier) readAll() {
	for more := true; more; {
		more = false
		for _, at := range c.places() {
			more = c.next(at) || more
		}
	}
	c.commit()
}

// TestMirror: whatever happens to a cluster, a bridge, a bus and this program, what is served is what the cluster had at that resourceVersion, a
// watch leads from one list to the next, the past does not change, and once everything is read, the cluster's state is served.
func TestMirror(t *testing.T) {
	served, continued, proved, timed, compared := 0, 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := bustest.New(t, event.Structured, event.Binary, event.Plain)
		c := newCopier(w)
		w.Vanishes = rapid.Bool().Draw(t, "vanishes")
		c.cut = rapid.IntRange(0, 3).Draw(t, "cut") == 0
		c.late = !c.cut && rapid.Bool().Draw(t, "late")
		for range rapid.IntRange(20, 150).Draw(t, "actions") {
			c.act()
		}
		w.Cluster.Absent = false
		w.Drain()
		for len(w.Wanted) == 0 {
			w.Configure()
		}
		w.Drain()
		c.readAll()
		if c.cut {
			for id := range w.Wanted {
				w.Step(&reconcile.Input{Kind: reconcile.Demand, Collection: id})
			}
			w.Drain()
			c.readAll()
		}
		c.final()
		c.must(c.mirror.Close())
		c.must(c.store.Close())
		served += c.served
		continued += c.continued
		proved += c.proved
		timed += c.timed
		compared += c.compared
	})
	if served == 0 || continued == 0 || proved == 0 || timed == 0 || compared == 0 {
		t.Errorf("%d positions were served, %d changes were watched, %d marks were proved, %d times of the past were shown, and %d of them compared", served, continued, proved, timed, compared)
	}
}

// final checks what must hold when everything is published and read.
func (c *copier) final() {
	r := c.mirror.Resource(pods)
	at, err := r.Latest()
	c.must(err)
	if gap := r.Gap(); gap != "" || at.Version != uint64(c.Cluster.Version()) {
		c.T.Fatalf("at the end %v is served (gap: %q), the cluster is at %d: %+v", at, gap, c.Cluster.Version(), c.mirror.all[pods])
	}
	got, want := c.list(at), objects{}
	for _, p := range c.Wanted {
		for name, t := range c.Cluster.At(c.Cluster.Version(), p.Selection) {
			want[name] = fmt.Sprintf("%d@%d", t.UID, t.Version)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		c.T.Fatalf("at the end (-cluster +served):\n%s", diff)
	}
	for range 10 {
		c.time(r)
	}
	for _, a := range c.answers {
		c.again(a)
	}
	for at, want := range c.past {
		if diff := cmp.Diff(want, c.list(at)); diff != "" {
			c.T.Fatalf("the past at %v has changed (-before +now):\n%s", at, diff)
		}
	}
	if floor := at; rapid.Bool().Draw(c.T, "trim") {
		c.must(c.store.Trim(context.Background(), pods, floor))
		if diff := cmp.Diff(got, c.list(at)); diff != "" {
			c.T.Fatalf("after trimming the history (-before +after):\n%s", diff)
		}
	}
}
