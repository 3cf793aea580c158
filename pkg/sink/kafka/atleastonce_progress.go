package kafka

import (
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// progress is what is known to be durable of the latest batch.
type progress struct {
	seq      uint64
	complete bool
	mark     []byte // that complete comes with
	// acked is kept per record and not as a number per partition, because a
	// record that the caller replaces may go to another partition.
	acked map[delivery]bool
}

// pending returns a function that reports of the records, by index, whether one is
// not durable everywhere it belongs.
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
