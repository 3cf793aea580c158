package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/auditlog"
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

// attributesChanges creates and updates ConfigMaps as several users, and calls some functions meanwhile: each before the object of its number. Then
// it checks that each change is attributed once, to the right user.
func (w *world) attributesChanges(own *clustertest.Cluster, meanwhile map[int]func()) {
	w.t.Helper()
	w.onBus("the end of the first list", func(all []bus.Message) bool { // what a list finds is no change
		return slices.ContainsFunc(all, func(m bus.Message) bool { return m.Is("synced") })
	})
	users := map[string]string{} // by the object's UID and version
	as := userClients(w, own)
	for i := range 20 {
		if f := meanwhile[i]; f != nil {
			f()
		}
		user := fmt.Sprintf("user-%d", i%5)
		m, err := as(user).CoreV1().ConfigMaps(w.ns).Create(w.soon(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", i)}}, metav1.CreateOptions{})
		w.must(err)
		users[string(m.UID)+"/"+m.ResourceVersion] = user
		user = fmt.Sprintf("user-%d", (i+1)%5)
		m.Data = map[string]string{"a": "b"}
		m, err = as(user).CoreV1().ConfigMaps(w.ns).Update(w.soon(), m, metav1.UpdateOptions{})
		w.must(err)
		users[string(m.UID)+"/"+m.ResourceVersion] = user
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
			r := e.Attribution.Request
			if r == nil {
				w.t.Errorf("%s: %s", e.ID, e.Data)
				continue
			}
			key := e.UID + "/" + e.ResourceVersion
			if _, twice := found[key]; twice {
				w.t.Errorf("%s is attributed twice", e.ID)
			}
			found[key] = r.Impersonated.Name
			if len(r.SourceIPs) != 1 || r.UserAgent == "" || r.Received == "" || r.Completed == "" || e.Origin != event.Audit || e.ID != e.Attribution.Explains+":attributed" {
				w.t.Errorf("%s: %s", e.ID, e.Data)
			}
		}
		return len(found) >= len(users)
	})
	if err != nil {
		metrics, _ := kubernetes.NewForConfigOrDie(own.RESTConfig()).RESTClient().Get().AbsPath("/metrics").Do(w.t.Context()).Raw()
		w.t.Errorf("%d of %d changes are attributed: %v\nrecords that the API server gave up: %q", len(found), len(users), err,
			regexp.MustCompile(`apiserver_audit_error_total.*`).FindAllString(string(metrics), -1))
	}
	for key, user := range users {
		if found[key] != user {
			w.t.Errorf("%s was changed by %s, and attributed to %q", key, user, found[key])
		}
	}
	w.showsUsers("m-4", "added user-4", "modified user-0")
	w.examplesShowUsers(users)
}

// examplesShowUsers checks that the copies of the examples have the user of each object's last change.
func (w *world) examplesShowUsers(users map[string]string) {
	w.t.Helper()
	x := getExamples(w.t)
	objects, _, err := w.kube.List(w.soon(), kube.ConfigMaps, metav1.ListOptions{})
	w.must(err)
	var want []string
	for _, o := range objects {
		line := fmt.Sprintf("copy configmaps %s/%s %s %s", o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion())
		if user, changed := users[string(o.GetUID())+"/"+o.GetResourceVersion()]; changed {
			line += fmt.Sprintf(" by %q", user)
		}
		want = append(want, line)
	}
	slices.Sort(want)
	w.toOCSF(users, filepath.Join(x.dir, "shell", "ocsf.jq"))
	if w.nats != nil {
		url, stream := "nats://"+w.nats.Addr(), "K8S_"+w.ns
		w.same("Go", w.copied(x.nats, url, stream), want)
		w.same("Python", w.copied(x.python, filepath.Join(x.dir, "python", "nats_mirror.py"), url, stream), want)
		return
	}
	broker, topic := w.apacheKafka.Addrs()[0], "k8s."+w.ns+".core.configmaps"
	w.same("Go", w.copied(x.kafka, broker, `^k8s\.`), want)
	w.same("Python", w.copied(x.python, filepath.Join(x.dir, "python", "kafka_mirror.py"), broker, `^k8s\.`), want)
	out, err := exec.CommandContext(w.soon(), filepath.Join(x.dir, "shell", "kafka.sh"), broker, topic).Output()
	w.must(err)
	w.same("shell", strings.Split(strings.TrimSpace(string(out)), "\n"), want)
	sql := w.inPostgres(filepath.Join(x.dir, "sql", "postgres.sql"))
	lines := sql(`select 'copy configmaps ' || namespace || '/' || name || ' ' || uid || ' ' || resourceversion || coalesce(' by "' || (request->'impersonated'->>'name') || '"', '') from kubebridge.objects;`)
	w.same("PostgreSQL", strings.Split(strings.TrimSpace(lines), "\n"), want)
}

