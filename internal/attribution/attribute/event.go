package attribute

import (
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Complete implements [encode.Chronicle].
func (a *Attribution) Complete(number uint64, e *event.Event) event.KV {
	if r := a.refusals.byID[number]; r != nil {
		return a.completeRefusal(r, e)
	}
	c := a.waiting[number]
	a.decided[number].sent = true
	e.Run, e.Incarnation, e.APIVersion, e.Kind = c.Run, c.Incarnation, c.APIVersion, c.Kind
	e.Namespace, e.Name, e.UID, e.ResourceVersion = c.Namespace, c.Name, c.UID, c.Published
	e.Type, e.Explained = event.Attributed, c.Type
	e.Attribution = a.decided[number].attributed(maxBytes >> (2 * a.rejected[number]))
	explained := *e
	explained.Type = c.Type
	e.Attribution.Explains = explained.ID()
	return event.KV{Key: key(c)}
}

// Reject implements [encode.Chronicle].
func (a *Attribution) Reject(number uint64) (object string, final bool) {
	a.rejected[number]++
	final = a.rejected[number] >= maxRejections
	if r := a.refusals.byID[number]; r != nil {
		r.final = final
		return objectName(r.Record.Namespace, r.Record.Name), final
	}
	c := a.waiting[number]
	return objectName(c.Namespace, c.Name), final
}

func objectName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
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

// explained says that the event of a change's verdict, or of a refusal, is on the bus and in the store.
func (a *Attribution) explained(number uint64) {
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
