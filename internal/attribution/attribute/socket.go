package attribute

import (
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// keepEvery is how often verdicts are stored that cannot be published yet.
const keepEvery = time.Second

// MayWait implements [loop.Delayer].
func (a *Attribution) MayWait(collection string, s *reconcile.Sighting, known *reconcile.Object, received time.Time) time.Duration {
	if a.options.Wait == 0 {
		return 0
	}
	c := Change{Collection: collection, UID: s.UID, Made: s.Version, Did: join.Written, live: received}
	c.Namespace, c.Name, _ = strings.Cut(s.Key, "/")
	switch {
	case s.Form == reconcile.Ended && s.Fate == reconcile.Gone:
		c.Did = join.Removed
	case s.Form == reconcile.Ended:
		c.Did = join.Changed
	}
	if known != nil && known.UID == s.UID {
		c.Before = known.Version
	}
	if a.join(a.present(a.storageOf(&c)), received).Decides(a.joined(&c)) {
		return 0
	}
	return a.options.Wait
}

// Publish implements [encode.Witness]: the change waits for the request that made it, or is carried by its event. No request has made it:
//
//	event               what happened
//	added by a watch    created; or changed, where a selector, a filter or the first list may have left the object out before
//	added by a list     created or changed
//	modified            changed
//	deleted             removed, if the object is gone; changed, if a watch has seen it leave. In other cases it is not known
//	present             nothing
func (a *Attribution) Publish(p *encode.Publication) (carried *event.Request, change event.KV) {
	if p.DeadLetter != nil || p.Type == event.Present || p.Origin == event.Snapshot {
		return nil, change
	}
	live := p.Origin == event.Watch
	c := &Change{
		Collection: p.Collection.ID(), Type: p.Type, Run: p.Run, Incarnation: p.Incarnation, Epoch: p.Epoch, APIVersion: p.APIVersion, Kind: p.Kind,
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, Published: p.ResourceVersion, Made: p.Item.Object.Version, Did: join.Changed,
	}
	if live && p.Known && p.KnownUID == p.UID {
		c.Before = p.KnownVersion
	}
	switch p.Type {
	case event.Added:
		c.Did = join.Written
		if live && p.Known && p.KnownUID != p.UID && !p.Selects {
			c.Did = join.Created
		}
	case event.Deleted:
		switch fate := p.Item.Object.Fate; {
		case fate == reconcile.Gone:
			c.Did = join.Removed
		case !live || fate == reconcile.Unknown:
			return nil, change
		}
		if !live { // the version is that of the list
			c.Made = ""
		}
	}
	c.Unrequested = unrequested(p, c.Did)
	change = a.await(c, live, p.Time)
	if p.Room && a.options.Wait > 0 {
		if carried = a.carry(c); carried != nil {
			return carried, event.KV{}
		}
	}
	return nil, change
}

// unrequested reports whether the API server may have made the change of an object without a request. It removes Events after an hour and Endpoints
// with their Service. It deletes custom resources with their CustomResourceDefinition: those with finalizers get a deletionTimestamp
// (deleteInstances in k8s.io/apiextensions-apiserver pkg/controller/finalizer/crd_finalizer.go).
func unrequested(p *encode.Publication, did join.Kind) bool {
	of := ResourceOf(p.Collection)
	if did == join.Removed {
		return !builtIn(of.Group) || of.Group == "" && (of.Resource == "events" || of.Resource == "endpoints")
	}
	o, _ := p.Item.Object.Body.(*source.Object)
	return !builtIn(of.Group) && o != nil && o.Ending
}

// builtIn reports whether kube-apiserver itself has a group.
func builtIn(group string) bool {
	switch group {
	case "", "apps", "autoscaling", "batch", "policy",
		"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "certificates.k8s.io", "coordination.k8s.io",
		"discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io",
		"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io":
		return true
	}
	return false
}

// Turn begins a page. It is called before records are read.
func (a *Attribution) Turn(p loop.Page) { p.Note(a.setEpochs(p.Epochs(), p.At)...) }

// Write implements [loop.Chronicle].
func (a *Attribution) Write(p loop.Page) {
	a.Turn(p)
	a.writeVerdicts(p)
	a.keepVerdicts(p)
	a.writeRefusals(p)
}

// writeVerdicts publishes who made the changes of which this is known now.
func (a *Attribution) writeVerdicts(p loop.Page) {
	var dropped []event.KV
	ready := a.Ready(p.At)
	for n, c := range ready {
		switch p.Place(c.Collection, c.Incarnation) {
		case loop.Full:
			a.Later(ready[n:])
			p.Remove(dropped...)
			return
		case loop.Later:
			a.Later(ready[n : n+1])
		case loop.Suspended: // Restore makes it ready again
		case loop.Open:
			if a.Silent(c.Number) || !p.AddEvent(c.Collection, c.Incarnation, c.Number) {
				dropped = append(dropped, a.Drop(c.Number))
			}
		}
	}
	p.Remove(dropped...)
}

// keepVerdicts stores what is known about changes of collections that are suspended or not named yet, so that their records are not needed until
// that is published. After an error the next call tries again. It waits while the events of some of these changes may be settled: their entries are
// removed.
func (a *Attribution) keepVerdicts(p loop.Page) {
	if p.At.Sub(a.kept) < keepEvery || p.Settling() {
		return
	}
	a.kept = p.At
	changes, _ := a.Keep(func(c *Change) bool { // the store reports the error
		at := p.Place(c.Collection, c.Incarnation)
		return at == loop.Suspended || at == loop.Later
	})
	p.Note(changes...)
}

// writeRefusals publishes refused requests. One that the sink does not publish any more is dropped.
func (a *Attribution) writeRefusals(p loop.Page) {
	for _, r := range a.Refusals() {
		switch p.Place(r.Collection, 0) {
		case loop.Full:
			return
		case loop.Open:
			if r.Final() || !p.AddEvent(r.Collection, 0, r.ID) {
				p.Note(a.DropRefusal(r))
			} else {
				a.Pass(r)
			}
		case loop.Later, loop.Suspended:
		}
	}
}

// Sealed implements [loop.Chronicle].
func (a *Attribution) Sealed() {
	a.refusals.flying, a.refusals.filling = append(a.refusals.flying, a.refusals.filling...), nil
	a.storing.flying, a.storing.filling = append(a.storing.flying, a.storing.filling...), nil
}

// Committed implements [loop.Chronicle]: also the notes of the batch are durable.
func (a *Attribution) Committed(items []reconcile.Item) {
	for i := range items {
		if of := items[i].Attribution; of != nil {
			a.explained(of.ID)
		}
	}
	for _, r := range a.refusals.flying {
		r.durable = true
	}
	a.refusals.flying = nil
	a.keptDurably()
}
