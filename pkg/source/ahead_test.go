package source

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// While a page is handed on the next is asked for, and no longer when nobody wants
// it.
func TestNextPageIsReadMeanwhile(t *testing.T) {
	asked, left := make(chan struct{}), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continue") == "" {
			pageOf("9", "more", item("a", "1"), item("b", "2"))(w, r)
			return
		}
		close(asked)
		<-r.Context().Done() // it never answers
		close(left)
	}))
	defer srv.Close()
	enough := errors.New("enough")
	told := 0
	handler := HandlerFunc(func(ctx context.Context, _ Signal) error {
		if told++; told == 1 {
			return nil
		}
		select {
		case <-asked:
			return enough
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), pageTimeout/4)
	defer cancel()
	col := NewCollection(Options{Client: newClient(t, &rest.Config{Host: srv.URL}), Target: configMaps(event.Collection{}), Handler: handler})
	if _, err := col.Survey(ctx, handler); !errors.Is(err, enough) || told != 2 {
		t.Errorf("told of %d objects, %v", told, err)
	}
	<-left
}
