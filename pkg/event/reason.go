package event

import "slices"

// Reason says why an event about a collection was published. Consumers may get reasons that this version does not have.
type Reason string

// The reasons of events about a collection. [Reasons] says what each means.
const (
	ReasonReset       Reason = "reset"
	ReasonExpired     Reason = "expired"
	ReasonInterrupted Reason = "interrupted"
	ReasonSelection   Reason = "selection"
	ReasonFilter      Reason = "filter"
	ReasonHistory     Reason = "history"
	ReasonRewritten   Reason = "rewritten"
	ReasonDrift       Reason = "drift"
	ReasonGone        Reason = "gone"
	ReasonReturned    Reason = "returned"
	ReasonResync      Reason = "resync"
	ReasonPeriodic    Reason = "periodic"
	ReasonRemoved     Reason = "removed"
	ReasonRoute       Reason = "route"
)

// Cause is what a reason means in events of some types.
type Cause struct {
	Reason Reason
	Types  []Type
	// Unexpected is set if changes in between are not known and nobody asked for that. The alert
	// KubebridgeGap is for these.
	Unexpected bool
	Text       string // as docs/events.md has it
}

// Reasons returns every reason with its cause, in the order of docs/events.md. The reason of a gap
// is also that of its synced event. A reason has two rows if it means something else in a closed event.
// Tests compare it with the documents, the schemas and the alerts.
func Reasons() []Cause {
	gap := []Type{Gap, Synced}
	return []Cause{
		{ReasonReset, gap, false, "A new incarnation: the first list of the collection, a reset on request, a change of what consumers may see, or lost data of the bus or the checkpoint."},
		{ReasonExpired, gap, true, "The API server no longer had the changes that follow, or the resource exists again."},
		{ReasonInterrupted, gap, true, "It is not known whether consumers have the `synced` of the list before."},
		{ReasonSelection, gap, false, "The selectors changed."},
		{ReasonFilter, gap, false, "The filter or the ignore rules changed."},
		{ReasonHistory, gap, true, "The API server has another history: etcd was restored. A new `epoch` begins."},
		{ReasonRewritten, gap, true, "Objects changed without a new resourceVersion, for example because a CustomResourceDefinition got a default."},
		{ReasonDrift, gap, false, "A verification found objects that differ from what was published."},
		{ReasonGone, gap, false, "The resource or its namespace does not exist. Every object of the collection is deleted in this gap. The `synced` has no version."},
		{ReasonReturned, gap, false, "The collection was removed from the configuration and added again before it was closed."},
		{ReasonResync, gap, false, "Every object is published again, on request or at an interval."},
		{ReasonPeriodic, []Type{Synced}, false, "Nothing happened: the collection is still complete."},
		{ReasonRemoved, []Type{Closed}, false, "The configuration does not have the collection any more."},
		{ReasonRoute, []Type{Closed}, false, "The topic, subject or key changed. A new incarnation follows on the new route."},
		{ReasonReset, []Type{Closed}, false, "With `tombstones: true` only: a new incarnation follows."},
	}
}

// ReasonsOf returns the reasons that events of a type may have, none for events about objects.
func ReasonsOf(t Type) (list []Reason) {
	for _, c := range Reasons() {
		if slices.Contains(c.Types, t) {
			list = append(list, c.Reason)
		}
	}
	return list
}
