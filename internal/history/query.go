package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// Query asks for the state of a cluster at a point.
type Query struct {
	Reader    sink.Reader
	Cluster   string // the configured name
	At        Point
	Resources []discovery.Name // names in the plural, no patterns; none: all on the bus
	Namespace string           // only what is in it; "": everything
	// Unpublished returns which types of event the configuration does not publish of a collection, so
	// that its state cannot be rebuilt: "deleted"; "": none. nil: none of any.
	Unpublished func(collection string) string
	// Whole opens a reader of all resources, for a resourceVersion that is newer than
	// what Reader holds; nil: Reader has all.
	Whole    func(context.Context) (sink.Reader, error)
	Progress func(Progress) // may be nil
	Ignored  func(error)    // is called for each message that no bridge wrote, with its place; may be nil
}

// State is the union of what the collections held.
type State struct {
	ClusterUID  string
	Objects     []Object // by resource, namespace and name
	Collections []Covered
	Missing     []Missing
}

// Object is an object as it was published last by then.
type Object struct {
	*event.Received
	ResourceID string // "pods", "deployments.apps"
	// Held is what each collection that held the object published of it last, in the order of the
	// collections. Received is one of these: that of the highest version, at a tie the first.
	Held []*event.Received
}

// Views are the publications of the shown version, Received first.
func (o *Object) Views() []*event.Received {
	views := []*event.Received{o.Received}
	for _, e := range o.Held {
		if e != o.Received && e.Epoch == o.Epoch && e.ResourceVersion == o.ResourceVersion {
			views = append(views, e)
		}
	}
	return views
}

// Name is "namespace/name", or "name".
func (o *Object) Name() string { return nameOf(o.Namespace, o.Received.Name) }

func nameOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Value is the object, decoded.
func (o *Object) Value() (map[string]any, error) {
	var v map[string]any
	d := json.NewDecoder(strings.NewReader(string(o.Object)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", o.ResourceID, o.Name(), err)
	}
	return v, nil
}

// Unwhole says why the body is not the whole object; "" if it is.
func (o *Object) Unwhole() string {
	switch {
	case !o.BodyKnown:
		return "its body is not known"
	case o.Truncated != nil:
		return "it was truncated"
	}
	return ""
}

// Bare reports whether the body has nothing but apiVersion, kind and metadata.
func (o *Object) Bare() bool {
	v, err := o.Value()
	delete(v, "apiVersion")
	delete(v, "kind")
	delete(v, "metadata")
	return err == nil && len(v) == 0
}

// Covered is a collection whose state is known.
type Covered struct {
	Collection string
	Resource   string
	Base       time.Time // of the list that the state rests on
	BaseRV     string
	Filtered   bool // a filter left objects of that list out
	// Gap is the gap that was open at the point: changes may be missing. nil: none was.
	Gap *event.Received
	// Last is the time of the last event of the collection by then. Silent is true
	// if there is none after it: the bridge may have been down since.
	Last   time.Time
	Silent bool
	// Reached is the resourceVersion, of an epoch, up to which the bus shows the collection to have been complete
	// by then; "": that is not known. Behind is true if the resourceVersion that was asked for is higher:
	// changes between the two may be missing.
	Reached      string
	ReachedEpoch uint64
	Behind       bool
	// Replaced is true if the topic or stream keeps only the last event of each object, and later events follow the
	// point: what these replaced is missing.
	Replaced bool
}

// Missing is a collection, or a resource, whose state is not known, and why.
type Missing struct {
	Name string // a collection or, if the bus knows none, a resource
	Why  string
	// LeftOut says that it is no error: the collection was closed by then, or nobody named it and
	// no bus could cover it.
	LeftOut bool
}

// ErrNotCovered is returned for a state that the bus does not have whole.
var ErrNotCovered = errors.New("not covered")

// Err is nil if everything that was asked for is covered. Its lines name what is not.
func (s *State) Err() error {
	var all []error
	for _, m := range s.Missing {
		if !m.LeftOut {
			all = append(all, fmt.Errorf("%w: %s: %s", ErrNotCovered, m.Name, m.Why))
		}
	}
	return errors.Join(all...)
}

// Until is the time of a point, or the last time by which a resourceVersion is known to have been: that of the last
// event by then.
func (s *State) Until(p Point) time.Time {
	t := p.Time
	for _, c := range s.Collections {
		if !p.isTime() && t.Before(c.Last) {
			t = c.Last
		}
	}
	return t
}

// AmbiguousError is returned for a name that several resources have.
type AmbiguousError struct {
	Name string
	Of   []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q may be %s: name one", e.Name, strings.Join(e.Of, " or "))
}
