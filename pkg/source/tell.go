package source

import (
	"context"
	"fmt"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// teller passes signals on to the handler, and follows what it was told, whoever
// tells it: lists are read elsewhere.
type teller struct {
	c  *Collection
	to Handler

	from  string    // a list of the same history is not behind it
	begun bool      // it was begun, and not ended
	epoch time.Time // when the last new epoch began
}

func (t *teller) Handle(ctx context.Context, s Signal) error {
	switch s.Kind {
	case ListBegun:
		t.begun, t.from = true, t.c.highest(s.RV)
		if s.NewEpoch { // both are of a history that is no more
			t.from, t.epoch = "", time.Now()
		}
	case ListEnded:
		if event.Older(s.RV, t.from) {
			return fmt.Errorf("%w: a list is at resourceVersion %s, and %s was seen", errHistory, s.RV, t.from)
		}
		// Read after the objects were: one that comes later than this has these
		// owners or later ones, and an owner that is gone by then took all with it.
		s.Owner = t.c.owners(ctx)
		t.c.owner, t.c.untouched, t.begun = s.Owner, true, false
	case Added, Modified:
		t.c.untouched = false
	}
	return t.to.Handle(ctx, s)
}

// gone tells that nothing is left: a list of nothing.
func (t *teller) gone(ctx context.Context, rv, proof string) error {
	err := t.to.Handle(ctx, Signal{Kind: ListBegun, RV: rv, Reason: ReasonGone, Detail: proof})
	if err == nil {
		err = t.to.Handle(ctx, Signal{Kind: ListEnded})
	}
	t.c.owner = Owner{}
	return err
}
