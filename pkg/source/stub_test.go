package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// stub is an API server that cannot be trusted: the nth list and the nth watch
// get the nth answer of its script. Watches beyond the script stay open and say
// nothing; lists beyond it are an error. Probes beyond theirs find a history that
// goes far enough, and second watches beyond theirs end with nothing.
type stub struct {
	t             testing.TB
	path          string
	lists         []answer
	watches       []answer
	probes        []answer
	secondWatches []answer
	others        map[string]answer // by path; forbidden unless set
	initial       initialScript     // of streamed lists

	mu          sync.Mutex
	asked       []request
	probed      []request
	secondAsked []request
	elsewhere   map[string]int // requests, by path
	more        signal
}

type answer func(w http.ResponseWriter, r *http.Request)

type request struct {
	url.Values
	watch bool
	major int // HTTP version
	at    time.Time
	gone  <-chan struct{} // when the client leaves
}

func newStub(t testing.TB, lists, watches []answer) *stub {
	return &stub{t: t, path: "/api/v1/configmaps", lists: lists, watches: watches}
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := request{r.URL.Query(), r.URL.Query().Get("watch") == "true", r.ProtoMajor, time.Now(), r.Context().Done()}
	if q.Has("sendInitialEvents") {
		s.streamed(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	a := s.script(q, r)
	s.mu.Unlock()
	s.more.wake()
	a(w, r)
}

// script picks the answer; s.mu is held.
func (s *stub) script(q request, r *http.Request) answer {
	nth := func(script []answer, n int, beyond answer) answer {
		if n < len(script) {
			return script[n]
		}
		return beyond
	}
	switch {
	case r.URL.Path != s.path:
		if s.elsewhere == nil {
			s.elsewhere = map[string]int{}
		}
		s.elsewhere[r.URL.Path]++
		if a := s.others[r.URL.Path]; a != nil {
			return a
		}
		return status(http.StatusForbidden, "Forbidden")
	case q.watch && q.Get("timeoutSeconds") == "5":
		s.secondAsked = append(s.secondAsked, q)
		return nth(s.secondWatches, len(s.secondAsked)-1, closed())
	case q.watch:
		s.asked = append(s.asked, q)
		return nth(s.watches, len(s.of(true))-1, open())
	case q.Get("limit") == "1" && strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList"):
		if q.Has("resourceVersion") || q.Has("labelSelector") {
			s.t.Errorf("not a consistent probe of a whole resource: %v", q.Values)
		}
		s.probed = append(s.probed, q)
		return nth(s.probes, len(s.probed)-1, pageOf("999999999999999999999999", ""))
	default:
		s.asked = append(s.asked, q)
		n := len(s.of(false)) - 1
		if n >= len(s.lists) {
			s.t.Errorf("list %d is not in the script: %v", n+1, q.Values)
		}
		return nth(s.lists, n, status(http.StatusForbidden, "Forbidden"))
	}
}

// of returns the watches or the lists asked for; s.mu is held.
func (s *stub) of(watch bool) []request {
	return slices.DeleteFunc(slices.Clone(s.asked), func(r request) bool { return r.watch != watch })
}

// await returns the watches or lists once there are n.
func (s *stub) await(n int, watch bool) []request {
	s.t.Helper()
	var got []request
	s.more.await(s.t, fmt.Sprintf("%d requests with watch=%t", n, watch), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		got = s.of(watch)
		return len(got) >= n
	})
	return got
}

// signal wakes the goroutines that await a condition.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func (s *signal) next() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) wake() {
	ch := s.next()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == ch {
		s.ch = nil
		close(ch)
	}
}

func (s *signal) await(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	for {
		next := s.next()
		if done() {
			return
		}
		select {
		case <-next:
		case <-deadline.C:
			t.Fatalf("never saw %s", what)
		}
	}
}

// page answers a list as built-in types do; more is the continue token.
func pageOf(rv, more string, items ...string) answer {
	return text200(pageText(rv, more, items...))
}

func pageText(rv, more string, items ...string) string {
	return fmt.Sprintf(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":%q,"continue":%q},"items":[%s]}`,
		rv, more, strings.Join(items, ","))
}

func text200(text string) answer {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

// item is an object as it stands in a list of a built-in type.
func item(name, rv string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"s","uid":"uid-%s","resourceVersion":%q}}`, name, name, rv)
}

// frame is a watch frame as a built-in type's.
func frame(kind, name, rv string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"ConfigMap","apiVersion":"v1",%s}`+"\n", kind, item(name, rv)[1:])
}

func bookmark(rv string) string {
	return fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":%q}}}`+"\n", rv)
}

func errorFrame(code int, reason string) string {
	return fmt.Sprintf(`{"type":"ERROR","object":%s}`+"\n", statusText(code, reason))
}

func statusText(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the stub says %s","reason":%q,"code":%d}`, reason, reason, code)
}

func status(code int, reason string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(statusText(code, reason)))
	}
}

// closed answers a watch with frames and ends it in good order.
func closed(frames ...string) answer { return text200(strings.Join(frames, "")) }

