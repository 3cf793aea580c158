// Package history_test tests `bridge state` and `bridge history` on what a bridge published of a real kube-apiserver: their answer
// for a time is compared with what the server listed then.
package history_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
	"github.com/kubebridge/kubebridge/test/paralleltest"
)

const patience = 60 * time.Second

var (
	binary  string
	cluster *clustertest.Cluster

	replicaSets = kube.Type{GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, Kind: "ReplicaSet", Namespaced: true}
	services    = kube.Type{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "services"}, Kind: "Service", Namespaced: true}
	namespaced  = []kube.Type{kube.ConfigMaps, kube.Secrets, kube.Pods, services, kube.Deployments, replicaSets}
)

func TestMain(m *testing.M) {
	paralleltest.Raise(4)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, m)
	stop()
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "kubebridge-e2e-history-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary = filepath.Join(dir, "bridge")
	if err := bridge.Build(ctx, bridge.Root(), "./cmd/bridge", binary); err != nil {
		return 1, err
	}
	if cluster, err = clustertest.Launch(ctx, clustertest.Options{}); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, cluster.Close()
}

// world has a namespace, a bridge that watches it, and the bus.
type world struct {
	t       *testing.T
	ctx     context.Context
	kube    *kube.Client
	ns      string
	conf    bridge.Config
	config  string // the file of conf
	process *bridge.Process
	nats    string // its URL; "": the bus is Kafka
	log     *bus.Log
}

// newWorld starts a bridge that watches all types.
func newWorld(t *testing.T, kafka bool) *world {
	t.Helper()
	w := newBus(t, kafka)
	w.conf.Resources = []bridge.Resource{{Resource: "namespaces"}, {Resource: "events"}}
	for _, typ := range namespaced {
		r := bridge.Resource{Resource: typ.ResourceID(), Namespaces: []string{w.ns}}
		switch { // two resources in one topic, and one in partitions of its own
		case typ == kube.ConfigMaps && kafka:
			r.Topic = "k8s.{cluster}.audit"
		case typ == kube.Secrets && kafka:
			r.Topic, r.Key = "k8s.{cluster}.audit", "{namespace}"
		case typ == kube.Pods && kafka:
			r.Key = "{name}"
		case typ == kube.ConfigMaps: // a message may fit this and the sink's own
			r.Subject = "k8s.{cluster}.audit.{kind}.{namespace}.{name}"
		case typ == kube.Secrets:
			r.Subject = "k8s.{cluster}.secret.{type}"
		}
		w.conf.Resources = append(w.conf.Resources, r)
	}
	w.configure()
	w.start()
	w.must(w.process.Await(w.ctx, func(s bridge.Status) bool {
		return s.Ready && !slices.ContainsFunc(namespaced, func(typ kube.Type) bool {
			return s.Find(typ.ResourceID()+"@"+w.ns).Synced == nil
		})
	}))
	return w
}

// newBus makes a namespace, a bus, and the configuration of a bridge without its resources.
func newBus(t *testing.T, kafka bool) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, ns: fmt.Sprintf("h%x", time.Now().UnixNano())}
	root, err := kube.New(cluster.RESTConfig(), "")
	w.must(err)
	_, err = root.Create(ctx, kube.Namespaces, w.ns, kube.Fields{"metadata": map[string]any{"labels": map[string]any{"team": "blue"}}})
	w.must(err)
	w.kube = root.In(w.ns)
	dir := t.TempDir()
	w.config = filepath.Join(dir, "bridge.yaml")
	w.conf = bridge.Config{
		Cluster:    w.ns,
		Kubernetes: map[string]any{"kubeconfig": cluster.Kubeconfig()},
		Checkpoint: map[string]any{"file": map[string]any{"path": w.checkpoint()}},
		Status:     map[string]any{"listen": "127.0.0.1:0"},
	}
	if kafka {
		k, err := bus.StartKafka()
		w.must(err)
		t.Cleanup(func() { _ = k.Close() })
		w.log = k.Log
		w.conf.Sinks = []bridge.Sink{{Name: "audit", Kafka: map[string]any{
			"brokers": []string{k.Proxy.Addr()}, "delivery": "at-least-once", "create": map[string]any{"partitions": 3},
		}}}
	} else {
		n, err := bus.StartNATS(filepath.Join(dir, "nats"))
		w.must(err)
		t.Cleanup(n.Close)
		w.log, w.nats = n.Log, "nats://"+n.Addr()
		w.conf.Sinks = []bridge.Sink{{Name: "audit", NATS: map[string]any{"url": w.nats}}}
	}
	return w
}

