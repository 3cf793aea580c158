package encode

import (
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

// Oversize says what becomes of an object's event that the bus does not take, because of its size
// or for another reason.
type Oversize string

// The values of Oversize.
const (
	// Truncate cuts its body down, and leaves it out if that is not enough. The zero value means the same.
	Truncate Oversize = "truncate"
	// ToDeadLetters sends it to the dead letters. Deletions are truncated.
	ToDeadLetters Oversize = "dead-letter"
	// Fail suspends the collection until the bus takes it.
	Fail Oversize = "fail"
)

// Config is what is configured of one sink.
type Config struct {
	Encoder           event.Encoder // identity of the cluster, and format
	Secrets           shape.Secrets // what becomes of the values of Secrets, and the key of hashes
	KeepManagedFields bool          // publish metadata.managedFields
	Route             Route         // of collections, where they have no route of their own
	Oversize          Oversize
	Tombstones        bool // Kafka: a null value follows a deletion, and each object of a closed collection
	// DeadLetters is the route of dead letters: a subject if Route has one, otherwise a topic. It
	// is required for [ToDeadLetters].
	DeadLetters *shape.Template
}

// Options are those of one sink. Config.Encoder, Store and Log are required.
type Options struct {
	Config
	Store   checkpoint.Store // of kept bodies
	Reports Reports
	// Run returns the present run and incarnation of a collection in the core. Filters that use
	// `origin` need it, to distinguish a snapshot from a later list; nil: every list is a later one.
	Run func(collection string) (run, incarnation uint64)
	// Count is called for everything that [Count] lists; nil: it is not. It is called from the goroutine that uses the encoder and
	// must not block. t is the type that the event has or would have had; 0 with Lost, and where the bus does not take a body.
	Count func(collection string, what Count, t event.Type)
	Log   *zap.Logger

	objects *objectLog
}

// Reports has functions for those parts of a collection's events that the core does not know. Each
// function may be nil, and may return the zero value.
type Reports struct {
	Plan func(collection string) *event.Plan
	// Counts is asked once for each synced event of a list, not for periodic ones.
	Counts func(i *reconcile.Item) *event.Counts
}

// Count is something that is counted.
type Count uint8

// What is counted.
const (
	Filtered        Count = iota // events that the filter does not let through
	FilterErrors                 // events that pass because the filter could not be evaluated
	Ignored                      // changes of ignored fields only
	Redacted                     // bodies in which values were redacted
	Withheld                     // events without their body, because it could not be redacted
	Truncated                    // events whose body was cut down
	Lost                         // events that the bus did not take in any form
	NotKept                      // bodies that are too large to keep
	CostlyPatch                  // patches that replace more than has changed, since the object is too costly
	CostlyChangedBy              // events without changedby, since the object is too costly
)

func (c Count) String() string {
	return [...]string{"filtered", "filter errors", "ignored", "redacted", "withheld", "truncated", "lost", "not kept", "costly patch", "costly changedby"}[c]
}

func (o *Options) count(c *collection, what Count, t event.Type) {
	if o.Count != nil {
		o.Count(c.id, what, t)
	}
}

// Settings are what is configured of one collection.
type Settings struct {
	Types        []event.Type // of object events that are published; nil: all
	SkipSnapshot bool         // the objects of the first list are not published
	Redact       []shape.Rule // beside what Options.Secrets says
	Filter       string       // a CEL expression; "": every event passes
	Ignore       []string     // paths and presets of fields that do not matter
	Before       bool         // modified events have the body that was published before
	Patch        bool         // modified events have a JSON Patch that leads from that body to theirs
	ChangedBy    bool         // added and modified events name the field managers that wrote
	Route        Route        // where it differs from Options.Route
}
