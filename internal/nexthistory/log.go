// Package nexthistory answers, from the bus alone, what a cluster's collections held at a time and
// how objects changed, by the contract of docs/events.md. It replaces what internal/history
// has for the contract of docs/events.md; what does not depend on a contract stays there.
//
// An answer rests on a whole list of each collection: a reset or a resync, from its gap to its
// synced event, in every partition. Where there is none by the point that is asked for,
// the answer is that the collection is not covered.
package nexthistory

import (
	"context"
	"fmt"
	"strconv"

	"github.com/kubebridge/kubebridge/internal/history"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// log is one bus as a question about one cluster reads it.
type log struct {
	sink.Reader
	heads    *heads
	cluster  string
	uid      string
	newest   map[uint64]uint64 // the highest resourceVersion that was read, by epoch
	index    []int             // of each part, among those of its log
	size     map[string]int    // parts by log
	progress func(history.Progress)
	done     history.Progress
	goes     history.Goes
}

const progressEvery = 4096

func newLog(r sink.Reader, cluster string, goes history.Goes, progress func(history.Progress)) *log {
	if progress == nil {
		progress = func(history.Progress) {}
	}
	l := &log{Reader: r, heads: newHeads(), cluster: cluster, goes: goes, progress: progress, newest: map[uint64]uint64{}, size: map[string]int{}}
	for _, p := range r.Parts() {
		l.index = append(l.index, l.size[p.Log])
		l.size[p.Log]++
	}
	return l
}

// begin reports what is done next.
func (l *log) begin(doing string, ranges []sink.Range) {
	l.done = history.Progress{Doing: doing}
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
		if err != nil {
			return fmt.Errorf("message %d of %s: %w", m.Offset, l.Parts()[m.Part].Name, err)
		}
		return nil
	})
}

// read reports whether m is an event of the cluster, on the topic that its resource has.
func (l *log) read(m *sink.Message, h *head) (bool, error) {
	if ok, err := l.heads.read(m, h); err != nil || !ok || h.text[cluster] != l.cluster {
		return false, err
	}
	if l.uid == "" {
		l.uid = h.text[clusterUID]
	}
	if h.text[clusterUID] != l.uid {
		return false, fmt.Errorf("it is of the cluster with the UID %s, others are of %s: %w (%s)", h.text[clusterUID], l.uid, history.ErrClusters, l.cluster)
	}
	if l.goes != nil && !l.goes(h.text[group], h.text[resource], l.Parts()[m.Part].Log) {
		return false, nil
	}
	rv, _ := strconv.ParseUint(h.at(), 10, 64) // others than numbers cannot be asked for
	l.newest[h.epoch] = max(l.newest[h.epoch], rv)
	return true, nil
}
