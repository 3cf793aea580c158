package serve

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// kubectlAt runs kubectl against the API server, or against `bridge serve`.
type kubectlAt struct {
	w     *world
	flags []string
	cache string
}

func (w *world) kubectls() (real, served *kubectlAt) {
	w.t.Helper()
	w.must(buildKubectl())
	return &kubectlAt{w, []string{"--kubeconfig", cluster.Kubeconfig()}, w.t.TempDir()}, &kubectlAt{w, []string{"--kubeconfig", "/dev/null", "--server", w.url}, w.t.TempDir()}
}

func (k *kubectlAt) args(args ...string) []string {
	return slices.Concat(k.flags, []string{"-n", k.w.ns, "--cache-dir", k.cache}, args)
}

// run returns what kubectl prints, and whether it succeeded.
func (k *kubectlAt) run(args ...string) (out, errs string, ok bool) {
	cmd := exec.CommandContext(k.w.ctx, kubectl, k.args(args...)...)
	cmd.Env = []string{"HOME=" + k.cache}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	return stdout.String(), stderr.String(), err == nil
}

// furnish creates objects of many kinds.
func (w *world) furnish() {
	w.t.Helper()
	replicas, app := int32(2), map[string]string{"app": "shop"}
	_, err := w.client.AppsV1().Deployments(w.ns).Create(w.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: app}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "shop:1"}}}},
	}}, metav1.CreateOptions{})
	w.must(err)
	for i, tier := range []string{"web", "web", "db", "db", "cache"} {
		name := string(rune('a' + i))
		w.createConfigMap(name, map[string]string{"tier": tier}, map[string]string{"key": "value of " + name})
		w.createWidget(name, []string{"red", "green"}[i%2], int64(i))
		w.createPod(name, []string{"node-1", "node-2"}[i%2], map[string]string{"tier": tier})
	}
	w.setPod("a", "10.2.0.1", corev1.PodRunning)
	w.setPod("b", "10.2.0.2", corev1.PodRunning)
	w.setPod("c", "10.2.0.3", corev1.PodFailed)
	w.patch("widgets/a/status", `{"status":{"shelf":"top","conditions":[{"type":"Sold","status":"True"}]}}`)
	for _, e := range []struct{ name, kind, reason, text, typ string }{
		{"a.1", "Pod", "Pulled", "the image is there", "Normal"}, {"a.2", "Pod", "Unhealthy", "the probe failed", "Warning"}, {"b.1", "Pod", "Started", "it runs", "Normal"},
	} {
		object, now := strings.TrimSuffix(e.name, e.name[1:]), metav1.Now()
		pod, err := w.client.CoreV1().Pods(w.ns).Get(w.ctx, object, metav1.GetOptions{})
		w.must(err)
		_, err = w.client.CoreV1().Events(w.ns).Create(w.ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: e.name}, InvolvedObject: corev1.ObjectReference{Kind: e.kind, APIVersion: "v1", Namespace: w.ns, Name: object, UID: pod.UID},
			Reason: e.reason, Message: e.text, Type: e.typ, FirstTimestamp: now, LastTimestamp: now, Count: 1, Source: corev1.EventSource{Component: "kubelet", Host: "node-1"},
		}, metav1.CreateOptions{})
		w.must(err)
	}
}

// same are commands that print the same from the API server and from `bridge serve`. NS is the namespace.
const same = `
get configmaps
get cm,pods,wd
get all
get cm -o yaml
get cm a -o json
get cm a -o jsonpath={.data.key}
get cm -l tier=web
get cm -l tier!=web --show-labels
get cm --chunk-size=2
get cm --chunk-size=1 -o yaml
get po -L tier --sort-by=.metadata.name
get po -o wide
get po -A
get po --field-selector=status.phase=Running
get po --field-selector=spec.nodeName=node-1,status.phase!=Failed -l tier -o name
get po -A --field-selector=metadata.namespace=NS,metadata.name=a -o name
get po -o custom-columns=N:.metadata.name,P:.status.phase,I:.status.podIP
get wd
get wd -o wide
get wd --field-selector=spec.color=red
get widgets.v1.shop.example.com a -o yaml
get nodes
get nodes -o wide
get nodes --field-selector=spec.unschedulable=false -l of=NS
get svc
get svc -o wide
get ingress
get endpointslices -o yaml
get deploy
get ns
get crd widgets.shop.example.com -o yaml
get events
get events --field-selector=type=Warning
get events -o wide
get events.v1.events.k8s.io -o wide
events
events --for=pod/a
describe cm a
describe po
describe po -l tier=web
describe wd a
describe node node-1
describe svc shop
describe ingress shop
describe deploy shop
describe ns NS
rollout history deploy/shop
wait --for=condition=Ready pod/a pod/b
wait --for=jsonpath={.spec.color}=red wd/a
auth can-i get pods
auth can-i list wd
auth can-i watch pods -A
auth can-i get pods/a
auth can-i get /version
explain selfsubjectaccessreviews.spec
`

