package sink

import "github.com/kubebridge/kubebridge/pkg/event"

// Place identifies a record of a batch, also after records were taken out of it: its id and route, and how many like it stand before it.
type Place struct {
	ID, Route string
	Nth       int
}

// Places are those of a batch's records, in their order. A sink that remembers
// what of a batch is written, beyond how many records from the first, remembers
// places and not indexes.
func Places(records []event.Record) []Place {
	places := make([]Place, len(records))
	seen := make(map[Place]int, len(records))
	for i := range records {
		p := Place{ID: records[i].ID, Route: records[i].Route}
		seen[p]++
		p.Nth = seen[p] - 1
		places[i] = p
	}
	return places
}
