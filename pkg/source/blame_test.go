package source

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Which of an error is to blame is known from another request: the resource's conversion webhook, or the server. The probe names the
// webhook, which the watch's own error does not.
func TestErrorsAreBlamed(t *testing.T) {
	initializing := status(http.StatusTooManyRequests, "storage is (re)initializing")
	webhook := status(http.StatusInternalServerError, "conversion webhook failed")
	for _, c := range []struct {
		name     string
		identity answer // once watches fail
		watch    answer
		want     string
		resource bool
		is       error
	}{
		{"a webhook", nil, initializing, "watch: the stub says storage is (re)initializing; probe: the stub says conversion webhook failed", true, nil},
		{"an APIService", nil, status(http.StatusServiceUnavailable, "away"), "watch: the stub says away; probe", true, nil},
		{"the server", status(http.StatusServiceUnavailable, "starting"), initializing, "the stub says starting", false, nil},
		{"credentials", status(http.StatusUnauthorized, "Unauthorized"), status(http.StatusUnauthorized, "Unauthorized"), "the API server does not accept the credentials", false, ErrCredentials},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var broken atomic.Bool
				client := inMemory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					switch isKubeSystem := strings.HasSuffix(r.URL.Path, "/kube-system"); {
					case isKubeSystem && broken.Load() && c.identity != nil:
						c.identity(w, r)
					case isKubeSystem:
						text200(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"1"}}`)(w, r)
					case r.URL.Query().Get("watch") != "":
						broken.Store(true)
						c.watch(w, r)
					default:
						webhook(w, r)
					}
				}))
				if _, err := client.ClusterUID(t.Context()); err != nil {
					t.Fatal(err)
				}
				var last atomic.Pointer[State]
				o := Options{Client: client, Target: configMaps(event.Collection{}), Handler: &recorder{}, OnState: func(s State) {
					if s.Phase == Waiting {
						last.Store(&s)
					}
				}}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = NewCollection(o).Run(ctx, event.Position{RV: "10"})
				}()
				time.Sleep(20 * time.Second)
				cancel()
				<-done
				err := last.Load().Err
				if !strings.Contains(err.Error(), c.want) || errors.As(err, new(*ResourceError)) != c.resource || c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("got %v (%T)", err, err)
				}
			})
		})
	}
}

// An address that begins with http:// leads to a port with TLS: the server says so, and client-go calls it an unknown reason.
func TestPlainRequestToTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	client := newClient(t, &rest.Config{Host: strings.Replace(server.URL, "https", "http", 1)})
	if _, err := client.ClusterUID(t.Context()); err == nil || !strings.Contains(err.Error(), "begin the address of the server in the kubeconfig with https://") {
		t.Errorf("got %v", err)
	}
}
