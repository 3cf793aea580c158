package history_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubebridge/kubebridge/internal/past/mirror/auth"
	"github.com/kubebridge/kubebridge/test/e2e/internal/auditlog"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// certificate writes a certificate for 127.0.0.1 and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	certificate, private, err := auditlog.NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, text := range map[string][]byte{cert: certificate, key: private} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// accessWorld is a bridge, a server of its bus, and users.
type accessWorld struct {
	*world
	server *server
	ca     string // of the server's certificate
	admin  kubernetes.Interface
	other  string // a namespace
}

// bind lets subjects do what a rule allows in a namespace.
func (w *accessWorld) bind(namespace, name string, rule rbacv1.PolicyRule, subjects ...rbacv1.Subject) {
	w.t.Helper()
	meta := metav1.ObjectMeta{Name: name}
	_, err := w.admin.RbacV1().Roles(namespace).Create(w.ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.admin.RbacV1().RoleBindings(namespace).Create(w.ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	w.must(err)
}

// configs returns the client configurations of a kubeconfig for the API server, and for the server of the bus.
func (w *accessWorld) configs(kubeconfig string, err error) (real, served *rest.Config) {
	w.t.Helper()
	w.must(err)
	real, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	w.must(err)
	real.WarningHandler = rest.NoWarnings{}
	served = rest.CopyConfig(real)
	served.Host, served.CAData, served.CAFile = w.server.url, nil, w.ca
	return real, served
}

func client(t *testing.T, c *rest.Config) kubernetes.Interface {
	t.Helper()
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func below(c *rest.Config, prefix string) *rest.Config {
	c = rest.CopyConfig(c)
	c.Host += prefix
	return c
}

var readConfigMaps = rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}

func newAccessWorld(t *testing.T, mode string) *accessWorld {
	w := &accessWorld{world: newBus(t, false)}
	w.other = w.ns + "b"
	w.admin = client(t, cluster.RESTConfig())
	_, err := w.admin.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.other}}, metav1.CreateOptions{})
	w.must(err)
	w.conf.Resources = []bridge.Resource{{Resource: "configmaps"}, {Resource: "pods"}, {Resource: "namespaces"}}
	for _, name := range auth.RBACResources() {
		w.conf.Resources = append(w.conf.Resources, bridge.Resource{Resource: name, SyncedEvery: "5s"})
	}
	w.configure()
	w.create(kube.ConfigMaps, "mine", kube.Fields{"data": map[string]any{"n": "1"}})
	_, err = w.admin.CoreV1().ConfigMaps(w.other).Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}, metav1.CreateOptions{})
	w.must(err)
	w.start()
	cert, key := certificate(t)
	w.ca = cert
	w.server = w.serve("--tls-cert", cert, "--tls-key", key, "--client-ca", filepath.Join(cluster.DataDir(), "pki", "ca.crt"), "--authorization", mode)
	return w
}

// TestServeAccess: users see through `bridge serve` what they may read at the API server, now and in the past, in lists and in watches, and are
// refused in its words. A right or a ServiceAccount that is taken away ends a watch within a minute. Without the API server nobody is let in by
// a token.
func TestServeAccess(t *testing.T) { // not in parallel: it stops the shared API server
	for _, mode := range []string{"cluster", "bus"} {
		t.Run(mode, func(t *testing.T) { testServeAccess(t, mode) })
	}
}

