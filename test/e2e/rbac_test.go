package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// prints runs a command to its end and returns what it prints.
func (w *world) prints(args ...string) string {
	w.t.Helper()
	p := w.launch(args...)
	w.exits(p, 0)
	return p.Output()
}

// grant applies printed roles and bindings.
func (w *world) grant(printed string) {
	w.t.Helper()
	types := map[string]kube.Type{"ClusterRole": clusterRoles, "ClusterRoleBinding": clusterRoleBindings, "Role": roles, "RoleBinding": roleBindings}
	for doc := range strings.SplitSeq(printed, "---\n") {
		var object struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		fields := kube.Fields{}
		w.must(yaml.Unmarshal([]byte(doc), &object))
		w.must(yaml.Unmarshal([]byte(doc), &fields))
		if object.Kind == "" {
			continue // comments
		}
		for _, set := range []string{"apiVersion", "kind", "metadata"} {
			delete(fields, set)
		}
		_, err := w.kube.In(object.Metadata.Namespace).Create(w.soon(), types[object.Kind], object.Metadata.Name, fields)
		w.must(err)
	}
}

// The roles that `bridge rbac` prints are enough, also after a 410 and when a CRD is removed, and grant no
// more than the bridge needs.
func TestPrintedRolesAreEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.must(w.kube.Install(w.soon(), w.widgets))
	w.config.Name = w.ns
	delete(w.config.Checkpoint, "file") // keep the checkpoint on the bus
	w.config.LeaderElection = map[string]any{"enabled": true, "namespace": w.ns}
	w.config.Resources = []bridge.Resource{
		{Resource: "cm", Namespaces: []string{w.ns}},
		{Resource: w.widgets.ResourceID()},
		{Resource: "secrets", Namespaces: []string{w.ns}, LabelSelector: "seen=yes"},
		{Resource: "deployments", NamespaceSelector: "team=" + w.ns},
	}
	w.config.Secrets = map[string]any{"hashKeySecret": w.ns + "/hash-key"}
	_, err := w.kube.Create(w.soon(), kube.Secrets, "hash-key", kube.Fields{}) // the bridge puts its key in
	w.must(err)
	_, err = w.kube.Patch(w.soon(), kube.Namespaces, w.ns, `{"metadata":{"labels":{"team":"`+w.ns+`"}}}`)
	w.must(err)
	w.grant(w.prints("rbac", "-c", w.writeConfig(w.config), "--namespace", w.ns, "--service-account", "bridge"))
	_, path := w.token()
	w.kubeconfigOf(path, func(*api.Config) {})
	said := w.prints("validate", "--connect", "-c", w.writeConfig(w.config))
	says(t, said, "ok")

	w.create(w.widgets, "kept")
	w.create(w.widgets, "deleted")
	w.start()
	types := []kube.Type{kube.ConfigMaps, w.widgets, kube.Deployments}
	w.settle(types...)
	w.patch(w.widgets, "kept", "live")
	w.stop()
	w.delete(w.widgets, "deleted")
	w.expire()
	w.start()
	all := w.settle(types...)
	w.none(check.History(w.kube.Ledger, all, check.Options{Types: types, Gap: true}), all)
	secret, _ := w.create(kube.Secrets, "s")
	_, err = w.kube.Patch(w.soon(), kube.Secrets, "s", `{"metadata":{"labels":{"seen":"yes"}}}`)
	w.must(err)
	_, err = w.kube.Patch(w.soon(), kube.Secrets, "s", `{"metadata":{"labels":{"seen":"no"}}}`)
	w.must(err)
	left := w.deletionPublished(secret)
	if i := slices.IndexFunc(left, func(m bus.Message) bool { return m.UID() == secret && m.Is("deleted") }); left[i].Data.Reason != "left" {
		t.Errorf("the reason of a deletion is %q, want left because the object exists: %s", left[i].Data.Reason, &left[i])
	}
	w.must(w.kube.Uninstall(w.soon(), w.widgets)) // the bridge must be allowed to read the proof that the type is gone
	w.awaitStatus(func(s bridge.Status) bool { return s.Find(w.widgets.ResourceID()).State == "gone" })
	if strings.Contains(strings.ToLower(w.bridge.Log()), "forbidden") { // the word in the API server's errors
		t.Error("something was refused, see the log")
	}

	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	w.must(err)
	limited, err := kube.New(cfg, "default")
	w.must(err)
	for _, typ := range []kube.Type{kube.ConfigMaps, kube.Secrets, kube.Pods} {
		if _, _, err := limited.List(w.soon(), typ, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("list %s in another namespace: %v, want it to be forbidden", typ.Resource, err)
		}
	}
}

