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
// If a route refuses records, the loop takes the collections of that route out of the core. After a
// pause they continue from what the store holds, as after a restart. If the bus rejects one record,
// its collection is taken out too and continues without a pause. The event of that record is then cut
// down, or is a dead letter: see [Encoder].Reject.
package loop
