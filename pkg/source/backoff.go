package source

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	firstRetry = 500 * time.Millisecond
	// longestRetry bounds a Retry-After: a proxy's may be a day, and who waits may hold
	// one of the few lists.
	longestRetry = 2 * time.Minute
)

// backoff paces retries against the API server: from half a second to thirty,
// doubling, with jitter, and never sooner than the server's Retry-After, of which two
// minutes are heeded at most. The first comes at any time within half a second: after
// what cuts connections new ones can mostly be made.
type backoff struct {
	b     wait.Backoff
	tried bool
}

func newBackoff() *backoff {
	var b backoff
	b.reset()
	return &b
}

func (b *backoff) reset() {
	b.tried = false
	b.b = wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.5, Steps: 1 << 30, Cap: 30 * time.Second}
}

func (b *backoff) after(err error) time.Duration {
	d := b.b.Step()
	if !b.tried {
		d = rand.N(firstRetry)
	}
	b.tried = true
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		d = max(d, min(time.Duration(seconds)*time.Second, longestRetry))
	}
	return d
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func asStatus(err error) (apierrors.APIStatus, bool) {
	var s apierrors.APIStatus
	ok := errors.As(err, &s)
	return s, ok
}

// plainCause leaves out the URL, whose random timeout would make every failure
// of a series look new.
func plainCause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errBroken
	}
	return err
}

var errBroken = errors.New("the connection broke")

// handlerError ends a collection: it came from the handler, not from the server.
type handlerError struct{ error }

func (e handlerError) Unwrap() error { return e.error }
