package restore

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestKeeps: an object is deleted only if it was certainly created after the time.
func TestKeeps(t *testing.T) {
	until := time.Date(2026, 3, 14, 9, 26, 5, 500e6, time.UTC)
	controller := true
	all := history.Covered{Collection: "configmaps", Resource: "configmaps"}
	part := history.Covered{Collection: "configmaps:part", Resource: "configmaps", Selection: event.Selection{Labels: "a"}}
	passing := history.Covered{Collection: "configmaps:canary", Resource: "configmaps", Selection: event.Selection{Filtered: true}}
	filtered := history.Covered{Collection: "configmaps", Resource: "configmaps", Filtered: true}
	bindings := history.Covered{Collection: "rolebindings.rbac.authorization.k8s.io", Resource: "rolebindings.rbac.authorization.k8s.io"}
	binding := func(u *unstructured.Unstructured) {
		u.SetAPIVersion("rbac.authorization.k8s.io/v1")
		u.SetKind("RoleBinding")
	}
	for name, c := range map[string]struct {
		of      history.Covered
		created time.Duration // the time after the second of until
		change  func(u *unstructured.Unstructured)
		options Options
		why     string // "": the object is deleted
	}{
		"later":                            {of: all, created: time.Second},
		"in the same second":               {of: all},
		"earlier":                          {of: all, created: -time.Second, why: "it was created at 2026-03-14T09:26:04Z, and the bus did not have it then"},
		"later, selected":                  {of: part, created: time.Second},
		"in the same second, selected":     {of: part, why: "a selector or a filter"},
		"in the same second, was filtered": {of: filtered, why: "a selector or a filter"},
		"in the same second, is filtered":  {of: passing, why: "a selector or a filter"},
		"later than a version, filtered":   {of: passing, created: time.Second, options: Options{ByRV: true}, why: "a selector or a filter"},
		"later than a version, selected":   {of: part, created: time.Second, options: Options{ByRV: true}, why: "a selector or a filter"},
		"a controller's": {of: all, created: time.Second, change: func(u *unstructured.Unstructured) {
			u.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Web", Name: "web", Controller: &controller}})
		}, why: "its controller, Web web"},
		"a namespace": {of: all, created: time.Second, change: func(u *unstructured.Unstructured) { u.SetKind("Namespace") }, why: "everything in it"},
		"a lease": {of: all, created: time.Second, change: func(u *unstructured.Unstructured) {
			u.SetAPIVersion("coordination.k8s.io/v1")
			u.SetKind("Lease")
		}, why: "another component creates it"},
		"RBAC that is not named": {of: bindings, created: time.Second, change: binding, why: "name rolebindings.rbac.authorization.k8s.io if you mean it"},
		"RBAC that is named": {of: bindings, created: time.Second, change: binding, options: Options{
			Named: func(group, resource string) bool {
				return group == "rbac.authorization.k8s.io" && resource == "rolebindings"
			},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
			u.SetCreationTimestamp(metav1.NewTime(until.Truncate(time.Second).Add(c.created)))
			if c.change != nil {
				c.change(u)
			}
			c.options.Until = until
			r := &restorer{Options: c.options}
			if why := r.keepReason(&c.of, u); c.why == "" != (why == "") || !strings.Contains(why, c.why) {
				t.Errorf("it is kept because %q, want %q", why, c.why)
			}
		})
	}
}

// TestExactly: the patch restores the object, changes no field that the cluster assigns, and applies to this object
// only.
func TestExactly(t *testing.T) {
	parse := func(text string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return u
	}
	live := parse(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","uid":"u","resourceVersion":"9","labels":{"x":"1","later":"2"},
		"ownerReferences":[{"kind":"Web","name":"later","uid":"w"}]},
		"spec":{"clusterIP":"10.0.0.1","ports":[{"port":80},{"port":81}],"selector":{"app":"web"},"later":{"a":1}},"status":{"s":1}}`)
	it := &item{Unstructured: parse(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","labels":{"x":"1"}},"spec":{"ports":[{"port":80}],"selector":{"app":"web"}}}`), uid: types.UID("u")}
	text, err := exactPatch(it, live)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{"metadata":{"uid":"u","labels":{"later":null},"ownerReferences":null},"spec":{"ports":[{"port":80}],"later":null}}`), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the patch is %s", text)
	}
	paths, err := differingPaths(it.Unstructured, live)
	if err != nil || !reflect.DeepEqual(paths, []string{"/metadata/labels/later", "/spec/later", "/spec/ports/1"}) {
		t.Errorf("they differ in %v (%v)", paths, err)
	}
}
