package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
)

var (
	podsResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	web          = thing{"shop", "web", "u-1", 41, "app=web"}
	cart         = thing{"shop", "cart", "u-2", 42, "app=cart"}
	log          = thing{"infra", "log", "u-3", 43, "app=web"}
)

// threePods is a bus with three pods at resourceVersion 50.
func threePods(t *testing.T) *bus {
	b := newBus(t)
	b.snapshot("pods", 50, web, cart, log)
	return b
}

func names(l *unstructured.UnstructuredList) (out []string) {
	for _, x := range l.Items {
		out = append(out, fmt.Sprintf("%s/%s@%s", x.GetNamespace(), x.GetName(), x.GetResourceVersion()))
	}
	return out
}

// TestList: lists have what the selectors select, in pages that stay consistent while objects change, and their resourceVersion.
func TestList(t *testing.T) {
	b := threePods(t)
	pods := b.client("").Resource(podsResource)
	for _, c := range []struct {
		namespace string
		o         metav1.ListOptions
		want      []string
	}{
		{"", metav1.ListOptions{}, []string{"infra/log@43", "shop/cart@42", "shop/web@41"}},
		{"shop", metav1.ListOptions{}, []string{"shop/cart@42", "shop/web@41"}},
		{"", metav1.ListOptions{LabelSelector: "app=web"}, []string{"infra/log@43", "shop/web@41"}},
		{"", metav1.ListOptions{FieldSelector: "metadata.name=web"}, []string{"shop/web@41"}},
		{"", metav1.ListOptions{FieldSelector: "metadata.namespace!=shop"}, []string{"infra/log@43"}},
		{"", metav1.ListOptions{ResourceVersion: "0"}, []string{"infra/log@43", "shop/cart@42", "shop/web@41"}},
		{"none", metav1.ListOptions{}, nil},
	} {
		l, err := pods.Namespace(c.namespace).List(t.Context(), c.o)
		if err != nil || l.GetResourceVersion() != "50" || l.GetKind() != "PodList" {
			t.Errorf("%+v: %v %v", c, l, err)
			continue
		}
		if diff := cmp.Diff(c.want, names(l)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c, diff)
		}
	}
	first, err := pods.List(t.Context(), metav1.ListOptions{Limit: 2})
	if err != nil || first.GetContinue() == "" || len(first.Items) != 2 {
		t.Fatalf("the first page is %v (%v)", first, err)
	}
	b.deleted("pods", web, 60)
	second, err := pods.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: first.GetContinue()})
	if err != nil || !slices.Equal(names(second), []string{"shop/web@41"}) || second.GetContinue() != "" || second.GetResourceVersion() != "50" {
		t.Errorf("the second page is %v (%v)", second, err)
	}
	exact := metav1.ListOptions{ResourceVersion: "55", ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	if l, err := pods.List(t.Context(), exact); err != nil || len(l.Items) != 3 || l.GetResourceVersion() != "55" {
		t.Errorf("at 55 it is %v (%v)", l, err)
	}
	exact.ResourceVersion = "49"
	if _, err := pods.List(t.Context(), exact); !apierrors.IsResourceExpired(err) {
		t.Errorf("before the first list: %v", err)
	}
	if l, err := pods.List(t.Context(), metav1.ListOptions{}); err != nil || len(l.Items) != 2 || l.GetResourceVersion() != "60" {
		t.Errorf("after the deletion it is %v (%v)", l, err)
	}
	for _, o := range []metav1.ListOptions{{FieldSelector: "spec.none=a"}, {Continue: "x"}, {LabelSelector: "a=("}, {ResourceVersion: "x"}} {
		if _, err := pods.List(t.Context(), o); !apierrors.IsBadRequest(err) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestExpiredToken: a client whose continue token has expired may go on with the rest of the newest state, as at the API server.
func TestExpiredToken(t *testing.T) {
	b := threePods(t)
	pods := b.client("").Resource(podsResource)
	page := func(token string) (*unstructured.UnstructuredList, error) {
		return pods.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: token})
	}
	first, err := page("")
	if err != nil {
		t.Fatal(err)
	}
	b.deleted("pods", cart, 60)
	b.object("pods", event.Added, event.Watch, thing{"shop", "new", "u-5", 61, ""})
	floors, err := b.mirror.Trim(b.clock)
	if err != nil {
		t.Fatal(err)
	}
	for r, floor := range floors {
		if err := b.mirror.Store().Trim(t.Context(), r, floor); err != nil {
			t.Fatal(err)
		}
	}
	_, err = page(first.GetContinue())
	var expired *apierrors.StatusError
	if !errors.As(err, &expired) || !apierrors.IsResourceExpired(err) || expired.ErrStatus.Continue == "" {
		t.Fatalf("the answer is %v", err)
	}
	second, err := page(expired.ErrStatus.Continue)
	if err != nil || !slices.Equal(names(second), []string{"shop/new@61"}) || second.GetResourceVersion() != "61" {
		t.Fatalf("the page is %v (%v)", second, err)
	}
	b.deleted("pods", web, 62)
	third, err := page(second.GetContinue())
	if err != nil || !slices.Equal(names(third), []string{"shop/web@41"}) || third.GetResourceVersion() != "61" || third.GetContinue() != "" {
		t.Errorf("the page behind it is %v (%v)", third, err)
	}
}

