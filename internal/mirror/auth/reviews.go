package auth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// Reviews judges by SubjectAccessReviews of a cluster. It implements [Judge].
type Reviews struct {
	source *Source
	client authorizationclient.SubjectAccessReviewInterface
	shares *shares
	cache  cache[answer]
	group  singleflight.Group
}

type answer struct {
	allowed bool
	reason  string
}

// NewReviews asks the API server of a client configuration, if it is of the source's cluster.
func NewReviews(cfg *rest.Config, from *Source) (*Reviews, error) {
	client, err := authorizationclient.NewForConfig(unlimited(cfg))
	if err != nil {
		return nil, fmt.Errorf("set up a client for SubjectAccessReviews at %s: %w", cfg.Host, err)
	}
	return &Reviews{source: from, client: client.SubjectAccessReviews(), shares: newShares(userLimit, usersLimit)}, nil
}

// Allowed implements [Judge].
func (r *Reviews) Allowed(ctx context.Context, u *User, a *Attributes) (allowed bool, reason string, err error) {
	if a.Cluster != r.source.Cluster {
		return false, fmt.Sprintf("only cluster %q is asked what users may read, and the request is for cluster %q", r.source.Cluster, a.Cluster), nil
	}
	spec := specOf(u, a)
	text, err := json.Marshal(spec)
	if err != nil {
		return false, "", err
	}
	k := sha256.Sum256(text)
	got, found, _ := r.cache.get(k)
	if !found {
		asked, err, _ := r.group.Do(string(k[:]), func() (any, error) {
			x, err := r.ask(ctx, spec)
			if err == nil {
				r.cache.put(k, x, x.allowed)
			}
			return x, err
		})
		if err != nil {
			return false, "", err
		}
		got = asked.(answer)
	}
	return got.allowed, got.reason, nil
}

func (r *Reviews) ask(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (x answer, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	if err := r.source.Check(ctx); err != nil {
		return x, err
	}
	if err := r.shares.take(ctx, fmt.Sprintf("user %q", spec.User)); err != nil {
		return x, err
	}
	review, err := r.client.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return x, &UnansweredError{"it is not known now what you may read: " + because(r.source.Cluster, err), err}
	}
	return answer{review.Status.Allowed && !review.Status.Denied, review.Status.Reason}, nil
}

func specOf(u *User, a *Attributes) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{User: u.Name, UID: u.UID, Groups: u.Groups}
	if len(u.Extra) > 0 {
		spec.Extra = map[string]authorizationv1.ExtraValue{}
		for name, values := range u.Extra {
			spec.Extra[name] = values
		}
	}
	if a.Path != "" {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: a.Verb, Path: a.Path}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name,
	}
	return spec
}
