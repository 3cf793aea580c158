package plan

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Departure is what is known of a namespace that no longer matches its selector, for one of its collections.
//
//	state    meaning                                   next                                                               outcome
//	unasked  it is not known whether it exists         kept, absent: the API server has answered                          Ended
//	kept     it exists, or the bridge may not get it   –                                                                  Removed
//	absent   it does not exist since a time            passed: everything that happened before that is read and decided   Ended
//	                                                   kept: a namespace of the same name exists
//	passed   everything that was in it is decided      –                                                                  Removed
//
// Absence is not enough to remove a collection: while a sink is behind, changes from before are unread, in the API server's history or in the disk
// buffer. What comes after everything that was in the namespace is of another namespace of the same name, which may belong to somebody else, so the
// collection is removed then even if it has objects. What is known is forgotten when no collection of the namespace is Ended any more.
type Departure uint8

// The departures.
const (
	unasked Departure = iota
	kept
	absent
	passed
)

func (d Departure) outcome() Outcome {
	if d == kept || d == passed {
		return Removed
	}
	return Ended
}

// askAgain is how many absent namespaces a plan asks for again.
const askAgain = 16

// Departures has the departures of one sink. It asks the API server for each namespace until it has an answer, once in a plan. Each plan asks for up to
// askAgain absent namespaces again, in turns: while a bus is away, thousands of short namespaces must not cost a request each in every plan. It is not safe for
// concurrent use.
type Departures struct {
	exists func(ctx context.Context, namespace string) (bool, error)
	absent map[string]absence
	plan   int // the number of the present plan
	// The fields below are of the requests of the present plan.
	kept   map[string]bool // namespaces that exist
	failed bool            // a request has failed: the plan sends no other one
}

// absence is a namespace that does not exist.
type absence struct {
	since time.Time // when this was known
	asked int       // the last plan that has asked
}

// NewDepartures returns the departures of one sink.
func NewDepartures(c *Cluster) *Departures {
	return &Departures{exists: c.exists, absent: map[string]absence{}}
}

// Outcomes returns the outcomes of a plan: see [Plan.Outcomes].
func (d *Departures) Outcomes(ctx context.Context, p *Plan, known []Known) Outcomes {
	d.plan++
	d.kept, d.failed = map[string]bool{}, false
	due := d.due()
	out := p.Outcomes(known, func(k *Known) Departure { return d.of(ctx, k, due) })
	still := map[string]absence{}
	for i := range out.Ended {
		namespace := out.Ended[i].Target.Collection.Namespace
		if a, known := d.absent[namespace]; known {
			still[namespace] = a
		}
	}
	d.absent = still
	return out
}

// due returns the absent namespaces that the present plan may ask for again: those that it has not asked for the longest.
func (d *Departures) due() map[string]bool {
	all := slices.SortedFunc(maps.Keys(d.absent), func(a, b string) int {
		return cmp.Or(cmp.Compare(d.absent[a].asked, d.absent[b].asked), strings.Compare(a, b))
	})
	due := map[string]bool{}
	for _, namespace := range all[:min(len(all), askAgain)] {
		due[namespace] = true
	}
	return due
}

func (d *Departures) of(ctx context.Context, k *Known, due map[string]bool) Departure {
	namespace := event.ParseCollection(k.ID).Namespace
	a, known := d.absent[namespace]
	switch {
	case d.kept[namespace]:
		return kept
	case known && k.Read.After(a.since):
		return passed
	case known && (!due[namespace] || a.asked == d.plan):
		return absent
	case d.failed:
		return unknown(known)
	}
	exists, err := d.exists(ctx, namespace)
	switch {
	case err != nil:
		d.failed = true
		return unknown(known)
	case exists:
		delete(d.absent, namespace)
		d.kept[namespace] = true
		return kept
	case !known:
		a.since = time.Now()
	}
	a.asked = d.plan
	d.absent[namespace] = a
	return absent
}

// unknown returns the departure of a collection of a namespace whose existence is not known now. It may be known that it was absent.
func unknown(wasAbsent bool) Departure {
	if wasAbsent {
		return absent
	}
	return unasked
}
