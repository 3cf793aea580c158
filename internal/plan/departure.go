package plan

import (
	"context"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Departure is what is known of a namespace that no longer matches its selector, for one of its collections.
//
//	state    meaning                                   next                                                               outcome
//	unasked  it is not known whether it exists         kept, absent: the API server has answered                          Ended
//	kept     it exists, or the bridge may not get it   –                                                                  Removed
//	absent   it does not exist since a time            passed: everything that happened before that is read and decided   Ended
//	passed   everything that was in it is decided      –                                                                  Removed, or Ended while objects are held
//
// Absence is not enough to remove a collection: while a sink is behind, changes from before are unread, in the API server's history or in the disk
// buffer. What is known is forgotten when no collection of the namespace is Ended any more.
type Departure uint8

// The departures.
const (
	unasked Departure = iota
	kept
	absent
	passed
)

// outcome returns the outcome of a collection.
func (d Departure) outcome(held Held) Outcome {
	if d == kept || d == passed && held < Objects {
		return Removed
	}
	return Ended
}

// Departures has the departures of one sink. It asks the API server for each namespace until it has an answer, and then no more: thousands of short
// namespaces must not cost it a request each in every plan. It is not safe for concurrent use.
type Departures struct {
	exists func(ctx context.Context, namespace string) (bool, error)
	absent map[string]time.Time // when namespaces were known not to exist
	failed bool                 // a request of the present plan, which sends no other one
}

// NewDepartures returns the departures of one sink.
func NewDepartures(c *Cluster) *Departures {
	return &Departures{exists: c.exists, absent: map[string]time.Time{}}
}

// Outcomes returns the outcomes of a plan: see [Plan.Outcomes].
func (d *Departures) Outcomes(ctx context.Context, p *Plan, known []Known) Outcomes {
	d.failed = false
	out := p.Outcomes(known, func(k *Known) Departure { return d.of(ctx, k) })
	still := map[string]time.Time{}
	for i := range out.Ended {
		namespace := out.Ended[i].Target.Collection.Namespace
		if at, known := d.absent[namespace]; known {
			still[namespace] = at
		}
	}
	d.absent = still
	return out
}

// of returns the departure of a collection.
func (d *Departures) of(ctx context.Context, k *Known) Departure {
	c := event.ParseCollection(k.ID)
	at, known := d.absent[c.Namespace]
	switch {
	case !known:
		return d.ask(ctx, c.Namespace)
	case k.Read.After(at):
		return passed
	}
	return absent
}

// ask asks whether a namespace exists.
func (d *Departures) ask(ctx context.Context, namespace string) Departure {
	if d.failed {
		return unasked
	}
	exists, err := d.exists(ctx, namespace)
	switch {
	case err != nil:
		d.failed = true
		return unasked
	case exists:
		return kept
	}
	d.absent[namespace] = time.Now()
	return absent
}
