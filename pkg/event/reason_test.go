package event_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// A reason without a row in the table would be missing in every document, and no other test would notice.
func TestReasonsHaveRows(t *testing.T) {
	var declared, listed []string
	for _, m := range regexp.MustCompile(`(?m)^\tReason\w+ +Reason = "(\w+)"$`).FindAllSubmatch(read(t, "reason.go"), -1) {
		declared = append(declared, string(m[1]))
	}
	for _, c := range event.Reasons() {
		listed = append(listed, string(c.Reason))
		if len(c.Types) == 0 || c.Text == "" {
			t.Errorf("%q has no types or no text", c.Reason)
		}
	}
	slices.Sort(declared)
	slices.Sort(listed)
	if diff := cmp.Diff(declared, slices.Compact(listed)); diff != "" {
		t.Errorf("reasons (-declared +in the table):\n%s", diff)
	}
	for _, r := range event.ReasonsOf(event.Gap) {
		if c := event.GapCause(r); c.Reason != r || !slices.Contains(c.Types, event.Synced) {
			t.Errorf("the cause of a gap for %q is %+v", r, c)
		}
	}
	for _, r := range []event.Reason{event.ReasonPeriodic, event.ReasonRemoved, event.ReasonRoute, "of a later version"} {
		if c := event.GapCause(r); c.Reason != "" {
			t.Errorf("no gap has the reason %q, and its cause is %+v", r, c)
		}
	}
	if diff := cmp.Diff(event.ReasonsOf(event.Synced), append(event.ReasonsOf(event.Gap), event.ReasonPeriodic)); diff != "" {
		t.Errorf("a synced event has the reason of its gap, or %q (-synced +gap):\n%s", event.ReasonPeriodic, diff)
	}
}
