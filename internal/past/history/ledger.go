package history

import (
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

type plan struct {
	birth, number uint64
	digest        string
}

// collectionReport is what events about a collection report of it.
type collectionReport struct {
	resource          string
	incarnation, edit uint64
	closed            *event.Received
	run               uint64 // of selection
	selection         event.Selection
}

// ledger records which collections a sink has. It accepts events about collections in any order.
type ledger struct {
	birth       uint64
	plans       map[string]plan              // by resource
	collections map[string]*collectionReport // by collection
}

func newLedger() *ledger {
	return &ledger{plans: map[string]plan{}, collections: map[string]*collectionReport{}}
}

func (l *ledger) take(e *event.Received) {
	m := l.collections[e.Collection]
	if m == nil || m.incarnation < e.Incarnation {
		m = &collectionReport{resource: consumer.NameOf(e).Resource, incarnation: e.Incarnation}
		l.collections[e.Collection] = m
	}
	present := m.incarnation == e.Incarnation
	switch {
	case present && e.Type == event.Closed:
		m.closed = e
	case present && e.Run >= m.run:
		m.run, m.selection = e.Run, e.Report.Selection
	}
	if e.Plan == nil {
		return
	}
	if present {
		m.edit = max(m.edit, e.Plan.Edit)
	}
	l.birth = max(l.birth, e.Plan.Birth)
	p := l.plans[m.resource]
	if e.Plan.Birth > p.birth || e.Plan.Birth == p.birth && e.Plan.Number > p.number {
		l.plans[m.resource] = plan{e.Plan.Birth, e.Plan.Number, e.Plan.Digest}
	}
}

// open reports whether a collection is not closed and does not belong to a checkpoint that was lost.
func (l *ledger) open(m *collectionReport) bool { return m.closed == nil && m.incarnation >= l.birth }

// complete reports whether the open collections of a resource are exactly those of its newest plan, and at least one.
func (l *ledger) complete(resource string) bool {
	edits := map[string]uint64{}
	for id, m := range l.collections {
		if m.resource == resource && l.open(m) {
			edits[id] = m.edit
		}
	}
	return len(edits) > 0 && event.PlanDigest(edits) == l.plans[resource].digest
}
