package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
)

// Tokens knows the users of bearer tokens, by TokenReviews of a cluster. Any goroutine may use it.
type Tokens struct {
	source *Source
	client authenticationclient.TokenReviewInterface
	// Tokens that were accepted within the last hour do not wait for unknown ones.
	known, unknown *shares
	cache          cache[*User] // nil: the token is not known
	group          singleflight.Group
}

// NewTokens asks the API server of a client configuration, if it is of the source's cluster.
func NewTokens(cfg *rest.Config, from *Source) (*Tokens, error) {
	client, err := authenticationclient.NewForConfig(unlimited(cfg))
	if err != nil {
		return nil, fmt.Errorf("set up a client for TokenReviews at %s: %w", cfg.Host, err)
	}
	return &Tokens{
		source: from, client: client.TokenReviews(), cache: newCache[*User](),
		known: newShares(userLimit, usersLimit), unknown: newShares(unknownLimit, unknownsLimit),
	}, nil
}

// unlimited returns a client configuration without a limit of requests: shares limit them.
func unlimited(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.RateLimiter = -1, nil
	return cfg
}

// User returns the user of a token that came from an address.
func (t *Tokens) User(ctx context.Context, token, address string) (*User, error) {
	k := sha256.Sum256([]byte(token))
	u, found, known := t.cache.get(k)
	if !found {
		from, who := t.unknown, "address "+address
		if known {
			from, who = t.known, fmt.Sprintf("user %q", u.Username)
		}
		answer := t.group.DoChan(string(k[:]), func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
			defer cancel()
			if err := from.acquire(ctx, who); err != nil {
				return nil, err
			}
			u, err := t.ask(ctx, token)
			if err == nil {
				t.cache.put(k, u, u != nil)
			}
			return u, err
		})
		var err error
		if u, err = await[*User](ctx, answer); err != nil {
			return nil, err
		}
	}
	if u == nil {
		return nil, errUnknown
	}
	return u, nil
}

// ask returns the user; nil if the cluster does not know the token. Other requests may wait, so ctx is not that of one.
func (t *Tokens) ask(ctx context.Context, token string) (*User, error) {
	if err := t.source.Check(ctx); err != nil {
		return nil, err
	}
	review, err := t.client.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, &UnansweredError{"it is not known now whose token this is: " + describeAPIError(t.source.Cluster, err), err}
	}
	if !review.Status.Authenticated {
		return nil, nil
	}
	return (&User{review.Status.User, t.source.Cluster}).complete(), nil
}

// describeAPIError says why the API server did not answer, without its address.
func describeAPIError(cluster string, err error) string {
	var status *apierrors.StatusError
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("bridge serve may not ask the API server of cluster %q: bind the ClusterRole system:auth-delegator to its user", cluster)
	case errors.As(err, &status):
		return fmt.Sprintf("the API server of cluster %q answers %d %s", cluster, status.ErrStatus.Code, status.ErrStatus.Reason)
	}
	return fmt.Sprintf("the API server of cluster %q does not answer", cluster)
}
