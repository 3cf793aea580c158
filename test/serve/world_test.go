package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// published are the resources that the bridge publishes.
var published = []schema.GroupVersionResource{
	{Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "events"},
	{Version: "v1", Resource: "limitranges"},
	{Version: "v1", Resource: "namespaces"},
	{Version: "v1", Resource: "nodes"},
	{Version: "v1", Resource: "pods"},
	{Version: "v1", Resource: "resourcequotas"},
	{Version: "v1", Resource: "services"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "apps", Version: "v1", Resource: "replicasets"},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	{Group: "events.k8s.io", Version: "v1", Resource: "events"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
	widgets,
}

// world is a namespace of the cluster, a NATS server, `bridge run`, and `bridge serve`.
type world struct {
	t      *testing.T
	ctx    context.Context
	client *kubernetes.Clientset // of the API server
	custom dynamic.ResourceInterface
	ns     string
	config string   // the file of the bridge's configuration
	run    *process // bridge run
	served *process // bridge serve
	url    string   // of bridge serve
}

func newWorld(t *testing.T) *world {
	t.Helper()
	var resources []string
	for _, r := range published {
		entry := r.GroupResource().String()
		if r.Resource == "events" { // by default without deleted, and so not served
			entry = "{resource: " + entry + ", types: [added, modified, deleted]}"
		}
		resources = append(resources, entry)
	}
	return newWorldOf(t, resources...)
}

// newWorldOf returns a world whose bridge publishes some resources.
func newWorldOf(t *testing.T, resources ...string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx}
	var err error
	w.client, err = kubernetes.NewForConfig(cluster.RESTConfig())
	w.must(err)
	ns, err := w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "serve-", Labels: map[string]string{"team": "blue"}}}, metav1.CreateOptions{})
	w.must(err)
	w.ns = ns.Name
	custom, err := dynamic.NewForConfig(cluster.RESTConfig())
	w.must(err)
	w.custom = custom.Resource(widgets).Namespace(w.ns)
	dir := t.TempDir()
	bus, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(dir, "nats"), NoSigs: true, NoLog: true})
	w.must(err)
	bus.Start()
	t.Cleanup(func() { bus.Shutdown(); bus.WaitForShutdown() })
	if !bus.ReadyForConnections(patience) {
		t.Fatal("NATS does not start")
	}
	w.config = filepath.Join(dir, "bridge.yaml")
	w.must(os.WriteFile(w.config, fmt.Appendf(nil, `{cluster: test, kubernetes: {kubeconfig: %q}, resources: [%s], sinks: [{name: audit, nats: {url: %q}}],
  checkpoint: {file: {path: %q}}, status: {listen: "127.0.0.1:0"}, log: {format: json}}`,
		cluster.Kubeconfig(), strings.Join(resources, ", "), bus.ClientURL(), filepath.Join(dir, "checkpoint")), 0o600))
	w.run = w.start(bridge, "run", "-c", w.config)
	w.serve("127.0.0.1:0")
	return w
}

// serve starts `bridge serve`, and waits until it listens.
func (w *world) serve(address string) {
	w.t.Helper()
	w.served, address = w.startServe("serve", "--listen", address)
	w.url = "http://" + address
}

// startServe starts `bridge serve` with a directory of a name, waits until it listens, and returns its address.
func (w *world) startServe(dir string, flags ...string) (p *process, address string) {
	w.t.Helper()
	p = w.start(bridge, append([]string{"serve", "-c", w.config, "--data", filepath.Join(filepath.Dir(w.config), dir)}, flags...)...)
	w.eventually("bridge serve listens", func() string {
		for line := range strings.Lines(p.output()) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "serving" {
				address = entry.Address
				return ""
			}
		}
		return "it has not said where: " + p.output()
	})
	return p, address
}

// ready waits until `bridge serve` has what the API server has in the test's namespace and in no namespace, so that clients of both begin with
// the same.
func (w *world) ready() {
	w.t.Helper()
	w.readyIn(w.ns)
}

// readyIn is ready for the objects of a namespace, or of all with "". Other namespaces change while tests run in parallel.
func (w *world) readyIn(namespace string) {
	w.t.Helper()
	w.eventually("/readyz is 200", func() string { // before that there is no discovery
		q, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.url+"/readyz", nil)
		w.must(err)
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			return err.Error()
		}
		defer a.Body.Close()
		if a.StatusCode != http.StatusOK {
			return a.Status
		}
		return ""
	})
	for _, r := range published {
		path := "/apis/" + r.GroupVersion().String() + "/" + r.Resource
		if r.Group == "" {
			path = "/api/v1/" + r.Resource
		}
		w.eventually(path+" is served", func() string {
			text, err := w.client.RESTClient().Get().AbsPath(path).DoRaw(w.ctx)
			w.must(err)
			q, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.url+path, nil)
			w.must(err)
			a, err := http.DefaultClient.Do(q)
			if err != nil {
				return err.Error()
			}
			defer a.Body.Close()
			served, err := io.ReadAll(a.Body)
			if err != nil || a.StatusCode != http.StatusOK {
				return fmt.Sprintf("%s %s %v", a.Status, served, err)
			}
			return cmp.Diff(w.versions(namespace, text), w.versions(namespace, served))
		})
	}
}

