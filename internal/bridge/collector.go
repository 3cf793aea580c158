package bridge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/kubebridge/internal/operate/status"
)

// Collector has the metrics that are computed from a status at each scrape, so
// they cost nothing per event. Unknown values have no series.
type Collector struct {
	status   func() status.Report
	sink     sinkDescs
	resource resourceDescs
	buffer   bufferDescs
	audit    auditDescs
	watches  *prometheus.Desc
}

// sinkDescs are the metrics with the label sink.
type sinkDescs struct {
	up, lost, foreign, events, capacity, bytes, room, oldest, lastEvent, lastCommit, waiting *prometheus.Desc
}

// resourceDescs are the metrics with the labels sink and resource.
type resourceDescs struct {
	state, edits, behind, objects, running, read, left *prometheus.Desc
}

// bufferDescs are the metrics of the disk buffer. They have no labels, and no series without a buffer.
type bufferDescs struct {
	bytes, room, targets, ended, aged, failed, missing, frames *prometheus.Desc
}

// auditDescs are the metrics of audit records, which have no series if the audit log is not read, and of attributions, with the label sink.
type auditDescs struct {
	bytes, room, records, dropped, unparsable, refused, gaps, needed, fileRead, attributions, waiting, denied *prometheus.Desc
}

// NewCollector returns a collector that calls report at each scrape.
func NewCollector(report func() status.Report) *Collector {
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kubebridge_"+name, help, labels, nil)
	}
	return &Collector{
		status:  report,
		watches: of("watches_open", "Open watches at the API server. Sinks that read the same objects share one."),
		sink: sinkDescs{
			up:         of("sink_up", "1 while the bus and the checkpoint work; 0 while a write or a check of the bus fails, or has had no answer for 15 seconds.", "sink"),
			lost:       of("events_lost_total", "Events that are lost: the bus refused them even as dead letters, or they were sent with delivery at-most-once and the bus did not, or may not, have received them.", "sink"),
			foreign:    of("foreign_messages_total", "Messages on the sink's stream or in its checkpoint that the bridge did not write. They are ignored.", "sink"),
			events:     of("queue_events", "Events in the two batches of the queue: the batch being written and the next one.", "sink"),
			capacity:   of("queue_capacity_events", "Largest number of events in the queue. While the queue is full, watches wait.", "sink"),
			bytes:      of("queue_bytes", "Encoded bytes of the events in the queue.", "sink"),
			room:       of("queue_capacity_bytes", "Largest number of bytes in the queue; one large event may exceed it.", "sink"),
			oldest:     of("queue_oldest_timestamp_seconds", "When the oldest event in the queue was read from the API server; absent while it is empty.", "sink"),
			lastEvent:  of("events_last_delivered_timestamp_seconds", "When the last event was delivered.", "sink"),
			lastCommit: of("checkpoint_last_commit_timestamp_seconds", "When the last commit to the checkpoint ended.", "sink"),
			waiting:    of("source_waiting", "Configured resources, patterns and API groups of patterns that are not watched, because the API server does not serve them or its discovery for them fails, and entries whose names several resources have.", "sink"),
		},
		resource: resourceDescs{
			state:   of("source_collections", "Collections by state.", "sink", "resource", "state"),
			edits:   of("source_edits_waiting", "Collections whose changed configuration waits until what the disk buffer has of them is published.", "sink", "resource"),
			behind:  of("behind_source_seconds", "Time from the read of the last delivered watch event to its acknowledgement by the bus (Kubernetes does not report when a change happened). The largest value of the resource's collections.", "sink", "resource"),
			objects: of("inventory_objects", "Objects in the inventory; absent until the first list has ended.", "sink", "resource"),
			running: of("snapshot_running", "Collections whose list is running or waits to start.", "sink", "resource"),
			read:    of("snapshot_read_objects", "Objects read by running lists; absent while no list runs.", "sink", "resource"),
			left:    of("snapshot_remaining_objects", "Objects that running lists have still to read, if the API server reports them (it does not with selectors).", "sink", "resource"),
		},
		buffer: bufferDescs{
			bytes:   of("buffer_bytes", "Bytes of the disk buffer. It is empty while every sink is in step."),
			room:    of("buffer_capacity_bytes", "buffer.maxBytes, from which on nothing more is buffered."),
			targets: of("buffer_recordings", "Watches that are recorded in the disk buffer, because a sink is behind; on a standby, a sink of the leader."),
			ended:   of("buffer_ended_recordings", "Recordings that go on no longer, because the buffer was full, a write failed, or the resource is gone, and that a sink has not published completely."),
			aged:    of("buffer_aged_recordings", "Recordings of which maxAge has deleted what a sink has not published."),
			failed:  of("buffer_failed_recordings_total", "Recordings that could not begin, because the disk is full or fails."),
			missing: of("buffer_unlisted_recordings", "Recordings of the leader that standbys with buffer.standby do not learn of, because the ConfigMap for them is full or cannot be written."),
			frames:  of("buffer_frames_total", "Changes, list items and bookmarks that were written to the disk buffer."),
		},
		audit: auditDescs{
			bytes:        of("audit_bytes", "Bytes of audit records on disk. Records that no sink needs are deleted."),
			room:         of("audit_capacity_bytes", "audit.maxBytes, from which on no more records are accepted."),
			records:      of("audit_records_total", "Audit records that were stored."),
			dropped:      of("audit_dropped_total", "Audit events that say nothing about a change, and are not stored.", "reason"),
			unparsable:   of("audit_unparsable_total", "Audit events that could not be read. They are lost."),
			refused:      of("audit_refused_total", "Requests of API servers to the webhook that were not answered with 200. An API server repeats each at most four times.", "reason"),
			gaps:         of("audit_gaps_total", "Places where an unknown number of audit records is missing."),
			needed:       of("audit_needed_records", "Audit records on disk that the sink still needs.", "sink"),
			fileRead:     of("audit_file_read_timestamp_seconds", "All that was written to audit.file before this time is stored; absent until the end of the file is reached."),
			attributions: of("attributions_total", "Published changes by what the audit log says about them: exact, actor (exact, and the event of the change has the request), the reason why there are only candidates, no-record, or dropped because the collection was reset or removed.", "sink", "result"),
			waiting:      of("attributions_waiting", "Published changes that wait for their audit records.", "sink"),
			denied:       of("denied_requests_total", "Requests that the API server denied, with audit.denied, by what has become of them: published, dropped because the sink does not publish the resource any more, rejected by the bus, or lost because too many were waiting.", "sink", "result"),
		},
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	s, r, b, a := &c.sink, &c.resource, &c.buffer, &c.audit
	for _, d := range []*prometheus.Desc{
		s.up, s.lost, s.foreign, s.events, s.capacity, s.bytes, s.room, s.oldest, s.lastEvent, s.lastCommit, s.waiting,
		r.state, r.edits, r.behind, r.objects, r.running, r.read, r.left,
		b.bytes, b.room, b.targets, b.ended, b.aged, b.failed, b.missing, b.frames,
		a.bytes, a.room, a.records, a.dropped, a.unparsable, a.refused, a.gaps, a.needed, a.fileRead, a.attributions, a.waiting, a.denied,
		c.watches,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	r := c.status()
	gauge(out, c.watches, float64(r.Watches))
	if r.Buffer != nil {
		c.buffer.collect(out, r.Buffer)
	}
	if r.Audit != nil {
		c.audit.collect(out, r.Audit)
	}
	for i := range r.Sinks {
		s := &r.Sinks[i]
		c.sink.collect(out, s)
		if s.Attribution != nil {
			c.audit.collectSink(out, s.Attribution, s.Name)
		}
		for resource, sums := range byResource(s.Collections) {
			c.resource.collect(out, sums, s.Name, resource)
		}
	}
}

func gauge(out chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter(out chan<- prometheus.Metric, d *prometheus.Desc, n uint64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (c *auditDescs) collect(out chan<- prometheus.Metric, a *status.Audit) {
	gauge(out, c.bytes, float64(a.Bytes))
	gauge(out, c.room, float64(a.MaxBytes))
	counter(out, c.records, a.Records)
	counter(out, c.unparsable, a.Unparsable)
	counter(out, c.gaps, a.Gaps)
	for reason, n := range a.Dropped {
		counter(out, c.dropped, n, reason)
	}
	for reason, n := range a.Refused {
		counter(out, c.refused, n, reason)
	}
	for sink, n := range a.Needed {
		gauge(out, c.needed, float64(n), sink)
	}
	if t := a.FileRead; t != nil {
		gauge(out, c.fileRead, seconds(*t))
	}
}

func (c *auditDescs) collectSink(out chan<- prometheus.Metric, a *status.Attribution, sink string) {
	gauge(out, c.waiting, float64(a.Waiting), sink)
	counter(out, c.attributions, a.Exact, sink, "exact")
	counter(out, c.attributions, a.Carried, sink, "actor")
	for reason, n := range a.Candidates {
		counter(out, c.attributions, n, sink, reason)
	}
	counter(out, c.attributions, a.NoRecord, sink, "no-record")
	counter(out, c.attributions, a.Dropped, sink, "dropped")
	for result, n := range a.Denied {
		counter(out, c.denied, n, sink, result)
	}
}

// seconds returns a time as a metric has it.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }

func (c *bufferDescs) collect(out chan<- prometheus.Metric, b *status.Buffer) {
	gauge(out, c.bytes, float64(b.Bytes))
	gauge(out, c.room, float64(b.MaxBytes))
	gauge(out, c.targets, float64(b.Targets))
	gauge(out, c.ended, float64(b.Ended))
	gauge(out, c.aged, float64(b.Aged))
	counter(out, c.failed, b.Failed)
	gauge(out, c.missing, float64(b.Unlisted))
	counter(out, c.frames, b.Frames)
}

func (c *sinkDescs) collect(out chan<- prometheus.Metric, s *status.Sink) {
	up := 0.0
	if s.Ready {
		up = 1
	}
	gauge(out, c.up, up, s.Name)
	for d, n := range map[*prometheus.Desc]*uint64{c.lost: s.Lost, c.foreign: s.Foreign} {
		if n != nil {
			counter(out, d, *n, s.Name)
		}
	}
	gauge(out, c.events, float64(s.Queue.Events), s.Name)
	gauge(out, c.capacity, float64(s.Queue.EventCapacity), s.Name)
	gauge(out, c.bytes, float64(s.Queue.Bytes), s.Name)
	gauge(out, c.room, float64(s.Queue.ByteCapacity), s.Name)
	for d, t := range map[*prometheus.Desc]*time.Time{c.oldest: s.Queue.Oldest, c.lastEvent: s.LastEvent, c.lastCommit: s.LastCommit} {
		if t != nil {
			gauge(out, d, seconds(*t), s.Name)
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
	for _, state := range status.States() { // also states without a collection, so that sums are 0 and not absent
		gauge(out, c.state, float64(s.states[state]), sink, resource, string(state))
	}
	gauge(out, c.edits, float64(s.edits), sink, resource)
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
