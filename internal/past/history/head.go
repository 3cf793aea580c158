package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	jsonscan "github.com/kubebridge/kubebridge/internal/base/scan"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

const typePrefix = "io.kubebridge."

// attributes are the names of attributes in a head: first those of textsOf, then four others. The first seven are
// interned. A value repeats those after the first, up to "uid".
var attributes = []string{
	"origin", "cluster", "clusteruid", "collection", "group", "resource", "namespace", "name", "uid", "id", "resourceversion",
	"deletionversion", "time", "epoch", "run", "incarnation",
}

// head holds the attributes of an event that queries need, without its body.
type head struct {
	event.Received
	read uint32 // one bit for each attribute that was read from a header
}

func textsOf(e *event.Received) [12]*string {
	return [...]*string{
		(*string)(&e.Origin), &e.Cluster, &e.ClusterUID, &e.Collection, &e.Group, &e.Resource, &e.Namespace, &e.Name, &e.UID, &e.ID,
		&e.ResourceVersion, &e.DeletionVersion,
	}
}

func (h *head) at() string {
	if h.Type == event.Deleted {
		return h.DeletionVersion
	}
	return h.ResourceVersion
}

// headReader reads heads. It keeps one copy of each string that repeats.
type headReader struct {
	types    map[string]event.Type
	interned map[string]string
}

func newHeads() *headReader {
	h := &headReader{types: map[string]event.Type{}, interned: map[string]string{}}
	for t := event.Added; t <= event.Lost; t++ {
		h.types[t.CloudEvent()] = t
	}
	return h
}

func (h *headReader) intern(b []byte) string {
	if s, ok := h.interned[string(b)]; ok {
		return s
	}
	s := string(b)
	h.interned[s] = s
	return s
}

// read reads m's head into out. ok is false for dead letters, and for null values that describe no deletion.
func (h *headReader) read(m *sink.Message, out *head) (ok bool, err error) {
	*out = head{Received: event.Received{Epoch: 1}}
	typed, dead := false, false
	for _, x := range m.Headers {
		name, value, err := attributeOf(x)
		switch {
		case err != nil:
			return false, err
		case name == "deadletterreason":
			dead = true
		case name == "type" && typed:
			return false, fmt.Errorf("two headers have its type: %w", ErrForeign)
		case name == "type":
			if out.Type, typed = h.types[string(value)]; !typed {
				return false, unknownType(string(value))
			}
		default:
			if err := out.set(h, name, value); err != nil {
				return false, err
			}
		}
	}
	switch {
	case dead, len(m.Value) == 0 && (!typed || out.Type != event.Deleted):
		return false, nil
	case !typed || !out.complete():
		return h.readValue(m, out)
	}
	return true, out.check()
}

// complete reports whether the headers had the attributes that every event has.
func (h *head) complete() bool { return h.ID != "" && h.Collection != "" && !h.Time.IsZero() }

