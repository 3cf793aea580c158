package plan

import (
	"context"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// Departure is what is known of a namespace that no longer matches its selector, for one of its collections. Without the resourceVersion, a
// collection would be removed with what is unread, if it is read more slowly than the namespace is deleted.
//
//	state    meaning                                              next                                                               outcome
//	unasked  it is not known whether the namespace exists         kept, absent: the API server has answered                          Ended
//	kept     it exists, or the bridge may not get it              –                                                                  Removed
//	absent   it does not exist                                    bounded: a later plan has asked for the resource's resourceVersion Ended
//	bounded  nothing in it is newer than that                     passed: everything up to that is read and decided                  Ended
//	                                                              absent: the collection has another epoch
//	passed   everything that was in it is decided                 –                                                                  Removed, or Ended while objects are held
//
// What is known is forgotten when the collection is not Ended any more.
type Departure uint8

// The departures.
const (
	unasked Departure = iota
	kept
	absent
	bounded
	passed
)

// outcome returns the outcome of a collection.
func (d Departure) outcome(held Held) Outcome {
	if d == kept || d == passed && held < Objects {
		return Removed
	}
	return Ended
}

// Departures has the departures of one sink. It asks the API server once for each namespace, and once in a plan for each resource of which a
// collection is absent. It is not safe for concurrent use.
type Departures struct {
	exists  func(ctx context.Context, namespace string) (bool, error)
	version func(ctx context.Context, r discovery.Resource, since time.Time) (string, error)

	absent   map[string]time.Time // when namespaces were known not to exist
	bounds   map[string]bound     // by collection
	began    time.Time            // the present plan
	versions map[string]string    // that the present plan has asked for, by resource; "": the request failed
	failed   bool                 // the present plan could not find out whether a namespace exists: it sends no more requests
}

// bound is a resourceVersion that nothing in an absent namespace is newer than.
type bound struct {
	version string
	epoch   uint64 // of the collection when the version was asked for
}

// NewDepartures returns the departures of one sink.
func NewDepartures(c *Cluster) *Departures {
	return &Departures{exists: c.exists, version: c.version, absent: map[string]time.Time{}, bounds: map[string]bound{}}
}

// Outcomes returns the outcomes of a plan: see [Plan.Outcomes].
func (d *Departures) Outcomes(ctx context.Context, p *Plan, known []Known) Outcomes {
	d.began, d.versions, d.failed = time.Now(), map[string]string{}, false
	out := p.Outcomes(known, func(k *Known) Departure { return d.of(ctx, p.in.catalog, k) })
	absent, bounds := map[string]time.Time{}, map[string]bound{}
	for i := range out.Ended {
		id, namespace := out.Ended[i].ID(), out.Ended[i].Target.Collection.Namespace
		if at, known := d.absent[namespace]; known {
			absent[namespace] = at
		}
		if b, known := d.bounds[id]; known {
			bounds[id] = b
		}
	}
	d.absent, d.bounds = absent, bounds
	return out
}

// of returns the departure of a collection.
func (d *Departures) of(ctx context.Context, catalog *discovery.Catalog, k *Known) Departure {
	c := event.ParseCollection(k.ID)
	at, known := d.absent[c.Namespace]
	if !known {
		return d.ask(ctx, c.Namespace)
	}
	b := d.bounds[k.ID]
	if b.version == "" || b.epoch != k.Epoch { // versions of two histories do not compare
		if k.Held != Empty || k.Read == "" || !at.Before(d.began) { // it would not be removed yet
			return absent
		}
		if b = (bound{d.present(ctx, catalog, c.ResourceID()), k.Epoch}); b.version == "" {
			return absent
		}
		d.bounds[k.ID] = b
	}
	if k.Read == "" || event.Older(k.Read, b.version) {
		return bounded
	}
	return passed
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

// present returns the resourceVersion of a resource at some time after the present plan began; "": it is not known.
func (d *Departures) present(ctx context.Context, catalog *discovery.Catalog, resource string) string {
	version, known := d.versions[resource]
	if known || d.failed {
		return version
	}
	r, err := catalog.Find(discovery.Parse(resource))
	if err == nil {
		version, err = d.version(ctx, r, d.began)
	}
	if err != nil {
		version = ""
	}
	d.versions[resource] = version
	return version
}
