package alerts

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// healthy returns the series of a healthy bridge that leads, by name. They last two hours, and the second hour has no changes.
func healthy() map[string]string {
	const auditSink = `sink="audit"`
	const pods = auditSink + `,resource="pods"`
	of := map[string]string{}
	for metric, s := range map[string][2]string{
		"kubebridge_build_info":                               {`goversion="go1.26",version="v1"`, "1x240"},
		"kubebridge_ready":                                    {"", "1x240"},
		"kubebridge_leader":                                   {`lease="bridges/kubebridge-audit"`, "1x240"},
		"kubebridge_sink_up":                                  {auditSink, "1x240"},
		"kubebridge_queue_events":                             {auditSink, "0 3 0 1 0x236"},
		"kubebridge_queue_oldest_timestamp_seconds":           {auditSink, "_ 29 _ 89 _x236"},
		"kubebridge_checkpoint_last_commit_timestamp_seconds": {auditSink, "0+30x10 300x230"}, // then it is quiet
		"kubebridge_buffer_bytes":                             {"", "0x60 1e9x20 0x160"},
		"kubebridge_buffer_capacity_bytes":                    {"", "10e9x240"},
		"kubebridge_buffer_ended_recordings":                  {"", "0x240"},
		"kubebridge_audit_bytes":                              {"", "0x60 1e8x20 0x160"},
		"kubebridge_audit_capacity_bytes":                     {"", "1e9x240"},
		"kubebridge_audit_gaps_total":                         {"", "0x240"},
		"kubebridge_audit_unparsable_total":                   {"", "0x240"},
		"kubebridge_audit_refused_total":                      {`reason="full"`, "0x100 4x140"},
		"kubebridge_denied_requests_total":                    {auditSink + `,result="lost"`, "0x240"},
		"kubebridge_attributions_total":                       {auditSink + `,result="exact"`, "0+5x240"},
		"kubebridge_source_collections":                       {pods + `,state="watching"`, "1x240"},
		"kubebridge_source_drift_total":                       {pods, "_x20 0x220"},
		"kubebridge_gaps_total":                               {pods + `,reason="reset"`, "_x10 1x230"},
		"kubebridge_collection_suspensions_total":             {pods, "2x240"},
		"kubebridge_dead_letters_total":                       {auditSink + `,reason="oversize"`, "7x240"},
		"kubebridge_events_truncated_total":                   {pods, "3x240"},
		"kubebridge_events_lost_total":                        {auditSink, "0x240"},
		"kubebridge_foreign_messages_total":                   {auditSink, "0x240"},
		"kubebridge_serve_ready":                              {"", "0x20 1x220"},
		"kubebridge_serve_behind_messages":                    {"", "9e6-45e4x20 0 3 0 7 3x3 0x214"}, // it reads the bus for the first time
		"kubebridge_serve_current":                            {`resource="pods"`, "0x10 1x230"},
		"process_start_time_seconds":                          {"", "1 1x100 3060x139"}, // started again, once
		"process_resident_memory_bytes":                       {"", "120e6x240"},
		"go_gc_gomemlimit_bytes":                              {"", "480e6x240"},
	} {
		of[metric] = series(metric, s[0], s[1])
	}
	return of
}

// Neither a healthy bridge nor a standby beside it, with the series from its time as leader, fires an alert that pages.
// Counters that exist at the first scrape may have counted recently or long ago, so for 15 minutes they may fire alerts that do
// not page.
func TestHealthyIsSilent(t *testing.T) {
	all := slices.Collect(maps.Values(healthy()))
	standby := strings.NewReplacer("audit-kubebridge-0", "audit-kubebridge-1", "10.0.0.7", "10.0.0.8")
	for _, s := range []string{
		series("kubebridge_build_info", `goversion="go1.26",version="v1"`, "1x240"), series("kubebridge_ready", "", "1x240"),
		series("kubebridge_leader", `lease="bridges/kubebridge-audit"`, "0x240"),
		series("kubebridge_checkpoint_last_commit_timestamp_seconds", `sink="audit"`, "0x240"),
		series("kubebridge_gaps_total", `sink="audit",resource="pods",reason="expired"`, "1x240"),
		series("process_resident_memory_bytes", "", "400e6x240"), series("go_gc_gomemlimit_bytes", "", "9.22e18x240"),
	} {
		all = append(all, standby.Replace(s))
	}
	// Another program of the same Prometheus.
	all = append(all, `process_resident_memory_bytes{job="other",instance="x"} 9e9x240`, `go_gc_gomemlimit_bytes{job="other",instance="x"} 1e9x240`)
	for i, now := range evaluate(t, all, 30*time.Minute, time.Hour, 2*time.Hour) {
		for _, f := range now {
			t.Errorf("at %d: %v fires", i, f.labels)
		}
	}
}

