package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/past/mirror/auth"
)

// closeTime is the time for the last bytes to a client when `bridge serve` stops.
const closeTime = time.Second

type eventWriter interface {
	// write writes one event, of which the parts are given. The client may get it only after flush.
	write(parts ...[]byte) error
	flush() error
}

type responseWriter struct{ http.ResponseWriter }

func (w responseWriter) write(parts ...[]byte) error {
	for _, b := range parts {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func (w responseWriter) flush() error { return http.NewResponseController(w.ResponseWriter).Flush() }

type socketWriter struct{ *websocket.Conn }

func (w socketWriter) write(parts ...[]byte) error {
	_, err := w.Write(bytes.Join(parts, nil))
	return err
}

func (w socketWriter) flush() error { return nil }

// webSocket answers with a WebSocket, and closes it when serve returns. The context of serve ends when the client
// closes it. Only an error that is returned has to be answered.
func (s *Server) webSocket(w *countingWriter, r *http.Request, serve func(context.Context, eventWriter)) error {
	if err := s.checkOrigin(r); err != nil {
		return err
	}
	_, protocols, err := auth.Subprotocols(r)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	websocket.Server{
		Handshake: func(c *websocket.Config, _ *http.Request) error {
			c.Protocol, c.Header = protocols, w.Header()
			return nil
		},
		Handler: func(c *websocket.Conn) {
			w.code = http.StatusSwitchingProtocols
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(r.Context(), func() { _ = c.SetWriteDeadline(time.Now().Add(closeTime)) })()
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				defer cancel()
				discard(c)
			}()
			serve(ctx, socketWriter{c})
			_ = c.Close() // the client may be gone
			<-closed
		},
	}.ServeHTTP(w, r)
	return nil
}

// discard reads what a client sends until it closes the WebSocket. Pings are answered meanwhile.
func discard(c *websocket.Conn) {
	for b := make([]byte, 512); ; {
		if _, err := c.Read(b); err != nil {
			return
		}
	}
}

// checkOrigin refuses WebSockets of pages that have no right to open them: browsers let a page open any, and name the
// page's server in the header Origin. A page with a valid token may be of any server. Without tokens, or with a
// certificate, which browsers send for every page, it must be of this server, or of one of Origins.
func (s *Server) checkOrigin(r *http.Request) error {
	origin, err := websocket.Origin(&websocket.Config{Version: websocket.ProtocolVersionHybi13}, r)
	switch {
	case err != nil || origin == nil:
		err = errors.New("a WebSocket needs the header Origin with a URL")
	case s.Check != nil && (r.TLS == nil || len(r.TLS.PeerCertificates) == 0), strings.EqualFold(origin.Host, r.Host), slices.Contains(s.Origins, origin.String()):
		return nil
	default:
		err = fmt.Errorf("a WebSocket without --authorization, or with a client certificate, needs the header Origin with the host of the request, %s, or one of --allow-origin: it has %s", r.Host, origin)
	}
	return apierrors.NewForbidden(schema.GroupResource{}, "", err)
}

// socket is the connection of a WebSocket, for whose parts the client has a limited time.
type socket struct {
	net.Conn
	time time.Duration

	mu   sync.Mutex
	last time.Time // no part may take longer; zero: there is no such time
}

// Hijack implements [http.Hijacker].
func (c *countingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(c.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c.code = http.StatusBadRequest // until the handshake has succeeded
	s := &socket{Conn: conn, time: c.time}
	return s, bufio.NewReadWriter(buffers.Reader, bufio.NewWriter(s)), nil
}

func (s *socket) Write(b []byte) (int, error) { return writeParts(s.Conn, s.extend, b) }

// extend gives the client time for the next part.
func (s *socket) extend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := time.Now().Add(s.time)
	if !s.last.IsZero() && s.last.Before(until) {
		until = s.last
	}
	_ = s.Conn.SetWriteDeadline(until) // an error is that of the next write
}

// SetWriteDeadline sets a time for all parts.
func (s *socket) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = t
	return s.Conn.SetWriteDeadline(t)
}
