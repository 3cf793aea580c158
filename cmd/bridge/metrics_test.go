package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/leader"
	"github.com/kubebridge/kubebridge/internal/pipeline"
	"github.com/kubebridge/kubebridge/internal/status"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

const metricsDoc = "../../docs/metrics.md"

// filling is a registerer that adds a child to every vector, so that the vector is gathered.
type filling struct{ *prometheus.Registry }

var variable = regexp.MustCompile(`variableLabels: \{([^}]*)\}`)

func (f filling) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		f.Registry.MustRegister(c)
		desc := make(chan *prometheus.Desc, 16)
		c.Describe(desc)
		labels := strings.Split(variable.FindStringSubmatch((<-desc).String())[1], ",")
		switch v := c.(type) {
		case *prometheus.CounterVec:
			v.WithLabelValues(labels...)
		case *prometheus.GaugeVec:
			v.WithLabelValues(labels...)
		case *prometheus.HistogramVec:
			v.WithLabelValues(labels...)
		}
	}
}

// everyMetric returns a registry in which every metric of the program has a value.
func everyMetric(t *testing.T) *prometheus.Registry {
	t.Helper()
	r := newRegistry()
	_, err := leader.New(leader.Options{Client: &rest.Config{Host: "127.0.0.1:1"}, Namespace: "n", Name: "l", Log: zap.NewNop(), Metrics: r})
	if err != nil {
		t.Fatal(err)
	}
	pipeline.NewMetrics(filling{r})
	now, lag, n, lost := time.Now(), 0.1, int64(1), uint64(1)
	report := func() status.Report {
		return status.Report{Sinks: []status.Sink{{
			Name: "sink", Lost: &lost, Foreign: &lost, LastEvent: &now, LastCommit: &now, Queue: status.Queue{Oldest: &now},
			Collections: []status.Collection{{Resource: "pods", State: status.Reconciling, Lag: &lag, Objects: &n, List: &status.List{Remaining: &n}}},
		}}}
	}
	r.MustRegister(newReady(report), pipeline.NewCollector(report))
	return r
}

