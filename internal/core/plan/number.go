package plan

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Key is where a checkpoint keeps the [Numbers] of a sink.
const Key = "n/plan"

// Values that take the place of a digest of properties.
const (
	// unspecified: the collection is wanted, with the properties that it has.
	unspecified = ""
	// asBefore: as unspecified if the collection belonged to the previous plan. Otherwise the collection
	// does not belong to this plan either.
	asBefore = "="
	// unlistedYet: the collections of an entry are unknown, because its namespaces are not listed yet. No event is due.
	unlistedYet = "?"
)

// Edit is the last change of a collection's properties.
type Edit struct {
	Number     uint64 `json:"number"`     // of the plan that made it
	Properties string `json:"properties"` // a digest
	// First: the collection existed when its entry had all its collections for the first time, or earlier.
	First bool `json:"first,omitzero"`
}

// Numbers are the durable part of a sink's plan. A value is immutable: [Numbers.Next] returns a new
// one. The zero value stands for an empty checkpoint.
type Numbers struct {
	Number uint64          // of the plan; grows with every change
	Birth  uint64          // when the checkpoint began, or was last reset: see [Numbers.Reborn]
	Edits  map[string]Edit // by collection, or by a placeholder for the collections of an entry whose namespaces are not listed yet
	Begun  []string        // entries that have had all their collections, by [Entry.String]; sorted

	digests map[string]string // by resource
}

// Changes are the changes that a plan makes.
type Changes struct {
	// Resources have another digest than before. Consumers must get the number of the plan with an
	// event of one of their collections. If no event is due, a synced event carries it.
	Resources []string
	// Edited are collections that are new or have other properties. Consumers must get the edit of
	// each with an event of this collection. If no event is due, a synced event carries it.
	Edited []string
}

type numbersText struct {
	Number uint64          `json:"number"`
	Birth  uint64          `json:"birth"`
	Edits  map[string]Edit `json:"edits"`
	Begun  []string        `json:"begun,omitzero"`
}

// Decode reads what [Numbers.Encode] wrote; nil is an empty checkpoint.
func Decode(value []byte) (Numbers, error) {
	if value == nil {
		return Numbers{}, nil
	}
	var t numbersText
	if err := json.Unmarshal(value, &t); err != nil {
		return Numbers{}, fmt.Errorf("read the numbers of the plan: %w", err)
	}
	n := Numbers{Number: t.Number, Birth: t.Birth, Edits: t.Edits, Begun: t.Begun}
	n.digests = n.digest()
	return n, nil
}

// Encode returns the value for the checkpoint. Equal numbers have equal values.
func (n Numbers) Encode() []byte {
	value, err := json.Marshal(numbersText{n.Number, n.Birth, n.Edits, n.Begun})
	if err != nil {
		panic(err) // numbers and strings always encode always encode
	}
	return value
}

// Next returns the numbers of the next plan, which has the outcomes o. properties returns a digest of
// the properties of a wanted collection, which is not empty. If no collection is added, removed or has
// other properties, Number and Edits stay. Otherwise Number is higher, and each Edit that changes has
// the same number.
//
// now is the time in milliseconds since 1970; if the checkpoint is empty, it must be higher than
// every number of a plan and a birth on the bus. If the result encodes otherwise than before, it must
// be durable before the sink gets an event that carries it.
func (n Numbers) Next(o *Outcomes, properties func(*Collection) string, now uint64) (Numbers, Changes) {
	wanted := o.counted(properties)
	for _, u := range o.unlisted {
		if !slices.Contains(n.Begun, u.entry) { // no copy is complete without what the entry is about to have
			wanted[u.id] = unlistedYet
		}
	}
	next, changes := n.next(wanted, now)
	for _, list := range [][]Collection{o.Wanted, o.Unserved} {
		for i := range list {
			id := list[i].ID()
			_, known := n.Edits[id]
			if e, counted := next.Edits[id]; counted && !known && !slices.Contains(n.Begun, list[i].Entry) {
				e.First = true
				next.Edits[id] = e
			}
		}
	}
	next.Begun = slices.Clone(o.complete)
	for _, entry := range n.Begun {
		if slices.Contains(o.entries, entry) {
			next.Begun = append(next.Begun, entry)
		}
	}
	slices.Sort(next.Begun)
	next.Begun = slices.Compact(next.Begun)
	return next, changes
}

// Reborn returns the numbers after a reset of the whole checkpoint. Because of the higher birth, consumers drop every collection
// with an older incarnation. This includes collections that the checkpoint does not have, because their events may have been on
// the bus without a commit. now is as for [Numbers.Next].
func (n Numbers) Reborn(now uint64) Numbers {
	if n.Birth != 0 {
		n.Number, n.Birth = max(n.Number+1, now), max(n.Birth+1, now)
	}
	return n
}

// First reports whether a collection existed when its entry had all its collections for the first
// time, or earlier. An entry that skips the first list skips it only for these collections.
func (n Numbers) First(collection string) bool { return n.Edits[collection].First }

func (n Numbers) next(wanted map[string]string, now uint64) (Numbers, Changes) {
	next := Numbers{Number: max(n.Number+1, now), Birth: n.Birth, Edits: map[string]Edit{}}
	if next.Birth == 0 {
		next.Birth = now
	}
	var changes Changes
	same := n.Birth != 0
	for id, properties := range wanted {
		e, known := n.Edits[id]
		switch {
		case known && (properties == unspecified || properties == asBefore || properties == e.Properties):
			next.Edits[id] = e
		case properties != asBefore:
			same = false
			next.Edits[id] = Edit{next.Number, properties, e.First}
			if properties != unlistedYet {
				changes.Edited = append(changes.Edited, id)
			}
		}
	}
	if same && len(n.Edits) == len(next.Edits) {
		return n, Changes{}
	}
	next.digests = next.digest()
	for resource := range next.digests {
		if n.digests[resource] != next.digests[resource] {
			changes.Resources = append(changes.Resources, resource)
		}
	}
	for resource := range n.digests {
		if _, has := next.digests[resource]; !has {
			changes.Resources = append(changes.Resources, resource)
		}
	}
	slices.Sort(changes.Edited)
	slices.Sort(changes.Resources)
	return next, changes
}

// Of returns the numbers of the plan that events about a collection carry. For a collection that is no longer wanted, the edit is
// the plan's number.
func (n Numbers) Of(c *event.Collection) *event.Plan {
	digest, ok := n.digests[c.ResourceID()]
	if !ok {
		digest = event.PlanDigest(nil)
	}
	edit, wanted := n.Edits[c.ID()]
	if !wanted {
		edit.Number = n.Number
	}
	return &event.Plan{Number: n.Number, Digest: digest, Edit: edit.Number, Birth: n.Birth}
}

func (n Numbers) digest() map[string]string {
	edits := map[string]map[string]uint64{}
	for id, e := range n.Edits {
		c := event.ParseCollection(id)
		resource := c.ResourceID()
		if edits[resource] == nil {
			edits[resource] = map[string]uint64{}
		}
		edits[resource][id] = e.Number
	}
	digests := make(map[string]string, len(edits))
	for resource := range edits {
		digests[resource] = event.PlanDigest(edits[resource])
	}
	return digests
}
