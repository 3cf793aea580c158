package attribute

import (
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Event returns the event that says who made a change, without what is the same for all events of its collection. It returns the change of
// the checkpoint that is to be committed with it.
func (a *Attribution) Event(number uint64) (e event.Event, done event.KV) {
	c := a.waiting[number]
	a.decided[number].sent = true
	e = event.Event{
		Type: event.Attributed, Explained: c.Type, Origin: event.Audit, Run: c.Run, Incarnation: c.Incarnation,
		APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.Published,
		Attribution: a.decided[number].attributed(maxBytes >> (2 * a.rejected[number])),
	}
	return e, event.KV{Key: key(c)}
}

// Reject says that the bus does not take the event of a change's verdict, or of a refusal. The next one is smaller. final says that there will
// be none. The result has the object.
func (a *Attribution) Reject(number uint64) (object Change, final bool) {
	a.rejected[number]++
	final = a.rejected[number] >= maxRejections
	if r := a.refusals.byID[number]; r != nil {
		r.final = final
		return Change{Namespace: r.Record.Namespace, Name: r.Record.Name}, final
	}
	return *a.waiting[number], final
}

// Explains returns the id of the event that a change is in. e is from [Attribution.Event], with its collection.
func Explains(e *event.Event) string {
	explained := *e
	explained.Type = e.Explained
	return explained.ID()
}

// Silent reports whether nothing is published about a change that has a verdict: no record fits, or the bus takes no event about it.
func (a *Attribution) Silent(number uint64) bool {
	return a.decided[number].silent() || a.rejected[number] >= maxRejections
}

// Drop gives up a change that has a verdict, and returns the change of the checkpoint that follows.
func (a *Attribution) Drop(number uint64) event.KV {
	c := a.waiting[number]
	switch {
	case a.decided[number].silent():
		a.counts.Unknown++
	case a.rejected[number] >= maxRejections:
		a.counts.Rejected++
	default:
		a.counts.Dropped++
	}
	a.forget(number)
	return event.KV{Key: key(c)}
}

// Committed says that the event of a change's verdict, or of a refusal, is on the bus and in the store.
func (a *Attribution) Committed(number uint64) {
	if r := a.refusals.byID[number]; r != nil {
		a.counts.Refusals.published(r)
		a.refusals.remove(r)
		delete(a.rejected, number)
		return
	}
	d := a.decided[number]
	switch {
	case d == nil:
		return
	case d.exact():
		a.counts.Exact++
	default:
		a.counts.Candidates[d.verdict.Reason]++
	}
	a.forget(number)
}

// request returns a request as events have it.
func request(r *audit.Record) event.Request {
	out := event.Request{
		User: user(&r.Actor.User), SourceIPs: r.Actor.SourceIPs, UserAgent: r.Actor.UserAgent,
		Verb: r.Verb, Subresource: r.Subresource, URI: r.URI, AuditID: r.ID,
		Received: event.FormatTime(r.Received), Code: r.Code, Decision: r.Decision, DecisionReason: r.Reason, Cut: r.Cut,
	}
	if r.Stage == audit.Complete {
		out.Completed = event.FormatTime(r.Reached)
	}
	if r.Actor.Impersonated != nil {
		u := user(r.Actor.Impersonated)
		out.Impersonated = &u
	}
	return out
}

func user(u *audit.User) event.User {
	return event.User{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}
