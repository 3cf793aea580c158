package source_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// promise is a time within which a change of the served resources must be reported. It is short of the half minute after which the bridge would
// ask without a watch.
const promise = 25 * time.Second

var apiServices = kube.Type{GroupVersionResource: schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}, Kind: "APIService"}

// catalogs records the catalogs that WatchCatalog reports.
type catalogs struct {
	t *testing.T

	mu   sync.Mutex
	all  []*discovery.Catalog
	more chan struct{}
}

// follow follows the shared cluster's catalog until the test ends, and waits for the first one.
func follow(t *testing.T) (*catalogs, *kube.Client) {
	t.Helper()
	client, err := source.NewClient(shared.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	changes, err := kube.New(shared.RESTConfig(), "default")
	if err != nil {
		t.Fatal(err)
	}
	c := &catalogs{t: t, more: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- client.WatchCatalog(ctx, func(now *discovery.Catalog) {
			c.mu.Lock()
			c.all = append(c.all, now)
			c.mu.Unlock()
			select {
			case c.more <- struct{}{}:
			default:
			}
		}, func(err error) {
			if err != nil {
				t.Errorf("trouble: %v", err)
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("WatchCatalog returned %v", err)
		}
		client.Close()
	})
	c.await("the first catalog", 30*time.Second, func(*discovery.Catalog) bool { return true })
	return c, changes
}

// await waits until good returns true for the last reported catalog, and returns that catalog.
func (c *catalogs) await(what string, within time.Duration, good func(*discovery.Catalog) bool) *discovery.Catalog {
	c.t.Helper()
	begin, deadline := time.Now(), time.NewTimer(within)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		var last *discovery.Catalog
		if len(c.all) > 0 {
			last = c.all[len(c.all)-1]
		}
		c.mu.Unlock()
		if last != nil && good(last) {
			c.t.Logf("%s: reported after %s", what, time.Since(begin).Round(time.Millisecond))
			return last
		}
		select {
		case <-c.more:
		case <-deadline.C:
			c.t.Fatalf("%s: not reported within %s", what, within)
		}
	}
}

// version returns a version for the spec of a CRD.
func version(name string, served, storage bool) map[string]any {
	return map[string]any{
		"name": name, "served": served, "storage": storage,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
	}
}

func crd(group, kind string, versions ...any) kube.Fields {
	return kube.Fields{"spec": map[string]any{
		"group": group, "scope": "Namespaced",
		"names":    map[string]any{"plural": "gadgets", "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
		"versions": versions,
	}}
}

// kindOf returns "version/Kind" of the resource with a name, or the text of Find's error.
func kindOf(c *discovery.Catalog, name string) string {
	r, err := c.Find(discovery.Parse(name))
	if err != nil {
		return err.Error()
	}
	return r.Version + "/" + r.Kind
}

// Each change of a CRD is reported in time: it is installed, no longer serves a version, is deleted, and is installed again with another kind.
func TestCatalogFollowsCRDs(t *testing.T) {
	c, k := follow(t)
	group := fmt.Sprintf("g%x.example.com", time.Now().UnixNano())
	name := "gadgets." + group
	is := func(want string) func(*discovery.Catalog) bool {
		return func(c *discovery.Catalog) bool { return kindOf(c, name) == want }
	}
	absent := func(c *discovery.Catalog) bool {
		_, err := c.Find(discovery.Parse(name))
		return errors.Is(err, discovery.ErrNoResource) && c.Known(group)
	}
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(k.Create(t.Context(), kube.CRDs, name, crd(group, "Gadget", version("v2", true, true), version("v1", true, false))))
	last := c.await("installed", promise, is("v2/Gadget"))
	if got := last.Match(discovery.Parse("*." + group)); len(got) != 1 || got[0].Version != "v2" {
		t.Errorf("the group holds %v", got)
	}
	merge, err := json.Marshal(crd(group, "Gadget", version("v2", false, true), version("v1", true, false)))
	do(nil, err)
	do(k.Patch(t.Context(), kube.CRDs, name, string(merge)))
	last = c.await("a version no longer served", promise, is("v1/Gadget"))
	if _, err := last.Find(discovery.Parse("gadgets.v2." + group)); !errors.Is(err, discovery.ErrNoResource) || !strings.Contains(err.Error(), "it is served in v1") {
		t.Errorf("the pinned version: got %v", err)
	}
	do(nil, k.Delete(t.Context(), kube.CRDs, name))
	c.await("deleted", promise, absent)
	do(k.Create(t.Context(), kube.CRDs, name, crd(group, "Gizmo", version("v2", true, true))))
	c.await("installed with another kind", promise, is("v2/Gizmo"))
	do(nil, k.Delete(t.Context(), kube.CRDs, name))
	c.await("deleted again", promise, absent)
}

// An aggregated API whose server is down is unknown, not absent; without its APIService it is absent.
func TestCatalogOfAnAPIServiceThatIsDown(t *testing.T) {
	c, k := follow(t)
	group := fmt.Sprintf("down%x.example.com", time.Now().UnixNano())
	name := "v1." + group
	if _, err := k.Create(t.Context(), apiServices, name, kube.Fields{"spec": map[string]any{
		"group": group, "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(10), "insecureSkipTLSVerify": true,
		"service": map[string]any{"namespace": "default", "name": "nobody", "port": int64(443)},
	}}); err != nil {
		t.Fatal(err)
	}
	last := c.await("an API service that is down", promise, func(c *discovery.Catalog) bool { return !c.Known(group) })
	if _, err := last.Find(discovery.Parse("things." + group)); !errors.Is(err, discovery.ErrUnknownGroup) || !strings.Contains(err.Error(), group+"/v1") {
		t.Errorf("got %v", err)
	}
	if got := kindOf(last, "pods"); got != "v1/Pod" {
		t.Errorf("pods: got %s", got)
	}
	if err := k.Delete(t.Context(), apiServices, name); err != nil {
		t.Fatal(err)
	}
	last = c.await("removed", promise, func(c *discovery.Catalog) bool { return c.Known(group) })
	if _, err := last.Find(discovery.Parse("things." + group)); !errors.Is(err, discovery.ErrNoResource) {
		t.Errorf("got %v", err)
	}
}

// Every resource that the server reports as listable and watchable can be listed and watched.
func TestEverythingMatchedCanBeRead(t *testing.T) {
	c, _ := follow(t)
	client, err := source.NewClient(shared.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all := c.await("the catalog", promise, func(*discovery.Catalog) bool { return true }).Match(discovery.Parse("*.*"))
	if len(all) < 40 {
		t.Errorf("the server serves %d resources", len(all))
	}
	err = kube.Each(len(all), func(i int) error {
		r := all[i]
		return client.Try(t.Context(), source.Target{Resource: r, Collection: event.Collection{Group: r.Group, Resource: r.Name, MetadataOnly: i%2 == 0}})
	})
	if err != nil {
		t.Error(err)
	}
}

// A target that the server refuses is reported with the reason, before anything runs.
func TestTryAgainstTheServer(t *testing.T) {
	user := fmt.Sprintf("nobody-%x", time.Now().UnixNano())
	cfg := shared.RESTConfig()
	admin, err := source.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	cfg.Impersonate.UserName = user
	other, err := source.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	pods := source.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	for _, c := range []struct {
		client *source.Client
		of     event.Collection
		want   string
	}{
		{admin, event.Collection{FieldSelector: "metadata.namespace!=kube-system,spec.nodeName=a", LabelSelector: "a in (b)"}, ""},
		{admin, event.Collection{FieldSelector: "spec.color=red"}, "the server does not support this selector"},
		{other, event.Collection{Namespace: "default"}, "grant list and watch on pods in namespace default"},
	} {
		c.of.Resource = "pods"
		err := c.client.Try(t.Context(), source.Target{Resource: pods, Collection: c.of})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.of.ID(), err, c.want)
		}
	}
}
