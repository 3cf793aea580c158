// Package campaign is the fault campaign: a random workload on a real API server, random faults of the bridge and of everything around
// it, and a verdict on the messages on the bus. A seed determines everything except timing.
package campaign

import (
	"fmt"
	"slices"
)

// Pair is a combination of a bus, its delivery and the store of the checkpoint.
type Pair struct {
	Name     string // the value of -pair
	Bus      string // nats, kafka, file, stdout, http
	Delivery string // "" if the bus has only one
	Store    string // file, or the same as Bus
}

// Pairs returns all pairs that the configuration allows.
func Pairs() []Pair {
	return []Pair{
		{"kafka-eo/kafka", "kafka", "exactly-once", "kafka"},
		{"kafka-alo/kafka", "kafka", "at-least-once", "kafka"},
		{"kafka-alo/file", "kafka", "at-least-once", "file"},
		{"nats-eo/nats", "nats", "exactly-once", "nats"},
		{"nats-eo/file", "nats", "exactly-once", "file"},
		{"nats-alo/file", "nats", "at-least-once", "file"},
		{"nats-amo/file", "nats", "at-most-once", "file"},
		{"file/file", "file", "", "file"},
		{"stdout/file", "stdout", "", "file"},
		{"http/file", "http", "", "file"},
	}
}

// FindPair returns the pair with a name.
func FindPair(name string) (Pair, error) {
	for _, p := range Pairs() {
		if p.Name == name {
			return p, nil
		}
	}
	var names []string
	for _, p := range Pairs() {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return Pair{}, fmt.Errorf("pair %q: there are %v", name, names)
}

// exact reports whether no event may be repeated.
func (p Pair) exact() bool { return p.Delivery == "exactly-once" }

// lossy reports whether events during an outage of the bus are lost.
func (p Pair) lossy() bool { return p.Delivery == "at-most-once" }

// shared reports whether the checkpoint is on the bus, so that another replica can continue it.
func (p Pair) shared() bool { return p.Store != "file" }
