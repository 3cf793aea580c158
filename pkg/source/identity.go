package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

// ErrOtherCluster is returned when the server's kube-system namespace is not the
// one that the client saw first: another cluster answers at this address. Nothing
// that is known of the first says anything about it.
var ErrOtherCluster = errors.New("another cluster answers")

const (
	kubeSystem = "/api/v1/namespaces/kube-system"
	getTimeout = 5 * time.Second // for one object's metadata
	// sameFor is how old a look at the cluster's identity may be before a list: a
	// server's restart makes hundreds of collections ask.
	sameFor = 5 * time.Second
	// sameRetry is how long one that failed serves them.
	sameRetry = time.Second
)

// identity is the cluster's, as the client first saw it.
type identity struct {
	turn     *semaphore.Weighted // guards the rest; unlike a mutex, waiting for it ends with a context
	uid      string              // "" until it was seen
	expected bool                // uid is from the caller, see Client.ExpectCluster
	at       time.Time           // when it was last asked for
	err      error               // what it found
}

func newIdentity() identity { return identity{turn: semaphore.NewWeighted(1)} }

// ExpectCluster says which cluster this is, for a user who may not get the
// kube-system namespace: where the server refuses to show it (403), uid is taken
// for its UID, also after a failure, and another cluster that refuses as well is
// not noticed. A server that shows another UID is [ErrOtherCluster]. Call it
// before anything else; an empty uid expects nothing.
func (c *Client) ExpectCluster(uid string) { c.cluster.uid, c.cluster.expected = uid, uid != "" }

// ClusterUID returns the UID of the kube-system namespace, which stands for the
// cluster: it survives upgrades and restores. The first one that it returns is
// the one that collections hold the server to, see [ErrOtherCluster].
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	uid, err := c.uid(ctx, kubeSystem)
	id := &c.cluster
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
	if id.uid == "" {
		id.uid = uid
	}
	return uid, nil
}

// SameCluster returns an error that wraps [ErrOtherCluster] when the server
// belongs to another cluster than before, and any other error when that cannot be
// found out. A client that never learnt the cluster's UID has nothing to compare.
// The answer is from a request that was sent after since: to trust what was read,
// pass the time at which it had arrived. Concurrent callers share an answer.
func (c *Client) SameCluster(ctx context.Context, since time.Time) error {
	id := &c.cluster
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
	id.at, id.err = asked, id.judge(uid, err)
	return id.err
}

// sameCluster returns nil only when it is known that the cluster is the same:
// another one lacks every object, and that would be taken for its end. A cluster
// that was recreated has no kube-system namespace in its first seconds.
func (c *Collection) sameCluster(ctx context.Context, since time.Time) error {
	err := c.client.SameCluster(ctx, since)
	if err == nil || errors.Is(err, ErrOtherCluster) || ctx.Err() != nil {
		return err
	}
	const unknown = "it is not known whether this is still the same cluster"
	if statusCode(err) == 0 {
		return fmt.Errorf("%s: %w", unknown, err)
	}
	return fmt.Errorf("%s: %v", unknown, err) //nolint:errorlint // its status says nothing of the collection
}

// judge says what the answer to "which cluster are you" is worth.
func (id *identity) judge(uid string, err error) error {
	switch {
	case err != nil && id.expected && statusCode(err) == http.StatusForbidden:
		return nil
	case err != nil:
		return fmt.Errorf("get namespace kube-system: %w", err)
	case uid != id.uid:
		return fmt.Errorf("%w: its kube-system namespace has UID %s, not %s; point the bridge at the cluster it was started for, or give this one a bridge of its own",
			ErrOtherCluster, uid, id.uid)
	}
	return nil
}

// uid returns the UID of the object at path, as of now (a GET without a
// resourceVersion is consistent).
func (c *Client) uid(ctx context.Context, path string) (string, error) {
	result := c.rest.Get().AbsPath(path).SetHeader("Accept", metadataOnly(watchForm)).MaxRetries(0).Do(ctx)
	raw, err := result.Raw()
	if err != nil {
		return "", plainCause(result.Error()) // err does not say why
	}
	var s scanner
	s.Reset(raw)
	o, err := s.object()
	if err == nil && o.UID == "" {
		err = errors.New("it has no UID")
	}
	return o.UID, err
}
