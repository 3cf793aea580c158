package history_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// server is a `bridge serve` process.
type server struct {
	*bridge.Process
	url string
}

func (w *world) serve(flags ...string) *server {
	w.t.Helper()
	scheme := "http://"
	if slices.Contains(flags, "--tls-cert") {
		scheme = "https://"
	}
	flags = append([]string{"serve", "-c", w.config, "--data", filepath.Join(filepath.Dir(w.config), "serve"), "--listen", "127.0.0.1:0"}, flags...)
	p, err := bridge.Start(binary, flags...)
	w.must(err)
	s := &server{Process: p}
	w.t.Cleanup(func() {
		p.Kill()
		if w.t.Failed() {
			w.t.Log(p.Log())
		}
	})
	w.eventually("the server listens", func() string {
		for line := range strings.Lines(p.Log()) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "serving" {
				s.url = scheme + entry.Address
				return ""
			}
		}
		return "no address in its log"
	})
	return s
}

// page returns the answer of a server for a path.
func (w *world) page(s *server, path string) (status int, body string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.ctx, http.MethodGet, s.url+path, nil)
	w.must(err)
	a, err := http.DefaultClient.Do(r)
	w.must(err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	w.must(err)
	return a.StatusCode, string(text)
}

// eventually waits until check returns "".
func (w *world) eventually(what string, check func() string) {
	w.t.Helper()
	why := ""
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if why = check(); why == "" {
			return
		}
	}
	w.t.Fatalf("%s: %s", what, why)
}

func (w *world) dynamic(c *rest.Config, t kube.Type) dynamic.ResourceInterface {
	w.t.Helper()
	c = rest.CopyConfig(c)
	c.WarningHandler = rest.NoWarnings{}
	d, err := dynamic.NewForConfig(c)
	w.must(err)
	return d.Resource(t.GroupVersionResource).Namespace(w.ns)
}

// listed returns the objects of a list, and its resourceVersion. managedFields are not on the bus.
func (w *world) listed(from dynamic.ResourceInterface) (map[string]map[string]any, string, error) {
	l, err := from.List(w.ctx, metav1.ListOptions{Limit: 7})
	all := map[string]map[string]any{}
	for err == nil {
		for _, u := range l.Items {
			u.SetManagedFields(nil)
			all[u.GetName()] = u.Object
		}
		if l.GetContinue() == "" {
			return all, l.GetResourceVersion(), nil
		}
		l, err = from.List(w.ctx, metav1.ListOptions{Limit: 7, Continue: l.GetContinue()})
	}
	return nil, "", err
}

// TestServe: clients that read from `bridge serve` have what the API server has: lists in pages, the cache of a reflector over a kill -9 of the
// server, single objects byte for byte, a watch from before the kill, and the past.
func TestServe(t *testing.T) {
	t.Parallel()
	t.Run("nats", func(t *testing.T) { serveAll(t, newBus(t, false)) })
	t.Run("kafka", func(t *testing.T) {
		w := newBus(t, true)
		delete(w.conf.Sinks[0].Kafka, "delivery")
		w.conf.Checkpoint = map[string]any{"kafka": map[string]any{}}
		serveAll(t, w)
	})
}

