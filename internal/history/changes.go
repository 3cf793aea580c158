package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape/manager"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// ChangesQuery asks how one object changed.
type ChangesQuery struct {
	Reader   sink.Reader
	Cluster  string         // the configured name
	Resource discovery.Name // in the plural
	Object   Name
	Since    time.Time      // zero: since the bus begins
	Until    time.Time      // zero: to its end
	Progress func(Progress) // may be nil
	Ignored  func(error)    // is called for each message that no bridge wrote, with its place; may be nil
}

// Who is who wrote, as the object's managedFields or the event's changedby say.
type Who struct {
	Manager     string   `json:"manager"`
	Operation   string   `json:"operation,omitempty"`
	Subresource string   `json:"subresource,omitempty"`
	Time        string   `json:"time,omitempty"`
	Paths       []string `json:"paths,omitempty"` // that are the manager's and changed; nil: not known
	More        int      `json:"more,omitempty"`  // further paths
}

// Change is one event of an object, and what differs from the one before.
type Change struct {
	Time            time.Time    `json:"time"`
	Type            string       `json:"type"` // "added", "modified", "deleted", "present"
	Resource        string       `json:"resource"`
	Namespace       string       `json:"namespace,omitempty"`
	Name            string       `json:"name"`
	UID             string       `json:"uid"`
	FormerUID       string       `json:"formerUID,omitempty"` // of the object that had the name before, if it is another one
	ResourceVersion string       `json:"resourceVersion"`
	Origin          event.Origin `json:"origin"`
	Reason          string       `json:"reason,omitempty"` // of a deletion: "left", "unknown"
	ID              string       `json:"id"`
	Collection      string       `json:"collection,omitempty"` // that published it first
	By              []Who        `json:"by"`                   // none: not known
	Note            string       `json:"note"`                 // what limits the meaning of the diff, "" for nothing
	// Diff is that of the YAML of the bodies, in unified format, without
	// resourceVersion and managedFields. Paths are JSON pointers of what differs.
	Diff  string   `json:"diff"`
	Paths []string `json:"paths"`
}

// skew is by how much the bus's clock may be behind that of the bridge: the bus is asked for what it took
// since then.
const skew = 10 * time.Minute

// Changes calls fn for what the bus has of an object, in order. A state that several collections publish is
// shown once, as the first of them published it; the diff is to what that collection published before, or to what was
// shown last. A deletion is shown when no collection holds the object any more. earliest is the
// time of the oldest event on what was read; zero if there is none.
func Changes(ctx context.Context, q ChangesQuery, fn func(Change) error) (earliest time.Time, err error) {
	l := newLog(q.Reader, q.Cluster, q.Progress, q.Ignored)
	ranges := make([]sink.Range, len(l.Parts()))
	for i, p := range l.Parts() {
		ranges[i] = sink.Range{From: p.First, To: p.End}
	}
	if !q.Since.IsZero() {
		from, err := l.At(ctx, q.Since.Add(-skew))
		if err != nil {
			return earliest, err
		}
		for i := range ranges {
			ranges[i].From = from[i]
		}
	}
	c := changes{log: l, query: &q, show: fn, resources: map[string]bool{}, bodies: map[string]*shown{}}
	kept := make([][]found, len(ranges))
	l.begin("reading", ranges)
	err = l.each(ctx, ranges, false, func(m *sink.Message, h *head) error {
		if earliest.IsZero() || h.time.Before(earliest) {
			earliest = h.time
		}
		switch {
		case !c.concerns(h):
			return nil
		case len(ranges) == 1:
			return c.take(m, h)
		}
		kept[m.Part] = append(kept[m.Part], copyOf(m, h))
		return nil
	})
	if err != nil {
		return earliest, err
	}
	return earliest, c.merge(ctx, kept)
}

// found is a message that concerns the object.
type found struct {
	message sink.Message
	head    head
}

func copyOf(m *sink.Message, h *head) found {
	out := found{*m, *h}
	out.message.Value, out.message.Headers = bytes.Clone(m.Value), slices.Clone(m.Headers)
	for i := range out.message.Headers {
		x := &out.message.Headers[i]
		x.Value = bytes.Clone(x.Value)
	}
	return out
}

// merge takes the messages of several parts. There is no order between two parts, and two collections that hold the
// object may use different ones: the earlier event goes first.
func (c *changes) merge(ctx context.Context, parts [][]found) error {
	for {
		next := -1
		for i, list := range parts {
			if len(list) > 0 && (next < 0 || list[0].head.time.Before(parts[next][0].head.time)) {
				next = i
			}
		}
		if next < 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		f := &parts[next][0]
		parts[next] = parts[next][1:]
		if err := c.check(&f.message, c.take(&f.message, &f.head)); err != nil {
			return err
		}
	}
}

// shown is a state of the object.
type shown struct {
	uid, version string
	epoch        uint64
	body         []byte // nil: not known
}

// changes follows one object.
type changes struct {
	*log
	query     *ChangesQuery
	show      func(Change) error
	copied    consumer.State
	resources map[string]bool
	last      shown             // what was shown last
	gone      bool              // that was a deletion
	bodies    map[string]*shown // by collection, of those that hold the object
	managers  manager.Finder
}

