package plan

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/source"
)

func quiet(string, error) {}

// newClient returns a client of a server that answers with handle.
func newClient(t *testing.T, handle http.HandlerFunc) *source.Client {
	t.Helper()
	server := httptest.NewServer(handle)
	client, err := source.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.CloseClientConnections()
		server.Close()
	})
	return client
}

// A namespace must not count as absent because another cluster does not have it: its objects would be published as
// deleted.
func TestNamespaceIsAbsentInThisClusterOnly(t *testing.T) {
	var cluster atomic.Value
	cluster.Store("1")
	client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/namespaces/kube-system" {
			fmt.Fprintf(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":%q}}`, cluster.Load())
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":"s","kind":"namespaces"}}`)
	})
	if _, err := client.ClusterUID(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := NewCluster(client, quiet)
	if exists, err := c.exists(t.Context(), "s"); exists || err != nil {
		t.Errorf("its absence is not proved: %t, %v", exists, err)
	}
	cluster.Store("2")
	if exists, err := c.exists(t.Context(), "s"); !exists && err == nil {
		t.Error("the answer of another cluster counts as a proof")
	}
}

// A namespace that is deleted while namespaces are listed is not selected at the end of the list.
func TestNamespaceDeletedWithinAList(t *testing.T) {
	object := func(name, uid, version string) *source.Object {
		o, err := source.ParseObject(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"uid":%q,"resourceVersion":%q}}`, name, uid, version))
		if err != nil {
			t.Fatal(err)
		}
		return &o
	}
	n := &namespaces{cluster: NewCluster(nil, quiet)}
	for _, s := range []source.Signal{
		{Kind: source.ListBegun},
		{Kind: source.Listed, Object: object("a", "1", "5")},
		{Kind: source.Listed, Object: object("b", "2", "6")},
		{Kind: source.Deleted, Object: object("a", "1", "7")},
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
