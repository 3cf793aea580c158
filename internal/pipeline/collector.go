package pipeline

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// Collector is the metrics that are read off a status when they are asked for, so
// that no event pays for them. What is not known has no series.
type Collector struct {
	status func() []LaneStatus

	up, lost, events, capacity, bytes, room, oldest *prometheus.Desc
	behind, objects, running, read, left, waiting   *prometheus.Desc
}

// NewCollector returns a collector of what status returns at each scrape.
func NewCollector(status func() []LaneStatus) *Collector {
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kubebridge_"+name, help, labels, nil)
	}
	return &Collector{
		status:   status,
		up:       of("sink_up", "1 when the bus and the checkpoint take what they are given, 0 while a failure is tried again.", "sink"),
		lost:     of("events_lost_total", "Events that an at-most-once bus did not take, or may not have taken.", "sink"),
		events:   of("queue_events", "Events in the batch being written and the one that fills.", "sink"),
		capacity: of("queue_capacity_events", "Events that those two batches take at most; a full queue holds the watches back.", "sink"),
		bytes:    of("queue_bytes", "Encoded bytes of the events in the queue.", "sink"),
		room:     of("queue_capacity_bytes", "Bytes that the queue takes; one large event may exceed it.", "sink"),
		oldest:   of("queue_oldest_timestamp_seconds", "When the oldest event in the queue was read from the API server; absent while it is empty.", "sink"),
		behind:   of("behind_source_seconds", "How long the last delivered watch event was in the bridge: from when it was read to when the bus had it (Kubernetes does not say when a change happened). The largest of the resource's collections.", "sink", "resource"),
		objects:  of("inventory_objects", "Objects that the inventory holds; absent until a list has ended.", "sink", "resource"),
		running:  of("snapshot_running", "Collections whose list is under way or waits for its turn.", "sink", "resource"),
		read:     of("snapshot_read_objects", "Objects read by the lists under way; absent while there is none.", "sink", "resource"),
		waiting:  of("source_waiting", "Configured resources, patterns, and API groups that patterns match, that are not watched because the API server does not serve them or cannot say what it serves.", "sink"),
		left:     of("snapshot_remaining_objects", "Objects on the pages that the lists under way have not read, where the server says so (not with selectors).", "sink", "resource"),
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.up, c.lost, c.events, c.capacity, c.bytes, c.room, c.oldest, c.behind, c.objects, c.running, c.read, c.left, c.waiting,
	} {
		out <- d
	}
}

// sums are the collections of one resource.
type sums struct {
	behind     *float64
	objects    int64
	uncounted  bool // a collection's objects are not known
	running    int
	read, left int64
	known      bool // left is
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, l := range c.status() {
		up := 0.0
		if l.Ready {
			up = 1
		}
		gauge(c.up, up, l.Sink)
		if l.Lost != nil {
			out <- prometheus.MustNewConstMetric(c.lost, prometheus.CounterValue, float64(*l.Lost), l.Sink)
		}
		gauge(c.events, float64(l.Queue.Events), l.Sink)
		gauge(c.capacity, float64(l.Queue.Capacity), l.Sink)
		gauge(c.bytes, float64(l.Queue.Bytes), l.Sink)
		gauge(c.room, float64(l.Queue.Room), l.Sink)
		if t := l.Queue.Oldest; t != nil {
			gauge(c.oldest, float64(t.UnixNano())/float64(time.Second), l.Sink)
		}
		waiting := 0
		for i := range l.Collections {
			if l.Collections[i].Resource == "" {
				waiting++
			}
		}
		gauge(c.waiting, float64(waiting), l.Sink)
		for resource, s := range byResource(l.Collections) {
			gauge(c.running, float64(s.running), l.Sink, resource)
			if s.behind != nil {
				gauge(c.behind, *s.behind, l.Sink, resource)
			}
			if !s.uncounted {
				gauge(c.objects, float64(s.objects), l.Sink, resource)
			}
			if s.running == 0 {
				continue
			}
			gauge(c.read, float64(s.read), l.Sink, resource)
			if s.known {
				gauge(c.left, float64(s.left), l.Sink, resource)
			}
		}
	}
}

func byResource(list []CollectionStatus) map[string]*sums {
	out := map[string]*sums{}
	for i := range list {
		c := &list[i]
		if c.Resource == "" { // it is only asked for
			continue
		}
		s := out[c.Resource]
		if s == nil {
			s = &sums{known: true}
			out[c.Resource] = s
		}
		if c.Behind != nil && (s.behind == nil || *c.Behind > *s.behind) {
			s.behind = c.Behind
		}
		if c.Objects == nil {
			s.uncounted = true
		} else {
			s.objects += *c.Objects
		}
		if c.State != source.Reconciling || c.List == nil {
			continue
		}
		s.running++
		s.read += c.List.Read
		if c.List.Remaining == nil {
			s.known = false
		} else {
			s.left += *c.List.Remaining
		}
	}
	return out
}
