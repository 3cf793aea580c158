// Package history answers, from the bus alone, what a cluster's collections held at a time and
// how objects changed.
//
// An answer rests on a whole list of each collection: a reset or a resync, from its gap to its
// synced event, in every partition. Where there is none by the point that is asked for,
// the answer is that the collection is not covered.
package history

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

var (
	// ErrForeign is the reason for which a message is ignored that no bridge wrote.
	ErrForeign = errors.New("no bridge wrote it")
	// ErrNewer is returned for an event of a format that this program does not know.
	ErrNewer = errors.New("a newer bridge wrote it: use `bridge` of that version")
	// ErrClusters is returned for a bus where one name stands for two clusters.
	ErrClusters = errors.New("two clusters have one name")
)

// Progress is how far an answer is.
type Progress struct {
	Doing    string // "looking for a complete list", "reading"
	Messages int64  // read so far
	Of       int64  // at most, of what is being done; 0: not known
}

// log is one bus as a question about one cluster reads it.
type log struct {
	sink.Reader
	heads    *heads
	cluster  string
	uid      string
	newest   map[uint64]uint64 // the highest resourceVersion that was read, by epoch
	index    []int             // of each part, among those of its log
	size     map[string]int    // parts by log
	latest   map[string]bool   // by log, see [sink.Part]
	progress func(Progress)
	done     Progress
	ignored  func(error)
	foreign  map[place]bool // messages that were ignored
}

// place is where a message stands on the bus.
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

// begin reports what is done next.
func (l *log) begin(doing string, ranges []sink.Range) {
	l.done = Progress{Doing: doing}
	for _, r := range ranges {
		l.done.Of += max(0, r.To-r.From)
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

// check returns an error of a message with its place. A foreign message is reported once, and is no error.
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

// read reports whether m is an event of the cluster. Nothing that a foreign message says counts: neither a type of a newer bridge nor
// the UID of another cluster ends the reading.
func (l *log) read(m *sink.Message, h *head) (bool, error) {
	if m.Foreign {
		return false, fmt.Errorf("it does not name this stream and its sequence: %w", ErrForeign)
	}
	if ok, err := l.heads.read(m, h); err != nil || !ok || h.text[cluster] != l.cluster {
		return false, err
	}
	if l.uid == "" {
		l.uid = h.text[clusterUID]
	}
	if h.text[clusterUID] != l.uid {
		return false, fmt.Errorf("it is of the cluster with the UID %s, others are of %s: %w (%s)", h.text[clusterUID], l.uid, ErrClusters, l.cluster)
	}
	rv, _ := strconv.ParseUint(h.at(), 10, 64) // others than numbers cannot be asked for
	l.newest[h.epoch] = max(l.newest[h.epoch], rv)
	return true, nil
}
