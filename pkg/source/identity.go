package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// ErrOtherCluster is returned when the server's kube-system namespace has another UID than
// the one that the client saw first: another cluster answers at this address. State that was
// read from the first cluster does not apply to it.
var ErrOtherCluster = errors.New("another cluster answers")

// ErrCredentials is returned when the server does not accept the client's credentials (401), for any resource.
var ErrCredentials = errors.New("the API server does not accept the credentials")

// ResourceError is an error that the server answers for one resource, or no answer in time, while it answers requests for
// others. For example, the resource's conversion webhook or its APIService does not work.
type ResourceError struct{ Err error }

func (e *ResourceError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *ResourceError) Unwrap() error { return e.Err }

const (
	kubeSystem = "/api/v1/namespaces/kube-system"
	getTimeout = 5 * time.Second // for one object's metadata
	// sameFor is the maximum age of a shared check of the cluster's identity before a list: after a
	// restart of the server, hundreds of collections need one.
	sameFor = 5 * time.Second
	// sameRetry is how long collections share a failed check.
	sameRetry = time.Second
)

// identity is the identity of the cluster that the client saw first.
type identity struct {
	turn     *semaphore.Weighted // guards the rest; unlike a mutex, waiting for it ends with a context
	uid      string              // "" until it is known
	expected bool                // the caller has set uid, see Client.ExpectCluster
	shown    atomic.Bool         // the server has shown that it has uid
	at       time.Time           // when the last check began, or failed
	err      error               // result of the last check
}

// ExpectCluster sets the UID of the cluster, for an account that may not get the
// kube-system namespace, or for a cluster without it. If the server refuses the request (403),
// or has no such namespace (404) and never had it, uid counts as its UID.
// Another cluster that answers the same is not detected. If a server returns
// another UID, the error is [ErrOtherCluster]. Call ExpectCluster before any
// other method; an empty uid has no effect.
func (c *Client) ExpectCluster(uid string) { c.cluster.uid, c.cluster.expected = uid, uid != "" }

// ClusterUID returns the UID of the kube-system namespace, which identifies the
// cluster: it survives upgrades and restores. Collections compare the server with the first
// UID that ClusterUID returns, see [ErrOtherCluster].
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	uid, err := c.uid(ctx, kubeSystem)
	id := c.cluster
	if id.expected || err != nil {
		if err := id.judge(uid, err); err != nil {
			return "", err
		}
		return id.uid, nil // it never changes
	}
	if err := id.turn.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer id.turn.Release(1)
	id.uid = cmp.Or(id.uid, uid)
	return uid, nil
}

// SameCluster returns an error that wraps [ErrOtherCluster] if the server
// belongs to another cluster than before, and any other error if the check fails.
// It returns nil if the client has never learnt the cluster's UID.
// The result is from a request that was sent after since: to verify data that was read,
// pass the time at which the data had arrived. Concurrent callers share a result.
func (c *Client) SameCluster(ctx context.Context, since time.Time) error {
	id := c.cluster
	if err := id.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer id.turn.Release(1)
	switch {
	case id.uid == "", id.err == nil && id.at.After(since):
		return nil
	case id.err != nil && time.Since(id.at) < sameRetry:
		return id.err
	}
	asked := time.Now()
	asking, cancel := context.WithTimeout(throwAway(ctx), getTimeout)
	defer cancel()
	uid, err := c.uid(asking, kubeSystem)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if id.at, id.err = asked, id.judge(uid, err); id.err != nil {
		id.at = time.Now() // a failure may take getTimeout
	}
	return id.err
}

// sameCluster returns nil only if it is certain that the cluster is the same. Another cluster lacks every object, which
// would be published as deletions. A recreated cluster has no kube-system namespace in its first seconds.
func (c *Collection) sameCluster(ctx context.Context, since time.Time) error {
	err := c.client.SameCluster(ctx, since)
	if err == nil || errors.Is(err, ErrOtherCluster) || ctx.Err() != nil {
		return err
	}
	return unknownCluster(err)
}

// blame returns the error of a failed list or watch with what is to blame: the resource, if the server answers another
// request, or else the server.
func (c *Collection) blame(ctx context.Context, err error) error {
	code := listwatch.StatusCode(err)
	refused := code == http.StatusUnauthorized || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	if !refused && !errors.Is(err, errNoEnd) && !errors.Is(err, errSlowPage) {
		return err
	}
	other := c.client.SameCluster(ctx, time.Now())
	switch {
	case other == nil:
		return &ResourceError{Err: err}
	case errors.Is(other, ErrOtherCluster), ctx.Err() != nil: // the next attempt finds it
		return err
	}
	return unknownCluster(other)
}

func unknownCluster(err error) error {
	const unknown = "it is not known whether this is still the same cluster"
	switch listwatch.StatusCode(err) {
	case 0:
		return fmt.Errorf("%s: %w", unknown, err)
	case http.StatusUnauthorized:
		return fmt.Errorf("%w: %v", ErrCredentials, err) //nolint:errorlint // as below
	}
	return fmt.Errorf("%s: %v", unknown, err) //nolint:errorlint // its status says nothing of the collection
}

// stillSame is sameCluster after a list was read. It retries, as for a page, so that one failed request does not make the list begin again.
func (c *Collection) stillSame(ctx context.Context) error {
	read, backoff := time.Now(), listwatch.NewBackoff()
	for try := 1; ; try++ {
		err := c.client.SameCluster(ctx, read)
		if err == nil || errors.Is(err, ErrOtherCluster) || ctx.Err() != nil {
			return err
		}
		if try == listwatch.PageTries || !retryPage(err) {
			return unknownCluster(err)
		}
		if err := listwatch.Sleep(ctx, max(backoff.After(err), sameRetry)); err != nil {
			return err
		}
	}
}

// judge compares the answer of the server with the known UID.
func (id *identity) judge(uid string, err error) error {
	hidden := listwatch.StatusCode(err) == http.StatusForbidden || listwatch.StatusCode(err) == http.StatusNotFound && !id.shown.Load()
	switch {
	case hidden && id.expected:
		return nil
	case hidden:
		return fmt.Errorf("get namespace kube-system, whose UID identifies the cluster: %w: "+
			"allow it, or set kubernetes.clusterUID", err)
	case err != nil:
		return fmt.Errorf("get namespace kube-system: %w", err)
	case uid != id.uid:
		return fmt.Errorf("%w: its kube-system namespace has UID %s, not %s; point the bridge at the cluster it was started for, or give this one a bridge of its own",
			ErrOtherCluster, uid, id.uid)
	}
	id.shown.Store(true)
	return nil
}

// uid returns the UID of the object at path, as of now (a GET without a resourceVersion is consistent).
func (c *Client) uid(ctx context.Context, path string) (string, error) {
	result := c.rest.Get().AbsPath(path).SetHeader("Accept", metadataOnly(watchForm)).MaxRetries(0).Do(ctx)
	raw, err := result.Raw()
	if err != nil {
		return "", listwatch.PlainCause(result.Error()) // err does not have the reason
	}
	var s scanner
	s.Reset(raw)
	o, err := s.object()
	if err == nil && o.UID == "" {
		err = errors.New("it has no UID")
	}
	return o.UID, err
}
