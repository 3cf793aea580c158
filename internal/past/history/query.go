package history

import (
	"context"
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
	Resources []discovery.Name // plural names, no patterns; none: all resources on the bus
	Namespace string           // only objects in this namespace; "": all objects
	// Whole opens a reader of all resources. It is called if the resourceVersion is newer than every event that
	// Reader has. nil means that Reader has all resources.
	Whole    func(context.Context) (sink.Reader, error)
	Progress func(Progress) // may be nil
	Ignored  func(error)    // called for each message that no bridge wrote, with its place; may be nil
}

// State is the union of the objects that the collections held.
type State struct {
	ClusterUID  string
	Objects     []Object // by resource, namespace and name
	Collections []Covered
	Missing     []Missing
}

// Object is an object as it was last published before the point.
type Object struct {
	*event.Received
	ResourceID string // "pods", "deployments.apps"
	// Held has the last publication of the object by each collection that held it, in the order of the
	// collections. Received is the one with the highest version; if several have that version, the first of them.
	Held []*event.Received
}

// Views returns the publications that have the version of Received, with Received first.
func (o *Object) Views() []*event.Received {
	views := []*event.Received{o.Received}
	for _, e := range o.Held {
		if e != o.Received && e.Epoch == o.Epoch && e.ResourceVersion == o.ResourceVersion {
			views = append(views, e)
		}
	}
	return views
}

// Name returns "namespace/name", or "name" for cluster-scoped objects.
func (o *Object) Name() string { return nameOf(o.Namespace, o.Received.Name) }

func nameOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Incomplete says why the body is not the whole object; "" if it is.
func (o *Object) Incomplete() string {
	switch {
	case !o.BodyKnown:
		return "its body is not known"
	case o.Truncated != nil:
		return "it was truncated"
	}
	return ""
}

// Covered is a collection whose state is known.
type Covered struct {
	Collection string
	Resource   string
	Base       time.Time // the time of the list that the state is rebuilt from
	BaseRV     string    // and its resourceVersion
	Filtered   bool      // a filter left objects of that list out
	// Selection is what the collection had of its resource at the point.
	Selection event.Selection
	// Gap is the gap that was open at the point, so that changes may be missing. nil means that none was open.
	Gap *event.Received
	// Last is the time of the collection's last event before the point. Silent is true
	// if no event follows it: the bridge may have been down since.
	Last   time.Time
	Silent bool
	// Reached is the resourceVersion, in the epoch ReachedEpoch, up to which events prove the collection to be complete;
	// "": none. Behind is true if the point's is higher: changes between may be missing.
	Reached      string
	ReachedEpoch uint64
	Behind       bool
	// Replaced is true if the topic or stream keeps only the last event of each object, and events follow the
	// point: the events that they replaced are missing.
	Replaced bool
}

// Missing is a collection, or a resource, whose state is not known.
type Missing struct {
	Name string // a collection or, if the bus knows no collection of it, a resource
	Why  string
	// LeftOut is true if this is no error: the collection was closed before the point, or the query did not name it and
	// no bus could cover it.
	LeftOut bool
}

// ErrNotCovered is returned for a state that cannot be rebuilt completely from the bus.
var ErrNotCovered = errors.New("not covered")

// Err returns an error with a line for each collection that the query asked for and that is not covered, or nil.
func (s *State) Err() error {
	var all []error
	for _, m := range s.Missing {
		if !m.LeftOut {
			all = append(all, fmt.Errorf("%w: %s: %s", ErrNotCovered, m.Name, m.Why))
		}
	}
	return errors.Join(all...)
}

// Until returns the point's time. For a resourceVersion it returns the time of the last event up to it: the cluster had
// reached the resourceVersion by then.
func (s *State) Until(p Point) time.Time {
	t := p.Time
	for _, c := range s.Collections {
		if !p.isTime() && t.Before(c.Last) {
			t = c.Last
		}
	}
	return t
}

// AmbiguousError is returned for a name that means several resources.
type AmbiguousError struct {
	Name       string
	Candidates []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q may be %s: name one", e.Name, strings.Join(e.Candidates, " or "))
}
