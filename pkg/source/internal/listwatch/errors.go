package listwatch

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var (
	// ErrExpired is wrapped by an error which says that the server no longer has a resourceVersion.
	ErrExpired = errors.New("no longer served")
	// ErrNoVersion is returned for a list without a usable resourceVersion.
	ErrNoVersion = errors.New("a list without a resourceVersion that a watch could go on from")
)

// ProxyError says what to do about the error of a proxy, whose answers read like those of the API server ("Forbidden").
func ProxyError(err error) error {
	return fmt.Errorf("%w: correct HTTPS_PROXY or proxy-url in the kubeconfig, or add the API server's host to NO_PROXY", err)
}

// StatusCode returns the HTTP status of the server's answer, or 0 if err is not an answer
// of the server.
func StatusCode(err error) int {
	if s, ok := AsStatus(err); ok {
		return int(s.Status().Code)
	}
	return 0
}

// IsExpired reports whether the server no longer has the requested resourceVersion or continue token. In some
// answers only the reason says so, not the code.
func IsExpired(err error) bool {
	return StatusCode(err) == http.StatusGone || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// RetryPage reports whether a page that failed with err may arrive if it is requested again.
func RetryPage(err error) bool {
	switch code := StatusCode(err); {
	case IsExpired(err):
		return false
	case code == 0, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return true
	default:
		return false
	}
}