// With exactly the printed permissions, the bridge writes with each delivery and recovers after a crash, and readers can read but do
// nothing else.
func TestPrintedNATSPermissionsAreEnough(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{"exactly-once", "at-least-once", "at-most-once"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
			w.config.Sinks = []bridge.Sink{{Name: "audit", NATS: map[string]any{
				"url": "nats://127.0.0.1:4222", "delivery": delivery, "auth": map[string]any{"username": "bridge", "password": "b"},
			}}}
			if delivery == "exactly-once" {
				delete(w.config.Checkpoint, "file") // keep the checkpoint on the bus
			}
			w.config.Resources[0].Subject = "k8s.{cluster}.audit.{namespace}.{name}"
			url := w.startNATSWith(w.prints("rbac", "--bus", "--connect", "-c", w.writeConfig(w.config)))
			admin, err := nats.Connect(url, nats.UserInfo("admin", "a"))
			w.must(err)
			defer admin.Close()
			events, err := admin.SubscribeSync("k8s.>")
			w.must(err)
			w.must(admin.Flush())
			w.config.Sinks[0].NATS["url"] = url
			heard := func(word, uid string) {
				t.Helper()
				for ctx := w.soon(); ; {
					m, err := events.NextMsgWithContext(ctx)
					if err != nil {
						t.Fatalf("waiting to hear of %s %s: %v; the log:\n%s", word, uid, err, w.bridge.Log())
					}
					if strings.Contains(m.Header.Get("ce-type"), word) && m.Header.Get("ce-uid") == uid {
						return
					}
				}
			}
			for round := range 2 {
				w.start()
				uid, _ := w.create(kube.ConfigMaps, "o")
				heard("added", uid)
				w.patch(kube.ConfigMaps, "o", "patched")
				heard("modified", uid)
				w.delete(kube.ConfigMaps, "o")
				heard("deleted", uid)
				if round == 0 {
					w.bridge.Kill()
				}
			}
			w.stop() // includes the last write of the checkpoint
			if log := strings.ToLower(w.bridge.Log()); strings.Contains(log, "violation") {
				t.Errorf("something was refused:\n%s", log)
			}
			w.prints("validate", "--connect", "-c", w.writeConfig(w.config))
			auth := w.config.Sinks[0].NATS["auth"]
			w.readsOnly(url, delivery != "at-most-once")
			w.config.Sinks[0].NATS["auth"] = auth
			w.start() // must succeed whatever the reader has tried
			uid, _ := w.create(kube.ConfigMaps, "o")
			heard("added", uid)
			w.stop()
			if log := w.bridge.Log(); strings.Contains(log, "did not write") || strings.Contains(log, "taken over") {
				t.Errorf("the reader has written to the bus:\n%s", log)
			}
		})
	}
}

// readsOnly checks that the user reader can read, and cannot write.
func (w *world) readsOnly(url string, keeps bool) {
	w.t.Helper()
	w.config.Sinks[0].NATS["auth"] = map[string]any{"username": "reader", "password": "r"}
	if keeps {
		out := w.prints("history", "configmaps", w.ns+"/o", "-o", "json", "-c", w.writeConfig(w.config))
		if n := strings.Count(out, `"deleted"`); n != 2 {
			w.t.Errorf("the reader finds %d deletions, want 2:\n%s", n, out)
		}
	}
	refused := make(chan error, 8)
	nc, err := nats.Connect(url, nats.UserInfo("reader", "r"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	w.must(err)
	defer nc.Close()
	_, err = nc.SubscribeSync("k8s." + w.config.Cluster + ".>")
	w.must(err)
	w.must(nc.Publish("k8s."+w.config.Cluster+".audit.x.y", nil))
	select {
	case err := <-refused:
		if !strings.Contains(strings.ToLower(err.Error()), "publish") {
			w.t.Errorf("a reader may not subscribe: %v", err)
		}
	case <-w.soon().Done():
		w.t.Error("a reader may write")
	}
	for _, subject := range []string{"k8s." + w.config.Cluster + ".audit.x.y", "kubebridge." + w.config.Cluster + ".kubebridge.audit.term"} {
		w.must(nc.PublishRequest("$JS.API.STREAM.INFO."+"K8S_"+w.config.Cluster, subject, nil))
	}
	w.must(nc.Flush())
}

// startNATSWith starts a server with the printed accounts, and returns its URL.
func (w *world) startNATSWith(printed string) string {
	w.t.Helper()
	accounts, _, found := strings.Cut(printed, "\n}\n") // streams follow
	if !found || !strings.Contains(accounts, "# READERS") {
		w.t.Fatalf("no accounts are printed:\n%s", printed)
	}
	const admin = "{user: admin, password: a}"
	accounts = strings.NewReplacer("$BRIDGE_PASSWORD", "b", "$READER_PASSWORD", "r", "KUBEBRIDGE {\n    jetstream: enabled\n    users: [", "KUBEBRIDGE {\n    jetstream: enabled\n    users: ["+admin+", ").Replace(accounts)
	path := filepath.Join(w.dir, "nats.conf")
	w.must(os.WriteFile(path, []byte(`
listen: "127.0.0.1:-1"
jetstream {store_dir: "`+filepath.Join(w.dir, "jetstream")+`"}
`+accounts+"\n}\n"), 0o600))
	opts, err := server.ProcessConfigFile(path)
	w.must(err)
	opts.NoLog, opts.NoSigs = true, true
	s, err := server.NewServer(opts)
	w.must(err)
	s.Start()
	w.t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		w.t.Fatal("NATS is not ready")
	}
	return s.ClientURL()
}

// `validate --connect` reports every error that would end `run`, one per line, and does not disturb a running bridge.
func TestValidateConnectAsksTheBuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	delete(w.config.Checkpoint, "file")
	w.start()
	w.settle(kube.ConfigMaps)
	before := w.count()
	validate := func(exit int, words ...string) {
		t.Helper()
		p := w.launch("validate", "--connect", "-c", w.writeConfig(w.config))
		w.exits(p, exit)
		says(t, p.Log()+p.Output(), words...)
	}
	validate(0, "ok")
	stream := map[string]any{"replicas": 3}
	w.config.Sinks[0].NATS["stream"] = stream
	validate(0, "warning: sink \"audit\": stream", "num_replicas is 1, want 3")
	w.config.Name = "another"
	validate(exitEnvironment, `its kubebridge.bridge is "kubebridge", this one is "another"`)
	w.config.Sinks[0].NATS["url"] = "nats://127.0.0.1:1"
	validate(exitEnvironment, `sink "audit": connect to nats://127.0.0.1:1`)
	w.settle(kube.ConfigMaps)
	if n := w.count() - before; n != 2 {
		t.Errorf("%d messages came, want the marker's two", n)
	}
}
