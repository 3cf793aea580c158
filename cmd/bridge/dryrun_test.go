package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// startBridge runs a command until stop is called, which returns its exit code.
func startBridge(t *testing.T, args ...string) (out, errs *screen, stop func() int) {
	t.Helper()
	out, errs = &screen{}, &screen{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- execute(ctx, args, streams{out: out, err: errs, in: strings.NewReader("")}) }()
	stop = func() int {
		cancel()
		return <-done
	}
	return out, errs, stop
}

// twoBuses writes a configuration with a Kafka and a NATS sink without servers, with a template and a filter.
func twoBuses(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "bridge.yaml")
	write(t, path, fmt.Sprintf(`cluster: prod
resources:
  - {resource: pods, filter: 'name != "b"', drop: [metadata.labels]}
checkpoint: {file: {path: %q}}
sinks:
  - name: audit
    headers: {tier: "ns-{namespace}"}
    kafka: {brokers: ["127.0.0.1:1"], topic: "events.{resource}", tombstones: true, delivery: at-least-once}
  - name: live
    nats: {url: "nats://127.0.0.1:1"}
`, filepath.Join(dir, "checkpoints")))
	return path
}

// A dry run shows each event as its bus would receive it. It needs no bus and leaves no files.
func TestDryRun(t *testing.T) {
	smallCluster(t)
	path := twoBuses(t)
	for _, args := range [][]string{
		{"run", "--dry-run", "-o", "json", "-c", path},
		{"tail", "-o", "json", "-c", path},
	} {
		out, errs, stop := startBridge(t, args...)
		for _, sink := range []string{"audit", "live"} {
			out.awaits(t, `{"sink":"`+sink+`"`)
		}
		records := awaitRecords(t, out, 6) // of each sink: gap, one pod, synced
		if code := stop(); code != exitOK {
			t.Errorf("%v ends with %d:\n%s", args, code, errs)
		}
		kafka, nats := podOf(t, records, "audit"), podOf(t, records, "live")
		if kafka.Topic != "events.pods" || kafka.Subject != "" || kafka.Key != "prod/core/pods/shop/a" ||
			kafka.Headers["tier"] != "ns-shop" || kafka.Headers["ce_name"] != "a" || kafka.Headers["content-type"] == "" {
			t.Errorf("%v: to Kafka: %+v", args, kafka)
		}
		if nats.Subject != "k8s.prod.core.pods.shop.a" || nats.Topic != "" || nats.Key != "" || nats.Headers["ce-name"] != "a" || nats.Headers["tier"] != "" {
			t.Errorf("%v: to NATS: %+v", args, nats)
		}
		if text := string(kafka.Value); !strings.Contains(text, `"io.kubebridge.resource.present.v1"`) || strings.Contains(text, "labels") {
			t.Errorf("%v: the event is %s", args, text)
		}
		if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
			t.Errorf("%v: beside the configuration there is %v, %v", args, left, err)
		}
	}
}

// A dry run prints what subscribers receive, except for times, runs, and the headers for the bridge itself.
func TestDryRunIsWhatSubscribersGet(t *testing.T) {
	smallCluster(t)
	url := startNATS(t)
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	write(t, path, `cluster: prod
resources: [{resource: pods, drop: [metadata.labels]}]
sinks:
  - {name: live, headers: {tier: "ns {namespace}"}, nats: {url: "`+url+`", subject: "events.{cluster}.{type}.{resource}.{namespace}.{name}"}}
`)
	out, errs, stop := startBridge(t, "run", "--dry-run", "-o", "json", "-c", path)
	want := map[string]string{}
	for _, r := range awaitRecords(t, out, 4) { // gap, two pods, synced
		want[r.Subject] = timeless(r)
	}
	if code := stop(); code != exitOK {
		t.Fatalf("the dry run ends with %d:\n%s", code, errs)
	}
	nc, err := natsgo.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	got, err := nc.SubscribeSync("events.>")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, stopRun := start(t, path)
	defer stopRun()
	for n := 0; n < 4; n++ {
		m, err := got.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		r := shownRecord{Sink: "live", Subject: m.Subject, Headers: map[string]string{}, Value: m.Data}
		for name := range m.Header {
			if !strings.HasPrefix(name, "Kubebridge-") && !strings.HasPrefix(name, "Nats-") {
				r.Headers[name] = m.Header.Get(name)
			}
		}
		if text := timeless(r); text != want[m.Subject] {
			t.Errorf("%s: subscribers get\n%s\nthe dry run prints\n%s", m.Subject, text, want[m.Subject])
		}
	}
}

var (
	anyTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	anyRun  = regexp.MustCompile(`\d{13}|"[0-9a-f]{16}"`) // and digests of plans, because the numbers of plans differ
)

