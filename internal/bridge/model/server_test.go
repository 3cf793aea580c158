package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// watchTimeout is the duration of a watch. The bridge requests a random duration of at least that; a server may end a
// watch sooner.
const watchTimeout = 5 * time.Minute

// server is the API server: an http.RoundTripper for the bridge's client. Lists and watches of the watched resource
// wait until the run answers them. All other requests are answered at once.
type server struct {
	mu      sync.Mutex
	cluster *cluster
	uid     string // of the cluster
	// forgotten is the resourceVersion at which the watch cache begins. Watches from an earlier one get a 410.
	forgotten int
	down      bool // connections are refused
	unknown   bool // the definition of the resource exists, and the group is not served yet, as after a restart
	stale     bool // the server of the group does not answer discovery
	spaceless bool // namespaces may not be listed
	denied    int  // the HTTP status of the answers to lists and watches; 0: no error
	brief     int  // number of lists and watches that still get status briefStatus
	pageSize  int
	burst     int // number of frames of a streamed list that are written at once
	most      int // number of frames that watches still get; -1: no limit
	waiting   []*request
	watches   []*watch
	number    int                // of the last request
	held      map[string]int     // how many answers or frames are still allowed
	dead      bool               // no request is answered, because the process that sent it was killed
	refusals  map[string]refusal // by target
	notation  notation           // of resourceVersions
	sent      map[string]int     // highest resourceVersion of the frames of each watch, by target and version: see watchOf
	around    []surrounding      // the changes of namespaces and definitions, oldest first
}

// surrounding is a change of a namespace or of a definition, as a watch event. A restore does not undo it.
type surrounding struct {
	path  string
	rv    int
	frame string
}

// notation is how the server writes resourceVersions.
type notation string

const (
	numbers notation = ""
	letters notation = "letters" // they are not numbers, like those of some aggregated APIs
	none    notation = "none"    // objects have no resourceVersion; lists and bookmarks have numbers
)

var (
	versions         = regexp.MustCompile(`"resourceVersion":"(\d+)"`)
	versionsOfObject = regexp.MustCompile(`"resourceVersion":"\d+","labels"`)
)

func (n notation) of(text string) string {
	switch n {
	case letters:
		return versions.ReplaceAllString(text, `"resourceVersion":"v$1"`)
	case none:
		return versionsOfObject.ReplaceAllString(text, `"resourceVersion":"","labels"`)
	default:
		return text
	}
}

// number parses a resourceVersion in any notation.
func number(version string) (int, error) { return strconv.Atoi(strings.TrimPrefix(version, "v")) }

// shown returns an answer in the notation of the server.
func (s *server) shown(a answer) answer { return answer{a.code, s.notation.of(a.text)} }

// write writes frames to a watch.
func (s *server) write(w *watch, frames string) { w.body.write(s.notation.of(frames)) }

// refusal is the time at which the last list or watch of a target was refused, and the number of refusals before it
// that were less than two minutes apart.
type refusal struct {
	at    time.Time
	times int
}

// retryAfter is how long the server does not answer a target, by the number of refusals before. It is at least as long
// as the client may wait until it tries again. The client's wait is random, and would otherwise decide by chance which
// target continues first.
var retryAfter = []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second, 6 * time.Second, 12 * time.Second, 24 * time.Second, 45 * time.Second}

// refuse records that a list or watch of a target is refused.
func (s *server) refuse(target string) {
	f := s.refusals[target]
	if time.Since(f.at) > 2*time.Minute {
		f.times = -1
	}
	s.refusals[target] = refusal{time.Now(), min(f.times+1, len(retryAfter)-1)}
}

// due reports whether a request may be answered.
func (s *server) due(r *request) bool {
	f, any := s.refusals[r.target()]
	return !any || time.Since(f.at) >= retryAfter[f.times]
}

// request is a list or watch that waits for an answer.
type request struct {
	number  int
	url     *url.URL
	query   url.Values
	version string
	answer  chan *http.Response // buffered
	ctx     context.Context
	partial bool // only metadata is requested
}

func (r *request) isWatch() bool { return r.query.Get("watch") == "true" }

