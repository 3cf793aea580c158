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
//	type         owns                                                    used by
//	Loop         the core, and the order in which the others act         Run's goroutine
//	reads        the reads, and what was read and is not handled yet     Run's goroutine; each read has its own
//	batches      the batches, and how many objects the store has         Run's goroutine; the delivery has its own
//	planned      what the plan wants, and its numbers                    Run's goroutine
//	suspensions  which collections are not in the core, and until when   Run's goroutine
//	calls        what other goroutines ask of Run's                      any goroutine
//
// If a route refuses records, the loop takes the collections of that route out of the core. After a
// pause they continue from what the store holds, as after a restart. If the bus rejects one record,
// its collection is taken out too and continues without a pause. The event of that record is then cut
// down, or is a dead letter: see [Encoder].Reject.
package loop
