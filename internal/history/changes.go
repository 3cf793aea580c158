package history

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape/manager"
	"github.com/kubebridge/kubebridge/pkg/shape/patch"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// ChangesQuery asks how one object changed.
type ChangesQuery struct {
	Reader   sink.Reader
	Cluster  string // the configured name
	Goes     Goes
	Resource string // as [Matches] takes it
	Object   Name
	Since    time.Time // zero: since the bus begins
	Until    time.Time // zero: to its end
	Progress func(Progress)
}

// Who wrote, as the object's managedFields or the event's changedby say.
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
	FormerUID       string       `json:"formerUID,omitempty"` // of the object that had the name before, where it is another
	ResourceVersion string       `json:"resourceVersion"`
	Origin          event.Origin `json:"origin"`
	Reason          string       `json:"reason,omitempty"` // "left": it may live on outside the selection
	ID              string       `json:"id"`
	Collection      string       `json:"collection,omitempty"` // by internal/nexthistory alone
	By              []Who        `json:"by"`                   // none: not known
	Note            string       `json:"note"`                 // what is to be known of it, "" for nothing
	// Diff is that of the YAML of the bodies, in unified format, without
	// resourceVersion and managedFields. Paths (JSON pointers) are what differs.
	Diff  string   `json:"diff"`
	Paths []string `json:"paths"`
}

// Changes calls fn for what the bus tells of an object, in order. What is told again
// without a change is passed over. The first diff is of the whole object. earliest is
// the time of the oldest event on what was read; zero if there is none.
func Changes(ctx context.Context, q ChangesQuery, fn func(Change) error) (earliest time.Time, err error) {
	l := newLog(q.Reader, q.Cluster, q.Goes, q.Progress)
	ranges := make([]sink.Range, len(l.Parts()))
	for i, p := range l.Parts() {
		ranges[i] = sink.Range{From: p.First, To: p.End}
	}
	if !q.Since.IsZero() {
		from, err := l.At(ctx, q.Since)
		if err != nil {
			return earliest, err
		}
		for i := range ranges {
			ranges[i].From = from[i]
		}
	}
	c := changes{seen: newReplay(l, Point{}, nil, nil), resources: map[string]bool{}}
	l.begin("reading", ranges)
	err = l.each(ctx, ranges, false, func(m *sink.Message, h *head) error {
		if earliest.IsZero() || h.time.Before(earliest) {
			earliest = h.time
		}
		if h.typ.OfCollection() || !Matches(q.Resource, h.group, h.resource) || h.namespace != q.Object.Namespace || h.name != q.Object.Name {
			return nil
		}
		tell := fn
		if !q.Until.IsZero() && h.time.After(q.Until) || !q.Since.IsZero() && h.time.Before(q.Since) {
			if len(c.resources) == 0 {
				return nil
			}
			// A clock was set, and may come to the times that are asked for again: what is
			// told then differs from this.
			tell = func(Change) error { return nil }
		}
		if c.repeats(m, h) {
			return nil
		}
		if c.resources[h.resourceID()] = true; len(c.resources) > 1 {
			var of []string
			for id := range c.resources {
				of = append(of, id)
			}
			slices.Sort(of)
			return &AmbiguousError{q.Resource, of}
		}
		e, err := decode(m.Headers, m.Value)
		if err != nil {
			return fmt.Errorf("message %d of %s: %w: %w", m.Offset, l.Parts()[m.Part].Name, ErrForeign, err)
		}
		return c.take(e, tell)
	})
	return earliest, err
}

// changes is the state between two events.
type changes struct {
	seen      *replay // knows what is told twice
	resources map[string]bool
	uid       string
	rv        string
	body      []byte // of the last event; nil: not known
	gone      bool   // the last was a deletion
	teller    manager.Teller
}

// repeats reports whether h came before, or is older than what did.
func (c *changes) repeats(m *sink.Message, h *head) bool {
	key := objectKey{h.resourceID(), h.uid}
	if e := c.seen.objects[key]; e != nil && e.isOld(h, version{h.epoch, h.rv}) {
		return true
	}
	c.seen.object(&sink.Message{Part: m.Part, Offset: m.Offset}, h)
	return false
}