// kind returns the kind of request, by which it can be held.
func (r *request) kind() string {
	switch {
	case !strings.HasSuffix(r.url.Path, "/"+resource) || r.query.Get("resourceVersionMatch") == "Exact":
		return heldPast
	case r.isWatch() && !r.query.Has("sendInitialEvents"):
		return heldWatch + r.query.Get("labelSelector")
	default:
		return heldList + r.query.Get("labelSelector")
	}
}

// target names the target of the request: the namespace and the selectors.
func (r *request) target() string { return targetOf(r.url.Path, r.query) }

func targetOf(path string, q url.Values) string {
	ns := ""
	if _, rest, ok := strings.Cut(path, "/namespaces/"); ok {
		ns, _, _ = strings.Cut(rest, "/")
	}
	return ns + "|" + q.Get("labelSelector") + "|" + q.Get("fieldSelector")
}

// watch is an open watch, or a streamed list.
type watch struct {
	number  int
	target  string
	labels  string // the label selector
	version string
	sel     func(*object) bool
	history int
	cursor  int // number of changes of the history that the watch has handled
	rv      int // the resourceVersion that it has reached
	initial []string
	since   int // frames at or below this resourceVersion are not sent
	partial bool
	around  string // the path of the namespaces or definitions that it watches; "": it watches objects
	body    *stream
}

// stream is a response body that is written in parts.
type stream struct {
	mu     sync.Mutex
	ready  *sync.Cond
	text   bytes.Buffer
	err    error
	closed bool
}

func newStream(ctx context.Context) *stream {
	s := &stream{}
	s.ready = sync.NewCond(&s.mu)
	context.AfterFunc(ctx, func() { s.end(ctx.Err()) })
	return s
}

func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.text.Len() == 0 && s.err == nil {
		s.ready.Wait()
	}
	if s.text.Len() > 0 {
		return s.text.Read(p)
	}
	return 0, s.err
}

func (s *stream) Close() error {
	s.end(errors.New("closed"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *stream) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.WriteString(text)
	s.ready.Broadcast()
}

func (s *stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.ready.Broadcast()
}

func (s *stream) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

var errRefused = errors.New("connect: connection refused")

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	if s.dead || s.down {
		s.mu.Unlock()
		return nil, errRefused
	}
	q := r.URL.Query()
	path, version, partial := r.URL.Path, "", strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
	if rest, ok := strings.CutPrefix(path, "/apis/"+group+"/"); ok {
		version, rest, _ = strings.Cut(rest, "/")
		if rest == "" { // discovery
			defer s.mu.Unlock()
			if s.stale {
				return reply(r, status(http.StatusServiceUnavailable, "ServiceUnavailable", "the server is currently unable to handle the request")), nil
			}
			return reply(r, s.resources(version)), nil
		}
		switch {
		case !s.serves(version):
			defer s.mu.Unlock()
			return reply(r, notServed), nil
		case q.Get("watch") == "" && q.Get("limit") == "1" && !q.Has("continue") && !q.Has("resourceVersionMatch"): // a probe
			defer s.mu.Unlock()
			return reply(r, s.shown(s.list(r.URL.Path, q, version, partial))), nil
		}
		s.number++
		w := &request{
			number: s.number, url: r.URL, query: q, version: version,
			answer: make(chan *http.Response, 1), ctx: r.Context(), partial: partial,
		}
		s.waiting = append(s.waiting, w)
		s.mu.Unlock()
		select {
		case resp := <-w.answer:
			if resp == nil {
				return nil, errRefused
			}
			resp.Request = r
			return resp, nil
		case <-r.Context().Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			s.waiting = slices.DeleteFunc(s.waiting, func(other *request) bool { return other == w })
			return nil, r.Context().Err()
		}
	}
	defer s.mu.Unlock()
	return s.other(r, q), nil
}

// answer is a status and a body.
type answer struct {
	code int
	text string
}

func (a answer) response() *http.Response {
	return &http.Response{
		StatusCode: a.code, Status: http.StatusText(a.code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(a.text)), ContentLength: int64(len(a.text)),
	}
}

func reply(r *http.Request, a answer) *http.Response {
	resp := a.response()
	resp.Request = r
	return resp
}

