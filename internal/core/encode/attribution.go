package encode

import (
	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// attributed completes the event that says who made a change, or that a request was refused, and makes its record.
func (e *Encoder) attributed(c *collection, i *reconcile.Item, ev *event.Event) (event.Record, []event.KV) {
	made, done, refused := e.Attribution.RefusalEvent(i.Attribution.ID)
	if refused {
		made.Run, made.Incarnation = ev.Run, ev.Incarnation
	} else {
		made, done = e.Attribution.Event(i.Attribution.ID)
	}
	made.Time, made.Collection, made.Epoch = ev.Time, ev.Collection, ev.Epoch
	*ev = made
	if !refused {
		ev.Attribution.Explains = attribute.Explains(ev)
	}
	changes := e.filling.changes.Take(1)
	changes[0] = done
	return e.record(c, i, ev, nil), changes
}

// waits reports whether events have the request that made their change, if it is known in time.
func (o *Options) waits() bool { return o.Attribution != nil && o.Attribution.Wait() > 0 }

// of returns the name that attributions have for a publication.
func (p publication) of(c *collection) attribute.Publication {
	return attribute.Publication{Collection: c.id, UID: p.uid, Version: p.version, Deleted: p.deleted}
}

// awaitAttribution makes the change of an object's event wait for the request that made it. If that is known already, and with room, the event
// gets it instead, unless the event is in doubt: consumers may then have it without. It returns false if nothing waits. No request has made the
// change:
//
//	event               what happened
//	added by a watch    created; or changed, where a selector, a filter or the first list may have left the object out before
//	added by a list     created or changed
//	modified            changed
//	deleted             removed, if the object is gone; changed, if a watch has seen it leave. In other cases it is not known
//	present             nothing
func (e *Encoder) awaitAttribution(c *collection, i *reconcile.Item, ev *event.Event, room bool) (change event.KV, waits bool) {
	if e.Attribution == nil || ev.DeadLetter != nil || ev.Type == event.Present || ev.Origin == event.Snapshot {
		return change, false
	}
	live := ev.Origin == event.Watch
	w := &attribute.Change{
		Collection: c.id, Type: ev.Type, Run: ev.Run, Incarnation: i.Incarnation, Epoch: ev.Epoch, APIVersion: ev.APIVersion, Kind: ev.Kind,
		Namespace: ev.Namespace, Name: ev.Name, UID: ev.UID, Published: ev.ResourceVersion, Made: i.Object.Version, Did: join.Changed,
	}
	f := factsOf(i)
	if live && f != nil && f.knownUID == ev.UID {
		w.Before = f.knownVersion
	}
	switch ev.Type {
	case event.Added:
		w.Did = join.Written
		if live && f != nil && f.knownUID != ev.UID && c.filter == nil && c.eventCollection.LabelSelector == "" && c.eventCollection.FieldSelector == "" {
			w.Did = join.Created
		}
	case event.Deleted:
		switch {
		case i.Object.Fate == reconcile.Gone:
			w.Did = join.Removed
		case !live || i.Object.Fate == reconcile.Unknown:
			return change, false
		}
		if !live { // the version is that of the list
			w.Made = ""
		}
	}
	w.Unrequested = unrequested(&c.eventCollection, i, w.Did)
	change = e.Attribution.Published(w, live, ev.Time)
	_, doubted := c.doubted[ev.UID]
	if room && f != nil && !f.inDoubt && (ev.Type != event.Deleted || !doubted) && e.waits() {
		ev.Actor = e.Attribution.Carry(w)
	}
	return change, ev.Actor == nil
}

// unrequested reports whether the API server may have made the change of an object without a request. It removes Events after an hour and Endpoints
// with their Service. It deletes custom resources with their CustomResourceDefinition: those with finalizers get a deletionTimestamp
// (deleteInstances in k8s.io/apiextensions-apiserver pkg/controller/finalizer/crd_finalizer.go).
func unrequested(c *event.Collection, i *reconcile.Item, did join.Kind) bool {
	group, resource := audit.ResourceOf(c.Group, c.Resource)
	if did == join.Removed {
		return !builtIn(group) || group == "" && (resource == "events" || resource == "endpoints")
	}
	o, _ := i.Object.Body.(*source.Object)
	return !builtIn(group) && o != nil && o.Ending
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