// Each alert must be silent before its condition, or before the condition has lasted long enough, and firing afterwards. Its
// text must name the labels.
func TestEachFires(t *testing.T) {
	const hour = "x120 "
	type fault struct {
		set           []string // metric, own labels, values
		silent, fires time.Duration
		labels        map[string]string
		says          []string
	}
	at := func(minutes int) time.Duration { return time.Hour + time.Duration(minutes)*time.Minute }
	auditSink := map[string]string{"sink": "audit"}
	pods := map[string]string{"sink": "audit", "resource": "pods"}
	lease := map[string]string{"lease": "bridges/kubebridge-audit"}
	pod := map[string]string{"pod": "audit-kubebridge-0"}
	faults := map[string]fault{
		"KubebridgeDown": {
			[]string{"kubebridge_build_info", `goversion="go1.26",version="v1"`, "1" + hour + "_x120"},
			at(4), at(12),
			map[string]string{"job": "audit-kubebridge", "namespace": "bridges"},
			[]string{"audit-kubebridge", "bridges"},
		},
		"KubebridgeRestarting": {
			[]string{"process_start_time_seconds", "", "1" + hour + "3630x3 3750x3 3870x113"}, at(1), at(5), pod, []string{"audit-kubebridge-0", "3 times"},
		},
		"KubebridgeNotReady": {[]string{"kubebridge_ready", "", "1" + hour + "0x119"}, at(9), at(12), pod, []string{"audit-kubebridge-0"}},
		"KubebridgeNoLeader": {
			[]string{"kubebridge_leader", `lease="bridges/kubebridge-audit"`, "1" + hour + "0x119"}, at(2), at(4), lease, []string{"bridges/kubebridge-audit"},
		},
		"KubebridgeTwoLeaders": {
			[]string{"kubebridge_leader", `lease="bridges/kubebridge-audit",n="2"`, "0" + hour + "1x119"}, at(2), at(4), lease, []string{"2 bridges", "bridges/kubebridge-audit"},
		},
		"KubebridgeLag": {
			[]string{"kubebridge_queue_oldest_timestamp_seconds", `sink="audit"`, "_" + hour + "3600x119"}, at(2), at(5), auditSink, []string{"audit", "5m"},
		},
		"KubebridgeSinkFailing":   {[]string{"kubebridge_sink_up", `sink="audit"`, "1" + hour + "0x119"}, at(5), at(7), auditSink, []string{"audit", "bridges"}},
		"KubebridgeBufferFilling": {[]string{"kubebridge_buffer_bytes", "", "0" + hour + "8.5e9x119"}, at(0), at(3), pod, []string{"audit-kubebridge-0", "85%"}},
		"KubebridgeBufferEnded":   {[]string{"kubebridge_buffer_ended_recordings", "", "0" + hour + "2x119"}, at(-1), at(2), pod, []string{"audit-kubebridge-0", "2 watches"}},
		"KubebridgeBufferAged":    {[]string{"kubebridge_buffer_aged_recordings", "", "0" + hour + "2x119"}, at(-1), at(2), pod, []string{"audit-kubebridge-0", "2 watches"}},
		"KubebridgeBufferFailed":  {[]string{"kubebridge_buffer_failed_recordings_total", "", "0" + hour + "2x119"}, at(-1), at(2), pod, []string{"audit-kubebridge-0"}},
		"KubebridgeAuditFilling":  {[]string{"kubebridge_audit_bytes", "", "0" + hour + "9e8x119"}, at(0), at(3), pod, []string{"audit-kubebridge-0", "90%"}},
		"KubebridgeAuditRefused": {
			[]string{"kubebridge_audit_refused_total", `reason="full"`, "0" + hour + "1+1x119"},
			at(9), at(13),
			map[string]string{"pod": "audit-kubebridge-0", "reason": "full"},
			[]string{"audit-kubebridge-0", "because: full"},
		},
		"KubebridgeAuditLost": {[]string{"kubebridge_audit_gaps_total", "", "0" + hour + "2x119"}, at(-1), at(2), pod, []string{"audit-kubebridge-0", "2 places"}},
		"KubebridgeDeniedLost": {
			[]string{"kubebridge_denied_requests_total", `sink="audit",result="lost"`, "0" + hour + "3x119"},
			at(-1), at(2),
			map[string]string{"sink": "audit", "result": "lost"},
			[]string{"audit", "3 denied requests"},
		},
		"KubebridgeNoAuditRecord": {
			[]string{"kubebridge_attributions_total", `sink="audit",result="no-record"`, "0" + hour + "100+100x119"}, at(13), at(20), auditSink, []string{"audit", "%"},
		},
		"KubebridgeCheckpointOld": {
			[]string{"kubebridge_queue_events", `sink="audit"`, "0" + hour + "12x119"}, at(5), at(7), auditSink, []string{"audit", "1h"},
		},
		"KubebridgeCollectionStalled": {
			// Between its attempts it tries.
			[]string{"kubebridge_source_collections", `sink="audit",resource="pods",state="waiting"`, "0" + hour + "1 1 0 1 1 1 0 1 1 1x110"},
			at(9), at(13),
			map[string]string{"sink": "audit", "resource": "pods", "state": "waiting"},
			[]string{"pods", "audit", "waiting"},
		},
		"KubebridgeRouteSuspended": {
			[]string{"kubebridge_collection_suspensions_total", `sink="audit",resource="pods"`, "_" + hour + "1x119"}, at(-1), at(2), pods, []string{"pods", "audit"},
		},
		"KubebridgeDrift": {
			[]string{"kubebridge_source_drift_total", `sink="audit",resource="pods"`, "0" + hour + "4x119"}, at(-1), at(2), pods, []string{"4 objects", "pods", "audit"},
		},
		"KubebridgeReset": {[]string{"kubebridge_sink_resets_total", `sink="audit"`, "_" + hour + "1x119"}, at(-1), at(2), auditSink, []string{"audit", "was reset"}},
		"KubebridgeDeadLetters": {
			[]string{"kubebridge_dead_letters_total", `sink="audit",reason="rejected"`, "_" + hour + "1x119"},
			at(-1), at(2),
			map[string]string{"sink": "audit", "reason": "rejected"},
			[]string{"1 events", "audit", "rejected"},
		},
		"KubebridgeRecordsLost": {[]string{"kubebridge_events_lost_total", `sink="audit"`, "0" + hour + "9x119"}, at(-1), at(2), auditSink, []string{"audit", "9 events"}},
		"KubebridgeMemoryNearLimit": {
			[]string{"process_resident_memory_bytes", "", "120e6" + hour + "470e6x119"}, at(9), at(12), pod, []string{"audit-kubebridge-0", "97.92%"},
		},
		"KubebridgeGap": {
			[]string{"kubebridge_gaps_total", `sink="audit",resource="pods",reason="expired"`, "_" + hour + "1x119"},
			at(-1), at(2),
			map[string]string{"sink": "audit", "resource": "pods", "reason": "expired"},
			[]string{"pods", "audit", "expired"},
		},
		"KubebridgeServeDown": {
			[]string{"kubebridge_serve_ready", "", "1" + hour + "_x120"}, at(4), at(12), map[string]string{"job": "audit-kubebridge"}, []string{"audit-kubebridge", "bridges"},
		},
		"KubebridgeServeNotReady":   {[]string{"kubebridge_serve_ready", "", "1" + hour + "0x119"}, at(29), at(32), pod, []string{"audit-kubebridge-0"}},
		"KubebridgeServeBehind":     {[]string{"kubebridge_serve_behind_messages", "", "0" + hour + "100+100x119"}, at(14), at(22), pod, []string{"audit-kubebridge-0", "messages"}},
		"KubebridgeServeIncomplete": {[]string{"kubebridge_serve_current", `resource="pods"`, "1" + hour + "0x119"}, at(14), at(17), map[string]string{"resource": "pods"}, []string{"pods"}},
		"KubebridgeTruncated": {
			[]string{"kubebridge_events_truncated_total", `sink="audit",resource="pods"`, "_" + hour + "2x119"}, at(-1), at(2), pods, []string{"2 events", "pods", "audit"},
		},
	}
	for _, rule := range alerts(t) {
		t.Run(rule.Alert, func(t *testing.T) {
			f, ok := faults[rule.Alert]
			if !ok {
				t.Fatal("never seen firing")
			}
			all := healthy()
			metric := f.set[0]
			if own := series(metric, f.set[1], ""); !strings.HasPrefix(all[metric], own) {
				all[metric+" as well"] = series(metric, f.set[1], f.set[2])
			} else {
				all[metric] = own + f.set[2]
			}
			moments := evaluate(t, slices.Collect(maps.Values(all)), f.silent, f.fires)
			for _, fire := range moments[0] {
				t.Errorf("too early: %v", fire.labels)
			}
			var mine []firing
			for _, fire := range moments[1] {
				if fire.labels["alertname"] == rule.Alert {
					mine = append(mine, fire)
				} else {
					t.Errorf("fires beside it: %v", fire.labels)
				}
			}
			if len(mine) != 1 {
				t.Fatalf("fires %d times: %v", len(mine), mine)
			}
			for name, value := range f.labels {
				if mine[0].labels[name] != value {
					t.Errorf("label %s is %q, want %q", name, mine[0].labels[name], value)
				}
			}
			for _, word := range f.says {
				if !strings.Contains(mine[0].annotations["description"], word) {
					t.Errorf("the description does not say %q: %s", word, mine[0].annotations["description"])
				}
			}
			for name, text := range mine[0].annotations {
				if strings.Contains(text, "error expanding") || strings.Contains(text, "<no value>") {
					t.Errorf("%s: %s", name, text)
				}
			}
		})
	}
}