func testServeAccess(t *testing.T, mode string) {
	w := newAccessWorld(t, mode)
	reader, readerServed := w.configs(cluster.KubeconfigForServiceAccount(w.ctx, w.ns, "reader"))
	_, goneServed := w.configs(cluster.KubeconfigForServiceAccount(w.ctx, w.ns, "gone"))
	ann, annServed := w.configs(cluster.KubeconfigFor("ann-"+w.ns, "shoppers-"+w.ns))
	account := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: "ServiceAccount", Namespace: w.ns, Name: name}
	}
	w.bind(w.ns, "readers", readConfigMaps, account("gone"))
	w.bind(w.ns, "reader", readConfigMaps, account("reader"))
	named := readConfigMaps
	named.ResourceNames = []string{"theirs"}
	w.bind(w.other, "shoppers", named, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "shoppers-" + w.ns})

	served, gone, cert := client(t, readerServed), client(t, goneServed), client(t, annServed)
	list := func(k kubernetes.Interface, namespace string) error {
		_, err := k.CoreV1().ConfigMaps(namespace).List(w.ctx, metav1.ListOptions{})
		return err
	}
	var first *corev1.ConfigMapList
	w.eventually("the reader's rights are known", func() (why string) {
		var err error
		if first, err = served.CoreV1().ConfigMaps(w.ns).List(w.ctx, metav1.ListOptions{}); err != nil {
			return err.Error()
		}
		if err := list(gone, w.ns); err != nil {
			return err.Error()
		}
		if _, err := cert.CoreV1().ConfigMaps(w.other).Get(w.ctx, "theirs", metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	for _, m := range first.Items {
		if m.Namespace != w.ns {
			t.Errorf("the list has %s/%s", m.Namespace, m.Name)
		}
	}
	past := "/at/" + first.ResourceVersion
	pasts := map[string]kubernetes.Interface{"": served, past: client(t, below(readerServed, past)), "/clusters/" + w.ns: client(t, below(readerServed, "/clusters/"+w.ns))}
	for prefix, k := range pasts {
		if err := list(k, w.ns); err != nil {
			t.Errorf("%s: the own namespace: %v", prefix, err)
		}
		for what, ask := range map[string]func(kubernetes.Interface) error{
			"all namespaces":    func(k kubernetes.Interface) error { return list(k, "") },
			"another namespace": func(k kubernetes.Interface) error { return list(k, w.other) },
			"another resource": func(k kubernetes.Interface) error {
				_, err := k.CoreV1().Pods(w.ns).List(w.ctx, metav1.ListOptions{})
				return err
			},
			"another's object": func(k kubernetes.Interface) error {
				_, err := k.CoreV1().ConfigMaps(w.other).Get(w.ctx, "theirs", metav1.GetOptions{})
				return err
			},
			"a watch of all": func(k kubernetes.Interface) error {
				_, err := k.CoreV1().ConfigMaps("").Watch(w.ctx, metav1.ListOptions{})
				return err
			},
			"a field selector": func(k kubernetes.Interface) error {
				_, err := k.CoreV1().ConfigMaps("").List(w.ctx, metav1.ListOptions{FieldSelector: "metadata.namespace=" + w.ns})
				return err
			},
		} {
			got, want := ask(k), ask(client(t, reader))
			if !apierrors.IsForbidden(got) || want == nil || got.Error() != want.Error() {
				t.Errorf("%s: %s:\n%v, and the API server says\n%v", prefix, what, got, want)
			}
		}
	}
	for what, ask := range map[string]func(kubernetes.Interface) error{
		"a list with the name": func(k kubernetes.Interface) error {
			_, err := k.CoreV1().ConfigMaps(w.other).List(w.ctx, metav1.ListOptions{FieldSelector: "metadata.name=theirs"})
			return err
		},
		"a list":       func(k kubernetes.Interface) error { return list(k, w.other) },
		"another name": func(k kubernetes.Interface) error { return list(k, w.ns) },
		"discovery":    func(k kubernetes.Interface) error { _, err := k.Discovery().ServerGroups(); return err },
		"metrics": func(k kubernetes.Interface) error {
			return k.Discovery().RESTClient().Get().AbsPath("/metrics").Do(w.ctx).Error()
		},
	} {
		if got, want := ask(cert), ask(client(t, ann)); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("with a certificate: %s:\n%v, and the API server says\n%v", what, got, want)
		}
	}
	if err := list(client(t, below(readerServed, "/clusters/other")), w.ns); !apierrors.IsForbidden(err) {
		t.Errorf("another cluster: %v", err)
	}
	stranger, nobody := rest.CopyConfig(readerServed), rest.AnonymousClientConfig(readerServed)
	stranger.BearerToken, stranger.BearerTokenFile = "unknown", ""
	for _, c := range []*rest.Config{stranger, nobody} {
		if err := list(client(t, c), w.ns); !apierrors.IsUnauthorized(err) {
			t.Errorf("without a known token: %v", err)
		}
	}
	w.forbiddenForKubectl(readerServed)
	w.sameReviews(client(t, reader), served, true)
	w.sameReviews(client(t, ann), cert, mode == "bus")
	w.sameReviews(client(t, reader), pasts[past], true)
	w.sameErrors(client(t, reader), served)

	open := func(k kubernetes.Interface) watch.Interface {
		t.Helper()
		x, err := k.CoreV1().ConfigMaps(w.ns).Watch(w.ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion})
		w.must(err)
		t.Cleanup(x.Stop)
		return x
	}
	watches := map[string]watch.Interface{"403": open(served), "401": open(gone)}
	w.create(kube.ConfigMaps, "later", nil)
	for code, x := range watches {
		if e := w.nextEvent(x); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).Name != "later" {
			t.Errorf("%s: the watch has %+v", code, e)
		}
	}
	w.must(w.admin.RbacV1().RoleBindings(w.ns).Delete(w.ctx, "reader", metav1.DeleteOptions{}))
	w.must(w.admin.CoreV1().ServiceAccounts(w.ns).Delete(w.ctx, "gone", metav1.DeleteOptions{}))
	revoked := time.Now()
	var ends errgroup.Group
	for code, x := range watches {
		ends.Go(func() error {
			e := w.nextEvent(x)
			st, ok := e.Object.(*metav1.Status)
			if after := time.Since(revoked); !ok || fmt.Sprint(st.Code) != code || after > time.Minute {
				return fmt.Errorf("%s after the right was taken away, the watch has %s %+v", after, e.Type, e.Object)
			}
			return nil
		})
	}
	if err := ends.Wait(); err != nil {
		t.Error(err)
	}
	if err := list(served, w.ns); !apierrors.IsForbidden(err) {
		t.Errorf("a list without the right: %v", err)
	}
	if err := list(gone, w.ns); !apierrors.IsUnauthorized(err) {
		t.Errorf("a list with the token of a deleted ServiceAccount: %v", err)
	}

	cluster.Kill()
	w.eventually("no token is accepted without the API server", func() string {
		if err := list(served, w.ns); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "does not answer") {
			return fmt.Sprint(err)
		}
		return ""
	})
	_, err := cert.CoreV1().ConfigMaps(w.other).Get(w.ctx, "theirs", metav1.GetOptions{})
	if mode == "bus" && err != nil || mode == "cluster" && !apierrors.IsServiceUnavailable(err) {
		t.Errorf("with a certificate, without the API server: %v", err)
	}
	w.must(cluster.Restart(context.WithoutCancel(w.ctx)))
	w.eventually("the API server is asked again", func() string {
		if err := list(served, w.ns); !apierrors.IsForbidden(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
}

// sameReviews checks that a user who asks about itself gets the API server's answers, as far as they are about what is served. listed says whether
// all rights of the user can be listed.
func (w *accessWorld) sameReviews(real, served kubernetes.Interface, listed bool) {
	w.t.Helper()
	self := func(k kubernetes.Interface) authenticationv1.UserInfo {
		w.t.Helper()
		r, err := k.AuthenticationV1().SelfSubjectReviews().Create(w.ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		w.must(err)
		return r.Status.UserInfo
	}
	if diff := cmp.Diff(self(real), self(served)); diff != "" {
		w.t.Errorf("the user (-API server +bridge serve):\n%s", diff)
	}
	rules := func(k kubernetes.Interface, namespace string) authorizationv1.SubjectRulesReviewStatus {
		w.t.Helper()
		r, err := k.AuthorizationV1().SelfSubjectRulesReviews().Create(w.ctx, &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
		w.must(err)
		return r.Status
	}
	for _, namespace := range []string{w.ns, w.other, "none"} {
		got := rules(served, namespace)
		if !listed {
			if !got.Incomplete || !strings.Contains(got.EvaluationError, "client certificates") {
				w.t.Errorf("the rules in %s are %+v", namespace, got)
			}
			continue
		}
		if diff := cmp.Diff(sortedRules(auth.Served(rules(real, namespace))), sortedRules(got)); diff != "" {
			w.t.Errorf("the rules in %s (-API server +bridge serve):\n%s", namespace, diff)
		}
	}
	may := func(k kubernetes.Interface, spec authorizationv1.SelfSubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		w.t.Helper()
		r, err := k.AuthorizationV1().SelfSubjectAccessReviews().Create(w.ctx, &authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		w.must(err)
		st := r.Status
		if reason, _, ok := strings.Cut(st.Reason, " by "); ok { // several bindings can allow it
			st.Reason = reason
		}
		return st
	}
	compare := func(spec authorizationv1.SelfSubjectAccessReviewSpec, a *auth.Attributes) {
		w.t.Helper()
		got, want := may(served, spec), authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: auth.NotServed(a)}
		if want.Reason == "" {
			want = may(real, spec)
		}
		if got != want {
			w.t.Errorf("%+v: %+v, want %+v", a, got, want)
		}
	}
	for _, verb := range []string{"get", "list", "watch", "create", "*"} {
		for _, resource := range []string{"configmaps", "pods", "*"} {
			for _, namespace := range []string{w.ns, w.other, ""} {
				for _, name := range []string{"", "theirs"} {
					compare(authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: resource, Namespace: namespace, Name: name}},
						&auth.Attributes{Verb: verb, Resource: resource, Namespace: namespace, Name: name})
				}
			}
		}
	}
	for _, path := range []string{"/api", "/apis/apps/v1", "/metrics", "/version", "/*"} {
		for _, verb := range []string{"get", "post"} {
			compare(authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path}}, &auth.Attributes{Verb: verb, Path: path})
		}
	}
	for _, resource := range []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"} {
		group := "authorization.k8s.io"
		compare(authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Group: group, Resource: resource}},
			&auth.Attributes{Verb: "create", Group: group, Resource: resource})
	}
}