func serveAll(t *testing.T, w *world) {
	types := []kube.Type{kube.ConfigMaps, kube.Pods, kube.Deployments}
	for _, typ := range append(types, kube.Namespaces) {
		w.conf.Resources = append(w.conf.Resources, bridge.Resource{Resource: typ.ResourceID()})
	}
	w.configure()
	for i := range 20 {
		w.create(kube.ConfigMaps, fmt.Sprintf("c%02d", i), kube.Fields{"data": map[string]any{"n": fmt.Sprint(i), "text": "<&>\u2028é"}})
	}
	w.create(kube.Pods, "web", kube.Fields{"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": "b"}}}})
	w.start()
	s := w.serve()
	real := w.dynamic(cluster.RESTConfig(), kube.ConfigMaps)

	held, stop := w.reflect(func() dynamic.ResourceInterface { return w.dynamic(&rest.Config{Host: s.url}, kube.ConfigMaps) })
	defer stop()
	w.wantHeld(held, real)
	for _, typ := range types {
		w.wantServed(s, typ)
	}
	before, version, err := w.listed(w.dynamic(&rest.Config{Host: s.url}, kube.ConfigMaps))
	w.must(err)
	past := time.Now()

	w.must(w.kube.Delete(w.ctx, kube.ConfigMaps, "c00"))
	for i := range 10 {
		_, err := w.kube.Patch(w.ctx, kube.ConfigMaps, fmt.Sprintf("c%02d", i+1), fmt.Sprintf(`{"data":{"n":"%d"}}`, 100+i))
		w.must(err)
	}
	w.wantHeld(held, real)
	s.Kill()
	w.must(w.kube.Delete(w.ctx, kube.ConfigMaps, "c01"))
	w.create(kube.ConfigMaps, "c01", kube.Fields{"data": map[string]any{"n": "again"}})
	s = w.serve()
	w.wantHeld(held, real)
	for _, typ := range types {
		w.wantServed(s, typ)
	}
	if strings.Contains(s.Log(), "copy dropped") {
		t.Error("the server dropped its copy behind a kill")
	}

	for name := range before {
		if name == "c00" || name == "kube-root-ca.crt" {
			continue
		}
		want, got := w.raw(cluster.RESTConfig(), name), w.raw(&rest.Config{Host: s.url}, name)
		if !bytes.Equal(want, got) {
			t.Errorf("%s is served as\n%s\nand the API server has\n%s", name, got, want)
		}
	}
	w.wantChanges(s, version)
	at := "/at/" + past.UTC().Format(time.RFC3339Nano)
	w.eventually("the time is known", func() string {
		if status, body := w.page(s, at+"/api/v1/namespaces/"+w.ns+"/configmaps"); status != http.StatusOK {
			return body
		}
		return ""
	})
	for _, prefix := range []string{at, "/at/" + version, "/clusters/" + w.ns + at} {
		got, _, err := w.listed(w.dynamic(&rest.Config{Host: s.url + prefix}, kube.ConfigMaps))
		w.must(err)
		if diff := cmp.Diff(before, got); diff != "" {
			t.Errorf("%s (-then +now):\n%s", prefix, diff)
		}
	}
	w.kubectl(s, at)
}

// reflect runs a reflector whose client is made for each request, since the server's address changes.
func (w *world) reflect(client func() dynamic.ResourceInterface) (cache.Store, func()) {
	held := cache.NewStore(cache.MetaNamespaceKeyFunc)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client().Watch(ctx, o)
		},
	}
	ctx, cancel := context.WithCancel(w.ctx)
	r := cache.NewReflectorWithOptions(lw, &unstructured.Unstructured{}, held, cache.ReflectorOptions{Name: "serve"})
	done := make(chan struct{})
	go func() { defer close(done); r.RunWithContext(ctx) }()
	return held, func() { cancel(); <-done }
}

func (w *world) wantHeld(held cache.Store, real dynamic.ResourceInterface) {
	w.t.Helper()
	w.eventually("the cache has what the API server has", func() string {
		want, _, err := w.listed(real)
		w.must(err)
		got := map[string]map[string]any{}
		for _, x := range held.List() {
			u := x.(*unstructured.Unstructured)
			got[u.GetName()] = u.Object
		}
		return cmp.Diff(want, got)
	})
}

func (w *world) wantServed(s *server, typ kube.Type) {
	w.t.Helper()
	real, served := w.dynamic(cluster.RESTConfig(), typ), w.dynamic(&rest.Config{Host: s.url}, typ)
	w.eventually("a list has what the API server has", func() string {
		want, _, err := w.listed(real)
		w.must(err)
		got, _, err := w.listed(served)
		if err != nil {
			return err.Error()
		}
		return cmp.Diff(want, got)
	})
}

