package pipeline

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/kubebridge/internal/delivery"
)

// Metrics are those of all pipelines of a bridge. Labels are sink, resource, type and reason,
// never names of objects.
type Metrics struct {
	sourceMetrics
	eventMetrics
	sinkMetrics
}

// sourceMetrics are about what is read from the API server.
type sourceMetrics struct {
	seen      *prometheus.CounterVec
	repeated  *prometheus.CounterVec
	drift     *prometheus.CounterVec
	listed    *prometheus.CounterVec
	suspended *prometheus.CounterVec
}

// eventMetrics are about what becomes of what was read.
type eventMetrics struct {
	delivered    *prometheus.CounterVec
	gaps         *prometheus.CounterVec
	dead         *prometheus.CounterVec
	truncated    *prometheus.CounterVec
	unredacted   *prometheus.CounterVec
	redacted     *prometheus.CounterVec
	filtered     *prometheus.CounterVec
	filterErrors *prometheus.CounterVec
	ignored      *prometheus.CounterVec
	unkept       *prometheus.CounterVec
	costly       *prometheus.CounterVec
}

// sinkMetrics are about the bus and the checkpoint.
type sinkMetrics struct {
	seconds  map[string]*prometheus.HistogramVec // by operation of internal/delivery
	records  *prometheus.HistogramVec
	failures *prometheus.CounterVec
	outages  *prometheus.CounterVec
	resets   *prometheus.CounterVec
}

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "kubebridge", Name: name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "kubebridge", Name: name, Help: help, Buckets: buckets}, labels)
		r.MustRegister(v)
		return v
	}
	seconds := prometheus.ExponentialBuckets(0.0005, 2, 15) // half a millisecond to eight seconds
	return &Metrics{
		sourceMetrics: sourceMetrics{
			seen:      counter("source_events_total", "Watch events and list items read from the API server.", "sink", "resource"),
			repeated:  counter("source_repeated_total", "Events and list items that were published before.", "sink", "resource"),
			drift:     counter("source_drift_total", "Objects that a verification found different from what was published.", "sink", "resource"),
			listed:    counter("source_lists_completed_total", "Lists that were compared with the inventory to their end, by the reason of their gap.", "sink", "resource", "reason"),
			suspended: counter("collection_suspensions_total", "Times that the bus refused a collection's route and it was suspended.", "sink", "resource"),
		},
		eventMetrics: eventMetrics{
			delivered:    counter("events_delivered_total", "Events that the bus has acknowledged and the checkpoint holds.", "sink", "resource", "type"),
			gaps:         counter("gaps_total", "Gap events delivered, by reason.", "sink", "resource", "reason"),
			dead:         counter("dead_letters_total", "Events that the bus has acknowledged among the dead letters, by reason.", "sink", "reason"),
			truncated:    counter("events_truncated_total", "Events whose body was cut down, because it did not fit the bus or is nested too deeply.", "sink", "resource"),
			unredacted:   counter("events_withheld_total", "Events whose body could not be redacted and was left out.", "sink", "resource"),
			redacted:     counter("events_redacted_total", "Bodies whose secret values were hashed or redacted.", "sink", "resource"),
			filtered:     counter("events_filtered_total", "Changes that the configured filter leaves out, by the type they would have had.", "sink", "resource", "type"),
			filterErrors: counter("filter_errors_total", "Events that pass because the filter could not be evaluated.", "sink", "resource"),
			ignored:      counter("events_ignored_total", "Changes of nothing but what the configuration ignores.", "sink", "resource"),
			unkept:       counter("bodies_not_kept_total", "Bodies that were too large to keep: the next change has neither before nor patch.", "sink", "resource"),
			costly:       counter("costly_changes_total", "Changes of objects that take too many steps to compare: with the option diff the patch replaces more than has changed, with changedBy it is left out.", "sink", "resource", "option"),
		},
		sinkMetrics: sinkMetrics{
			seconds: map[string]*prometheus.HistogramVec{
				delivery.WriteToBus:       histogram("sink_write_seconds", "Time to make one batch durable on the bus.", seconds, "sink"),
				delivery.CommitCheckpoint: histogram("checkpoint_commit_seconds", "Time to make one commit durable in the checkpoint.", seconds, "sink"),
			},
			records:  histogram("sink_batch_records", "Records in one batch.", prometheus.ExponentialBuckets(1, 2, 12), "sink"),
			failures: counter("sink_failures_total", "Failed attempts to write to the bus; each is tried again.", "sink"),
			outages:  counter("sink_outages_total", "Times that the bus or the checkpoint stopped to take what it was given, however often it was tried.", "sink"),
			resets:   counter("sink_resets_total", "Times that every collection of a sink began again, since the bus no longer held what it had acknowledged.", "sink"),
		},
	}
}
