package source

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
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
	// unreachableRetry bounds the wait for a server that cannot be reached: it costs
	// nothing to ask, and what changes until the next try may be lost from its history.
	unreachableRetry = 4 * time.Second
)

// backoff paces retries against the API server: from half a second to thirty,
// doubling, with jitter, and never sooner than the server's Retry-After, of which two
// minutes are heeded at most. The first comes at any time within half a second: after
// what cuts connections new ones can mostly be made. A server that cannot be reached is
// tried every two to four seconds.
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
	var d time.Duration
	switch {
	case !b.tried:
		b.b.Step()
		d = rand.N(firstRetry)
	case b.b.Duration >= unreachableRetry && isUnreachable(err):
		d = unreachableRetry/2 + rand.N(unreachableRetry/2)
	default:
		d = b.b.Step()
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

// isUnreachable reports whether no connection could be made, or the one there was ended
// without an answer: the server, or the one behind a load balancer, is down.
func isUnreachable(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, errBroken)
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
