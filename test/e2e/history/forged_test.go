package history_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

var (
	roleBindings        = kube.Type{GroupVersionResource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}, Kind: "RoleBinding", Namespaced: true}
	clusterRoleBindings = kube.Type{GroupVersionResource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}, Kind: "ClusterRoleBinding"}
)

// forge publishes what an attacker makes of the last event of an object: with a higher version, so that it would count. The attributes are in
// headers and in the value. The message names its stream and sequence, as those of the bridge do: it would be ignored otherwise.
func (w *world) forge(uid string, change func(attributes map[string]any, object *unstructured.Unstructured)) {
	w.t.Helper()
	nc, err := nats.Connect(w.nats)
	w.must(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	w.must(err)
	stream, err := js.Stream(w.ctx, "K8S_"+w.ns)
	w.must(err)
	var last *jetstream.RawStreamMsg
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		if m, err := stream.GetMsg(w.ctx, seq); err == nil && m.Header.Get("ce-uid") == uid && m.Header.Get("ce-resourceversion") != "" {
			last = m
		}
	}
	if last == nil {
		w.t.Fatalf("no event of %s is on the bus", uid)
	}
	var value map[string]any
	w.must(json.Unmarshal(last.Data, &value))
	object := &unstructured.Unstructured{Object: value["data"].(map[string]any)["object"].(map[string]any)}
	value["resourceversion"] = value["resourceversion"].(string) + "0"
	object.SetResourceVersion(value["resourceversion"].(string))
	value["time"] = at(time.Now())
	change(value, object)
	m := nats.NewMsg(last.Subject)
	for name, text := range value {
		if s, ok := text.(string); ok {
			m.Header["ce-"+name] = []string{s}
		}
	}
	m.Header.Set("Content-Type", last.Header.Get("Content-Type"))
	info := stream.CachedInfo()
	m.Header["Kubebridge-Place"] = []string{fmt.Sprintf("%d.%d", info.Created.UnixNano(), info.State.LastSeq+1)}
	m.Data, err = json.Marshal(value)
	w.must(err)
	_, err = js.PublishMsg(w.ctx, m)
	w.must(err)
}