// timeless returns a record without the values that differ between runs.
func timeless(r shownRecord) string {
	text, err := json.Marshal(r)
	if err != nil {
		return err.Error()
	}
	return anyRun.ReplaceAllString(anyTime.ReplaceAllString(string(text), "TIME"), "RUN")
}

// awaitRecords waits for n records, one a line.
func awaitRecords(t *testing.T, out *screen, n int) (records []shownRecord) {
	t.Helper()
	for end := time.Now().Add(patience); strings.Count(out.String(), "\n") < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("fewer than %d lines are printed:\n%s", n, out)
		}
	}
	for line := range strings.Lines(out.String()) {
		var r shownRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		records = append(records, r)
	}
	return records
}

// podOf returns the only record of a pod for a sink.
func podOf(t *testing.T, records []shownRecord, sink string) (found shownRecord) {
	t.Helper()
	n := 0
	for _, r := range records {
		if r.Sink == sink && strings.Contains(string(r.Value), "io.kubebridge.resource.") {
			found = r
			n++
		}
	}
	if n != 1 {
		t.Errorf("sink %s gets %d pods; the filter passes one:\n%+v", sink, n, records)
	}
	return found
}

// A dry run has output formats for people.
func TestDryRunFormats(t *testing.T) {
	smallCluster(t)
	path := twoBuses(t)
	for output, parts := range map[string][]string{
		"yaml":   {"---\n", "\ntopic: events.pods\n", "\nkey: prod/core/pods/shop/a\n", "\n  tier: ns-shop\n", "\nsubject: k8s.prod.core.pods.shop.a\n", "\n  name: a\n"},
		"pretty": {"PRESENT  pods shop/a rv=41 snapshot  -> audit events.pods prod/core/pods/shop/a\n", "  -> live k8s.prod.core.pods.shop.a\n"},
		"name":   {"pods/a -n shop\n"},
	} {
		out, errs, stop := startBridge(t, "tail", "-o", output, "-c", path)
		for _, part := range parts {
			out.awaits(t, part)
		}
		if code := stop(); code != exitOK {
			t.Errorf("-o %s ends with %d:\n%s", output, code, errs)
		}
	}
}

// A deletion on a topic with tombstones is two messages.
func TestShowTombstone(t *testing.T) {
	k := sinkKind{&bus.Bus{Tombstones: true, Headers: func(*event.Record) []event.Attribute { return nil }}}
	r := event.Record{Key: "k", Value: []byte(`{}`), Event: &event.Event{Type: event.Deleted}}
	if !k.show("s", &r).Tombstone {
		t.Error("the tombstone behind a deletion is not shown")
	}
	if k.Tombstones = false; k.show("s", &r).Tombstone {
		t.Error("a tombstone is shown on a topic without them")
	}
}

// tail -w shows changes, not what exists.
func TestTailWatchOnly(t *testing.T) {
	smallCluster(t)
	out, _, stop := startBridge(t, "tail", "pods", "-w", "-o", "yaml")
	out.awaits(t, "io.kubebridge.collection.synced.v1")
	stop()
	if strings.Contains(out.String(), "io.kubebridge.resource.") {
		t.Errorf("existing objects are shown:\n%s", out)
	}
	out, _, stop = startBridge(t, "tail", "pods", "-A", "-o", "yaml")
	out.awaits(t, "io.kubebridge.resource.present.v1")
	stop()
}

// A stdout sink needs no checkpoint, and the log says what that means.
func TestStdoutWithoutCheckpoint(t *testing.T) {
	smallCluster(t)
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	write(t, path, "cluster: prod\nresources: [pods]\nsinks: [{name: print, stdout: {}}]\n")
	checked := command(t, "validate", "-c", path)
	if checked.code != exitOK || !strings.Contains(checked.err, "sinks[0]: it has no checkpoint") || !strings.Contains(checked.err, "every start publishes all objects again") {
		t.Errorf("validate: %+v", checked)
	}
	command(t, "checkpoint", "show", "-c", path).failed(t, exitConfig, `sink "print" has no checkpoint: set checkpoint.file.path`)
	log, stop := start(t, path)
	log.awaits(t, "it has no checkpoint")
	log.awaits(t, `"msg":"synced"`)
	if code := stop(); code != exitOK {
		t.Errorf("the bridge ends with %d:\n%s", code, log)
	}
	write(t, path, "cluster: prod\nresources: [pods]\nsinks: [{name: kept, file: {path: /tmp/x}}]\n")
	command(t, "validate", "-c", path).failed(t, exitConfig, `it is required for sink "kept"`)
}