// sortedRules returns the rules as sorted JSON.
func sortedRules(st authorizationv1.SubjectRulesReviewStatus) (lines []string) {
	add := func(rule any) {
		text, err := json.Marshal(rule)
		if err != nil {
			text = []byte(err.Error())
		}
		lines = append(lines, string(text))
	}
	for _, r := range st.ResourceRules {
		add(r)
	}
	for _, r := range st.NonResourceRules {
		add(r)
	}
	slices.Sort(lines)
	return lines
}

// sameErrors checks that bodies that are no reviews are refused in the API server's words.
func (w *accessWorld) sameErrors(real, served kubernetes.Interface) {
	w.t.Helper()
	post := func(k kubernetes.Interface, path, contentType, body string) string {
		w.t.Helper()
		err := k.Discovery().RESTClient().Post().RequestURI("/apis/"+path).SetHeader("Content-Type", contentType).Body([]byte(body)).Do(w.ctx).Error()
		var status *apierrors.StatusError
		if !errors.As(err, &status) {
			return fmt.Sprint(err)
		}
		text := status.ErrStatus.Message
		for _, inside := range []string{": converting (v1.Pod)", ": it is of another type", "Invalid value: {"} { // what follows shows the types of the program
			text, _, _ = strings.Cut(text, inside)
		}
		return fmt.Sprintf("%d %s %s", status.ErrStatus.Code, status.ErrStatus.Reason, text)
	}
	access, rules, whoami := "authorization.k8s.io/v1/selfsubjectaccessreviews", "authorization.k8s.io/v1/selfsubjectrulesreviews", "authentication.k8s.io/v1/selfsubjectreviews"
	for _, c := range [][3]string{
		{access, "application/json", `{`},
		{access, "application/json", ``},
		{access, "application/json", `{"spec":{"resourceAttributes":7}}`},
		{access, "application/json", `{"kind":"Pod","apiVersion":"v1"}`},
		{access, "application/json", `{"kind":"None","apiVersion":"none/v1"}`},
		{access, "application/json", `{}`},
		{access, "application/json", `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1"}`},
		{access, "application/json", `{"spec":{"resourceAttributes":{"verb":"get"},"nonResourceAttributes":{"path":"/"}}}`},
		{access, "application/json", `{"metadata":{"name":"x"},"spec":{"nonResourceAttributes":{"path":"/"}}}`},
		{access, "application/yaml", `a: [`},
		{access + "?fieldValidation=Strict", "application/json", `{"spec":{"resourceAttributes":{"none":1}}}`},
		{access + "?fieldValidation=Nothing", "application/json", `{}`},
		{access + "?dryRun=No", "application/json", `{}`},
		{access, "text/plain", `{}`},
		{rules, "application/json", `{}`},
		{rules, "application/json", `[]`},
		{whoami, "application/json", `"x"`},
	} {
		if diff := cmp.Diff(post(real, c[0], c[1], c[2]), post(served, c[0], c[1], c[2])); diff != "" {
			w.t.Errorf("%s (-API server +bridge serve):\n%s", c, diff)
		}
	}
}

