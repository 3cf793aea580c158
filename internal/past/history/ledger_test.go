package history

import (
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestLedgerSelection: messages are read backwards and are repeated, so what a collection has is that of its last run in the last incarnation, in whatever
// order the events come.
func TestLedgerSelection(t *testing.T) {
	l := newLedger()
	take := func(typ event.Type, incarnation, run uint64, s event.Selection) {
		l.take(&event.Received{Type: typ, Resource: "pods", Collection: "pods", Incarnation: incarnation, Run: run, Report: &event.Report{Selection: s}})
	}
	last := event.Selection{Labels: "last"}
	take(event.Synced, 1, 1, event.Selection{Filtered: true})
	take(event.Synced, 20, 30, last)
	take(event.Gap, 20, 20, event.Selection{Labels: "first"})
	take(event.Gap, 1, 40, event.Selection{Filtered: true})
	take(event.Closed, 20, 30, event.Selection{})
	if got := l.collections["pods"].selection; got != last {
		t.Errorf("it has %+v, want %+v", got, last)
	}
}
