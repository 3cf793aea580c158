package kafka

import (
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// progress is what is known to be durable of the latest batch.
type progress struct {
	seq      uint64
	complete bool
	mark     []byte // that complete comes with
	// acked is kept per record and not as a number per partition, because a
	// record that the lane replaces may go to another partition.
	acked map[delivery]bool
	// refused are the batch's records as of the latest refusal of a route: the
	// lane may take some of them out.
	refused []event.Record
}

// realign finds what was acknowledged in a batch that has lost records since a
// route refused them. Were one not found, all would be written again.
func (p *progress) realign(records []event.Record) {
	if p.refused == nil || len(records) == len(p.refused) {
		return
	}
	now := map[int]int{} // index before: index now
	next := 0
	for i := range p.refused {
		// Of a collection only the end is taken out, so that the first that looks
		// alike is the one.
		if next < len(records) && alike(&p.refused[i], &records[next]) {
			now[i] = next
			next++
		}
	}
	acked := map[delivery]bool{}
	for d := range p.acked {
		if i, kept := now[d.index]; kept && next == len(records) {
			acked[delivery{i, d.partition}] = true
		}
	}
	p.acked, p.refused = acked, slices.Clone(records)
}

func alike(a, b *event.Record) bool {
	return a.ID == b.ID && a.Route == b.Route && a.Key == b.Key && (a.Value == nil) == (b.Value == nil)
}

// pending reports whether a record is not durable everywhere it belongs.
func (s *Sink) pending(i int, r *event.Record) bool {
	t := s.topics[r.Route]
	if t == nil || len(s.progress.acked) == 0 {
		return true
	}
	return slices.ContainsFunc(t.choose(r), func(id int) bool { return !s.progress.acked[delivery{i, partition{r.Route, id}}] })
}
