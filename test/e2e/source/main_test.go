// Package source_test tests pkg/source against a real kube-apiserver: behaviour that only a real server has, such as which lists it streams
// and how much history it keeps.
package source_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
	"github.com/kubebridge/kubebridge/test/paralleltest"
)

// patience bounds every wait for something that should happen soon.
const patience = 45 * time.Second

// shared is the cluster of all tests that do not disturb their cluster.
var shared *clustertest.Cluster

func TestMain(m *testing.M) {
	paralleltest.Raise(4)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, m)
	stop()
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	if shared, err = clustertest.Launch(ctx, clustertest.Options{ExtraArgs: []string{"--feature-gates=WatchList=true"}}); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, shared.Close()
}

// world has the namespace of one test, a client that changes it, and a client under test that reads it.
type world struct {
	t      *testing.T
	ctx    context.Context // is cancelled after patience
	kube   *kube.Client
	client *source.Client
	ns     string
}

func newWorld(t *testing.T, cluster *clustertest.Cluster) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, ns: fmt.Sprintf("t%x", time.Now().UnixNano())}
	var err error
	w.kube, err = kube.New(cluster.RESTConfig(), w.ns)
	w.must(err)
	_, err = w.kube.Create(ctx, kube.Namespaces, w.ns, nil)
	w.must(err)
	w.client = w.connect(cluster.RESTConfig())
	return w
}

func (w *world) connect(cfg *rest.Config) *source.Client {
	w.t.Helper()
	c, err := source.NewClient(cfg)
	w.must(err)
	w.t.Cleanup(c.Close)
	return c
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

// install installs a custom type that only this test uses.
func (w *world) install() kube.Type {
	w.t.Helper()
	t := kube.Widgets(w.ns + ".kubebridge.io")
	w.must(w.kube.Install(w.ctx, t))
	w.t.Cleanup(func() {
		if err := w.kube.Uninstall(context.Background(), t); err != nil {
			w.t.Error(err)
		}
	})
	return t
}

// target returns the target for a type's collection in the world's namespace, with the selectors of c.
func (w *world) target(t kube.Type, c event.Collection) source.Target {
	c.Group, c.Resource, c.Namespace = t.Group, t.Resource, w.ns
	return source.Target{Collection: c, Resource: source.Resource{
		Group: t.Group, Version: t.Version, Name: t.Resource, Kind: t.Kind, Namespaced: t.Namespaced,
	}}
}

// bulk creates n objects name-0 to name-(n-1), with the labels half=even and half=odd in turn.
func (w *world) bulk(t kube.Type, name string, n int) {
	w.t.Helper()
	w.must(kube.Each(n, func(i int) error {
		half := map[int]string{0: "even", 1: "odd"}[i%2]
		fields := kube.Fields{"metadata": map[string]any{"labels": map[string]any{"half": half}}}
		if t == kube.ConfigMaps {
			fields["data"] = map[string]any{"body": "of " + name}
		} else {
			fields["spec"] = map[string]any{"body": "of " + name}
		}
		_, err := w.kube.Create(w.ctx, t, fmt.Sprintf("%s-%d", name, i), fields)
		return err
	}))
}

// recorder is a handler that keeps the signals it receives.
type recorder struct {
	mu      sync.Mutex
	signals []source.Signal
	more    chan struct{} // receives a value after each new signal
}

func newRecorder() *recorder { return &recorder{more: make(chan struct{}, 1)} }

func (r *recorder) Handle(_ context.Context, s source.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signals = append(r.signals, s)
	select {
	case r.more <- struct{}{}:
	default:
	}
	return nil
}

// all returns the signals received so far.
func (r *recorder) all() []source.Signal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]source.Signal(nil), r.signals...)
}

// objects returns the objects of the signals of one kind, by name.
func (r *recorder) objects(kind source.SignalKind) map[string]*source.Object {
	found := map[string]*source.Object{}
	for _, s := range r.all() {
		if s.Kind == kind {
			found[s.Object.Name] = s.Object
		}
	}
	return found
}

// await waits for a signal for which wanted returns true, and returns the first one.
func (w *world) await(r *recorder, what string, wanted func(source.Signal) bool) source.Signal {
	w.t.Helper()
	for {
		for _, s := range r.all() {
			if wanted(s) {
				return s
			}
		}
		select {
		case <-r.more:
		case <-w.ctx.Done():
			w.t.Fatalf("never saw %s", what)
		}
	}
}

// run starts a collection, which runs until the test ends, and returns the recorder of its signals.
func (w *world) run(client *source.Client, target source.Target) *recorder {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	r, done := newRecorder(), make(chan error, 1)
	c := source.NewCollection(source.Options{Client: client, Target: target, Handler: r})
	go func() { done <- c.Run(ctx, event.Position{}) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.t.Errorf("run: %v", err)
		}
	})
	return r
}

func ended(s source.Signal) bool { return s.Kind == source.ListEnded }
