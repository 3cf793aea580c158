// Package buffer keeps on disk what the API server sends while a sink is behind, so that a bus that is away for longer than the API
// server keeps its history costs no state in between.
//
// A Buffer extends the API server's history, and is never needed for correctness: a sink's position moves only with its bus. Where the
// buffer cannot help (it is off, full, damaged, or does not reach back to the position), the sink goes on as it does without one.
//
// A Recording is what was received of one target for one sink. It begins at the position that the sink had committed when it fell behind,
// and has all signals from there on: changes, bookmarks and lists. The sink replays it in order, and reads from the API server again once
// it has caught up. When it falls behind again, another recording begins.
//
//	state       what happens                                                          next
//	Recording   what the API server sends is written                                  Ended: full disk, another cluster, resource gone, failed write
//	                                                                                  Dropped: the sink has not needed it for keepFor
//	Ended       nothing is written any more; what is there can be replayed            Dropped: likewise
//	Dropped     its files are deleted
//
// After a restart, recordings go on from where they ended before anybody knows the positions of the sinks, since the bus may still be
// away and have them. A recording waits for its sink until that has a plan, and five minutes longer. Until then maxAge deletes frames, but
// does not end the recording.
//
// A standby has recordings of its own for the sinks of the leader, which lists what it records and how far its sinks have come: see
// [Buffer.List] and [Buffer.Follow]. When it takes over, they wait for its sinks as recordings from before a restart do.
//
// docs/architecture.md says how the feed of a sink uses it.
package buffer