func (w *world) checkpoint() string { return filepath.Join(filepath.Dir(w.config), "checkpoint") }

// configure writes the configuration, and makes a running bridge read it.
func (w *world) configure() {
	w.t.Helper()
	text, err := w.conf.YAML()
	w.must(err)
	w.must(os.WriteFile(w.config+".new", text, 0o600))
	w.must(os.Rename(w.config+".new", w.config))
	if w.process != nil {
		w.process.Signal(syscall.SIGHUP)
	}
}

// start starts the bridge.
func (w *world) start() {
	w.t.Helper()
	p, err := bridge.Start(binary, "run", "-c", w.config)
	w.must(err)
	w.process = p
	w.t.Cleanup(func() {
		p.Kill()
		if w.t.Failed() {
			w.t.Log(p.Log())
		}
	})
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

func (w *world) create(t kube.Type, name string, fields kube.Fields) *unstructured.Unstructured {
	w.t.Helper()
	u, err := w.kube.Create(w.ctx, t, name, fields)
	w.must(err)
	return u
}

// published waits until the bus has the present state of the server, and returns this state and the time when the bus had it.
func (w *world) published() (map[string]map[string]any, time.Time) {
	w.t.Helper()
	want := map[string]map[string]any{}
	rvs := map[string]bool{}
	for _, typ := range namespaced {
		list, _, err := w.kube.List(w.ctx, typ, metav1.ListOptions{})
		w.must(err)
		for _, u := range list {
			u.SetManagedFields(nil)
			if typ == kube.Secrets {
				unstructured.RemoveNestedField(u.Object, "data")
			}
			want[typ.ResourceID()+" "+u.GetName()] = u.Object
			rvs[string(u.GetUID())+" "+u.GetResourceVersion()] = true
		}
	}
	_, err := w.log.Wait(w.ctx, func(all []bus.Message) bool {
		left := len(rvs)
		seen := map[string]bool{}
		for i := range all {
			key := all[i].UID() + " " + all[i].RV()
			if rvs[key] && !seen[key] {
				seen[key] = true
				left--
			}
		}
		return left == 0
	})
	w.must(err)
	return want, time.Now()
}

// bridge runs a verb, which must end with a code.
func (w *world) bridge(code int, args ...string) (out, notes string) {
	w.t.Helper()
	got, out, notes := w.ask(args...)
	if got != code {
		w.t.Fatalf("%v: exit code %d, want %d\n%s\n%s", args, got, code, notes, out)
	}
	return out, notes
}

// ask runs a verb.
func (w *world) ask(args ...string) (code int, out, notes string) {
	w.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(w.ctx, binary, append(args, "-c", w.config)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		w.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// state returns the output of `bridge state` in the form of published.
func (w *world) state(at string) map[string]map[string]any {
	w.t.Helper()
	out, _ := w.bridge(0, append([]string{"state", "--at", at, "-n", w.ns, "-o", "json"}, resources()...)...)
	return w.parsed(out)
}

// parsed returns printed output of `bridge state` in the form of published.
func (w *world) parsed(out string) map[string]map[string]any {
	w.t.Helper()
	var list unstructured.UnstructuredList
	w.must(list.UnmarshalJSON([]byte(out)))
	got := map[string]map[string]any{}
	for _, u := range list.Items {
		i := slices.IndexFunc(namespaced, func(t kube.Type) bool { return t.Kind == u.GetKind() })
		if i < 0 {
			w.t.Fatalf("state holds a %s", u.GetKind())
		}
		if namespaced[i] == kube.Secrets {
			unstructured.RemoveNestedField(u.Object, "data")
		}
		got[namespaced[i].ResourceID()+" "+u.GetName()] = u.Object
	}
	return got
}

func resources() (names []string) {
	for _, t := range namespaced {
		names = append(names, t.ResourceID())
	}
	return names
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func owner(u *unstructured.Unstructured, controller bool) map[string]any {
	return map[string]any{"ownerReferences": []any{map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "name": u.GetName(), "uid": string(u.GetUID()), "controller": controller,
	}}}
}

var podSpec = map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web:1"}}, "automountServiceAccountToken": false}

// TestTimeTravel rebuilds states of a namespace that changes, is deleted, and is created again.
func TestTimeTravel(t *testing.T) {
	t.Parallel()
	for name, kafka := range map[string]bool{"nats": false, "kafka": true} {
		t.Run(name, func(t *testing.T) { timeTravel(t, newWorld(t, kafka)) })
	}
}

func timeTravel(t *testing.T, w *world) {
	before := time.Now()
	labels := map[string]any{"app": "web"}
	template := map[string]any{"metadata": map[string]any{"labels": labels}, "spec": podSpec}
	spec := map[string]any{"replicas": int64(2), "selector": map[string]any{"matchLabels": labels}, "template": template}
	web := w.create(kube.Deployments, "web", kube.Fields{"spec": spec})
	set := w.create(replicaSets, "web-1", kube.Fields{"metadata": owner(web, true), "spec": spec})
	w.create(kube.Pods, "web-1-a", kube.Fields{"metadata": owner(set, true), "spec": podSpec})
	w.create(kube.ConfigMaps, "owned", kube.Fields{"metadata": owner(web, false), "data": map[string]any{"a": "1"}})
	w.create(kube.ConfigMaps, "orphan", kube.Fields{
		"metadata": map[string]any{"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "0-0"}}},
	})
	w.create(kube.ConfigMaps, "settings", kube.Fields{"data": map[string]any{"colour": "blue", "size": "1"}})
	w.create(kube.ConfigMaps, "gone", nil)
	w.create(kube.Secrets, "key", kube.Fields{"data": map[string]any{"k": "dmFsdWU="}})
	w.create(services, "web", kube.Fields{"spec": map[string]any{"selector": labels, "ports": []any{map[string]any{"port": int64(80)}}}})
	want1, t1 := w.published()

	_, err := w.kube.Patch(w.ctx, kube.ConfigMaps, "settings", `{"data":{"colour":"red"}}`)
	w.must(err)
	w.must(w.kube.Delete(w.ctx, kube.ConfigMaps, "gone"))
	again := w.create(kube.ConfigMaps, "gone", kube.Fields{"data": map[string]any{"second": "life"}})
	w.must(w.kube.Delete(w.ctx, kube.ConfigMaps, "owned"))
	w.create(kube.ConfigMaps, "new", nil)
	want2, t2 := w.published()

	// What was then, by time and by resourceVersion.
	if diff := cmp.Diff(want1, w.state(at(t1))); diff != "" {
		t.Errorf("the state at the first time (-server +bus):\n%s", diff)
	}
	if diff := cmp.Diff(want2, w.state(at(t2))); diff != "" {
		t.Errorf("the state at the second time (-server +bus):\n%s", diff)
	}
	last := 0
	for _, o := range want1 {
		n := 0
		_, err := fmt.Sscan((&unstructured.Unstructured{Object: o}).GetResourceVersion(), &n)
		w.must(err)
		last = max(last, n)
	}
	if diff := cmp.Diff(want1, w.state(fmt.Sprint(last))); diff != "" {
		t.Errorf("the state at resourceVersion %d (-server +bus):\n%s", last, diff)
	}
	if got := w.state(at(before)); len(got) != 0 {
		t.Errorf("the state before anything was created has %d objects", len(got))
	}
	if _, notes := w.bridge(3, "state", "--at", "2020-01-01T00:00:00Z", "-n", w.ns, "configmaps"); !strings.Contains(notes, "not covered: configmaps") {
		t.Errorf("the answer of a time before retention is %q", notes)
	}

	for _, never := range []string{"999999999", "e7:" + fmt.Sprint(last)} {
		if _, notes := w.bridge(3, "state", "--at", never, "-n", w.ns, "configmaps"); !strings.Contains(notes, "is not on the bus, which holds epoch 1 up to resourceVersion ") {
			t.Errorf("--at %s, a version that never existed: the notes are %q, want them to say that it is not on the bus", never, notes)
		}
	}

	// Everything on the bus, without core Events, whose state cannot be rebuilt.
	out, notes := w.bridge(0, "state", "--at", at(t2), "-n", w.ns)
	if n := strings.Count(out, "\nkind: ConfigMap\n"); n != 4 || !strings.Contains(notes, "left out: events: its deleted events are not published") ||
		!strings.HasPrefix(out, "---\n# left out: events: ") {
		t.Errorf("everything is %d config maps, %q and\n%.300s", n, notes, out)
	}
	out, _ = w.bridge(0, "state", "--at", at(t2), "-n", w.ns, "-o", "json")
	w.must(new(unstructured.UnstructuredList).UnmarshalJSON([]byte(out)))
	if out, _ = w.bridge(0, "state", "--diff", at(t1), at(t2), "-n", w.ns, "-o", "json"); !strings.Contains(out, `"leftOut": [`) {
		t.Errorf("the difference does not name what it leaves out: %s", out)
	}

	// What changed.
	out, _ = w.bridge(0, "state", "--diff", at(t1), at(t2), "configmaps", "-n", w.ns, "-o", "json")
	var d struct {
		Added, Removed, Changed, Unchanged int
		Objects                            []struct {
			What, Name, FormerUID string
			Paths                 []string
		}
	}
	w.must(json.Unmarshal([]byte(out), &d))
	if d.Added != 1 || d.Removed != 1 || d.Changed != 2 || d.Unchanged != 1 {
		t.Errorf("the difference is %s", out)
	}
	for _, o := range d.Objects {
		if o.Name == w.ns+"/settings" && !slices.Equal(o.Paths, []string{"/data/colour"}) || o.Name == w.ns+"/gone" && o.FormerUID == "" {
			t.Errorf("the difference has %+v", o)
		}
	}

	// How one object changed, across its deletion.
	out, _ = w.bridge(0, "history", "configmaps", w.ns+"/gone", "-o", "json")
	type change struct{ Type, UID, FormerUID, Diff string }
	var changes []change
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var c change
		if err := d.Decode(&c); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, c)
	}
	if len(changes) != 3 || changes[1].Type != "deleted" || changes[2].Type != "added" ||
		changes[2].UID != string(again.GetUID()) || changes[2].FormerUID != changes[0].UID || !strings.Contains(changes[2].Diff, "+  second: life") {
		t.Errorf("the history of the object that was created again is %s", out)
	}
	out, _ = w.bridge(0, "history", "configmaps", w.ns+"/settings")
	if !strings.Contains(out, "-  colour: blue") || !strings.Contains(out, "+  colour: red") || !strings.Contains(out, "by unknown") {
		t.Errorf("the history of what was changed is\n%s", out)
	}

	// Back from the dead.
	w.must(cluster.DeleteNamespace(w.ctx, w.ns))
	apply := append([]string{"state", "--at", at(t1), "-n", w.ns, "--apply", "namespaces"}, resources()...)
	if _, notes := w.bridge(2, apply...); !strings.Contains(notes, "--kubeconfig") {
		t.Errorf("without a kubeconfig it says %q", notes)
	}
	apply = append(apply, "--kubeconfig", cluster.Kubeconfig())
	if out, _ := w.bridge(0, append(apply, "--dry-run")...); strings.Contains(out, "applied") ||
		!strings.Contains(out, "changed   configmaps "+w.ns+"/orphan: its owner is not restored: ConfigMap never\n") {
		t.Errorf("the dry run says\n%s", out)
	}
	if list, _, err := w.kube.List(w.ctx, kube.ConfigMaps, metav1.ListOptions{}); err != nil || len(list) != 0 {
		t.Fatalf("after the dry run there are %d config maps (%v)", len(list), err)
	}
	out, _ = w.bridge(0, apply...)
	t.Log(out)
	for _, line := range []string{
		"skipped   pods " + w.ns + "/web-1-a: its controller creates it again",
		"skipped   secrets " + w.ns + "/key: the bus hides values of it",
		"changed   configmaps " + w.ns + "/orphan: its owner is not restored: ConfigMap never",
	} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("it does not say %q", line)
		}
	}
	w.restored(want1)
}

