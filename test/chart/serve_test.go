package chart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// served returns the objects of `bridge serve` in a rendering, by their kind.
func served(t *testing.T, more string) map[string]any {
	t.Helper()
	v := valuesOf(t, write(t, filepath.Join(t.TempDir(), "values.yaml"), more))
	r, err := render(chart(t), v)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for _, manifest := range r.objects {
		object := decode(t, manifest)
		if meta := object.(metav1.Object); meta.GetLabels()["app.kubernetes.io/name"] == "kubebridge-serve" {
			out[strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1.")] = object
		}
	}
	return out
}

const serveBase = "config: {cluster: c, resources: [pods], sinks: [{name: audit, kafka: {brokers: [k]}}]}\n"

// Nothing of the bridge selects the pod of serve, and the other way round: subscribers and API servers would reach the wrong process.
func TestServeIsApart(t *testing.T) {
	for _, path := range files(t, "serve*.good.yaml") {
		labels := map[bool]map[string]string{}
		var selectors []map[string]string
		for _, manifest := range rendering(t, path).objects {
			object := decode(t, manifest)
			if template := podTemplate(object); template != nil {
				labels[isServe(template)] = template.Labels
			}
			if s, ok := object.(*corev1.Service); ok {
				selectors = append(selectors, s.Spec.Selector)
			}
			if s, ok := object.(*appsv1.StatefulSet); ok {
				selectors = append(selectors, s.Spec.Selector.MatchLabels)
			}
		}
		for _, s := range selectors {
			const key = "app.kubernetes.io/name"
			if matches := [2]bool{s[key] == labels[false][key], s[key] == labels[true][key]}; matches[0] == matches[1] {
				t.Errorf("%s: %v selects pods of the bridge and of serve: %v", path, s, matches)
			}
		}
	}
}

// The account of serve may ask who a user is, what this user may read, and which cluster answers. It may read nothing else.
func TestServeRights(t *testing.T) {
	for mode, want := range map[string][]string{
		"authorization: cluster, tlsSecret: a":          {"create tokenreviews", "get namespaces [kube-system]", "create subjectaccessreviews"},
		"authorization: bus, tlsSecret: a":              {"create tokenreviews", "get namespaces [kube-system]"},
		`authorization: none, listen: "127.0.0.1:8443"`: nil,
	} {
		o := served(t, serveBase+"serve: {enabled: true, "+mode+"}")
		var got []string
		if role, ok := o["ClusterRole"].(*rbacv1.ClusterRole); ok {
			for _, r := range role.Rules {
				right := strings.Join(r.Verbs, ",") + " " + strings.Join(r.Resources, ",")
				if len(r.ResourceNames) > 0 {
					right += fmt.Sprint(" ", r.ResourceNames)
				}
				got = append(got, right)
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", mode, diff)
		}
		if token := *o["StatefulSet"].(*appsv1.StatefulSet).Spec.Template.Spec.AutomountServiceAccountToken; token != (want != nil) {
			t.Errorf("%s: its token is mounted: %t", mode, token)
		}
	}
}

// serve follows each change of its configuration only by a restart, so each change is one.
func TestServeRestarts(t *testing.T) {
	of := func(values string) string {
		return served(t, values+"serve: {enabled: true, tlsSecret: a}")["StatefulSet"].(*appsv1.StatefulSet).Spec.Template.Annotations["checksum/config"]
	}
	before := of(serveBase)
	if after := of(strings.Replace(serveBase, "[pods]", "[pods, services]", 1)); before == "" || after == before {
		t.Errorf("another resource: %q, then %q", before, after)
	}
	if after := of(serveBase + "nodeSelector: {a: b}\n"); after != before {
		t.Errorf("a node selector: %q, then %q", before, after)
	}
}

// A name as long as Helm allows gives no object or label that the API server refuses.
func TestServeNames(t *testing.T) {
	long := strings.Repeat("n", 63)
	r, err := render(chart(t), valuesOf(t, write(t, filepath.Join(t.TempDir(), "v.yaml"), serveBase+"nameOverride: "+long+"\nfullnameOverride: "+long+"\nserve: {enabled: true, tlsSecret: a}")))
	if err != nil {
		t.Fatal(err)
	}
	for _, manifest := range r.objects {
		meta := decode(t, manifest).(metav1.Object)
		if n := meta.GetName(); strings.HasSuffix(n, "-serve") && !strings.Contains(n, ":") && len(n) > 52 {
			t.Errorf("%s has %d characters", n, len(n))
		}
		if n := meta.GetLabels()["app.kubernetes.io/name"]; len(n) > 63 {
			t.Errorf("the label %s has %d characters", n, len(n))
		}
	}
}

// serve runs with the arguments and the account of the chart, and only with the permissions that the chart grants. Users see what they may read in the cluster.
func TestInstalledServe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.objects()
	w.install("[cm]", "serve: {enabled: true, tlsSecret: mirror-tls}")
	published := w.listen()
	p := w.start()
	w.await(p, published, []string{w.filled("k8s.chart.core.configmaps.NS.x")})
	user, err := cluster.KubeconfigForServiceAccount(t.Context(), w.ns, "x")
	w.must(err)
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}
	meta := metav1.ObjectMeta{Name: "reader"}
	_, err = w.client.RbacV1().Roles(w.ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.RbacV1().RoleBindings(w.ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.ns, Name: "x"}},
	}, metav1.CreateOptions{})
	w.must(err)

	s, account := w.serve()
	address := ""
	w.eventually(s, "an address", func() error {
		address = regexp.MustCompile(`"address":"(127\.0\.0\.1:\d+)"`).FindString(s.log())
		if address == "" {
			return errors.New("none in the log")
		}
		return nil
	})
	address = strings.Trim(strings.TrimPrefix(address, `"address":`), `"`)
	cfg, err := clientcmd.BuildConfigFromFlags("", user)
	w.must(err)
	cfg.Host = "https://" + address
	mirror, err := kubernetes.NewForConfig(cfg)
	w.must(err)
	w.eventually(s, "a list of ConfigMaps", func() error {
		list, err := mirror.CoreV1().ConfigMaps(w.ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(c corev1.ConfigMap) bool { return c.Name == "x" }) {
			return fmt.Errorf("%d objects without x", len(list.Items))
		}
		return nil
	})
	if _, err := mirror.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a list of all namespaces: %v", err)
	}
	for what, want := range map[string]bool{
		"create tokenreviews.authentication.k8s.io": true, "create subjectaccessreviews.authorization.k8s.io": true,
		"list configmaps": false, "get secrets": false, "create configmaps": false,
	} {
		w.allowedTo(account, what, want)
	}
	s.stop()
	p.stop()
}