func status(code int, reason, message string) answer {
	return answer{code, statusText(code, reason, message, "")}
}

func statusText(code int, reason, message, details string) string {
	if details != "" {
		details = `,"details":` + details
	}
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q%s,"code":%d}`, message, reason, details, code)
}

var (
	notServed = answer{http.StatusNotFound, "404 page not found\n"}
	expired   = status(http.StatusGone, "Expired", "too old resource version")
)

func notFound(kind, name string) answer {
	return answer{http.StatusNotFound, statusText(http.StatusNotFound, "NotFound", name+" not found", fmt.Sprintf(`{"name":%q,"kind":%q}`, name, kind))}
}

func ok(text string) answer { return answer{http.StatusOK, text} }

// serves reports whether the resource is served in a version.
func (s *server) serves(version string) bool {
	return s.cluster.crd != "" && !s.unknown && (version != "v2" || s.cluster.second)
}

// resources returns the discovery document of a version of the group.
func (s *server) resources(version string) answer {
	if !s.serves(version) {
		return notServed
	}
	return ok(fmt.Sprintf(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/%s","resources":[{"name":%q,"singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get","list","watch"]}]}`,
		group, version, resource))
}

// get answers a request for one object.
func (s *server) get(path string) answer {
	parts := strings.Split(path, "/")
	name, namespace := parts[len(parts)-1], parts[len(parts)-3]
	if o, ok := s.cluster.live()[namespace+"/"+name]; ok {
		return answer{http.StatusOK, o.json("v1", true)}
	}
	return notFound(resource, name)
}

const (
	crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	svcs = "/apis/apiregistration.k8s.io/v1/apiservices"
	nses = "/api/v1/namespaces" // watches of them have the label selector of the model
)

// other answers requests that do not concern the watched resource.
func (s *server) other(r *http.Request, q url.Values) *http.Response {
	c := s.cluster
	switch path := r.URL.Path; {
	case path == "/api":
		return reply(r, ok(`{"kind":"APIVersions","versions":["v1"]}`))
	case path == "/apis":
		groups := `{"name":"apiextensions.k8s.io","versions":[{"groupVersion":"apiextensions.k8s.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apiextensions.k8s.io/v1","version":"v1"}}`
		if s.serves("v1") {
			versions := fmt.Sprintf(`{"groupVersion":"%s/v1","version":"v1"}`, group)
			if c.second {
				versions += fmt.Sprintf(`,{"groupVersion":"%s/v2","version":"v2"}`, group)
			}
			groups += fmt.Sprintf(`,{"name":%q,"versions":[%s],"preferredVersion":{"groupVersion":"%s/v1","version":"v1"}}`, group, versions, group)
		}
		return reply(r, ok(`{"kind":"APIGroupList","apiVersion":"v1","groups":[`+groups+`]}`))
	case path == "/api/v1":
		return reply(r, ok(`{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"namespaces","singularName":"namespace","namespaced":false,"kind":"Namespace","verbs":["get","list","watch"]}]}`))
	case path == "/apis/apiextensions.k8s.io/v1":
		return reply(r, ok(`{"kind":"APIResourceList","groupVersion":"apiextensions.k8s.io/v1","resources":[{"name":"customresourcedefinitions","singularName":"customresourcedefinition","namespaced":false,"kind":"CustomResourceDefinition","verbs":["get","list","watch"]}]}`))
	case path == nses+"/kube-system":
		return reply(r, ok(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"cluster`+s.uid+`","resourceVersion":"1"}}`))
	case strings.HasPrefix(path, nses+"/"):
		n := strings.TrimPrefix(path, nses+"/")
		if sp, exists := c.spaces[n]; exists && sp.uid != "" {
			return reply(r, ok(namespaceText(n, sp)))
		}
		return reply(r, notFound("namespaces", n))
	case strings.HasPrefix(path, crds+"/"):
		if c.crd != "" {
			return reply(r, ok(fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%s.%s","uid":%q,"resourceVersion":"1"}}`, resource, group, c.crd)))
		}
		return reply(r, notFound("customresourcedefinitions", strings.TrimPrefix(path, crds+"/")))
	case path == svcs && q.Get("watch") == "":
		return reply(r, ok(fmt.Sprintf(`{"kind":"APIServiceList","apiVersion":"apiregistration.k8s.io/v1","metadata":{"resourceVersion":"%d"},"items":[]}`, c.now().rv)))
	case path == nses && q.Get("watch") == "" && s.spaceless:
		return reply(r, forbidden)
	case (path == nses || path == crds) && q.Get("watch") == "":
		var items []string
		kind, gv := "NamespaceList", "v1"
		if path == crds {
			kind, gv = "CustomResourceDefinitionList", "apiextensions.k8s.io/v1"
			if c.crd != "" {
				items = append(items, fmt.Sprintf(`{"metadata":{"name":"%s.%s","uid":%q,"resourceVersion":"1"}}`, resource, group, c.crd))
			}
		} else {
			for _, n := range slices.Sorted(maps.Keys(c.spaces)) {
				if sp := c.spaces[n]; sp.uid != "" && (q.Get("labelSelector") == "" || sp.team) {
					items = append(items, namespaceText(n, sp))
				}
			}
		}
		return reply(r, ok(fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[%s]}`, kind, gv, c.now().rv, strings.Join(items, ","))))
	case q.Get("sendInitialEvents") == "true":
		return reply(r, status(http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is not served for this resource"))
	case q.Get("watch") == "true":
		body := newStream(r.Context())
		w := &watch{around: path, body: body}
		from, _ := strconv.Atoi(q.Get("resourceVersion"))
		for _, e := range s.around {
			if e.path == path && e.rv > from {
				body.write(e.frame)
			}
		}
		s.watches = append(s.watches, w)
		return &http.Response{StatusCode: 200, Status: "OK", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r, ContentLength: -1}
	}
	return reply(r, notServed)
}

func namespaceText(name string, sp space) string {
	label := "b"
	if sp.team {
		label = "a"
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"uid":%q,"resourceVersion":"%d","labels":{"team":%q}}}`, name, sp.uid, sp.rv, label)
}