// TestGet: an object's body is that of the bus, byte for byte.
func TestGet(t *testing.T) {
	b := newBus(t)
	b.selections["pods"] = event.Selection{Redacted: true}
	b.snapshot("pods", 50, web, cart, log)
	code, header, body := b.get(t, "/api/v1/namespaces/shop/pods/web", "")
	if want := string(web.body("v1", "Pod")); code != 200 || body != want {
		t.Errorf("%d, and the body is %s, want %s", code, body, want)
	}
	want := []string{
		`299 - "pods is complete as of resourceVersion 50; the last event of it is of 2026-03-14T09:00:05Z"`,
		`299 - "values in objects of pods are redacted"`,
	}
	if diff := cmp.Diff(want, header.Values("Warning")); diff != "" {
		t.Errorf("the warnings (-want +got):\n%s", diff)
	}
	for _, path := range []string{"/api/v1/pods", "/api/v1/nodes", "/apis"} {
		if code, _, body := b.get(t, "/at/2026-03-14T09:00:06Z"+path, ""); code != 504 || !strings.Contains(body, "is not read yet: what was published is known up to 2026-03-14T09:00:05Z") {
			t.Errorf("%s at a time up to which the bus was not read: %d %s", path, code, body)
		}
	}
	b.readUntil(start.Add(2 * time.Hour))
	_, header, _ = b.get(t, "/at/2026-03-14T09:30:00Z/api/v1/namespaces/shop/pods/web", "")
	want = []string{
		`299 - "pods at 2026-03-14T09:30:00Z is as of resourceVersion 50, which was complete at 2026-03-14T09:00:05Z"`,
		`299 - "the bridge has published no event of it since 2026-03-14T09:00:05Z: changes that it publishes late are missing"`,
		`299 - "values in objects of pods are redacted"`,
	}
	if diff := cmp.Diff(want, header.Values("Warning")); diff != "" {
		t.Errorf("the warnings of a time after the last event (-want +got):\n%s", diff)
	}
	for path, want := range map[string]int{
		"/api/v1/namespaces/shop/pods/none":                    404,
		"/api/v1/namespaces/shop/pods/web/log":                 404,
		"/api/v1/pods/web":                                     404,
		"/api/v1/nodes":                                        404,
		"/apis/apps/v1/deployments":                            404,
		"/api/v2/pods":                                         404,
		"/at/yesterday/api/v1/pods":                            400,
		"/version":                                             200,
		"/readyz":                                              200,
		"/at/50/healthz":                                       200,
		"/at/2026-03-14T11:00:01Z/healthz":                     504,
		"/clusters/prod/readyz":                                200,
		"/clusters/prod/api/v1/namespaces/shop/pods/web":       200,
		"/clusters/test/api/v1/namespaces/shop/pods/web":       404,
		"/openapi/v2":                                          404,
		"/at/2026-03-14T09:00:00Z/api/v1/pods":                 410,
		"/at/2026-03-14T10:00:00Z/api/v1/pods":                 200,
		"/at/2026-03-14T11:00:00Z/api/v1/pods":                 200,
		"/at/2026-03-14T11:00:01Z/api/v1/pods":                 504, // what is then is not known now
		"/at/2026-03-14T11:00:01Z/apis":                        504,
		"/at/50/api/v1/namespaces/shop/pods/web":               200,
		"/at/e2:50/api/v1/namespaces/shop/pods/web":            410,
		"/at/1000/api/v1/namespaces/shop/pods/web":             504,
		"/clusters/prod/at/50/api/v1/namespaces/shop/pods/web": 200,
	} {
		if code, _, body := b.get(t, path, ""); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
	if _, _, body := b.get(t, "/api/v1/namespaces/shop/pods/web/log", ""); !strings.Contains(body, `log of pods \"web\": subresources are not on the bus`) {
		t.Errorf("kubectl logs would print %s", body)
	}
	if code, _, _ := b.get(t, "/api/v1/pods", "application/yaml"); code != 406 {
		t.Errorf("for YAML it is %d", code)
	}
}

// TestLostMessages: while lost messages are read again, objects are not known, and are not said to be absent.
func TestLostMessages(t *testing.T) {
	b := threePods(t)
	if err := b.mirror.Forget("the stream has lost messages"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/api/v1/namespaces/shop/pods/web", "/api/v1/pods"} {
		if code, _, text := b.get(t, path, ""); code != 503 || !strings.Contains(text, "the stream has lost messages") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if code, _, text := b.get(t, "/api/v1", ""); code != 200 || !strings.Contains(text, `"pods"`) {
		t.Errorf("discovery: %d %s", code, text)
	}
	all := States(b.mirror, "prod")
	if len(all) != 1 || all[0].Current || !all[0].Time.IsZero() { // the events that are read next can be old
		t.Errorf("the states are %+v", all)
	}
	n := make(chan prometheus.Metric, 2)
	if NewCollector(func() []State { return all }).Collect(n); len(n) != 1 {
		t.Errorf("%d metrics, want none with the time of the last event", len(n))
	}
}

// TestWarningsAreBounded: an answer does not have a header for each of thousands of collections.
func TestWarningsAreBounded(t *testing.T) {
	b := newBus(t)
	for n := range 2 * maxWarnings {
		id := fmt.Sprintf("pods:%d", n)
		b.selections[id] = event.Selection{Filtered: true}
		b.plan(id)
	}
	for _, id := range slices.Sorted(maps.Keys(b.selections)) {
		b.snapshot(id, 50)
	}
	if _, header, _ := b.get(t, "/api/v1/pods", ""); len(header.Values("Warning")) != maxWarnings+1 {
		t.Errorf("%d warnings", len(header.Values("Warning")))
	}
}

// TestWarningsOfAnEra: a list of an earlier state has the warnings of that state, also on its further pages. The collection had another selection then.
func TestWarningsOfAnEra(t *testing.T) {
	b := newBus(t)
	b.selections["pods"] = event.Selection{Filtered: true}
	b.snapshot("pods", 50, web, cart)
	b.selections["pods"] = event.Selection{Redacted: true}
	b.gap("pods", event.ReasonSelection)
	b.synced("pods", 60, event.ReasonSelection)
	warnings := func(path string) []string {
		t.Helper()
		code, header, body := b.get(t, path, "")
		if code != http.StatusOK {
			t.Errorf("%s is %d: %s", path, code, body)
		}
		return header.Values("Warning")
	}
	for version, word := range map[string]string{"50": "filter", "60": "redact"} {
		want := warnings("/at/" + version + "/api/v1/pods")
		if len(want) != 2 || !strings.Contains(want[1], word) {
			t.Errorf("the warnings at %s are %q, want one about %s", version, want, word)
		}
		for _, query := range []string{"?resourceVersionMatch=Exact&resourceVersion=", "?limit=1&resourceVersion="} {
			if diff := cmp.Diff(want, warnings("/api/v1/pods"+query+version)); diff != "" {
				t.Errorf("%s%s (-/at/%s +it):\n%s", query, version, version, diff)
			}
		}
		_, _, body := b.get(t, "/at/"+version+"/api/v1/pods?limit=1", "")
		var page metav1.PartialObjectMetadataList
		if err := json.Unmarshal([]byte(body), &page); err != nil || page.Continue == "" {
			t.Fatalf("the first page is %s (%v)", body, err)
		}
		if diff := cmp.Diff(want, warnings("/at/"+version+"/api/v1/pods?limit=1&continue="+page.Continue)); diff != "" {
			t.Errorf("the second page at %s (-first +second):\n%s", version, diff)
		}
	}
}

// get sends a request and reads the whole answer.
func (b *bus) get(t *testing.T, path, accept string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, a.Header, string(body)
}

// TestWritesAreRefused: a write is 405 with the reason, and changes nothing.
func TestWritesAreRefused(t *testing.T) {
	b := threePods(t)
	pods := b.client("").Resource(podsResource).Namespace("shop")
	err := pods.Delete(t.Context(), "web", metav1.DeleteOptions{})
	if !apierrors.IsMethodNotSupported(err) || !strings.Contains(err.Error(), "can only be read") {
		t.Errorf("a deletion: %v", err)
	}
	if _, err := pods.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{"kind": "Pod", "apiVersion": "v1"}}, metav1.CreateOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a creation: %v", err)
	}
}

// TestNotCovered: a resource without a complete list is refused with the reason, never shown in part. In a gap the state before it is shown,
// with a warning, and after a reset it is refused.
func TestNotCovered(t *testing.T) {
	b := newBus(t)
	b.gap("pods", event.ReasonReset)
	b.object("pods", event.Present, event.Snapshot, web)
	pods := b.client("").Resource(podsResource)
	_, err := pods.List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "the first list has not ended") {
		t.Errorf("in the first list: %v", err)
	}
	b.synced("pods", 50, event.ReasonReset)
	b.gap("pods", event.ReasonExpired)
	b.object("pods", event.Added, event.Reconcile, cart)
	code, header, body := b.get(t, "/api/v1/pods", "")
	if code != 200 || strings.Contains(body, "cart") || !strings.Contains(strings.Join(header.Values("Warning"), " "), "a gap is open, later changes are missing: a gap began in the collection pods (expired)") {
		t.Errorf("in a gap: %d %s %v", code, body, header.Values("Warning"))
	}
	b.synced("pods", 60, event.ReasonExpired)
	if l, err := pods.List(t.Context(), metav1.ListOptions{}); err != nil || len(l.Items) != 2 {
		t.Errorf("after the gap: %v (%v)", l, err)
	}
	over, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "50"})
	if err != nil {
		t.Fatal(err)
	}
	wantNext(t, over, "ERROR 410", "end")
	b.gap("pods", event.ReasonReset)
	if _, err := pods.List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("in a reset: %v", err)
	}
	if _, _, body := b.get(t, "/at/60/api/v1/namespaces/shop/pods/cart", ""); !strings.Contains(body, "u-2") {
		t.Errorf("the past in a reset is %s", body)
	}
	if code, _, body := b.get(t, "/at/"+b.clock.Format(time.RFC3339)+"/api/v1/pods", ""); code != 410 || !strings.Contains(body, "(reset), and its list had not ended") {
		t.Errorf("at the time of a reset: %d %s", code, body)
	}
}

