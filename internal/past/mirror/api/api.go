// Package api serves a mirror as a read-only Kubernetes API: discovery, get, list, watch and tables, for the present
// and for the past.
//
// Bodies are the JSON that the bus has. Every answer has Warning headers that say as of when it is complete, and what
// may be missing. What is not covered is an error, never a partial list.
package api

import (
	linked "container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	lru "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/auth"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
)

const (
	// tooNewWait is how long a list waits for a resourceVersion that is not reached yet, as the API server does.
	tooNewWait = 3 * time.Second
	// bookmarkEvery is the time between two bookmarks of a watch.
	bookmarkEvery = time.Minute
	// watchTime is how long a watch lasts at least, unless the client says it. Up to as much is added at random.
	watchTime = 30 * time.Minute
)

// limits bound answers, so that slow clients do not keep memory and the store's old files without end.
type limits struct {
	write time.Duration // for a part of an answer
	list  time.Duration // for a list, and for the changes that a watch is behind
	share time.Duration // for the changes that a watch is behind and has in memory with others; it reads the rest on its own
	bytes int           // of a list that are collected before its header is written; a longer list is written while it is read
}

var standardLimits = limits{write: 30 * time.Second, list: 5 * time.Minute, share: time.Second, bytes: 256 << 10}

// Builtin describes a resource that Kubernetes itself has.
type Builtin struct {
	APIVersion, Kind string
	Namespaced       bool
	ShortNames       []string
}

// Options of a [Server].
type Options struct {
	Mirror  *mirror.Mirror
	Cluster string // of paths without /clusters/<name>
	// Builtin returns one of Kubernetes' own resources, such as "deployments.apps"; ok is false if it is another one.
	Builtin func(resource string) (b Builtin, ok bool)
	// Check returns an error of the API if the sender may not read what the attributes say, or that is not known. It is
	// called again while a watch is open. Nil: everybody may read everything.
	Check func(r *http.Request, a *auth.Attributes) error
	// Origins are those of other servers, such as "https://dashboard.example.com", whose pages may open WebSockets.
	Origins []string
	// Self answers what senders of requests ask about themselves; nil: everybody may read everything.
	Self Self
	// AcquireList is called before a list, an object of more than 64 KiB or an OpenAPI document is sent, and release after
	// it: each keeps memory while its client reads. ok is false if too many are being sent. Nil: there is no limit.
	AcquireList func(ctx context.Context, address string) (release func(), ok bool)
	Version     string // of the program
	// Ready returns why the bus was not read yet up to its end at the start; nil: it was. Until then, nothing is said to
	// be absent of which the copy has no event, and there is no discovery. It may be nil.
	Ready func() error
	// Metrics counts requests; nil: they are not counted. Exported serves /metrics; nil: there is none.
	Metrics  *Metrics
	Exported http.Handler
	Log      *zap.Logger
}

// Self answers what the sender of a request asks about itself. Errors are those of the API.
type Self interface {
	User(r *http.Request) (*auth.User, error)
	Review(r *http.Request, a *auth.Attributes) (authorizationv1.SubjectAccessReviewStatus, error)
	Rules(r *http.Request, cluster, namespace string) (authorizationv1.SubjectRulesReviewStatus, error)
}

// Server is the handler of all paths.
type Server struct {
	Options
	now      func() time.Time
	rechecks rechecks
	limits   limits
	recent   *recent
	defined  definitionCache
	// documents bounds the OpenAPI documents that are made at a time: they take much memory.
	documents chan struct{}
}

