// Package bustest makes random but possible contents of a bus for tests: a cluster, the core that decides what is published about it, and the
// messages that a bridge would write, with crashes, resets, restored backups and edits.
package bustest

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Sent is one message, with the test's knowledge about it.
type Sent struct {
	consumer.Message
	Key        string
	Collection string
	// The collection's progress after this message: incarnation, run and resourceVersion. It then holds these objects, as uids
	// and versions by name.
	Incarnation, Run, Epoch uint64
	At                      int
	Holds                   map[string]Held
	Selection               string
	Gap, Closed             bool
	Plan, Birth             uint64 // 0: none
	What                    string // description for failure messages
}

// Held is the state of an object that a collection holds.
type Held struct {
	UID     string
	Version int
}

// Place is a partition of a topic.
type Place struct {
	Topic     string
	Partition int
}

// World is a cluster, a core with its store, and a bus.
type World struct {
	T        *rapid.T
	Exact    bool // a batch and its commit are one transaction
	Compacts bool // the topics are compacted
	Vanishes bool // the resource may be deleted
	Format   event.Format
	Encoder  event.Encoder

	Bridge
	Flying *reconcile.Batch

	Clock, Birth, Plan uint64
	Edits              map[string]uint64
	Plans              map[uint64][]string // the collections of each plan

	Partitions map[string]int // by topic
	Bus        map[Place][]*Sent
}

// Collections are the collections that a configuration may have.
var Collections = []string{"pods", "pods:b"}

// New returns a world with a random configuration.
func New(t *rapid.T, formats ...event.Format) *World {
	w := &World{
		T: t, Format: rapid.SampledFrom(formats).Draw(t, "format"),
		Bridge: Bridge{Store: NewStore(), Wanted: map[string]reconcile.Properties{}}, Clock: 1000, Birth: 1000,
		Edits: map[string]uint64{}, Plans: map[uint64][]string{},
		Partitions: map[string]int{"t1": rapid.IntRange(1, 3).Draw(t, "partitions"), "t2": 2}, Bus: map[Place][]*Sent{},
	}
	w.Step = w.step
	w.Exact = rapid.Bool().Draw(t, "exact")
	w.Compacts = w.Exact && rapid.Bool().Draw(t, "compacted")
	w.Encoder = event.Encoder{Cluster: "test", ClusterUID: "c", Format: w.Format}
	w.Change()
	w.start()
	w.Configure()
	return w
}

// now returns a time that is later than all runs so far.
func (w *World) now() uint64 {
	w.Clock += 100
	return w.Clock
}

func (w *World) start() {
	w.Core = reconcile.NewCore(w.Store, w.Store.State, w.now())
	w.Readings, w.Flying = map[string]*Reading{}, nil
	w.stamp()
	w.Apply()
}

// Configure draws a random configuration.
func (w *World) Configure() {
	w.Plan = w.now()
	for _, id := range Collections {
		was, had := w.Wanted[id]
		if rapid.IntRange(0, 3).Draw(w.T, "unwanted") == 0 {
			delete(w.Wanted, id)
			delete(w.Edits, id)
			continue
		}
		p := reconcile.Properties{
			Selection: rapid.SampledFrom([]string{"", "1", "2", "12"}).Draw(w.T, "selection"),
			Route:     rapid.SampledFrom([]string{"t1", "t1", "t2"}).Draw(w.T, "topic"),
		}
		p.Contents.Labels = p.Selection
		if w.Wanted[id] = p; !had || p != was {
			w.Edits[id] = w.Plan
		}
	}
	w.Plans[w.Plan] = slices.Sorted(maps.Keys(w.Wanted))
	w.Apply()
}

func (w *World) step(in *reconcile.Input) {
	in.Now = w.now()
	w.Core.Step(in)
	w.stamp()
}

// stamp makes messages of the items that were emitted since the last call.
func (w *World) stamp() {
	items := w.Core.Items()
	for i := range items {
		if items[i].Payload == nil {
			items[i].Payload = w.encode(&items[i])
		}
	}
}

