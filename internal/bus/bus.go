// Package bus is the socket for buses: what the bridge asks of the bus of a sink, besides the contract of [sink.Sink]. Each folder below it
// is one kind of bus; the fields of internal/config's Sink that implement [Config] are the table of all kinds.
package bus

import (
	"context"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// Config is the block of a sink's configuration that selects its bus. No method connects to anything.
type Config interface {
	// Complete fills in the defaults. It returns one line per mistake, which begins with the field. It may run twice.
	Complete(s *Setup) error
	// Traits is called after Complete, and on a zero block.
	Traits() Traits
	// Check checks the block against what is around it, after Complete.
	Check(c *Checker)
	// Bus describes the configured bus. The configuration has been checked.
	Bus(s *Setup) *Bus
}

// Traits are what the rest of the configuration depends on.
type Traits struct {
	Lines   bool // events are lines: oversize and format: binary are refused, as lines have no limit of size and no place for attributes
	Headers bool // a message has headers that the user can add to
	Keeps   Keeping
	// Local is the mistake of several replicas with one sink, as in Complete's error; "": there is none.
	Local       string
	Files, Dirs map[string]string // paths of files and of directories, by field: nothing else may be there
}

// Keeping says where the checkpoint is kept.
type Keeping int

// The values of Keeping.
const (
	InDirectory   Keeping = iota
	OnBus                 // unless a directory is set
	InTransaction         // on the bus, in the transactions of the events
	Nowhere               // unless a directory is set
)

// OnBus reports whether the checkpoint is on the bus, if directory is that of the checkpoints.
func (k Keeping) OnBus(directory string) bool {
	return k == InTransaction || k == OnBus && directory == ""
}

// Setup is what a bus may know of the configuration around its block.
type Setup struct {
	Identity  event.Identity // without the UID of the cluster
	Oversize  string
	Format    string
	Headers   map[string]string // templates of all messages
	Resources []Resource
	Directory string // of the checkpoints; "": there is none
	// Topic, Replicas and Scratch are settings for checkpoints on the bus.
	Topic    string
	Replicas int
	Scratch  string
	Stdout   io.Writer // for documents on the standard output
}

// OversizeDeadLetter is the value of [Setup.Oversize] with which dead letters are published.
const OversizeDeadLetter = "dead-letter"

// Resource is an entry of the sink's resources.
type Resource struct {
	Name                string // as written
	Parsed              discovery.Name
	Entry               string
	Topic, Key, Subject string            // templates in place of those of the sink; "": the sink's
	Headers             map[string]string // templates besides the sink's
	Resync              time.Duration
	Path                string // in the configuration
}

// Bus is the configured bus of one sink.
type Bus struct {
	Kind     string // the key of its block
	Address  string // for people, without credentials
	Delivery string // for people, if the kind has several; "": it has one, and the name of the kind says it
	// Open makes the sink without its checkpoint.
	Open func(id event.Identity, log *zap.Logger) (sink.Sink, error)
	// Same reports whether another sink of this kind writes to the same topics or stream.
	Same func(other Config) bool

	// The fields below are zero for kinds that do not have the feature.

	Prints      bool     // on the standard output
	Unordered   bool     // partitions can have no order between them
	Templates   Resource // the sink's own, where a resource has its
	DeadLetters string   // template of the dead letters' topic or subject
	Tombstones  bool     // deletions have null values
	// Headers are those of a record's message; nil: there are no routes, keys and headers.
	Headers func(*event.Record) []event.Attribute
	// Route parses those templates of a resource that this kind uses.
	Route func(templates *Resource) Route
	// OpenBoth makes the sink and its checkpoint; nil: the checkpoint is kept in a directory.
	OpenBoth func(id event.Identity, log *zap.Logger) (sink.Sink, Opened, error)
	// Checkpoint is where the checkpoint is on the bus, also if it is kept in a directory.
	Checkpoint func(id event.Identity) Checkpoint
	// Check asks the bus. It writes nothing. It returns warnings, and an error with one line per mistake.
	Check func(ctx context.Context, id event.Identity, targets []Target) (weak []string, err error)
	// Read reads back the events of resources, or of one object; nil: the bus keeps no events.
	Read func(ctx context.Context, w Wanted) (sink.Reader, error)
	// Permissions prints the permissions that the sink needs; nil: it needs none.
	Permissions func(w io.Writer, o *PermissionOptions) error
}

// Route has the parsed templates of a collection's records; see internal/core/encode.
type Route struct {
	Topic   *shape.Template
	Subject *shape.Template
	Key     *shape.Template
	Headers shape.Headers
}

// Template parses a template that has been checked; nil for an empty text.
func Template(text string, names []string) *shape.Template {
	if text == "" {
		return nil
	}
	t, _ := shape.ParseTemplate(text, names)
	return t
}

// Opened is a store that the caller closes.
type Opened interface {
	checkpoint.Store
	io.Closer
}

// Stored is a store that was read from a bus.
type Stored struct {
	Opened
	Name string // for people: "topic …", "bucket …"
	ID   event.Identity
}

// Identity returns the identity that was found in the store.
func (s Stored) Identity() (event.Identity, error) { return s.ID, nil }

// Checkpoint is a checkpoint on a bus. Errors wrap fs.ErrNotExist if there is none.
type Checkpoint interface {
	// Name is what people call the place, as far as the identity says.
	Name() string
	// Find returns that name also if the identity has no UID of a cluster.
	Find(ctx context.Context) (string, error)
	// Read opens the store of that name without disturbing its writer. It returns a [Stored].
	Read(ctx context.Context, name string) (Opened, error)
	// Claim opens the store of that name as its writer.
	Claim(ctx context.Context, name string) (Opened, error)
	// Reset makes the next start reset every collection. With empty it also removes content and identity.
	Reset(ctx context.Context, empty bool) error
}

// Wanted is what is read of a bus. The zero value is everything.
type Wanted struct {
	Resources []discovery.Name
	Object    *Object
	Stays     bool     // the reader stays open beside a bridge, which may not run yet
	Logs      []string // topics to read beside those of the configuration
}

// Object is the namespace and name of an object, as events have them.
type Object struct{ Namespace, Name string }

// Target is a resource of an entry. Group and Resource are [Open] where a pattern leaves them open.
type Target struct {
	Entry           *Resource
	Group, Resource string
}

// Open stands for any group or resource.
const Open = "*"