// TestTooNew: a version that is not reached yet is waited for; if it does not come, the answer is that of the API server, which clients repeat.
func TestTooNew(t *testing.T) {
	b := threePods(t)
	pods := b.client("").Resource(podsResource)
	done := make(chan error, 1)
	go func() {
		l, err := pods.List(context.Background(), metav1.ListOptions{ResourceVersion: "60"})
		if err == nil && l.GetResourceVersion() != "60" {
			err = errors.New("it is at " + l.GetResourceVersion())
		}
		done <- err
	}()
	b.synced("pods", 60, event.ReasonPeriodic)
	if err := <-done; err != nil {
		t.Error(err)
	}
	code, header, body := b.get(t, "/api/v1/namespaces/shop/pods/web?resourceVersion=70", "")
	if code != 504 || !strings.Contains(body, string(metav1.CauseTypeResourceVersionTooLarge)) || header.Get("Retry-After") != "1" {
		t.Errorf("it is %d %s", code, body)
	}
}

// next returns the next event of a watch.
func next(t *testing.T, w apiwatch.Interface) string {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			return "end"
		}
		if st, ok := e.Object.(*metav1.Status); ok {
			return fmt.Sprintf("%s %d", e.Type, st.Code)
		}
		x := e.Object.(*unstructured.Unstructured)
		end := ""
		if x.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "" {
			end = " end"
		}
		return fmt.Sprintf("%s %s@%s%s", e.Type, x.GetName(), x.GetResourceVersion(), end)
	case <-time.After(20 * time.Second):
		t.Fatal("no event of the watch")
	}
	return ""
}

func wantNext(t *testing.T, w apiwatch.Interface, want ...string) {
	t.Helper()
	for _, x := range want {
		if got := next(t, w); got != x {
			t.Errorf("the watch has %q, want %q", got, x)
		}
	}
}

// TestWatch: a watch has the changes after its resourceVersion, as they concern its selection, and ends with 410 at a gap.
func TestWatch(t *testing.T) {
	b := threePods(t)
	pods := b.client("").Resource(podsResource)
	open := func(o metav1.ListOptions) apiwatch.Interface {
		t.Helper()
		w, err := pods.Watch(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		return w
	}
	all := open(metav1.ListOptions{ResourceVersion: "50"})
	selected := open(metav1.ListOptions{ResourceVersion: "50", LabelSelector: "app=web"})
	named := open(metav1.ListOptions{FieldSelector: "metadata.name=log", AllowWatchBookmarks: true, SendInitialEvents: new(bool), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	initial := true
	streamed := open(metav1.ListOptions{AllowWatchBookmarks: true, SendInitialEvents: &initial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	wantNext(t, streamed, "ADDED log@43", "ADDED cart@42", "ADDED web@41", "BOOKMARK @50 end")

	moved := cart
	moved.version, moved.labels = 51, "app=web"
	b.object("pods", event.Modified, event.Watch, moved)
	back := moved
	back.version, back.labels = 52, ""
	b.object("pods", event.Modified, event.Watch, back)
	b.deleted("pods", web, 53)
	b.object("pods", event.Added, event.Watch, thing{"shop", "web", "u-9", 54, "app=web"})
	b.deleted("pods", log, 55)
	want := []string{"MODIFIED cart@51", "MODIFIED cart@52", "DELETED web@53", "ADDED web@54", "DELETED log@55"}
	wantNext(t, all, want...)
	wantNext(t, streamed, want...)
	wantNext(t, selected, "ADDED cart@51", "DELETED cart@52", "DELETED web@53", "ADDED web@54", "DELETED log@55")
	wantNext(t, named, "DELETED log@55")
	wantNext(t, open(metav1.ListOptions{ResourceVersion: "52"}), want[2:]...)

	b.gap("pods", event.ReasonExpired)
	for _, w := range []apiwatch.Interface{all, selected, named, streamed} {
		wantNext(t, w, "ERROR 410", "end")
	}
	b.synced("pods", 70, event.ReasonExpired)
	for _, version := range []string{"55", "69"} {
		wantNext(t, open(metav1.ListOptions{ResourceVersion: version}), "ERROR 410", "end")
		// It repeats its request without end if the answer has the status 410.
		w, err := toolswatch.NewRetryWatcherWithContext(t.Context(), version, &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) { return pods.Watch(ctx, o) },
		})
		if err != nil {
			t.Fatal(err)
		}
		wantNext(t, w, "ERROR 410", "end")
	}
	limit := int64(1)
	short := open(metav1.ListOptions{ResourceVersion: "70", AllowWatchBookmarks: true, TimeoutSeconds: &limit})
	wantNext(t, short, "BOOKMARK @70", "end")
}

// TestWatchHasNoPages: limit and continue do not count in a watch, as at the API server. With a limit, initial objects would be missing before the
// bookmark that says that all were sent.
func TestWatchHasNoPages(t *testing.T) {
	b := threePods(t)
	initial := true
	objects := []string{"ADDED log@43", "ADDED cart@42", "ADDED web@41"}
	for _, c := range []struct {
		o    metav1.ListOptions
		want []string
	}{
		{metav1.ListOptions{AllowWatchBookmarks: true, SendInitialEvents: &initial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, Limit: 1}, append(objects, "BOOKMARK @50 end")},
		{metav1.ListOptions{Limit: 1, Continue: "x"}, objects},
	} {
		w, err := b.client("").Resource(podsResource).Watch(t.Context(), c.o)
		if err != nil {
			t.Fatal(err)
		}
		wantNext(t, w, c.want...)
		w.Stop()
	}
}

// TestChangesOfOneVersion: objects that expire together are deleted at one resourceVersion. A client that has seen the first deletion only
// must get the others when it resumes.
func TestChangesOfOneVersion(t *testing.T) {
	b := threePods(t)
	pods := b.client("").Resource(podsResource)
	b.deleted("pods", web, 60)
	b.deleted("pods", cart, 60)
	w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "60"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	wantNext(t, w, "DELETED web@60", "DELETED cart@60")
}

// TestWatchFromBase: what the first list of an era shows to be deleted is at its resourceVersion. A client that has listed there had none of it, and must
// get what comes later at the same version.
func TestWatchFromBase(t *testing.T) {
	b := threePods(t)
	b.gap("pods", event.ReasonExpired)
	gone := func(x thing, origin event.Origin) {
		t.Helper()
		b.send("pods", event.Event{
			Type: event.Deleted, Origin: origin, APIVersion: "v1", Kind: "Pod", Namespace: x.namespace, Name: x.name, UID: x.uid,
			ResourceVersion: strconv.Itoa(x.version), DeletionVersion: "60", Object: x.body("v1", "Pod"),
		})
	}
	gone(web, event.Reconcile)
	gone(cart, event.Reconcile)
	b.synced("pods", 60, event.ReasonExpired)
	pods := b.client("").Resource(podsResource)
	l, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil || !slices.Equal(names(l), []string{"infra/log@43"}) {
		t.Fatalf("the list is %v (%v)", names(l), err)
	}
	watch := func() apiwatch.Interface {
		t.Helper()
		w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: l.GetResourceVersion()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		return w
	}
	w := watch()
	gone(log, event.Watch)
	late := "DELETED log@60"
	wantNext(t, w, late)
	wantNext(t, watch(), late)
}

// TestResync: a resync publishes every object again. Watches go on without it.
func TestResync(t *testing.T) {
	b := threePods(t)
	w, err := b.client("").Resource(podsResource).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "50"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	b.gap("pods", event.ReasonResync)
	for _, x := range []thing{web, cart, log} {
		b.object("pods", event.Present, event.Resync, x)
	}
	b.synced("pods", 60, event.ReasonResync)
	b.deleted("pods", web, 61)
	wantNext(t, w, "DELETED web@61")
}

// TestTwoCollections: an object that moves between two entries is not deleted for clients, and changes are shown in the order of their versions
// once both collections have reached them.
func TestTwoCollections(t *testing.T) {
	b := newBus(t)
	b.edits["pods"] = map[string]uint64{"pods:a": 1, "pods:b": 1}
	b.snapshot("pods:a", 50, web)
	pods := b.client("").Resource(podsResource)
	if _, err := pods.List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("with one of two collections: %v", err)
	}
	b.snapshot("pods:b", 50, cart)
	w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "50"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	moved := web
	moved.version = 52
	b.object("pods:b", event.Added, event.Watch, moved)
	other := thing{"shop", "late", "u-4", 51, ""}
	b.object("pods:a", event.Added, event.Watch, other)
	b.deleted("pods:a", web, 52)
	wantNext(t, w, "ADDED late@51", "MODIFIED web@52")
	if l, err := pods.List(t.Context(), metav1.ListOptions{}); err != nil || !slices.Equal(names(l), []string{"shop/cart@42", "shop/late@51", "shop/web@52"}) {
		t.Errorf("the list is %v (%v)", names(l), err)
	}
}

// TestDiscovery: clients find resources by both forms of discovery.
func TestDiscovery(t *testing.T) {
	b := threePods(t)
	b.snapshot("deployments.apps", 50)
	b.snapshot("widgets.example.com", 50, thing{"shop", "w", "u-7", 44, ""})
	for _, legacy := range []bool{false, true} {
		d, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: b.url, WarningHandler: rest.NoWarnings{}})
		if err != nil {
			t.Fatal(err)
		}
		d.UseLegacyDiscovery = legacy
		_, lists, err := d.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range lists {
			for _, r := range l.APIResources {
				got = append(got, fmt.Sprintf("%s %s %s %t %v %v %v", l.GroupVersion, r.Name, r.Kind, r.Namespaced, r.ShortNames, r.Verbs, r.Categories))
			}
		}
		want := []string{
			"apps/v1 deployments Deployment true [deploy] [get list watch] [all]",
			"authentication.k8s.io/v1 selfsubjectreviews SelfSubjectReview false [] [create] []",
			"authorization.k8s.io/v1 selfsubjectaccessreviews SelfSubjectAccessReview false [] [create] []",
			"authorization.k8s.io/v1 selfsubjectrulesreviews SelfSubjectRulesReview false [] [create] []",
			"example.com/v1 widgets Widget true [] [get list watch] []", "v1 pods Pod true [po] [get list watch] [all]",
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("legacy: %t (-want +got):\n%s", legacy, diff)
		}
		if v, err := d.ServerVersion(); err != nil || v.GitVersion == "" {
			t.Errorf("the version is %v (%v)", v, err)
		}
	}
}

