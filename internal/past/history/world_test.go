package history_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/test/bustest"
)

// message is a message on the bus.
type message struct {
	headers []sink.Header
	value   []byte
	key     string    // on a compacted topic
	time    time.Time // the time of the bus
	foreign bool
}

// world is a cluster, a core with its store, and a bus whose first topic is "t". Versions of the cluster begin at 1.
type world struct {
	t *testing.T
	bustest.Bridge
	present map[string]int  // present events since the last gap, by collection
	paused  map[string]bool // collections that do not read

	edits       map[string]uint64
	plan, birth uint64
	clock       time.Time
	late        time.Duration // how long after the event the bus accepts it
	lose        string        // an object whose events become dead letters
	format      event.Format  // structured at first
	clusterUID  string

	bus    [][]message
	topics []string // of each part of the bus
	latest bool     // the topics are compacted
	first  []int64  // by part: retention has removed earlier messages
	read   int      // number of messages that were read
}

var start = time.Date(2026, 3, 14, 9, 0, 0, 0, time.UTC)

// newWorld returns a world with collections. selections has the groups that each of them selects; "" selects all objects.
func newWorld(t *testing.T, parts int, selections map[string]string) *world {
	w := &world{
		t: t, Bridge: bustest.Bridge{Wanted: map[string]reconcile.Properties{}}, clock: start, clusterUID: "c1",
		paused: map[string]bool{}, edits: map[string]uint64{}, present: map[string]int{},
	}
	w.Step = w.step
	w.addTopic("t", parts)
	w.begin()
	w.configure(selections)
	return w
}

// begin starts a core without a checkpoint.
func (w *world) begin() {
	w.Store, w.Readings, w.birth = bustest.NewStore(), map[string]*bustest.Reading{}, w.now()
	w.Core = reconcile.NewCore(w.Store, w.Store.State, w.birth)
}

// now advances the clock by a second.
func (w *world) now() uint64 {
	w.clock = w.clock.Add(time.Second)
	return uint64(w.clock.UnixMilli())
}

// mark returns a time between two actions.
func (w *world) mark() time.Time {
	w.now()
	return w.clock.Add(500 * time.Millisecond)
}

// configure changes the configuration.
func (w *world) configure(selections map[string]string) {
	w.plan = w.now()
	for id := range w.Wanted {
		if _, ok := selections[id]; !ok {
			delete(w.Wanted, id)
			delete(w.edits, id)
		}
	}
	for id, selection := range selections {
		p := reconcile.Properties{Selection: selection, Route: "t"}
		if w.Wanted[id] != p {
			w.Wanted[id], w.edits[id] = p, w.plan
		}
	}
	w.Apply()
}

func (w *world) addTopic(name string, parts int) {
	for range parts {
		w.bus, w.topics, w.first = append(w.bus, nil), append(w.topics, name), append(w.first, 0)
	}
}

// move moves a collection to another topic.
func (w *world) move(id, topic string) {
	w.edit(id, func(p *reconcile.Properties) { p.Route = topic })
}

// edit changes the properties of a collection.
func (w *world) edit(id string, change func(p *reconcile.Properties)) {
	w.plan = w.now()
	p := w.Wanted[id]
	change(&p)
	w.Wanted[id], w.edits[id] = p, w.plan
	w.Apply()
}

// parts returns the parts of a topic.
func (w *world) parts(topic string) (out []int) {
	for i, t := range w.topics {
		if t == topic {
			out = append(out, i)
		}
	}
	return out
}

// forget loses the checkpoint.
func (w *world) forget() {
	w.begin()
	w.plan = w.now()
	for id := range w.edits {
		w.edits[id] = w.plan
	}
	w.Apply()
}

// demand requests a resync of a collection (reconcile.Demand), or a synced event (reconcile.Confirm).
func (w *world) demand(kind reconcile.InputKind, id string) {
	w.step(&reconcile.Input{Kind: kind, Collection: id})
}

// reset resets the stored state of one collection, and restarts the core.
func (w *world) reset(id string) {
	w.Store.Records[id] = w.Store.Reset().Records[id]
	w.Core.Drop(id)
	w.Core.Restore(id, w.Store.State, w.now())
	w.Apply()
}

func (w *world) step(in *reconcile.Input) {
	in.Now = w.now()
	w.Core.Step(in)
	w.publish()
}

// publish writes the emitted events to the bus, and commits them.
func (w *world) publish() {
	for !w.Core.Idle() {
		b := w.Core.Seal()
		for i := range b.Items {
			w.encode(&b.Items[i])
		}
		w.Store.Commit(b)
		w.Core.Committed()
	}
}

