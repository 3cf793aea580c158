package pipeline

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/kubebridge/internal/status"
)

// Collector is the metrics that are read off a status when they are asked for, so
// that no event pays for them. What is not known has no series.
type Collector struct {
	status   func() status.Report
	sink     sinkDescs
	resource resourceDescs
}

// sinkDescs are the metrics with the label sink.
type sinkDescs struct {
	up, lost, foreign, events, capacity, bytes, room, oldest, lastEvent, lastCommit, waiting *prometheus.Desc
}

// resourceDescs are the metrics with the labels sink and resource.
type resourceDescs struct {
	state, behind, objects, running, read, left *prometheus.Desc
}

// NewCollector returns a collector of what report returns at each scrape.
func NewCollector(report func() status.Report) *Collector {
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kubebridge_"+name, help, labels, nil)
	}
	return &Collector{
		status: report,
		sink: sinkDescs{
			up:         of("sink_up", "1 when the bus and the checkpoint take what they are given, 0 while a failure is tried again.", "sink"),
			lost:       of("events_lost_total", "Events that the bus took in no form, or that an at-most-once bus did not take or may not have taken.", "sink"),
			foreign:    of("foreign_messages_total", "Messages on the sink's stream or in its checkpoint that the bridge did not write. They are ignored.", "sink"),
			events:     of("queue_events", "Events in the batch being written and the one that fills.", "sink"),
			capacity:   of("queue_capacity_events", "Events that those two batches take at most; a full queue holds the watches back.", "sink"),
			bytes:      of("queue_bytes", "Encoded bytes of the events in the queue.", "sink"),
			room:       of("queue_capacity_bytes", "Bytes that the queue takes; one large event may exceed it.", "sink"),
			oldest:     of("queue_oldest_timestamp_seconds", "When the oldest event in the queue was read from the API server; absent while it is empty.", "sink"),
			lastEvent:  of("events_last_delivered_timestamp_seconds", "When the last event was delivered.", "sink"),
			lastCommit: of("checkpoint_last_commit_timestamp_seconds", "When the checkpoint last moved.", "sink"),
			waiting:    of("source_waiting", "Configured resources, patterns, and API groups that patterns match, that are not watched because the API server does not serve them or cannot say what it serves.", "sink"),
		},
		resource: resourceDescs{
			state:   of("source_collections", "Collections by what they are doing.", "sink", "resource", "state"),
			behind:  of("behind_source_seconds", "How long the last delivered watch event was in the bridge: from when it was read to when the bus had it (Kubernetes does not say when a change happened). The largest of the resource's collections.", "sink", "resource"),
			objects: of("inventory_objects", "Objects that the inventory holds; absent until a list has ended.", "sink", "resource"),
			running: of("snapshot_running", "Collections whose list is under way or waits for its turn.", "sink", "resource"),
			read:    of("snapshot_read_objects", "Objects read by the lists under way; absent while there is none.", "sink", "resource"),
			left:    of("snapshot_remaining_objects", "Objects on the pages that the lists under way have not read, where the server says so (not with selectors).", "sink", "resource"),
		},
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	s, r := &c.sink, &c.resource
	for _, d := range []*prometheus.Desc{
		s.up, s.lost, s.foreign, s.events, s.capacity, s.bytes, s.room, s.oldest, s.lastEvent, s.lastCommit, s.waiting,
		r.state, r.behind, r.objects, r.running, r.read, r.left,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	r := c.status()
	for i := range r.Sinks {
		s := &r.Sinks[i]
		c.sink.collect(out, s)
		for resource, sums := range byResource(s.Collections) {
			c.resource.collect(out, sums, s.Name, resource)
		}
	}
}

func gauge(out chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (c *sinkDescs) collect(out chan<- prometheus.Metric, s *status.Sink) {
	up := 0.0
	if s.Ready {
		up = 1
	}
	gauge(out, c.up, up, s.Name)
	for d, n := range map[*prometheus.Desc]*uint64{c.lost: s.Lost, c.foreign: s.Foreign} {
		if n != nil {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(*n), s.Name)
		}
	}
	gauge(out, c.events, float64(s.Queue.Events), s.Name)
	gauge(out, c.capacity, float64(s.Queue.EventCapacity), s.Name)
	gauge(out, c.bytes, float64(s.Queue.Bytes), s.Name)
	gauge(out, c.room, float64(s.Queue.ByteCapacity), s.Name)
	for d, t := range map[*prometheus.Desc]*time.Time{c.oldest: s.Queue.Oldest, c.lastEvent: s.LastEvent, c.lastCommit: s.LastCommit} {
		if t != nil {
			gauge(out, d, float64(t.UnixNano())/float64(time.Second), s.Name)
		}
	}
	unwatched := 0
	for i := range s.Collections {
		if s.Collections[i].Unwatched() {
			unwatched++
		}
	}
	gauge(out, c.waiting, float64(unwatched), s.Name)
}

func (c *resourceDescs) collect(out chan<- prometheus.Metric, s *sums, sink, resource string) {
	for _, state := range status.States() { // also those of no collection: a sum of them is 0, not absent
		gauge(out, c.state, float64(s.states[state]), sink, resource, string(state))
	}
	if s.lag != nil {
		gauge(out, c.behind, *s.lag, sink, resource)
	}
	if !s.uncounted {
		gauge(out, c.objects, float64(s.objects), sink, resource)
	}
	gauge(out, c.running, float64(s.lists.Running), sink, resource)
	if s.lists.Running == 0 {
		return
	}
	gauge(out, c.read, float64(s.lists.Read), sink, resource)
	if !s.lists.Unknown {
		gauge(out, c.left, float64(s.lists.Remaining), sink, resource)
	}
}

// sums are the collections of one resource.
type sums struct {
	states    map[status.State]int
	lag       *float64 // the largest
	objects   int64
	uncounted bool // a collection's objects are not known
	lists     status.Lists
}

func byResource(list []status.Collection) map[string]*sums {
	out := map[string]*sums{}
	for i := range list {
		c := &list[i]
		if c.Unwatched() {
			continue
		}
		s := out[c.Resource]
		if s == nil {
			s = &sums{states: map[status.State]int{}}
			out[c.Resource] = s
		}
		s.states[c.State]++
		if c.Lag != nil && (s.lag == nil || *c.Lag > *s.lag) {
			s.lag = c.Lag
		}
		if c.Objects == nil {
			s.uncounted = true
		} else {
			s.objects += *c.Objects
		}
		s.lists.Add(c)
	}
	return out
}