// encode makes the messages of one item: the event and, in a compacted topic, the null value that follows a deletion.
func (w *World) encode(i *reconcile.Item) []*Sent {
	col := event.ParseCollection(i.Collection)
	e := event.Event{
		Collection: &col, Origin: event.Reconcile, Time: time.Unix(int64(w.now()), 0), Epoch: i.Epoch,
		Run: strconv.FormatUint(i.Run, 10), Incarnation: i.Incarnation,
	}
	if r := w.Readings[i.Collection]; r != nil && !r.Listing {
		e.Origin = event.Watch
	}
	m := &Sent{Collection: i.Collection, Incarnation: i.Incarnation, Run: i.Run, Epoch: i.Epoch}
	if o := i.Object; o != nil {
		w.ofObject(&e, o)
		m.Key = o.Key + "/" + col.Entry
	} else {
		w.ofCollection(&e, i.Event, cmp.Or(w.Edits[i.Collection], w.Plan))
		m.Plan, m.Birth, m.Gap, m.Closed = w.Plan, w.Birth, e.Type == event.Gap, e.Type == event.Closed
		m.Key = "_collection/" + i.Collection + "/" + e.Type.String()
		if e.Type == event.Closed || i.Event.Reset {
			m.Key = "_collection/" + i.Collection + "/reset"
		}
	}
	c := w.Core.Collection(i.Collection)
	if m.At, _ = strconv.Atoi(c.Position); w.Readings[i.Collection] != nil {
		m.At = w.Readings[i.Collection].At
	}
	if e.Type == event.Gap { // a gap promises no state
		m.At = 0
	}
	m.Holds, m.Selection = map[string]Held{}, c.Properties.Selection
	for name, t := range w.Cluster.At(m.At, c.Properties.Selection) {
		m.Holds[name] = Held{strconv.Itoa(t.UID), t.Version}
	}
	m.What = fmt.Sprintf("%s@%s edit %d plan %d at %d", e.ID(), e.ResourceVersion, w.Edits[i.Collection], w.Plan, m.At)
	attributes := w.Encoder.Attributes(&e)
	m.Headers = map[string]string{"content-type": w.Format.ContentType()}
	for _, a := range attributes {
		m.Headers["ce_"+a.Name] = a.Value
	}
	m.Topic, m.Partitions, m.Partition = i.Route, w.Partitions[i.Route], -1
	if i.Object != nil {
		m.Partition = w.Partition(i.Route, i.Object.Key)
	}
	m.Value = w.Format.Append(nil, attributes, &e)
	list := []*Sent{m}
	if w.Compacts && e.Type == event.Deleted {
		null := *m
		null.Value = nil
		list = append(list, &null)
	}
	return list
}