// TestTable: kubectl gets its columns; a custom resource has those of its CustomResourceDefinition.
func TestTable(t *testing.T) {
	b := threePods(t)
	b.snapshot("widgets.example.com", 50, thing{"shop", "w", "u-7", 44, "size=large"})
	accept := "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	table := func(path string) (columns []string, rows [][]any) {
		_, _, body := b.get(t, path, accept)
		var x metav1.Table
		if err := json.Unmarshal([]byte(body), &x); err != nil || x.Kind != "Table" {
			t.Fatalf("%s: %s (%v)", path, body, err)
		}
		for _, c := range x.ColumnDefinitions {
			columns = append(columns, c.Name)
		}
		for _, r := range x.Rows {
			rows = append(rows, r.Cells[:len(r.Cells)-1]) // without the age
		}
		return columns, rows
	}
	columns, rows := table("/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb")
	if diff := cmp.Diff([]any{"web", "0/0", "", "0"}, rows[0][:4]); diff != "" || len(rows) != 1 || len(columns) != 9 {
		t.Errorf("the columns are %v, the rows %v", columns, rows)
	}
	if columns, _ := table("/apis/example.com/v1/widgets"); !slices.Equal(columns, []string{"Name", "Age"}) {
		t.Errorf("without a definition the columns are %v", columns)
	}
	b.gap("customresourcedefinitions.apiextensions.k8s.io", event.ReasonReset)
	b.send("customresourcedefinitions.apiextensions.k8s.io", event.Event{
		Type: event.Present, Origin: event.Snapshot, APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: "widgets.example.com", UID: "u-8", ResourceVersion: "40",
		Object: []byte(`{"metadata":{"name":"widgets.example.com","uid":"u-8","resourceVersion":"40"},"spec":{"names":{"kind":"Widget","shortNames":["wd"]},"scope":"Namespaced","versions":[{"name":"v1",` +
			`"additionalPrinterColumns":[{"name":"Size","type":"string","jsonPath":".metadata.labels.size"},{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}]}]}}`),
	})
	b.synced("customresourcedefinitions.apiextensions.k8s.io", 50, event.ReasonReset)
	columns, rows = table("/apis/example.com/v1/widgets")
	if !slices.Equal(columns, []string{"Name", "Size", "Age"}) || rows[0][1] != "large" {
		t.Errorf("the columns are %v, the rows %v", columns, rows)
	}
	isKept := func(k any) bool { return k == [2]string{"prod", "widgets.example.com"} }
	kept := len(b.server.defined.Keys())
	if !slices.ContainsFunc(b.server.defined.Keys(), isKept) {
		t.Error("the definition is not kept for the next request")
	}
	b.send("customresourcedefinitions.apiextensions.k8s.io", event.Event{
		Type: event.Modified, Origin: event.Watch, APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: "widgets.example.com", UID: "u-8", ResourceVersion: "60",
		Object: []byte(`{"metadata":{"name":"widgets.example.com","uid":"u-8","resourceVersion":"60"},"spec":{"names":{"kind":"Widget"},"scope":"Namespaced","versions":[{"name":"v1",` +
			`"additionalPrinterColumns":[{"name":"Width","type":"string","jsonPath":".metadata.labels.size"}]}]}}`),
	})
	if columns, _ = table("/apis/example.com/v1/widgets"); !slices.Equal(columns, []string{"Name", "Width"}) {
		t.Errorf("after a change of the definition the columns are %v", columns)
	}
	if now := len(b.server.defined.Keys()); now != kept {
		t.Errorf("after a change of the definition %d definitions are kept, want %d: the former one takes room", now, kept)
	}
}

// TestIncludeObject: `kubectl get --sort-by` asks for whole objects in the rows of a table.
func TestIncludeObject(t *testing.T) {
	b := threePods(t)
	for include, want := range map[string]string{"": "PartialObjectMetadata", "Metadata": "PartialObjectMetadata", "Object": "Pod", "None": ""} {
		for _, path := range []string{"/api/v1/namespaces/shop/pods?", "/api/v1/namespaces/shop/pods/web?", "/api/v1/namespaces/shop/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1&"} {
			_, _, body := b.get(t, path+"includeObject="+include, "application/json;as=Table;v=v1;g=meta.k8s.io")
			var x struct {
				metav1.Table
				Object metav1.Table // of an event
			}
			if err := json.NewDecoder(strings.NewReader(body)).Decode(&x); err != nil {
				t.Fatal(err)
			}
			var o metav1.TypeMeta
			for _, r := range append(x.Rows, x.Object.Rows...) {
				if len(r.Object.Raw) > 0 && string(r.Object.Raw) != "null" {
					if err := json.Unmarshal(r.Object.Raw, &o); err != nil {
						t.Fatal(err)
					}
				}
			}
			if o.Kind != want {
				t.Errorf("%s%s: the rows have %q, want %q", path, include, o.Kind, want)
			}
		}
	}
	if code, _, _ := b.get(t, "/api/v1/pods?includeObject=none", ""); code != 400 {
		t.Errorf("a wrong value: %d", code)
	}
}

