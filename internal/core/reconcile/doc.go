// Package reconcile decides which events a collection's inputs lead to.
//
// It is a state machine without goroutines, channels, I/O, clocks, logs or metrics:
// [Core.Step] takes one input and appends what follows from it to the batch that
// fills; [Core.Seal] hands that batch out for delivery; [Core.Committed] says that it
// is durable. Everything that a restart needs is in the changes of a batch, so a
// restart is [NewCore] with what the store holds, and a test can stop and restart a core
// between any two inputs.
//
// Two tables hold most decisions: the transitions of a collection (see [Phase]) and
// what is emitted for one object (see [Sighting]); a restart has its own (restart.go). The tests of this package walk through
// both, with a cluster, a bus, a store and a consumer around them.
//
// The parts, each with its own type:
//
//	[Collection]          what one collection does; its reads are list and side (lists.go)
//	[Record], [Progress]  what is durable of it; [State] and [Draft] are what a restart has (restart.go)
//	[Sighting], view      what follows for one object (object.go)
//	inventory, doubts     what is known of the objects, and what is in doubt
//	[Batch], pending      what becomes durable together
//	[Core]                joins them: an input goes to its collection
//
// A run begins with each gap of a collection, and has a number. An incarnation is the
// run of its last reset. docs/architecture.md has the rules.
package reconcile