// An alert about a counter ends a quarter of an hour after the last increment, even if that increment created the series.
func TestCountersCalmDown(t *testing.T) {
	all := slices.Collect(maps.Values(healthy()))
	all = append(all, series("kubebridge_dead_letters_total", `sink="audit",reason="rejected"`, "_x60 1x80"))
	moments := evaluate(t, all, 32*time.Minute, 44*time.Minute, 48*time.Minute)
	for i, want := range []int{1, 1, 0} {
		if len(moments[i]) != want {
			t.Errorf("at %d: %v", i, moments[i])
		}
	}
}

// If the only scraped bridge disappears, an alert fires, and still fires after more than an hour.
func TestDown(t *testing.T) {
	for name, values := range map[string]string{"gone": "1x30 _x400", "never there": "_x400"} {
		var moments []time.Duration
		for m := 25 * time.Minute; m < 3*time.Hour; m += time.Minute {
			moments = append(moments, m)
		}
		all := []string{series("up", "", "0x400"), series("kubebridge_build_info", `goversion="go1.26",version="v1"`, values)}
		for i, now := range evaluate(t, all, moments...) {
			if !slices.ContainsFunc(now, func(f firing) bool {
				return f.labels["alertname"] == "KubebridgeDown" && f.labels["severity"] == "critical"
			}) {
				t.Errorf("%s: no alert fires at %s", name, moments[i])
			}
		}
	}
}
