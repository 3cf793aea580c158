package feed_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/pkg/source"
)

const crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.a.example.com"

// server is an API server that serves things.a.example.com.
type server struct {
	t testing.TB

	mu        sync.Mutex
	rv        int
	things    map[string]thing // by key
	history   []change
	forgotten int           // a watch from an earlier resourceVersion is answered with 410
	crd       string        // the UID of the definition; "": it does not exist
	guarded   bool          // GETs of things are answered with 403
	streaming func()        // called in the middle of a streamed list; nil: lists are not streamed
	slow      time.Duration // a paged list is answered after that time
	changed   chan struct{} // closed with each change of the fields above
	cut       chan struct{} // closed to end the open watches
	asked     []*url.URL    // lists and watches of things, without probes
	gets      int           // number of GETs of things
	listed    snapshot      // the snapshot for the next page
}

type thing struct {
	key, uid, team string
	rv             int
}

// snapshot has the things at a resourceVersion.
type snapshot struct {
	rv   int
	all  map[string]thing
	keys []string // sorted
}

type change struct {
	rv            int
	before, after thing // the zero value if the thing did not exist
}

func newServer(t testing.TB) *server {
	return &server{t: t, rv: 100, things: map[string]thing{}, crd: "crd-1", changed: make(chan struct{}), cut: make(chan struct{})}
}

// client returns a client of the server.
func (s *server) client() *source.Client {
	s.t.Helper()
	srv := httptest.NewServer(s)
	c, err := source.NewClient(&rest.Config{Host: srv.URL})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		c.Close()
		srv.CloseClientConnections()
		srv.Close()
	})
	return c
}

// do changes the server.
func (s *server) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// write creates or changes things in the namespace shop. It is called within [server.do].
func (s *server) write(team string, names ...string) {
	for _, name := range names {
		s.rv++
		before := s.things[durable.ObjectKey("shop", name)]
		after := thing{durable.ObjectKey("shop", name), cmp.Or(before.uid, fmt.Sprint("uid-", s.rv)), team, s.rv}
		s.things[after.key] = after
		s.history = append(s.history, change{s.rv, before, after})
	}
}

// remove deletes things. It is called within [server.do].
func (s *server) remove(names ...string) {
	for _, name := range names {
		s.rv++
		before := s.things[durable.ObjectKey("shop", name)]
		delete(s.things, before.key)
		s.history = append(s.history, change{rv: s.rv, before: before})
	}
}

// forget makes watches from the past end with 410. It also ends open watches before they see the changes of meanwhile.
func (s *server) forget(meanwhile func()) {
	s.do(func() {
		s.disconnect()
		meanwhile()
		s.forgotten = s.rv
	})
}

// disconnect ends open watches. It is called within [server.do].
func (s *server) disconnect() {
	close(s.cut)
	s.cut = make(chan struct{})
}

// restore restores the things from a backup at a resourceVersion.
func (s *server) restore(rv int) {
	s.do(func() {
		s.things, s.rv, s.forgotten, s.listed = s.at(rv), rv, rv, snapshot{}
		s.history = slices.DeleteFunc(s.history, func(c change) bool { return c.rv > rv })
		s.disconnect()
	})
}

// at returns the things at a resourceVersion. s.mu is held.
func (s *server) at(rv int) map[string]thing {
	all := maps.Clone(s.things)
	for _, c := range slices.Backward(s.history) {
		if c.rv <= rv {
			break
		}
		delete(all, c.after.key)
		if c.before.key != "" {
			all[c.before.key] = c.before
		}
	}
	return all
}

func (o thing) json() string {
	namespace, name, _ := strings.Cut(o.key, "/")
	return fmt.Sprintf(`{"apiVersion":"a.example.com/v1","kind":"Thing","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d","labels":{"team":%q}}}`,
		name, namespace, o.uid, o.rv, o.team)
}

// selects returns a function that reports whether the selectors of a request match a thing.
func selects(q url.Values) func(o thing) bool {
	team, byTeam := strings.CutPrefix(q.Get("labelSelector"), "team=")
	name, byName := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	return func(o thing) bool {
		return o.key != "" && (!byTeam || o.team == team) && (!byName || strings.HasSuffix(o.key, "/"+name))
	}
}