// serve runs `bridge serve` as the installed StatefulSet has it, and returns also the kubeconfig of its account. Paths, the address and the way to the
// API server are those of this machine.
func (w *world) serve() (s *process, kubeconfig string) {
	w.Helper()
	set, err := w.client.AppsV1().StatefulSets(w.ns).Get(w.Context(), release+"-kubebridge-serve", metav1.GetOptions{})
	w.must(err)
	pod := set.Spec.Template.Spec
	kubeconfig, err = cluster.KubeconfigForServiceAccount(w.Context(), w.ns, pod.ServiceAccountName)
	w.must(err)
	for from, to := range map[string]string{"server.crt": "tls.crt", "server.key": "tls.key"} { // valid for 127.0.0.1
		text, err := os.ReadFile(filepath.Join(cluster.DataDir(), "pki", from))
		w.must(err)
		write(w.T, filepath.Join(w.dir, "serve-tls", to), string(text))
	}
	installed, err := w.client.CoreV1().ConfigMaps(w.ns).Get(w.Context(), release+"-kubebridge", metav1.GetOptions{})
	w.must(err)
	var config map[string]any
	w.must(yaml.Unmarshal([]byte(installed.Data["config.yaml"]), &config))
	config["kubernetes"] = map[string]any{"kubeconfig": kubeconfig}
	text, err := yaml.Marshal(config)
	w.must(err)
	args := []string{}
	for _, arg := range pod.Containers[0].Args {
		args = append(args, strings.NewReplacer("/etc/kubebridge", w.dir, "/var/lib", w.dir, ":8443", "127.0.0.1:0").Replace(arg))
	}
	return w.run(append(args, "-c", write(w.T, filepath.Join(w.dir, "serve.yaml"), string(text)))...), kubeconfig
}

// eventually waits until check succeeds.
func (w *world) eventually(p *process, what string, check func() error) {
	w.Helper()
	var last error
	err := wait.PollUntilContextTimeout(w.Context(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		w.Fatalf("%s: %v\n%s", what, last, p.log())
	}
}