// selects returns a function that reports whether the selectors of a request match an object.
func selects(path string, q url.Values) func(*object) bool {
	e := entry{x: all}
	if l := q.Get("labelSelector"); l != "" {
		e.x = 0
		for x := range 3 {
			if strings.Contains(strings.TrimPrefix(l, "x"), strconv.Itoa(x)) {
				e.x |= 1 << x
			}
		}
	}
	f := q.Get("fieldSelector")
	sel := selection{entry: e}
	for _, part := range strings.Split(f, ",") {
		if part == "metadata.namespace!=n2" {
			sel.entry.exclude = true
		}
	}
	one := ""
	for _, part := range strings.Split(f, ",") {
		if n, found := strings.CutPrefix(part, "metadata.name="); found {
			one = n
		}
	}
	if _, rest, found := strings.Cut(path, "/namespaces/"); found {
		sel.namespace, _, _ = strings.Cut(rest, "/")
	}
	return func(o *object) bool { return sel.selects(o) && (one == "" || o.name == one) }
}

// list answers a request for a page of a list.
func (s *server) list(path string, q url.Values, version string, partial bool) answer {
	h := s.cluster.now()
	rv, from := h.rv, ""
	if token := q.Get("continue"); token != "" {
		var epoch int
		if _, err := fmt.Sscanf(token, "%d-%d-%s", &epoch, &rv, &from); err != nil || epoch != len(s.cluster.histories) || rv < s.forgotten {
			return expired
		}
	} else if exact := q.Get("resourceVersion"); exact != "" {
		var err error
		if rv, err = number(exact); err != nil || rv < s.forgotten || rv > h.rv || rv < h.baseRV {
			return expired
		}
	}
	selected := selects(path, q)
	limit, _ := strconv.Atoi(q.Get("limit"))
	if limit == 0 || limit > s.pageSize {
		limit = s.pageSize
	}
	objects := slices.SortedFunc(maps.Values(h.at(rv)), byKey)
	var items []string
	more := ""
	for _, o := range objects {
		if o.key() <= from || !selected(&o) {
			continue
		}
		if len(items) == limit {
			more = fmt.Sprintf("%d-%d-%s", len(s.cluster.histories), rv, from)
			break
		}
		items, from = append(items, o.json(version, partial)), o.key()
	}
	return ok(fmt.Sprintf(`{"apiVersion":"%s/%s","kind":"ThingList","metadata":{"resourceVersion":"%d","continue":%q},"items":[%s]}`,
		group, version, rv, more, strings.Join(items, ",")))
}

