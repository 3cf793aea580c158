package bridge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/kubebridge/internal/operate/status"
)

// Collector has the metrics that are computed from a status at each scrape, so
// they cost nothing per event. Unknown values have no series.
type Collector struct {
	status func() status.Report
	descs  map[string]*prometheus.Desc // by name without prefix
}

// NewCollector returns a collector that calls report at each scrape.
func NewCollector(report func() status.Report) *Collector {
	c := &Collector{status: report, descs: map[string]*prometheus.Desc{}}
	add := func(name, help string, labels ...string) {
		c.descs[name] = prometheus.NewDesc("kubebridge_"+name, help, labels, nil)
	}
	add("watches_open", "Open watches at the API server. Sinks that read the same objects share one.")
	add("sink_up", "1 while the bus and the checkpoint work; 0 while a write or a check of the bus fails, or has had no answer for 15 seconds.", "sink")
	add("events_lost_total", "Events that are lost: the bus refused them even as dead letters, or they were sent with delivery at-most-once and the bus did not, or may not, have received them.", "sink")
	add("foreign_messages_total", "Messages on the sink's stream or in its checkpoint that the bridge did not write. They are ignored.", "sink")
	add("queue_events", "Events in the two batches of the queue: the batch being written and the next one.", "sink")
	add("queue_capacity_events", "Largest number of events in the queue. While the queue is full, watches wait.", "sink")
	add("queue_bytes", "Encoded bytes of the events in the queue.", "sink")
	add("queue_capacity_bytes", "Largest number of bytes in the queue; one large event may exceed it.", "sink")
	add("queue_oldest_timestamp_seconds", "When the oldest event in the queue was read from the API server; absent while it is empty.", "sink")
	add("events_last_delivered_timestamp_seconds", "When the last event was delivered.", "sink")
	add("checkpoint_last_commit_timestamp_seconds", "When the last commit to the checkpoint ended.", "sink")
	add("source_waiting", "Configured resources, patterns and API groups of patterns that are not watched, because the API server does not serve them or its discovery for them fails, and entries whose names several resources have.", "sink")
	add("source_collections", "Collections by state.", "sink", "resource", "state")
	add("source_edits_waiting", "Collections whose changed configuration waits until what the disk buffer has of them is published.", "sink", "resource")
	add("behind_source_seconds", "Time from the read of the last delivered watch event to its acknowledgement by the bus (Kubernetes does not report when a change happened). The largest value of the resource's collections.", "sink", "resource")
	add("inventory_objects", "Objects in the inventory; absent until the first list has ended.", "sink", "resource")
	add("snapshot_running", "Collections whose list is running or waits to start.", "sink", "resource")
	add("snapshot_read_objects", "Objects read by running lists; absent while no list runs.", "sink", "resource")
	add("snapshot_remaining_objects", "Objects that running lists have still to read, if the API server reports them (it does not with selectors).", "sink", "resource")
	add("buffer_bytes", "Bytes of the disk buffer. It is empty while every sink is in step.")
	add("buffer_capacity_bytes", "buffer.maxBytes, from which on nothing more is buffered.")
	add("buffer_recordings", "Watches that are recorded in the disk buffer, because a sink is behind; on a standby, a sink of the leader.")
	add("buffer_ended_recordings", "Recordings that go on no longer, because the buffer was full, a write failed, or the resource is gone, and that a sink has not published completely.")
	add("buffer_aged_recordings", "Recordings of which maxAge has deleted what a sink has not published.")
	add("buffer_failed_recordings_total", "Recordings that could not begin, because the disk is full or fails.")
	add("buffer_unlisted_recordings", "Recordings of the leader that standbys with buffer.standby do not learn of, because the ConfigMap for them is full or cannot be written.")
	add("buffer_frames_total", "Changes, list items and bookmarks that were written to the disk buffer.")
	add("audit_bytes", "Bytes of audit records on disk. Records that no sink needs are deleted.")
	add("audit_capacity_bytes", "audit.maxBytes, from which on no more records are accepted.")
	add("audit_records_total", "Audit records that were stored.")
	add("audit_dropped_total", "Audit events that say nothing about a change, and are not stored.", "reason")
	add("audit_unparsable_total", "Audit events that could not be read. They are lost.")
	add("audit_refused_total", "Requests of API servers to the webhook that were not answered with 200. An API server repeats each at most four times.", "reason")
	add("audit_gaps_total", "Places where an unknown number of audit records is missing.")
	add("audit_needed_records", "Audit records on disk that the sink still needs.", "sink")
	add("audit_file_read_timestamp_seconds", "All that was written to audit.file before this time is stored; absent until the end of the file is reached.")
	add("attributions_total", "Published changes by what the audit log says about them: exact, actor (exact, and the event of the change has the request), the reason why there are only candidates, no-record, or dropped because the collection was reset or removed.", "sink", "result")
	add("attributions_waiting", "Published changes that wait for their audit records.", "sink")
	add("denied_requests_total", "Requests that the API server denied, with audit.denied, by what has become of them: published, dropped because the sink does not publish the resource any more, rejected by the bus, or lost because too many were waiting.", "sink", "result")
	return c
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	r, to := c.status(), &scrape{out, c.descs}
	to.gauge("watches_open", float64(r.Watches))
	if r.Buffer != nil {
		to.buffer(r.Buffer)
	}
	if r.Audit != nil {
		to.audit(r.Audit)
	}
	for i := range r.Sinks {
		s := &r.Sinks[i]
		to.sink(s)
		if s.Attribution != nil {
			to.attribution(s.Attribution, s.Name)
		}
		for resource, sums := range byResource(s.Collections) {
			to.resource(sums, s.Name, resource)
		}
	}
}

