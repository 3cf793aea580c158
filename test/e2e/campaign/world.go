package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/faultproxy"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// world has the namespace, the custom type, the bus and the bridge of one seed.
type world struct {
	spec    Spec
	pair    Pair
	cluster *clustertest.Cluster
	kube    *kube.Client
	ns      string
	dir     string
	types   []target
	widgets target
	api     *faultproxy.Proxy
	bus     *busUnderTest
	config  string // path of the configuration file
	wanted  bridge.Config
	undo    []func()

	replicas int
	second   bool            // two bridges ran without a Lease, and may have fenced one another
	other    bool            // bridges that start use the second of the two buffer directories: two bridges cannot use one at the same time
	taken    map[string]bool // resources that were removed from the configuration for a while
	disk     string          // mount point of the checkpoint's own file system, which a fault can fill; "" if there is none

	buffer *buffering // nil without a disk buffer

	gadgets *gadgets // nil if no entries share a resource; there is no second sink then
	serving *serving // nil without [Spec.Serve]
	audit   *audited // nil without an audit input
	who     *identities
	beside  *secondSink // the second sink, for the entries of the shared resource only
	own     int         // number of entries of other resources, which come first in the configuration

	mu        sync.Mutex
	current   []*bridge.Process
	processes []*bridge.Process // all processes that were started; each has an admin socket of its own
	surprises []string          // problems: processes that ended on their own, or did not stop as asked
}

var (
	clusterRoles        = kube.Type{GroupVersionResource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, Kind: "ClusterRole"}
	clusterRoleBindings = kube.Type{GroupVersionResource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}, Kind: "ClusterRoleBinding"}
)

// chance makes the seed's random choices. It must not be used by several goroutines.
type chance struct {
	*rand.Rand
	stretch time.Duration // factor for the durations of wait
}

func newChance(seed, stream uint64) *chance { return &chance{rand.New(rand.NewPCG(seed, stream)), 1} }

// wait waits for a random time of up to d, multiplied by stretch.
func (r *chance) wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(r.stretch * time.Duration(r.Int64N(int64(d)))):
	case <-ctx.Done():
	}
}

func (w *world) later(undo func()) { w.undo = append(w.undo, undo) }

// close removes everything that was created, in reverse order.
func (w *world) close() {
	for i := range w.undo {
		w.undo[len(w.undo)-1-i]()
	}
	w.undo = nil
}

// prepare creates everything that the bridge needs, and its configuration.
func (w *world) prepare(ctx context.Context, r *chance) (err error) {
	if w.dir, err = os.MkdirTemp("", "kubebridge-campaign-"); err != nil {
		return err
	}
	w.later(func() { _ = os.RemoveAll(w.dir) })
	if w.kube, err = kube.New(w.cluster.RESTConfig(), ""); err != nil {
		return err
	}
	w.ns = fmt.Sprintf("c%x", time.Now().UnixNano())
	if _, err = w.kube.Create(ctx, kube.Namespaces, w.ns, nil); err != nil {
		return err
	}
	w.kube = w.kube.In(w.ns)
	if err = w.identify(); err != nil {
		return err
	}
	w.widgets = target{Type: kube.Widgets(w.ns + ".kubebridge.io")}
	if err = w.install(ctx, w.widgets); err != nil {
		return err
	}
	w.types = []target{{Type: kube.ConfigMaps}, w.widgets, {Type: kube.Secrets, selector: true}, {Type: kube.Deployments, selector: true}}
	if !w.spec.soak {
		choose(w.types, newChance(w.spec.Seed, 3))
	}
	if w.spec.Hostile {
		if err = w.admit(ctx); err != nil {
			return err
		}
	}
	if w.bus, err = w.startBus(); err != nil {
		return err
	}
	w.later(w.bus.close)
	if err = w.grant(ctx); err != nil {
		return err
	}
	c := bridge.Config{
		Name: "campaign", Cluster: w.ns, Status: map[string]any{"listen": "127.0.0.1:0"}, Admin: map[string]any{"socket": "${env:" + socketEnv + "}"},
		Sinks: []bridge.Sink{w.bus.sink},
	}
	c.Sinks[0].Name = "audit"
	for _, t := range w.types {
		of := t.resource(w.ns)
		if w.spec.Serve && w.pair.Bus == "kafka" { // a quiet partition holds `bridge serve` back until its next synced event
			of.SyncedEvery = "1s"
		}
		c.Resources = append(c.Resources, of)
	}
	if c.Kubernetes, err = w.reached(); err != nil {
		return err
	}
	if c.Audit, err = w.record(); err != nil {
		return err
	}
	w.replicas = 1
	switch {
	case !w.pair.shared():
		w.mountDisk()
		c.Checkpoint = map[string]any{"file": map[string]any{"path": filepath.Join(w.diskDir(), "checkpoint")}}
	case !w.spec.soak && w.spec.Kills == 0 && r.IntN(3) == 0:
		w.replicas = 2
		c.LeaderElection = map[string]any{"enabled": true, "namespace": w.ns, "leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "300ms"}
	}
	if w.spec.away || w.replicas == 1 && w.spec.Seed%2 == 1 { // not drawn from r, because a further draw would change what existing seeds do
		c.Buffer = w.bufferOf()
	}
	if w.pair.Store == "kafka" {
		c.Checkpoint = map[string]any{"kafka": map[string]any{"replicas": 1}}
	}
	if !w.spec.soak && r.IntN(3) == 0 {
		c.Sinks[0].Linger = "50ms"
	}
	if w.spec.Entries {
		if err := w.share(ctx, &c); err != nil {
			return err
		}
	}
	w.config, w.wanted, w.taken = filepath.Join(w.dir, "bridge.yaml"), c, map[string]bool{}
	return w.configure(c)
}

// install installs a custom type, and removes it at the end of the seed.
func (w *world) install(ctx context.Context, t target) error {
	w.later(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = w.kube.Uninstall(ctx, t.Type) // each CRD costs the API server memory
	})
	return w.kube.Install(ctx, t.Type)
}

