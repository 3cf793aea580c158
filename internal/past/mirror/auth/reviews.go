package auth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// Reviews authorizes by SubjectAccessReviews of a cluster. It implements [Authorizer].
type Reviews struct {
	source *Source
	client authorizationclient.SubjectAccessReviewInterface
	users  rest.Interface // sends no credentials of its own
	shares *shares
	cache  cache[authorizationv1.SubjectAccessReviewStatus]
	group  singleflight.Group
}

// NewReviews asks the API server of a configuration, if it is of the source's cluster. anonymous reaches it without
// credentials: those of users are added.
func NewReviews(cfg, anonymous *rest.Config, from *Source) (*Reviews, error) {
	cfg = unlimited(cfg)
	client, err := authorizationclient.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up a client for SubjectAccessReviews at %s: %w", cfg.Host, err)
	}
	users, err := authorizationclient.NewForConfig(unlimited(anonymous))
	if err != nil {
		return nil, fmt.Errorf("set up a client for SelfSubjectRulesReviews at %s: %w", cfg.Host, err)
	}
	return &Reviews{
		source: from, client: client.SubjectAccessReviews(), users: users.RESTClient(), shares: newShares(userLimit, usersLimit),
		cache: newCache[authorizationv1.SubjectAccessReviewStatus](),
	}, nil
}

// otherCluster says why there is no right in a cluster; "": it is the one that is asked.
func (r *Reviews) otherCluster(cluster string) string {
	if cluster == r.source.Cluster {
		return ""
	}
	return fmt.Sprintf("only cluster %q is asked what users may read, and the request is for cluster %q", r.source.Cluster, cluster)
}

// Review implements [Authorizer].
func (r *Reviews) Review(ctx context.Context, u *User, a *Attributes) (st authorizationv1.SubjectAccessReviewStatus, err error) {
	if st.Reason = r.otherCluster(a.Cluster); st.Reason != "" {
		return st, nil
	}
	spec := specOf(u, a)
	text, err := json.Marshal(spec)
	if err != nil {
		return st, err
	}
	k := sha256.Sum256(text)
	if st, found, _ := r.cache.get(k); found {
		return st, nil
	}
	answer := r.group.DoChan(string(k[:]), func() (any, error) {
		st, err := r.ask(ctx, spec)
		if err == nil {
			r.cache.put(k, st, st.Allowed && !st.Denied)
		}
		return st, err
	})
	return await[authorizationv1.SubjectAccessReviewStatus](ctx, answer)
}

func (r *Reviews) ask(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (st authorizationv1.SubjectAccessReviewStatus, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	if err := r.may(ctx, spec.User); err != nil {
		return st, err
	}
	review, err := r.client.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return st, &UnansweredError{"permissions cannot be checked now: " + describeAPIError(r.source.Cluster, err), err}
	}
	return review.Status, nil
}

// may returns an error if the cluster may not be asked about a user now.
func (r *Reviews) may(ctx context.Context, user string) error {
	if err := r.source.Check(ctx); err != nil {
		return err
	}
	return r.shares.acquire(ctx, fmt.Sprintf("user %q", user))
}

// Rules implements [Authorizer]. A cluster lists rights only to the user itself, so the user's token is sent.
func (r *Reviews) Rules(ctx context.Context, u *User, s *Scope) (st authorizationv1.SubjectRulesReviewStatus, err error) {
	st.Incomplete, st.EvaluationError = true, r.otherCluster(s.Cluster)
	if st.EvaluationError == "" && s.Token == "" {
		st.EvaluationError = "bridge serve cannot list the rights of users with client certificates: the cluster lists them only to the user itself"
	}
	if st.EvaluationError != "" {
		return st, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if err := r.may(ctx, u.Username); err != nil {
		return st, err
	}
	review := authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: s.Namespace}}
	err = r.users.Post().Resource("selfsubjectrulesreviews").SetHeader("Authorization", "Bearer "+s.Token).Body(&review).Do(ctx).Into(&review)
	switch {
	case apierrors.IsUnauthorized(err):
		return st, errUnknown
	case err != nil:
		return st, &UnansweredError{"permissions cannot be checked now: " + describeAPIError(r.source.Cluster, err), err}
	}
	return review.Status, nil
}

func specOf(u *User, a *Attributes) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{User: u.Username, UID: u.UID, Groups: u.Groups, Extra: map[string]authorizationv1.ExtraValue{}}
	for name, values := range u.Extra {
		spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	if a.Path != "" {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: a.Verb, Path: a.Path}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource,
		Namespace: a.Namespace, Name: a.Name,
	}
	return spec
}