// TestTableOfKinds: the columns of Kubernetes' own kinds are those of the API server, so that scripts that read columns work.
func TestTableOfKinds(t *testing.T) {
	b := newBus(t)
	for _, c := range []struct{ resource, path, kind, apiVersion, fields, columns, cells string }{
		{
			"services", "/api/v1/services", "Service", "v1",
			`"spec":{"type":"LoadBalancer","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"externalIPs":["2.2.2.2"],"selector":{"b":"2","a":"1"},"ports":[{"port":80,"nodePort":30080,"protocol":"TCP"},{"port":53,"protocol":"UDP"}]},"status":{"loadBalancer":{"ingress":[{"hostname":"lb"},{"ip":"1.1.1.1"}]}}`,
			"Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector", "x|LoadBalancer|10.0.0.1|1.1.1.1,lb,2.2.2.2|80:30080/TCP,53/UDP|3h|a=1,b=2",
		},
		{
			"nodes", "/api/v1/nodes", "Node", "v1",
			`"spec":{"unschedulable":true},"status":{"addresses":[{"type":"InternalIP","address":"10.1.0.1"}],"conditions":[{"type":"Ready","status":"True"}],"nodeInfo":{"kubeletVersion":"v1.36.3","kernelVersion":"6.1","architecture":"amd64"}}`,
			"Name|Status|Roles|Age|Version|Internal-IP|External-IP|OS-Image|Kernel-Version|Container-Runtime",
			"x|Ready,SchedulingDisabled|<none>|3h|v1.36.3|10.1.0.1|<none>|<unknown>|6.1 (amd64)|<unknown>",
		},
		{
			"daemonsets.apps", "/apis/apps/v1/daemonsets", "DaemonSet", "apps/v1",
			`"spec":{"template":{"spec":{"nodeSelector":{"disk":"ssd"}}}},"status":{"desiredNumberScheduled":5,"currentNumberScheduled":4,"numberReady":3,"updatedNumberScheduled":2,"numberAvailable":1}`,
			"Name|Desired|Current|Ready|Up-to-date|Available|Node Selector|Age", "x|5|4|3|2|1|disk=ssd|3h",
		},
		{
			"jobs.batch", "/apis/batch/v1/jobs", "Job", "batch/v1",
			`"spec":{"parallelism":2},"status":{"succeeded":1,"startTime":"2026-03-14T09:00:00Z","completionTime":"2026-03-14T09:00:42Z","conditions":[{"type":"Complete","status":"True"}]}`,
			"Name|Status|Completions|Duration|Age", "x|Complete|1/1 of 2|42s|3h",
		},
		{
			"cronjobs.batch", "/apis/batch/v1/cronjobs", "CronJob", "batch/v1",
			`"spec":{"schedule":"0 3 * * *","suspend":false},"status":{"active":[{"name":"x-1"}],"lastScheduleTime":"2026-03-14T09:00:00Z"}`,
			"Name|Schedule|Timezone|Suspend|Active|Last Schedule|Age", "x|0 3 * * *|<none>|False|1|120m|3h",
		},
		{
			"ingresses.networking.k8s.io", "/apis/networking.k8s.io/v1/ingresses", "Ingress", "networking.k8s.io/v1",
			`"spec":{"tls":[{}],"rules":[{"host":"a"},{"host":"b"},{"host":"c"},{"host":"d"}]}`,
			"Name|Class|Hosts|Address|Ports|Age", "x|<none>|a,b,c + 1 more...||80, 443|3h",
		},
		{
			"events", "/api/v1/events", "Event", "v1",
			`"involvedObject":{"kind":"Pod","name":"web","fieldPath":"spec"},"reason":"Pulled","message":"done ","type":"Normal","eventTime":"2026-03-14T09:00:00.000001Z","firstTimestamp":null,"lastTimestamp":null,"reportingComponent":"kubelet","reportingInstance":"n1"`,
			"Last Seen|Type|Reason|Object|Subobject|Source|Message|First Seen|Count|Name", "119m|Normal|Pulled|pod/web|spec|kubelet, n1|done|119m|1|x",
		},
		{
			"events.events.k8s.io", "/apis/events.k8s.io/v1/events", "Event", "events.k8s.io/v1",
			`"regarding":{"kind":"Pod","name":"web"},"reason":"Pulled","note":"done","type":"Normal","eventTime":null,"deprecatedFirstTimestamp":"2026-03-14T09:00:00Z","deprecatedLastTimestamp":"2026-03-14T10:00:00Z","deprecatedCount":3,"deprecatedSource":{"component":"kubelet","host":"n1"}`,
			"Last Seen|Type|Reason|Object|Subobject|Source|Message|First Seen|Count|Name", "60m|Normal|Pulled|pod/web||kubelet, n1|done|120m|3|x",
		},
		{
			"pods", "/api/v1/pods", "Pod", "v1",
			`"spec":{"nodeName":"n1","containers":[{},{}],"readinessGates":[{"conditionType":"a"}]},"status":{"phase":"Running","podIP":"10.2.0.1","conditions":[{"type":"a","status":"True"}],` +
				`"containerStatuses":[{"ready":true,"state":{"running":{}},"restartCount":2,"lastState":{"terminated":{"finishedAt":"2026-03-14T09:00:00Z"}}},{"ready":false,"restartCount":1,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}`,
			"Name|Ready|Status|Restarts|Age|IP|Node|Nominated Node|Readiness Gates", "x|1/2|CrashLoopBackOff|3 (120m ago)|3h|10.2.0.1|n1|<none>|1/1",
		},
	} {
		b.gap(c.resource, event.ReasonReset)
		b.sendObject(c.resource, event.Present, event.Snapshot, thing{"shop", "x", "u-" + c.kind, 40, ""}, c.kind, c.apiVersion, c.fields)
		b.synced(c.resource, 50, event.ReasonReset)
		_, _, body := b.get(t, c.path, "application/json;as=Table;v=v1;g=meta.k8s.io")
		var x metav1.Table
		if err := json.Unmarshal([]byte(body), &x); err != nil || len(x.Rows) != 1 {
			t.Errorf("%s: %s (%v)", c.resource, body, err)
			continue
		}
		var columns, cells []string
		for i, column := range x.ColumnDefinitions {
			columns = append(columns, column.Name)
			cells = append(cells, fmt.Sprint(x.Rows[0].Cells[i]))
		}
		if diff := cmp.Diff([]string{c.columns, c.cells}, []string{strings.Join(columns, "|"), strings.Join(cells, "|")}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.resource, diff)
		}
	}
}

// TestEventsOfOneObject: kubectl describe lists the Events about an object, and would show nothing of the object after an error. If the bus has no Events, or
// not all that exist, this list is empty, with a warning. Other lists, and what is not known yet, stay errors.
func TestEventsOfOneObject(t *testing.T) {
	b := threePods(t)
	known := b.server.Builtin
	b.server.Builtin = func(resource string) (Builtin, bool) {
		switch resource {
		case "events":
			return Builtin{"v1", "Event", true, nil}, true
		case "events.events.k8s.io":
			return Builtin{"events.k8s.io/v1", "Event", true, nil}, true
		}
		return known(resource)
	}
	const one = "?fieldSelector=involvedObject.name%3Dweb%2CinvolvedObject.uid%3Du-1&limit=500"
	const newOne = "/apis/events.k8s.io/v1/namespaces/shop/events?fieldSelector=regarding.name%3Dweb"
	asks := func(path string, want int, warning string) {
		t.Helper()
		code, header, body := b.get(t, path, "")
		warnings := strings.Join(header.Values("Warning"), " ")
		if code != want || !strings.Contains(warnings, warning) {
			t.Errorf("%s: %d %s %s, want %d %s", path, code, warnings, body, want, warning)
		}
		if code == 200 && !strings.Contains(body, `"kind":"EventList"`) {
			t.Errorf("%s: %s", path, body)
		}
	}
	const none = "are not served, so there are none in this list: "
	asks("/api/v1/namespaces/shop/events"+one, 200, "events "+none+"the bus has none")
	asks("/api/v1/events"+one, 200, "events "+none+"the bus has none")
	asks(newOne, 200, "events.events.k8s.io "+none+"the bus has none")
	asks("/api/v1/namespaces/shop/events", 404, "")
	asks("/api/v1/events?fieldSelector=type%3DWarning", 404, "")
	asks("/api/v1/events"+one+"&watch=1", 404, "")
	asks("/api/v1/events"+one+"%2Cnone%3Dx", 400, "")
	asks("/api/v1/nodes?fieldSelector=metadata.name%3Dn1", 404, "")

	b.selections["events"] = event.Selection{Types: event.Types(0).Without(event.Deleted)}
	b.snapshot("events", 50)
	asks("/api/v1/namespaces/shop/events"+one, 200, "events "+none+"the bridge does not publish their deleted events")
	asks("/api/v1/namespaces/shop/events", 503, "")
	b.server.Ready = func() error { return errors.New("the bus was not read") }
	asks(newOne, 503, "")
}

