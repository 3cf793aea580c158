package encode

import (
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

// Oversize says how to handle an object's event that the bus refuses, because of its size
// or for another reason.
type Oversize string

// The values of Oversize.
const (
	// Truncate truncates the body, and leaves it out if that is not enough. The zero value means the same.
	Truncate Oversize = "truncate"
	// ToDeadLetters sends the event to the dead letters. Deletions are truncated.
	ToDeadLetters Oversize = "dead-letter"
	// Fail suspends the collection until the bus accepts the event.
	Fail Oversize = "fail"
)

// Config is the configuration of one sink.
type Config struct {
	Encoder           event.Encoder // identity of the cluster, and format
	Secrets           shape.Secrets // how values of Secrets are published, and the key of hashes
	KeepManagedFields bool          // publish metadata.managedFields
	Route             Route         // of collections that have no route of their own
	Oversize          Oversize
	Tombstones        bool // Kafka: a null value follows a deletion, and each object of a closed collection
	// DeadLetters is the route of dead letters: a subject if Route has one, otherwise a topic. It
	// is required for [ToDeadLetters].
	DeadLetters *shape.Template
}

// Options are the options of one sink's encoder. Config.Encoder, Store and Log are required.
type Options struct {
	Config
	Store   checkpoint.Store // of kept bodies
	Reports Reports
	// Run returns the present run and incarnation of a collection in the core. Filters that use
	// `origin` need it, to distinguish a snapshot from a later list; nil: every list is a later one.
	Run func(collection string) (run, incarnation uint64)
	// Count is called for every occurrence that [Count] lists; may be nil. It is called from the goroutine that uses the encoder and
	// must not block. t is the type that the event has or would have; 0 for Lost, and if the bus refuses a body.
	Count     func(collection string, what Count, t event.Type)
	Witness   Witness   // nil: nobody asks who made changes
	Chronicle Chronicle // required if the core has items of one
	Log       *zap.Logger

	objects *objectLog
}

// Reports has functions for the parts of a collection's events that the core does not have. Each
// function may be nil, and may return the zero value.
type Reports struct {
	Plan func(collection string) *event.Plan
	// Counts is called once for each synced event of a list, not for periodic synced events.
	Counts func(i *reconcile.Item) *event.Counts
}

// Count is a kind of occurrence that is counted.
type Count uint8

// The counted occurrences.
const (
	Filtered        Count = iota // events that the filter leaves out
	FilterErrors                 // events that pass because the filter could not be evaluated
	Ignored                      // changes of ignored fields only
	Redacted                     // bodies in which values were redacted
	Withheld                     // events without their body, because it could not be redacted
	Truncated                    // events whose body was truncated
	Lost                         // events that the bus refused in every form
	NotKept                      // bodies that are too large to keep
	CostlyPatch                  // patches that replace more than has changed, because the object is too costly to compare
	CostlyChangedBy              // events without changedby, because the object is too costly to compare
)

func (c Count) String() string {
	return [...]string{"filtered", "filter errors", "ignored", "redacted", "withheld", "truncated", "lost", "not kept", "costly patch", "costly changedby"}[c]
}

func (o *Options) count(c *collection, what Count, t event.Type) {
	if o.Count != nil {
		o.Count(c.id, what, t)
	}
}

// Settings are the settings of one collection.
type Settings struct {
	Types        []event.Type // of object events that are published; nil: all
	SkipSnapshot bool         // the objects of the first list are not published
	Redact       []shape.Rule // in addition to Options.Secrets
	Filter       string       // a CEL expression; "": every event passes
	Ignore       []string     // paths and presets of fields that do not matter
	Before       bool         // modified events have the previously published body
	Patch        bool         // modified events have a JSON Patch that leads from that body to theirs
	ChangedBy    bool         // added and modified events name the field managers that wrote
	Route        Route        // overrides Options.Route
}
