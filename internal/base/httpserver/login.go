package httpserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/textfile"
)

// Login decides whether the holder of a token may make a request. nil admits; a [*DeniedError] refuses; any other
// error means that the check failed.
type Login func(ctx context.Context, token string, r *http.Request) error

// DeniedError is why a request is refused.
type DeniedError struct {
	Code   int    // http.StatusUnauthorized or http.StatusForbidden
	Reason string // text for the client
}

func (e *DeniedError) Error() string { return e.Reason }

// ErrUnknownToken refuses an unknown token.
var ErrUnknownToken = &DeniedError{http.StatusUnauthorized, "this token is not known here"}

// admits reports whether a request may be made, and answers a request that may not. The token is a bearer token or, for browsers,
// the password of any user.
func (o *Options) admits(w http.ResponseWriter, r *http.Request) bool {
	err := error(&DeniedError{http.StatusUnauthorized, "a login is required: send the header Authorization: Bearer TOKEN, or the token as a password"})
	if token := tokenOf(r); token != "" {
		err = o.Login(r.Context(), token, r)
	}
	var denied *DeniedError
	switch {
	case err == nil:
		return true
	case errors.As(err, &denied):
		if denied.Code == http.StatusUnauthorized {
			w.Header()["Www-Authenticate"] = []string{`Bearer realm="kubebridge"`, `Basic realm="kubebridge"`}
		}
		http.Error(w, denied.Reason, denied.Code)
	default:
		o.Log.Warn("login check failed", zap.Error(err))
		http.Error(w, "the login cannot be checked now: the log says why", http.StatusServiceUnavailable)
	}
	return false
}

func tokenOf(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// LeastTokenBytes is the minimum length of the token in a file.
const LeastTokenBytes = 16

// TokenFile admits requests with the token in a file. The file is read for each request, so a new token is valid
// at once.
func TokenFile(path string) Login {
	return func(_ context.Context, token string, _ *http.Request) error {
		text, err := textfile.Read(path)
		if err != nil {
			return err
		}
		want := strings.TrimSpace(text)
		if len(want) < LeastTokenBytes {
			return fmt.Errorf("%s holds %d bytes, and a token has at least %d", path, len(want), LeastTokenBytes)
		}
		a, b := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(want))
		if subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
			return ErrUnknownToken
		}
		return nil
	}
}
