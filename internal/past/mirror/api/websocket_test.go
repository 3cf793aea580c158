package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/internal/past/mirror/auth"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// dial opens a WebSocket. conn is the connection; nil: a new one.
func dial(t *testing.T, url, path string, conn net.Conn) *websocket.Conn {
	t.Helper()
	config, err := websocket.NewConfig("ws"+strings.TrimPrefix(url, "http")+path, url)
	if err != nil {
		t.Fatal(err)
	}
	if conn == nil {
		if conn, err = net.Dial("tcp", config.Location.Host); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	c, err := websocket.NewClient(config, conn)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pipe is the listener of one connection, whose writes last until the client reads. A write that begins is sent to writes.
type pipe struct {
	conns  chan net.Conn
	writes chan struct{}
	closed sync.Once
}

type pipeConn struct {
	net.Conn
	writes chan<- struct{}
}

func (c pipeConn) Write(b []byte) (int, error) {
	c.writes <- struct{}{}
	return c.Conn.Write(b)
}

// newPipe returns a listener, and the client's end of its connection.
func newPipe() (*pipe, net.Conn) {
	p := &pipe{conns: make(chan net.Conn, 1), writes: make(chan struct{}, 100)}
	client, server := net.Pipe()
	p.conns <- pipeConn{server, p.writes}
	return p, client
}

func (p *pipe) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p *pipe) Close() error   { p.closed.Do(func() { close(p.conns) }); return nil }
func (p *pipe) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// nextFrame returns the text of a frame, or "closed: 1000" for that frame.
func nextFrame(c *websocket.Conn) (string, error) {
	frame, err := c.NewFrameReader()
	if err != nil {
		return "", err
	}
	if _, err := io.Copy(io.Discard, frame.HeaderReader()); err != nil {
		return "", err
	}
	text, err := io.ReadAll(frame)
	if err != nil {
		return "", err
	}
	switch frame.PayloadType() {
	case websocket.TextFrame:
		return string(text), nil
	case websocket.CloseFrame:
		return fmt.Sprintf("closed: %d", binary.BigEndian.Uint16(text)), nil
	}
	return "", fmt.Errorf("a frame of the type %d", frame.PayloadType())
}

// frames returns the texts of all frames up to the end of the connection.
func frames(t *testing.T, c *websocket.Conn) (all []string) {
	t.Helper()
	for {
		text, err := nextFrame(c)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("after %q: %v", all, err)
		}
		all = append(all, text)
	}
}

// TestWebSocketWatch: a watch over a WebSocket has the events of one over HTTP, and ends with a close frame.
func TestWebSocketWatch(t *testing.T) {
	b := threePods(t)
	type pair struct {
		path   string
		lines  chan string
		socket *websocket.Conn
	}
	var pairs []pair
	for _, query := range []string{
		"resourceVersion=50", "resourceVersion=50&labelSelector=app=web", "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "resourceVersion=1",
	} {
		p := pair{path: "/api/v1/pods?watch=1&" + query, lines: make(chan string, 1)}
		p.socket = dial(t, b.url, p.path, nil)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+p.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r) //nolint:bodyclose // closed below
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer a.Body.Close()
			body, _ := io.ReadAll(a.Body) // a part of it is not the same
			p.lines <- string(body)
		}()
		pairs = append(pairs, p)
	}
	moved := cart
	moved.version, moved.labels = 51, "app=web"
	b.object("pods", event.Modified, event.Watch, moved)
	b.deleted("pods", web, 52)
	b.object("pods", event.Added, event.Watch, thing{"shop", "web", "u-9", 53, "app=web"})
	b.gap("pods", event.ReasonExpired)
	for _, p := range pairs {
		want := append(strings.SplitAfter(<-p.lines, "\n"), "closed: 1000")
		want = append(want[:len(want)-2], want[len(want)-1]) // without the text behind the last line
		if diff := cmp.Diff(want, frames(t, p.socket)); diff != "" || len(want) < 2 {
			t.Errorf("%s (-HTTP +WebSocket):\n%s", p.path, diff)
		}
	}
	b.synced("pods", 60, event.ReasonExpired)
	began := time.Now()
	got := frames(t, dial(t, b.url, "/api/v1/pods?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion=60", nil))
	if len(got) != 2 || !strings.HasPrefix(got[0], `{"type":"BOOKMARK"`) || got[1] != "closed: 1000" || time.Since(began) < time.Second {
		t.Errorf("with a time-out of a second, after %s: %q", time.Since(began), got)
	}
}