// open answers a watch or a streamed list.
func (s *server) open(r *request) *http.Response {
	h, n := s.cluster.now(), len(s.cluster.histories)
	body := newStream(r.ctx)
	resp := &http.Response{StatusCode: 200, Status: "OK", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: -1}
	w := &watch{number: r.number, target: r.target(), labels: r.query.Get("labelSelector"), version: r.version, sel: selects(r.url.Path, r.query), history: n - 1, rv: h.rv, cursor: len(h.changes), since: h.rv, partial: r.partial, body: body}
	if r.query.Get("sendInitialEvents") == "true" {
		for _, o := range slices.SortedFunc(maps.Values(h.at(h.rv)), byKey) {
			if w.sel(&o) {
				w.initial = append(w.initial, frame("ADDED", o.json(r.version, r.partial)))
			}
		}
		w.initial = append(w.initial, frame("BOOKMARK", fmt.Sprintf(`{"apiVersion":"%s/%s","kind":"Thing","metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}`, group, r.version, h.rv)))
	} else {
		rv, _ := number(r.query.Get("resourceVersion"))
		if rv < s.forgotten {
			body.write(frame("ERROR", expired.text))
			body.end(io.EOF)
			return resp
		}
		w.rv, w.since, w.cursor = rv, rv, 0
	}
	s.watches = append(s.watches, w)
	timers := []*time.Timer{
		time.AfterFunc(watchTimeout-2*time.Second, func() { s.bookmark(w) }),
		time.AfterFunc(watchTimeout, func() { body.end(io.EOF) }),
	}
	context.AfterFunc(r.ctx, func() {
		for _, t := range timers {
			t.Stop()
		}
	})
	return resp
}

func frame(kind, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object)
}

// step answers one request, or writes one frame, if it is not held. It returns false when there is nothing to do.
func (s *server) step() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = slices.DeleteFunc(s.watches, func(w *watch) bool { return w.body.over() })
	slices.SortStableFunc(s.waiting, func(a, b *request) int {
		if c := strings.Compare(a.target(), b.target()); c != 0 {
			return c
		}
		return a.number - b.number
	})
	for i, r := range s.waiting {
		if !s.due(r) || !s.let(r.kind()) {
			continue
		}
		s.waiting = slices.Delete(s.waiting, i, i+1)
		r.answer <- s.answerTo(r) //nolint:bodyclose // the client closes it
		return true
	}
	slices.SortStableFunc(s.watches, func(a, b *watch) int { return strings.Compare(a.target, b.target) })
	for _, w := range s.watches {
		if w.sel == nil {
			continue
		}
		if len(w.initial) > 0 && s.let(heldList+w.labels) {
			n := min(s.burst, len(w.initial))
			s.write(w, strings.Join(w.initial[:n], ""))
			w.initial = w.initial[n:]
			return true
		}
		if len(w.initial) == 0 && s.let(heldWatch+w.labels) && s.frame(w) {
			return true
		}
	}
	return false
}

// The kinds of requests that can be held: lists and watches, by label selector, and requests for single objects and
// for the past.
const (
	heldList  = "list "
	heldWatch = "watch "
	heldPast  = "past"
)

// let reports whether a request or frame may continue, and counts down if it is to be held later.
func (s *server) let(what string) bool {
	n, held := s.held[what]
	if held && n > 0 {
		s.held[what]--
	}
	return !held || n > 0
}

func (s *server) answerTo(r *request) *http.Response {
	switch {
	case s.down || s.dead:
		return nil
	case !s.serves(r.version): // the version is no longer served
		return notServed.response()
	case s.denied != 0 && r.kind() != heldPast:
		s.refuse(r.target())
		return status(s.denied, "Forbidden", "the test says so").response()
	case s.brief > 0 && r.kind() != heldPast:
		s.brief--
		s.refuse(r.target())
		return status(http.StatusInternalServerError, "InternalError", "the test says so").response()
	case !strings.HasSuffix(r.url.Path, "/"+resource):
		return s.shown(s.get(r.url.Path)).response()
	case r.isWatch():
		return s.open(r)
	}
	return s.shown(s.list(r.url.Path, r.query, r.version, r.partial)).response()
}

