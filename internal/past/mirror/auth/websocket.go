package auth

import (
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// tokenProtocol begins the WebSocket subprotocol that has a bearer token: browsers cannot set Authorization there. The
// rules are those of k8s.io/apiserver/pkg/authentication/request/websocket.
const tokenProtocol = "base64url.bearer.authorization.k8s.io." //nolint:gosec // not a credential

// IsWebSocket reports whether a request asks for a WebSocket.
func IsWebSocket(r *http.Request) bool {
	upgrades := func(value string) bool { return strings.Contains(strings.ToLower(value), "upgrade") }
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && slices.ContainsFunc(r.Header.Values("Connection"), upgrades)
}

// Subprotocols returns the bearer token among the subprotocols that a request offers, if there is one, and the others.
func Subprotocols(r *http.Request) (token string, others []string, err error) {
	for name := range strings.SplitSeq(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), ",") {
		name = strings.TrimSpace(name)
		encoded, ok := strings.CutPrefix(name, tokenProtocol)
		switch {
		case name == "":
			continue
		case !ok:
			others = append(others, name)
			continue
		case token != "":
			return "", nil, errors.New("two WebSocket subprotocols have a bearer token: send one")
		}
		decoded, err := base64.RawURLEncoding.DecodeString(encoded)
		if err != nil || len(decoded) == 0 || !utf8.Valid(decoded) {
			return "", nil, errors.New("the WebSocket subprotocol " + tokenProtocol + "… has no bearer token in base64url without padding")
		}
		token = string(decoded)
	}
	if token != "" && len(others) == 0 { // the server has to choose one, and must not send the token back
		return "", nil, errors.New("the only WebSocket subprotocol has the bearer token: offer another one, too, such as base64.binary.k8s.io")
	}
	return token, others, nil
}

func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if strings.EqualFold(scheme, "bearer") && token != "" {
		return token
	}
	if !IsWebSocket(r) {
		return ""
	}
	token, _, _ = Subprotocols(r) // "" after an error
	return token
}
