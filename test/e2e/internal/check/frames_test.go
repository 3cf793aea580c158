package check

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// recording returns what a recorder sees of an object that exists before it, of one that stays, of one that exists for two changes, and of a
// last one.
func recording() kube.Recording {
	return kube.Recording{
		Holes: []kube.Hole{{To: "105", State: map[string]string{"old": "103"}}},
		Frames: []kube.Frame{
			{UID: "old", RV: "110"},
			{UID: "new", RV: "112"},
			{UID: "new", RV: "114"},
			{UID: "old", RV: "116", Deleted: true},
			{UID: "brief", RV: "118"},
			{UID: "brief", RV: "120", Deleted: true},
			{UID: "last", RV: "122"},
		},
	}
}

// ranged returns an event about the collection with from or to.
func ranged(typ, run, reason, rv string) bus.Message {
	m := of(typ, run, reason)
	if typ == "gap" {
		m.Data.From = rv
	} else {
		m.Data.To = rv
	}
	return m
}

// The verdict on a recording finds each kind of problem.
func TestFrames(t *testing.T) {
	snapshot := []bus.Message{ranged("gap", "5", "reset", ""), event("present", "old", "103", ""), ranged("synced", "5", "reset", "105")}
	head := slices.Concat(snapshot, []bus.Message{event("modified", "old", "110", ""), event("added", "new", "112", ""), event("modified", "new", "114", "")})
	middle := []bus.Message{event("deleted", "old", "110", "116"), event("added", "brief", "118", ""), event("deleted", "brief", "118", "120")}
	last := event("added", "last", "122", "")
	all := slices.Concat(head, middle, []bus.Message{last})
	skipping := func(i int) []bus.Message { return slices.Delete(slices.Clone(all), i, i+1) }
	gap := func(from string, more ...bus.Message) []bus.Message {
		return slices.Concat(head, []bus.Message{ranged("gap", "6", "expired", from)}, more, []bus.Message{ranged("synced", "6", "expired", "120"), last})
	}
	found := event("deleted", "old", "110", "")
	blind := recording()
	blind.Frames = slices.Concat(blind.Frames[:3], blind.Frames[6:])
	blind.Holes = append(blind.Holes, kube.Hole{From: "114", To: "120", State: map[string]string{"new": "114"}})
	for _, c := range []struct {
		name     string
		rec      kube.Recording
		messages []bus.Message
		o        FrameOptions
		want     string // "": no problem
	}{
		{"all", recording(), all, FrameOptions{NoGap: true}, ""},
		{"no snapshot", recording(), all[3:], FrameOptions{}, "complete: there is no snapshot"},
		{"a version missing", recording(), skipping(4), FrameOptions{}, "complete: the API server sent {UID:new RV:112 Deleted:false}"},
		{"a deletion missing", recording(), skipping(6), FrameOptions{}, "complete: the API server sent {UID:old RV:116 Deleted:true}"},
		{"a version twice", recording(), append(slices.Clone(all), last), FrameOptions{}, "once:"},
		{"a deletion twice", recording(), append(slices.Clone(all), middle[2]), FrameOptions{}, "order or once:"},
		{"versions reordered", recording(), slices.Concat(snapshot, []bus.Message{head[3], head[5], head[4]}, middle, all[9:]), FrameOptions{}, "order:"},
		{"an event after the end", recording(), append(slices.Clone(all), event("modified", "brief", "124", "")), FrameOptions{}, "order or once:"},
		{"a version invented", recording(), append(slices.Clone(all), event("modified", "new", "121", "")), FrameOptions{}, "invented: the recorder did not see"},
		{"a deletion invented", recording(), append(slices.Clone(all), event("deleted", "new", "114", "121")), FrameOptions{}, "invented:"},
		{"where the recorder is blind", blind, all, FrameOptions{}, ""},
		{"a gap", recording(), gap("114", found), FrameOptions{Ends: []string{"114"}}, ""},
		{"a gap where there must be none", recording(), gap("114", found), FrameOptions{NoGap: true}, "gap: want none"},
		{"a gap that begins too early", recording(), gap("112", found), FrameOptions{Ends: []string{"114"}}, "gap: the feed ended at"},
		{"a gap that begins too late", recording(), gap("118", found), FrameOptions{}, "complete: the API server sent {UID:old RV:116"},
		{"a gap that does not end", recording(), append(slices.Clone(all), ranged("gap", "6", "expired", "122")), FrameOptions{}, "complete: the last gap has no synced"},
		{"a deletion that the list did not find", recording(), gap("114"), FrameOptions{}, "exact: at"},
		{"a received frame in a gap", recording(), gap("114", found), FrameOptions{Received: []kube.Frame{{UID: "brief", RV: "118"}}}, "complete: the bridge received {UID:brief"},
		{"a reset", recording(), append(slices.Clone(all), ranged("gap", "5", "reset", ""), ranged("synced", "5", "reset", "122")), FrameOptions{}, "gap: a reset"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Frames(c.rec, c.messages, c.o)
			text := strings.Join(got.Problems, "\n")
			if c.want == "" && text != "" || !strings.Contains(text, c.want) {
				t.Errorf("found %q, want %q", text, c.want)
			}
		})
	}
	report := Frames(recording(), gap("114", found), FrameOptions{})
	if report.Judged != 7 || report.Lost != 2 || len(report.Gaps) != 1 {
		t.Errorf("%d judged, %d lost, %d gaps; want 7, 2, 1", report.Judged, report.Lost, len(report.Gaps))
	}
}