func (w *world) encode(i *reconcile.Item) {
	w.now()
	col := event.ParseCollection(i.Collection)
	e := event.Event{
		Collection: &col, Origin: event.Reconcile, Time: w.clock, Epoch: i.Epoch, Run: strconv.FormatUint(i.Run, 10), Incarnation: i.Incarnation,
	}
	if r := w.Readings[i.Collection]; r != nil && !r.Listing {
		e.Origin = event.Watch
	}
	if o := i.Object; o != nil {
		e.Type, e.APIVersion, e.Kind, e.Namespace, e.Name, e.UID = o.Type, "v1", "Pod", "ns", o.Key, "u"+o.Object.UID
		e.ResourceVersion = o.Version
		if o.Type == event.Deleted {
			e.Run, e.ResourceVersion, e.DeletionVersion = strconv.FormatUint(o.Object.Run, 10), o.Object.At, o.Version
			e.Reason = [...]string{"", "left", "unknown"}[o.Fate]
		}
		group := ""
		if n, _ := strconv.Atoi(e.ResourceVersion); n <= w.Cluster.Version() && w.Cluster.History[n-1].Now != nil {
			group = w.Cluster.History[n-1].Now.Group
		}
		e.Object = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"ns","uid":%q,"resourceVersion":%q},"group":%q}`,
			o.Key, e.UID, e.ResourceVersion, group)
		if w.lose == o.Key {
			e.DeadLetter = &event.DeadLetter{Reason: event.Rejected}
		}
		if e.Type == event.Present {
			w.present[i.Collection]++
		}
		parts := w.parts(i.Route)
		w.put(&e, parts[(int(o.Key[0])+int(i.Collection[len(i.Collection)-1]))%len(parts)]) // keys have the name of the entry
		return
	}
	x := i.Event
	e.Type, e.ResourceVersion, e.Nth = x.Type, x.Version, x.Nth
	e.Report = &event.Report{Reason: x.Reason, Reset: x.Reset, From: x.From, To: x.Version, Selection: x.Selection}
	if x.Type == event.Gap {
		w.present[i.Collection] = 0
	}
	switch {
	case x.Type == event.Gap && x.Reason != event.ReasonHistory:
		e.ResourceVersion = x.From
	case x.Type == event.Closed:
		e.Report.Reason = "removed"
	case x.Type == event.Synced && x.Reason != event.ReasonPeriodic:
		e.Report.Counts = w.counts(i.Collection, x)
	}
	edits := maps.Clone(w.edits) // of the resource
	maps.DeleteFunc(edits, func(id string, _ uint64) bool { return event.ParseCollection(id).Resource != col.Resource })
	e.Plan = &event.Plan{Number: w.plan, Digest: event.PlanDigest(edits), Edit: cmp.Or(w.edits[i.Collection], w.plan), Birth: w.birth}
	for _, p := range w.parts(i.Route) {
		w.put(&e, p)
	}
}

// counts returns the counts of a list. A resync does not count objects that the watch has changed since the resync's
// gap.
func (w *world) counts(id string, x *reconcile.CollectionEvent) *event.Counts {
	version, _ := strconv.Atoi(x.Version)
	if x.Reason != event.ReasonResync {
		return &event.Counts{Listed: len(w.Selected(id, version))}
	}
	return &event.Counts{Listed: len(w.Selected(id, w.Readings[id].Listed)), Present: w.present[id]}
}

func (w *world) put(e *event.Event, part int) {
	encoder := event.Encoder{Cluster: "prod", ClusterUID: w.clusterUID, Format: w.format}
	attributes := encoder.Attributes(e)
	m := message{key: e.Collection.ID() + "/" + e.Name, value: w.format.Append(nil, attributes, e), time: e.Time.Add(w.late)}
	m.headers = append(m.headers, sink.Header{Name: "content-type", Value: []byte(w.format.ContentType())})
	for _, a := range attributes {
		m.headers = append(m.headers, sink.Header{Name: "ce_" + a.Name, Value: []byte(a.Value)})
	}
	if e.Name == "" {
		m.key = "_collection/" + e.Collection.ID() + "/" + e.CollectionKind()
	}
	w.bus[part] = append(w.bus[part], m)
}

// compact compacts all but the newest messages of each part.
func (w *world) compact(newest int) {
	for p, all := range w.bus {
		last := map[string]int{}
		for i, m := range all {
			last[m.key] = i
		}
		w.bus[p] = nil
		for i, m := range all {
			if i >= len(all)-newest || last[m.key] == i {
				w.bus[p] = append(w.bus[p], m)
			}
		}
	}
}

// settle reads all collections that are not paused to their ends, and publishes the events.
func (w *world) settle() {
	for w.advance() {
	}
}

func (w *world) advance() bool {
	for _, id := range w.Core.IDs() {
		if !w.paused[id] && w.ReadNext(id) {
			return true
		}
	}
	return false
}

// The methods of [sink.Reader].

func (w *world) Parts() (out []sink.Part) {
	for i := range w.bus {
		out = append(out, sink.Part{Name: fmt.Sprintf("%s/%d", w.topics[i], i), Log: w.topics[i], Latest: w.latest, First: w.first[i], End: int64(len(w.bus[i]))})
	}
	return out
}

func (w *world) At(_ context.Context, t time.Time) (out []int64, _ error) {
	for i := range w.bus {
		at := slices.IndexFunc(w.bus[i], func(m message) bool { return !m.time.Before(t) })
		if at < 0 {
			at = len(w.bus[i])
		}
		out = append(out, max(int64(at), w.first[i]))
	}
	return out, nil
}

func (w *world) Read(_ context.Context, ranges []sink.Range, _ bool, fn func(*sink.Message) error) error {
	for i, r := range ranges {
		for at := r.From; at < r.To; at++ {
			w.read++
			m := w.bus[i][at]
			err := fn(&sink.Message{Part: i, Offset: at, Headers: m.headers, Value: m.value, Foreign: m.foreign})
			if errors.Is(err, sink.ErrEnough) {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) Refresh(context.Context) error { return nil }

func (w *world) Close() {}