type scrape struct {
	out   chan<- prometheus.Metric
	descs map[string]*prometheus.Desc
}

func (s *scrape) gauge(name string, v float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(s.descs[name], prometheus.GaugeValue, v, labels...)
}

func (s *scrape) counter(name string, n uint64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(s.descs[name], prometheus.CounterValue, float64(n), labels...)
}

func (s *scrape) audit(a *status.Audit) {
	s.gauge("audit_bytes", float64(a.Bytes))
	s.gauge("audit_capacity_bytes", float64(a.MaxBytes))
	s.counter("audit_records_total", a.Records)
	s.counter("audit_unparsable_total", a.Unparsable)
	s.counter("audit_gaps_total", a.Gaps)
	for reason, n := range a.Dropped {
		s.counter("audit_dropped_total", n, reason)
	}
	for reason, n := range a.Refused {
		s.counter("audit_refused_total", n, reason)
	}
	for sink, n := range a.Needed {
		s.gauge("audit_needed_records", float64(n), sink)
	}
	if t := a.FileRead; t != nil {
		s.gauge("audit_file_read_timestamp_seconds", seconds(*t))
	}
}

func (s *scrape) attribution(a *status.Attribution, sink string) {
	s.gauge("attributions_waiting", float64(a.Waiting), sink)
	s.counter("attributions_total", a.Exact, sink, "exact")
	s.counter("attributions_total", a.Carried, sink, "actor")
	for reason, n := range a.Candidates {
		s.counter("attributions_total", n, sink, reason)
	}
	s.counter("attributions_total", a.NoRecord, sink, "no-record")
	s.counter("attributions_total", a.Dropped, sink, "dropped")
	for result, n := range a.Denied {
		s.counter("denied_requests_total", n, sink, result)
	}
}

// seconds returns a time as a metric has it.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }

func (s *scrape) buffer(b *status.Buffer) {
	s.gauge("buffer_bytes", float64(b.Bytes))
	s.gauge("buffer_capacity_bytes", float64(b.MaxBytes))
	s.gauge("buffer_recordings", float64(b.Targets))
	s.gauge("buffer_ended_recordings", float64(b.Ended))
	s.gauge("buffer_aged_recordings", float64(b.Aged))
	s.counter("buffer_failed_recordings_total", b.Failed)
	s.gauge("buffer_unlisted_recordings", float64(b.Unlisted))
	s.counter("buffer_frames_total", b.Frames)
}

func (s *scrape) sink(k *status.Sink) {
	up := 0.0
	if k.Ready {
		up = 1
	}
	s.gauge("sink_up", up, k.Name)
	for d, n := range map[string]*uint64{"events_lost_total": k.Lost, "foreign_messages_total": k.Foreign} {
		if n != nil {
			s.counter(d, *n, k.Name)
		}
	}
	s.gauge("queue_events", float64(k.Queue.Events), k.Name)
	s.gauge("queue_capacity_events", float64(k.Queue.EventCapacity), k.Name)
	s.gauge("queue_bytes", float64(k.Queue.Bytes), k.Name)
	s.gauge("queue_capacity_bytes", float64(k.Queue.ByteCapacity), k.Name)
	for d, t := range map[string]*time.Time{"queue_oldest_timestamp_seconds": k.Queue.Oldest, "events_last_delivered_timestamp_seconds": k.LastEvent, "checkpoint_last_commit_timestamp_seconds": k.LastCommit} {
		if t != nil {
			s.gauge(d, seconds(*t), k.Name)
		}
	}
	unwatched := 0
	for i := range k.Collections {
		if k.Collections[i].Unwatched() {
			unwatched++
		}
	}
	s.gauge("source_waiting", float64(unwatched), k.Name)
}

func (s *scrape) resource(of *sums, sink, resource string) {
	for _, state := range status.States() { // also states without a collection, so that sums are 0 and not absent
		s.gauge("source_collections", float64(of.states[state]), sink, resource, string(state))
	}
	s.gauge("source_edits_waiting", float64(of.edits), sink, resource)
	if of.lag != nil {
		s.gauge("behind_source_seconds", *of.lag, sink, resource)
	}
	if !of.uncounted {
		s.gauge("inventory_objects", float64(of.objects), sink, resource)
	}
	s.gauge("snapshot_running", float64(of.lists.Running), sink, resource)
	if of.lists.Running == 0 {
		return
	}
	s.gauge("snapshot_read_objects", float64(of.lists.Read), sink, resource)
	if !of.lists.Unknown {
		s.gauge("snapshot_remaining_objects", float64(of.lists.Remaining), sink, resource)
	}
}

// sums adds up the collections of one resource.
type sums struct {
	states    map[status.State]int
	edits     int      // that wait
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
		if c.EditWaits != nil {
			s.edits++
		}
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