// ServeHTTP implements [http.Handler].
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	defer s.mu.Unlock()
	isList := strings.HasSuffix(r.URL.Path, "/things") // in all namespaces or in shop, in any version
	if isList && q.Get("limit") != "1" {
		s.asked = append(s.asked, r.URL)
	}
	switch {
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		owner(w, "cluster")
	case r.URL.Path == crd && s.crd != "":
		owner(w, s.crd)
	case r.URL.Path == crd:
		status(w, http.StatusNotFound, "NotFound", `{"name":"things.a.example.com","kind":"customresourcedefinitions"}`)
	case strings.HasSuffix(r.URL.Path, "/apiservices"):
		fmt.Fprint(w, `{"kind":"APIServiceList","metadata":{"resourceVersion":"1"},"items":[]}`)
	case s.crd == "":
		http.Error(w, "404 page not found", http.StatusNotFound)
	case !isList:
		s.get(w, r.URL.Path)
	case q.Get("sendInitialEvents") == "true" && s.streaming == nil:
		status(w, http.StatusUnprocessableEntity, "Invalid", "{}")
	case q.Get("sendInitialEvents") == "true":
		s.stream(w, r)
	case q.Get("watch") == "true":
		rv, _ := strconv.Atoi(q.Get("resourceVersion"))
		if rv < s.forgotten {
			status(w, http.StatusGone, "Expired", "{}")
			return
		}
		s.watch(w, r, rv)
	default:
		text, slow := s.list(q), s.slow
		if q.Get("limit") == "1" {
			slow = 0
		}
		s.mu.Unlock() // a client may read the answer late
		select {
		case <-time.After(slow):
		case <-r.Context().Done():
		}
		fmt.Fprint(w, text)
		s.mu.Lock()
	}
}

func owner(w http.ResponseWriter, uid string) {
	fmt.Fprintf(w, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"it","uid":%q}}`, uid)
}

func status(w http.ResponseWriter, code int, reason, details string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the server says %s","reason":%q,"code":%d,"details":%s}`, reason, reason, code, details)
}

func (s *server) get(w http.ResponseWriter, path string) {
	s.gets++
	parts := strings.Split(path, "/")
	namespace, name := parts[len(parts)-3], parts[len(parts)-1]
	switch o, ok := s.things[durable.ObjectKey(namespace, name)]; {
	case s.guarded:
		status(w, http.StatusForbidden, "Forbidden", "{}")
	case ok:
		fmt.Fprint(w, o.json())
	default:
		status(w, http.StatusNotFound, "NotFound", fmt.Sprintf(`{"name":%q,"kind":"things"}`, name))
	}
}

// list returns a page of a list. Its continue token consists of the resourceVersion and the last key.
func (s *server) list(q url.Values) string {
	rv, last := s.rv, ""
	if exact := q.Get("resourceVersion"); exact != "" {
		rv, _ = strconv.Atoi(exact)
	}
	if token := q.Get("continue"); token != "" {
		exact, key, _ := strings.Cut(token, " ")
		rv, _ = strconv.Atoi(exact)
		last = key
	}
	if s.listed.rv != rv {
		all := s.at(rv)
		s.listed = snapshot{rv, all, slices.Sorted(maps.Keys(all))}
	}
	all, selected := s.listed.all, selects(q)
	limit, _ := strconv.Atoi(q.Get("limit"))
	var items []string
	token := ""
	first, _ := slices.BinarySearch(s.listed.keys, last)
	for _, key := range s.listed.keys[first:] {
		if key <= last || !selected(all[key]) {
			continue
		}
		if len(items) == limit {
			token = fmt.Sprint(rv, " ", last)
			break
		}
		items, last = append(items, all[key].json()), key
	}
	more, _ := json.Marshal(token)
	return fmt.Sprintf(`{"apiVersion":"a.example.com/v1","kind":"ThingList","metadata":{"resourceVersion":"%d","continue":%s},"items":[%s]}`, rv, more, strings.Join(items, ","))
}

// stream answers with a streamed list.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	rv, selected := s.rv, selects(r.URL.Query())
	for _, key := range slices.Sorted(maps.Keys(s.things)) {
		if o := s.things[key]; selected(o) {
			frame(w, "ADDED", o.json())
		}
	}
	s.mu.Unlock()
	s.streaming()
	s.mu.Lock()
	s.frames(w, rv, selected)
	frame(w, "BOOKMARK", fmt.Sprintf(`{"apiVersion":"a.example.com/v1","kind":"Thing","metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}`, s.rv))
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, rv int) {
	selected := selects(r.URL.Query())
	cut := s.cut
	for {
		rv = s.frames(w, rv, selected)
		changed := s.changed
		s.mu.Unlock()
		_ = http.NewResponseController(w).Flush()
		ended := false
		select {
		case <-changed:
		case <-cut:
			ended = true
		case <-r.Context().Done():
			ended = true
		}
		s.mu.Lock()
		if ended || cut != s.cut {
			return
		}
	}
}

// frames writes the changes after rv, and returns the resourceVersion that it has reached.
func (s *server) frames(w http.ResponseWriter, rv int, selected func(o thing) bool) int {
	for _, c := range s.history {
		before, after := selected(c.before), selected(c.after)
		switch last := c.before; {
		case c.rv <= rv:
		case before && after:
			frame(w, "MODIFIED", c.after.json())
		case after:
			frame(w, "ADDED", c.after.json())
		case before:
			last.rv = c.rv
			frame(w, "DELETED", last.json())
		}
		rv = max(rv, c.rv)
	}
	return rv
}

func frame(w http.ResponseWriter, kind, object string) {
	fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", kind, object)
}
