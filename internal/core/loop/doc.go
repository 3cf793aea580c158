// Package loop runs one sink: it connects the reader of the API server, the reconciling core and the
// delivery.
//
//	Reader ── frames ──► Loop ── inputs ──► reconcile.Core ── items ──► Encoder ──► delivery.Delivery
//	   ▲                  │                                                            │
//	   └── reads, stops ──┴─────────────────── committed, refused, rejected ◄──────────┘
//
// One goroutine, [Loop.Run], owns the core. Frames wait while a batch is full, so a slow bus slows
// the readers down and memory stays bounded. One batch is on its way while another one fills.
//
//	type         owns                                                    used by
//	Loop         the core, and the order in which the other types act    Run's goroutine
//	reads        the reads, and their messages that are not handled yet  Run's goroutine; each read has its own
//	batches      the batches, and how many objects the store has         Run's goroutine; the delivery has its own
//	planned      the collections that the plan wants, and its numbers    Run's goroutine
//	suspensions  the collections that are not in the core, with a time   Run's goroutine
//	calls        functions that other goroutines pass to Run's           any goroutine
//
// An edit that leads to a list waits while its collection is read from the disk buffer: see [Wanted].Keep and [Handler.Direct].
//
// If a route refuses records, the loop takes the collections of that route out of the core. After a
// pause they continue from what the store holds, as after a restart. If the bus rejects one record,
// its collection is taken out too and continues without a pause. The event of that record is then cut
// down, or is a dead letter: see [Encoder].Reject.
package loop
