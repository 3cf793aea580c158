// Package kafkatest runs Apache Kafka for tests: real brokers in KRaft mode, as child processes on loopback. A test can stop, kill and pause
// brokers, limit the size of their files, and set ACLs. Each broker has two listeners:
//
//   - One is for clients. It is secured as the test requires, and may be behind a [Proxy].
//   - The other one is for the brokers among themselves and for the test. It needs no credentials and permits all operations. Faults of the
//     first listener do not affect it.
//
// The brokers' jars are fetched with Maven once, and kept in the user's cache directory; see [Jars]. If [Env] names an external Kafka, tests
// use that one. Tests that need brokers of their own are skipped then.
package kafkatest
