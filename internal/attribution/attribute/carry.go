package attribute

import (
	"slices"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// maxActor bounds the JSON of a request in the event of a change, in bytes. A larger one has an event of its own, which can say what it leaves
// out, so an object that the bus takes is not too large because of a client's long texts.
const maxActor = 8 << 10

func publicationOf(c *Change) encode.PublicationID {
	return encode.PublicationID{Collection: c.Collection, UID: c.UID, Version: c.Published, Deleted: c.Type == event.Deleted}
}

// carried is the verdict that an uncommitted event carries.
type carried struct {
	history history
	verdict join.Verdict
}

// moment says that all records that were written to the inputs before at have at most the given number.
type moment struct {
	at     time.Time
	number uint64
}

// carry returns the request that made a change, if it is exact, and if there is room for it in the event of the change. Then the change
// does not wait any more. The caller has just called await.
func (a *Attribution) carry(c *Change) *event.Request {
	a.take(a.joinOf(c, c.live))
	d := a.decided[c.Number]
	if d == nil || d.verdict.Exact == nil {
		return nil
	}
	v := d.verdict
	r := request(v.Exact)
	if sizeOf(&r) > maxActor {
		return nil
	}
	a.forget(c.Number)
	a.ready = slices.DeleteFunc(a.ready, func(number uint64) bool { return number == c.Number })
	a.carried[publicationOf(c)] = carried{history{c.Storage, c.Epoch}, v}
	return &r
}

// Carries implements [encode.Witness].
func (a *Attribution) Carries(p encode.PublicationID) bool {
	_, carries := a.carried[p]
	return carries
}

// Published implements [encode.Witness].
func (a *Attribution) Published(p encode.PublicationID) {
	if a.Carries(p) {
		delete(a.carried, p)
		a.counts.Carried++
	}
}

// takeBack returns the requests of events of a collection that were not committed.
func (a *Attribution) takeBack(collection string, now time.Time) {
	for p, c := range a.carried {
		if p.Collection == collection {
			if j := a.joins[c.history]; j != nil { // else its history has ended
				j.Return(c.verdict, now)
			}
			delete(a.carried, p)
		}
	}
}

// remember remembers a moment for changes that wait.
func (a *Attribution) remember(at time.Time, number uint64) {
	n := len(a.seen)
	if a.options.Wait == 0 || n > 0 && !at.After(a.seen[n-1].at) {
		return
	}
	a.seen = append(a.seen, moment{at, number})
	for at.Sub(a.seen[0].at) > 2*a.options.Wait {
		a.seen = a.seen[1:]
	}
}

// marksAfter returns what had been written to the inputs at the first known moment after a time; nil: none is known. A later moment is right, too,
// but leaves more requests possible.
func (a *Attribution) marksAfter(at time.Time) join.Marks {
	if at.IsZero() {
		return nil
	}
	i, _ := slices.BinarySearchFunc(a.seen, at, func(m moment, at time.Time) int { return m.at.Compare(at) })
	if i == len(a.seen) {
		return nil
	}
	return a.marks(a.seen[i].number)
}