// showsUsers checks the changes that `bridge history` shows of a ConfigMap: type and user.
func (w *world) showsUsers(name string, want ...string) {
	w.t.Helper()
	out, err := exec.CommandContext(w.soon(), binary, "history", "configmaps", w.ns+"/"+name, "-c", w.writeConfig(w.config), "-o", "json").Output()
	w.must(err)
	var got []string
	for line := range bytes.Lines(out) {
		var change struct {
			Type        string
			Attribution event.Attribution
		}
		w.must(json.Unmarshal(line, &change))
		user := "?"
		if r := change.Attribution.Request; r != nil && r.Impersonated != nil {
			user = r.Impersonated.Name
		}
		got = append(got, change.Type+" "+user)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("bridge history shows %q, want %q:\n%s", got, want, out)
	}
}

// toOCSF checks that a program for jq makes an API Activity of OCSF of each attributed change.
func (w *world) toOCSF(users map[string]string, program string) {
	w.t.Helper()
	messages, err := w.log.Messages()
	w.must(err)
	var in bytes.Buffer
	for i := range messages {
		in.Write(append(messages[i].Raw, '\n'))
	}
	jq := exec.CommandContext(w.soon(), "jq", "-c", "-f", program)
	jq.Stdin = &in
	out, err := jq.Output()
	w.must(err)
	n := 0
	for line := range bytes.Lines(out) {
		n++
		var a struct {
			ClassUID    int `json:"class_uid"`
			ActivityID  int `json:"activity_id"`
			TypeUID     int `json:"type_uid"`
			Time        int64
			Actor       struct{ User struct{ Name string } }
			SrcEndpoint struct{ IP string } `json:"src_endpoint"`
			Resources   []struct{ UID, Version, Type string }
			Unmapped    struct{ Impersonated struct{ Name string } }
		}
		w.must(json.Unmarshal(line, &a))
		if len(a.Resources) != 1 {
			w.t.Fatalf("OCSF: %s", line)
		}
		user, known := users[a.Resources[0].UID+"/"+a.Resources[0].Version]
		if !known || a.Unmapped.Impersonated.Name != user || a.Actor.User.Name == "" || a.SrcEndpoint.IP == "" || a.Resources[0].Type != "configmaps" ||
			a.ClassUID != 6003 || a.TypeUID != 600300+a.ActivityID || a.ActivityID != 1 && a.ActivityID != 3 || time.Since(time.UnixMilli(a.Time)).Abs() > time.Hour {
			w.t.Errorf("OCSF of a change by %q: %s", user, line)
		}
	}
	if n < len(users) {
		w.t.Errorf("OCSF: %d activities, want %d", n, len(users))
	}
}

const refusalPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived", "ResponseStarted"]
rules:
- level: Metadata
  resources: [{group: "", resources: ["configmaps", "configmaps/*", "secrets"]}]
