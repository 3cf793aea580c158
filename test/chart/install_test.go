package chart

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// patience bounds every wait.
const patience = 2 * time.Minute

// The bridge runs with the chart's account and only with the permissions that the chart grants. It must publish everything that
// is configured.
func TestInstalledBridgeStreams(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		resources string   // NS is a namespace with an object of each kind
		rest      string   // of the values
		subjects  []string // that are published to; the token =40 is @, of an entry without a name that makes one collection per namespace
		may, not  []string
	}{
		{
			"in the whole cluster",
			`[cm, {resource: secrets, labelSelector: audit=true}, "*.networking.k8s.io", {resource: sa, namespaceSelector: chart=NS}]`,
			"",
			[]string{"core.configmaps.NS.x", "core.secrets.NS.x", "networking_k8s_io.networkpolicies.NS.x", "core.serviceaccounts.NS.x.=40"},
			[]string{"get secrets", "list configmaps", "get namespaces"},
			[]string{"get configmaps", "list pods", "delete secrets", "get networkpolicies.networking.k8s.io", "create pods/exec", "get leases.coordination.k8s.io"},
		},
		{
			"the core group",
			`["*.core"]`, "",
			[]string{"core.configmaps.NS.x", "core.namespaces._.NS"},
			[]string{"list pods"},
			[]string{"list secrets", "get pods/exec", "get nodes/proxy"},
		},
		{
			"everything",
			`["*.*"]`, "rbac: {allowEverything: true}",
			[]string{"core.configmaps.NS.x", "networking_k8s_io.networkpolicies.NS.x"},
			[]string{"list secrets"},
			[]string{"get secrets", "get pods/exec", "get nodes/proxy", "create pods"},
		},
		{
			"a role per namespace",
			`[{resource: configmaps, namespaces: [NS]}, {resource: secrets, namespaces: [NS], labelSelector: audit=true}]`, "",
			[]string{"core.configmaps.NS.x.=40", "core.secrets.NS.x.=40"},
			nil,
			[]string{"list configmaps", "list secrets"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.objects()
			w.install(w.filled(c.resources), w.filled(c.rest))
			for _, what := range c.may {
				w.allowed(what, true)
			}
			for _, what := range c.not {
				w.allowed(what, false)
			}
			published := w.listen()
			p := w.start()
			var want []string
			for _, subject := range c.subjects {
				want = append(want, "k8s.chart."+w.filled(subject))
			}
			w.await(p, published, want)
			p.stop()
			if log := strings.ToLower(p.log()); strings.Contains(log, "forbidden") || strings.Contains(log, "unauthorized") {
				t.Errorf("something was refused:\n%s", p.log())
			}
		})
	}
}

// Without a ClusterRole, the bridge takes the cluster's UID from the configuration.
func TestInstalledBridgeWithRolesAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.objects()
	system, err := w.client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	w.must(err)
	w.uid = string(system.UID)
	w.install(w.filled(`[{resource: configmaps, namespaces: [NS]}]`), "rbac: {clusterScope: false}")
	w.allowed("get namespaces", false)
	w.allowed("list customresourcedefinitions.apiextensions.k8s.io", false)
	published := w.listen()
	p := w.start()
	w.await(p, published, []string{w.filled("k8s.chart.core.configmaps.NS.x.=40")})
	p.stop()
}

// With another key, every value would have another hash. The bridge creates the key once, and the key survives upgrades and
// even the removal of the release. Helm's manifests, and its stored copies of them, never contain it.
func TestHashKeyIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.objects()
	w.install("[configmaps]", "")
	if key := w.hashKey(); key != nil {
		t.Fatalf("the chart made a key of %d bytes", len(key))
	}
	published := w.listen()
	p := w.start()
	w.await(p, published, []string{w.filled("k8s.chart.core.configmaps.NS.x")})
	p.stop()
	first := w.hashKey()
	if len(first) != 32 {
		t.Fatalf("a key of %d bytes", len(first))
	}
	upgrade := action.NewUpgrade(w.helm)
	upgrade.Namespace, upgrade.WaitStrategy, upgrade.Timeout = w.ns, kube.HookOnlyStrategy, patience
	if _, err := upgrade.Run(release, chart(t), w.values("[pods, services]", "")); err != nil {
		t.Fatal(err)
	}
	if again := w.hashKey(); !bytes.Equal(again, first) {
		t.Error("an upgrade changed the key")
	}
	w.uninstall()
	if kept := w.hashKey(); !bytes.Equal(kept, first) {
		t.Error("the key went with the release")
	}
	w.install("[pods]", "")
	if again := w.hashKey(); !bytes.Equal(again, first) {
		t.Error("a new installation changed the key")
	}
}

