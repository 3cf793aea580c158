// Package kubelogin is a login by tokens of the Kubernetes API, as kube-rbac-proxy has it.
package kubelogin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	lru "k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/base/httpserver"
)

const (
	// askTime bounds both questions to the API server.
	askTime = 5 * time.Second
	// remembered is how long an answer of the API server counts.
	remembered     = 10 * time.Second
	mostRemembered = 1024 // answers
	askRate        = 20   // questions a second
	askBurst       = 40
)

// New returns a login that admits whose token the API server knows (TokenReview), if RBAC lets them get the path
// (SubjectAccessReview, nonResourceURLs), with [Prefix]. An answer counts for ten seconds.
func New(cfg *rest.Config) (httpserver.Login, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = askRate, askBurst
	who, err := authenticationclient.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up a client for TokenReviews at %s: %w", cfg.Host, err)
	}
	may, err := authorizationclient.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up a client for SubjectAccessReviews at %s: %w", cfg.Host, err)
	}
	l := &login{tokens: who.TokenReviews(), access: may.SubjectAccessReviews(), known: lru.NewLRUExpireCache(mostRemembered)}
	return l.check, nil
}

// Prefix is put before every path but /metrics when the API server is asked: its role system:discovery lets every
// user get /api/*, and means its own.
const Prefix = "/kubebridge"

// asked is the nonResourceURL that stands for a path. /metrics is as Prometheus' roles have it.
func asked(path string) string {
	if path == "/metrics" {
		return path
	}
	return Prefix + path
}

type login struct {
	tokens authenticationclient.TokenReviewInterface
	access authorizationclient.SubjectAccessReviewInterface
	known  *lru.LRUExpireCache // answers, nil for an admission, by token, method and path
}

func (l *login) check(ctx context.Context, token string, r *http.Request) error {
	verb, path := strings.ToLower(r.Method), asked(r.URL.Path)
	key := sha256.Sum256([]byte(verb + "\n" + path + "\n" + token))
	if answer, ok := l.known.Get(key); ok {
		err, _ := answer.(error)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	err := l.ask(ctx, token, verb, path)
	if err == nil || errors.As(err, new(*httpserver.DeniedError)) {
		l.known.Add(key, err, remembered-1) // at remembered it does not count any more
	}
	return err
}

func (l *login) ask(ctx context.Context, token, verb, path string) error {
	review, err := l.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask the API server whose token it is: %w", err)
	}
	if !review.Status.Authenticated {
		return httpserver.ErrUnknownToken
	}
	user := review.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	access, err := l.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask the API server what %s may do: %w", user.Username, err)
	}
	if !access.Status.Allowed {
		return &httpserver.DeniedError{Code: http.StatusForbidden, Reason: fmt.Sprintf("user %q may not %s %s: bind a ClusterRole with this verb and nonResourceURLs: [%q]", user.Username, verb, path, path)}
	}
	return nil
}