// frame writes the next change that concerns a watch.
func (s *server) frame(w *watch) bool {
	h := s.cluster.histories[w.history]
	for s.most != 0 && w.cursor < len(h.changes) {
		c := h.changes[w.cursor]
		w.cursor++
		if c.rv <= w.since {
			continue
		}
		w.rv = c.rv
		s.sent[w.target+"|"+w.version] = c.rv
		was, is := w.sel(c.before), w.sel(c.after)
		kind, o := "", object{}
		switch {
		case is && was && c.before != nil:
			kind, o = "MODIFIED", *c.after
		case is:
			kind, o = "ADDED", *c.after
		case was && c.after != nil: // it left the selection: the server sends the previous body at the new version
			kind, o = "DELETED", *c.before
			o.rv = c.rv
		case was:
			kind, o = "DELETED", *c.before
			o.rv = c.rv
		default:
			continue
		}
		if s.most > 0 {
			s.most--
		}
		s.write(w, frame(kind, o.json(w.version, w.partial)))
		return true
	}
	return false
}

// bookmarks sends a bookmark on every watch that is neither held nor behind.
func (s *server) bookmarks() {
	s.mu.Lock()
	watches := slices.Clone(s.watches)
	s.mu.Unlock()
	for _, w := range watches {
		s.bookmark(w)
	}
}

func (s *server) bookmark(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.cluster.now()
	if w.sel == nil || len(w.initial) > 0 || w.history != len(s.cluster.histories)-1 || w.cursor < len(h.changes) || s.isHeld(heldWatch+w.labels) {
		return
	}
	w.rv = max(w.rv, h.rv)
	s.write(w, frame("BOOKMARK", fmt.Sprintf(`{"apiVersion":"%s/%s","kind":"Thing","metadata":{"resourceVersion":"%d"}}`, group, w.version, w.rv)))
}

// cut ends the watches of the watched resource. io.EOF ends them gracefully.
func (s *server) cut(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		if w.sel != nil {
			w.body.end(why)
		}
	}
}

// restart kills the server and starts it again: connections break, and the watch cache begins at the present
// resourceVersion.
func (s *server) restart() {
	s.drop()
	s.mu.Lock()
	s.forgotten = s.cluster.now().rv
	s.mu.Unlock()
	s.cut(io.ErrUnexpectedEOF)
}

// definitionChanged wakes the watches of definitions.
func (s *server) definitionChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	rv := s.cluster.next()
	s.cluster.now().floor = len(s.cluster.now().changes)
	s.surround(crds, rv, frame("MODIFIED", fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"others.model.test","uid":"others","resourceVersion":"%d"}}`, rv)))
}

// surround sends a change of a namespace or a definition to the open watches, and keeps it for watches that are opened
// later from an earlier resourceVersion.
func (s *server) surround(path string, rv int, frame string) {
	s.around = append(s.around, surrounding{path, rv, frame})
	for _, w := range s.watches {
		if w.around == path {
			w.body.write(frame)
		}
	}
}

// spaceChanged sends the change of a namespace to the watches of namespaces.
func (s *server) spaceChanged(name string, was, is space) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster.now().floor = len(s.cluster.now().changes)
	kind, shown := "MODIFIED", is
	switch selected := is.uid != "" && is.team; {
	case selected && (was.uid == "" || !was.team):
		kind = "ADDED"
	case !selected:
		kind, shown = "DELETED", was
		shown.rv = s.cluster.now().rv
	}
	s.surround(nses, shown.rv, frame(kind, namespaceText(name, shown)))
}

func (s *server) isHeld(what string) bool {
	n, held := s.held[what]
	return held && n == 0
}

// hold holds a kind of request after n more answers or frames.
func (s *server) hold(what string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[what] = n
}

// drop refuses every waiting request, as a server does that is stopping.
func (s *server) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.waiting {
		r.answer <- nil
	}
	s.waiting = nil
}