// TestMetadata: a client that asks for metadata only gets it.
func TestMetadata(t *testing.T) {
	b := threePods(t)
	c, err := metadata.NewForConfig(&rest.Config{Host: b.url, WarningHandler: rest.NoWarnings{}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Resource(podsResource).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(l.Items) != 3 || l.Items[0].Name != "log" || l.ResourceVersion != "50" {
		t.Errorf("%v (%v)", l, err)
	}
}

// TestPast: a time shows what was served then, in lists, gets and watches.
func TestPast(t *testing.T) {
	b := threePods(t)
	before := b.clock
	b.deleted("pods", web, 60)
	b.object("pods", event.Added, event.Watch, thing{"shop", "new", "u-5", 61, ""})
	at := func(t time.Time) string { return "/at/" + t.Format(time.RFC3339) }
	for prefix, want := range map[string][]string{
		at(before):                      {"infra/log@43", "shop/cart@42", "shop/web@41"},
		at(before.Add(time.Second)):     {"infra/log@43", "shop/cart@42"},
		at(before.Add(2 * time.Second)): {"infra/log@43", "shop/cart@42", "shop/new@61"},
		"/at/59":                        {"infra/log@43", "shop/cart@42", "shop/web@41"},
		"/at/60":                        {"infra/log@43", "shop/cart@42"},
	} {
		pods := b.client(prefix).Resource(podsResource)
		l, err := pods.List(t.Context(), metav1.ListOptions{})
		if err != nil || !slices.Equal(names(l), want) {
			t.Errorf("%s: %v (%v), want %v", prefix, names(l), err, want)
			continue
		}
		limit := int64(1)
		w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: l.GetResourceVersion(), TimeoutSeconds: &limit})
		if err != nil {
			t.Errorf("%s: %v", prefix, err)
			continue
		}
		wantNext(t, w, "end")
	}
}

// TestLaterThanPast: what was then does not show a later resourceVersion, whatever asks for it.
func TestLaterThanPast(t *testing.T) {
	b := threePods(t)
	now := b.clock.Format(time.RFC3339)
	b.deleted("pods", web, 60)
	for _, at := range []string{"/at/50", "/at/" + now} {
		for path, expired := range map[string]bool{
			"/api/v1/namespaces/shop/pods/web?resourceVersion=50":                                                                  false,
			"/api/v1/namespaces/shop/pods/web?resourceVersion=60":                                                                  true,
			"/api/v1/namespaces/shop/pods/web?resourceVersion=1000":                                                                true,
			"/api/v1/pods?resourceVersion=50":                                                                                      false,
			"/api/v1/pods?resourceVersion=60":                                                                                      true,
			"/api/v1/pods?resourceVersion=60&resourceVersionMatch=Exact":                                                           true,
			"/api/v1/pods?resourceVersion=1000&resourceVersionMatch=Exact":                                                         true,
			"/api/v1/pods?resourceVersion=50&watch=1&timeoutSeconds=1":                                                             false,
			"/api/v1/pods?resourceVersion=60&watch=1&timeoutSeconds=1":                                                             true,
			"/api/v1/pods?resourceVersion=50&watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan":    false,
			"/api/v1/pods?resourceVersion=60&watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan":    true,
			"/api/v1/pods?resourceVersion=1000&watch=1&timeoutSeconds=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan": true,
		} {
			code, _, body := b.get(t, at+path, "")
			if want := fmt.Sprintf("is later than %s", at); strings.Contains(body, want) != expired || strings.Contains(body, `"code":410`) != expired {
				t.Errorf("%s%s: %d %s", at, path, code, body)
			}
		}
	}
}

// TestPastWatch: a watch of the past has the changes up to its time that the bridge has published late.
func TestPastWatch(t *testing.T) {
	b := threePods(t)
	b.readUntil(start.Add(time.Hour))
	w, err := b.client("/at/"+start.Add(time.Hour).Format(time.RFC3339)).Resource(podsResource).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "50"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	b.deleted("pods", web, 51)
	wantNext(t, w, "DELETED web@51")
}

// TestNamespaceNotPublished: an empty answer for a namespace that the bridge does not publish would say that nothing is in it. Informers would take
// all its objects for deleted when the bridge stops publishing it.
func TestNamespaceNotPublished(t *testing.T) {
	b := newBus(t)
	b.edits["pods"] = map[string]uint64{"pods@infra": 1, "pods@shop": 1}
	b.snapshot("pods@infra", 50, log)
	b.snapshot("pods@shop", 50, web)
	b.synced("pods@infra", 55, event.ReasonPeriodic)
	b.synced("pods@shop", 55, event.ReasonPeriodic)
	before := b.clock.Format(time.RFC3339)
	pods := b.client("").Resource(podsResource)
	w, err := pods.Namespace("shop").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "50"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	answers := func(want map[string]int) {
		t.Helper()
		for path, code := range want {
			got, header, body := b.get(t, path, "")
			if got != code || path == "/api/v1/namespaces/none/pods" && !strings.Contains(body, `the bridge does not publish it for namespace \"none\"`) {
				t.Errorf("%s: %d %s, want %d", path, got, body, code)
			}
			if strings.Contains(path, "none") && (strings.Contains(body, "infra") || strings.Contains(body, "shop") || len(header.Values("Warning")) > 0) {
				t.Errorf("%s shows other namespaces: %s %v", path, body, header)
			}
		}
	}
	answers(map[string]int{
		"/api/v1/namespaces/shop/pods":                            200,
		"/api/v1/namespaces/none/pods":                            503,
		"/api/v1/namespaces/none/pods/web":                        503,
		"/api/v1/namespaces/none/pods?watch=1":                    503,
		"/api/v1/namespaces/none/pods?watch=1&resourceVersion=50": 503,
		"/api/v1/pods?fieldSelector=metadata.namespace%3Dnone":    503,
		"/api/v1/pods":                                                200,
		"/at/50/api/v1/namespaces/none/pods":                          410,
		"/at/" + before + "/api/v1/namespaces/none/pods":              410,
		"/at/" + before + "/api/v1/namespaces/none/pods/web":          410,
		"/at/" + before + "/api/v1/namespaces/shop/pods":              200,
		"/api/v1/namespaces/none/pods?limit=1&resourceVersion=50":     503,
		"/api/v1/namespaces/shop/pods?limit=1&resourceVersion=50":     200,
		"/api/v1/namespaces/shop/pods?timeoutSeconds=1&watch=1":       200,
		"/at/50/api/v1/namespaces/none/pods?watch=1&timeoutSeconds=1": 200, // its event is 410
	})
	b.close("pods@shop")
	b.synced("pods@infra", 60, event.ReasonPeriodic)
	wantNext(t, w, "ERROR 410", "end")
	after := b.clock.Format(time.RFC3339)
	answers(map[string]int{
		"/api/v1/namespaces/shop/pods":                                               503,
		"/api/v1/namespaces/shop/pods/web":                                           503,
		"/api/v1/namespaces/infra/pods":                                              200,
		"/at/" + before + "/api/v1/namespaces/shop/pods":                             200,
		"/at/50/api/v1/namespaces/shop/pods/web":                                     200,
		"/at/" + after + "/api/v1/namespaces/shop/pods":                              410,
		"/at/60/api/v1/namespaces/shop/pods":                                         410,
		"/api/v1/namespaces/shop/pods?resourceVersion=50&resourceVersionMatch=Exact": 503,
	})
	b.close("pods@infra")
	answers(map[string]int{
		"/api/v1/namespaces/infra/pods/log": 503, // not 404: the object may exist
		"/api/v1/pods":                      404,
	})
}

