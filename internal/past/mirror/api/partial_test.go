package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// truncated sends a change of a pod that the bus did not take whole, and shows body instead; nil: only the identity. The event has no fields, as those of
// older bridges, and those of resources whose fields the bridge does not know.
func (b *bus) truncated(x thing, body []byte) {
	b.t.Helper()
	b.truncatedWith(x, body, nil)
}

func (b *bus) truncatedWith(x thing, body []byte, fields map[string]string) {
	b.t.Helper()
	b.send("pods", event.Event{
		Type: event.Modified, Origin: event.Watch, APIVersion: "v1", Kind: "Pod", Namespace: x.namespace, Name: x.name, UID: x.uid,
		ResourceVersion: strconv.Itoa(x.version), Object: body, Truncated: &event.Truncation{Size: 2 << 20, Limit: 1 << 20, Fields: fields},
	})
}

// podsOnNodes is a bus with pods at resourceVersion 50: web and log on the node n1, cart on n2.
func podsOnNodes(t *testing.T) *bus {
	b := newBus(t)
	b.gap("pods", event.ReasonReset)
	for i, x := range []thing{web, cart, log} {
		b.sendObject("pods", event.Present, event.Snapshot, x, "Pod", "v1", fmt.Sprintf(`"spec":{"nodeName":"n%d"}`, i%2+1))
	}
	b.synced("pods", 50, event.ReasonReset)
	return b
}

// watchPods begins a watch of all pods.
func (b *bus) watchPods(o metav1.ListOptions) apiwatch.Interface {
	b.t.Helper()
	w, err := b.client("").Resource(podsResource).Watch(b.t.Context(), o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(w.Stop)
	return w
}

// wantList lists all pods. A want of nil is that the answer is 503 because of an object.
func (b *bus) wantList(o metav1.ListOptions, object string, want []string) {
	b.t.Helper()
	l, err := b.client("").Resource(podsResource).List(b.t.Context(), o)
	switch {
	case want == nil:
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), object) {
			b.t.Errorf("%+v: %v, want 503 because of %s", o, err, object)
		}
	case err != nil:
		b.t.Errorf("%+v: %v", o, err)
	case !slices.Equal(names(l), want):
		b.t.Errorf("%+v: %v, want %v", o, names(l), want)
	}
}

// TestTruncatedAndFields: a pod becomes too large for the bus. A client that selects pods by a field that the bus does not have any more must not take
// the pod for deleted: its list fails, and its watch ends. Clients whose selection does not depend on this field are not concerned.
func TestTruncatedAndFields(t *testing.T) {
	b := podsOnNodes(t)
	node := metav1.ListOptions{FieldSelector: "spec.nodeName=n1", ResourceVersion: "50"}
	byNode := b.watchPods(node)
	byNameAndNode := b.watchPods(metav1.ListOptions{FieldSelector: "spec.nodeName=n2,metadata.name=cart", ResourceVersion: "50"})
	byLabel := b.watchPods(metav1.ListOptions{LabelSelector: "app=web", ResourceVersion: "50"})
	large := web
	large.version = 51
	b.truncated(large, large.body("v1", "Pod"))
	wantNext(t, byNode, "ERROR 410", "end")
	wantNext(t, byLabel, "MODIFIED web@51")

	node.ResourceVersion = ""
	b.wantList(node, "shop/web", nil)
	b.wantList(metav1.ListOptions{FieldSelector: "spec.nodeName!=n1"}, "shop/web", nil)
	b.wantList(metav1.ListOptions{FieldSelector: "spec.nodeName=n1,metadata.namespace!=shop"}, "", []string{"infra/log@43"})
	b.wantList(metav1.ListOptions{FieldSelector: "spec.nodeName=n1", LabelSelector: "app=cart"}, "", []string{})
	b.wantList(metav1.ListOptions{FieldSelector: "metadata.name=web"}, "", []string{"shop/web@51"})
	b.wantList(metav1.ListOptions{LabelSelector: "app=web"}, "", []string{"infra/log@43", "shop/web@51"})
	b.wantList(metav1.ListOptions{}, "", []string{"infra/log@43", "shop/cart@42", "shop/web@51"})
	initial := true
	wantNext(t, b.watchPods(metav1.ListOptions{
		FieldSelector: node.FieldSelector, AllowWatchBookmarks: true, SendInitialEvents: &initial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}), "ADDED log@43", "ERROR 503", "end")

	other := cart
	other.version = 52
	b.sendObject("pods", event.Modified, event.Watch, other, "Pod", "v1", `"spec":{"nodeName":"n2"}`)
	wantNext(t, byNameAndNode, "MODIFIED cart@52")
	large.version = 53
	b.sendObject("pods", event.Modified, event.Watch, large, "Pod", "v1", `"spec":{"nodeName":"n1"}`)
	b.wantList(node, "", []string{"infra/log@43", "shop/web@53"})
	node.ResourceVersion = "52" // nobody knows whether the client has the pod
	wantNext(t, b.watchPods(node), "ERROR 410", "end")
}