func (w *accessWorld) nextEvent(x watch.Interface) watch.Event {
	w.t.Helper()
	select {
	case e := <-x.ResultChan():
		return e
	case <-w.ctx.Done():
		w.t.Error("no event of the watch")
		return watch.Event{}
	}
}

// forbiddenForKubectl checks what a user of kubectl reads who asks for too much, if this machine has it.
func (w *accessWorld) forbiddenForKubectl(c *rest.Config) {
	w.t.Helper()
	path, err := exec.LookPath("kubectl")
	if err != nil {
		w.t.Log("without kubectl: ", err)
		return
	}
	run := func(args ...string) string {
		args = append([]string{"--server", c.Host, "--certificate-authority", w.ca, "--token", c.BearerToken, "--cache-dir", w.t.TempDir()}, args...)
		cmd := exec.CommandContext(w.ctx, path, args...)
		cmd.Env = []string{"KUBECONFIG=/dev/null", "HOME=" + w.t.TempDir()}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run() // the output says how it ends
		return out.String()
	}
	want := fmt.Sprintf(`Error from server (Forbidden): configmaps is forbidden: User "system:serviceaccount:%s:reader" cannot list resource "configmaps" in API group "" at the cluster scope`, w.ns)
	if got := run("get", "configmaps", "-A"); !strings.Contains(got, want) {
		w.t.Errorf("kubectl prints\n%s, want\n%s", got, want)
	}
	if got := run("get", "configmaps", "-n", w.ns); !strings.Contains(got, "mine") {
		w.t.Errorf("kubectl prints\n%s", got)
	}
	if got := run("get", "configmaps", "-n", w.ns, "--as", "eve"); !strings.Contains(got, "bridge serve does not know impersonation") {
		w.t.Errorf("kubectl --as prints\n%s", got)
	}
}