// world is a namespace with a release in it, and a bus.
type world struct {
	*testing.T
	ns, dir, bus, uid string
	client            *kubernetes.Clientset
	helm              *action.Configuration
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, dir: t.TempDir()}
	var err error
	w.client, err = kubernetes.NewForConfig(cluster.RESTConfig())
	w.must(err)
	ns, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "chart-"}}, metav1.CreateOptions{})
	w.must(err)
	w.ns = ns.Name
	ns.Labels["chart"] = ns.Name
	_, err = w.client.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{})
	w.must(err)
	t.Cleanup(func() {
		if err := cluster.DeleteNamespace(context.Background(), w.ns); err != nil {
			t.Error(err)
		}
	})
	flags := genericclioptions.NewConfigFlags(false)
	kubeconfig, cache := cluster.Kubeconfig(), filepath.Join(w.dir, "cache")
	flags.KubeConfig, flags.Namespace, flags.CacheDir = &kubeconfig, &w.ns, &cache
	w.helm = action.NewConfiguration()
	w.must(w.helm.Init(flags, w.ns, "secret"))
	w.bus = natsServer(t)
	return w
}

func natsServer(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server is not ready")
	}
	return s.ClientURL()
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) filled(text string) string { return strings.ReplaceAll(text, "NS", w.ns) }

// objects makes one of each kind that the tests watch, named x.
func (w *world) objects() {
	w.Helper()
	ctx, meta := w.Context(), metav1.ObjectMeta{Name: "x", Labels: map[string]string{"audit": "true"}}
	_, err := w.client.CoreV1().ConfigMaps(w.ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.CoreV1().Secrets(w.ns).Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"k": "v"}}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.CoreV1().ServiceAccounts(w.ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.NetworkingV1().NetworkPolicies(w.ns).Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: meta}, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) values(resources, rest string) map[string]any {
	w.Helper()
	text := "config:\n  cluster: chart\n  name: " + w.ns + "\n  resources: " + resources + "\n" +
		"  kubernetes: {clusterUID: \"" + w.uid + "\"}\n" +
		"  leaderElection: {namespace: " + w.ns + "}\n" + // a process is in none
		"  sinks: [{name: live, nats: {url: \"" + w.bus + "\"}}]\n" + rest + "\n"
	return valuesOf(w.T, write(w.T, filepath.Join(w.dir, "values.yaml"), text))
}

// install does what `helm install` does; nothing here runs the pods.
func (w *world) install(resources, rest string) {
	w.Helper()
	install := action.NewInstall(w.helm)
	install.ReleaseName, install.Namespace = release, w.ns
	install.WaitStrategy, install.Timeout = kube.HookOnlyStrategy, patience
	if _, err := install.Run(chart(w.T), w.values(resources, rest)); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(w.uninstall)
}

func (w *world) uninstall() {
	uninstall := action.NewUninstall(w.helm)
	uninstall.IgnoreNotFound, uninstall.WaitStrategy, uninstall.Timeout = true, kube.HookOnlyStrategy, patience
	if _, err := uninstall.Run(release); err != nil {
		w.Error(err)
	}
}

func (w *world) hashKey() []byte {
	w.Helper()
	s, err := w.client.CoreV1().Secrets(w.ns).Get(w.Context(), release+"-kubebridge-hash-key", metav1.GetOptions{})
	w.must(err)
	return s.Data["key"]
}

func (w *world) kubeconfig() string {
	w.Helper()
	path, err := cluster.KubeconfigForServiceAccount(w.Context(), w.ns, release+"-kubebridge")
	w.must(err)
	return path
}

// allowed asks the API server whether the chart's account has the permission "verb resource" in any namespace.
func (w *world) allowed(what string, want bool) {
	w.Helper()
	w.allowedTo(w.kubeconfig(), what, want)
}

