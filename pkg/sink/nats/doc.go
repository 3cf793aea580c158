// Package nats is all that the bridge does on NATS: three sinks, the checkpoint store, the
// reader of what a stream holds, and the checks of a configuration.
//
// [Sink] writes exactly once to a JetStream stream of the pipeline's own, [Shared] at
// least once to a stream shared with others, and [Core] at most once without JetStream.
// Each keeps the order of a subject. [Store] keeps the checkpoint in a key-value bucket
// beside a Sink, whose stream is the log that the checkpoint trails: each message carries
// what it moves in the checkpoint, and [Sink.Tail] returns it.
//
// Sink and Store publish in the same way (publish.go): the server stores a message only
// if the stream has reached the sequence that the writer expects. A fast batch that fails
// at a gap (NATS 2.14) ends at the first message that is refused or missing. What an older
// server gets, or a stream that is not allowed fast batches, or what must be there as a
// whole, is an atomic publish (NATS 2.12). After any error the writer looks
// where the stream ends, and goes on from there.
//
// A writer of either first puts a record at the end, which names it: a Sink begins a term,
// a Store writes its head. A predecessor's next message then fails, it reads, finds that
// record, and is fenced.
//
// Each message of either says where it stands: the creation of its stream and its sequence
// (stream.place). A message that does not is foreign, an answer to somebody's request or a
// copy: it is counted, and skipped.
//
// Single messages under way at once, each with the sequence predicted for it, would be
// as fast but do not fence: when another message takes the place of one,
// those behind it are stored all the same, since the stream has the length that
// they expect.
//
// A Sink does not use Nats-Msg-Id. The server would drop a message whose id it has seen
// within its duplicate window without taking a sequence for it, and an event may
// rightly repeat an id (a gap that is opened twice); the expected sequence already
// excludes what is published twice.
//
// Where to find what:
//
//	config.go, security.go     what users configure; TLS, credentials
//	conn.go                    endpoint: the servers; link: a connection to one stream
//	embedded.go, lock_*.go     the server that the bridge can run itself
//	stream.go, settings.go     a stream is looked up, created, and its settings compared
//	publish.go                 appender: publishing at a stream's end
//	read.go                    reading a stream in order
//	wire.go                    a record as a message
//	sink.go, write.go,
//	stored.go, tail.go         Sink: opening, writing, what an error left, what a crash left
//	shared.go                  Shared
//	core.go                    Core
//	store.go                   Store: the working copy, and when the bucket is written
//	store_bucket.go            the bucket: writing
//	store_load.go, _clean.go   taking it over and reading it; removing what was deleted
//	store_wire.go              keys and heads as messages
//	store_look.go              ReadStore, FindStore, ResetStore for `bridge checkpoint`
//	reader.go                  Reader, for `bridge state` and `bridge history`
//	access.go, accounts.go     what users must be granted, and streams as they are created; the account of readers
//	foreign.go                 messages that the bridge did not write
//	check.go, store_check.go   Check
package nats