// kubectl prints from `bridge serve` what it prints from the API server.
func TestKubectl(t *testing.T) {
	w := newWorld(t)
	w.furnish()
	w.furnishTargets()
	real, served := w.kubectls()
	w.readyIn("") // some commands read all namespaces
	for command := range strings.SplitSeq(strings.TrimSpace(same), "\n") {
		args := strings.Fields(strings.ReplaceAll(command, "NS", w.ns))
		if why := w.differs(real, served, args); why != "" {
			t.Errorf("kubectl %s (-API server +bridge serve):\n%s", command, why)
		}
	}
	w.wantResources(real, served)
	for command, want := range map[string]string{
		"get cm none":                        `Error from server (NotFound): configmaps "none" not found`,
		"get po --field-selector=spec.none=": "field label not supported: spec.none",
		"get secrets":                        `the server doesn't have a resource type "secrets"`,
		"logs a":                             "subresources are not on the bus",
		"exec a -- ls":                       "it can only be read",
		"port-forward a 8080":                "it can only be read",
		"create cm new":                      "it can only be read",
		"label po a x=y":                     "it can only be read",
		"delete po a":                        "it can only be read",
		"scale deploy shop --replicas=2":     "it can only be read",
		"apply -f kubectl/configmap.yaml --validate=false": "it can only be read",
		"apply -f kubectl/configmap.yaml":                  "failed to download openapi",
		"top pods":                                         "Metrics API not available",
	} {
		out, errs, ok := served.run(strings.Fields(command)...)
		if ok || !strings.Contains(errs, want) {
			t.Errorf("kubectl %s prints\n%s%s\nwant %s", command, out, errs, want)
		}
	}
}

// TestKubectlDescribesWithoutEvents: kubectl describe shows an object also if the bus has no Events, or only those that the bridge publishes by default, and
// says so. kubectl get shows the columns of a CronJob, a Job and a DaemonSet.
func TestKubectlDescribesWithoutEvents(t *testing.T) {
	t.Parallel()
	for _, events := range []string{"secrets", "events"} {
		t.Run("configmaps and "+events, func(t *testing.T) {
			t.Parallel()
			w := newWorldOf(t, "configmaps", "cronjobs.batch", "jobs.batch", "daemonsets.apps", events)
			w.createConfigMap("a", nil, map[string]string{"key": "value"})
			app := map[string]string{"app": "a"}
			pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a:1"}}, RestartPolicy: corev1.RestartPolicyNever}}
			job := batchv1.JobSpec{Template: pod}
			_, err := w.client.BatchV1().CronJobs(w.ns).Create(w.ctx, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: batchv1.CronJobSpec{Schedule: "0 3 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: job}}}, metav1.CreateOptions{})
			w.must(err)
			_, err = w.client.BatchV1().Jobs(w.ns).Create(w.ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: job}, metav1.CreateOptions{})
			w.must(err)
			pod.Spec.RestartPolicy, pod.Spec.NodeSelector = corev1.RestartPolicyAlways, map[string]string{"disk": "ssd"}
			_, err = w.client.AppsV1().DaemonSets(w.ns).Create(w.ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: app}, Template: pod}}, metav1.CreateOptions{})
			w.must(err)
			real, served := w.kubectls()
			for _, command := range []string{"describe cm a", "describe cronjob a", "get cronjobs", "get jobs", "get daemonsets"} {
				args := strings.Fields(command)
				w.eventually("kubectl "+command, func() string {
					_, errs, ok := served.run(args...)
					if !ok || strings.Contains(errs, "No resources found") {
						return errs
					}
					return ""
				})
				if why := w.differs(real, served, args); why != "" {
					t.Errorf("kubectl %s (-API server +bridge serve):\n%s", command, why)
				}
			}
			if _, errs, _ := served.run("describe", "cm", "a"); !strings.Contains(errs, "Warning: events are not served, so there are none in this list") {
				t.Errorf("kubectl describe warns: %s", errs)
			}
		})
	}
}