// makeAdmin changes an object into one that gives everybody full access to the cluster.
func makeAdmin(object *unstructured.Unstructured) {
	object.SetAPIVersion("rbac.authorization.k8s.io/v1")
	object.SetKind("ClusterRoleBinding")
	unstructured.RemoveNestedField(object.Object, "data")
	object.Object["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
	object.Object["subjects"] = []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:unauthenticated"}}
}

// A restore applies only the requested resources, and shows them first. A user who can write to the bus can change the content
// of a ConfigMap, but gets no permissions in the cluster when somebody restores ConfigMaps.
func TestForgedBodies(t *testing.T) {
	t.Parallel()
	w := newBus(t, false)
	w.conf.Resources = []bridge.Resource{{Resource: "configmaps", Namespaces: []string{w.ns}}, {Resource: roleBindings.ResourceID(), Namespaces: []string{w.ns}}}
	w.configure()
	settings := w.create(kube.ConfigMaps, "settings", kube.Fields{"data": map[string]any{"colour": "blue"}})
	w.create(kube.ConfigMaps, "other", kube.Fields{"data": map[string]any{"a": "1"}})
	w.create(roleBindings, "viewers", kube.Fields{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "v"}},
	})
	w.start()
	w.must(w.process.Await(w.ctx, func(s bridge.Status) bool {
		return s.Ready && s.Find("configmaps@"+w.ns).Synced != nil && s.Find(roleBindings.ResourceID()+"@"+w.ns).Synced != nil
	}))
	w.process.Kill()

	apply := func(resources ...string) []string {
		return append([]string{"state", "--at", at(time.Now()), "-n", w.ns, "--apply", "--force", "--kubeconfig", cluster.Kubeconfig()}, resources...)
	}
	admins := func() (n int) {
		t.Helper()
		list, _, err := w.kube.In("").List(w.ctx, clusterRoleBindings, metav1.ListOptions{})
		w.must(err)
		for _, u := range list {
			if u.GetName() == "settings" {
				n++
			}
		}
		return n
	}
	check := func(args []string, out, notes string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if all := out + notes; !strings.Contains(all, strings.ReplaceAll(want, "NS", w.ns)) {
				t.Errorf("%v does not say %q:\n%s", args, want, all)
			}
		}
		if n := admins(); n > 0 {
			t.Errorf("%v made everybody an administrator", args)
		}
	}
	run := func(args []string, wants ...string) {
		t.Helper()
		out, notes := w.bridge(0, args...)
		check(args, out, notes, wants...)
	}

	// The body is another object than the attributes say: no bridge wrote it, and the state before counts.
	w.forge(string(settings.GetUID()), func(_ map[string]any, object *unstructured.Unstructured) { makeAdmin(object) })
	wants := []string{"ignored 1 message", `apiVersion in its body is "rbac.authorization.k8s.io/v1", and the event is of "v1"`, "of K8S_"}
	run(append(apply("configmaps"), "--dry-run"), append(wants, "checked   configmaps NS/settings: does not change")...)
	run(apply("configmaps"), append(wants, "applied   configmaps NS/settings")...)
	out, notes := w.bridge(0, "history", "configmaps", w.ns+"/settings")
	if strings.Contains(out, "ClusterRoleBinding") || !strings.Contains(notes, "ignored 1 message") {
		t.Errorf("the history is\n%s%s", out, notes)
	}

	// The attributes agree with the body, and not with the resource that was asked for.
	w.forge(string(settings.GetUID()), func(attributes map[string]any, object *unstructured.Unstructured) {
		makeAdmin(object)
		attributes["apiversion"], attributes["kind"] = object.GetAPIVersion(), object.GetKind()
	})
	refused := "skipped   configmaps NS/settings: its body is a ClusterRoleBinding (rbac.authorization.k8s.io/v1), which is one of clusterrolebindings.rbac.authorization.k8s.io and not of configmaps"
	run(append(apply("configmaps"), "--dry-run"), refused, "checked   configmaps NS/other: does not change")
	run(apply("configmaps"), refused, "applied   configmaps NS/other")
	run(apply("configmaps", roleBindings.ResourceID()), refused)

	// What gives rights is restored if it is asked for by name.
	w.must(w.kube.Delete(w.ctx, roleBindings, "viewers"))
	run(apply(), "skipped   rolebindings.rbac.authorization.k8s.io NS/viewers: it gives rights, or changes what the API server does: name rolebindings.rbac.authorization.k8s.io if you mean it")
	if list, _, err := w.kube.List(w.ctx, roleBindings, metav1.ListOptions{}); err != nil || len(list) != 0 {
		t.Errorf("it was restored without being named: %v", err)
	}
	run(apply(roleBindings.ResourceID()), "applied   rolebindings.rbac.authorization.k8s.io NS/viewers")

	// Messages that do not name their stream and sequence end no answer, also where they say that a newer bridge or another cluster is at work.
	nc, err := nats.Connect(w.nats)
	w.must(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	w.must(err)
	for _, text := range []string{
		`{"specversion":"1.0","type":"io.kubebridge.x.v9","id":"1"}`,
		`{"specversion":"1.0","type":"io.kubebridge.resource.added.v1","id":"1","source":"x","cluster":"NS","clusteruid":"other","collection":"configmaps","time":"2026-01-02T03:04:05Z","run":"1","incarnation":"1"}`,
	} {
		_, err := js.Publish(w.ctx, "k8s."+w.ns+".core.configmaps."+w.ns+".settings", []byte(strings.ReplaceAll(text, "NS", w.ns)))
		w.must(err)
	}
	run([]string{"history", "configmaps", w.ns + "/settings"}, "ignored 3 messages")
}
