// Package attribution is the add-on that says who made a change: it gets audit records of the API server, keeps them on disk, and passes them to
// the sinks.
//
//	Inputs    get records from a webhook, a file and a topic, and keep them in an inbox
//	Sink      reads the inbox for one sink, and plugs into its loop and encoder
//	Scope     what the sink publishes: which collection a record may be about
//
// internal/bridge makes them and hands them over. How records are read, joined and kept is in the folders below.
package attribution