// certificate writes a certificate for 127.0.0.1 and its key.
func (w *world) certificate() (cert, key string) {
	w.t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pair := s.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	w.must(err)
	dir := w.t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	w.must(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	w.must(os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return cert, key
}

// reader creates a user who may read pods in the namespace, and returns a kubeconfig for the API server and the user's token.
func (w *world) reader() (kubeconfig, token string) {
	w.t.Helper()
	rbac, name := w.client.RbacV1(), metav1.ObjectMeta{Name: "reader"}
	_, err := rbac.Roles(w.ns).Create(w.ctx, &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list", "watch", "delete"}, APIGroups: []string{""}, Resources: []string{"pods", "pods/log"}}, {Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
	}}, metav1.CreateOptions{})
	w.must(err)
	_, err = rbac.RoleBindings(w.ns).Create(w.ctx, &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.ns, Name: "reader"}},
	}, metav1.CreateOptions{})
	w.must(err)
	kubeconfig, err = cluster.KubeconfigForServiceAccount(w.ctx, w.ns, "reader")
	w.must(err)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	w.must(err)
	return kubeconfig, config.BearerToken
}

// serveUsers starts another `bridge serve`, with TLS and the rights that users have in the cluster. It returns its address and the certificate.
func (w *world) serveUsers() (address, cert string) {
	w.t.Helper()
	cert, key := w.certificate()
	_, address = w.startServe("serve-users", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--authorization", "cluster")
	return "https://" + address, cert
}

// Users of kubectl find out who they are and what they may read, with and without an authorization.
func TestKubectlAuth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, everybody := w.kubectls()
	kubeconfig, token := w.reader()
	address, cert := w.serveUsers()
	real := &kubectlAt{w, []string{"--kubeconfig", kubeconfig}, t.TempDir()}
	reader := &kubectlAt{w, []string{"--kubeconfig", "/dev/null", "--server", address, "--certificate-authority", cert, "--token", token}, t.TempDir()}
	w.eventually("the reader is known", func() string {
		_, errs, ok := reader.run("get", "pods")
		if !ok {
			return errs
		}
		return ""
	})
	for command := range strings.SplitSeq("auth can-i list pods|auth can-i get pods/a|auth can-i get /api|auth whoami", "|") {
		if why := w.differs(real, reader, strings.Fields(command)); why != "" {
			t.Errorf("kubectl %s (-API server +bridge serve):\n%s", command, why)
		}
	}
	readOnly := "read-only copy"
	for _, c := range []struct {
		k       *kubectlAt
		command string
		ok      bool
		want    []string // in the output
		lacks   string
	}{
		{reader, "auth can-i watch configmaps", false, []string{"no"}, readOnly},
		{reader, "auth can-i list pods -A", false, []string{"no"}, readOnly},
		{reader, "auth can-i delete pods", false, []string{"no - ", readOnly}, ""},
		{reader, "auth can-i get pods --subresource=log", false, []string{"no - ", "subresources"}, ""},
		{reader, "auth can-i --list", true, []string{"pods [] [] [get list watch]", "selfsubjectreviews.authentication.k8s.io [] [] [create]", "selfsubjectaccessreviews.authorization.k8s.io [] [] [create]", "[/version] [] [get]"}, "configmaps"},
		{reader, "auth can-i list pods --as eve", false, []string{"bridge serve does not know impersonation"}, ""},
		{everybody, "auth can-i delete pods", false, []string{"no - ", readOnly}, ""},
		{everybody, "auth can-i create deployments.apps", false, []string{"no - ", readOnly}, ""},
		{everybody, "auth can-i --list", true, []string{"*.* [] [] [get list watch]", "[*] [] [get]"}, "delete"},
		{everybody, "auth whoami", true, []string{"system:anonymous", "system:unauthenticated"}, ""},
	} {
		out, errs, ok := c.k.run(strings.Fields(c.command)...)
		text := spaces.ReplaceAllString(out+errs, " ")
		for _, want := range c.want {
			if ok != c.ok || !strings.Contains(text, want) {
				t.Errorf("kubectl %s prints\n%s\nwant %s", c.command, text, want)
			}
		}
		if c.lacks != "" && strings.Contains(text, c.lacks) {
			t.Errorf("kubectl %s prints\n%s\nwith %s", c.command, text, c.lacks)
		}
	}
}