// advice returns what to do about each metric.
func advice() map[string]string {
	return map[string]string{
		"behind_source_seconds":                    "Alert above the delay that your consumers tolerate. During an outage of the bus it keeps its last value: also alert on `queue_oldest_timestamp_seconds`.",
		"build_info":                               "Join it with other metrics to see which version has a problem.",
		"checkpoint_commit_seconds":                "When it is slow, look at the disk of a file store, or at the bus.",
		"checkpoint_last_commit_timestamp_seconds": "`time() - x` is the checkpoint's age. It grows in a quiet cluster; alert on it only where `syncedEvery` is set.",
		"collection_suspensions_total":             "Create the topic or stream, or let the bridge write to it; the log says which.",
		"dead_letters_total":                       "Look at the dead letters: each says why it is one.",
		"events_delivered_total":                   "Its rate is the throughput.",
		"events_filtered_total":                    "Nothing: it is as configured. If it is not what you meant, see `filter`.",
		"costly_changes_total":                     "Look for who writes such objects: each takes up to a tenth of a second. By option: with diff the patch is right and longer, with changedBy it is left out (leftout in the event). Ordinary objects do not count.",
		"bodies_not_kept_total":                    "Nothing, unless you need the difference of every change: larger bodies than 128 KiB, compressed, are not kept.",
		"events_ignored_total":                     "Nothing: it shows what `ignore` saves.",
		"filter_errors_total":                      "Look at the log for why: ask for a field with `has()` before reading it.",
		"events_last_delivered_timestamp_seconds":  "Nothing: a quiet cluster has no events. Use `queue_oldest_timestamp_seconds` to distinguish quiet from stuck.",
		"events_lost_total":                        "With `at-most-once` the bus may lose events; if consumers cannot bear it, use another `delivery`. With another delivery, look at the log for what the bus does not take.",
		"events_redacted_total":                    "Nothing: it shows that redaction works.",
		"events_truncated_total":                   "Raise the bus's largest message if consumers need these bodies.",
		"events_withheld_total":                    "Look at the log: the part of a body that has secrets could not be parsed.",
		"foreign_messages_total":                   "Should stay 0. The log names the first message of each minute, with its sequence and subject. Find out who may write to the stream: [security](security.md#users-that-may-write-to-the-bus).",
		"gaps_total":                               "`reset`, `resync`, `selection`, `filter`, `returned` and `gone` are usual. `drift`: see `kubebridge_source_drift_total`. `expired`, `interrupted`, `history` and `rewritten` mean that updates in between are not known: look for restarts of the API server, long outages of the bus, compaction.",
		"inventory_objects":                        "It should be what `kubectl get` counts; if not, `bridge resync` and report it.",
		"leader":                                   "The sum over the replicas should be 1. If it is 0 for longer than the Lease lasts, no replica delivers: look at the Lease.",
		"queue_bytes":                              "Near its capacity the bus is slower than the cluster.",
		"queue_capacity_bytes":                     "Divide `queue_bytes` by it.",
		"queue_capacity_events":                    "Divide `queue_events` by it.",
		"queue_events":                             "Near its capacity, the bus is slower than the cluster. No event is lost: watches wait.",
		"queue_oldest_timestamp_seconds":           "Alert on `time() - x > 60`: the bus does not take what it is given.",
		"ready":                                    "Alert when it is 0 for minutes; `/readyz` and `bridge status` say why.",
		"sink_batch_records":                       "Nothing: large batches mean high load and are efficient. `linger` makes batches larger.",
		"sink_failures_total":                      "If the rate stays above 0, the status says what fails.",
		"sink_outages_total":                       "If it rises often, look at the bus's network and leader elections.",
		"sink_resets_total":                        "Should stay 0. Find out who deleted a topic, a stream or the checkpoint: the log says which.",
		"sink_up":                                  "Alert when it is 0 for minutes; the status and the log say why.",
		"sink_write_seconds":                       "When it grows, look at the bus: its disks, its replication, its network.",
		"snapshot_read_objects":                    "Watch it grow; when it stands still, look at the queue and the API server.",
		"snapshot_remaining_objects":               "With `snapshot_read_objects` it shows how long a list will take.",
		"snapshot_running":                         "At most `kubernetes.concurrentLists` of them read at once; the others wait.",
		"source_collections":                       "Alert when `waiting` or `stalled` lasts: the status says why and what to do.",
		"source_drift_total":                       "Should stay 0. The difference is published. Find out why: for example, etcd was restored from a backup.",
		"source_events_total":                      "Its rate is the load that the cluster makes.",
		"source_lists_completed_total":             "Fewer than `gaps_total`, by reason: lists are under way, or were given up for another gap; the log says why.",
		"source_waiting":                           "Above 0: `bridge status` says what is not served, or which APIService has no server, and what to do.",
		"source_repeated_total":                    "Nothing: after a restart or a list the bridge meets what the bus knows already.",
	}
}

// TestMetricsAreDocumented: the metrics' names follow the rules of Prometheus, because dashboards and alerts use
// them, and docs/metrics.md says for each metric what
// to do about it.
func TestMetricsAreDocumented(t *testing.T) {
	r := everyMetric(t)
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "kubebridge_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var doc strings.Builder
	doc.WriteString(`# Metrics

At ` + "`/metrics`" + ` of ` + "`status.listen`" + `. This page is written by ` + "`go test ./cmd/bridge -run Metrics -update`" + `.
Labels name sinks, resources, types and reasons, never objects. Times are Unix seconds: an age is
` + "`time() - x`" + `. What is not known has no series. Counters begin at 0 with the process. Beside these there
are those of the process (` + "`process_…`" + `) and of Go (` + "`go_…`" + `).

| metric | type | labels | unit | meaning | what to do |
|---|---|---|---|---|---|
`)
	to := advice()
	for _, f := range families {
		short, ours := strings.CutPrefix(f.GetName(), "kubebridge_")
		if !ours {
			continue
		}
		if to[short] == "" {
			t.Errorf("%s: nobody says what to do about it: add it to advice in this file", f.GetName())
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		unit := "–"
		for _, u := range []string{"seconds", "bytes", "events", "objects", "records"} {
			if strings.HasSuffix(strings.TrimSuffix(short, "_total"), u) {
				unit = u
				break
			}
		}
		fmt.Fprintf(&doc, "| `%s` | %s | %s | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()),
			cmp.Or(strings.Join(labels, ", "), "–"), unit, f.GetHelp(), to[short])
	}
	if *update {
		if err := os.WriteFile(metricsDoc, []byte(doc.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile(metricsDoc)
	if err != nil {
		t.Fatal(err)
	}
	if string(is) != doc.String() {
		t.Error("docs/metrics.md is not of this code: run go test ./cmd/bridge -run Metrics -update")
	}
}
