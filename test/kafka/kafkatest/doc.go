// Package kafkatest runs Apache Kafka for tests: real brokers in KRaft mode, as child processes on loopback, that can be
// stopped, killed, paused and limited, and whose ACLs can be set. Each broker has two listeners: the clients' one, secured as
// the test asks, possibly behind a [Proxy]; and one for the brokers among themselves and for the test, which needs no
// credentials, is allowed everything, and is not affected by what the test does to the other.
//
// The brokers' jars come through Maven once, and stay in the user's cache directory; see [Jars]. Where [Env] names a
// Kafka, that one is used by every test that can do without being in charge of its brokers, and the others are skipped.
package kafkatest