// New returns a server.
func New(o Options) *Server {
	if o.Self == nil {
		o.Self = auth.Everybody{}
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	return &Server{
		Options: o, now: time.Now, rechecks: standardRechecks, limits: standardLimits,
		recent:  &recent{store: o.Mirror.Store(), known: map[stretchKey]*stretch{}, order: linked.New()},
		defined: definitionCache{lru.NewLRUExpireCache(cachedDefinitions)}, documents: make(chan struct{}, 2),
	}
}

// view is what the prefix of a path selects.
type view struct {
	cluster string
	past    string // the text behind /at/; "": the present
	at      history.Point
}

type request struct {
	*http.Request
	view
	kind       *kind
	resource   *mirror.Resource
	namespace  string
	within     string // the namespace that the path, or the field selector, limits the request to; "": it is not limited
	name       string
	attributes auth.Attributes
	include    metav1.IncludeObjectPolicy // of the rows of tables
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isProbe(r.URL.Path) { // a kubelet has no credentials
		s.probe(w, r.URL.Path)
		return
	}
	c := &countingWriter{ResponseWriter: w, verb: "other", time: s.limits.write}
	defer s.Metrics.count(c)
	defer c.extend() // what ends the answer is sent after this
	var err error
	switch r.Method {
	case http.MethodGet:
		c.verb = "get"
		err = s.serve(c, r)
	case http.MethodPost:
		err = s.create(c, r)
	default:
		err = notAllowed(r.Method)
	}
	if err != nil {
		s.fail(c, err)
	}
}

func isProbe(path string) bool { return path == "/healthz" || path == "/livez" || path == "/readyz" }

func (s *Server) probe(w http.ResponseWriter, path string) {
	if path == "/readyz" {
		if err := s.Ready(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ok")
}

func (s *Server) serve(w *countingWriter, r *http.Request) error {
	v, path, err := s.parseView(r.URL.Path)
	if err != nil {
		return err
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if err := impersonates(r); err != nil {
		if _, ok := targetOf(parts); !ok { // kubectl shows errors of discovery only as text
			http.Error(w, err.Error(), http.StatusForbidden)
			return nil
		}
		return err
	}
	if t, ok := targetOf(parts); ok {
		return s.serveResource(w, r, v, &t)
	}
	if err := s.check(r, &auth.Attributes{Cluster: v.cluster, Verb: "get", Path: path}); err != nil {
		return err
	}
	switch {
	case isProbe(path): // below a prefix, where dashboards look whether a cluster answers
		s.probe(w, path)
	case path == "/version":
		s.answer(w, version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.0-kubebridge+" + s.Version})
	case path == "/metrics" && s.Exported != nil:
		s.Exported.ServeHTTP(w, r)
	case path == openAPI || strings.HasPrefix(path, openAPI+"/"):
		if err := s.unread("discovery"); err != nil {
			return err
		}
		return s.serveOpenAPI(w, r, v, path)
	case isDiscovery(parts):
		if err := s.unread("discovery"); err != nil {
			return err
		}
		s.discovery(w, r, v, parts)
	default:
		return notFound(r.URL.Path)
	}
	return nil
}

// parseView reads the prefixes /clusters/<name> and /at/<time or resourceVersion> of a path.
func (s *Server) parseView(path string) (v view, rest string, err error) {
	v.cluster = s.Cluster
	for {
		prefix, after, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		value, next, _ := strings.Cut(after, "/")
		switch {
		case prefix == "clusters" && value != "":
			v.cluster = value
		case prefix == "at" && value != "":
			if v.at, err = history.ParsePoint(value); err != nil {
				return v, "", apierrors.NewBadRequest(fmt.Sprintf("/at/%s: write a time such as 2026-03-14T09:26:00Z, a resourceVersion, or one with its epoch such as e2:12345", value))
			}
			v.past = value
			if now := s.now(); v.at.Time.After(now) { // what is served now may not be what is then
				return v, "", apierrors.NewTimeoutError(fmt.Sprintf("/at/%s is later than now, %s", value, stamp(now)), 0)
			}
			if until := s.Mirror.Until(); v.at.Time.After(until) { // resources that are published by then may not be known
				return v, "", notRead(value, until)
			}
		default:
			return v, path, nil
		}
		path = "/" + next
	}
}

func (s *Server) serveResource(w *countingWriter, r *http.Request, v view, t *target) error {
	q := &request{Request: r, view: v, namespace: t.namespace, within: t.namespace, name: t.name}
	var o *options
	var wrong error // in the query: shown to users who may read the resource
	if q.name == "" {
		o, wrong = parseOptions(q)
	}
	if wrong == nil {
		wrong = q.parseInclude()
	}
	q.attributes = t.attributes(v, o)
	w.verb = q.attributes.Verb
	if err := s.check(r, &q.attributes); err != nil {
		return err
	}
	switch {
	case t.subresource != "":
		gr := t.groupResource()
		e := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", gr, q.name, "", 0, false)
		e.ErrStatus.Message = fmt.Sprintf("%s of %s %q: subresources are not on the bus. Ask the cluster", t.subresource, gr, q.name)
		return e
	case reviewOf(t) != nil:
		return apierrors.NewMethodNotSupported(t.groupResource(), q.attributes.Verb)
	case wrong != nil:
		return wrong
	}
	var err error
	if o != nil && o.ofOneObject(t) {
		if done, err := s.noEvents(w, q, o, t); done || err != nil {
			return err
		}
	}
	if q.kind, err = s.kindOf(v, t.GroupVersion, t.resource); err != nil {
		return err
	}
	if q.kind == nil || q.namespace != "" && !q.kind.Namespaced {
		return notFound(r.URL.Path)
	}
	q.resource = q.kind.resource.For(q.sees)
	if q.name != "" {
		return s.get(w, q)
	}
	if err := o.find(q.kind); err != nil {
		return err
	}
	q.within = o.namespace
	if o.Watch {
		return s.watch(w, q, o)
	}
	return s.list(w, q, o)
}

// position returns the position that a request without a resourceVersion sees, and warnings about it.
func (s *Server) position(q *request) (at store.Position, warnings []string, err error) {
	r := q.resource
	switch {
	case q.past == "":
		at, err = r.Latest()
		if r.Closed && q.within != "" {
			err = notPublished(q)
		}
		if err != nil {
			return at, nil, s.failed(q, err)
		}
		warnings = append(warnings, fmt.Sprintf("%s is complete as of resourceVersion %d; the last event of it is of %s", r.ID.Name, at.Version, stamp(r.Time)))
		if gap := r.Gap(); gap != "" {
			warnings = append(warnings, "a gap is open, later changes are missing: "+gap)
		}
	case q.at.RV != 0:
		if at, err = r.AtVersion(q.at.RV, q.at.Epoch); err != nil {
			return at, nil, s.failed(q, err)
		}
	default:
		p, err := s.Mirror.AtTime(r, q.at.Time)
		if err != nil {
			return at, nil, s.failed(q, err)
		}
		at = p.At
		warnings = append(warnings, fmt.Sprintf("%s at %s is as of resourceVersion %d, which was complete at %s", r.ID.Name, q.past, at.Version, stamp(p.Since)))
		if q.at.Time.After(r.Time) && !r.Time.IsZero() {
			warnings = append(warnings, fmt.Sprintf("the bridge has published no event of it since %s: changes that it publishes late are missing", stamp(r.Time)))
		}
		if p.Gap != "" {
			warnings = append(warnings, "a gap was open, changes before that time are missing: "+p.Gap)
		}
	}
	if err := s.covered(q, at); err != nil {
		return at, nil, err
	}
	return at, q.warningsAt(at, warnings...), nil
}

// warningsAt returns warnings: as of when the answer is, or what is said instead, and what the states of the era leave
// out.
func (q *request) warningsAt(at store.Position, instead ...string) []string {
	if len(instead) == 0 {
		instead = []string{fmt.Sprintf("%s as of resourceVersion %d", q.resource.ID.Name, at.Version)}
	}
	return append(instead, q.resource.Notes(at.Era, q.sees)...)
}

// notOlder returns the position that a request sees, which must be that of a resourceVersion or later; 0: any. It waits
// as [Server.reach] does.
func (s *Server) notOlder(q *request, version uint64) (at store.Position, warnings []string, err error) {
	if version != 0 {
		if err := s.reach(q.Context(), q, version); err != nil {
			return at, nil, err
		}
	}
	at, warnings, err = s.position(q)
	if err == nil && version > at.Version {
		err = q.laterThanPast(version)
	}
	return at, warnings, err
}

// laterThanPast is the answer to a resourceVersion that the past of a path does not have.
func (q *request) laterThanPast(version uint64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("resourceVersion %d is later than /at/%s", version, q.past))
}

// covered returns an error if a request is limited to a namespace that was not published at a position: an empty answer
// would be wrong. It is never a 404, which clients take for a deletion.
func (s *Server) covered(q *request, at store.Position) error {
	switch {
	case q.within == "" || !q.kind.Namespaced || q.resource.Covers(q.within, at.Era):
		return nil
	case q.past == "" && at.Era == q.resource.Served.Era:
		return s.failed(q, notPublished(q))
	}
	return s.failed(q, fmt.Errorf("%w: at resourceVersion %d the bridge did not publish %s of namespace %q", mirror.ErrExpired, at.Version, q.resource.ID.Name, q.within))
}

// notPublished is the error for a namespace of which no collection is open, or that the collections leave out.
func notPublished(q *request) error {
	return fmt.Errorf("%w: the bridge does not publish it for namespace %q", mirror.ErrIncomplete, q.within)
}

// sees reports whether the client may know of a namespace.
func (q *request) sees(namespace string) bool { return q.namespace == "" || q.namespace == namespace }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// notRead is the answer about a time that is later than the time up to which the bus was read.
func notRead(at string, until time.Time) error {
	known := "the bus was not read to its end"
	if !until.IsZero() {
		known = "what was published is known up to " + stamp(until)
	}
	return apierrors.NewTimeoutError(fmt.Sprintf("/at/%s is not read yet: %s", at, known), 0)
}

// maxWarnings is the number of warnings of one answer. Some clients and proxies refuse answers with more than 100
// headers.
const maxWarnings = 16

// warn adds warnings to the header of an answer (RFC 7234, section 5.5; kubectl prints them).
func warn(w http.ResponseWriter, warnings []string) {
	if more := len(warnings) - maxWarnings; more > 0 {
		warnings = append(warnings[:maxWarnings:maxWarnings], fmt.Sprintf("%d more warnings are left out", more))
	}
	for _, text := range warnings {
		text = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, text)
		w.Header().Add("Warning", `299 - "`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)+`"`)
	}
}

// failed turns an error of the mirror into one of the API.
func (s *Server) failed(q *request, err error) error {
	gr := q.kind.groupResource()
	switch {
	case errors.As(err, new(apierrors.APIStatus)):
		return err
	case errors.Is(err, mirror.ErrExpired), errors.Is(err, store.ErrTrimmed):
		return apierrors.NewResourceExpired(err.Error())
	case errors.Is(err, mirror.ErrAbsent):
		e := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", gr, "", err.Error(), 0, false)
		e.ErrStatus.Message = fmt.Sprintf("%s: %v", gr, err)
		return e
	case errors.Is(err, mirror.ErrTooNew):
		e := apierrors.NewTimeoutError(err.Error(), 1)
		e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
		return e
	case errors.Is(err, mirror.ErrUnread):
		return apierrors.NewTimeoutError(err.Error(), 0)
	case errors.Is(err, mirror.ErrIncomplete):
		e := apierrors.NewServiceUnavailable(fmt.Sprintf("%s is %v", gr, err))
		// Without Retry-After: with it, client-go would hide the reason from kubectl's users for a minute.
		e.ErrStatus.Details = &metav1.StatusDetails{Group: gr.Group, Kind: gr.Resource}
		return e
	case errors.Is(err, context.Canceled): // the client is gone, or bridge serve ends
		return apierrors.NewTimeoutError("the request was cancelled", 0)
	}
	return apierrors.NewInternalError(err)
}

func notAllowed(method string) error {
	e := apierrors.NewMethodNotSupported(schema.GroupResource{}, strings.ToLower(method))
	e.ErrStatus.Message = method + " is not supported: this is a copy of the cluster, read from the bus, and it can only be read. Send writes to the cluster"
	return e
}

func notFound(path string) error {
	e := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, true)
	e.ErrStatus.Message = "the server could not find the requested resource: the bus has no events of " + path
	return e
}

// unread returns the answer to a request for what the copy may not have until the bus was read; nil: it was.
func (s *Server) unread(what string) error {
	if err := s.Ready(); err != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("%s is not complete: %v", what, err))
	}
	return nil
}

