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
	Resource discovery.Name // the plural name
	Object   Name
	Since    time.Time      // zero: from the first event on the bus
	Until    time.Time      // zero: to the last event on the bus
	Progress func(Progress) // may be nil
	Ignored  func(error)    // called for each message that no bridge wrote, with its place; may be nil
}

// Who is a field manager that changed an object, from the object's managedFields or the event's changedby.
type Who struct {
	Manager     string   `json:"manager"`
	Operation   string   `json:"operation,omitempty"`
	Subresource string   `json:"subresource,omitempty"`
	Time        string   `json:"time,omitempty"`
	Paths       []string `json:"paths,omitempty"` // paths that changed and that the manager owns; nil: not known
	More        int      `json:"more,omitempty"`  // how many further paths there are
}

// Change is one event of an object, with the difference from the previous one.
type Change struct {
	Time            time.Time    `json:"time"`
	Type            string       `json:"type"` // "added", "modified", "deleted", "present"
	Resource        string       `json:"resource"`
	Namespace       string       `json:"namespace,omitempty"`
	Name            string       `json:"name"`
	UID             string       `json:"uid"`
	FormerUID       string       `json:"formerUID,omitempty"` // the UID of the previous object of this name, if it was another object
	ResourceVersion string       `json:"resourceVersion"`
	Origin          event.Origin `json:"origin"`
	Reason          string       `json:"reason,omitempty"` // for a deletion: "left", "unknown"
	ID              string       `json:"id"`
	Collection      string       `json:"collection,omitempty"` // the collection that published it first
	By              []Who        `json:"by"`                   // empty: not known
	// Attribution says which user made the change, by the audit log of the API server; nil: the bus does not say.
	Attribution *event.Attribution `json:"attribution,omitempty"`
	Note        string             `json:"note"` // what limits the meaning of the diff; "" if nothing does
	// Diff is the unified diff of the bodies as YAML, without
	// resourceVersion and managedFields. Paths are JSON pointers to the fields that differ.
	Diff  string   `json:"diff"`
	Paths []string `json:"paths"`
}

// clockSkew is how far the bus's clock may be behind the bridge's. The search on the bus begins that much before
// ChangesQuery.Since.
const clockSkew = 10 * time.Minute

// Changes calls fn for each change of an object, in order. A state that several collections publish is shown once, as
// the first of them published it. Its diff compares it with what that collection published before, or else with the
// last state that was shown. A deletion is shown when no collection holds the object any more. A change waits for the
// event that says who made it, see [changeQueue]; on an error, the changes that wait are shown first. earliest is the
// time of the oldest event that was read; zero if there is none.
func Changes(ctx context.Context, q ChangesQuery, fn func(Change) error) (earliest time.Time, err error) {
	l := NewLog(q.Reader, LogOptions{Cluster: q.Cluster, Progress: q.Progress, Ignored: q.Ignored})
	var from []int64
	if !q.Since.IsZero() {
		if from, err = l.At(ctx, q.Since.Add(-clockSkew)); err != nil {
			return earliest, err
		}
	}
	var ranges []sink.Range
	for i, p := range l.Parts() {
		if from != nil {
			p.First = from[i]
		}
		ranges = append(ranges, sink.Range{From: p.First, To: p.End})
	}
	l.attributions = true
	c := changes{
		Log: l, query: &q, resources: map[string]bool{}, bodies: map[string]*objectState{},
		waiting: newChangeQueue(fn, maxWaiting),
	}
	kept := make([][]keptMessage, len(ranges))
	err = l.each(ctx, "reading", ranges, false, func(m *sink.Message, h *head) error {
		earliest = first(earliest, h.Time)
		switch {
		case !c.concerns(h):
			return nil
		case h.Type == event.Attributed:
			return c.attribute(m, h, len(ranges) > 1)
		case len(ranges) == 1:
			return c.take(m, h)
		}
		kept[m.Part] = append(kept[m.Part], copyOf(m, h))
		return nil
	})
	if err == nil {
		err = c.merge(ctx, kept)
	}
	if rest := c.waiting.flush(true); err == nil {
		err = rest
	}
	return earliest, err
}

// attribute reads an event that says who made a change. keep says that the change may be read later.
func (c *changes) attribute(m *sink.Message, h *head, keep bool) error {
	e, err := h.decode(m)
	if err != nil {
		return err
	}
	of, explains := fmt.Sprintf("%s:%d:%s:%s:", e.Collection, e.Run, e.UID, e.ResourceVersion), e.Attribution.Explains
	if !strings.HasPrefix(explains, of) {
		return fmt.Errorf("%w: it explains %q, and is about another change", ErrForeign, explains)
	}
	return c.waiting.attribute(e, keep)
}

type keptMessage struct {
	message sink.Message
	head    head
}

func copyOf(m *sink.Message, h *head) keptMessage {
	out := keptMessage{*m, *h}
	out.message.Value, out.message.Headers = bytes.Clone(m.Value), slices.Clone(m.Headers)
	for i, x := range m.Headers {
		out.message.Headers[i].Value = bytes.Clone(x.Value)
	}
	return out
}

