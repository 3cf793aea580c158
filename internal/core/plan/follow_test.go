package plan

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const soon = 30 * time.Second // the time after which a hanging test fails

// apiServer serves pods, widgets once they are installed, and namespaces.
type apiServer struct {
	mu        sync.Mutex
	installed bool // widgets are served
	selected  map[string][]string
	history   []moved
	changed   chan struct{} // closed with every change
}

// moved is an object that enters or leaves a selector. Its resourceVersion is its number in the history, starting at
// 1.
type moved struct{ selector, kind, name string }

func newServer() *apiServer {
	return &apiServer{selected: map[string][]string{}, changed: make(chan struct{})}
}

func (s *apiServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *apiServer) enter(selector, name string) {
	s.change(func() {
		s.selected[selector] = append(s.selected[selector], name)
		s.history = append(s.history, moved{selector, "ADDED", name})
	})
}

func (s *apiServer) leave(selector, name string) {
	s.change(func() {
		s.selected[selector] = slices.DeleteFunc(s.selected[selector], func(n string) bool { return n == name })
		s.history = append(s.history, moved{selector, "DELETED", name})
	})
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	installed := s.installed
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	resource := func(group, name, kind string) {
		fmt.Fprintf(w, `{"kind":"APIResourceList","groupVersion":%q,"resources":[{"name":%q,"kind":%q,"namespaced":true,"verbs":["list","watch"]}]}`, group, name, kind)
	}
	switch path := r.URL.Path; {
	case r.URL.Query().Get("sendInitialEvents") != "": // like a server without streamed lists
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case path == "/api":
		fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case path == "/apis" && installed:
		fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"example.com","versions":[{"groupVersion":"example.com/v1","version":"v1"}],"preferredVersion":{"groupVersion":"example.com/v1","version":"v1"}}]}`)
	case path == "/apis":
		fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	case path == "/api/v1":
		resource("v1", "pods", "Pod")
	case path == "/apis/example.com/v1":
		resource("example.com/v1", "widgets", "Widget")
	case strings.HasSuffix(path, "/customresourcedefinitions"), path == "/api/v1/namespaces":
		s.objects(w, r)
	default:
		http.NotFound(w, r)
	}
}

// objects lists or watches namespaces. With selector "" it lists or watches CustomResourceDefinitions.
func (s *apiServer) objects(w http.ResponseWriter, r *http.Request) {
	selector := r.URL.Query().Get("labelSelector")
	body := func(name string, version int) string {
		return fmt.Sprintf(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"uid":"uid-%s","resourceVersion":"%d"}}`, name, name, version)
	}
	if r.URL.Query().Get("watch") == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		var items []string
		for _, n := range s.selected[selector] {
			items = append(items, body(n, 1))
		}
		fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`, len(s.history)+1, strings.Join(items, ","))
		return
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	for {
		s.mu.Lock()
		changed, history := s.changed, s.history
		s.mu.Unlock()
		for ; from <= len(history); from++ {
			if m := history[from-1]; m.selector == selector {
				fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", m.kind, body(m.name, from+1))
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// followed is a running follower, with its reports.
type followed struct {
	*Follower
	t        *testing.T
	plans    chan []string
	rejected chan error
	done     chan error
}

func follow(t *testing.T, s *apiServer, entries []Entry) *followed {
	t.Helper()
	cluster := NewCluster(newClient(t, s.ServeHTTP), quiet)
	f := &followed{t: t, plans: make(chan []string, 1000), rejected: make(chan error, 1000), done: make(chan error, 1)}
	f.Follower = NewFollower(FollowerOptions{
		Cluster: cluster,
		Known:   func(context.Context) ([]Known, error) { return nil, nil },
		Apply: func(_ context.Context, p *Plan, _ []Known) error {
			f.plans <- p.outline()
			return nil
		},
		Rejected: func(err error) { f.rejected <- err },
	})
	f.Set(entries, nil)
	ctx, stop := context.WithCancel(t.Context())
	followsCluster := make(chan error, 1)
	go func() { followsCluster <- cluster.Run(ctx) }()
	go func() { f.done <- f.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-followsCluster; err != nil {
			t.Error(err)
		}
	})
	return f
}

// await waits for a plan with these lines.
func (f *followed) await(want ...string) {
	f.t.Helper()
	var last []string
	for deadline := time.After(soon); ; {
		select {
		case last = <-f.plans:
			if slices.Equal(last, want) {
				return
			}
		case err := <-f.done:
			f.t.Fatalf("it ended: %v", err)
		case <-deadline:
			f.t.Fatalf("the last plan was %q, want %q", last, want)
		}
	}
}

const noWidgets = `wait widgets.example.com: resource "widgets.example.com": the server has no such resource`

// Plans follow the installed resources, the selected namespaces and the configuration. A contradictory configuration
// changes nothing, and its selectors are not used either.
func TestFollower(t *testing.T) {
	server := newServer()
	server.enter("env=prod", "a")
	server.enter("env=dev", "d")
	f := follow(t, server, []Entry{{Resource: "widgets.example.com"}, {Resource: "pods", NamespaceSelector: "env=prod"}})
	f.await("watch pods@a", noWidgets)

	server.enter("env=prod", "b")
	f.await("watch pods@a", "watch pods@b", noWidgets)

	server.change(func() { server.installed = true })
	server.enter("", "widgets.example.com") // the definition of widgets, which is stored under the selector ""
	f.await("watch pods@a", "watch pods@b", "watch widgets.example.com")

	f.Set([]Entry{{Resource: "pods"}, {Resource: "pods"}}, nil)
	select {
	case err := <-f.rejected:
		if !errors.As(err, new(*ConfigError)) {
			t.Errorf("rejected with %v", err)
		}
	case <-time.After(soon):
		t.Fatal("nothing is rejected")
	}
	server.leave("env=prod", "a")
	f.await("watch pods@b", "watch widgets.example.com")

	f.Set([]Entry{{Resource: "pods", NamespaceSelector: "env=dev"}}, nil)
	f.await("watch pods@d")

	f.Replan()
	f.await("watch pods@d")
}

// A contradiction or a missing resource at the start is an error, so that the user sees it at once.
func TestFollowerRefusesToStart(t *testing.T) {
	for _, c := range []struct {
		entries []Entry
		want    any
	}{
		{[]Entry{{Resource: "pods"}, {Resource: "pods"}}, new(*ConfigError)},
		{[]Entry{{Resource: "unicorns", Required: true}}, new(*EnvironmentError)},
	} {
		f := follow(t, newServer(), c.entries)
		select {
		case err := <-f.done:
			if !errors.As(err, c.want) {
				t.Errorf("got %v, want a %T", err, c.want)
			}
		case <-time.After(soon):
			t.Error("it runs")
		}
	}
}

// The test covers the rows of the table of Follower.plan. An entry that contradicts a resource that was installed
// later must not stop the others. A rejected configuration is planned after the contradiction ends.
func TestFollowerPlans(t *testing.T) {
	rejected := 0
	f := NewFollower(FollowerOptions{Cluster: NewCluster(nil, quiet), Rejected: func(error) { rejected++ }})
	plan := func(catalog ...string) []string {
		t.Helper()
		p, err := f.plan(func(c configuration) Plan {
			return Make(c.entries, c.exclude, catalogOf(catalog...), labelled(nil), nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		return p.outline()
	}
	expect := func(what string, got []string, rejections int, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) || rejected != rejections {
			t.Errorf("%s: got %q, rejected %d times; want %q, %d", what, got, rejected, want, rejections)
		}
	}
	f.Set([]Entry{{Resource: "pods"}, {Resource: "events", Namespaces: []string{"a"}}, {Resource: "widgets.example.com", Namespaces: []string{"a"}}}, nil)
	expect("at the start", plan("pods.v1.", "events.v1.", "widgets.v1.example.com"), 0, "watch events@a", "watch pods", "watch widgets.example.com@a")
	clusterScoped := []string{"pods.v1.", "-events.v1.", "-nodes.v1.", "-widgets.v1.example.com"}
	waits := func(name string) string {
		return fmt.Sprintf("wait %s: resource %q: it is cluster-scoped: remove its namespaces: only a change of the configuration helps", name, name)
	}
	expect("another scope", plan(clusterScoped...), 0, "watch pods", waits("events"), waits("widgets.example.com"))
	f.Set([]Entry{{Resource: "nodes", Namespaces: []string{"a"}}}, nil)
	for range 2 {
		expect("edited to a contradiction", plan(clusterScoped...), 1, "watch pods", waits("events"), waits("widgets.example.com"))
	}
	expect("which is over", plan("pods.v1.", "nodes.v1."), 1, "watch nodes@a")
}

// The selectors of a follower that has ended are not followed again because a configuration is set later.
func TestSetAfterTheEnd(t *testing.T) {
	c := NewCluster(nil, nil)
	f := NewFollower(FollowerOptions{Cluster: c})
	entries := []Entry{{Resource: "pods", NamespaceSelector: "team=a"}}
	f.Set(entries, nil)
	if selectors, _ := c.wanted(); !selectors["team=a"] {
		t.Fatalf("the cluster follows %v", selectors)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := f.Run(ended); err != nil {
		t.Fatal(err)
	}
	f.Set(entries, nil)
	if selectors, _ := c.wanted(); len(selectors) > 0 {
		t.Errorf("the cluster follows %v, and nothing needs it", selectors)
	}
}
