package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

const recordingPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
omitManagedFields: true
rules:
- level: None
  verbs: ["get", "list", "watch"]
- level: RequestResponse
  resources: [{group: "", resources: ["configmaps"]}]
- level: Metadata
`

// userClients returns a function that returns a client which impersonates a user.
func userClients(w *world, own *clustertest.Cluster) func(user string) kubernetes.Interface {
	return func(user string) kubernetes.Interface {
		c := rest.CopyConfig(own.RESTConfig())
		c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		client, err := kubernetes.NewForConfig(c)
		w.must(err)
		return client
	}
}

// A change is attributed to the user who made it, also if the bridge is killed before it has read the record.
func TestAttribution(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(recordingPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	own := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-mode=blocking"}})
	w := newWorld(t, options{cluster: own, types: []kube.Type{kube.ConfigMaps}})
	w.config.Audit = map[string]any{"path": filepath.Join(w.dir, "audit"), "file": log, "settle": "3s"}
	w.start()

	users := map[string]string{} // by the object's UID and version
	as := userClients(w, own)
	for i := range 20 {
		user := fmt.Sprintf("user-%d", i%5)
		maps := as(user).CoreV1().ConfigMaps(w.ns)
		m, err := maps.Create(w.soon(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", i)}}, metav1.CreateOptions{})
		w.must(err)
		users[string(m.UID)+"/"+m.ResourceVersion] = user
		user = fmt.Sprintf("user-%d", (i+1)%5)
		m.Data = map[string]string{"a": "b"}
		m, err = as(user).CoreV1().ConfigMaps(w.ns).Update(w.soon(), m, metav1.UpdateOptions{})
		w.must(err)
		users[string(m.UID)+"/"+m.ResourceVersion] = user
		if i == 10 {
			w.bridge.Kill()
			w.run()
		}
	}
	found := map[string]string{}
	_, err := w.log.Wait(w.soon(), func(all []bus.Message) bool {
		clear(found)
		for _, m := range all {
			if !m.Is("attributed") {
				continue
			}
			e, err := event.Parse(m.Raw)
			w.must(err)
			if e.Attribution.Request == nil {
				t.Errorf("%s: %s", e.ID, e.Data)
				continue
			}
			key := e.UID + "/" + e.ResourceVersion
			if _, twice := found[key]; twice {
				t.Errorf("%s is attributed twice", e.ID)
			}
			found[key] = e.Attribution.Request.Impersonated.Name
		}
		return len(found) >= len(users)
	})
	w.must(err)
	for key, user := range users {
		if found[key] != user {
			t.Errorf("%s was changed by %s, and attributed to %q", key, user, found[key])
		}
	}
	text, _ := json.Marshal(found)
	t.Logf("%s", text)
}

// With complete records, patches and deletions are attributed exactly, although other users send patches that change nothing.
func TestCompleteAttribution(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(strings.Replace(recordingPolicy, "omitStages: [\"RequestReceived\"]\n", "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	own := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-mode=blocking", "--request-timeout=3s",
	}})
	w := newWorld(t, options{cluster: own, types: []kube.Type{kube.ConfigMaps}})
	w.config.Audit = map[string]any{"path": filepath.Join(w.dir, "audit"), "file": log, "settle": "20s", "complete": true, "requestTimeout": "3s"}
	w.start()
	users := map[string]string{} // by the object's UID, and version or "deleted"
	as := userClients(w, own)
	patch := func(user, name, value string) *corev1.ConfigMap {
		m, err := as(user).CoreV1().ConfigMaps(w.ns).Patch(w.soon(), name, types.MergePatchType, []byte(`{"data":{"a":"`+value+`"}}`), metav1.PatchOptions{})
		w.must(err)
		return m
	}
	deadline := time.Now().Add(12 * time.Second) // the records are complete after twice the timeout of requests, and a floor
	for i := 0; time.Now().Before(deadline) || i < 10; i++ {
		name := fmt.Sprintf("m-%d", i)
		m, err := as("alice").CoreV1().ConfigMaps(w.ns).Create(w.soon(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		w.must(err)
		late := time.Now().After(deadline.Add(-2 * time.Second))
		if late {
			users[string(m.UID)+"/"+m.ResourceVersion] = "alice"
		}
		m = patch("bob", name, "b")
		if late {
			users[string(m.UID)+"/"+m.ResourceVersion] = "bob"
		}
		patch("carol", name, "b") // changes nothing
		w.must(as("dave").CoreV1().ConfigMaps(w.ns).Delete(w.soon(), name, metav1.DeleteOptions{}))
		if late {
			users[string(m.UID)+"/deleted"] = "dave"
		}
		time.Sleep(100 * time.Millisecond)
	}
	found := map[string]string{}
	_, err := w.log.Wait(w.soon(), func(all []bus.Message) bool {
		clear(found)
		for _, m := range all {
			if !m.Is("attributed") {
				continue
			}
			e, err := event.Parse(m.Raw)
			w.must(err)
			if e.Attribution.Request == nil {
				continue
			}
			key := e.UID + "/" + e.ResourceVersion
			if strings.HasSuffix(e.Attribution.Explains, ":deleted") {
				key = e.UID + "/deleted"
			}
			found[key] = e.Attribution.Request.Impersonated.Name
		}
		for key := range users {
			if found[key] == "" {
				return false
			}
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
	for key, user := range users {
		if found[key] != user {
			t.Errorf("%s was changed by %s, and attributed to %q", key, user, found[key])
		}
	}
	t.Logf("%d changes", len(users))
}
