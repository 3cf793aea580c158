package pipeline

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// A namespace that another cluster does not have is not deleted: its objects would be.
func TestNamespaceIsAbsentInThisClusterOnly(t *testing.T) {
	var cluster atomic.Value
	cluster.Store("1")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/namespaces/kube-system" {
			fmt.Fprintf(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":%q}}`, cluster.Load())
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":"s","kind":"namespaces"}}`)
	}))
	defer server.Close()
	client, err := source.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.ClusterUID(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := newHorizon(client, zap.NewNop(), nil)
	if !h.absent(t.Context(), "s") {
		t.Error("its absence is not proved")
	}
	cluster.Store("2")
	if h.absent(t.Context(), "s") {
		t.Error("another cluster's word is taken for a proof")
	}
}

// A namespace that is deleted while they are listed is not selected at the list's end.
func TestNamespaceDeletedWithinAList(t *testing.T) {
	n := &namespaces{horizon: newHorizon(nil, zap.NewNop(), nil)}
	for _, s := range []source.Signal{
		{Kind: source.ListBegun},
		{Kind: source.Listed, Object: objectAt("", "a", "1", "5", "")},
		{Kind: source.Listed, Object: objectAt("", "b", "2", "6", "")},
		{Kind: source.Deleted, Object: objectAt("", "a", "1", "7", "")},
		{Kind: source.ListEnded, RV: "8", Resume: "8"},
	} {
		if err := n.Handle(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if got := slices.Collect(maps.Keys(n.uids)); !slices.Equal(got, []string{"b"}) {
		t.Errorf("selected are %v", got)
	}
}
