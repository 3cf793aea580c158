package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// movable writes two configurations that keep the checkpoint of the sink live in a directory and on NATS.
func movable(t *testing.T, url string) (inDirectory, onNATS, checkpoints string) {
	t.Helper()
	dir := t.TempDir()
	inDirectory, onNATS, checkpoints = filepath.Join(dir, "directory.yaml"), filepath.Join(dir, "nats.yaml"), filepath.Join(dir, "cp")
	text := "cluster: prod\nresources: [pods]\nsecrets: {values: redact}\nsinks: [{name: live, nats: {url: " + url + "}}]\n"
	write(t, inDirectory, text+"checkpoint: {file: {path: "+checkpoints+"}}\n")
	write(t, onNATS, text)
	return inDirectory, onNATS, checkpoints
}

// changeOfB is a change of the pod b of [smallCluster].
const changeOfB = `{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b","namespace":"shop","uid":"5b8f1c34-7a2e-4c8a-9f39-0e1f8f2f4a12","resourceVersion":"43"}}}` + "\n"

// eventsOn returns type and name of all events in the stream.
func eventsOn(t *testing.T, js natsgo.JetStreamContext) (events []string) {
	t.Helper()
	for _, m := range messagesOn(t, js, "K8S_prod") {
		if e, err := event.Parse(m.Data); err == nil {
			events = append(events, strings.TrimSpace(e.Type.String()+" "+e.Name))
		}
	}
	return events
}

// awaitEvents waits until the stream has n events.
func awaitEvents(t *testing.T, js natsgo.JetStreamContext, n int, log *screen) {
	t.Helper()
	for until := time.Now().Add(time.Minute); len(eventsOn(t, js)) < n; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("events: %q, want %d; the log:\n%s", eventsOn(t, js), n, log)
		}
	}
}

// After a move, a bridge continues from the new place: it publishes the next change, and no snapshot. A start with the
// former place is refused.
func TestCheckpointMove(t *testing.T) {
	for _, toBus := range []bool{true, false} {
		t.Run(fmt.Sprintf("to the bus %t", toBus), func(t *testing.T) {
			url := startNATS(t)
			js := jetStream(t, url)
			from, to, checkpoints := movable(t, url)
			was, is := "directory "+filepath.Join(checkpoints, "live"), "bucket kubebridge_kubebridge_5b8f1c34_live"
			if !toBus {
				from, to, was, is = to, from, is, was
			}
			smallCluster(t)
			log, stop := start(t, from)
			log.awaits(t, `"msg":"synced"`)
			if code := stop(); code != exitOK {
				t.Fatalf("the bridge ends with %d:\n%s", code, log)
			}
			want := eventsOn(t, js)
			if !slices.Equal(want, []string{"gap", "present a", "present b", "synced"}) {
				t.Fatalf("published: %q", want)
			}
			for range 2 { // the second time there is nothing left to do
				if out := command(t, "checkpoint", "move", "-c", from, "--to", to).ok(t); !strings.Contains(out, "sink live: the checkpoint is in "+is) {
					t.Errorf("it says %q", out)
				}
			}
			if out := command(t, "checkpoint", "show", "-c", from).ok(t); !strings.Contains(out, "not in force: the checkpoint was moved to "+is) {
				t.Errorf("%s is shown as %q", was, out)
			}
			if r := command(t, "run", "-c", from, "--status-listen", "off"); r.code != exitEnvironment || !strings.Contains(r.err, "it was moved to "+is) {
				t.Errorf("a start at the former place: code %d: %s", r.code, r.err)
			}

			smallCluster(t, changeOfB)
			log, stop = start(t, to)
			awaitEvents(t, js, len(want)+1, log)
			if code := stop(); code != exitOK {
				t.Fatalf("the bridge ends with %d:\n%s", code, log)
			}
			if got := eventsOn(t, js); !slices.Equal(got, append(want, "modified b")) {
				t.Errorf("after the move: %q", got)
			}
		})
	}
}

// A checkpoint that a running bridge uses is not moved, and the bridge continues.
func TestCheckpointMoveWhileRunning(t *testing.T) {
	url := startNATS(t)
	inDirectory, onNATS, _ := movable(t, url)
	smallCluster(t)
	log, stop := start(t, inDirectory)
	log.awaits(t, `"msg":"synced"`)
	command(t, "checkpoint", "move", "-c", inDirectory, "--to", onNATS).failed(t, exitEnvironment, "in use by another process")
	if code := stop(); code != exitOK {
		t.Fatalf("the bridge ends with %d:\n%s", code, log)
	}
	command(t, "checkpoint", "move", "-c", inDirectory, "--to", onNATS).ok(t)
	log, stop = start(t, onNATS)
	log.awaits(t, `"msg":"stream opened"`)
	for until := time.Now().Add(time.Minute); !strings.Contains(command(t, "checkpoint", "show", "-c", onNATS).ok(t), "in use since"); {
		if time.Now().After(until) {
			t.Fatalf("the checkpoint does not say that a bridge uses it; the log:\n%s", log)
		}
	}
	command(t, "checkpoint", "move", "-c", onNATS, "--to", inDirectory).failed(t, exitEnvironment, "a bridge runs on it since", "--fence")
	if code := stop(); code != exitOK {
		t.Errorf("the bridge was disturbed, and ends with %d:\n%s", code, log)
	}
	_, store, leave := runNATS(t, onNATS)
	since := event.KV{Key: checkpoint.RunningKey(), Value: []byte("2026-01-01T00:00:00Z")} // as a kill -9 leaves it
	if err := store.Commit(t.Context(), []event.KV{since}); err != nil {
		t.Fatal(err)
	}
	leave()
	command(t, "checkpoint", "move", "-c", onNATS, "--to", inDirectory).failed(t, exitEnvironment, "since 2026-01-01T00:00:00Z", "--fence")
	command(t, "checkpoint", "move", "-c", onNATS, "--to", inDirectory, "--fence").ok(t)
}