// concerns reports whether an event is of the object, or ends what a collection held of it.
func (c *changes) concerns(h *head) bool {
	switch {
	case !c.query.Resource.Matches(h.text[group], h.text[resource]):
		return false
	case h.typ.OfCollection():
		return h.typ != event.Synced
	}
	return h.text[namespace] == c.query.Object.Namespace && h.text[objectName] == c.query.Object.Name
}

func (c *changes) take(m *sink.Message, h *head) error {
	of := h.typ.OfCollection()
	x := message(m)
	x.Topic, x.Partition = c.Parts()[m.Part].Log, c.index[m.Part]
	e, err := h.decode(m)
	if err != nil {
		return err
	}
	change := c.copied.Take(x, e)
	for _, e := range change.Gone {
		if e.Collection == h.text[collection] && of {
			delete(c.bodies, e.Collection)
		}
	}
	if of || change.Event == nil {
		return nil
	}
	if c.resources[h.resourceID()] = true; len(c.resources) > 1 {
		return &AmbiguousError{Name: c.query.Resource.String(), Of: slices.Sorted(maps.Keys(c.resources))}
	}
	return c.compareNext(change.Event)
}

// compareNext shows an event, if it changes what is shown.
func (c *changes) compareNext(e *event.Received) error {
	now := shown{e.UID, e.ResourceVersion, e.Epoch, nil}
	if e.BodyKnown && e.Truncated == nil {
		now.body = slices.Clone(e.Object)
	}
	before := c.last.body
	own := c.bodies[e.Collection]
	if own != nil && own.uid == e.UID {
		before = own.body
	}
	if c.gone || c.last.uid != e.UID {
		before = nil
	}
	if e.Type == event.Deleted {
		delete(c.bodies, e.Collection)
		held, ok := c.copied.Get(consumer.NameOf(e))
		if ok && held.UID == e.UID {
			return nil // another collection has it
		}
	} else {
		c.bodies[e.Collection] = &now
		if c.repeats(&now, own) {
			return nil
		}
	}
	return c.emit(e, now, before)
}

// repeats reports whether a state is shown already: by another collection, or by this one with the same body.
func (c *changes) repeats(now, own *shown) bool {
	if c.gone || c.last.uid != now.uid || now.body == nil {
		return false
	}
	if own != nil && own.uid == now.uid && own.version == now.version {
		return bytes.Equal(own.body, now.body)
	}
	return now.epoch == c.last.epoch && (now.version == c.last.version || event.Older(now.version, c.last.version))
}

// emit shows an event that is within the times that are asked for.
func (c *changes) emit(e *event.Received, now shown, before []byte) error {
	of := event.Collection{Group: e.Group, Resource: e.Resource}
	out := Change{
		Time: e.Time, Type: e.Type.String(), Resource: of.ResourceID(), Namespace: e.Namespace, Name: e.Name, UID: e.UID,
		ResourceVersion: e.ResourceVersion, Origin: e.Origin, Reason: e.Reason, ID: e.ID, Collection: e.Collection,
		Note: Note(e, c.last.uid == ""), By: []Who{}, Paths: []string{},
	}
	if e.Type == event.Deleted && e.DeletionVersion != "" {
		out.ResourceVersion = e.DeletionVersion
	}
	if c.last.uid != "" && c.last.uid != e.UID {
		out.FormerUID = c.last.uid
	}
	body := now.body
	if e.Type == event.Deleted {
		now.body = nil
	}
	c.last, c.gone = now, e.Type == event.Deleted
	q := c.query
	if !q.Until.IsZero() && e.Time.After(q.Until) || !q.Since.IsZero() && e.Time.Before(q.Since) {
		return nil // a clock that was set may come to the times that are asked for again
	}
	if err := c.compare(&out, e, before, body); err != nil {
		return fmt.Errorf("read event %q: %w", e.ID, err)
	}
	return c.show(out)
}

func (c *changes) compare(out *Change, e *event.Received, before, body []byte) (err error) {
	after := c.last.body
	if before != nil || after != nil {
		if out.Diff, err = Diff(before, after); err != nil {
			return err
		}
	}
	if before != nil && after != nil {
		if out.Paths, err = Paths(before, after); err != nil {
			return err
		}
	}
	if out.By, err = c.who(e, before, body); errors.Is(err, manager.ErrCostly) {
		out.Note, err = strings.TrimPrefix(out.Note+"; "+costly, "; "), nil
	}
	return err
}

// who reads the event's changedby, else the object's managedFields. Neither has the author of a deletion.
func (c *changes) who(e *event.Received, before, body []byte) ([]Who, error) {
	who := []Who{}
	if len(e.ChangedBy) > 0 {
		err := json.Unmarshal(e.ChangedBy, &who)
		return who, err
	}
	if body == nil || e.Type == event.Deleted || len(e.LeftOut) > 0 {
		return who, nil
	}
	var (
		found []manager.Change
		err   error
	)
	if before != nil {
		found, err = c.managers.By(before, body)
	} else {
		found, err = c.managers.Newest(body, time.Time{})
	}
	for _, f := range found {
		who = append(who, Who{
			Manager: f.Manager, Operation: f.Operation, Subresource: f.Subresource, Time: f.Time, Paths: f.Paths, More: f.More,
		})
	}
	return who, err
}
