// Package history answers, from the bus alone, what a cluster's collections looked
// like and how objects changed.
//
// What it says of a time rests on a base: a list of a collection that told every
// object, from the gap that opened it to the synced that ended it, in every partition.
// Where there is none before the time that is asked for, it says so and nothing else.
package history

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

var (
	// ErrForeign is of a message that no bridge wrote.
	ErrForeign = errors.New("no bridge wrote it")
	// ErrNewer is of an event in a format that this program does not know.
	ErrNewer = errors.New("a newer bridge wrote it: use `bridge` of that version")
	// ErrClusters is of a bus where one name stands for two clusters.
	ErrClusters = errors.New("two clusters have one name")
)

const typePrefix = "io.kubebridge."

// head is what an event says of itself beside its body.
type head struct {
	typ                                 event.Type
	id, cluster, clusterUID, collection string
	group, resource, namespace, name    string
	uid, rv                             string
	epoch                               uint64
	origin                              event.Origin
	time                                time.Time
	dead                                bool
	structured                          bool   // the value is the whole event
	said                                uint16 // a bit for each attribute that a header is of
}

// heads reads heads. It keeps one copy of each string that repeats.
type heads struct {
	types map[string]event.Type
	once  map[string]string
}

func newHeads() *heads {
	h := &heads{types: map[string]event.Type{}, once: map[string]string{}}
	for t := event.Added; t <= event.Closed; t++ {
		h.types[t.CloudEvent()] = t
	}
	return h
}

func (h *heads) intern(b []byte) string {
	if s, ok := h.once[string(b)]; ok {
		return s
	}
	s := string(b)
	h.once[s] = s
	return s
}

// read reads m's head into out. ok is false for what is no event of the bridge's
// proper: a tombstone or a dead letter.
func (h *heads) read(m *sink.Message, out *head) (ok bool, err error) {
	if m.Value == nil {
		return false, nil
	}
	*out = head{epoch: 1}
	typed := false
	for _, x := range m.Headers {
		name, percent := strings.ToLower(x.Name), false
		switch {
		case strings.HasPrefix(name, "ce_"):
			name = name[3:]
		case strings.HasPrefix(name, "ce-"):
			name, percent = name[3:], true
		case name == "content-type":
			out.structured = strings.HasPrefix(string(x.Value), "application/cloudevents")
			continue
		default:
			continue
		}
		v := x.Value
		if percent {
			if v, err = unescape(v); err != nil {
				return false, fmt.Errorf("header ce-%s is %q: %w", name, x.Value, ErrForeign)
			}
		}
		if !utf8.Valid(v) {
			return false, fmt.Errorf("header %s is %q: %w", x.Name, x.Value, ErrForeign)
		}
		if name == "type" {
			if typed {
				return false, fmt.Errorf("two headers say its type: %w", ErrForeign)
			}
			if out.typ, typed = h.types[string(v)]; !typed {
				return false, unknownType(string(v))
			}
			continue
		}
		if err := out.set(h, name, v); err != nil {
			return false, err
		}
	}
	if !typed || out.id == "" || out.collection == "" || out.time.IsZero() {
		return h.readValue(m, out)
	}
	return !out.dead, nil
}

func unknownType(name string) error {
	if strings.HasPrefix(name, typePrefix) {
		return fmt.Errorf("an event of type %q: %w", name, ErrNewer)
	}
	return fmt.Errorf("an event of type %q: %w", name, ErrForeign)
}

// set takes an attribute. Where two headers are of one, in two spellings, readers would
// not agree on what it is.
func (out *head) set(h *heads, name string, v []byte) (err error) {
	n := 0
	switch name {
	case "id":
		n, out.id = 1, string(v)
	case "time":
		n = 2
		if out.time, err = time.Parse(time.RFC3339Nano, string(v)); err != nil {
			return fmt.Errorf("time is %q: %w", v, ErrForeign)
		}
	case "epoch":
		n = 3
		if out.epoch, err = strconv.ParseUint(string(v), 10, 64); err != nil || out.epoch == 0 {
			return fmt.Errorf("epoch is %q: %w", v, ErrForeign)
		}
	case "cluster":
		n, out.cluster = 4, h.intern(v)
	case "clusteruid":
		n, out.clusterUID = 5, h.intern(v)
	case "collection":
		n, out.collection = 6, h.intern(v)
	case "group":
		n, out.group = 7, h.intern(v)
	case "resource":
		n, out.resource = 8, h.intern(v)
	case "namespace":
		n, out.namespace = 9, h.intern(v)
	case "origin":
		n, out.origin = 10, event.Origin(h.intern(v))
	case "name":
		n, out.name = 11, string(v)
	case "uid":
		n, out.uid = 12, string(v)
	case "resourceversion":
		n, out.rv = 13, string(v)
	case "deadletterreason":
		out.dead = true
	}
	if n > 0 && out.said&(1<<n) != 0 {
		return fmt.Errorf("two headers say its %s: %w", name, ErrForeign)
	}
	out.said |= 1 << n
	return nil
}

