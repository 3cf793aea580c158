package clustertest

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// An API server accepts an audit policy of bridge rbac, and records what the bridge needs: bodies of what is published, none of Secrets, no
// tokens, and nothing of the rest.
func TestAuditPolicy(t *testing.T) {
	policy, err := filepath.Abs("../../../internal/operate/access/testdata/audit-policy-resources.yaml")
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "audit.log")
	c := Start(t, Options{ExtraArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log}})
	audited(t, clientFor(t, c.Kubeconfig()))
	want := map[string]string{
		"create configmaps a/bodies": "RequestResponse with a body", "create secrets a/none": "Metadata", "create services a/bodies": "RequestResponse with a body",
		"update services a/bodies/status": "RequestResponse with a body",
	}
	got := map[string]string{}
	file, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Level, Stage, Verb string
			ResponseObject     json.RawMessage
			User               struct{ Username string }
			ObjectRef          struct{ Resource, Namespace, Name, Subresource string }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Stage == "RequestReceived" {
			t.Errorf("stage %s", e.Stage)
		}
		if e.ObjectRef.Namespace != "a" && e.ObjectRef.Namespace != "other" {
			continue // of the API server itself
		}
		what := strings.TrimSuffix(e.Verb+" "+e.ObjectRef.Resource+" "+e.ObjectRef.Namespace+"/"+e.ObjectRef.Name+"/"+e.ObjectRef.Subresource, "/")
		got[what] = e.Level
		if e.ResponseObject != nil {
			got[what] += " with a body"
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for what, level := range want {
		if got[what] != level {
			t.Errorf("%s: recorded %q, want %q", what, got[what], level)
		}
		delete(got, what)
	}
	for what, level := range got {
		t.Errorf("%s is recorded, %s", what, level)
	}
}

// audited makes requests of all kinds.
func audited(t *testing.T, client *kubernetes.Clientset) {
	t.Helper()
	ctx, core := t.Context(), client.CoreV1()
	create := metav1.CreateOptions{}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, ns := range []string{"a", "other"} {
		_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, create)
		check(err)
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	_, err := core.ConfigMaps("a").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta("bodies")}, create)
	check(err)
	_, err = core.ConfigMaps("other").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta("unpublished")}, create)
	check(err)
	_, err = core.ConfigMaps("a").List(ctx, metav1.ListOptions{})
	check(err)
	_, err = core.Secrets("a").Create(ctx, &corev1.Secret{ObjectMeta: meta("none")}, create)
	check(err)
	_, err = core.ServiceAccounts("a").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta("unpublished")}, create)
	check(err)
	_, err = core.ServiceAccounts("a").CreateToken(ctx, "unpublished", &authenticationv1.TokenRequest{}, create)
	check(err)
	s, err := core.Services("a").Create(ctx, &corev1.Service{ObjectMeta: meta("bodies"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, create)
	check(err)
	_, err = core.Services("a").UpdateStatus(ctx, s, metav1.UpdateOptions{})
	check(err)
}