// draw draws RBAC objects and requests from few names, so that many requests are allowed.
type draw struct {
	*rand.Rand
	prefix string
}

func (d *draw) one(from ...string) string { return from[d.IntN(len(from))] }

func (d *draw) some(from ...string) (out []string) {
	for len(out) == 0 {
		for _, x := range from {
			if d.IntN(len(from)+1) < 2 {
				out = append(out, x)
			}
		}
	}
	return out
}

func (d *draw) namespace() string { return d.prefix + d.one("a", "b") }
func (d *draw) user() string      { return d.prefix + d.one("ann", "bob", "cat") }
func (d *draw) group() string     { return d.prefix + d.one("devs", "ops") }

var (
	ruleVerbs     = []string{"get", "list", "watch", "*", "create"}
	ruleGroups    = []string{"", "apps", "batch", "*"}
	ruleResources = []string{"pods", "pods/log", "deployments", "configmaps", "namespaces", "*", "*/log", "pods/*", "deployments/scale", "*/scale"}
	ruleNames     = []string{"x", "y", "*"}
	rulePaths     = []string{"/x", "/x/*", "/x/y", "/x*", "*", "/y/*/z", "/"}
)

func (d *draw) rules(cluster bool) (rules []rbacv1.PolicyRule) {
	for range 1 + d.IntN(2) {
		r := rbacv1.PolicyRule{Verbs: d.some(ruleVerbs...), APIGroups: d.some(ruleGroups...), Resources: d.some(ruleResources...)}
		switch {
		case cluster && d.IntN(3) == 0:
			r = rbacv1.PolicyRule{Verbs: d.some(ruleVerbs...), NonResourceURLs: d.some(rulePaths...)}
		case d.IntN(3) == 0:
			r.ResourceNames = d.some(ruleNames...)
		}
		rules = append(rules, r)
	}
	return rules
}

