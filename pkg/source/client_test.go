package source

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
)

func TestClusterUID(t *testing.T) {
	const uid = "0b8c2f6e-5d0e-4c39-9a6c-0f7e3f1f5d11"
	for _, c := range []struct {
		name string
		a    answer
		uid  string
		want string // in the error
	}{
		{"there", text200(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"` + uid + `"}}`), uid, ""},
		{"no uid", text200(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system"}}`), "", "it has no UID"},
		{"no object", text200(`[]`), "", "where a Kubernetes object should be"},
		{"forbidden", status(http.StatusForbidden, "Forbidden"), "", "the stub says Forbidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
				client := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/api/v1/namespaces/kube-system" {
						t.Errorf("asked for %s", r.URL.Path)
					}
					w.Header().Set("Content-Type", "application/json")
					c.a(w, r)
				}))
				got, err := client.ClusterUID(t.Context())
				if got != c.uid || (err == nil) != (c.want == "") {
					t.Fatalf("got %q, %v", got, err)
				}
				if err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "kube-system")) {
					t.Errorf("got %v, want %q", err, c.want)
				}
			})
		})
	}
}

// Users without permission to read the cluster's UID can configure it. If the server shows its UID, it must be the configured
// one.
func TestExpectedCluster(t *testing.T) {
	shows := text200(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"1"}}`)
	for _, c := range []struct {
		name    string
		given   string
		a       answer
		foreign bool
		want    string // in any other error
	}{
		{"not shown", "1", status(http.StatusForbidden, "Forbidden"), false, ""},
		{"no such namespace", "1", notThere("namespaces", "kube-system"), false, ""},
		{"the same", "1", shows, false, ""},
		{"another", "2", shows, true, ""},
		{"no answer", "1", status(http.StatusInternalServerError, "InternalError"), false, "the stub says InternalError"},
		{"nothing expected", "", status(http.StatusForbidden, "Forbidden"), false, "the stub says Forbidden"},
		{"nothing expected and no such namespace", "", notThere("namespaces", "kube-system"), false, "set kubernetes.clusterUID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
				client := serve(http.HandlerFunc(c.a))
				client.ExpectCluster(c.given)
				uid, err := client.ClusterUID(t.Context())
				errs := []error{err}
				if c.given != "" {
					errs = append(errs, client.SameCluster(t.Context(), time.Now()))
				}
				for _, err := range errs {
					switch {
					case c.foreign:
						if !errors.Is(err, ErrOtherCluster) {
							t.Errorf("got %v", err)
						}
					case c.want != "":
						if err == nil || !strings.Contains(err.Error(), c.want) {
							t.Errorf("got %v, want %q", err, c.want)
						}
					case err != nil || uid != c.given:
						t.Errorf("got %q, %v", uid, err)
					}
				}
			})
		})
	}
}

// A cluster that had the namespace kube-system and has lost it may be another one: in its first seconds a new cluster has none.
func TestExpectedClusterLosesItsNamespace(t *testing.T) {
	var lost atomic.Bool
	client := newClient(t, inMemoryConfig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if lost.Load() {
			notThere("namespaces", "kube-system")(w, r)
			return
		}
		text200(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"1"}}`)(w, r)
	})))
	client.ExpectCluster("1")
	if _, err := client.ClusterUID(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost.Store(true)
	if err := client.SameCluster(t.Context(), time.Now()); err == nil {
		t.Error("a cluster without the namespace counts as the same")
	}
}

// The timeout and the rate limits of a client configuration are meant for short requests. They would cut off watches, or delay
// hundreds of them.
func TestClientIgnoresTimeoutAndRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, answers(50, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				t.Error("the watch was cut off")
			case <-time.After(2 * time.Minute):
			}
			_, _ = fmt.Fprint(w, bookmark("11"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		cfg := inMemoryConfig(t, s)
		cfg.Timeout, cfg.QPS, cfg.Burst = time.Second, 0.01, 1
		client := newClient(t, cfg)
		if cfg.Timeout != time.Second || cfg.QPS != 0.01 {
			t.Error("the caller's configuration was changed")
		}
		begin := time.Now()
		var all []*running
		for i := range 50 {
			target := configMaps(event.Collection{LabelSelector: fmt.Sprint("n=", i)})
			all = append(all, run(t, Options{Client: client, Target: target}, event.Position{RV: "10"}, nil))
		}
		for _, w := range s.await(50, true) {
			if d := w.at.Sub(begin); d > 0 {
				t.Errorf("a watch was held back for %s", d)
			}
		}
		pass(3 * time.Minute)
		for _, r := range all {
			r.stop()
			compare(t, r.received(), []string{"progress 11 >10"})
		}
	})
}

func TestNewClientRefuses(t *testing.T) {
	for name, cfg := range map[string]*rest.Config{
		"a file that is not there":   {Host: "https://stub", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere/ca.crt"}},
		"a certificate that is none": {Host: "https://stub", TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x"), KeyData: []byte("y")}},
		"a host that is none":        {Host: "https://stub:port"},
	} {
		if _, err := NewClient(cfg); err == nil || !strings.Contains(err.Error(), cfg.Host) {
			t.Errorf("%s: got %v, want an error that names %s", name, err, cfg.Host)
		}
	}
}
