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

	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/operate/leader"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/internal/past/mirror/api"
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
	bridge.NewMetrics(filling{r})
	now, lag, n, lost := time.Now(), 0.1, int64(1), uint64(1)
	report := func() status.Report {
		by := map[string]uint64{"reason": 1}
		records := &status.Audit{Dropped: by, Refused: by, Needed: map[string]uint64{"sink": 1}, FileRead: &now}
		return status.Report{Buffer: &status.Buffer{}, Audit: records, Sinks: []status.Sink{{
			Name: "sink", Attribution: &status.Attribution{Denied: by}, Lost: &lost, Foreign: &lost, LastEvent: &now, LastCommit: &now, Queue: status.Queue{Oldest: &now},
			Collections: []status.Collection{{Resource: "pods", State: status.Reconciling, Lag: &lag, Objects: &n, List: &status.List{Remaining: &n}}},
		}}}
	}
	r.MustRegister(newReady(report), bridge.NewCollector(report))
	api.NewMetrics(filling{r})
	progress := &copyProgress{}
	progress.note(0)
	r.MustRegister(newServeMetrics(func() []api.State { return []api.State{{Resource: "pods", Time: time.Now()}} }, progress, func() int64 { return 1 })...)
	return r
}

// advice returns what to do about each metric.
func advice() map[string]string {
	return map[string]string{
		"attributions_total":                       "Many `no-record`: the audit policy, or an API server, does not send the records of these resources ([set up](attribution.md#set-up-the-api-server)). [What the other results mean](attribution.md#when-an-answer-is-exact).",
		"attributions_waiting":                     "If it grows, the records do not come: compare it with the rate of `audit_records_total`.",
		"denied_requests_total":                    "Alert on `published` to hear of users who try what they may not do. `lost` and `rejected` should stay 0: the log says why.",
		"audit_bytes":                              "Alert above 0.8 of its capacity: a sink is behind.",
		"audit_capacity_bytes":                     "Divide `audit_bytes` by it.",
		"audit_dropped_total":                      "If reads are most of it, leave them out in the audit policy: they cost the API server and the network.",
		"audit_file_read_timestamp_seconds":        "If `time() - x` grows, the bridge reads the file more slowly than the API server writes it, or cannot store the records.",
		"audit_needed_records":                     "The sink with the most keeps records of all sinks: its bus is away, or its route is refused.",
		"audit_gaps_total":                         "Should stay 0. The log says where: some changes then have candidates only.",
		"audit_records_total":                      "If it stays the same while objects change, the API server sends nothing: look at its `apiserver_audit_error_total`.",
		"audit_refused_total":                      "`full`: a sink is behind. `client`: give the API server the right token or certificate. `size`: see the log. Others: see the log.",
		"audit_unparsable_total":                   "Should stay 0. The log has the reason.",
		"behind_source_seconds":                    "Alert above the delay that your consumers tolerate. During an outage it keeps its last value: also alert on `queue_oldest_timestamp_seconds`.",
		"buffer_aged_recordings":                   "Above 0: a gap follows. Raise `buffer.maxAge` before the next outage.",
		"buffer_failed_recordings_total":           "If it rises: the log says why. Outages cost what they cost without a buffer.",
		"buffer_bytes":                             "Alert above 0.8 of its capacity: the bus has to come back soon.",
		"buffer_capacity_bytes":                    "Divide `buffer_bytes` by it.",
		"buffer_ended_recordings":                  "Above 0: a gap is likely. The log says why: a full buffer needs more room before the next outage.",
		"buffer_frames_total":                      "Nothing. Its rate is what an outage costs the disk.",
		"buffer_recordings":                        "Above 0 for long: look at the bus.",
		"buffer_unlisted_recordings":               "Above 0: after a failover during the outage, a gap is likely for these. The log says why.",
		"build_info":                               "Join it with other metrics.",
		"checkpoint_commit_seconds":                "If it is slow, look at the disk of a file store, or at the bus.",
		"checkpoint_last_commit_timestamp_seconds": "It grows old in a quiet cluster: alert on it only with `syncedEvery`.",
		"collection_suspensions_total":             "Create the topic or stream that the log names, or let the bridge write to it.",
		"dead_letters_total":                       "Each dead letter has its reason.",
		"events_delivered_total":                   "Its rate is the throughput.",
		"events_filtered_total":                    "Nothing. If it is not what you meant, see `filter`.",
		"costly_changes_total":                     "Find out who writes such objects: each takes up to a tenth of a second.",
		"bodies_not_kept_total":                    "Nothing, unless you need every difference: larger bodies than 128 KiB, compressed, are not kept.",
		"events_ignored_total":                     "Nothing.",
		"filter_errors_total":                      "The log says why: ask for a field with `has()` before reading it.",
		"events_last_delivered_timestamp_seconds":  "Nothing. `queue_oldest_timestamp_seconds` distinguishes quiet from stuck.",
		"events_lost_total":                        "Use another `delivery` than `at-most-once`, or see the log for what the bus does not take.",
		"events_redacted_total":                    "Nothing.",
		"events_truncated_total":                   "Raise the bus's largest message if consumers need these bodies.",
		"events_withheld_total":                    "See the log: the part of a body that has secrets could not be parsed.",
		"foreign_messages_total":                   "Should stay 0. The log names one each minute: find out who may write to the stream ([security](security.md#users-that-may-write-to-the-bus)).",
		"gaps_total":                               "`reset`, `resync`, `selection`, `filter`, `returned` and `gone` are usual. `drift`: see `kubebridge_source_drift_total`. `expired`, `interrupted`, `history` and `rewritten` mean that updates in between are not known: look for outages and compaction.",
		"inventory_objects":                        "It should be what `kubectl get` counts; if not, `bridge resync` and report it.",
		"leader":                                   "The sum over the replicas should be 1. If it stays 0, look at the Lease.",
		"queue_bytes":                              "Near its capacity, the bus is slower than the cluster.",
		"queue_capacity_bytes":                     "Divide `queue_bytes` by it.",
		"queue_capacity_events":                    "Divide `queue_events` by it.",
		"queue_events":                             "As `queue_bytes`. No event is lost: watches wait.",
		"queue_oldest_timestamp_seconds":           "Alert on `time() - x > 60`: the bus does not take what it is given.",
		"source_edits_waiting":                     "Above 0 for long: look at the bus, as for `buffer_recordings`.",
		"ready":                                    "Alert if it is 0 for minutes; `bridge status` says why.",
		"serve_behind_messages":                    "If it stays above 0, `bridge serve` does not read the bus: its log says why.",
		"serve_current":                            "0 for long: a gap is open; look at the bridge.",
		"serve_disk_bytes":                         "If it grows too far, lower `--retain`.",
		"serve_last_event_timestamp_seconds":       "It grows old if nothing changes. With `syncedEvery`, alert on a multiple of it: the bridge, the bus or the copy stands still.",
		"serve_ready":                              "Alert if it is 0 for minutes; `serve_behind_messages` says how much is left.",
		"serve_requests_total":                     "Many 401 or 403: a client has wrong credentials, or lacks rights. 503: see the log.",
		"serve_watches":                            "Nothing. It is the number of clients that follow changes.",
		"sink_batch_records":                       "Nothing. `linger` makes batches larger.",
		"sink_failures_total":                      "If the rate stays above 0, the status says what fails.",
		"sink_outages_total":                       "If it rises often, look at the bus's network and leader elections.",
		"sink_resets_total":                        "Should stay 0. The log says which topic, stream or checkpoint was deleted.",
		"sink_up":                                  "Alert if it is 0 for minutes; the status says why.",
		"sink_write_seconds":                       "If it grows, look at the bus: disks, replication, network.",
		"snapshot_read_objects":                    "If it stands still, look at the queue and the API server.",
		"snapshot_remaining_objects":               "With `snapshot_read_objects` it shows how long a list will take.",
		"snapshot_running":                         "At most `kubernetes.concurrentLists` read at once.",
		"source_collections":                       "Alert if `waiting` or `stalled` lasts: the status says why.",
		"source_drift_total":                       "Should stay 0. Find out why: for example, etcd was restored from a backup.",
		"source_events_total":                      "Its rate is the load that the cluster makes.",
		"source_lists_completed_total":             "If fewer than `gaps_total`, lists are running or were given up.",
		"source_waiting":                           "Above 0: `bridge status` says what is not served.",
		"watches_open":                             "What the bridge costs the API server while nothing changes.",
		"source_repeated_total":                    "Nothing: it is usual after a restart or a list.",
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

This page is for people who operate the bridge. It lists the metrics at ` + "`/metrics`" + ` of ` + "`status.listen`" + `, beside those of the process
(` + "`process_…`" + `) and of Go (` + "`go_…`" + `). Those that begin with ` + "`kubebridge_serve_`" + ` are at ` + "`/metrics`" + ` of [bridge serve](serve.md#metrics-and-probes). It is written by ` + "`go test ./cmd/bridge -run Metrics -update`" + `.

Labels name sinks, resources, types and reasons, never objects. Timestamps are Unix seconds: an age is ` + "`time() - x`" + `. What is not known has no
series. Counters begin at 0 with the process.

| metric | type | labels | meaning | what to do |
|---|---|---|---|---|
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
		fmt.Fprintf(&doc, "| `%s` | %s | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()),
			cmp.Or(strings.Join(labels, ", "), "–"), f.GetHelp(), to[short])
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
