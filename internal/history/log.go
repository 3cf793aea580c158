// Package history answers, from the bus alone, which objects a cluster's collections held at a time and
// how objects changed.
//
// The state of a collection is rebuilt from a complete list: a reset or a resync, from its gap to its
// synced event, in every partition. If the bus has no complete list before the point in question,
// the collection is reported as not covered.
package history

import (
	"context"
	"errors"
	"fmt"
	"strconv"

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
	Messages int64  // messages read so far
	Total    int64  // messages to read in this step, at most; 0: not known
}

// log reads the events of one cluster from a bus.
type log struct {
	sink.Reader
	heads    *headReader
	cluster  string
	uid      string
	newest   map[uint64]uint64 // the highest resourceVersion that was read, by epoch
	index    []int             // by part: its number among the parts of its topic or stream
	size     map[string]int    // by topic or stream: how many parts it has
	latest   map[string]bool   // by topic or stream: see [sink.Part]
	progress func(Progress)
	done     Progress
	ignored  func(error)
	foreign  map[place]bool // messages that were ignored, so that each is reported once

	attributions bool // events that say who made a change are wanted; they change no copy
}

// place identifies a message on the bus.
type place struct {
	part   int
	offset int64
}

const progressEvery = 4096

func newLog(r sink.Reader, cluster string, progress func(Progress), ignored func(error)) *log {
	if progress == nil {
		progress = func(Progress) {}
	}
	if ignored == nil {
		ignored = func(error) {}
	}
	l := &log{Reader: r, heads: newHeads(), cluster: cluster, progress: progress, ignored: ignored, foreign: map[place]bool{}, newest: map[uint64]uint64{}, size: map[string]int{}, latest: map[string]bool{}}
	for _, p := range r.Parts() {
		l.index = append(l.index, l.size[p.Log])
		l.size[p.Log]++
		l.latest[p.Log] = p.Latest
	}
	return l
}

// begin reports the next step, which reads the given ranges.
func (l *log) begin(doing string, ranges []sink.Range) {
	l.done = Progress{Doing: doing}
	for _, r := range ranges {
		l.done.Total += max(0, r.To-r.From)
	}
	l.progress(l.done)
}

// each calls fn for the events of the cluster within the ranges.
func (l *log) each(ctx context.Context, ranges []sink.Range, collections bool, fn func(m *sink.Message, h *head) error) error {
	var h head
	return l.Read(ctx, ranges, collections, func(m *sink.Message) error {
		if l.done.Messages++; l.done.Messages%progressEvery == 0 {
			l.progress(l.done)
		}
		take, err := l.read(m, &h)
		if err == nil && take {
			err = fn(m, &h)
		}
		return l.check(m, err)
	})
}

// check adds the message's place to an error. For a foreign message it returns nil and reports the message once.
func (l *log) check(m *sink.Message, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("message %d of %s: %w", m.Offset, l.Parts()[m.Part].Name, err)
	if !errors.Is(err, ErrForeign) {
		return err
	}
	if at := (place{m.Part, m.Offset}); !l.foreign[at] {
		l.foreign[at] = true
		l.ignored(err)
	}
	return nil
}

// read reports whether m is an event of the cluster, and reads its head. The content of a foreign message is not trusted: it
// cannot end a query by naming a newer type or another cluster's UID.
func (l *log) read(m *sink.Message, h *head) (bool, error) {
	if m.Foreign {
		return false, fmt.Errorf("it does not name this stream and its sequence: %w", ErrForeign)
	}
	if ok, err := l.heads.read(m, h); err != nil || !ok || h.text[cluster] != l.cluster {
		return false, err
	}
	if h.typ.OfRequest() && (h.typ != event.Attributed || !l.attributions) {
		return false, nil
	}
	if l.uid == "" {
		l.uid = h.text[clusterUID]
	}
	if h.text[clusterUID] != l.uid {
		return false, fmt.Errorf("it is of the cluster with the UID %s, others are of %s: %w (%s)", h.text[clusterUID], l.uid, ErrClusters, l.cluster)
	}
	rv, _ := strconv.ParseUint(h.at(), 10, 64) // a query cannot ask for resourceVersions that are not numbers
	l.newest[h.epoch] = max(l.newest[h.epoch], rv)
	return true, nil
}

// Decoder reads the events of one cluster from the messages of a bus, and rejects what no bridge wrote.
type Decoder struct{ log log }

// NewDecoder returns a decoder for a cluster, by its configured name. uid is the cluster's UID if it is known; "": that of the first event.
func NewDecoder(cluster, uid string) *Decoder {
	return &Decoder{log{heads: newHeads(), cluster: cluster, uid: uid, newest: map[uint64]uint64{}}}
}

// ClusterUID returns the UID of the cluster; "" if it is not known yet.
func (d *Decoder) ClusterUID() string { return d.log.uid }

// Decode returns the event of a message; nil if it is of another cluster, a dead letter, a null value that describes no deletion, or an event
// that says who made a change. Errors wrap [ErrForeign], [ErrNewer] or [ErrClusters].
func (d *Decoder) Decode(m *sink.Message) (*event.Received, error) {
	var h head
	if ok, err := d.log.read(m, &h); err != nil || !ok {
		return nil, err
	}
	return h.decode(m)
}
