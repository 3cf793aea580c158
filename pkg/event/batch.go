package event

// KV is one change of the checkpoint. A nil Value deletes the key.
type KV struct{ Key, Value []byte }

// Record is one encoded event on its way to a bus.
type Record struct {
	ID    string
	Route string // Kafka topic or NATS subject; "" for sinks without routes
	Key   string // Kafka key; "" for collection events
	// Broadcast is set for collection events: a copy goes to every partition of Route.
	Broadcast bool
	// Value is the event in this format (JSON).
	Value  []byte
	Format Format
	// Attributes are the event's CloudEvents attributes, unescaped, for headers.
	Attributes []Attribute
	// Headers are the configured headers: names as on the bus, values unescaped.
	Headers []Attribute
	// State has the changes of the checkpoint that belong to this record: its inventory entry and,
	// if there is one, the new position of its collection. A sink in mode log stores
	// it beside the record, and returns it from Tail.
	State []KV
	// Event is the event that Value was encoded from.
	Event *Event
}

// Attribute is one CloudEvents context attribute, or another header.
type Attribute struct{ Name, Value string }

// Commit has the changes of the checkpoint that belong to a batch. They are encoded by internal/core/durable and
// opaque to sinks.
type Commit struct{ Changes []KV }

// Batch is the unit of durability: it is committed as a whole. Records of one key are in order.
type Batch struct {
	// Seq numbers the batches of a pipeline from 1. A sink that gets the same Seq
	// again must finish the batch that it has begun.
	Seq     uint64
	Records []Record
	Commit  Commit
}