// TestRestoreExactly: a restore either keeps later objects and counts them, or removes them. The dry run says which of the two,
// and changes nothing.
func TestRestoreExactly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.create(kube.ConfigMaps, "settings", kube.Fields{"data": map[string]any{"colour": "blue"}})
	w.create(kube.ConfigMaps, "same", kube.Fields{"data": map[string]any{"a": "1"}})
	w.create(kube.ConfigMaps, "gone", kube.Fields{"data": map[string]any{"a": "1"}})
	labels := map[string]any{"app": "web"}
	template := map[string]any{"metadata": map[string]any{"labels": labels}, "spec": podSpec}
	spec := map[string]any{"replicas": int64(2), "selector": map[string]any{"matchLabels": labels}, "template": template}
	web := w.create(kube.Deployments, "web", kube.Fields{"spec": spec})
	want, then := w.published()

	_, err := w.kube.Patch(w.ctx, kube.ConfigMaps, "settings", `{"data":{"colour":"red","later":"x"},"metadata":{"labels":{"later":"x"}}}`)
	w.must(err)
	_, err = w.kube.Patch(w.ctx, kube.Deployments, "web", `{"spec":{"minReadySeconds":7,"template":{"spec":{"containers":[{"name":"web","image":"web:2"},{"name":"later","image":"later:1"}]}}}}`)
	w.must(err)
	w.must(w.kube.Delete(w.ctx, kube.ConfigMaps, "gone"))
	w.create(kube.ConfigMaps, "new", nil)
	w.create(replicaSets, "web-2", kube.Fields{"metadata": owner(web, true), "spec": spec})
	w.published()

	apply := append([]string{"state", "--at", at(then), "-n", w.ns, "--apply", "--kubeconfig", cluster.Kubeconfig()}, resources()...)
	says := func(out string, lines ...string) {
		t.Helper()
		for _, line := range lines {
			if !strings.Contains(out, strings.ReplaceAll(line, "NS", w.ns)+"\n") {
				t.Errorf("it does not say %q:\n%s", line, out)
			}
		}
	}
	left := []string{
		"left      configmaps NS/new: it is not in the state (--exact deletes it)",
		"left      configmaps NS/settings: not in the state: /data/later, /metadata/labels (--exact removes them)",
		"left      replicasets.apps NS/web-2: it is not in the state: its controller, Deployment web, decides about it",
	}
	exact := []string{
		"checked   configmaps NS/new: is deleted: it is not in the state",
		"checked   configmaps NS/settings: changes /data, /metadata/labels",
		"checked   configmaps NS/same: does not change",
		"checked   configmaps NS/gone: is created",
	}
	list := func() map[string]string {
		t.Helper()
		out := map[string]string{}
		for _, typ := range namespaced {
			all, _, err := w.kube.List(w.ctx, typ, metav1.ListOptions{})
			w.must(err)
			for _, u := range all {
				out[typ.ResourceID()+" "+u.GetName()] = u.GetResourceVersion()
			}
		}
		return out
	}
	before := list()
	out, notes := w.bridge(0, append(apply, "--dry-run", "--force")...)
	says(out, append(left, "checked   configmaps NS/settings: changes /data/colour")...)
	if !strings.Contains(notes, " 4 left, 0 failed") {
		t.Errorf("it counts %s", notes)
	}
	out, _ = w.bridge(0, append(apply, "--dry-run", "--exact")...)
	says(out, append(exact, left[2])...)
	if diff := cmp.Diff(before, list()); diff != "" {
		t.Errorf("the dry runs changed (-before +after):\n%s", diff)
	}
	out, notes = w.bridge(0, append(apply, "--force")...)
	says(out, left...)
	if !strings.Contains(notes, " 4 left, 0 failed") {
		t.Errorf("it counts %s", notes)
	}
	out, notes = w.bridge(0, append(apply, "--exact")...)
	says(out, "deleted   configmaps NS/new", left[2])
	if !strings.Contains(notes, " 1 deleted, 0 skipped, 1 left, 0 failed") {
		t.Errorf("it counts %s", notes)
	}
	got := map[string]map[string]any{}
	for _, typ := range namespaced {
		all, _, err := w.kube.List(w.ctx, typ, metav1.ListOptions{})
		w.must(err)
		for _, u := range all {
			got[typ.ResourceID()+" "+u.GetName()] = u.Object
		}
	}
	delete(got, "replicasets.apps web-2")
	if diff := cmp.Diff(clean(want), clean(got)); diff != "" {
		t.Errorf("what is there (-was +is):\n%s", diff)
	}
}

