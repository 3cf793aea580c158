package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// changingCluster is a discovery stub whose CRDs and APIServices can be watched.
type changingCluster struct {
	*discoveryStub
	forbidden bool          // CRDs and APIServices may not be read
	down      chan struct{} // not nil: every answer is 503 until it is closed

	events chan string // frames for the watch of CRDs

	mu     sync.Mutex
	rounds []time.Time
	rv     int // of CRDs and APIServices
}

func newChangingCluster() *changingCluster {
	return &changingCluster{discoveryStub: clusterOf(true), events: make(chan string), rv: 5}
}

func (c *changingCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if c.down != nil {
		select {
		case <-c.down:
		default:
			status(http.StatusServiceUnavailable, "ServiceUnavailable")(w, r)
			return
		}
	}
	crds := strings.HasSuffix(r.URL.Path, "/apiextensions.k8s.io/v1/customresourcedefinitions")
	services := strings.HasSuffix(r.URL.Path, "/apiregistration.k8s.io/v1/apiservices")
	switch {
	case !crds && !services:
		if strings.Trim(r.URL.Path, "/") == "apis" {
			c.mu.Lock()
			c.rounds = append(c.rounds, time.Now())
			c.mu.Unlock()
		}
		c.discoveryStub.ServeHTTP(w, r)
	case c.forbidden:
		status(http.StatusForbidden, "Forbidden")(w, r)
	case r.URL.Query().Get("limit") == "1": // a probe
		pageOf("99", "")(w, r)
	case r.URL.Query().Get("watch") != "true":
		pageOf(c.version(), "")(w, r)
	case services || r.URL.Query().Get("sendInitialEvents") == "true":
		open(fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"X","apiVersion":"v1","metadata":{"resourceVersion":%q,"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", c.version()))(w, r)
	default:
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case e := <-c.events:
				_, _ = w.Write([]byte(e))
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

func (c *changingCluster) version() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.rv)
}

// crd makes the watch of CRDs report a change.
func (c *changingCluster) crd(kind, name string) {
	c.mu.Lock()
	c.rv++
	c.mu.Unlock()
	c.events <- frame(kind, name, c.version())
}

func (c *changingCluster) serves(groups ...groupVersion) {
	c.discoveryStub.mu.Lock()
	defer c.discoveryStub.mu.Unlock()
	c.groups = groups
}

// since is how many rounds of discovery there were.
func (c *changingCluster) since(t time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(c.rounds), func(r time.Time) bool { return r.Before(t) }))
}

// following is a WatchCatalog under way. Its fields may be read at rest.
type following struct {
	catalogs []*discovery.Catalog
	at       []time.Time
	troubles []string
}

func follow(t *testing.T, c *changingCluster) *following {
	f := &following{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	client := inMemory(t, c)
	go func() {
		done <- client.WatchCatalog(ctx,
			func(c *discovery.Catalog) { f.catalogs, f.at = append(f.catalogs, c), append(f.at, time.Now()) },
			func(err error) { f.troubles = append(f.troubles, fmt.Sprint(err)) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("WatchCatalog returned %v", err)
		}
	})
	return f
}

var cronTabs = groupVersion{"stable.example.com", "v1", []metav1.APIResource{{Name: "crontabs", SingularName: "crontab", Kind: "CronTab", Namespaced: true, Verbs: readable}}}

// A CRD that is installed, changed or deleted is reported within five seconds, and
// once, though discovery trails it.
func TestWatchCatalogSeesCRDs(t *testing.T) {
	for _, lag := range []time.Duration{0, 300 * time.Millisecond, 1500 * time.Millisecond, 3900 * time.Millisecond} {
		t.Run(lag.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChangingCluster()
				f := follow(t, c)
				pass(25 * time.Second)
				if len(f.catalogs) != 1 {
					t.Fatalf("%d catalogs at first", len(f.catalogs))
				}
				before := c.groups
				other := cronTabs
				other.resources = slices.Clone(other.resources)
				other.resources[0].Kind = "OtherKind"
				for i, step := range []struct {
					groups []groupVersion
					kind   string
				}{{append(slices.Clone(before), cronTabs), "CronTab"}, {append(slices.Clone(before), other), "OtherKind"}, {before, ""}} {
					begin := time.Now()
					c.crd("MODIFIED", "crontabs")
					time.Sleep(lag)
					c.serves(step.groups...)
					pass(5*time.Second - lag)
					if len(f.catalogs) != i+2 {
						t.Fatalf("step %d: %d catalogs", i, len(f.catalogs))
					}
					got, err := f.catalogs[i+1].Find(discovery.Parse("crontabs"))
					if got.Kind != step.kind || (step.kind == "") != errors.Is(err, discovery.ErrNoResource) {
						t.Errorf("step %d: got %+v, %v", i, got, err)
					}
					if n := c.since(begin); n > 7 {
						t.Errorf("step %d: the server was asked %d times", i, n)
					}
				}
				pass(4 * time.Minute) // the watches of this server have no timeout
				if len(f.catalogs) != 4 || len(f.troubles) != 0 {
					t.Errorf("afterwards: %d catalogs, troubles %v", len(f.catalogs), f.troubles)
				}
			})
		})
	}
}