// open answers a watch with frames and leaves it open.
func open(frames ...string) answer {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		for _, f := range frames {
			_, _ = w.Write([]byte(f))
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// broken answers with frames, and then the connection breaks.
func broken(frames ...string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Join(frames, "")))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// answers repeats one.
func answers(n int, a answer) []answer { return slices.Repeat([]answer{a}, n) }

// overHTTP runs f for both protocols, over real connections.
func overHTTP(t *testing.T, f func(t *testing.T, serve func(http.Handler) *Client)) {
	for major, name := range map[int]string{1: "HTTP1", 2: "HTTP2"} {
		t.Run(name, func(t *testing.T) {
			f(t, func(h http.Handler) *Client {
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.ProtoMajor != major {
						t.Errorf("got a request over %s", r.Proto)
					}
					h.ServeHTTP(w, r)
				}))
				srv.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that a client broke off
				cfg := &rest.Config{}
				if major == 2 {
					srv.EnableHTTP2 = true
					srv.StartTLS()
					cfg.Insecure = true
				} else {
					srv.Start()
				}
				t.Cleanup(srv.Close)
				cfg.Host = srv.URL
				return newClient(t, cfg)
			})
		})
	}
}

func newClient(t testing.TB, cfg *rest.Config) *Client {
	t.Helper()
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// inMemory serves h over pipes, which a synctest bubble can see through.
func inMemory(t testing.TB, h http.Handler) *Client { return newClient(t, inMemoryConfig(t, h)) }

func inMemoryConfig(t testing.TB, h http.Handler) *rest.Config {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return &rest.Config{Host: "http://stub", Dial: l.dial}
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "stub", Net: "pipe"} }

// recorder is a handler that notes what it receives, a line per signal.
type recorder struct {
	hook func(ctx context.Context, s Signal) error // may be nil

	mu      sync.Mutex
	signals []Signal
	lines   []string
	more    signal
}

func (r *recorder) Handle(ctx context.Context, s Signal) error {
	r.mu.Lock()
	r.signals, r.lines = append(r.signals, s), append(r.lines, describe(s))
	r.mu.Unlock()
	r.more.wake()
	if r.hook != nil {
		return r.hook(ctx, s)
	}
	return nil
}

// describe writes a signal as "added a@11 >10": the object, its version, and the
// version to resume from.
func describe(s Signal) string {
	switch s.Kind {
	case ListBegun:
		if s.NewEpoch {
			return "begun " + string(s.Reason) + " from " + s.RV + ", a new epoch"
		}
		return "begun " + string(s.Reason) + " from " + s.RV
	case ListEnded:
		return "ended " + s.RV + " >" + s.Resume
	case Progress:
		return "progress " + s.RV + " >" + s.Resume
	case Listed:
		return "listed " + s.Object.Name + "@" + s.Object.ResourceVersion
	}
	if s.Left {
		return "left " + s.Object.Name + "@" + s.Object.ResourceVersion + " >" + s.Resume
	}
	kind := map[SignalKind]string{Added: "added", Modified: "modified", Deleted: "deleted"}[s.Kind]
	return kind + " " + s.Object.Name + "@" + s.Object.ResourceVersion + " >" + s.Resume
}

func (r *recorder) received() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// await returns the lines once there are n.
func (r *recorder) await(t testing.TB, n int) []string {
	t.Helper()
	var got []string
	r.more.await(t, fmt.Sprintf("%d signals", n), func() bool { got = r.received(); return len(got) >= n })
	return got
}

// running is a collection's Run under way.
type running struct {
	*recorder
	t      testing.TB
	cancel context.CancelFunc
	done   chan error

	stateMu sync.Mutex
	phases  []Phase
	states  []State
	moved   signal
}

func run(t testing.TB, o Options, from event.Position, hook func(context.Context, Signal) error) *running {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r := &running{recorder: &recorder{hook: hook}, t: t, cancel: cancel, done: make(chan error, 1)}
	if o.Target == (Target{}) {
		o.Target = configMaps(event.Collection{})
	}
	o.Handler, o.OnState = r.recorder, r.state
	c := NewCollection(o)
	go func() { r.done <- c.Run(ctx, from) }()
	return r
}

func configMaps(c event.Collection) Target {
	c.Resource = "configmaps"
	return Target{Collection: c, Resource: Resource{Version: "v1", Name: "configmaps", Kind: "ConfigMap", Namespaced: true}}
}

func (r *running) state(s State) {
	r.stateMu.Lock()
	r.phases, r.states = append(r.phases, s.Phase), append(r.states, s)
	r.stateMu.Unlock()
	r.moved.wake()
}

// awaitState returns the nth state of the phase.
func (r *running) awaitState(phase Phase, n int) State {
	r.t.Helper()
	var got State
	r.moved.await(r.t, fmt.Sprintf("state %d of phase %s", n, phase), func() bool {
		r.stateMu.Lock()
		defer r.stateMu.Unlock()
		left := n
		for _, s := range r.states {
			if s.Phase == phase {
				if left--; left == 0 {
					got = s
					return true
				}
			}
		}
		return false
	})
	return got
}

// stop ends Run, which must return the context's error.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.done; !errors.Is(err, context.Canceled) {
		r.t.Errorf("Run returned %v, want the context's error", err)
	}
}

// ended returns what Run returned, if it has.
func (r *running) ended() error {
	select {
	case err := <-r.done:
		return err
	default:
		return errors.New("nothing: it still runs")
	}
}

// slots implements [Slots]: its capacity is how many there are, its length how many are taken.
type slots chan struct{}

func newSlots(n int) slots { return make(slots, n) }

func (s slots) Acquire(ctx context.Context, _ Attempt) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s slots) Release(Attempt) { <-s }