// restored compares what is there with what was, but for what a cluster assigns.
func (w *world) restored(want map[string]map[string]any) {
	w.t.Helper()
	uids := map[string]string{}
	got := map[string]map[string]any{}
	for _, typ := range namespaced {
		list, _, err := w.kube.List(w.ctx, typ, metav1.ListOptions{})
		w.must(err)
		for _, u := range list {
			key := typ.ResourceID() + " " + u.GetName()
			uids[key] = string(u.GetUID())
			if was, ok := want[key]; ok && (&unstructured.Unstructured{Object: was}).GetUID() == u.GetUID() {
				w.t.Errorf("%s is the old one", key)
			}
			got[key] = u.Object
		}
	}
	for key, resource := range map[string]string{"replicasets.apps web-1": "deployments.apps web", "configmaps owned": "deployments.apps web"} {
		u := unstructured.Unstructured{Object: got[key]}
		if refs := u.GetOwnerReferences(); len(refs) != 1 || string(refs[0].UID) != uids[resource] {
			w.t.Errorf("%s is owned by %v, the new %s is %s", key, refs, resource, uids[resource])
		}
	}
	want = clean(want)
	delete(want, "pods web-1-a")
	delete(want, "secrets key")
	if diff := cmp.Diff(want, clean(got)); diff != "" {
		w.t.Errorf("what came back (-was +is):\n%s", diff)
	}
	ns, err := w.kube.In("").Patch(w.ctx, kube.Namespaces, w.ns, `{}`)
	w.must(err)
	if ns.GetLabels()["team"] != "blue" {
		w.t.Errorf("the namespace has the labels %v", ns.GetLabels())
	}
}

func clean(all map[string]map[string]any) map[string]map[string]any {
	out := map[string]map[string]any{}
	for key, o := range all {
		u := (&unstructured.Unstructured{Object: o}).DeepCopy()
		for _, f := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "ownerReferences", "generation"} {
			unstructured.RemoveNestedField(u.Object, "metadata", f)
		}
		for _, f := range [][]string{{"status"}, {"spec", "clusterIP"}, {"spec", "clusterIPs"}} {
			unstructured.RemoveNestedField(u.Object, f...)
		}
		out[key] = u.Object
	}
	return out
}
