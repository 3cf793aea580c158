// Package listwatch holds what a list and a watch need, over any client: how long to wait after an error, how large a
// page may be, and from where a watch may resume.
package listwatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// FirstRetry is the longest first pause.
	FirstRetry = 500 * time.Millisecond
	// LongestRetry bounds a Retry-After: a proxy may send one day, and the waiting collection may hold
	// one of the few slots for lists.
	LongestRetry = 2 * time.Minute
	// UnreachableRetry bounds the wait for a server that cannot be reached. An attempt is cheap, and during
	// a long wait the server may drop the changes in between from its history.
	UnreachableRetry = 4 * time.Second
)

// Backoff paces retries against the API server. Pauses double from half a second to thirty
// seconds, with jitter. A pause is not shorter than the server's Retry-After, up to two minutes.
// The first retry comes at a random time within half a second, because new connections
// usually succeed immediately after a disconnection. A server that cannot be reached is
// tried every two to four seconds.
type Backoff struct {
	b     wait.Backoff
	tried bool
}

// NewBackoff returns a backoff before its first pause.
func NewBackoff() *Backoff {
	var b Backoff
	b.Reset()
	return &b
}

// Reset makes the next pause the shortest again.
func (b *Backoff) Reset() {
	b.tried = false
	b.b = wait.Backoff{Duration: FirstRetry, Factor: 2, Jitter: 0.5, Steps: 1 << 30, Cap: 30 * time.Second}
}

// After returns the pause after err.
func (b *Backoff) After(err error) time.Duration {
	var d time.Duration
	switch {
	case !b.tried:
		b.b.Step()
		d = rand.N(FirstRetry)
	case b.b.Duration >= UnreachableRetry && IsUnreachable(err):
		d = UnreachableRetry/2 + rand.N(UnreachableRetry/2)
	default:
		d = b.b.Step()
	}
	b.tried = true
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		d = max(d, min(time.Duration(seconds)*time.Second, LongestRetry))
	}
	return d
}

// Sleep waits for d. It returns the error of ctx if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// IsUnreachable reports whether no connection could be made, or the connection ended
// without an answer: the server, or a server behind a load balancer, is down.
func IsUnreachable(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, errBroken)
}

// AsStatus returns the status of the server's answer; false: err is not an answer of the server.
func AsStatus(err error) (apierrors.APIStatus, bool) {
	var s apierrors.APIStatus
	ok := errors.As(err, &s)
	return s, ok
}

// PlainCause removes the URL from an error. The URL has a random timeout, which would make every failure
// of a series look new.
func PlainCause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		if op := new(net.OpError); errors.As(u.Err, &op) && op.Op == "proxyconnect" {
			return ProxyError(u.Err)
		}
		return u.Err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errBroken
	}
	return withAnswer(err)
}

// withAnswer adds the text of an answer that is not from an API server, for example from a proxy. client-go calls it an
// unknown reason.
func withAnswer(err error) error {
	s, ok := AsStatus(err)
	if !ok || s.Status().Details == nil {
		return err
	}
	for _, c := range s.Status().Details.Causes {
		text := strings.TrimSpace(c.Message)
		switch {
		case c.Type != metav1.CauseTypeUnexpectedServerResponse || text == "" || strings.Contains(err.Error(), text):
		case strings.Contains(text, "HTTP request to an HTTPS server"):
			return &explainedError{err, "the server uses TLS: begin the address of the server in the kubeconfig with https://"}
		default:
			return fmt.Errorf("%w: it answered %.200q", err, text)
		}
	}
	return err
}

// explainedError is an error with a better message.
type explainedError struct {
	error
	message string
}

func (e *explainedError) Error() string { return e.message }
func (e *explainedError) Unwrap() error { return e.error }

var errBroken = errors.New("the connection broke")