func (c *changes) take(e *event.Received, fn func(Change) error) error {
	again := e.Type == event.Present && e.UID == c.uid && e.ResourceVersion == c.rv && !c.gone
	if again && c.body != nil {
		return nil
	}
	out := Change{
		Time: e.Time, Type: e.Type.String(), Namespace: e.Namespace, Name: e.Name, UID: e.UID,
		ResourceVersion: e.ResourceVersion, Origin: e.Origin, Reason: e.Reason, ID: e.ID, Note: Note(e, c.uid == ""), By: []Who{}, Paths: []string{},
	}
	collection := event.Collection{Group: e.Group, Resource: e.Resource}
	out.Resource = collection.ResourceID()
	before := c.body
	if c.uid != "" && c.uid != e.UID {
		out.FormerUID, before = c.uid, nil
	}
	if c.gone {
		before = nil
	}
	body := e.Object
	if !e.BodyKnown || e.Truncated != nil {
		body = nil
	}
	after := body
	if e.Type == event.Deleted {
		after = nil
	}
	if err := c.compare(&out, e, before, after, body); err != nil {
		return fmt.Errorf("read event %q: %w", e.ID, err)
	}
	c.uid, c.rv, c.body, c.gone = e.UID, e.ResourceVersion, slices.Clone(after), e.Type == event.Deleted
	return fn(out)
}

// Note is what to know of an event before its diff is believed, "" for nothing. first
// says that it is the first that is known of its object.
func Note(e *event.Received, first bool) string {
	var all []string
	if e.Origin == event.Reconcile {
		if e.Type == event.Deleted {
			all = append(all, "seen to be gone by a list: when, and what changed before, is not known")
		} else {
			all = append(all, "updates in between are not known")
		}
	}
	if e.Type == event.Deleted && e.Reason == "left" {
		all = append(all, "it left what the bridge watches, and may live on")
	}
	if first && e.Type != event.Added {
		all = append(all, "what was before is not on the bus")
	}
	if first && e.Type == event.Added && e.Origin == event.Snapshot {
		all = append(all, "it existed when the bridge began to watch")
	}
	switch {
	case !e.BodyKnown:
		all = append(all, "its body is not known")
	case e.Truncated != nil:
		all = append(all, fmt.Sprintf("truncated: its body of %d bytes did not fit the bus", e.Truncated.Size))
	}
	return strings.Join(all, "; ")
}

func (c *changes) compare(out *Change, e *event.Received, before, after, body []byte) (err error) {
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
	out.By, err = c.who(e, before, body)
	return err
}

// who reads the event's changedby, else the object's managedFields. A deletion's author
// stands in neither.
func (c *changes) who(e *event.Received, before, body []byte) ([]Who, error) {
	var data struct {
		ChangedBy []Who `json:"changedby"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return nil, err
	}
	if len(data.ChangedBy) > 0 {
		return data.ChangedBy, nil
	}
	if body == nil || e.Type == event.Deleted {
		return []Who{}, nil
	}
	var (
		found []manager.Change
		err   error
	)
	if before != nil {
		found, err = c.teller.By(before, body)
	} else {
		found, err = c.teller.Newest(body, time.Time{})
	}
	if err != nil {
		return nil, err
	}
	who := []Who{}
	for _, f := range found {
		who = append(who, Who{f.Manager, f.Operation, f.Subresource, f.Time, f.Paths, f.More})
	}
	return who, nil
}

// Authors are managers in words.
func Authors(by []Who) string {
	if len(by) == 0 {
		return "unknown"
	}
	var all []string
	for _, w := range by {
		s := w.Manager
		if w.Subresource != "" {
			s += "/" + w.Subresource
		}
		all = append(all, s)
	}
	return strings.Join(all, ", ")
}

// contextLines stand around what changed.
const contextLines = 3

// Diff is the unified difference of two objects as YAML, without their resourceVersion
// and managedFields. nil is no object.
func Diff(before, after []byte) (string, error) {
	a, err := lines(before)
	if err != nil {
		return "", err
	}
	b, err := lines(after)
	if err != nil {
		return "", err
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: a, B: b, Context: contextLines})
}

func lines(object []byte) ([]string, error) {
	if object == nil {
		return nil, nil
	}
	v, err := parse(object)
	if err != nil {
		return nil, err
	}
	again, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	text, err := YAML(again)
	if err != nil {
		return nil, err
	}
	return slices.Collect(strings.Lines(string(text))), nil
}

// parse decodes an object and takes out what differs always.
func parse(object []byte) (map[string]any, error) {
	var v map[string]any
	d := json.NewDecoder(strings.NewReader(string(object)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if meta, ok := v["metadata"].(map[string]any); ok {
		delete(meta, "resourceVersion")
		delete(meta, "managedFields")
	}
	return v, nil
}

// Paths are the JSON pointers of what differs between two objects, without their
// resourceVersion and managedFields.
func Paths(before, after []byte) ([]string, error) {
	maker := patch.Maker{WithoutManagedFields: true}
	text, err := maker.Append(nil, before, after)
	if err != nil {
		return nil, err
	}
	var ops []struct{ Path, From string }
	if err := json.Unmarshal(text, &ops); err != nil {
		return nil, err
	}
	paths := []string{}
	for _, op := range ops {
		if op.Path != "/metadata/resourceVersion" {
			paths = append(paths, op.Path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}
