// Package loop runs one sink: it connects what reads the API server, what decides, and what
// delivers.
//
//	Reader ── frames ──► Loop ── inputs ──► reconcile.Core ── items ──► Encoder ──► delivery.Delivery
//	   ▲                  │                                                            │
//	   └── reads, stops ──┴─────────────────── committed, refused, rejected ◄──────────┘
//
// One goroutine, [Loop.Run], owns the core. Frames wait while a batch is full, so a slow bus slows
// the readers down and memory stays bounded. There is one batch on its way and one that fills.
//
// A route that refuses takes its collections out of the core; after a pause they continue from
// what the store holds, as after a restart. So does the collection of a record that the bus
// rejects, at once; the event is a dead letter then.
package loop
