// Package mirror keeps what a bus holds of clusters on disk, in the order in which the Kubernetes API can serve it.
//
// pkg/consumer decides which events count and what is complete. The mirror gives each state of an object a position:
// the resource's era, the resourceVersion, and the order of reading. An era ends where the order has a gap. The served
// position of a resource is the lowest resourceVersion that every collection is proved to have reached.
// docs/adr/0031-serve.md has the reasons.
package mirror

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	statePrefix    = "state/"
	objectPrefix   = "object/" // the state's records of objects, which are read one at a time
	resourcePrefix = "resource/"
	eraPrefix      = "era/"    // of a resource
	offsetPrefix   = "offset/" // and the part
	recordSeq      = "seq"
	recordCluster  = "cluster-uid"
)

// saveRead is how often the time up to which the bus was read becomes durable, if nothing else does.
const saveRead = time.Minute

// Offset is how far a part of the bus was read.
type Offset struct {
	Log  string // identity of the topic or stream: another one after it was deleted and created again
	Next int64
	// Last is the last message that was read, which the bus must still have unless retention has removed it; zero: none.
	Last Message `json:",omitzero"`
}

// Message identifies a message: another one at its offset has another digest.
type Message struct {
	Offset int64
	Digest uint64
}

// Mirror writes a store. One goroutine calls Apply, Commit, Forget, OpenLogs, ReadUntil and Trim; any calls the others.
type Mirror struct {
	// Ignored is called for an event that no bridge can have written. Set it before the first call of
	// Apply.
	Ignored func(error)

	store   *store.Store
	state   consumer.State
	batch   *store.Batch
	all     map[store.Resource]*resource
	seq     uint64
	offsets map[string]Offset
	uid     string // of the cluster; "": not known

	saved time.Time // see ReadUntil

	mu         sync.RWMutex
	published  map[store.Resource]*Resource
	clusterUID string // that readers see; "": not known
	until      time.Time
	commits    chan struct{}
}

// Open continues with what a store holds.
func Open(s *store.Store) (*Mirror, error) {
	m := &Mirror{
		Ignored: func(error) {}, store: s, all: map[store.Resource]*resource{}, offsets: map[string]Offset{},
		published: map[store.Resource]*Resource{}, commits: make(chan struct{}),
	}
	if err := m.load(); err != nil {
		return nil, fmt.Errorf("read the data directory: %w", err)
	}
	m.batch, m.clusterUID = s.Batch(), m.uid
	for _, r := range m.all {
		m.until = later(m.until, r.Read)
		_, r.complete = m.state.Complete(r.id.Cluster, r.id.Name)
		m.published[r.id] = r.published()
	}
	return m, nil
}

// leftOut returns resource and collection of an object's event if the collection's objects are not kept, because its
// events do not show which exist; else nil.
func (m *Mirror) leftOut(e *event.Received) (*resource, *collection) {
	r := m.all[store.Resource{Cluster: e.Cluster, Name: consumer.NameOf(e).Resource}]
	if r == nil || e.Type.OfCollection() {
		return nil, nil
	}
	c := r.Collections[e.Collection]
	if c == nil || unpublished(c.Selection) == "" {
		return nil, nil
	}
	if known, _ := m.state.Collection(e.Cluster, e.Collection); known.Incarnation != e.Incarnation {
		return nil, nil
	}
	return r, c
}