// versions returns the resourceVersions of the items of a list that are in a namespace, or any with "", or in none, by namespace and name.
func (w *world) versions(namespace string, text []byte) map[string]string {
	w.t.Helper()
	var list metav1.PartialObjectMetadataList
	w.must(json.Unmarshal(text, &list))
	out := map[string]string{}
	for _, x := range list.Items {
		if namespace == "" || x.Namespace == "" || x.Namespace == namespace {
			out[x.Namespace+"/"+x.Name] = x.ResourceVersion
		}
	}
	return out
}

// kill kills `bridge serve` as a crash would.
func (w *world) kill() { w.served.kill() }

// restart starts `bridge serve` again, at the same address.
func (w *world) restart() {
	w.t.Helper()
	w.serve(strings.TrimPrefix(w.url, "http://"))
}

// expire resets the bridge's checkpoint, so that changes may be missing on the bus, and returns once `bridge serve` has the state after the reset.
// Its clients do not reach `bridge serve` meanwhile: it answers them after the reset.
func (w *world) expire(changes func()) {
	w.t.Helper()
	url := w.url
	w.kill()
	w.run.kill()
	changes()
	reset := w.start(bridge, "checkpoint", "reset", "-c", w.config, "--yes")
	<-reset.done
	if !reset.cmd.ProcessState.Success() {
		w.t.Fatal("the checkpoint was not reset")
	}
	w.run = w.start(bridge, "run", "-c", w.config)
	w.serve("127.0.0.1:0")
	w.ready()
	w.kill()
	w.url = url
	w.restart()
}

// clients are the configurations of a client, for the API server and for `bridge serve`.
func (w *world) clients() (real, served *rest.Config) {
	real = cluster.RESTConfig()
	served = &rest.Config{Host: w.url, QPS: -1, WarningHandler: rest.NoWarnings{}}
	return real, served
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
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
	w.t.Fatalf("%s: not after %s: %s", what, patience, why)
}

// Writes to the cluster.

func (w *world) createConfigMap(name string, labels, data map[string]string) {
	w.t.Helper()
	_, err := w.client.CoreV1().ConfigMaps(w.ns).Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: data}, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) createPod(name, node string, labels map[string]string) {
	w.t.Helper()
	_, err := w.client.CoreV1().Pods(w.ns).Create(w.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{"prometheus.io/scrape": "true"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "main", Image: "registry.example.com/" + name + ":1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		}}},
	}, metav1.CreateOptions{})
	w.must(err)
}

// setPod gives a pod the status that a kubelet would.
func (w *world) setPod(name, ip string, phase corev1.PodPhase) {
	w.t.Helper()
	pod, err := w.client.CoreV1().Pods(w.ns).Get(w.ctx, name, metav1.GetOptions{})
	w.must(err)
	started := metav1.NewTime(time.Now().Truncate(time.Second))
	status, ready, state := corev1.ConditionFalse, false, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", StartedAt: started, FinishedAt: started}}
	if phase == corev1.PodRunning {
		status, ready, state = corev1.ConditionTrue, true, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}
	}
	pod.Status = corev1.PodStatus{
		Phase: phase, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, HostIP: "10.1.0.1", StartTime: &started,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: started}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Image: pod.Spec.Containers[0].Image, Ready: ready, State: state, ContainerID: "containerd://" + name}},
	}
	_, err = w.client.CoreV1().Pods(w.ns).UpdateStatus(w.ctx, pod, metav1.UpdateOptions{})
	w.must(err)
}

func (w *world) createWidget(name, color string, size int64) {
	w.t.Helper()
	_, err := w.custom.Create(w.ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.GroupVersion().String(), "kind": "Widget", "metadata": map[string]any{"name": name, "labels": map[string]any{"shelf": color}},
		"spec": map[string]any{"color": color, "size": size},
	}}, metav1.CreateOptions{})
	w.must(err)
}

// patch merges a patch into an object of the namespace; the path is such as "configmaps/a" or "widgets/a/status".
func (w *world) patch(path, patch string) {
	w.t.Helper()
	w.must(w.request("PATCH", path, patch))
}

func (w *world) remove(path string) {
	w.t.Helper()
	w.must(w.request("DELETE", path, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}`))
}

func (w *world) request(verb, path, body string) error {
	api := "/api/v1"
	if strings.HasPrefix(path, widgets.Resource+"/") {
		api = "/apis/" + widgets.GroupVersion().String()
	}
	r := w.client.CoreV1().RESTClient().Verb(verb).AbsPath(api, "namespaces", w.ns, path).Body([]byte(body))
	if verb == http.MethodPatch {
		return r.SetHeader("Content-Type", "application/merge-patch+json").Do(w.ctx).Error()
	}
	return r.SetHeader("Content-Type", "application/json").Do(w.ctx).Error()
}

// process is a process that a test has started, with what it writes to standard error and standard output.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// start starts a program that ends with the test.
func (w *world) start(program string, args ...string) *process {
	w.t.Helper()
	return w.startWith(nil, program, args...)
}

// startWith starts a program with variables added to the environment.
func (w *world) startWith(env []string, program string, args ...string) *process {
	w.t.Helper()
	p := &process{cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// Linux sends the parent-death signal when the thread that started the child ends, so keep that thread alive.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the output says how it ended
		}
	}()
	w.must(<-started)
	w.t.Cleanup(func() {
		p.kill()
		if w.t.Failed() {
			w.t.Logf("%s %q:\n%s", filepath.Base(program), args, p.output())
		}
	})
	return p
}