func (w *World) ofObject(e *event.Event, o *reconcile.ObjectEvent) {
	e.Type, e.APIVersion, e.Kind, e.Namespace, e.Name, e.UID = o.Type, "v1", "Pod", "ns", o.Key, o.Object.UID
	e.ResourceVersion = o.Version
	if o.Type == event.Present && e.Origin == event.Watch {
		e.Origin = event.Resync
	}
	if o.Type == event.Deleted {
		e.Run, e.ResourceVersion, e.DeletionVersion = strconv.FormatUint(o.Object.Run, 10), o.Object.At, o.Version
		e.Reason = [...]string{"", "left", "unknown"}[o.Fate]
		return
	}
	e.Object = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"ns","uid":%q,"resourceVersion":%q}}`, o.Key, o.Object.UID, o.Version)
}

func (w *World) ofCollection(e *event.Event, c *reconcile.CollectionEvent, edit uint64) {
	e.Type, e.ResourceVersion, e.Nth = c.Type, c.Version, c.Nth
	e.Report = &event.Report{Reason: c.Reason, Reset: c.Reset, From: c.From, To: c.Version, Selection: c.Selection}
	if c.Reason == "" {
		e.Report.Reason = "removed"
	}
	e.Plan = &event.Plan{Number: w.Plan, Digest: event.PlanDigest(w.Edits), Edit: edit, Birth: w.Birth}
}

// Partition returns the partition of an object's events.
func (w *World) Partition(topic, name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() % uint32(w.Partitions[topic]))
}

// deliver publishes the first n items of the batch that is on its way.
func (w *World) deliver(n int) {
	for i := range w.Flying.Items[:n] {
		for _, m := range w.Flying.Items[i].Payload.([]*Sent) {
			for p := range w.Partitions[m.Topic] {
				if m.Partition < 0 || m.Partition == p {
					c := *m
					c.Partition = p
					w.Bus[Place{m.Topic, p}] = append(w.Bus[Place{m.Topic, p}], &c)
				}
			}
		}
	}
}

// Seal delivers and commits the batch that is filling.
func (w *World) Seal() {
	if w.Flying == nil {
		w.Flying = w.Core.Seal()
		return
	}
	if !w.Exact {
		w.Store.before(w.Flying)
	}
	w.deliver(len(w.Flying.Items))
	w.Store.Commit(w.Flying)
	w.Flying = nil
	w.Core.Committed()
}

// Crash ends the program. In at-least-once delivery, a part of the batch on its way may be published.
func (w *World) Crash() {
	if w.Flying != nil && !w.Exact {
		w.Store.before(w.Flying)
		w.deliver(rapid.IntRange(0, len(w.Flying.Items)).Draw(w.T, "delivered"))
	}
	w.start()
}

// Reset discards the published state, and starts without it. As in the program, consumers learn from a new birth that no older copy counts.
func (w *World) Reset() {
	next := w.Store.Reset()
	w.Plan, w.Birth = w.now(), w.Clock
	w.Plans[w.Plan] = slices.Sorted(maps.Keys(w.Wanted))
	w.Store.Records, w.Store.Progress, w.Store.Drafts = next.Records, next.Progress, map[string]reconcile.Draft{}
	w.start()
}

// Forget loses the checkpoint.
func (w *World) Forget() {
	w.Store, w.Birth, w.Plan = NewStore(), w.now(), w.now()
	for id := range w.Edits {
		w.Edits[id] = w.Plan
	}
	w.Plans[w.Plan] = slices.Sorted(maps.Keys(w.Wanted))
	w.start()
}

// Change writes to the cluster. At times it deletes the resource itself, and later makes it again.
func (w *World) Change() {
	if w.Vanishes && rapid.IntRange(0, 15).Draw(w.T, "vanishes") == 0 && !w.Cluster.Absent {
		w.Cluster.Vanish()
		if rapid.Bool().Draw(w.T, "seen") {
			w.settle()
		}
		return
	}
	if w.Cluster.Absent && rapid.IntRange(0, 2).Draw(w.T, "stays away") > 0 {
		return
	}
	returns := w.Cluster.Absent
	w.Cluster.Absent = false
	w.write()
	for returns && rapid.Bool().Draw(w.T, "more") {
		w.write()
	}
}

// write creates, updates or deletes an object.
func (w *World) write() {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.T, "name")
	if w.Cluster.At(w.Cluster.Version(), "")[name] != nil && rapid.IntRange(0, 2).Draw(w.T, "delete") == 0 {
		w.Cluster.Remove(name)
		return
	}
	w.Cluster.Set(name, rapid.SampledFrom([]string{"1", "2"}).Draw(w.T, "group"))
}

// Restore sets the cluster back by some versions, as from a backup, and lets a collection notice it.
func (w *World) Restore() {
	for _, id := range w.Core.IDs() {
		c := w.Core.Collection(id)
		if inStep := c.Phase == reconcile.InStep && c.Position == strconv.Itoa(w.Cluster.Version()); !inStep && c.Phase != reconcile.Closed {
			return
		}
	}
	if len(w.Wanted) == 0 || !w.Core.Idle() || w.Cluster.Version() < 3 || len(w.Store.Intents) > 0 {
		return
	}
	w.Back(rapid.IntRange(1, 2).Draw(w.T, "back"))
	w.ReadNext(slices.Min(slices.Collect(maps.Keys(w.Wanted))))
	for !w.Core.Idle() {
		w.Seal()
	}
}

// Drain does all remaining steps.
func (w *World) Drain() {
	w.settle()
	// An edit that was undone and lost in a crash is in no event, and neither is a plan without a collection.
	for _, id := range slices.Sorted(maps.Keys(w.Wanted)) {
		w.Step(&reconcile.Input{Kind: reconcile.Confirm, Collection: id})
	}
	w.settle()
}

// settle reads what there is to read, and delivers it.
func (w *World) settle() {
	for w.advance() {
	}
}

func (w *World) advance() bool {
	for _, id := range w.Core.IDs() {
		if w.ReadNext(id) {
			return true
		}
	}
	if w.Flying != nil || !w.Core.Idle() {
		w.Seal()
		return true
	}
	return false
}

// Compact removes those of the first n messages of a partition that later messages replace. If gone is set, it also removes
// null values. It returns how many messages before pos are left.
func (w *World) Compact(at Place, n, pos int, gone bool) (left int) {
	log := w.Bus[at]
	last := map[string]int{}
	for i, m := range log[:n] {
		last[m.Key] = i
	}
	var kept []*Sent
	for i, m := range log {
		if i < n && (last[m.Key] != i || gone && m.Value == nil) {
			continue
		}
		if i < pos {
			left++
		}
		kept = append(kept, m)
	}
	w.Bus[at] = kept
	return left
}
