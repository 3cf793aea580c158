package bridge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/internal/core/encode"
)

// Metrics are the metrics of all pipelines of a bridge. Labels are sink, resource, type and reason,
// never names of objects.
type Metrics struct {
	sourceMetrics
	eventMetrics
	sinkMetrics
}

// sourceMetrics count reads from the API server.
type sourceMetrics struct {
	seen      *prometheus.CounterVec
	repeated  *prometheus.CounterVec
	drift     *prometheus.CounterVec
	listed    *prometheus.CounterVec
	suspended *prometheus.CounterVec
}

// eventMetrics count events, and changes that lead to no event.
type eventMetrics struct {
	delivered *prometheus.CounterVec
	gaps      *prometheus.CounterVec
	dead      *prometheus.CounterVec
	filtered  *prometheus.CounterVec
	costly    *prometheus.CounterVec
	other     map[encode.Count]*prometheus.CounterVec // by sink and resource
}

type sinkMetrics struct {
	seconds  map[string]*prometheus.HistogramVec // by operation of internal/core/delivery
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
			repeated:  counter("source_repeated_total", "Watch events and list items that are already published and lead to no event.", "sink", "resource"),
			drift:     counter("source_drift_total", "Objects that a verification found different from what was published.", "sink", "resource"),
			listed:    counter("source_lists_completed_total", "Lists that were completely compared with the inventory, by the reason of their gap.", "sink", "resource", "reason"),
			suspended: counter("collection_suspensions_total", "Suspensions of collections because the bus refused their route.", "sink", "resource"),
		},
		eventMetrics: eventMetrics{
			delivered: counter("events_delivered_total", "Events that the bus has acknowledged and the checkpoint holds.", "sink", "resource", "type"),
			gaps:      counter("gaps_total", "Gap events delivered, by reason.", "sink", "resource", "reason"),
			dead:      counter("dead_letters_total", "Dead letters that the bus has acknowledged, by reason.", "sink", "reason"),
			filtered:  counter("events_filtered_total", "Changes that the configured filter leaves out, by the type that the event would have.", "sink", "resource", "type"),
			costly:    counter("costly_changes_total", "Changes of objects that are too costly to compare exactly: with the option diff, the patch replaces more than has changed; with changedBy, changedBy is left out.", "sink", "resource", "option"),
			other: map[encode.Count]*prometheus.CounterVec{
				encode.Truncated:    counter("events_truncated_total", "Events with a truncated body: it was too large for the bus or nested too deeply.", "sink", "resource"),
				encode.Withheld:     counter("events_withheld_total", "Events whose body could not be redacted and was left out.", "sink", "resource"),
				encode.Redacted:     counter("events_redacted_total", "Bodies whose secret values were hashed or redacted.", "sink", "resource"),
				encode.FilterErrors: counter("filter_errors_total", "Events that pass because the filter could not be evaluated.", "sink", "resource"),
				encode.Ignored:      counter("events_ignored_total", "Changes that are not published because they change only fields that `ignore` covers.", "sink", "resource"),
				encode.NotKept:      counter("bodies_not_kept_total", "Bodies that were too large to keep: the next event of the object has neither before nor patch.", "sink", "resource"),
			},
		},
		sinkMetrics: sinkMetrics{
			seconds: map[string]*prometheus.HistogramVec{
				delivery.WriteToBus:       histogram("sink_write_seconds", "Time to make one batch durable on the bus.", seconds, "sink"),
				delivery.CommitCheckpoint: histogram("checkpoint_commit_seconds", "Time to make one commit durable in the checkpoint.", seconds, "sink"),
			},
			records:  histogram("sink_batch_records", "Records in one batch.", prometheus.ExponentialBuckets(1, 2, 12), "sink"),
			failures: counter("sink_failures_total", "Failed attempts to write to the bus; each is retried.", "sink"),
			outages:  counter("sink_outages_total", "Outages of the bus or the checkpoint store; retries within one outage are not counted.", "sink"),
			resets:   counter("sink_resets_total", "Resets of all collections of a sink, because the bus no longer had events that it had acknowledged.", "sink"),
		},
	}
}
