package sink

import "github.com/kubebridge/kubebridge/pkg/event"

// Place identifies a record of a batch, even after other records were taken out: its id and route, and the number of records with the same id and route before it.
type Place struct {
	ID, Route string
	Nth       int
}

// Places returns the places of a batch's records, in their order. A sink that remembers
// which records of a batch are written, and not only how many from the first, remembers
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
