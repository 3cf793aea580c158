package attribute

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	// maxDecidedBytes bounds the records of verdicts whose events are not committed, for example because the bus refuses their route. Later
	// events leave out more. One half is for exact verdicts on changes that are not committed themselves: these may be given back to the join.
	maxDecidedBytes = 64 << 20 // or a part of Options.MaxBytes
	// crowdedBytes bounds the data of those events.
	crowdedBytes = 2 << 10
	// storedAtOnce and storedBytesAtOnce bound the verdicts that one batch stores.
	storedAtOnce, storedBytesAtOnce = 256, 1 << 20
)

// decision is the verdict on a change that waits for the commit of its event.
//
//	state    the verdict is                           next
//	made     in memory: after a restart it follows    storing, if the collection's events wait
//	         from the records
//	storing  in a batch as well                       stored
//	stored   in the checkpoint, with the change:      -
//	         its records are not needed any more
type decision struct {
	verdict     join.Verdict
	attribution *event.Attribution // instead of the records of the verdict, which has none; nil: the verdict has them
	bytes       int                // of the records
	storing     bool
	sent        bool // a batch has its event
}

func (d *decision) exact() bool {
	return d.verdict.Exact != nil || d.attribution != nil && d.attribution.Request != nil
}

// silent reports whether no record fits.
func (d *decision) silent() bool { return d.verdict.Reason == join.NoRecord }

// attributed returns what the event says, with at most limit bytes. The caller may change it.
func (d *decision) attributed(limit int) *event.Attribution {
	a := &event.Attribution{Reason: string(d.verdict.Reason)}
	switch {
	case d.attribution != nil:
		*a = *d.attribution
		a.Candidates, a.LeftOut = slices.Clone(a.Candidates), slices.Clone(a.LeftOut)
		for i := range a.Candidates {
			a.Candidates[i] = copied(a.Candidates[i])
		}
		if a.Request != nil {
			r := copied(*a.Request)
			a.Request = &r
		}
	case d.verdict.Exact != nil:
		r := request(d.verdict.Exact)
		a.Request = &r
	default:
		for _, r := range d.verdict.Candidates {
			a.Candidates = append(a.Candidates, request(r))
		}
	}
	if bound(a, limit); d.verdict.LeftOut && !slices.Contains(a.LeftOut, leftOutCandidates) {
		a.LeftOut = append(a.LeftOut, leftOutCandidates)
	}
	if len(a.Candidates) == 1 {
		a.Warning = event.OneCandidate
	}
	return a
}

// copied returns a request of which bound can leave out members.
func copied(r event.Request) event.Request {
	if r.Impersonated != nil {
		u := *r.Impersonated
		r.Impersonated = &u
	}
	return r
}

// made returns a verdict of a join.
func made(v join.Verdict) *decision {
	d := &decision{verdict: v}
	for _, r := range append(slices.Clone(v.Candidates), v.Exact) {
		if r != nil {
			d.bytes += r.Size()
		}
	}
	return d
}

// restored returns the verdict that the checkpoint has on a change.
func restored(c *Change) *decision {
	text, _ := json.Marshal(c.Verdict) // strings and numbers always encode
	return &decision{verdict: join.Verdict{Change: c.Number, Reason: join.Reason(c.Verdict.Reason)}, attribution: c.Verdict, bytes: len(text)}
}

// decide adds a verdict.
func (a *Attribution) decide(d *decision) {
	limit := a.maxDecided() / 2
	if a.decidedBytes+d.bytes > limit && d.verdict.Exact != nil && !a.isCommitted(d.verdict.Change) {
		limit = a.maxDecided()
	}
	if a.decidedBytes+d.bytes > limit {
		d.attribution = d.attributed(crowdedBytes)
		d.verdict.Shrink()
		d.bytes = min(d.bytes, crowdedBytes)
	}
	a.decidedBytes += d.bytes
	a.decided[d.verdict.Change] = d
}

// isCommitted reports whether a change that waits is in the checkpoint. After an error it is not known, and the result is false.
func (a *Attribution) isCommitted(number uint64) bool {
	value, err := a.store.Get(key(a.waiting[number]))
	return err == nil && value != nil
}

// revoke forgets a verdict, also one that is stored: [Attribution.Keep] stores the next one.
func (a *Attribution) revoke(number uint64) {
	if d := a.decided[number]; d != nil {
		a.decidedBytes -= d.bytes
	}
	delete(a.decided, number)
	if c := a.waiting[number]; c != nil {
		c.Verdict = nil
	}
	is := func(other uint64) bool { return other == number }
	a.storing.filling, a.storing.flying = slices.DeleteFunc(a.storing.filling, is), slices.DeleteFunc(a.storing.flying, is)
}

// forget forgets a change, with its verdict.
func (a *Attribution) forget(number uint64) {
	a.revoke(number)
	delete(a.waiting, number)
	delete(a.rejected, number)
}

// Keep returns the changes of the checkpoint that store verdicts on changes of collections whose events wait, a part of them at a time. Their records
// are not needed any more once these are durable. After an error, the changes so far are to be committed as well: they count as passed on.
func (a *Attribution) Keep(waits func(c *Change) bool) (changes []event.KV, err error) {
	bytes := 0
	for number, d := range a.decided {
		c := a.waiting[number]
		if d.storing || d.silent() || c == nil || c.Verdict != nil || !waits(c) {
			continue
		}
		if len(changes) == storedAtOnce || bytes > storedBytesAtOnce {
			break
		}
		// The event of the change may not be committed: then the collection publishes the change again.
		switch value, err := a.store.Get(key(c)); {
		case err != nil:
			return changes, fmt.Errorf("read the checkpoint: %w", err)
		case value == nil:
			continue
		}
		stored := *c
		stored.Verdict = d.attributed(maxBytes)
		value, _ := json.Marshal(&stored) // strings and numbers always encode
		changes = append(changes, event.KV{Key: key(c), Value: value})
		bytes += len(value)
		d.storing = true
		a.storing.filling = append(a.storing.filling, number)
	}
	return changes, nil
}

// storing has the changes of which a batch stores the verdict.
type storing struct {
	filling, flying []uint64 // in the batch that fills, and in the one on its way
}

// keptDurably says that the verdicts of the batch on its way are durable.
func (a *Attribution) keptDurably() {
	for _, number := range a.storing.flying {
		c, d := a.waiting[number], a.decided[number]
		if c == nil || d == nil {
			continue
		}
		c.Verdict = d.attributed(maxBytes)
		a.decided[number] = &decision{verdict: join.Verdict{Change: number, Reason: d.verdict.Reason}, attribution: c.Verdict, bytes: d.bytes, storing: true, sent: d.sent}
	}
	a.storing.flying = nil
}
