package event

import "slices"

// Reason says why an event about a collection was published. Consumers may receive reasons that this version does not know.
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
	// Unexpected is set if changes may be missing although no user or configuration caused the gap. It is also set if what caused it
	// is routine, such as a restart of the only API server. The alert KubebridgeGap is for these reasons.
	Unexpected bool
	// NewEpoch is set if resourceVersions after the gap belong to another epoch than those before it.
	NewEpoch bool
	// Resync is set if every object is published again while the watch goes on. The gap keeps the position. Objects that
	// its list does not publish were published or deleted by the watch since the gap.
	Resync bool
	Text   string // the text in docs/events.md
}

// Reasons returns every reason with its cause, in the order of docs/events.md. A synced event has the reason of its
// gap. A reason has two rows if it means something else in a closed event.
// Tests compare the table with the documents, the schemas and the alerts.
func Reasons() []Cause {
	gap := []Type{Gap, Synced}
	return []Cause{
		{Reason: ReasonReset, Types: gap, Text: "A new incarnation: the first list of the collection, a reset on request, a change of what consumers may see, or lost data of the bus or the checkpoint."},
		{Reason: ReasonExpired, Types: gap, Unexpected: true, Text: "The API server no longer had the changes that follow, or the resource exists again."},
		{Reason: ReasonInterrupted, Types: gap, Unexpected: true, Text: "It is not known whether consumers have the `synced` of the list before."},
		{Reason: ReasonSelection, Types: gap, Text: "The selectors changed."},
		{Reason: ReasonFilter, Types: gap, Text: "The filter or the ignore rules changed."},
		{Reason: ReasonHistory, Types: gap, Unexpected: true, NewEpoch: true, Text: "The API server has another history: etcd was restored. A new `epoch` begins."},
		{Reason: ReasonRewritten, Types: gap, Unexpected: true, Text: "Objects changed without a new resourceVersion, for example because a CustomResourceDefinition got a default."},
		{Reason: ReasonDrift, Types: gap, Text: "A verification found objects that differ from what was published."},
		{Reason: ReasonGone, Types: gap, Text: "The resource or its namespace does not exist. Every object of the collection is deleted in this gap. The `synced` has no version."},
		{Reason: ReasonReturned, Types: gap, Text: "The collection was removed from the configuration and added again before it was closed, or its resource exists again."},
		{Reason: ReasonResync, Types: gap, Resync: true, Text: "Every object is published again, on request or at an interval."},
		{Reason: ReasonPeriodic, Types: []Type{Synced}, Text: "Nothing happened: the collection is still complete."},
		{Reason: ReasonRemoved, Types: []Type{Closed}, Text: "The configuration does not have the collection any more."},
		{Reason: ReasonRoute, Types: []Type{Closed}, Text: "The topic, subject or key changed. A new incarnation follows on the new route."},
		{Reason: ReasonReset, Types: []Type{Closed}, Text: "With `tombstones: true` only: a new incarnation follows."},
	}
}

// GapCause returns what a reason means in a gap and its synced event. It returns the zero value for a reason that no gap
// has, or that this version does not know.
func GapCause(r Reason) Cause {
	for _, c := range Reasons() {
		if c.Reason == r && slices.Contains(c.Types, Gap) {
			return c
		}
	}
	return Cause{}
}

// ReasonsOf returns the reasons that events of a type may have. Events about objects have none.
func ReasonsOf(t Type) (list []Reason) {
	for _, c := range Reasons() {
		if slices.Contains(c.Types, t) {
			list = append(list, c.Reason)
		}
	}
	return list
}