// check returns an error for an event without run and incarnation, which no bridge writes, and for one of the future.
func (h *head) check() error {
	if h.Run == 0 || h.Incarnation == 0 {
		return fmt.Errorf("event %q has no run or no incarnation: %w", h.ID, ErrForeign)
	}
	if err := h.CheckClock(time.Now()); err != nil {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return nil
}

// attributeOf returns the name of the attribute that a header holds; "" if it holds none.
func attributeOf(x sink.Header) (name string, value []byte, err error) {
	lower := strings.ToLower(x.Name)
	name, found := strings.CutPrefix(lower, "ce_")
	value = x.Value
	if !found {
		if name, found = strings.CutPrefix(lower, "ce-"); !found {
			return "", nil, nil
		}
		text, err := url.PathUnescape(string(value))
		if err != nil {
			return "", nil, fmt.Errorf("header %s is %q: %w", lower, x.Value, ErrForeign)
		}
		value = []byte(text)
	}
	if !utf8.Valid(value) {
		return "", nil, fmt.Errorf("header %s is %q: %w", x.Name, x.Value, ErrForeign)
	}
	return name, value, nil
}

func unknownType(name string) error {
	why := ErrForeign
	if strings.HasPrefix(name, typePrefix) {
		why = ErrNewer
	}
	return fmt.Errorf("an event of type %q: %w", name, why)
}

// set stores an attribute. An attribute in two headers, in two spellings, is an error: readers would disagree about
// its value.
func (h *head) set(r *headReader, name string, value []byte) (err error) {
	i := slices.Index(attributes, name)
	if i < 0 {
		return nil
	}
	if h.read&(1<<i) != 0 {
		return fmt.Errorf("two headers have its %s: %w", name, ErrForeign)
	}
	h.read |= 1 << i
	switch texts := textsOf(&h.Received); name {
	case "time":
		h.Time, err = time.Parse(time.RFC3339Nano, string(value))
	case "epoch":
		if h.Epoch, err = strconv.ParseUint(string(value), 10, 64); h.Epoch == 0 {
			err = strconv.ErrRange
		}
	case "run":
		h.Run, err = strconv.ParseUint(string(value), 10, 64)
	case "incarnation":
		h.Incarnation, err = strconv.ParseUint(string(value), 10, 64)
	case "origin", "cluster", "clusteruid", "collection", "group", "resource", "namespace":
		*texts[i] = r.intern(value)
	default:
		*texts[i] = string(value)
	}
	if err != nil {
		return fmt.Errorf("%s is %q: %w", name, value, ErrForeign)
	}
	return nil
}

// readValue reads the head from the value, because headers lack attributes: NATS accepts at most 64 KiB of them.
func (h *headReader) readValue(m *sink.Message, out *head) (bool, error) {
	e, err := decode(m)
	switch {
	case errors.Is(err, consumer.ErrNoEvent):
		return false, nil
	case errors.Is(err, event.ErrUnknownType):
		var typed struct{ Type string }
		if err := json.Unmarshal(m.Value, &typed); err != nil { // the value is no structured event; its type was in headers
			return false, fmt.Errorf("%w: %w", err, ErrForeign)
		}
		return false, unknownType(typed.Type)
	case err != nil:
		return false, err
	}
	*out = head{Received: *e}
	out.Data, out.Object, out.Before, out.Patch, out.ChangedBy = nil, nil, nil, nil, nil
	return true, out.check()
}

func message(m *sink.Message) consumer.Message {
	out := consumer.Message{Value: m.Value, Headers: make(map[string]string, len(m.Headers))}
	for _, x := range m.Headers {
		out.Headers[x.Name] = string(x.Value)
	}
	return out
}

func decode(m *sink.Message) (*event.Received, error) {
	e, err := consumer.Decode(message(m))
	if err == nil && (e.Run == 0 || e.Incarnation == 0) {
		err = fmt.Errorf("event %q has no run or no incarnation: %w", e.ID, event.ErrNotEvent)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return e, nil
}

// decode reads the whole event of h. Headers must agree with the value, and attributes with the body: the head selects
// the event, the value changes the copy, and the body is shown.
func (h *head) decode(m *sink.Message) (*event.Received, error) {
	e, err := decode(m)
	if err != nil {
		return nil, err
	}
	type claim struct{ what, claimed, actual string }
	claims := []claim{{"type in its headers", h.Type.CloudEvent(), e.Type.CloudEvent()}}
	claimed, actual := textsOf(&h.Received), textsOf(e)
	for i := 1; attributes[i-1] != "uid"; i++ {
		claims = append(claims, claim{attributes[i] + " in its headers", *claimed[i], *actual[i]})
	}
	if !e.Type.OfCollection() && e.BodyKnown {
		body, err := identityOf(e.Object)
		if err != nil {
			return nil, fmt.Errorf("%w: its body: %w", ErrForeign, err)
		}
		claims = append(claims,
			claim{"apiVersion in its body", body.apiVersion, e.APIVersion},
			claim{"kind in its body", body.kind, e.Kind},
			claim{"namespace in its body", event.BoundName(body.namespace), e.Namespace},
			claim{"name in its body", event.BoundName(body.name), e.Name},
			claim{"uid in its body", body.uid, e.UID})
	}
	for _, c := range claims {
		if c.claimed != c.actual {
			return nil, fmt.Errorf("%w: the %s is %q, and the event is of %q", ErrForeign, c.what, c.claimed, c.actual)
		}
	}
	return e, nil
}

type identity struct{ apiVersion, kind, namespace, name, uid string }

// identityOf reads the identity, without decoding the rest. As in encoding/json, the last member of a name counts.
func identityOf(body []byte) (o identity, err error) {
	var s jsonscan.Scanner
	s.Reset(body)
	members := func(to map[string]*string, metadata func() error) error {
		return s.Members(func(name []byte, _ int) error {
			switch text := to[string(name)]; {
			case text != nil:
				value, err := s.Value()
				if err == nil && string(value) != "null" {
					err = json.Unmarshal(value, text)
				}
				return err
			case string(name) == "metadata" && metadata != nil:
				return metadata()
			}
			return s.Skip()
		})
	}
	err = members(map[string]*string{"apiVersion": &o.apiVersion, "kind": &o.kind}, func() error {
		return members(map[string]*string{"namespace": &o.namespace, "name": &o.name, "uid": &o.uid}, nil)
	})
	return o, err
}
