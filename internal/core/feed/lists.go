package feed

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// Lists bounds how many lists are read at once. Retries get at most half of the slots (rounded down, but at least one), so
// that lists that the API server does not answer in time leave slots for other lists.
type Lists struct {
	n            int
	all, retries *semaphore.Weighted
}

// NewLists returns a bound of n lists. If n is 1, retries also use the one slot.
func NewLists(n int) *Lists {
	return &Lists{n: n, all: semaphore.NewWeighted(int64(n)), retries: semaphore.NewWeighted(int64(max(n/2, 1)))}
}

// Slots returns the slots of one reader of lists that counts for no other bound.
func (l *Lists) Slots() source.Slots { return &slot{own: NewLists(1), shared: l} }

func (l *Lists) acquire(ctx context.Context, attempt source.Attempt) error {
	if attempt == source.Retry {
		if err := l.retries.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	err := l.all.Acquire(ctx, 1)
	if err != nil && attempt == source.Retry {
		l.retries.Release(1)
	}
	return err
}

func (l *Lists) release(attempt source.Attempt) {
	l.all.Release(1)
	if attempt == source.Retry {
		l.retries.Release(1)
	}
}
