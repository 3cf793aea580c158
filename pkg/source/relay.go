package source

import (
	"context"
	"fmt"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// relay passes signals on to the handler and keeps track of them, also for lists.
type relay struct {
	c  *Collection
	to Handler

	from  string // lower bound for the version of a list of the same history
	begun bool   // a list has begun and not ended
}

func (r *relay) Handle(ctx context.Context, s Signal) error {
	switch s.Kind {
	case ListBegun:
		r.begun, r.from = true, r.c.highest(s.RV)
		if s.NewEpoch { // both versions belong to the previous history
			r.from = ""
			r.c.epochs.begun()
		}
	case ListEnded:
		if event.Older(s.RV, r.from) {
			return fmt.Errorf("%w: a list is at resourceVersion %s, and %s was seen", errHistory, s.RV, r.from)
		}
		// Read the owners after the objects. Later objects have these owners or later
		// ones, and the deletion of an owner deletes all its objects.
		s.Owner = r.c.owners(ctx)
		r.c.owner, r.c.untouched, r.begun = s.Owner, true, false
	case Added, Modified:
		r.c.untouched = false
	}
	return r.to.Handle(ctx, s)
}

// gone passes on an empty list, because no object exists any more.
func (r *relay) gone(ctx context.Context, rv, proof string) error {
	err := r.to.Handle(ctx, Signal{Kind: ListBegun, RV: rv, Reason: event.ReasonGone, Detail: proof})
	if err == nil {
		err = r.to.Handle(ctx, Signal{Kind: ListEnded})
	}
	r.c.owner = Owner{}
	return err
}
