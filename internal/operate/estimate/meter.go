// Package estimate measures what a configuration costs, in the place of its buses.
package estimate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// loudest is the number of most changed objects that an estimate names.
const loudest = 10

// amount is a number of events and their bytes: keys, headers and values, not compressed.
type amount struct{ events, bytes int64 }

func (a *amount) add(bytes int) {
	a.events++
	a.bytes += int64(bytes)
}

// flow counts the records of one resource for one sink.
type flow struct {
	first, changes amount
	complete       time.Time // when the first list of the resource's last collection was complete; zero: no list is complete
}

type objectKey struct{ resource, namespace, name string }

// Options are what a meter knows of a bus.
type Options struct {
	Bus        string
	Partitions bool                                  // a topic has some
	Headers    func(*event.Record) []event.Attribute // of a message; nil: a record is a line
}

// Meter takes the place of a sink's bus. It counts the records and measures the size of the checkpoint.
type Meter struct {
	o Options

	mu         sync.Mutex
	flows      map[string]*flow // by resource
	objects    map[objectKey]*amount
	checkpoint amount // entries and bytes, when the store is closed
}

var _ sink.Sink = (*Meter)(nil)

// NewMeter returns a meter.
func NewMeter(o Options) *Meter {
	return &Meter{o: o, flows: map[string]*flow{}, objects: map[objectKey]*amount{}}
}

// Open connects to nothing.
func (m *Meter) Open(context.Context, []byte) error { return nil }

// Close releases nothing.
func (m *Meter) Close() error { return nil }

// Write counts the records of a batch.
func (m *Meter) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range b.Records {
		m.count(&b.Records[i])
	}
	return nil, nil
}

func (m *Meter) count(r *event.Record) {
	e := r.Event
	resource := e.Collection.ResourceID()
	f := m.flows[resource]
	if f == nil {
		f = &flow{}
		m.flows[resource] = f
	}
	switch {
	case e.Type == event.Synced && e.Origin == event.Snapshot:
		f.complete = time.Now()
	case e.Type.OfCollection():
	case e.Origin == event.Snapshot:
		f.first.add(m.size(r))
	default:
		bytes := m.size(r)
		f.changes.add(bytes)
		key := objectKey{resource, e.Namespace, e.Name}
		if m.objects[key] == nil {
			m.objects[key] = &amount{}
		}
		m.objects[key].add(bytes)
	}
}

func (m *Meter) size(r *event.Record) int {
	n := len(r.Value)
	if m.o.Headers == nil {
		return n
	}
	for _, h := range m.o.Headers(r) {
		n += len(h.Name) + len(h.Value)
	}
	return n + len(r.Key)
}

// Store opens a checkpoint in memory and measures its size when it is closed.
func (m *Meter) Store(id event.Identity) (*Store, error) {
	store, err := file.OpenMem(id)
	return &Store{store, m}, err
}

// Store is a store that reports its size to its meter.
type Store struct {
	*file.Store
	meter *Meter
}

// Close measures the store and closes it.
func (s *Store) Close() error {
	var held amount
	err := s.Scan(nil, func(key, value []byte) error {
		held.add(len(key) + len(value))
		return nil
	})
	s.meter.mu.Lock()
	s.meter.checkpoint = held
	s.meter.mu.Unlock()
	return cmp.Or(err, s.Store.Close())
}

// Sink is what one sink will cost. Bytes are keys, headers and values before compression.
type Sink struct {
	Sink            string     `json:"sink"`
	Bus             string     `json:"bus"`
	Resources       []Resource `json:"resources"`
	Loudest         []Object   `json:"loudest"`
	CheckpointBytes int64      `json:"checkpointBytes"`
	Partitions      int        `json:"partitions,omitempty"` // suggested for each topic; 0: the bus has no partitions
	BufferADay      float64    `json:"bufferBytesPerDay"`    // what the disk buffer takes in a day without the bus, without lists
	BufferAList     float64    `json:"bufferBytesPerList"`   // what a list of all objects takes
}

// A frame of the disk buffer takes at most a quarter of its JSON: see docs/scaling.md.
const bufferShare = 0.25

// Resource is what one resource will cost.
type Resource struct {
	Resource         string  `json:"resource"`
	Objects          int64   `json:"objects"`        // published from the first list
	FirstListBytes   int64   `json:"firstListBytes"` // of their events
	Changes          int64   `json:"changes"`        // while it was measured
	ChangesPerSecond float64 `json:"changesPerSecond"`
	BytesPerDay      float64 `json:"bytesPerDay"`
	Complete         bool    `json:"complete"` // the first list was complete; otherwise all figures are too low
}

// Object is an object that changes often.
type Object struct {
	Resource    string  `json:"resource"`
	Namespace   string  `json:"namespace,omitempty"`
	Name        string  `json:"name"`
	Changes     int64   `json:"changes"`
	BytesPerDay float64 `json:"bytesPerDay"`
}

const day = 24 * time.Hour

// Estimate extrapolates what a sink will cost from the records it got until end.
func (m *Meter) Estimate(name string, end time.Time, watched time.Duration) Sink {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := Sink{Sink: name, Bus: m.o.Bus, Resources: []Resource{}, Loudest: []Object{}, CheckpointBytes: m.checkpoint.bytes}
	busiest := Resource{}
	for _, resource := range slices.Sorted(maps.Keys(m.flows)) {
		f := m.flows[resource]
		one := Resource{
			Resource: resource, Objects: f.first.events, FirstListBytes: f.first.bytes, Changes: f.changes.events, Complete: !f.complete.IsZero(),
		}
		if seconds := end.Sub(f.complete).Seconds(); one.Complete && seconds > 0 {
			one.ChangesPerSecond = float64(f.changes.events) / seconds
			one.BytesPerDay = float64(f.changes.bytes) / seconds * day.Seconds()
		}
		if one.BytesPerDay > busiest.BytesPerDay {
			busiest = one
		}
		out.Resources = append(out.Resources, one)
		out.BufferADay += one.BytesPerDay * bufferShare
		out.BufferAList += float64(one.FirstListBytes) * bufferShare
	}
	for key, a := range m.objects {
		out.Loudest = append(out.Loudest, Object{key.resource, key.namespace, key.name, a.events, float64(a.bytes) / watched.Seconds() * day.Seconds()})
	}
	slices.SortFunc(out.Loudest, func(a, b Object) int {
		return cmp.Or(cmp.Compare(b.BytesPerDay, a.BytesPerDay), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	out.Loudest = out.Loudest[:min(len(out.Loudest), loudest)]
	if m.o.Partitions {
		out.Partitions = partitionsFor(busiest)
	}
	return out
}

// One partition is suggested for each partitionEvents or partitionBytes per second of the expected peak rate. One consumer can
// handle this rate.
const (
	partitionEvents = 1000    // per second
	partitionBytes  = 1 << 20 // per second
	peak            = 10      // the expected peak rate, in multiples of the measured rate
)

// partitionsFor returns the number of partitions that the topic of a resource needs for its consumers.
func partitionsFor(r Resource) int {
	events := r.ChangesPerSecond * peak / partitionEvents
	bytes := r.BytesPerDay / day.Seconds() * peak / partitionBytes
	return int(max(events, bytes)) + 1
}