func (d *draw) subjects() (all []rbacv1.Subject) {
	for range 1 + d.IntN(2) {
		switch d.IntN(3) {
		case 0:
			all = append(all, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: d.user()})
		case 1:
			all = append(all, rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: d.group()})
		case 2:
			all = append(all, rbacv1.Subject{Kind: "ServiceAccount", Namespace: d.namespace(), Name: d.one("bot", "job")})
		}
	}
	return all
}

func (d *draw) request() (*auth.User, *auth.Attributes) {
	u := &auth.User{UserInfo: authenticationv1.UserInfo{Username: d.user(), Groups: []string{"system:authenticated"}}}
	switch d.IntN(4) {
	case 0:
		u.Username = "system:serviceaccount:" + d.namespace() + ":" + d.one("bot", "job")
	case 1:
		u.Groups = append(u.Groups, d.group())
	case 2:
		if d.IntN(10) == 0 {
			u.Groups = append(u.Groups, "system:masters")
		}
	}
	a := &auth.Attributes{Verb: d.one("get", "list", "watch")}
	if d.IntN(4) == 0 {
		a.Path = d.one("/x", "/x/y", "/xy", "/x/", "/y/1/z", "/y/*/z", "/", "/api", "/apis/apps/v1", "/openapi/v3", "/metrics")
		return u, a
	}
	a.Group, a.Version, a.Name = d.one("", "apps", "batch"), "v1", d.one("", "x", "y", "z")
	a.Resource, a.Subresource, _ = strings.Cut(d.one("pods", "pods/log", "deployments", "configmaps", "namespaces", "deployments/scale", "jobs"), "/")
	if d.IntN(3) > 0 {
		a.Namespace = d.namespace()
	}
	return u, a
}

