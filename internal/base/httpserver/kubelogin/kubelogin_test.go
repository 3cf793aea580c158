package kubelogin

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/base/httpserver"
)

// api is an API server that knows the token of one scraper.
type api struct {
	asked  atomic.Int32
	broken atomic.Bool
	t      *testing.T
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.broken.Load() {
		return nil, errors.New("connection refused")
	}
	a.asked.Add(1)
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Error(err)
	}
	var answer any
	switch r.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		var review authenticationv1.TokenReview
		err = json.Unmarshal(body, &review)
		if review.Status.Authenticated = review.Spec.Token == "the scraper's"; review.Status.Authenticated {
			review.Status.User = authenticationv1.UserInfo{
				Username: "system:serviceaccount:monitoring:prometheus", UID: "u", Groups: []string{"system:authenticated"},
				Extra: map[string]authenticationv1.ExtraValue{"pod": {"prometheus-0"}},
			}
		}
		answer = review
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		err = json.Unmarshal(body, &review)
		s := review.Spec
		review.Status.Allowed = s.User == "system:serviceaccount:monitoring:prometheus" && s.UID == "u" && slices.Equal(s.Groups, []string{"system:authenticated"}) &&
			len(s.Extra["pod"]) == 1 && s.ResourceAttributes == nil && slices.Contains([]string{"/metrics", "/kubebridge/changes", "/api/changes"}, s.NonResourceAttributes.Path) && s.NonResourceAttributes.Verb == "get"
		answer = review
	default:
		a.t.Errorf("asked for %s", r.URL.Path)
	}
	if err == nil {
		err = json.NewEncoder(w).Encode(answer)
	}
	if err != nil {
		a.t.Error(err)
	}
	return w.Result(), nil
}

// TestLogin: the API server says who the user of a token is, and RBAC says what the user may get. If either does not
// answer, access is denied. A permission is not remembered for long.
func TestLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &api{t: t}
		login, err := New(&rest.Config{Host: "http://kubernetes", Transport: server, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
		if err != nil {
			t.Fatal(err)
		}
		code := func(token, path string) int {
			err := login(t.Context(), token, httptest.NewRequest(http.MethodGet, path, nil))
			var denied *httpserver.DeniedError
			switch {
			case err == nil:
				return http.StatusOK
			case errors.As(err, &denied):
				return denied.Code
			default:
				return http.StatusServiceUnavailable
			}
		}
		for _, c := range []struct {
			token, path string
			code, asked int
		}{
			{"the scraper's", "/metrics", http.StatusOK, 2},
			{"the scraper's", "/metrics", http.StatusOK, 0}, // remembered
			{"the scraper's", "/changes", http.StatusOK, 2},
			// The API server lets every user get its own /api/*.
			{"the scraper's", "/api/changes", http.StatusForbidden, 2},
			{"the scraper's", "/api/changes", http.StatusForbidden, 0},
			{"a stranger's", "/metrics", http.StatusUnauthorized, 1},
			{"a stranger's", "/metrics", http.StatusUnauthorized, 0},
		} {
			before := server.asked.Load()
			if got := code(c.token, c.path); got != c.code || int(server.asked.Load()-before) != c.asked {
				t.Errorf("%s, %s: %d, after %d questions", c.token, c.path, got, server.asked.Load()-before)
			}
		}
		server.broken.Store(true)
		if got := code("the scraper's", "/metrics"); got != http.StatusOK {
			t.Errorf("a known token is answered with %d while the API server is away", got)
		}
		if got := code("the scraper's", "/other"); got != http.StatusServiceUnavailable {
			t.Errorf("without an API server: %d", got)
		}
		time.Sleep(remembered)
		if got := code("the scraper's", "/metrics"); got != http.StatusServiceUnavailable {
			t.Errorf("a yes lasts: %d", got)
		}
	})
}
