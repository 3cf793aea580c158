// Package auth decides who may read what of a mirror. Users have bearer tokens of the source cluster (TokenReview) or client certificates. What
// they may do is asked at the source cluster (SubjectAccessReview), or evaluated from the RBAC objects that the bus has.
//
// If a question cannot be answered, the request is refused with 503, never allowed.
package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/serve"
)

const (
	anonymous       = "system:anonymous"
	unauthenticated = "system:unauthenticated"
	authenticated   = "system:authenticated"
	masters         = "system:masters"
)

// User is who sends a request.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
	// Cluster is the cluster that knows the user, if it was known by a token; "" for a user of a client certificate, who is one
	// of this server.
	Cluster string
}

// complete adds the group of all users, as the API server does.
func (u *User) complete() *User {
	if u.Name == anonymous || slices.Contains(u.Groups, unauthenticated) || slices.Contains(u.Groups, authenticated) {
		return u
	}
	u.Groups = append(slices.Clip(u.Groups), authenticated)
	return u
}

// Attributes say what a request reads. Either Path or Resource is set.
type Attributes struct {
	Cluster                                                string
	Verb                                                   string // get, list or watch
	Path                                                   string // of a request that is for no resource
	Group, Version, Resource, Subresource, Namespace, Name string
}

// Judge says what users may do. Any goroutine may use it.
type Judge interface {
	// Allowed reports whether a user may send a request. reason says more about a refusal; "": nothing. An error means that the question
	// cannot be answered now; its text is for the client.
	Allowed(ctx context.Context, u *User, a *Attributes) (allowed bool, reason string, err error)
}

// Options of a [Guard].
type Options struct {
	Tokens       *Tokens       // nil: bearer tokens are refused
	Certificates *Certificates // nil: certificates do not count
	Judge        Judge
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

// Check returns nil if a request may be answered, or an error of the Kubernetes API: 401, 403, 429 for a client that makes too many questions
// necessary, or 503 if the answer is not known now.
func (g *Guard) Check(r *http.Request, a *Attributes) error {
	u, err := g.user(r)
	if err != nil {
		return g.refused(err)
	}
	if u.Cluster != "" && a.Cluster != u.Cluster {
		return forbidden(u, a, fmt.Sprintf("the token is of cluster %q, and the request is for cluster %q", u.Cluster, a.Cluster))
	}
	allowed, reason, err := g.Judge.Allowed(r.Context(), u, a)
	switch {
	case err != nil:
		return g.refused(err)
	case !allowed:
		return forbidden(u, a, reason)
	}
	return nil
}

// errUnknown is returned for credentials that are not known.
var errUnknown = errors.New("the credentials are not known")

// user returns who sends a request. A certificate counts before a token, as at the API server.
func (g *Guard) user(r *http.Request) (*User, error) {
	if g.Certificates != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		u, err := g.Certificates.User(r.TLS.PeerCertificates)
		if u != nil || err != nil {
			return u, err
		}
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if g.Tokens == nil || !strings.EqualFold(scheme, "bearer") || token == "" {
		return nil, errUnknown
	}
	return g.Tokens.User(r.Context(), token, serve.ClientOf(r.RemoteAddr))
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

// refused turns an error into one of the API, and logs why a question was not answered.
func (g *Guard) refused(err error) error {
	if errors.Is(err, errUnknown) {
		return apierrors.NewUnauthorized("Unauthorized")
	}
	reason := "it is not known now what you may read"
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
		return apierrors.NewTooManyRequests("too many questions about who you are and what you may read: try again later", 1)
	}
	e := apierrors.NewServiceUnavailable(reason)
	e.ErrStatus.Details = nil // client-go would hide the reason behind its retries
	return e
}

// forbidden returns the error of the API server.
func forbidden(u *User, a *Attributes, reason string) error {
	text := denied(u, a)
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name, errors.New(text))
}

func denied(u *User, a *Attributes) string {
	if a.Path != "" {
		return fmt.Sprintf("User %q cannot %s path %q", u.Name, a.Verb, a.Path)
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	where := "at the cluster scope"
	if a.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", u.Name, a.Verb, resource, a.Group, where)
}