- level: None
`

// Each request for a published resource that a user may not send is an event, once, also if the bridge is killed: reads and writes, of one object
// and of many. Requests for other resources are not, nor those that succeed or find nothing, nor a request without a user.
func TestDenied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(refusalPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	own := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-mode=blocking"}})
	for _, on := range []string{busNATS, busApacheKafka} {
		t.Run(on, func(t *testing.T) {
			w := newWorld(t, options{cluster: own, bus: on, types: []kube.Type{kube.ConfigMaps}})
			w.config.Audit = map[string]any{"path": filepath.Join(w.dir, "audit"), "file": log, "settle": "3s", "denied": true}
			w.start()
			w.publishesRefusals(own)
		})
	}
}

func (w *world) publishesRefusals(own *clustertest.Cluster) {
	w.t.Helper()
	w.onBus("the end of the first list", func(all []bus.Message) bool {
		return slices.ContainsFunc(all, func(m bus.Message) bool { return m.Is("synced") })
	})
	var want []string
	for i := range 12 {
		switch i {
		case 5:
			w.bridge.Kill()
			w.run()
		case 8:
			w.bridge.Kill()
		case 10:
			w.run()
		}
		user := fmt.Sprintf("mallory-%d-%s", i, w.ns)
		c := rest.CopyConfig(own.RESTConfig())
		c.Impersonate = rest.ImpersonationConfig{UserName: user}
		client, err := kubernetes.NewForConfig(c)
		w.must(err)
		maps := client.CoreV1().ConfigMaps(w.ns)
		refused := func(verb, name string, err error) {
			w.t.Helper()
			if !apierrors.IsForbidden(err) {
				w.t.Fatalf("%s %s: %v", verb, name, err)
			}
			want = append(want, user+" "+verb+" "+name)
		}
		_, err = maps.Get(w.soon(), "target", metav1.GetOptions{})
		refused("get", w.ns+"/target", err)
		_, err = maps.List(w.soon(), metav1.ListOptions{})
		refused("list", w.ns+"/", err)
		_, err = client.CoreV1().ConfigMaps("").List(w.soon(), metav1.ListOptions{})
		refused("list", "/", err)
		_, err = maps.Watch(w.soon(), metav1.ListOptions{})
		refused("watch", w.ns+"/", err)
		refused("delete", w.ns+"/target", maps.Delete(w.soon(), "target", metav1.DeleteOptions{}))
		refused("deletecollection", w.ns+"/", maps.DeleteCollection(w.soon(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		if _, err = client.CoreV1().Secrets(w.ns).Get(w.soon(), "target", metav1.GetOptions{}); !apierrors.IsForbidden(err) { // no sink publishes Secrets
			w.t.Fatal(err)
		}
		_, err = userClients(w, own)(user).CoreV1().ConfigMaps(w.ns).Get(w.soon(), "none", metav1.GetOptions{}) // as a member of system:masters
		if !apierrors.IsNotFound(err) {
			w.t.Fatal(err)
		}
	}
	anonymous := rest.AnonymousClientConfig(own.RESTConfig())
	anonymous.BearerToken = "none"
	client, err := kubernetes.NewForConfig(anonymous)
	w.must(err)
	if _, err = client.CoreV1().ConfigMaps(w.ns).Get(w.soon(), "target", metav1.GetOptions{}); !apierrors.IsUnauthorized(err) {
		w.t.Fatal(err)
	}
	slices.Sort(want)
	var got []string
	_, err = w.log.Wait(w.soon(), func(all []bus.Message) bool {
		got = nil
		for _, m := range all {
			if !m.Is("denied") {
				continue
			}
			e, err := event.Parse(m.Raw)
			w.must(err)
			r := e.Denial.Request
			if r.Impersonated == nil || !strings.HasSuffix(r.Impersonated.Name, "-"+w.ns) { // of the other bus, for all namespaces
				continue
			}
			got = append(got, r.Impersonated.Name+" "+r.Verb+" "+e.Namespace+"/"+e.Name)
			if r.Code != 403 || r.Decision != "forbid" || !strings.Contains(e.Denial.Message, "cannot "+r.Verb) || e.Collection == "" || e.Origin != event.Audit || e.Resource != "configmaps" {
				w.t.Errorf("%s: %s", e.ID, e.Data)
			}
		}
		return len(got) >= len(want)
	})
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		w.t.Errorf("%v: got %d refusals, want %d:\n%s", err, len(got), len(want), cmp.Diff(want, got))
	}
}

// If the bridge has lost audit records, consumers see it in each collection, and changes are attributed as before.
func TestLostAuditRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(recordingPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	own := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-mode=blocking"}})
	for _, on := range []string{busNATS, busApacheKafka} {
		t.Run(on, func(t *testing.T) {
			w := newWorld(t, options{cluster: own, bus: on, types: []kube.Type{kube.ConfigMaps}})
			records := filepath.Join(w.dir, "audit")
			w.config.Audit = map[string]any{"path": records, "file": log, "settle": "3s"}
			w.start()
			w.attributesChanges(own, map[int]func(){10: func() {
				w.onBus("the first attribution", func(all []bus.Message) bool { // then the position is in the checkpoint
					return slices.ContainsFunc(all, func(m bus.Message) bool { return m.Is("attributed") })
				})
				w.bridge.Kill()
				w.must(os.RemoveAll(records))
				w.run()
			}})
			w.onBus("the loss", func(all []bus.Message) bool {
				return slices.ContainsFunc(all, func(m bus.Message) bool {
					return m.Is("lost") && strings.Contains(string(m.Raw), `"io.kubebridge.audit.lost.v1"`) && strings.Contains(string(m.Raw), "audit inbox: records are missing") && m.Collection() != ""
				})
			})
		})
	}
}

const webhookConfig = `apiVersion: v1
kind: Config
clusters:
- name: bridge
  cluster: {server: "https://%s/audit", certificate-authority-data: %s}
