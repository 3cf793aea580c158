// Package model tests the pipeline as a whole, without knowing its insides.
//
// A run is a list of inputs (a trace). An input changes the cluster, makes the API
// server, the bus or the checkpoint store misbehave, edits the configuration, or
// stops, kills and starts the bridge. The real pipeline runs between four seams:
//
//   - the configuration ([config] in config_test.go),
//   - the API server's answers (server_test.go, an http.RoundTripper),
//   - the bus (bus_test.go),
//   - the checkpoint store ([memory] in adapter_test.go).
//
// The judge (judge_test.go) looks only at what is on the bus, and compares it with
// the history of the model cluster. It reads the bus with a consumer that is written
// from docs/events.md (copy_test.go).
//
// Everything that depends on the present contract is in one file, adapter_test.go:
// how a configuration is written, which entry is which collection, the Go contracts
// of source, sink and store, the consumer's rule, the types of a first list's
// events, what each edit may lead to, and the allowed reasons. Event ids are opaque
// to the rest.
//
// Each run is a testing/synctest bubble. An input is given only when every goroutine
// waits, and requests are answered one at a time in a fixed order, so that the
// scheduler does not decide what is judged.
//
// make model SEED=n RUNS=n runs random traces, and minimises those that fail.
package model