// TestPolicyAsTheAPIServer: for random roles, bindings and requests the rights read from RBAC objects are those that the API server answers, and for
// random users and namespaces the rules.
func TestPolicyAsTheAPIServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := cluster.RESTConfig()
	c.QPS = -1
	k := client(t, c)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	d := &draw{rand.New(rand.NewPCG(seed, 0)), fmt.Sprintf("r%x-", time.Now().UnixNano())}
	for _, n := range []string{"a", "b"} {
		_, err := k.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.prefix + n}}, metav1.CreateOptions{})
		must(err)
	}
	rbac := k.RbacV1()
	for i := range 12 {
		name := metav1.ObjectMeta{Name: fmt.Sprint(d.prefix, i)}
		_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: name, Rules: d.rules(true)}, metav1.CreateOptions{})
		must(err)
		for _, n := range []string{"a", "b"} {
			_, err := rbac.Roles(d.prefix+n).Create(ctx, &rbacv1.Role{ObjectMeta: name, Rules: d.rules(false)}, metav1.CreateOptions{})
			must(err)
			ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: d.one("Role", "ClusterRole"), Name: fmt.Sprint(d.prefix, d.IntN(14))}
			if d.IntN(2) == 0 {
				_, err = rbac.RoleBindings(d.prefix+n).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: name, RoleRef: ref, Subjects: d.subjects()}, metav1.CreateOptions{})
				must(err)
			}
		}
		if i%4 == 0 {
			ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: fmt.Sprint(d.prefix, d.IntN(14))}
			_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: ref, Subjects: d.subjects()}, metav1.CreateOptions{})
			must(err)
		}
	}
	t.Cleanup(func() {
		for i := range 12 {
			name := fmt.Sprint(d.prefix, i)
			_ = rbac.ClusterRoles().Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})
			_ = rbac.ClusterRoleBindings().Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})
		}
	})
	policy := &auth.Policy{}
	roles, err := rbac.Roles("").List(ctx, metav1.ListOptions{})
	must(err)
	clusterRoles, err := rbac.ClusterRoles().List(ctx, metav1.ListOptions{})
	must(err)
	bindings, err := rbac.RoleBindings("").List(ctx, metav1.ListOptions{})
	must(err)
	clusterBindings, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	must(err)
	for _, r := range roles.Items {
		policy.SetRole(r.Namespace, r.Name, r.Rules)
	}
	for _, r := range clusterRoles.Items {
		policy.SetRole("", r.Name, r.Rules)
	}
	for _, r := range bindings.Items {
		policy.SetBinding(r.Namespace, r.Name, r.RoleRef, r.Subjects)
	}
	for _, r := range clusterBindings.Items {
		policy.SetBinding("", r.Name, r.RoleRef, r.Subjects)
	}

	review := func(u *auth.User, a *auth.Attributes) (bool, error) {
		spec := authorizationv1.SubjectAccessReviewSpec{User: u.Username, Groups: u.Groups}
		if a.Path != "" {
			spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: a.Verb, Path: a.Path}
		} else {
			spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name,
			}
		}
		r, err := k.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return err == nil && r.Status.Allowed, err
	}
	allowed := 0
	const requests = 1500
	for range requests {
		u, a := d.request()
		got, _ := policy.Allows(u, a)
		want, err := review(u, a)
		must(err)
		for until := time.Now().Add(5 * time.Second); got != want && time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
			want, err = review(u, a) // the API server may not have read all of its own objects yet
			must(err)
		}
		if got != want {
			t.Errorf("%+v, %+v: %v, and the API server says %v", u, a, got, want)
		}
		if got {
			allowed++
		}
	}
	t.Logf("%d of %d requests are allowed", allowed, requests)
	if allowed < requests/30 || allowed > requests*9/10 {
		t.Errorf("%d of %d requests are allowed: the test compares too little", allowed, requests)
	}

	for range 60 {
		u, _ := d.request()
		namespace := d.namespace()
		as := rest.CopyConfig(c)
		as.Impersonate = rest.ImpersonationConfig{UserName: u.Username, Groups: u.Groups}
		user := client(t, as)
		got := sortedRules(policy.Rules(u, namespace))
		diff := ""
		for until := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) { // as above
			r, err := user.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
			must(err)
			if diff = cmp.Diff(sortedRules(r.Status), got); diff == "" || time.Now().After(until) {
				break
			}
		}
		if diff != "" {
			t.Errorf("the rules of %+v in %s (-API server +ours):\n%s", u, namespace, diff)
		}
	}
}
