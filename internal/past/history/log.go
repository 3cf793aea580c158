// Package history answers, from the bus alone, which objects a cluster's collections held at a time and
// how objects changed. Its [Log] is also how `bridge serve` reads the bus.
//
// The state of a collection is rebuilt from a complete list: a reset or a resync, from its gap to its
// synced event, in every partition. If the bus has no complete list before the point in question,
// the collection is reported as not covered.
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

var (
	// ErrForeign is returned for a message that was not written by a bridge. Such messages are ignored.
	ErrForeign = errors.New("no bridge wrote it")
	// ErrNewer is returned for an event in a format that this program does not know.
	ErrNewer = errors.New("a newer bridge wrote it: use `bridge` of that version")
	// ErrClusters is returned if two clusters publish to the bus under one name.
	ErrClusters = errors.New("two clusters have one name")
)

// Progress describes what a query does at the moment, and how far it has come.
type Progress struct {
	Doing    string // "looking for a complete list", "reading"
	Messages int64  // messages of this step that are read so far, with those that were not asked for
	Total    int64  // messages of this step, at most
}

// Log reads the events of one cluster from a bus. Queries read ranges of it, and `bridge serve` follows it. Messages
// that no bridge wrote are ignored.
type Log struct {
	sink.Reader
	heads   *headReader
	options LogOptions
	uid     string             // of the cluster; "": not known yet
	newest  map[uint64]uint64  // the highest resourceVersion that was read, by epoch
	places  []consumer.Message // by part: the place of its messages, as a copy takes them
	latest  map[string]bool    // by topic or stream: see [sink.Part]

	attributions bool // events that say who made a change are wanted; they change no copy
}

// LogOptions are the options of [NewLog].
type LogOptions struct {
	Cluster    string         // the configured name
	ClusterUID string         // "": that of the first event
	Progress   func(Progress) // may be nil
	Ignored    func(error)    // called for each message that no bridge wrote, with its place; may be nil
}

const progressEvery = 4096

// NewLog returns a log that reads from r.
func NewLog(r sink.Reader, o LogOptions) *Log {
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Ignored == nil {
		o.Ignored = func(error) {}
	}
	l := &Log{Reader: r, heads: newHeads(), options: o, uid: o.ClusterUID, newest: map[uint64]uint64{}}
	l.findPlaces()
	return l
}

func (l *Log) findPlaces() {
	l.places, l.latest = nil, map[string]bool{}
	size := map[string]int{}
	for _, p := range l.Parts() {
		l.places = append(l.places, consumer.Message{Topic: p.Log, Partition: size[p.Log]})
		size[p.Log]++
		l.latest[p.Log] = p.Latest
	}
	for i := range l.places {
		l.places[i].Partitions = size[l.places[i].Topic]
	}
}

// Refresh looks up the parts again: see [sink.Reader].
func (l *Log) Refresh(ctx context.Context) error {
	err := l.Reader.Refresh(ctx)
	l.findPlaces()
	return err
}

// Place returns the place of the messages of a part, as [Log.Events] passes it on.
func (l *Log) Place(part int) consumer.Message { return l.places[part] }

// Events calls fn for the events of the cluster within the ranges, in the order of each part. at is the place of m, as
// a copy takes it. Other errors than those of the bus and of fn wrap [ErrNewer] or [ErrClusters].
func (l *Log) Events(ctx context.Context, ranges []sink.Range, fn func(m *sink.Message, at consumer.Message, e *event.Received) error) error {
	return l.each(ctx, "reading", ranges, false, func(m *sink.Message, h *head) error {
		e, err := h.decode(m)
		if err != nil {
			return err
		}
		return fn(m, l.places[m.Part], e)
	})
}

// each calls fn for the events of the cluster within the ranges. Progress is reported before a message counts as read,
// so it reaches its total only if the ranges are empty.
func (l *Log) each(ctx context.Context, doing string, ranges []sink.Range, collections bool, fn func(m *sink.Message, h *head) error) error {
	done, next := Progress{Doing: doing}, make([]int64, len(ranges))
	for i, r := range ranges {
		done.Total += max(0, r.To-r.From)
		next[i] = r.From
	}
	l.options.Progress(done)
	var h head
	read := 0
	return l.Read(ctx, ranges, collections, func(m *sink.Message) error {
		if read++; read%progressEvery == 0 {
			l.options.Progress(done)
		}
		done.Messages += m.Offset + 1 - next[m.Part]
		next[m.Part] = m.Offset + 1
		take, err := l.read(m, &h)
		if err == nil && take {
			err = fn(m, &h)
		}
		return l.check(m, err)
	})
}

// check adds the message's place to an error. For a foreign message it returns nil and reports the message.
func (l *Log) check(m *sink.Message, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("message %d of %s: %w", m.Offset, l.Parts()[m.Part].Name, err)
	if !errors.Is(err, ErrForeign) {
		return err
	}
	l.options.Ignored(err)
	return nil
}

// read reports whether m is an event of the cluster, and reads its head. The content of a foreign message is not
// trusted: it cannot end a query by naming a newer type or another cluster's UID.
func (l *Log) read(m *sink.Message, h *head) (bool, error) {
	if m.Foreign {
		return false, fmt.Errorf("it does not name this stream and its sequence: %w", ErrForeign)
	}
	if ok, err := l.heads.read(m, h); err != nil || !ok || h.Cluster != l.options.Cluster {
		return false, err
	}
	if h.Type.OfRequest() && (h.Type != event.Attributed || !l.attributions) {
		return false, nil
	}
	l.uid = cmp.Or(l.uid, h.ClusterUID)
	if h.ClusterUID != l.uid {
		return false, fmt.Errorf("it is of the cluster with the UID %s, others are of %s: %w (%s)", h.ClusterUID, l.uid, ErrClusters, l.options.Cluster)
	}
	rv, _ := strconv.ParseUint(h.at(), 10, 64) // a query cannot ask for resourceVersions that are not numbers
	l.newest[h.Epoch] = max(l.newest[h.Epoch], rv)
	return true, nil
}