// TestTruncatedAndKnownFields: one pod that does not fit the bus does not make lists and watches of all others fail: its event has the values that field
// selectors select by, also if it has nothing else of the pod.
func TestTruncatedAndKnownFields(t *testing.T) {
	long := strings.Repeat("x", 3000)
	for name, identity := range map[string]bool{"metadata": false, "identity": true} {
		t.Run(name, func(t *testing.T) {
			b := podsOnNodes(t)
			byNode := b.watchPods(metav1.ListOptions{FieldSelector: "spec.nodeName=n1", ResourceVersion: "50"})
			large := web
			large.version = 51
			body := large.body("v1", "Pod")
			if identity {
				body = nil
			}
			b.truncatedWith(large, body, map[string]string{"spec.nodeName": "n1", "spec.hostNetwork": "", "spec.schedulerName": event.BoundName(long)})
			wantNext(t, byNode, "MODIFIED web@51")
			both, none := []string{"infra/log@43", "shop/web@51"}, []string{}
			b.wantList(metav1.ListOptions{FieldSelector: "spec.nodeName=n1"}, "", both)
			b.wantList(metav1.ListOptions{FieldSelector: "spec.nodeName!=n1"}, "", []string{"shop/cart@42"})
			b.wantList(metav1.ListOptions{FieldSelector: "spec.nodeName=n1,spec.hostNetwork=false"}, "", both)
			b.wantList(metav1.ListOptions{FieldSelector: "spec.hostNetwork=true"}, "", none)
			b.wantList(metav1.ListOptions{FieldSelector: "spec.schedulerName=" + long}, "", []string{"shop/web@51"})
			b.wantList(metav1.ListOptions{FieldSelector: "spec.schedulerName=" + long + "x"}, "", none)
			b.wantList(metav1.ListOptions{FieldSelector: "status.phase=Running"}, "shop/web", nil) // the event does not have it
			large.version = 52
			b.truncatedWith(large, body, map[string]string{"spec.nodeName": "n2"})
			wantNext(t, byNode, "DELETED web@52")
		})
	}
}

// TestIdentityAndLabels: of a pod whose metadata is too large, the labels are not known either.
func TestIdentityAndLabels(t *testing.T) {
	b := podsOnNodes(t)
	label := metav1.ListOptions{LabelSelector: "app=web", ResourceVersion: "50"}
	byLabel := b.watchPods(label)
	all := b.watchPods(metav1.ListOptions{ResourceVersion: "50"})
	large := web
	large.version = 51
	b.truncated(large, nil)
	wantNext(t, byLabel, "ERROR 410", "end")
	wantNext(t, all, "MODIFIED web@51") // the watch goes on from its resourceVersion
	label.ResourceVersion = ""
	b.wantList(label, "shop/web", nil)
	b.wantList(metav1.ListOptions{LabelSelector: "app!=web"}, "shop/web", nil)
	b.wantList(metav1.ListOptions{LabelSelector: "app=web", FieldSelector: "metadata.name!=web"}, "", []string{"infra/log@43"})
	b.wantList(metav1.ListOptions{}, "", []string{"infra/log@43", "shop/cart@42", "shop/web@51"})
}

