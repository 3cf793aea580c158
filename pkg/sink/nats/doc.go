// Package nats has all code of the bridge for NATS: three sinks, the checkpoint store, the
// reader of a stream, and the checks of a configuration.
//
// [Sink] writes exactly once to a JetStream stream of the pipeline's own, [Shared] at
// least once to a stream shared with others, and [Core] at most once without JetStream.
// Each keeps the order of a subject. [Store] keeps the checkpoint of a Sink in a key-value
// bucket. The checkpoint trails the Sink's stream: each message carries
// its changes of the checkpoint, and [Sink.Tail] returns them.
//
// Sink and Store publish in the same way (publish.go): the server stores a message only
// if the stream has reached the sequence that the writer expects. A fast batch that fails
// at a gap (NATS 2.14) ends at the first message that is refused or missing. An atomic publish
// (NATS 2.12) is used for older servers, for streams that do not allow fast batches, and for
// writes that must be stored as a whole. After any error the writer asks for
// the end of the stream, and continues from there.
//
// A new writer first puts a record with its name at the end of the stream: a Sink begins a term,
// a Store writes its head. The next message of a predecessor then fails. The predecessor reads the stream, finds that
// record, and is fenced.
//
// Each message of Sink and Store names its place: the creation time of its stream and its sequence
// (stream.place). A message without its place is foreign, for example an answer to a client's request or a
// copy. It is counted and skipped.
//
// Single messages sent in parallel, each with its predicted sequence, would be
// as fast, but they would not fence: when a foreign message takes the place of one of them,
// the server still stores the later ones, because the stream has the length that
// they expect.
//
// A Sink does not use Nats-Msg-Id. The server would drop a message with an id that it has seen
// within its duplicate window without using a sequence for it, and two events may
// have the same id (a gap that is opened twice). The expected sequence already
// excludes duplicates.
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