// raw returns the JSON of a ConfigMap, without managedFields. Where the bridge took the object from a list, whose items lack kind and apiVersion, it
// put them in the other order.
func (w *world) raw(c *rest.Config, name string) []byte {
	w.t.Helper()
	client, err := rest.HTTPClientFor(c)
	w.must(err)
	r, err := http.NewRequestWithContext(w.ctx, http.MethodGet, c.Host+"/api/v1/namespaces/"+w.ns+"/configmaps/"+name, nil)
	w.must(err)
	a, err := client.Do(r)
	w.must(err)
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	w.must(err)
	body = bytes.TrimSpace(body)
	if i := bytes.Index(body, []byte(`,"managedFields":[`)); i >= 0 {
		list := json.NewDecoder(bytes.NewReader(body[i+len(`,"managedFields":`):]))
		var value json.RawMessage
		w.must(list.Decode(&value))
		body = slices.Concat(body[:i], body[i+len(`,"managedFields":`)+len(value):])
	}
	return bytes.Replace(body, []byte(`{"apiVersion":"v1","kind":"ConfigMap",`), []byte(`{"kind":"ConfigMap","apiVersion":"v1",`), 1)
}

// wantChanges watches from a resourceVersion that was listed before the server was killed.
func (w *world) wantChanges(s *server, version string) {
	w.t.Helper()
	x, err := w.dynamic(&rest.Config{Host: s.url}, kube.ConfigMaps).Watch(w.ctx, metav1.ListOptions{ResourceVersion: version})
	w.must(err)
	defer x.Stop()
	real, err := w.dynamic(cluster.RESTConfig(), kube.ConfigMaps).Watch(w.ctx, metav1.ListOptions{ResourceVersion: version})
	w.must(err)
	defer real.Stop()
	for range 13 { // a deletion, ten patches, a deletion and a creation
		var got [2]string
		for i, events := range []watch.Interface{real, x} {
			select {
			case e := <-events.ResultChan():
				u, ok := e.Object.(*unstructured.Unstructured)
				if !ok {
					w.t.Fatalf("the watch has %+v", e)
				}
				u.SetManagedFields(nil)
				text, err := json.Marshal(u)
				w.must(err)
				got[i] = fmt.Sprintf("%s %s", e.Type, text)
			case <-w.ctx.Done():
				w.t.Fatal("no event of the watch")
			}
		}
		if diff := cmp.Diff(got[0], got[1]); diff != "" {
			w.t.Errorf("a watch from %s (-API server +bridge serve):\n%s", version, diff)
		}
	}
}

// kubectl checks the output of kubectl, if this machine has it.
func (w *world) kubectl(s *server, past string) {
	w.t.Helper()
	path, err := exec.LookPath("kubectl")
	if err != nil {
		w.t.Log("without kubectl: ", err)
		return
	}
	for _, c := range []struct {
		prefix, args string
		want, errs   []string
	}{
		{"", "get cm c05", []string{"NAME", "DATA", "AGE", "c05"}, []string{"configmaps is complete as of resourceVersion"}},
		{"", "get po,deploy", []string{"pod/web", "0/1", "Pending"}, []string{"pods is complete as of resourceVersion"}},
		{past, "get cm c00 -o name", []string{"configmap/c00"}, []string{"configmaps at"}},
		{"", "get cm c00", nil, []string{`configmaps "c00" not found`}},
		{"", "delete cm c05", nil, []string{"it can only be read"}},
		{"", "api-resources", []string{"configmaps", "cm", "ConfigMap", "deployments", "apps/v1"}, nil},
		{"", "get configmaps --chunk-size=3 -o name", []string{"configmap/c19"}, nil},
	} {
		cmd := exec.CommandContext(w.ctx, path, append([]string{"--server", s.url + c.prefix, "-n", w.ns, "--cache-dir", w.t.TempDir()}, strings.Fields(c.args)...)...)
		cmd.Env = []string{"KUBECONFIG=/dev/null", "HOME=" + w.t.TempDir()}
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run() // some of them must fail; the output says how
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				w.t.Errorf("kubectl %s lacks %q:\n%s%s", c.args, want, &out, &errs)
			}
		}
		for _, want := range c.errs {
			if !strings.Contains(errs.String(), want) {
				w.t.Errorf("kubectl %s lacks %q on standard error:\n%s%s", c.args, want, &out, &errs)
			}
		}
	}
}