// TestWebSocketEnds: the handler of a WebSocket ends when the client closes it or does not read, when its rights end, and when bridge serve ends.
func TestWebSocketEnds(t *testing.T) {
	b := threePods(t)
	b.server.rechecks = rechecks{every: 20 * time.Millisecond}
	refused := make(chan struct{})
	b.server.Check = func(r *http.Request, _ *auth.Attributes) error {
		select {
		case <-refused:
			if r.URL.Query().Get("labelSelector") == "rights" {
				return apierrors.NewUnauthorized("no more")
			}
		default:
		}
		return nil
	}
	for _, c := range []struct {
		name, query string
		write       time.Duration
		end         func(c *websocket.Conn, stop func())
		want        []string // frames after the end; nil: the client does not read
	}{
		{"the client closes", "resourceVersion=50", time.Hour, func(c *websocket.Conn, _ func()) { _ = c.WriteClose(1000) }, []string{"closed: 1000"}},
		{"the client does not read", "", 50 * time.Millisecond, func(*websocket.Conn, func()) {}, nil},
		{"bridge serve ends", "resourceVersion=50", time.Hour, func(_ *websocket.Conn, stop func()) { stop() }, []string{"closed: 1000"}},
		{"bridge serve ends, and the client does not read", "", time.Hour, func(_ *websocket.Conn, stop func()) { stop() }, nil},
		{"the rights end", "resourceVersion=50&labelSelector=rights", time.Hour, func(*websocket.Conn, func()) { close(refused) }, []string{"ERROR 401", "closed: 1000"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.server.limits.write = c.write
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan struct{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(done)
				b.server.ServeHTTP(w, r)
			}))
			server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
			listener, conn := newPipe()
			_ = server.Listener.Close()
			server.Listener = listener
			server.Start()
			defer server.Close()
			socket := dial(t, server.URL, "/api/v1/pods?watch=1&"+c.query, conn)
			<-listener.writes // of the handshake
			if c.want == nil {
				<-listener.writes // of an event
			}
			c.end(socket, stop)
			if c.want != nil {
				got := frames(t, socket)
				for i, text := range got {
					var e struct {
						Type   string
						Object metav1.Status
					}
					if json.Unmarshal([]byte(text), &e) == nil {
						got[i] = fmt.Sprintf("%s %d", e.Type, e.Object.Code)
					}
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("the frames (-want +got):\n%s", diff)
				}
			}
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				t.Error("the handler does not end")
			}
		})
	}
}

// TestWebSocketRefused: a page of another server opens no WebSocket without knowing a token. Requests that are wrong or not allowed get the answers of others.
func TestWebSocketRefused(t *testing.T) {
	b := threePods(t)
	pods := "/api/v1/pods?watch=1"
	token := "base64url.bearer.authorization.k8s.io.YW5u, v4.base64" // of no meaning here, except that it is not chosen
	checks := func(*http.Request, *auth.Attributes) error { return nil }
	denies := func(*http.Request, *auth.Attributes) error { return apierrors.NewUnauthorized("who is this?") }
	for _, c := range []struct {
		name, path, origin, protocols string
		check                         func(*http.Request, *auth.Attributes) error
		certificate                   bool
		want                          int
	}{
		{"the page of this server", pods, "http://bridge.example.com:8443", "", nil, false, 101},
		{"another page", pods, "http://evil.example.com", "", nil, false, 403},
		{"an allowed page", pods, "http://dashboard.example.com", "", nil, false, 101},
		{"an allowed page with another scheme", pods, "https://dashboard.example.com", "", nil, false, 403},
		{"an allowed page with the user's certificate", pods, "http://dashboard.example.com", "", checks, true, 101},
		{"another port", pods, "http://bridge.example.com", "", nil, false, 403},
		{"another page that says that it has a token", pods, "http://evil.example.com", token, nil, false, 403},
		{"another page where tokens are needed", pods, "https://dashboard.example.com", token, checks, false, 101},
		{"another page with the user's certificate", pods, "https://evil.example.com", token, checks, true, 403},
		{"this page with the user's certificate", pods, "https://bridge.example.com:8443", "", checks, true, 101},
		{"no page", pods, "", "", checks, false, 403},
		{"a page without an address", pods, "null", "", checks, false, 403},
		{"no rights", pods, "http://bridge.example.com:8443", token, denies, false, 401},
		{"only a token", pods, "http://bridge.example.com:8443", strings.TrimSuffix(token, ", v4.base64"), nil, false, 400},
		{"several subprotocols", pods, "http://bridge.example.com:8443", "a, b", nil, false, 400},
		{"no such resource", "/api/v1/nothing?watch=1", "http://bridge.example.com:8443", "", nil, false, 404},
		{"a list", "/api/v1/pods", "http://evil.example.com", "", nil, false, 200},
	} {
		b.server.Check, b.server.Origins = c.check, []string{"http://dashboard.example.com"}
		ctx, stop := context.WithCancel(t.Context())
		served, answered := counting(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.certificate {
				r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
			}
			b.server.ServeHTTP(w, r)
		}))
		server := httptest.NewUnstartedServer(served)
		server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
		server.Start()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "bridge.example.com:8443"
		for name, value := range map[string]string{
			"Connection": "keep-alive, Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": c.origin, "Sec-WebSocket-Protocol": c.protocols,
		} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		chosen := a.Header.Get("Sec-WebSocket-Protocol")
		if a.StatusCode != c.want || strings.Contains(chosen, "bearer") || c.want == 101 && (c.protocols == "") != (chosen == "") {
			t.Errorf("%s: %s, and the subprotocol is %q, want %d", c.name, a.Status, chosen, c.want)
		}
		if c.want == 101 && a.Header.Get("Warning") == "" {
			t.Errorf("%s: the answer has no warnings", c.name)
		}
		_ = a.Body.Close()
		stop()
		server.Close()
		answered()
	}
}