func (m *Mirror) load() error {
	m.newState()
	var failed error
	err := m.state.Load(func(yield func(string, []byte) bool) {
		failed = m.store.Records(statePrefix, func(name string, value []byte) error {
			if !yield(strings.TrimPrefix(name, statePrefix), value) {
				return errors.New("the state's records cannot be read")
			}
			return nil
		})
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	for name, to := range map[string]any{recordSeq: &m.seq, recordCluster: &m.uid} {
		value, err := m.store.Record(name)
		if err == nil && value != nil {
			err = json.Unmarshal(value, to)
		}
		if err != nil {
			return err
		}
	}
	err = m.store.Records(offsetPrefix, func(name string, value []byte) error {
		var o Offset
		err := json.Unmarshal(value, &o)
		m.offsets[strings.TrimPrefix(name, offsetPrefix)] = o
		return err
	})
	if err != nil {
		return err
	}
	return m.loadResources()
}

var errRecord = errors.New("it is of an unknown form")

func (m *Mirror) loadResources() error {
	err := m.store.Records(resourcePrefix, func(name string, value []byte) error {
		parts := strings.SplitN(name, "/", 3)
		r := &resource{}
		if err := json.Unmarshal(value, r); err != nil || len(parts) != 3 {
			return fmt.Errorf("record %s: %w", name, cmp.Or(err, errRecord))
		}
		r.id = store.Resource{Cluster: parts[1], Name: parts[2]}
		r.unserved.number, r.recheckWaiting = several, true
		m.all[r.id] = r
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range m.all {
		err := m.store.Records(eraRecords(r.id), func(name string, value []byte) error {
			var e Era
			if err := json.Unmarshal(value, &e); err != nil || name != eraRecord(r.id, e.Number) {
				return fmt.Errorf("record %s: %w", name, cmp.Or(err, errRecord))
			}
			r.eras = append(r.eras, e)
			return nil
		})
		if err != nil {
			return err
		}
		if len(r.eras) == 0 {
			return fmt.Errorf("record %s: %w: it has no eras", recordOf(r.id), errRecord)
		}
	}
	return nil
}

func (m *Mirror) newState() {
	m.state = consumer.State{Durable: true, Lookup: func(key string) ([]byte, error) { return m.store.Record(objectPrefix + key) }}
}

func (m *Mirror) saveState(key string, value []byte) error {
	name := statePrefix + key
	if consumer.OfObject(key) {
		name = objectPrefix + key
	}
	if value == nil && strings.HasSuffix(key, ",") {
		return m.batch.DeleteRecords(name)
	}
	return m.batch.SetRecord(name, value)
}

// Offset returns how far a part was read.
func (m *Mirror) Offset(part string) (Offset, bool) {
	o, ok := m.offsets[part]
	return o, ok
}

// OpenLogs returns the topics or streams from which collections that are not closed were read, sorted.
func (m *Mirror) OpenLogs() []string {
	logs := map[string]bool{}
	for _, r := range m.all {
		for _, c := range r.Collections {
			for place := range c.LastEvents {
				logs[place[:strings.LastIndex(place, "/")]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(logs))
}

// ClusterUID returns the UID of the cluster whose events readers see; "" if there was none.
func (m *Mirror) ClusterUID() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.clusterUID
}

func (m *Mirror) resourceOf(id store.Resource) *resource {
	r := m.all[id]
	if r == nil {
		r = &resource{id: id, eras: []Era{{Number: 1}}, Collections: map[string]*collection{}}
		m.all[id] = r
	}
	return r
}

// Apply applies a message and the event that it holds. Readers see it after Commit.
func (m *Mirror) Apply(message consumer.Message, e *event.Received) error {
	m.uid = e.ClusterUID
	if r, c := m.leftOut(e); r != nil {
		r.noteKind(e)
		r.Time, c.LastEvents[message.String()], r.changed = later(r.Time, e.Time), e.Time, true
		return nil
	}
	s := &step{message: message, event: e, change: m.state.Take(message, e)}
	if e.Type == event.Attributed {
		return nil
	}
	own := consumer.NameOf(e)
	touched := []*resource{m.resourceOf(store.Resource{Cluster: e.Cluster, Name: own.Resource})}
	for _, id := range s.change.Dropped {
		c := event.ParseCollection(id)
		r := m.resourceOf(store.Resource{Cluster: e.Cluster, Name: c.ResourceID()})
		if err := m.dropped(r, s, id, dropReason(id, e)); err != nil {
			return err
		}
		if !slices.Contains(touched, r) {
			touched = append(touched, r)
		}
	}
	if s.change.Applied {
		if err := m.apply(touched[0], s); err != nil {
			return err
		}
	}
	for _, r := range touched {
		if r.recheckComplete || r.recheckServed && r.simple() {
			if err := m.serve(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func dropReason(id string, e *event.Received) string {
	switch {
	case e.Collection != id:
		return "the bridge's checkpoint was lost or reset"
	case e.Type == event.Closed:
		return "the collection " + id + " was closed (" + string(e.Report.Reason) + ")"
	}
	return "the collection " + id + " was reset"
}

// Commit makes what was applied durable together with the offsets after it, and shows it to readers.
func (m *Mirror) Commit(offsets map[string]Offset) error {
	records := map[string]any{}
	for part, o := range offsets {
		records[offsetPrefix+part], m.offsets[part] = o, o
	}
	var changed []*resource
	for _, r := range m.all {
		if r.recheckServed || r.recheckComplete {
			if err := m.serve(r); err != nil {
				return err
			}
		}
		if r.changed {
			r.save(records)
			changed = append(changed, r)
		}
	}
	if err := m.state.Save(m.saveState); err != nil {
		return err
	}
	records[recordSeq], records[recordCluster] = m.seq, m.uid
	for name, value := range records {
		record, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if err := m.batch.SetRecord(name, record); err != nil {
			return err
		}
	}
	if err := m.batch.Commit(); err != nil {
		return err
	}
	m.batch = m.store.Batch()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clusterUID = m.uid
	for _, r := range changed {
		m.published[r.id] = r.published()
	}
	close(m.commits)
	m.commits = make(chan struct{})
	return nil
}

// MarkReached remembers how far each collection has been read in the partition that is furthest.
func (m *Mirror) MarkReached() {
	for _, r := range m.all {
		for _, c := range r.Collections {
			c.marked = mark{}
			for _, at := range c.Reached {
				if r.complete && !at.Gone && c.marked.below(at.Epoch, at.Version) {
					c.marked = mark{run: c.Run, proof: at}
				}
			}
		}
	}
}

// ProveMarked is called when every message that some partitions had before the last call of MarkReached is applied. So
// the collections are complete in these partitions up to what was remembered, unless a gap began since. The partitions
// have the names of [consumer.Message.String]; others hold their collections back. Readers see it after Commit.
func (m *Mirror) ProveMarked(partitions map[string]bool) {
	for _, r := range m.all {
		for _, c := range r.Collections {
			for part, at := range c.Reached {
				if to := c.marked; to.run != 0 && to.run == c.Run && partitions[part] && !at.Gone && at.Epoch == to.Epoch && at.Version < to.Version {
					c.Reached[part] = to.proof
					r.recheckServed, r.changed = true, true
				}
			}
			c.marked = mark{}
		}
	}
}

// ReadUntil is called after Commit, when all is applied that some partitions had at a time. Readers are shown states up
// to it. A resource that was read from another partition as well is not shown further.
func (m *Mirror) ReadUntil(t time.Time, partitions map[string]bool) error {
	save := t.Sub(m.saved) >= saveRead
	for _, r := range m.all {
		if err := m.findWaiting(r); err != nil {
			return err
		}
		if r.readIn(partitions) {
			r.Read = later(r.Read, t)
		}
		r.changed = r.changed || save
	}
	if save {
		m.saved = t
		if err := m.Commit(nil); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until = later(m.until, t)
	for id, p := range m.published {
		shown := *p
		shown.Until = m.all[id].until()
		m.published[id] = &shown
	}
	return nil
}

// Forget ends every collection, because messages were lost: the copy begins again. What was served stays as the past.
func (m *Mirror) Forget(reason string) error {
	for _, r := range m.all {
		r.Read, r.Waiting = r.until(), time.Time{}
		s := &step{event: &event.Received{Time: later(r.Time, r.Read.Add(tick))}}
		s.change.Dropped = slices.Collect(maps.Keys(r.Collections))
		for _, id := range s.change.Dropped {
			if err := m.dropped(r, s, id, reason); err != nil {
				return err
			}
		}
		r.restart(s.event.Time)
		r.recheckComplete = true
	}
	for _, prefix := range []string{statePrefix, objectPrefix, offsetPrefix} {
		if err := m.batch.DeleteRecords(prefix); err != nil {
			return err
		}
	}
	m.newState()
	m.offsets = map[string]Offset{}
	return m.Commit(nil)
}

// Trim ends the retention of what is before a time. It returns the lowest position that each resource retains, for
// [store.Store.Trim], also what an earlier call returned: it may not have been deleted.
func (m *Mirror) Trim(before time.Time) (map[store.Resource]store.Position, error) {
	floors := map[store.Resource]store.Position{}
	for _, r := range m.all {
		at, _, found, err := m.store.Moment(r.id, before)
		if err != nil {
			return nil, err
		}
		found = found && at.Compare(r.Served) <= 0
		if !r.ClosedAt.IsZero() && r.ClosedAt.Before(before) { // the present era begins without objects
			at, found = store.Position{Era: r.era().Number}, true
		}
		if found && at.Compare(r.Floor) > 0 {
			r.Floor, r.changed = at, true
			if err := m.forgetEras(r); err != nil {
				return nil, err
			}
		}
		if r.Floor != (store.Position{}) {
			floors[r.id] = r.Floor
		}
	}
	return floors, m.Commit(nil)
}

func (m *Mirror) forgetEras(r *resource) error {
	for r.eras[0].Number < r.Floor.Era {
		if err := m.batch.SetRecord(eraRecord(r.id, r.eras[0].Number), nil); err != nil {
			return err
		}
		r.eras = r.eras[1:]
	}
	r.Ended = slices.DeleteFunc(r.Ended, func(x Span) bool { return x.Until <= r.eras[0].Number })
	return nil
}

// Close ends the mirror without its last batch.
func (m *Mirror) Close() error { return m.batch.Discard() }
