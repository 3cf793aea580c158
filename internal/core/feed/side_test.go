package feed

import (
	"context"
	"errors"
	"net"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// A failed list beside the watch is kept for the next attempt while the collection is read, and no longer: a cluster in which namespaces come and
// go does not cost memory for each of them.
func TestFailedSideIsForgotten(t *testing.T) {
	client, err := source.NewClient(&rest.Config{Host: "http://nowhere", Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is no API server")
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	target := source.Target{Collection: event.Collection{Resource: "pods"}, Resource: source.Resource{Version: "v1", Name: "pods", Kind: "Pod"}}
	served := true
	r := New(Options{Client: client, Target: func(string, string) (source.Target, bool) { return target, served }})
	ctx, cancel := context.WithCancel(t.Context())
	if err := r.Side(ctx, "pods", reconcile.Read{}, &loop.Handler{}); err == nil || len(r.failed) != 1 {
		t.Errorf("%d failed lists are kept, want 1: %v", len(r.failed), err)
	}
	cancel()
	served = false
	if err := r.Read(ctx, "pods", reconcile.Read{}, &loop.Handler{}); !errors.Is(err, context.Canceled) || len(r.failed) > 0 {
		t.Errorf("%d failed lists are kept: %v", len(r.failed), err)
	}
	served = true
	if err := r.Side(ctx, "pods", reconcile.Read{}, &loop.Handler{}); err == nil || len(r.failed) > 0 {
		t.Errorf("%d failed lists are kept: %v", len(r.failed), err)
	}
}
