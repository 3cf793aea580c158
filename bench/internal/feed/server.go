package feed

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	writeBytes = 64 << 10 // a watch writes its buffer when it has this size, or when no event is ready
	pageBytes  = 512 << 10
)

// Server serves resources. Make it with [New].
type Server struct {
	resources []*Resource
	byPath    map[string]*Resource // "/api/v1/pods"
	rate      float64              // events per second, of each resource
	bookmarks time.Duration

	started chan struct{}
	once    sync.Once
	begun   time.Time // when started was closed

	oldest  atomic.Uint64 // the lowest resourceVersion that is served
	watches atomic.Int64
	opened  atomic.Int64 // when the latest watch was opened, Unix time in nanoseconds
	lists   atomic.Int64
	mu      sync.Mutex
	drop    chan struct{} // Cut closes it, and replaces it
}

// Options of a [Server].
type Options struct {
	Resources []*Resource
	Rate      float64       // events per second of all resources together; 0: all events happen at Start
	Bookmarks time.Duration // interval between two bookmarks; 0: one minute
}

// New returns a server. No event happens before Start.
func New(o Options) (*Server, error) {
	s := &Server{
		resources: o.Resources, byPath: map[string]*Resource{}, bookmarks: o.Bookmarks,
		started: make(chan struct{}), drop: make(chan struct{}),
	}
	if s.bookmarks == 0 {
		s.bookmarks = time.Minute
	}
	busy := 0
	for _, r := range o.Resources {
		if err := r.prepare(); err != nil {
			return nil, err
		}
		s.byPath[r.path()] = r
		if r.Events > 0 {
			busy++
		}
	}
	if busy > 0 {
		s.rate = o.Rate / float64(busy)
	}
	for _, r := range o.Resources {
		r.rate = s.rate
	}
	return s, nil
}

func (r *Resource) path() string {
	if r.Group == "" {
		return "/api/" + r.Version + "/" + r.Plural
	}
	return "/apis/" + r.Group + "/" + r.Version + "/" + r.Plural
}

// Start starts the events. Further calls have no effect.
func (s *Server) Start() {
	s.once.Do(func() {
		s.begun = time.Now()
		for _, r := range s.resources {
			r.begun = s.begun
		}
		close(s.started)
	})
}

// head returns how many events of a resource have happened. It does not depend on
// watches.
func (s *Server) head(r *Resource) uint64 {
	select {
	case <-s.started:
	default:
		return 0
	}
	if s.rate == 0 {
		return r.Events
	}
	return min(r.Events, uint64(time.Since(s.begun).Seconds()*s.rate))
}

// Compact discards the history before now; a client that resumes from an earlier resourceVersion gets a 410.
func (s *Server) Compact() {
	for _, r := range s.resources {
		if rv := baseRV + s.head(r); rv > s.oldest.Load() {
			s.oldest.Store(rv)
		}
	}
}

// Cut breaks all watches.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.drop)
	s.drop = make(chan struct{})
}

// Stats counts the requests of clients, except requests for metadata only.
type Stats struct {
	Watches int64 // open watches
	Lists   int64 // pages served
	Opened  int64 // when the latest watch was opened, Unix time in nanoseconds
}

// ServeHTTP serves the API, and the commands of the benchmark itself under /_bench/.
func (s *Server) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	switch path := strings.TrimSuffix(q.URL.Path, "/"); path {
	case "/_bench/start":
		s.Start()
	case "/_bench/compact":
		s.Compact()
	case "/_bench/cut":
		s.Cut()
	case "/_bench/stats":
		writeJSON(w, Stats{s.watches.Load(), s.lists.Load(), s.opened.Load()})
	case "/api/v1/namespaces/kube-system":
		writeJSON(w, object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object{
			"name": "kube-system", "uid": "00000000-0000-4000-8000-00000000beef", "resourceVersion": "10",
		}})
	default:
		if r := s.byPath[path]; r != nil {
			s.serve(w, q, r)
			return
		}
		s.discover(w, q, path)
	}
}

func (s *Server) serve(w http.ResponseWriter, q *http.Request, r *Resource) {
	switch watch := q.URL.Query().Get("watch"); {
	case q.Method != http.MethodGet:
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "only reading is served")
	case watch == "1" || watch == "true":
		s.watch(w, q, r)
	default:
		s.list(w, q, r)
	}
}

// page is the content of a continue token: the list's resourceVersion, and the place
// of the next object.
type page struct{ RV, From uint64 }

func (s *Server) list(w http.ResponseWriter, q *http.Request, r *Resource) {
	v := q.URL.Query()
	limit, _ := strconv.Atoi(v.Get("limit"))
	p := page{RV: baseRV + s.head(r)}
	if token := v.Get("continue"); token != "" {
		b, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || json.Unmarshal(b, &p) != nil {
			fail(w, http.StatusBadRequest, "BadRequest", "continue key is not valid")
			return
		}
	} else if v.Get("resourceVersionMatch") == "Exact" {
		p.RV, _ = strconv.ParseUint(v.Get("resourceVersion"), 10, 64)
	}
	if p.RV < s.oldest.Load() || p.RV < baseRV {
		fail(w, http.StatusGone, "Expired", "The provided continue parameter or resourceVersion is too old")
		return
	}
	f, kind, apiVersion := listed, r.Kind+"List", r.apiVersion()
	if r.Custom {
		f = whole
	}
	if strings.Contains(q.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		f, kind, apiVersion = partial, "PartialObjectMetadataList", "meta.k8s.io/v1"
	} else {
		s.lists.Add(1)
	}
	head := p.RV - baseRV
	total := r.count(head)
	var versions []version
	from := p.From
	for ; from < total && (limit == 0 || len(versions) < limit); from++ {
		if v, ok := r.at(placed(from, total), head); ok {
			versions = append(versions, v)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	buffer := pageBuffers.Get().(*[]byte)
	defer pageBuffers.Put(buffer)
	b := fmt.Appendf((*buffer)[:0], `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"`, kind, apiVersion, p.RV)
	if from < total {
		token, _ := json.Marshal(page{p.RV, from})
		b = fmt.Appendf(b, `,"continue":%q,"remainingItemCount":%d`, base64.RawURLEncoding.EncodeToString(token), total-from)
	}
	b = append(b, `},"items":[`...)
	for i, v := range versions {
		if i > 0 {
			b = append(b, ',')
		}
		if b = r.append(b, v, f); len(b) > pageBytes {
			*buffer = b
			if _, err := w.Write(b); err != nil {
				return
			}
			b = b[:0]
		}
	}
	*buffer = append(b, "]}\n"...)
	_, _ = w.Write(*buffer) // an error means that the client has disconnected
}

// pageBuffers has reusable buffers for pages, because the server must not be the
// bottleneck.
var pageBuffers = sync.Pool{New: func() any { return new([]byte) }}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func status(code int, reason, message string) object {
	return object{
		"kind": "Status", "apiVersion": "v1", "metadata": object{}, "status": "Failure",
		"message": message, "reason": reason, "code": code,
	}
}

func fail(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status(code, reason, message))
}