// The installation of hundreds of CRDs must not cause as many rounds of discovery.
func TestWatchCatalogBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChangingCluster()
		f := follow(t, c)
		pass(25 * time.Second)
		begin := time.Now()
		for i := range 500 {
			c.crd("ADDED", fmt.Sprint("crd", i))
			time.Sleep(10 * time.Millisecond)
		}
		c.serves(append(c.groups, cronTabs)...)
		pass(5 * time.Second)
		if n := c.since(begin); n < 10 || n > 30 {
			t.Errorf("the server was asked %d times", n)
		}
		if len(f.catalogs) != 2 {
			t.Errorf("%d catalogs", len(f.catalogs))
		}
	})
}

// Without permission to watch CRDs, changes are still found by periodic discovery, and the bridge can report that it polls.
func TestWatchCatalogWithoutPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChangingCluster()
		c.forbidden = true
		f := follow(t, c)
		pass(10 * time.Second)
		if len(f.catalogs) != 1 {
			t.Fatalf("%d catalogs at first", len(f.catalogs))
		}
		if last := f.troubles[len(f.troubles)-1]; !strings.Contains(last, "customresourcedefinitions: list: the stub says Forbidden") || !strings.Contains(last, "apiservices: ") {
			t.Errorf("troubles are %q", last)
		}
		begin := time.Now()
		c.serves(append(c.groups, cronTabs)...)
		pass(37 * time.Second)
		if len(f.catalogs) != 2 {
			t.Fatalf("%d catalogs", len(f.catalogs))
		}
		troubles := len(f.troubles)
		pass(10*time.Minute - 37*time.Second)
		if n := c.since(begin); n < 15 || n > 25 {
			t.Errorf("the server was asked %d times in ten minutes", n)
		}
		if len(f.troubles) != troubles {
			t.Errorf("the same trouble was reported again: %q", f.troubles)
		}
	})
}

// An unavailable server is retried until it answers. In the meantime its resources stay in the catalog.
func TestWatchCatalogServerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChangingCluster()
		c.down = make(chan struct{})
		f := follow(t, c)
		pass(5 * time.Minute)
		if len(f.catalogs) != 0 {
			t.Errorf("%d catalogs", len(f.catalogs))
		}
		if last := f.troubles[len(f.troubles)-1]; !strings.Contains(last, "discovery: ask the server what it serves") {
			t.Errorf("troubles are %q", last)
		}
		close(c.down)
		pass(8 * time.Second)
		if len(f.catalogs) != 1 {
			t.Errorf("%d catalogs", len(f.catalogs))
		}
		pass(time.Minute)
		if last := f.troubles[len(f.troubles)-1]; last != "<nil>" {
			t.Errorf("troubles are %q", last)
		}
	})
}

// A group whose API service goes down is reported as unknown, not as gone.
func TestWatchCatalogUnknownGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChangingCluster()
		f := follow(t, c)
		pass(25 * time.Second)
		c.discoveryStub.mu.Lock()
		c.broken = "apps/v1"
		c.discoveryStub.mu.Unlock()
		pass(40 * time.Second)
		if len(f.catalogs) != 2 || f.catalogs[1].Known("apps") || !f.catalogs[0].Known("apps") {
			t.Fatalf("%d catalogs", len(f.catalogs))
		}
	})
}