// configure replaces the configuration file.
func (w *world) configure(c bridge.Config) error {
	text, err := c.YAML()
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.config+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(w.config+".new", w.config)
}

// reached returns the configuration with which the bridge connects to the API server: through a proxy, as a user that nobody else uses.
func (w *world) reached() (map[string]any, error) {
	path, err := w.cluster.KubeconfigFor(w.ns)
	if err != nil {
		return nil, err
	}
	if w.api, err = faultproxy.Start(strings.TrimPrefix(w.cluster.Server(), "https://")); err != nil {
		return nil, err
	}
	w.later(func() { _ = w.api.Close() })
	c, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	for _, cluster := range c.Clusters {
		cluster.Server = "https://" + w.api.Addr()
	}
	path = filepath.Join(w.dir, "kubeconfig")
	return map[string]any{"kubeconfig": path}, clientcmd.WriteToFile(*c, path)
}

// grant lets the user with the name of the namespace read everything, and hold a Lease.
func (w *world) grant(ctx context.Context) error {
	_, err := w.kube.Create(ctx, clusterRoles, w.ns, kube.Fields{"rules": []any{
		map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"get", "list", "watch"}},
		map[string]any{"apiGroups": []any{"coordination.k8s.io"}, "resources": []any{"leases"}, "verbs": []any{"create", "update", "patch"}},
	}})
	if err == nil {
		err = w.bind(ctx)
	}
	return err
}

func (w *world) bind(ctx context.Context) error {
	_, err := w.kube.Create(ctx, clusterRoleBindings, w.ns, kube.Fields{
		"roleRef":  map[string]any{"apiGroup": clusterRoles.Group, "kind": clusterRoles.Kind, "name": w.ns},
		"subjects": []any{map[string]any{"apiGroup": clusterRoles.Group, "kind": "User", "name": w.ns}},
	})
	return err
}