// merge handles the messages of several parts in the order of their times. Parts have no common order, and two
// collections that hold the object may use different ones.
func (c *changes) merge(ctx context.Context, parts [][]keptMessage) error {
	for {
		next := -1
		for i, list := range parts {
			if len(list) > 0 && (next < 0 || list[0].head.Time.Before(parts[next][0].head.Time)) {
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
		if err := c.check(&f.message, c.take(&f.message, &f.head)); err != nil {
			return err
		}
		parts[next] = parts[next][1:]
	}
}

type objectState struct {
	uid, version string
	epoch        uint64
	body         []byte // nil: not known
}

type changes struct {
	*Log
	query     *ChangesQuery
	waiting   changeQueue
	copied    consumer.State
	resources map[string]bool
	last      objectState             // the last state that was shown
	gone      bool                    // the last change that was shown is a deletion
	bodies    map[string]*objectState // by collection, for those that hold the object
	managers  manager.Finder
}

// concerns reports whether an event is about the object, or ends a collection's copy of it.
func (c *changes) concerns(h *head) bool {
	switch {
	case !c.query.Resource.Matches(h.Group, h.Resource):
		return false
	case h.Type.OfCollection():
		return h.Type != event.Synced
	}
	return h.Namespace == c.query.Object.Namespace && h.Name == c.query.Object.Name
}

func (c *changes) take(m *sink.Message, h *head) error {
	ofCollection := h.Type.OfCollection()
	e, err := h.decode(m)
	if err != nil {
		return err
	}
	change := c.copied.Take(c.places[m.Part], e)
	for _, e := range change.Gone {
		if e.Collection == h.Collection && ofCollection {
			delete(c.bodies, e.Collection)
		}
	}
	if ofCollection || change.Event == nil {
		return nil
	}
	if c.resources[consumer.NameOf(&h.Received).Resource] = true; len(c.resources) > 1 {
		return &AmbiguousError{Name: c.query.Resource.String(), Candidates: slices.Sorted(maps.Keys(c.resources))}
	}
	return c.compareNext(change.Event)
}

// compareNext shows an event if it changes the state that was shown last.
func (c *changes) compareNext(e *event.Received) error {
	now := objectState{e.UID, e.ResourceVersion, e.Epoch, nil}
	if e.BodyKnown && e.Truncated == nil {
		now.body = slices.Clone(e.Object)
	}
	before, own := c.last.body, c.bodies[e.Collection]
	switch {
	case c.gone || c.last.uid != e.UID:
		before = nil
	case own != nil && own.uid == e.UID:
		before = own.body
	}
	if e.Type == event.Deleted {
		delete(c.bodies, e.Collection)
		if held, ok := c.copied.Get(consumer.NameOf(e)); ok && held.UID == e.UID {
			return nil // another collection holds it
		}
		return c.emit(e, now, before)
	}
	c.bodies[e.Collection] = &now
	if c.repeats(&now, own) {
		return nil
	}
	return c.emit(e, now, before)
}

// repeats reports whether the state was shown before: from another collection, or from this one with the same body.
func (c *changes) repeats(now, own *objectState) bool {
	if c.gone || c.last.uid != now.uid || now.body == nil {
		return false
	}
	if own != nil && own.uid == now.uid && own.version == now.version {
		return bytes.Equal(own.body, now.body)
	}
	return now.epoch == c.last.epoch && (now.version == c.last.version || event.Older(now.version, c.last.version))
}

// emit shows an event whose time is within the query's.
func (c *changes) emit(e *event.Received, now objectState, before []byte) error {
	out := Change{
		Time: e.Time, Type: e.Type.String(), Resource: consumer.NameOf(e).Resource, Namespace: e.Namespace, Name: e.Name,
		UID: e.UID, ResourceVersion: e.ResourceVersion, Origin: e.Origin, Reason: e.Reason, ID: e.ID, Collection: e.Collection,
		Note: Note(e, c.last.uid == ""), By: []Who{}, Paths: []string{},
	}
	if e.Type == event.Deleted && e.DeletionVersion != "" {
		out.ResourceVersion = e.DeletionVersion
	}
	if e.Actor != nil {
		out.Attribution = &event.Attribution{Explains: e.ID, Request: e.Actor}
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
		return nil // do not stop here: after a clock was set back, later events may be within the times
	}
	if err := c.compare(&out, e, before, body); err != nil {
		return fmt.Errorf("read event %q: %w", e.ID, err)
	}
	return c.waiting.add(&out)
}

func (c *changes) compare(out *Change, e *event.Received, before, body []byte) (err error) {
	after := c.last.body
	if out.Diff, err = Diff(before, after); err != nil {
		return err
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

// who reads the event's changedby or, without it, the object's managedFields. Neither names the author of a deletion.
func (c *changes) who(e *event.Received, before, body []byte) ([]Who, error) {
	who := []Who{}
	if len(e.ChangedBy) > 0 {
		return who, json.Unmarshal(e.ChangedBy, &who)
	}
	if body == nil || e.Type == event.Deleted || len(e.LeftOut) > 0 {
		return who, nil
	}
	newest := func() ([]manager.Change, error) { return c.managers.Newest(body, time.Time{}) }
	if before != nil {
		newest = func() ([]manager.Change, error) { return c.managers.By(before, body) }
	}
	found, err := newest()
	for _, f := range found {
		who = append(who, Who(f))
	}
	return who, err
}