func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	switch {
	case errors.As(err, &known):
	case errors.Is(err, store.ErrTrimmed): // while a watch was catching up
		known = apierrors.NewResourceExpired(err.Error())
	default:
		known = apierrors.NewInternalError(err)
	}
	st := known.Status()
	st.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return st
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	st := statusOf(err)
	if st.Code == http.StatusInternalServerError {
		s.Log.Error("request failed", zap.Error(err))
	}
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(st.Code))
	s.encode(w, st)
}

func (s *Server) answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	s.encode(w, value)
}

// encode writes the rest of an answer. The client may be gone.
func (s *Server) encode(w http.ResponseWriter, value any) {
	if err := json.NewEncoder(w).Encode(value); err != nil {
		s.Log.Debug("answer not written", zap.Error(err))
	}
}

// reach waits until a resource has reached a resourceVersion, at most tooNewWait.
func (s *Server) reach(ctx context.Context, q *request, version uint64) error {
	ctx, cancel := context.WithTimeout(ctx, tooNewWait)
	defer cancel()
	for {
		committed := s.Mirror.Commits()
		q.resource = s.Mirror.Resource(q.resource.ID).For(q.sees)
		if q.past != "" || q.resource.Served.Version >= version {
			return nil
		}
		select {
		case <-committed:
		case <-ctx.Done():
			return s.failed(q, fmt.Errorf("%w: %d, current: %d", mirror.ErrTooNew, version, q.resource.Served.Version))
		}
	}
}