// readValue is for messages whose headers do not say it all: NATS takes 64 KiB of them.
func (h *heads) readValue(m *sink.Message, out *head) (bool, error) {
	e, err := decode(m.Headers, m.Value)
	switch {
	case errors.Is(err, consumer.ErrNoEvent):
		return false, nil
	case errors.Is(err, event.ErrUnknownType):
		return false, fmt.Errorf("%w: %w", err, ErrNewer)
	case err != nil:
		return false, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	*out = head{
		typ: e.Type, id: e.ID, cluster: e.Cluster, clusterUID: e.ClusterUID, collection: e.Collection,
		group: e.Group, resource: e.Resource, namespace: e.Namespace, name: e.Name, uid: e.UID, rv: e.ResourceVersion,
		epoch: e.Epoch, origin: e.Origin, time: e.Time, structured: true,
	}
	return true, nil
}

// decode reads the whole event.
func decode(headers []sink.Header, value []byte) (*event.Received, error) {
	m := consumer.Message{Value: value, Headers: map[string]string{}}
	for _, x := range headers {
		m.Headers[x.Name] = string(x.Value)
	}
	return consumer.Decode(m)
}

func unescape(v []byte) ([]byte, error) {
	for _, c := range v {
		if c == '%' {
			s, err := url.PathUnescape(string(v))
			return []byte(s), err
		}
	}
	return v, nil
}

// resourceID is "pods" or "deployments.apps".
func (h *head) resourceID() string {
	c := event.Collection{Group: h.group, Resource: h.resource}
	return c.ResourceID()
}

// log is one bus as seen by a question about one cluster.
type log struct {
	sink.Reader
	heads    *heads
	cluster  string
	uid      string
	newest   map[uint64]uint64 // the highest resourceVersion that was read, by epoch
	progress func(Progress)
	done     Progress
	goes     Goes
}

// Progress is how far a question is.
type Progress struct {
	Doing    string // "looking for a base", "reading"
	Messages int64  // read so far
	Of       int64  // at most, of what is being done; 0: not known
}

const progressEvery = 4096

// Goes reports whether the events of a resource go to a topic, as far as is known of
// it. A resource that went to another one before, and was not told anew when it moved,
// stands whole in neither: what is in the other is not read. nil: they go wherever they
// stand.
type Goes func(group, resource, topic string) bool

func newLog(r sink.Reader, cluster string, goes Goes, progress func(Progress)) *log {
	if progress == nil {
		progress = func(Progress) {}
	}
	return &log{Reader: r, heads: newHeads(), cluster: cluster, goes: goes, progress: progress, newest: map[uint64]uint64{}}
}

// begin says what is done next.
func (l *log) begin(doing string, ranges []sink.Range) {
	l.done.Doing, l.done.Of = doing, 0
	for _, r := range ranges {
		l.done.Of += max(0, r.To-r.From)
	}
	l.done.Messages = 0
	l.progress(l.done)
}

// tell reports one message more.
func (l *log) tell() {
	if l.done.Messages++; l.done.Messages%progressEvery == 0 {
		l.progress(l.done)
	}
}

// each calls fn for the events of the cluster within the ranges.
func (l *log) each(ctx context.Context, ranges []sink.Range, collections bool, fn func(m *sink.Message, h *head) error) error {
	parts := l.Parts()
	var h head
	return l.Read(ctx, ranges, collections, func(m *sink.Message) error {
		l.tell()
		ok, err := l.heads.read(m, &h)
		if err != nil {
			return fmt.Errorf("message %d of %s: %w", m.Offset, parts[m.Part].Name, err)
		}
		if !ok || h.cluster != l.cluster {
			return nil
		}
		if l.uid == "" {
			l.uid = h.clusterUID
		}
		if h.clusterUID != l.uid {
			return fmt.Errorf("message %d of %s is of the cluster with the UID %s, others are of %s: %w (%s)",
				m.Offset, parts[m.Part].Name, h.clusterUID, l.uid, ErrClusters, l.cluster)
		}
		if l.goes != nil && !l.goes(h.group, h.resource, parts[m.Part].Log) {
			return nil
		}
		l.notice(&h)
		return fn(m, &h)
	})
}

// notice keeps the highest resourceVersion of each epoch. Some API servers have others
// than numbers: these cannot be asked for.
func (l *log) notice(h *head) {
	rv, _ := strconv.ParseUint(h.rv, 10, 64)
	l.newest[h.epoch] = max(l.newest[h.epoch], rv)
}