// differs returns how the outputs of two kubectls differ, without regard to ages and the widths of columns: time passes between the two.
func (w *world) differs(real, served *kubectlAt, args []string) string {
	w.t.Helper()
	var got, gotErrs string
	var beside sync.WaitGroup
	beside.Go(func() { got, gotErrs, _ = served.run(args...) })
	want, errs, ok := real.run(args...)
	beside.Wait()
	if !ok || want == "" {
		w.t.Errorf("kubectl %s at the API server: %s%s", args, want, errs)
	}
	ageless := func(s string) string { return spaces.ReplaceAllString(ages.ReplaceAllString(s, "AGE"), " ") }
	if diff := cmp.Diff(ageless(want), ageless(got)); diff != "" {
		return diff + gotErrs
	}
	return ""
}

var (
	ages   = regexp.MustCompile(`\b(\d+m)?\d+[sm]\b`) // of what a test has made
	spaces = regexp.MustCompile(` +`)
)

// wantResources checks that discovery shows the published resources as the API server does.
func (w *world) wantResources(real, served *kubectlAt) {
	w.t.Helper()
	want, errs, ok := real.run("api-resources", "--no-headers")
	if !ok {
		w.t.Fatal(errs)
	}
	known := map[string]bool{}
	for line := range strings.Lines(want) {
		known[strings.Join(strings.Fields(line), " ")] = true
	}
	got, errs, _ := served.run("api-resources", "--no-headers")
	n := 0
	for line := range strings.Lines(got) {
		n++
		if line = strings.Join(strings.Fields(line), " "); !known[line] {
			w.t.Errorf("kubectl api-resources shows %q, which the API server does not have", line)
		}
	}
	if want := len(published) + 3; n != want { // and the reviews
		w.t.Errorf("kubectl api-resources shows %d resources, want %d:\n%s%s", n, want, got, errs)
	}
}

// Scripts that wait with kubectl for changes work with `bridge serve`.
func TestKubectlWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish()
	real, served := w.kubectls()
	w.ready()
	type watching struct {
		command      string
		lines        int    // before the changes
		last         string // that the output must have in the end
		real, served *process
	}
	all := []*watching{
		{command: "get wd -w --output-watch-events", lines: 6, last: "DELETED"},
		{command: "get cm -w -l tier=web -o name --output-watch-events", lines: 2, last: "configmap/new"},
		{command: "get po -w -o custom-columns=NAME:.metadata.name,PHASE:.status.phase,IP:.status.podIP", lines: 6, last: "10.2.0.4"},
		{command: "wait --for=condition=Ready pod/d --timeout=80s", last: "met"},
		{command: "wait --for=jsonpath={.data.key}=changed cm/a --timeout=80s", last: "met"},
	}
	for _, x := range all {
		args := strings.Fields(x.command)
		x.real, x.served = w.start(kubectl, real.args(args...)...), w.start(kubectl, served.args(args...)...)
	}
	deletion := strings.Fields("wait --for=delete wd/d --timeout=80s") // prints nothing if it begins late
	gone := []*process{w.start(kubectl, real.args(deletion...)...), w.start(kubectl, served.args(deletion...)...)}
	printed := func(p *process) string { return warnings.ReplaceAllString(p.output(), "") }
	for _, x := range all {
		w.eventually("kubectl "+x.command+" has begun", func() string {
			if strings.Count(printed(x.real), "\n") < x.lines || strings.Count(printed(x.served), "\n") < x.lines {
				return "they have printed " + x.real.output() + x.served.output()
			}
			return ""
		})
	}
	w.patch("widgets/a", `{"spec":{"size":100}}`)
	w.createWidget("new", "blue", 7)
	w.remove("widgets/d")
	w.patch("configmaps/a", `{"data":{"key":"changed"}}`)
	w.patch("configmaps/a", `{"metadata":{"labels":{"tier":null}}}`)
	w.createConfigMap("new", map[string]string{"tier": "web"}, nil)
	w.setPod("d", "10.2.0.4", corev1.PodRunning)
	w.remove("pods/c")
	for _, x := range all {
		w.eventually("kubectl "+x.command+" (-API server +bridge serve)", func() string {
			want := printed(x.real)
			if !strings.Contains(want, x.last) {
				return "at the API server: " + want
			}
			return cmp.Diff(want, printed(x.served))
		})
	}
	for _, p := range gone {
		<-p.done
		if !p.cmd.ProcessState.Success() {
			t.Errorf("kubectl wait --for=delete: %s", p.output())
		}
	}
}

// warnings are the lines that kubectl prints for Warning headers.
var warnings = regexp.MustCompile(`(?m)^Warning: .*\n`)