// TestSlowWatchOfMoves: a watch that sends slowly stops behind all changes of a resourceVersion. If it stopped between those of an object that two
// collections hand over, the object would be new to it.
func TestSlowWatchOfMoves(t *testing.T) {
	b := threePods(t)
	b.server.limits.share = -1
	id := store.Resource{Cluster: "prod", Name: "pods"}
	batch := b.mirror.Store().Batch()
	put := func(collection string, version, seq uint64, x thing, deleted bool) {
		t.Helper()
		v := store.Version{Deleted: deleted, UID: x.uid, Epoch: 1, ResourceVersion: uint64(x.version), Body: x.body("v1", "Pod")}
		if err := batch.Put(id, store.Name{Namespace: x.namespace, Name: x.name}, collection, store.Position{Era: 1, Version: version, Seq: seq}, &v); err != nil {
			t.Fatal(err)
		}
	}
	put("pods", 60, 100, web, true)
	put("pods", 60, 101, thing{"shop", "new", "u-5", 60, ""}, false)
	put("pods:other", 60, 102, web, false)
	put("pods", 61, 103, thing{"shop", "newer", "u-6", 61, ""}, false)
	if err := batch.Commit(); err != nil {
		t.Fatal(err)
	}
	var sent recorded
	q := &request{Request: httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=1", nil), resource: b.mirror.Resource(id)}
	w := &watcher{s: b.server, q: q, o: &options{}, at: store.Position{Era: 1, Version: 60}, live: true, w: &sent}
	w.nextCheck = b.server.now().AddDate(1, 0, 0)
	if err := w.changes(store.Position{Era: 1, Version: 61, Seq: 103}); err != nil {
		t.Fatal(err)
	}
	if want := []string{`"name":"new"`, `"name":"newer"`}; len(sent) != 2 || !strings.Contains(sent[0], want[0]) || !strings.Contains(sent[1], want[1]) {
		t.Errorf("the watch has %q, want %v", sent, want)
	}
}

// recorded is an answer that keeps its events.
type recorded []string

func (r *recorded) write(parts ...[]byte) error {
	*r = append(*r, string(slices.Concat(parts...)))
	return nil
}

func (r *recorded) flush() error { return nil }

// TestLeftOutAndFields: a client that selects by a field that metadataOnly or rules leave out must not take the answer for all objects. Fields that objects have
// decide, and what is not selected for another reason needs no field.
func TestLeftOutAndFields(t *testing.T) {
	for name, c := range map[string]struct {
		selection event.Selection
		fields    string // of the pods
		decides   []string
		undecided []string
	}{
		"metadata only": {event.Selection{MetadataOnly: true}, `"spec":null`, []string{"metadata.name=none", "metadata.namespace=none,status.phase=Running"}, []string{"spec.nodeName=n1", "status.phase!=Running", "spec.hostNetwork=false"}},
		"no status":     {event.Selection{StatusDropped: true}, `"spec":{"nodeName":"n2"}`, []string{"spec.nodeName=n1", "spec.nodeName=n1,status.phase=Running", "spec.nodeName=n2,spec.hostNetwork=true"}, []string{"status.phase=Running", "spec.nodeName=n2,status.phase!=Running"}},
		"some status":   {event.Selection{StatusDropped: true}, `"status":{"phase":"Pending"}`, []string{"status.phase=Running", "status.phase!=Pending"}, []string{"status.podIP=10.0.0.1"}},
		"some fields":   {event.Selection{Dropped: true}, `"spec":{"nodeName":"n2"}`, []string{"spec.nodeName=n1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBus(t)
			b.selections["pods"] = c.selection
			b.gap("pods", event.ReasonReset)
			b.sendObject("pods", event.Present, event.Snapshot, web, "Pod", "v1", c.fields)
			b.synced("pods", 50, event.ReasonReset)
			for _, selector := range c.decides {
				b.wantList(metav1.ListOptions{FieldSelector: selector}, "", []string{})
			}
			for _, selector := range c.undecided {
				b.wantList(metav1.ListOptions{FieldSelector: selector}, `"shop/web": metadataOnly or rules leave out`, nil)
				later := b.watchPods(metav1.ListOptions{FieldSelector: selector})
				wantNext(t, later, "ERROR 503", "end")
			}
		})
	}
}