// With --fence, a checkpoint is moved away from a running bridge. That bridge ends at its next change, and writes
// nothing once another bridge runs at the new place. A start with the former place does not disturb the bridge at the
// new place.
func TestCheckpointMoveFences(t *testing.T) {
	url := startNATS(t)
	js := jetStream(t, url)
	inDirectory, onNATS, _ := movable(t, url)
	changes := make(chan string, 1)
	liveCluster(t, changes)
	fenced, stopFenced := start(t, onNATS)
	fenced.awaits(t, `"msg":"synced"`)
	awaitEvents(t, js, 4, fenced)
	command(t, "checkpoint", "move", "-c", onNATS, "--to", inDirectory, "--fence").ok(t)

	later := make(chan string, 1)
	liveCluster(t, later)
	log, stop := start(t, inDirectory)
	log.awaits(t, `"msg":"stream opened"`)
	changes <- changeOfB
	fenced.awaits(t, "bridge: ")
	if code := stopFenced(); code != exitRuntime {
		t.Errorf("the fenced bridge ends with %d", code)
	}
	for _, says := range []string{`sink "live": write to the bus: another writer has taken over`, "after `bridge checkpoint move` start one with the other configuration"} {
		if !strings.Contains(fenced.String(), says) {
			t.Errorf("the fenced bridge does not say %q:\n%s", says, fenced)
		}
	}
	if r := command(t, "run", "-c", onNATS, "--status-listen", "off"); r.code != exitEnvironment || !strings.Contains(r.err, "it was moved to directory") {
		t.Errorf("a start at the former place: code %d: %s", r.code, r.err)
	}
	want := []string{"gap", "present a", "present b", "synced"}
	if got := eventsOn(t, js); !slices.Equal(got, want) {
		t.Errorf("after the move, before a change: %q", got)
	}
	later <- changeOfB
	awaitEvents(t, js, len(want)+1, log)
	if code := stop(); code != exitOK {
		t.Errorf("the bridge ends with %d:\n%s", code, log)
	}
	if got := eventsOn(t, js); !slices.Equal(got, append(want, "modified b")) {
		t.Errorf("after the change: %q", got)
	}
}

// A move that is not possible is refused with the reason, before anything is read.
func TestCheckpointMoveRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, sinks, more string) string {
		path := filepath.Join(dir, name+".yaml")
		write(t, path, "cluster: prod\nresources: [pods]\nsinks: ["+sinks+"]\n"+more)
		return path
	}
	const (
		kafkaSink = "{name: a, kafka: {brokers: ['192.0.2.1:9092']}}"
		repeated  = "{name: a, kafka: {brokers: ['192.0.2.1:9092'], delivery: at-least-once}}"
		stream    = "{name: a, nats: {url: 'nats://192.0.2.1:4222'}}"
		lines     = "{name: a, file: {path: /nope/events}}"
		checkpts  = "checkpoint: {file: {path: /nope/cp}}\n"
	)
	base := file("base", repeated, checkpts)
	for name, test := range map[string]struct{ from, to, says string }{
		"no target":          {base, "", "give --to FILE"},
		"nothing to move":    {base, base, "no checkpoint to move"},
		"two directories":    {file("f1", lines, checkpts), file("f2", lines, "checkpoint: {file: {path: /nope/cp2}}\n"), "move /nope/cp/a"},
		"Kafka exactly once": {file("k1", kafkaSink, ""), file("k2", kafkaSink, "checkpoint: {kafka: {topic: other}}\n"), "with delivery exactly-once it is in the transactions of the events, and cannot be elsewhere"},
		"two topics":         {file("t1", repeated, ""), file("t2", repeated, "checkpoint: {kafka: {topic: other}}\n"), "only a move between a directory and the bus"},
		"in memory":          {file("m1", "{name: a, stdout: {}}", ""), file("m2", "{name: a, stdout: {}}", checkpts), "in memory"},
		"another bus":        {base, file("b1", stream, ""), "another bus, stream or NATS delivery"},
		"other brokers":      {base, file("b2", "{name: a, kafka: {brokers: ['192.0.2.2:9092'], delivery: at-least-once}}", ""), "another bus"},
		"NATS delivery":      {file("n1", "{name: a, nats: {url: 'nats://192.0.2.1:4222', delivery: at-least-once}}", checkpts), file("n2", stream, ""), "NATS delivery"},
		"another name":       {base, file("n3", repeated, "name: second\n"), "name and cluster must be the same"},
		"no such sink":       {base, file("n4", strings.Replace(repeated, "name: a", "name: b", 1), ""), "does not have it"},
		"hash key":           {file("h1", strings.Replace(repeated, "name: a", "name: a, resources: [secrets]", 1), checkpts), file("h2", strings.Replace(repeated, "name: a", "name: a, resources: [secrets]", 1), ""), "secrets.hashKeyFile"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"checkpoint", "move", "-c", test.from, "--sink", "a"}
			if test.to != "" {
				args = append(args, "--to", test.to)
			}
			if name == "nothing to move" {
				args = args[:4]
				args = append(args, "--to", test.to)
			}
			command(t, args...).failed(t, exitConfig, test.says)
		})
	}
}