users:
- name: apiserver
  user: {token: the-token-of-the-bridge}
contexts:
- name: bridge
  context: {cluster: bridge, user: apiserver}
current-context: bridge
`

// startSending starts an API server that sends its records to a bridge with the returned audit.webhook. A batch waits for batchWait at most.
func startSending(t *testing.T, batchWait string) (own *clustertest.Cluster, webhook map[string]any) {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certificate, key := newCertificate(t)
	address := freeAddress(t)
	own = clustertest.Start(t, clustertest.Options{ExtraArgs: []string{
		"--audit-policy-file=" + file("policy.yaml", []byte(recordingPolicy)), "--audit-webhook-mode=batch", "--audit-webhook-batch-max-wait=" + batchWait,
		"--audit-webhook-initial-backoff=1s", "--audit-webhook-truncate-enabled",
		"--audit-webhook-config-file=" + file("webhook.yaml", fmt.Appendf(nil, webhookConfig, address, base64.StdEncoding.EncodeToString(certificate))),
	}})
	webhook = map[string]any{
		"listen": address, "certFile": file("tls.crt", certificate), "keyFile": file("tls.key", key), "tokenFile": file("token", []byte("the-token-of-the-bridge")),
	}
	return own, webhook
}

// The API server sends its records to the bridge. Each change is attributed once, also if the bridge is killed while the API server
// has records that it has not sent, and while it cannot send them.
func TestAttributionByWebhook(t *testing.T) {
	t.Parallel()
	own, webhook := startSending(t, "200ms")
	for _, on := range []string{busNATS, busApacheKafka} {
		t.Run(on, func(t *testing.T) {
			w := newWorld(t, options{cluster: own, bus: on, types: []kube.Type{kube.ConfigMaps}})
			w.config.Audit = map[string]any{"path": filepath.Join(w.dir, "audit"), "webhook": webhook, "settle": "3s"}
			w.start()
			w.attributesChanges(own, map[int]func(){
				6: func() { w.bridge.Kill() }, 9: w.run,
				14: func() { w.bridge.Kill(); w.run() },
			})
			w.bridge.Kill() // the next bridge listens on the same address
		})
	}
}

// With audit.wait, the event of a change says who made it, and no other event follows. If the record comes too late, or if the bridge is killed
// while changes wait, each change is still published once, and its user is known once.
func TestAttributionWaits(t *testing.T) {
	t.Parallel()
	own, webhook := startSending(t, "1s")
	for _, c := range []struct {
		on, wait string
		carry    int // how many of the changes say themselves who made them, at least
	}{
		{busNATS, "5s", 20}, {busApacheKafka, "5s", 20}, {busNATS, "20ms", 0},
	} {
		t.Run(c.on+" "+c.wait, func(t *testing.T) {
			w := newWorld(t, options{cluster: own, bus: c.on, types: []kube.Type{kube.ConfigMaps}})
			w.config.Audit = map[string]any{"path": filepath.Join(w.dir, "audit"), "webhook": webhook, "settle": "30s", "wait": c.wait}
			w.start()
			carried, others := w.carriesUsers(own)
			if carried < c.carry || c.carry == 0 && others == 0 {
				t.Errorf("%d changes say who made them, and %d have another event", carried, others)
			}
			w.bridge.Kill() // the next bridge listens on the same address
		})
	}
}

// carriesUsers changes ConfigMaps as several users, and kills the bridge meanwhile. It checks that each change is published and attributed once, and
// returns how many changes have an event with their user, and how many have another event.
func (w *world) carriesUsers(own *clustertest.Cluster) (carried, others int) {
	w.t.Helper()
	w.onBus("the end of the first list", func(all []bus.Message) bool {
		return slices.ContainsFunc(all, func(m bus.Message) bool { return m.Is("synced") })
	})
	users := map[string]string{} // by the object's UID and version
	as := userClients(w, own)
	for i := range 20 {
		user := fmt.Sprintf("user-%d", i%5)
		m, err := as(user).CoreV1().ConfigMaps(w.ns).Create(w.soon(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", i)}}, metav1.CreateOptions{})
		w.must(err)
		users[string(m.UID)+"/"+m.ResourceVersion] = user
		user = fmt.Sprintf("user-%d", (i+1)%5)
		m.Data = map[string]string{"a": "b"}
		m, err = as(user).CoreV1().ConfigMaps(w.ns).Update(w.soon(), m, metav1.UpdateOptions{})
		w.must(err)
		users[string(m.UID)+"/"+m.ResourceVersion] = user
		if i == 9 { // the last changes wait
			w.bridge.Kill()
			w.run()
		}
	}
	type known struct{ published, carried, other int }
	changes := map[string]known{}
	_, err := w.log.Wait(w.soon(), func(all []bus.Message) bool {
		clear(changes)
		attributed := 0
		for _, m := range all {
			if !m.Is("added") && !m.Is("modified") && !m.Is("attributed") {
				continue
			}
			e, err := event.Parse(m.Raw)
			w.must(err)
			key := e.UID + "/" + e.ResourceVersion
			r, c := e.Actor, changes[key]
			switch {
			case e.Type == event.Attributed:
				r = e.Attribution.Request
				c.other++
			case r != nil:
				c.carried++
				fallthrough
			default:
				c.published++
			}
			changes[key] = c
			if r == nil {
				continue
			}
			attributed++
			if r.Impersonated.Name != users[key] || len(r.SourceIPs) != 1 || r.Received == "" {
				w.t.Errorf("%s was changed by %s: %s", e.ID, users[key], e.Data)
			}
		}
		return attributed >= len(users)
	})
	if err != nil {
		w.t.Error(err)
	}
	for key := range users {
		c := changes[key]
		if c.published != 1 || c.carried+c.other != 1 {
			w.t.Errorf("%s: %+v", key, c)
		}
		carried += c.carried
		others += c.other
	}
	w.t.Logf("%d changes say who made them, and %d have another event", carried, others)
	w.showsUsers("m-4", "added user-4", "modified user-0")
	return carried, others
}

// newCertificate returns a certificate for 127.0.0.1 and 127.0.0.2 and its key, as PEM.
func newCertificate(t *testing.T) (certificate, key []byte) {
	t.Helper()
	certificate, key, err := auditlog.NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// With complete records, patches and deletions are attributed exactly, although other users send patches that change nothing.
func TestCompleteAttribution(t *testing.T) {
	t.Parallel()
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
