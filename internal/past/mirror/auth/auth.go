// Package auth decides who may read what of a mirror. Users have tokens of the source cluster (TokenReview) or client
// certificates. Rights are asked there (SubjectAccessReview), or evaluated from the RBAC objects on the bus.
package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/base/httpserver"
)

const (
	anonymous       = "system:anonymous"
	unauthenticated = "system:unauthenticated"
	authenticated   = "system:authenticated"
	masters         = "system:masters"
)

// User is who sends a request.
type User struct {
	authenticationv1.UserInfo
	// Cluster is the cluster that knows the user's token; "" for a user of a client certificate.
	Cluster string
}

// complete adds the group of all users, as the API server does.
func (u *User) complete() *User {
	if u.Username == anonymous || slices.Contains(u.Groups, unauthenticated) || slices.Contains(u.Groups, authenticated) {
		return u
	}
	u.Groups = append(slices.Clip(u.Groups), authenticated)
	return u
}

// Attributes say what a request does. Either Path or Resource is set.
type Attributes struct {
	Cluster                                                string
	Verb                                                   string // of requests that are answered: get, list or watch, and create for reviews
	Path                                                   string // of a request that is for no resource
	Group, Version, Resource, Subresource, Namespace, Name string
}

// Scope is what a question for all rights is about: what is in a namespace, and what is in none.
type Scope struct {
	Cluster, Namespace string
	Token              string // of the user; "": the user has a certificate
}

// Authorizer says what users may do. Any goroutine may use it. An error, whose text is for the client, means that it is
// not known now.
type Authorizer interface {
	// Review says whether a user may send a request. A refusal may have no reason.
	Review(ctx context.Context, u *User, a *Attributes) (authorizationv1.SubjectAccessReviewStatus, error)
	// Rules lists what a user may do. The status says if the list is not complete.
	Rules(ctx context.Context, u *User, s *Scope) (authorizationv1.SubjectRulesReviewStatus, error)
}

// Options of a [Guard].
type Options struct {
	Tokens       *Tokens       // nil: bearer tokens are refused
	Certificates *Certificates // nil: certificates do not count
	Authorizer   Authorizer
	Log          *zap.Logger
}

// Guard decides whether requests are answered. Any goroutine may use it.
type Guard struct {
	Options

	mu     sync.Mutex
	logged time.Time
}

// NewGuard returns a guard.
func NewGuard(o Options) *Guard { return &Guard{Options: o} }

// Check returns nil, or an error of the Kubernetes API: 401, 403, 429 for a client that makes too many questions
// necessary, or 503 if the answer is not known now.
func (g *Guard) Check(r *http.Request, a *Attributes) error {
	u, err := g.User(r)
	if err != nil {
		return err
	}
	if u.Cluster != "" && a.Cluster != u.Cluster {
		return forbidden(u, a, fmt.Sprintf("the token is of cluster %q, and the request is for cluster %q", u.Cluster, a.Cluster))
	}
	st, err := g.Authorizer.Review(r.Context(), u, a)
	switch {
	case err != nil:
		return g.refused(err)
	case !st.Allowed || st.Denied:
		return forbidden(u, a, st.Reason)
	}
	return nil
}

// User returns who sends a request, or an error as of [Guard.Check].
func (g *Guard) User(r *http.Request) (*User, error) {
	u, _, err := g.user(r)
	return u, g.refused(err)
}

// Review says whether the sender of a request may send another one, with the given attributes, at the same cluster.
func (g *Guard) Review(r *http.Request, a *Attributes) (st authorizationv1.SubjectAccessReviewStatus, err error) {
	u, _, err := g.user(r)
	if err == nil {
		st, err = g.Authorizer.Review(r.Context(), u, a)
	}
	return st, g.refused(err)
}

// Rules lists what the sender of a request may do in a namespace, and outside of namespaces.
func (g *Guard) Rules(r *http.Request, cluster, namespace string) (st authorizationv1.SubjectRulesReviewStatus, err error) {
	u, token, err := g.user(r)
	if err == nil {
		st, err = g.Authorizer.Rules(r.Context(), u, &Scope{cluster, namespace, token})
	}
	return st, g.refused(err)
}

var errUnknown = errors.New("the credentials are not known")

// user returns who sends a request, and the token that says so; "": a certificate, which counts first, as at the API
// server.
func (g *Guard) user(r *http.Request) (u *User, token string, err error) {
	if g.Certificates != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		u, err := g.Certificates.User(r.TLS.PeerCertificates)
		if u != nil || err != nil {
			return u, "", err
		}
	}
	token = bearer(r)
	if g.Tokens == nil || token == "" {
		return nil, "", errUnknown
	}
	u, err = g.Tokens.User(r.Context(), token, httpserver.ClientOf(r.RemoteAddr))
	return u, token, err
}

// UnansweredError says that a question cannot be answered now. Reason is for clients, and Err for the log.
type UnansweredError struct {
	Reason string
	Err    error
}

func (e *UnansweredError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

func (e *UnansweredError) Unwrap() error { return e.Err }

// logEvery is the time between two lines of the log about refusals.
const logEvery = 10 * time.Second

// refused turns an error, or nil, into one of the API, and logs why a question was not answered.
func (g *Guard) refused(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errUnknown):
		return apierrors.NewUnauthorized("Unauthorized")
	}
	reason := "permissions cannot be checked now"
	var unanswered *UnansweredError
	if errors.As(err, &unanswered) {
		reason = unanswered.Reason
	}
	g.mu.Lock()
	due := time.Since(g.logged) >= logEvery
	if due {
		g.logged = time.Now()
	}
	g.mu.Unlock()
	if due {
		g.Log.Warn("requests refused: access cannot be checked", zap.Error(err))
	}
	if errors.As(err, new(*BusyError)) {
		return apierrors.NewTooManyRequests("too many authentication and authorization checks: try again later", 1)
	}
	e := apierrors.NewServiceUnavailable(reason)
	e.ErrStatus.Details = nil // client-go would hide the reason behind its retries
	return e
}

func forbidden(u *User, a *Attributes, reason string) error {
	text := denied(u, a)
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name, errors.New(text))
}

func denied(u *User, a *Attributes) string {
	if a.Path != "" {
		return fmt.Sprintf("User %q cannot %s path %q", u.Username, a.Verb, a.Path)
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	where := "at the cluster scope"
	if a.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", u.Username, a.Verb, resource, a.Group, where)
}
