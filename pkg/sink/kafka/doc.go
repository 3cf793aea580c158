// Package kafka is all that the bridge does on Kafka: two sinks, the checkpoint store, the reader of what the topics
// hold, and the checks of a configuration.
//
// [Transactional] writes exactly once, for consumers that read committed records
// only: a batch and its checkpoint changes are one transaction of the [Store].
//
// [Sink] writes at least once. One partition has one request in flight,
// acknowledged by all in-sync replicas; the first failure stops the partition, and
// Write goes on from the first record that was not acknowledged. Records that the broker
// has received but not acknowledged in time are sent again: a record may be on the bus
// twice, and because kafka-go has no idempotent producer, the old copy may even
// land after newer records. Consumers therefore ignore, per collection and name, what
// is not newer than what they have seen.
//
// A record's key decides its partition as Java's default partitioner does. The
// number of partitions of a topic is recorded in the checkpoint: by a Sink in its
// mark, by a Transactional beside it.
//
// Where to find what:
//
//	config.go              what users configure
//	access.go, errors.go   addresses, TLS, SASL; what an error of the brokers means
//	admin.go, read.go      the one client that asks the brokers and reads topics (franz-go)
//	topics.go, pin.go      topics are looked up, created, and compared with the checkpoint
//	record.go, message.go  a record as Kafka has it
//	queue.go               a batch, divided by partition
//	atleastonce*.go        Sink, which sends with kafka-go
//	exactlyonce*.go        Transactional
//	store*.go              Store: the checkpoint's topic, and the transactions
//	reader.go              Reader, for `bridge state` and `bridge history`
//	check.go               Check, CheckPins; CheckStore is in store_check.go
package kafka