// TestNamespaceExcluded: a namespace that the field selector of the published collection leaves out is not one without objects, from the gap on in which
// the configuration has excluded it.
func TestNamespaceExcluded(t *testing.T) {
	b := newBus(t)
	b.snapshot("pods", 50, web, log)
	b.synced("pods", 55, event.ReasonPeriodic)
	before := b.clock.Format(time.RFC3339)
	w, err := b.client("").Resource(podsResource).Namespace("infra").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "50"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	answers := func(want map[string]int) {
		t.Helper()
		for path, code := range want {
			got, header, body := b.get(t, path, "")
			if got != code || got == 503 && !strings.Contains(body, `the bridge does not publish it for namespace`) {
				t.Errorf("%s: %d %s, want %d", path, got, body, code)
			}
			if strings.Contains(path, "/namespaces/shop/") && strings.Contains(fmt.Sprint(header, body), "infra") {
				t.Errorf("%s shows another namespace: %s %v", path, body, header)
			}
		}
	}
	answers(map[string]int{"/api/v1/namespaces/infra/pods": 200, "/api/v1/namespaces/infra/pods/log": 200})
	b.selections["pods"] = event.Selection{Fields: "metadata.namespace!=infra,status.phase=Running"}
	b.gap("pods", event.ReasonSelection)
	answers(map[string]int{"/api/v1/namespaces/infra/pods/log": 200}) // as of the last complete version
	b.send("pods", event.Event{
		Type: event.Deleted, Origin: event.Reconcile, APIVersion: "v1", Kind: "Pod", Namespace: "infra", Name: "log", UID: log.uid, ResourceVersion: "43", DeletionVersion: "60", Reason: "left",
		Object: log.body("v1", "Pod"),
	})
	b.synced("pods", 60, event.ReasonSelection)
	wantNext(t, w, "ERROR 410", "end")
	b.synced("pods", 65, event.ReasonPeriodic)
	after := b.clock.Format(time.RFC3339)
	answers(map[string]int{
		"/api/v1/namespaces/infra/pods":                                               503,
		"/api/v1/namespaces/infra/pods/log":                                           503,
		"/api/v1/namespaces/infra/pods?watch=1&timeoutSeconds=1":                      503,
		"/api/v1/pods?fieldSelector=metadata.namespace%3Dinfra":                       503,
		"/api/v1/namespaces/infra/pods?resourceVersion=50&resourceVersionMatch=Exact": 503,
		"/at/" + before + "/api/v1/namespaces/infra/pods":                             200,
		"/at/50/api/v1/namespaces/infra/pods/log":                                     200,
		"/at/" + after + "/api/v1/namespaces/infra/pods":                              410,
		"/at/60/api/v1/namespaces/infra/pods/log":                                     410,
		"/api/v1/namespaces/shop/pods":                                                200,
		"/api/v1/namespaces/new/pods":                                                 200,
		"/api/v1/pods":                                                                200,
	})
	_, header, _ := b.get(t, "/api/v1/pods", "")
	_, of, _ := b.get(t, "/api/v1/namespaces/shop/pods", "")
	_, past, _ := b.get(t, "/at/"+before+"/api/v1/pods", "")
	for name, c := range map[string]struct {
		header http.Header
		want   string
	}{
		"all namespaces": {header, "are selected by the fields metadata.namespace!=infra,status.phase=Running"},
		"one namespace":  {of, "are selected by the fields status.phase=Running"},
		"the past":       {past, ""},
	} {
		warnings := strings.Join(c.header.Values("Warning"), "\n")
		if c.want == "" && strings.Contains(warnings, "selected") || !strings.Contains(warnings, c.want) {
			t.Errorf("the warnings of %s are %s, want %q", name, warnings, c.want)
		}
	}
	b.selections["pods"] = event.Selection{Fields: "metadata.namespace=infra"}
	b.snapshot("pods", 80, log)
	answers(map[string]int{"/api/v1/namespaces/infra/pods/log": 200, "/api/v1/namespaces/shop/pods": 503, "/api/v1/namespaces/shop/pods/web": 503, "/at/60/api/v1/namespaces/shop/pods": 200})
}

// TestSkippedObjects: where the first list did not publish what existed, a list of the rest is not shown as complete.
func TestSkippedObjects(t *testing.T) {
	b := newBus(t)
	b.gap("pods", event.ReasonReset)
	b.listed("pods", 50, event.ReasonReset, &event.Counts{Listed: 2, Skipped: 2})
	b.object("pods", event.Added, event.Watch, thing{"shop", "new", "u-5", 52, ""})
	incomplete := func() {
		t.Helper()
		for path, want := range map[string]int{
			"/api/v1/pods":                                         503,
			"/api/v1/namespaces/shop/pods/new":                     503,
			"/api/v1/pods?watch=1":                                 503,
			"/api/v1/pods?watch=1&resourceVersion=51":              503,
			"/at/52/api/v1/pods":                                   410,
			"/at/" + b.clock.Format(time.RFC3339) + "/api/v1/pods": 410,
		} {
			if code, _, body := b.get(t, path, ""); code != want || !strings.Contains(body, "snapshot: skip") {
				t.Errorf("%s: %d %s, want %d", path, code, body, want)
			}
		}
	}
	incomplete()
	if all := States(b.mirror, "prod"); len(all) != 1 || all[0].Current {
		t.Errorf("the states are %+v", all)
	}
	b.synced("pods", 53, event.ReasonPeriodic) // it is of no list
	b.gap("pods", event.ReasonExpired)
	b.listed("pods", 55, event.ReasonExpired, &event.Counts{Listed: 3, Skipped: 1})
	incomplete()
	b.object("pods", event.Added, event.Watch, thing{"shop", "web", "u-1", 56, ""})
	b.object("pods", event.Added, event.Watch, thing{"shop", "cart", "u-2", 57, ""})
	incomplete() // that these were all is known after a list
	b.gap("pods", event.ReasonResync)
	b.listed("pods", 60, event.ReasonResync, &event.Counts{Listed: 3})
	l, err := b.client("").Resource(podsResource).List(t.Context(), metav1.ListOptions{})
	if want := []string{"shop/cart@57", "shop/new@52", "shop/web@56"}; err != nil || !slices.Equal(names(l), want) {
		t.Errorf("after a list that skips nothing: %v (%v)", names(l), err)
	}
	if code, _, body := b.get(t, "/api/v1/pods?watch=1&resourceVersion=56", ""); code != 200 || !strings.Contains(body, `"code":410`) {
		t.Errorf("a watch from before that: %d %s", code, body)
	}
	if code, _, body := b.get(t, "/at/56/api/v1/pods", ""); code != 410 {
		t.Errorf("before that: %d %s", code, body)
	}
}