// mountDisk mounts a small file system for the checkpoint. It does nothing if this process may not mount one.
func (w *world) mountDisk() {
	dir := filepath.Join(w.dir, "disk")
	if os.Mkdir(dir, 0o700) != nil || syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m") != nil {
		return
	}
	w.disk = dir
	w.later(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

func (w *world) diskDir() string {
	if w.disk != "" {
		return w.disk
	}
	return w.dir
}

func (w *world) scratchDir() string { return filepath.Join(w.dir, "scratch") }

// launch starts all replicas.
func (w *world) launch() error {
	if err := os.Mkdir(w.scratchDir(), 0o700); err != nil {
		return err
	}
	w.current = make([]*bridge.Process, w.replicas)
	for i := range w.current {
		if err := w.relaunch(i); err != nil {
			return err
		}
	}
	w.later(func() {
		for _, p := range w.processes {
			p.Kill()
		}
	})
	return nil
}

const (
	socketEnv = "KUBEBRIDGE_CAMPAIGN_SOCKET" // the environment variable with a process's admin socket
	bufferEnv = "KUBEBRIDGE_CAMPAIGN_BUFFER" // the environment variable with a process's buffer directory
)

func (w *world) socket(process int) string {
	return filepath.Join(w.dir, fmt.Sprintf("admin%d", process))
}

// bufferDir returns the buffer directory of the next process.
func (w *world) bufferDir() string {
	if w.other {
		return filepath.Join(w.dir, "buffer-second")
	}
	return filepath.Join(w.dir, "buffer")
}

// relaunch starts a replica again. The caller holds mu, or there is no other goroutine.
func (w *world) relaunch(i int) error {
	// The working copy of a checkpoint on the bus is put in a directory where it can be measured and removed.
	env := []string{"TMPDIR=" + w.scratchDir(), socketEnv + "=" + w.socket(len(w.processes)), bufferEnv + "=" + w.bufferDir()}
	env = append(env, w.auditEnv(i)...)
	p, err := bridge.Start("env", append(env, w.spec.Binary, "run", "-c", w.config)...)
	if err != nil {
		return err
	}
	w.current[i] = p
	w.processes = append(w.processes, p)
	return nil
}

// revive restarts processes that ended without a kill. It records each of them as a problem, except a process that was fenced by a second
// bridge.
func (w *world) revive() error {
	for i, p := range w.current {
		if p.Running() {
			continue
		}
		code, _ := p.Wait(time.Minute)
		log := p.Log()
		fenced := strings.Contains(log, "another writer has taken over") || strings.Contains(log, "another process has taken the checkpoint over") || strings.Contains(log, "another process runs this sink")
		if w.second && fenced && (code == 1 || code == 3) {
			// That is correct: two bridges ran without a Lease, and the first one fenced this one in turn before the first one was killed.
		} else {
			w.surprises = append(w.surprises, fmt.Sprintf("[running] a bridge exited without a request, with code %d; the end of its log:\n%s", code, log[max(0, len(log)-2000):]))
		}
		if err := w.relaunch(i); err != nil {
			return err
		}
	}
	return nil
}

// settle creates a marker of each type, waits until it is on the bus, changes it, and waits until the change is on the bus. By then, all
// earlier events are on the bus, or never will be. A bus that keeps no messages may miss a marker; settle then changes it once more.
func (w *world) settle(ctx context.Context, l *ledger, marker string) error {
	for _, t := range w.types {
		fields := body(t, marker)
		fields["metadata"] = map[string]any{"labels": map[string]any{watchedLabel: "yes"}}
		o, err := w.kube.Create(ctx, t.Type, marker, fields)
		if err != nil {
			return err
		}
		l.wrote(t, o, admin)
		for arrived, step := 0, 0; arrived < 2; step++ {
			attempt, cancel := context.WithTimeout(ctx, time.Minute)
			if w.pair.lossy() {
				attempt, cancel = context.WithTimeout(ctx, 3*time.Second)
			}
			err := w.await(attempt, string(o.GetUID())+" "+o.GetResourceVersion())
			cancel()
			switch {
			case err == nil:
				arrived++
			case ctx.Err() != nil || !w.pair.lossy():
				return fmt.Errorf("the marker of %s: %w", t.ResourceID(), err)
			}
			if arrived == 2 {
				break
			}
			if o, err = w.kube.Patch(ctx, t.Type, marker, fmt.Sprintf(`{"metadata":{"annotations":{"marker":"%d"}}}`, step)); err != nil {
				return err
			}
			l.wrote(t, o, admin)
		}
	}
	return nil
}

// synced waits until the first list of every collection is complete.
func (w *world) synced(ctx context.Context) error {
	through := map[string]bool{}
	for {
		messages, err := w.bus.newest(ctx)
		for i := range messages {
			through[resourceOf(&messages[i])] = through[resourceOf(&messages[i])] || messages[i].Is("synced")
		}
		if !slices.ContainsFunc(w.types, func(t target) bool { return !through[t.ResourceID()] }) {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting for the first lists: %w", context.Cause(ctx)), err)
		}
	}
}

// await waits until the bus has an event with the wanted "uid rv".
func (w *world) await(ctx context.Context, wanted string) error {
	for {
		look, cancel := context.WithTimeout(ctx, 10*time.Second) // without a timeout, reading would not end if the stream is deleted or its server is killed
		messages, err := w.bus.newest(look)
		cancel()
		if slices.ContainsFunc(messages, func(m bus.Message) bool { return m.UID()+" "+m.RV() == wanted }) {
			return nil
		}
		w.mu.Lock()
		revived := w.revive()
		w.mu.Unlock()
		if revived != nil {
			return revived
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s is not on the bus, where %d messages were looked at last", wanted, len(messages)), err, context.Cause(ctx))
		}
	}
}

// discovered returns, for a failure message, what the API server's discovery has about a type. The bridge follows discovery as well.
func (w *world) discovered(ctx context.Context, t kube.Type) string {
	client, err := source.NewClient(w.cluster.RESTConfig())
	if err != nil {
		return err.Error()
	}
	defer client.Close()
	catalog, err := client.Catalog(ctx)
	if err != nil {
		return err.Error()
	}
	found, err := catalog.Find(discovery.Parse(t.ResourceID()))
	return fmt.Sprintf("discovery has %v, %v", found, err)
}

// stop stops the bridge with SIGTERM.
func (w *world) stop() {
	for _, p := range w.current {
		p.Signal(syscall.SIGTERM)
	}
	for _, p := range w.current {
		if code, err := p.Wait(25 * time.Second); err != nil || code != 0 {
			w.surprises = append(w.surprises, fmt.Sprintf("[running] a bridge that was asked to stop: code %d, %v", code, err))
			p.Kill()
		}
	}
}

// selected returns the objects that a type's collection should have at the end.
func (w *world) selected(ctx context.Context, t target) (map[string]map[string]any, error) {
	client := w.kube
	if t.costly {
		client = client.In(metav1.NamespaceAll)
	}
	objects, _, err := client.List(ctx, t.Type, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]any{}
	for i := range objects {
		if !t.selects(&objects[i]) {
			continue
		}
		out[string(objects[i].GetUID())] = essence(t, clone(objects[i].Object))
	}
	return out, nil
}
