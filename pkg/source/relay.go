package source

import (
	"context"
	"fmt"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// relay passes signals on to the handler and keeps track of what was passed on, also
// by lists, which are read elsewhere.
type relay struct {
	c  *Collection
	to Handler

	from  string // a list of the same history is not behind it
	begun bool   // it was begun, and not ended
}

func (r *relay) Handle(ctx context.Context, s Signal) error {
	switch s.Kind {
	case ListBegun:
		r.begun, r.from = true, r.c.highest(s.RV)
		if s.NewEpoch { // both are of a history that is no more
			r.from = ""
			r.c.epochs.begun()
		}
	case ListEnded:
		if event.Older(s.RV, r.from) {
			return fmt.Errorf("%w: a list is at resourceVersion %s, and %s was seen", errHistory, s.RV, r.from)
		}
		// Read after the objects were: one that comes later than this has these
		// owners or later ones, and an owner that is gone by then took all with it.
		s.Owner = r.c.owners(ctx)
		r.c.owner, r.c.untouched, r.begun = s.Owner, true, false
	case Added, Modified:
		r.c.untouched = false
	}
	return r.to.Handle(ctx, s)
}

// gone passes on that nothing is left: a list of nothing.
func (r *relay) gone(ctx context.Context, rv, proof string) error {
	err := r.to.Handle(ctx, Signal{Kind: ListBegun, RV: rv, Reason: event.ReasonGone, Detail: proof})
	if err == nil {
		err = r.to.Handle(ctx, Signal{Kind: ListEnded})
	}
	r.c.owner = Owner{}
	return err
}