// TestTokenOfAnotherList: the position in a continue token is that of one resource, in one view.
func TestTokenOfAnotherList(t *testing.T) {
	b := threePods(t)
	b.snapshot("widgets.example.com", 50, thing{"shop", "a", "w-1", 41, ""})
	first, err := b.client("").Resource(podsResource).List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/api/v1/pods":                       200,
		"/clusters/prod/api/v1/pods":         200,
		"/at/50/api/v1/pods":                 400,
		"/apis/example.com/v1/widgets":       400,
		"/at/50/apis/example.com/v1/widgets": 400,
	} {
		code, _, body := b.get(t, path+"?limit=1&continue="+first.GetContinue(), "")
		if code != want || code == 400 && !strings.Contains(body, "it is of another list") {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
}

// TestTokenOfAnotherCopy: another copy of the same bus has other positions, as after its directory was lost, and an era may not be complete at a
// version. The answer is that to an expired token, so that a page is never taken for the rest of another list.
func TestTokenOfAnotherCopy(t *testing.T) {
	b := threePods(t)
	page := func(token string) (int, metav1.Status) {
		t.Helper()
		code, _, body := b.get(t, "/api/v1/pods?limit=1&continue="+token, "")
		var st metav1.Status
		if err := json.Unmarshal([]byte(body), &st); err != nil {
			t.Fatal(err)
		}
		return code, st
	}
	first := func(b *bus) string {
		t.Helper()
		l, err := b.client("").Resource(podsResource).List(t.Context(), metav1.ListOptions{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return l.GetContinue()
	}
	own := first(b)
	if code, _ := page(own); code != 200 {
		t.Errorf("its own token: %d", code)
	}
	with := func(at store.Position) string {
		t.Helper()
		q := &request{resource: b.mirror.Resource(store.Resource{Cluster: "prod", Name: "pods"}), view: view{cluster: "prod"}}
		x, err := q.parseToken(own)
		if err != nil {
			t.Fatal(err)
		}
		x.At = at
		return x.String()
	}
	b.gap("pods", event.ReasonExpired) // an era that is not complete
	for name, token := range map[string]string{
		"of another copy":             first(threePods(t)),
		"before the era was complete": with(store.Position{Era: 1, Version: 49}),
		"behind what was served":      with(store.Position{Era: 1, Version: 51}),
		"of an era without a list":    with(store.Position{Era: 2, Version: 50}),
		"of an era that is not there": with(store.Position{Era: 9, Version: 50}),
	} {
		if code, st := page(token); code != 410 || st.Reason != metav1.StatusReasonExpired || st.Continue == "" {
			t.Errorf("a token %s: %d %+v", name, code, st)
		}
	}
}

// TestUnreadIsNotAbsent: while the bus was not read up to where it ended at the start, what was not read is not known, and is not said to be absent:
// controllers would take it for deleted. What was read is served.
func TestUnreadIsNotAbsent(t *testing.T) {
	unread := errors.New("the bus was not read yet")
	b := newBus(t)
	b.server.Ready = func() error { return unread }
	want := func(code int, paths ...string) {
		t.Helper()
		b.readUntil(start.Add(time.Hour))
		for _, path := range paths {
			for _, prefix := range []string{"", "/clusters/prod", "/at/2026-03-14T10:00:00Z"} {
				if got, _, text := b.get(t, prefix+path, ""); got != code || code == 503 && !strings.Contains(text, `"reason":"ServiceUnavailable"`) {
					t.Errorf("%s: %d %s, want %d", prefix+path, got, text, code)
				}
			}
		}
	}
	resources := []string{"/api/v1/pods", "/api/v1/namespaces/shop/pods/web", "/apis/example.com/v1/widgets", "/apis/example.com/v1/namespaces/shop/widgets/w"}
	found := []string{"/api", "/apis", "/api/v1", "/openapi/v3"}
	groups := []string{"/apis/example.com", "/apis/example.com/v1", "/openapi/v3/apis/example.com/v1"}
	want(503, slices.Concat(resources, found, groups)...)
	want(200, "/version")
	b.snapshot("pods", 50, web, cart, log)
	want(200, resources[:2]...)
	want(404, "/api/v1/namespaces/shop/pods/none")
	want(503, slices.Concat(resources[2:], found, groups)...)
	unread = nil
	want(200, slices.Concat(resources[:2], found)...)
	want(404, slices.Concat(resources[2:], groups)...)
}

// TestUnknownKind: of a custom resource that has neither an object nor a definition on the bus, nobody knows the kind. That is no absence, unless the
// resource does not exist in the cluster or is not published any more.
func TestUnknownKind(t *testing.T) {
	b := newBus(t)
	const widgets, gadgets = "widgets.example.com", "gadgets.example.com"
	want := func(resource string, code int) {
		t.Helper()
		for _, path := range []string{"/apis/example.com/v1/" + resource, "/apis/example.com/v1/namespaces/shop/" + resource + "/x"} {
			if got, _, text := b.get(t, path, ""); got != code {
				t.Errorf("%s: %d %s, want %d", path, got, text, code)
			}
		}
	}
	want("widgets", 404)
	b.gap(widgets, event.ReasonReset)
	want("widgets", 503)
	b.synced(widgets, 50, event.ReasonReset)
	want("widgets", 503)
	if code, _, text := b.get(t, "/apis", ""); code != 200 || strings.Contains(text, "example.com") {
		t.Errorf("discovery: %d %s", code, text)
	}
	b.close(widgets)
	want("widgets", 404)
	b.gap(gadgets, event.ReasonReset)
	b.send(gadgets, event.Event{
		Type: event.Synced, Origin: event.Reconcile, Nth: 1, Report: &event.Report{Reason: event.ReasonReset}, Plan: b.plan(gadgets),
	})
	want("gadgets", 404)
}

// TestDefinedAgain: a CustomResourceDefinition comes back with another version and scope. Clients find its resource there before its first object. A
// definition that is older than an object of another version does not hide the object.
func TestDefinedAgain(t *testing.T) {
	b := newBus(t)
	const widgets = "widgets.example.com"
	define := func(typ event.Type, origin event.Origin, uid string, version int, scope, versions string) {
		t.Helper()
		b.sendObject(definitions, typ, origin, thing{"", widgets, uid, version, ""}, "CustomResourceDefinition", "apiextensions.k8s.io/v1",
			fmt.Sprintf(`"spec":{"names":{"kind":"Widget"},"scope":%q,"versions":[%s]}`, scope, versions))
	}
	want := func(codes map[string]int) {
		t.Helper()
		for path, code := range codes {
			if got, _, text := b.get(t, "/apis/example.com/"+path, ""); got != code {
				t.Errorf("%s: %d %s, want %d", path, got, text, code)
			}
		}
	}
	b.gap(definitions, event.ReasonReset)
	define(event.Present, event.Snapshot, "u-8", 40, "Namespaced", `{"name":"v1","served":true}`)
	b.synced(definitions, 50, event.ReasonReset)
	w := thing{"shop", "w", "u-9", 44, ""}
	b.snapshot(widgets, 50, w)
	b.deleted(widgets, w, 55)
	define(event.Modified, event.Watch, "u-8", 56, "Namespaced", `{"name":"v1","served":true},{"name":"v2","served":true}`)
	want(map[string]int{"v1/widgets": 200, "v2/widgets": 404}) // the bridge reads v1, as far as the bus shows
	b.deleted(definitions, thing{"", widgets, "u-8", 56, ""}, 60)
	define(event.Added, event.Watch, "u-18", 61, "Cluster", `{"name":"v2beta1","served":true},{"name":"v1","served":false},{"name":"v2","served":true}`)
	b.gap(widgets, event.ReasonExpired)
	b.synced(widgets, 62, event.ReasonExpired)
	want(map[string]int{"v2/widgets": 200, "v2/widgets/w": 404, "v1/widgets": 404, "v2beta1/widgets": 404, "v2/namespaces/shop/widgets": 404})
	if _, _, text := b.get(t, "/apis/example.com/v2", ""); !strings.Contains(text, `"namespaced":false`) {
		t.Errorf("discovery: %s", text)
	}
	b.sendObject(widgets, event.Added, event.Watch, thing{"", "w", "u-19", 63, ""}, "Widget", "example.com/v3", `"spec":{}`)
	want(map[string]int{"v3/widgets/w": 200, "v2/widgets": 404})
}
