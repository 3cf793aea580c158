package event

// KV is one change of the checkpoint. A nil Value deletes the key.
type KV struct{ Key, Value []byte }

// Record is one encoded event on its way to a bus.
type Record struct {
	ID    string
	Route string // Kafka topic or NATS subject; "" where the sink has none
	Key   string // Kafka key; "" in collection events
	// Broadcast asks for a copy in every partition of Route (collection events).
	Broadcast bool
	// Value is the event in this format (JSON).
	Value  []byte
	Format Format
	// Attributes are the event's CloudEvents attributes, unescaped, for headers.
	Attributes []Attribute
	// Headers are others, as configured: names as on the bus, values unescaped.
	Headers []Attribute
	// State is what this record moves in the checkpoint: its inventory entry and
	// the position it allows to resume from, if any. A sink that is a log stores
	// it beside the record and gives it back from Tail.
	State []KV
	// Event is what Value was encoded from.
	Event *Event
}

// Attribute is one CloudEvents context attribute, or another header.
type Attribute struct{ Name, Value string }

// Commit is what a batch moves in the checkpoint, encoded by pkg/checkpoint and
// opaque to sinks.
type Commit struct{ Changes []KV }

// Batch is the unit of durability. Records of one key are in order.
type Batch struct {
	// Seq counts the batches of a pipeline from 1. A sink that sees the same Seq
	// again is asked to finish what it began.
	Seq     uint64
	Records []Record
	Commit  Commit
}
