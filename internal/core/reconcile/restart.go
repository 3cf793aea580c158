package reconcile

import (
	"maps"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// State is what a store holds beside the inventory.
type State struct {
	Records  map[string]Record   // by collection
	Progress map[string]Progress // by collection
	Epochs   map[string]uint64   // by storage
	// Drafts and Intents are what was written before a batch of which it is not known whether
	// the bus has it. A store that is atomic with the sink has none, unless it was not before.
	Drafts  map[string]Draft
	Intents map[Slot][]Intent
}

// Reset is the state from which every collection that is not closed ends its incarnation at the next
// start, and begins another one if it is wanted. What is in doubt counts as published.
func (s State) Reset() State {
	next := State{Records: maps.Clone(s.Records), Progress: maps.Clone(s.Progress), Epochs: s.Epochs, Intents: s.Intents}
	for id, d := range s.Drafts {
		next.Records[id], next.Progress[id] = d.ending(s.Records[id]), d.Progress
	}
	for id, r := range next.Records {
		if r.Phase != New && r.Phase != Closed {
			r.Phase, r.Unwanted = Ending, r.Unwanted || r.Phase == Leaving
			next.Records[id] = r
		}
	}
	return next
}

// Position returns the position from which a restart watches a collection; "": it begins with a list.
func (s State) Position(id string) string {
	r := s.Records[id]
	if !r.Phase.watching() || r.Epoch < max(s.Epochs[r.Properties.Storage], 1) {
		return ""
	}
	return s.Progress[id].Position
}

// seen is the highest resourceVersion that was seen of a collection: a server that is behind what the bus
// may have has another history.
func (s State) seen(c *Collection) string {
	seen := c.Progress
	for slot, list := range s.Intents {
		for i := range list {
			if slot.Collection == c.ID && list[i].Epoch == c.Epoch {
				seen.saw(list[i].Version)
			}
		}
	}
	return seen.Seen
}

// Draft is the record and the progress of a collection as a batch would have left them.
type Draft struct {
	Record
	Progress
	Gap    bool `json:"gapindoubt,omitzero"`    // the batch has the gap of its run
	Synced bool `json:"syncedindoubt,omitzero"` // the batch has the synced event of a list
	Resync bool `json:"resyncindoubt,omitzero"` // the batch has the gap or the synced event of a resync
	// Confirmed: the batch has a periodic synced event.
	Confirmed bool `json:"confirmedindoubt,omitzero"`
	// From is [CollectionEvent].From of the last gap in doubt, which is emitted again as it was.
	From string `json:"from,omitzero"`
}

// note notes an event about the collection.
func (d *Draft) note(i *Item) {
	e := i.Event
	resync := event.GapCause(e.Reason).Resync
	switch e.Type {
	case event.Gap:
		d.Resync, d.From = resync, e.From
		d.Gap = d.Gap || !d.Resync
	case event.Synced:
		d.Resync = d.Resync || resync
		d.Synced = d.Synced || e.Nth == 1 && !resync
		d.Confirmed = e.Reason == event.ReasonPeriodic
	case event.Closed:
		d.Incarnation = i.Incarnation // it ends once more if closed is in doubt
	}
}

// complete adds the collection, and reports whether a restart needs the draft.
func (d *Draft) complete(c *Collection) bool {
	ended := d.Incarnation
	d.Record, d.Progress = c.stored(), c.Progress
	d.Incarnation = max(d.Incarnation, ended)
	return d.Gap || d.Synced || d.Resync || d.Confirmed || c.Phase == Ending || c.Phase == Leaving
}

// ending is the record of an ending that the draft leads to. before is the record in the store: where its
// null values are in doubt, their incarnation ends once more.
func (d *Draft) ending(before Record) Record {
	r := d.Record
	r.ClosedEmitted, r.Incarnation = before.ClosedEmitted, max(d.Incarnation, before.Incarnation)
	return r
}

// recover continues a collection from what the store holds of it.
//
//	draft                           continues as
//	none                            the record
//	Ending, Leaving                 the draft; Leaving with a reset in doubt is Ending; closed in doubt is emitted again
//	gap with reset, more in doubt   the draft; another gap with reset is emitted
//	with synced in doubt            the draft; another gap is emitted
//	Listing, its gap in doubt       the draft; the gap is emitted again, with its id, or another one from the position in the store
//	with a resync in doubt          the record, with a resync due; its gap is emitted again if it is in doubt and begins at the position in the store
//	with a periodic synced in doubt the record; the number of the synced event is not used again
//
// A draft of another kind, or of another phase, is not made: see [Draft.complete]. Changes up to the position of a draft may
// be in doubt, so no gap begins behind the position in the store.
func (c *Collection) recover(s State) {
	c.Record, c.Progress = s.Records[c.ID], s.Progress[c.ID]
	d, drafted := s.Drafts[c.ID]
	c.batch = batchState{record: c.Record, progress: c.Progress, drafted: drafted}
	switch {
	case !drafted:
	case d.Phase == Ending || d.Phase == Leaving:
		inDoubt := d.Incarnation != c.Incarnation
		c.Record, c.Seen = d.ending(c.Record), d.Seen
		if c.Phase == Leaving && inDoubt {
			c.end(true)
		}
	case d.Incarnation != c.Incarnation && (d.Synced || d.Run != d.Incarnation):
		c.Record, c.Progress = d.Record, d.Progress
		c.begin()
	case d.Synced:
		synced := c.SyncedEpoch
		c.Record, c.Seen = d.Record, d.Seen
		c.SyncedEpoch = synced
		c.gap(event.ReasonInterrupted)
	case d.Gap && d.From != "" && d.From != c.Position:
		c.Record, c.Seen = d.Record, d.Seen
		c.gap(c.Reason)
	case d.Gap:
		c.Record, c.Progress = d.Record, d.Progress
		c.emit(CollectionEvent{Type: event.Gap, Reason: c.Reason, Reset: c.Run == c.Incarnation, From: d.From})
	case d.Resync: // another one follows
		c.Resync = true
		if c.Run != d.Run {
			c.Run = d.Run
			if d.From == c.Position {
				c.emit(CollectionEvent{Type: event.Gap, Reason: event.ReasonResync, From: d.From})
			}
		}
	case d.Confirmed:
		c.Syncs = d.Syncs
	}
	c.closeFirst()
	if e := c.core.epochOf(c.Properties.Storage); c.Epoch < e && (c.Phase.watching() || c.Phase == Listing) {
		c.gap(event.ReasonHistory)
	}
	c.Seen = s.seen(c)
}
