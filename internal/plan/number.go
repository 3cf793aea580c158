package plan

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Key is where a checkpoint keeps the [Numbers] of a sink.
const Key = "n/plan"

// What stands for a digest of properties in [Numbers.Next].
const (
	// Unspecified: the collection is wanted, with the properties that it has.
	Unspecified = ""
	// AsBefore: as Unspecified if the collection belonged to the plan before, and otherwise it
	// does not belong to this one either.
	AsBefore = "="
)

// Edit is the last change of a collection's properties.
type Edit struct {
	Number     uint64 `json:"number"`     // of the plan that made it
	Properties string `json:"properties"` // a digest
}

// Numbers are the numbers of a sink's plan. A value does not change: [Numbers.Next] makes another
// one. The zero value is that of an empty checkpoint.
type Numbers struct {
	Number uint64          // of the plan; grows with every change
	Birth  uint64          // when the checkpoint began
	Edits  map[string]Edit // by collection

	digests map[string]string // by resource
}

// Changes are what a plan has changed.
type Changes struct {
	// Resources have another digest than before. Consumers must get the number of the plan with an
	// event of one of their collections; where none is due, that is a synced event.
	Resources []string
	// Edited are collections that are new or have other properties. Consumers must get the edit of
	// each with an event of its own; where none is due, that is a synced event.
	Edited []string
}

// numbersText is the encoding of Numbers.
type numbersText struct {
	Number uint64          `json:"number"`
	Birth  uint64          `json:"birth"`
	Edits  map[string]Edit `json:"edits"`
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
	n := Numbers{Number: t.Number, Birth: t.Birth, Edits: t.Edits}
	n.digests = n.digest()
	return n, nil
}

// Encode is the value that a checkpoint keeps. Equal numbers have equal values.
func (n Numbers) Encode() []byte {
	value, err := json.Marshal(numbersText{n.Number, n.Birth, n.Edits})
	if err != nil {
		panic(err) // numbers and strings
	}
	return value
}

// Next are the numbers of the plan that has the collections of wanted, by ID, each with a digest of
// its properties, [Unspecified] or [AsBefore]. Without a difference they are those of the plan before. A difference
// makes another Number, which is that of every Edit that it causes.
//
// now is the time in milliseconds since 1970; if the checkpoint is empty, it must be higher than
// every number of a plan and a birth on the bus. The result must be durable before the sink gets
// an event that carries it.
func (n Numbers) Next(wanted map[string]string, now uint64) (Numbers, Changes) {
	next := Numbers{Number: max(n.Number+1, now), Birth: n.Birth, Edits: map[string]Edit{}}
	if next.Birth == 0 {
		next.Birth = now
	}
	var changes Changes
	for id, properties := range wanted {
		e, known := n.Edits[id]
		switch {
		case known && (properties == Unspecified || properties == AsBefore || properties == e.Properties):
			next.Edits[id] = e
		case properties != AsBefore:
			next.Edits[id] = Edit{next.Number, properties}
			changes.Edited = append(changes.Edited, id)
		}
	}
	if n.Birth != 0 && len(changes.Edited) == 0 && len(n.Edits) == len(next.Edits) {
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

// Of is what events about a collection say of the plan. The edit of a collection that is not wanted
// any more is the plan's number.
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

// digest computes the digest of each resource.
func (n Numbers) digest() map[string]string {
	edits := map[string]map[string]uint64{}
	for id, e := range n.Edits {
		c := event.ParseEntryCollection(id)
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
