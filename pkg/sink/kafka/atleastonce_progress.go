package kafka

import (
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// progress has the records of the latest batch that are known to be durable.
type progress struct {
	seq      uint64
	complete bool
	mark     []byte // mark of the complete batch
	// acked is kept per record and not as a number per partition, because a
	// record that the caller replaces may go to another partition.
	acked map[delivery]bool
}

// pending returns a function that reports whether the record at an index is
// not yet durable in all its partitions.
func (s *Sink) pending(records []event.Record) func(i int) bool {
	if len(s.progress.acked) == 0 {
		return func(int) bool { return true }
	}
	places := sink.Places(records)
	return func(i int) bool {
		r := &records[i]
		t := s.topics.known[r.Route]
		return t == nil || slices.ContainsFunc(t.choose(r), func(id int) bool { return !s.progress.acked[delivery{places[i], partition{r.Route, id}}] })
	}
}