func (w *world) allowedTo(kubeconfig, what string, want bool) {
	w.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	w.must(err)
	client, err := kubernetes.NewForConfig(cfg)
	w.must(err)
	verb, resource, _ := strings.Cut(what, " ")
	resource, sub, _ := strings.Cut(resource, "/")
	resource, group, _ := strings.Cut(resource, ".")
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(w.Context(), &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: group, Resource: resource, Subresource: sub,
		}},
	}, metav1.CreateOptions{})
	w.must(err)
	if review.Status.Allowed != want {
		w.Errorf("may %s: %t", what, review.Status.Allowed)
	}
}

// listen returns the subjects of what arrives on the bus.
func (w *world) listen() <-chan string {
	w.Helper()
	nc, err := nats.Connect(w.bus)
	w.must(err)
	w.Cleanup(nc.Close)
	published := make(chan string, 10000)
	_, err = nc.Subscribe("k8s.>", func(m *nats.Msg) { published <- m.Subject })
	w.must(err)
	w.must(nc.Flush())
	return published
}

// The API server's RBAC decides who can read the status. The bridge's own account can, as far as the chart grants it; an
// account without permissions cannot.
func TestInstalledStatusAsksTheAPIServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.objects()
	w.install("[cm]", "  status: {login: {kubernetes: true}}")
	published := w.listen()
	p := w.start()
	w.await(p, published, []string{w.filled("k8s.chart.core.configmaps.NS.x")})
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(p.log()[strings.Index(p.log(), "status listens"):])
	stranger, err := cluster.KubeconfigForServiceAccount(t.Context(), w.ns, "x")
	w.must(err)
	for kubeconfig, want := range map[string]string{w.kubeconfig(): "COLLECTION", stranger: `may not get /kubebridge/api/status`} {
		cmd := exec.CommandContext(t.Context(), bridge, "status", "-c", filepath.Join(w.dir, "config.yaml"), "--status-listen", address, "--kubeconfig", kubeconfig)
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), want) {
			t.Errorf("%s, want %s:\n%s\n%s", cmd, want, out, p.log())
		}
	}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusUnauthorized} {
		answer, err := http.Get("http://" + address + path)
		w.must(err)
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s without a token: %s", path, answer.Status)
		}
	}
	p.stop()
}

func (w *world) await(p *process, published <-chan string, want []string) {
	w.Helper()
	missing := map[string]bool{}
	for _, subject := range want {
		missing[subject] = true
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for len(missing) > 0 {
		select {
		case subject := <-published:
			delete(missing, subject)
		case <-p.done:
			w.Fatalf("the bridge ended:\n%s", p.log())
		case <-timeout.C:
			w.Fatalf("not published to: %v\n%s", missing, p.log())
		}
	}
}

// process is the bridge while it runs.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}
	mu   sync.Mutex
	text bytes.Buffer
}

// start runs the bridge with the installed configuration and the chart's account.
func (w *world) start() *process {
	w.Helper()
	installed, err := w.client.CoreV1().ConfigMaps(w.ns).Get(w.Context(), release+"-kubebridge", metav1.GetOptions{})
	w.must(err)
	text := strings.NewReplacer("/etc/kubebridge", w.dir, "/tmp/admin.sock", filepath.Join(w.dir, "s")).Replace(installed.Data["config.yaml"])
	file := write(w.T, filepath.Join(w.dir, "config.yaml"), text)
	return w.run("run", "-c", file, "--status-listen", "127.0.0.1:0", "--kubeconfig", w.kubeconfig())
}

// run starts the program.
func (w *world) run(args ...string) *process {
	w.Helper()
	p := &process{t: w.T, cmd: exec.Command(bridge, args...), done: make(chan struct{})}
	out, err := p.cmd.StderrPipe()
	w.must(err)
	w.must(p.cmd.Start())
	go func() {
		defer close(p.done)
		_, _ = io.Copy(p, out)
		_ = p.cmd.Wait() // its error is in ProcessState
	}()
	w.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// stop ends the process like a kubelet, and checks that it exits cleanly.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("the bridge does not end:\n%s", p.log())
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("exit code %d:\n%s", code, p.log())
	}
}
