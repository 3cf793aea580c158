// Package campaign is the fault campaign: a seeded workload on a real API server, seeded faults all around the bridge and in
// it, and a verdict on what is then found on the bus. A seed decides everything but the machine's speed.
package campaign

import (
	"fmt"
	"slices"
)

// Pair is a sink's delivery and the store of its checkpoint.
type Pair struct {
	Name     string // as -pair takes it
	Bus      string // nats, kafka, file, stdout
	Delivery string // "" where there is no choice
	Store    string // file, or as Bus
}

// Pairs are all that the configuration allows.
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
	}
}

// FindPair returns the pair of a name.
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

// exact: every event comes once.
func (p Pair) exact() bool { return p.Delivery == "exactly-once" }

// lossy: what the bus was not there for is lost.
func (p Pair) lossy() bool { return p.Delivery == "at-most-once" }

// shared: the checkpoint is on the bus, where another replica finds it.
func (p Pair) shared() bool { return p.Store != "file" }
