package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/past/mirror/auth"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestAttributes: a request is authorized by what it is answered with, as at the API server: by resource, namespace and name, in the
// cluster of its path, with or without a time.
func TestAttributes(t *testing.T) {
	b := threePods(t)
	var last atomic.Pointer[auth.Attributes]
	b.server.Check = func(_ *http.Request, a *auth.Attributes) error {
		last.Store(a)
		return apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("no"))
	}
	pods := func(verb, namespace, name string) auth.Attributes {
		return auth.Attributes{Cluster: "prod", Verb: verb, Version: "v1", Resource: "pods", Namespace: namespace, Name: name}
	}
	test := pods("list", "shop", "")
	test.Cluster = "test"
	log := pods("get", "shop", "web")
	log.Subresource = "log"
	for path, want := range map[string]auth.Attributes{
		"/api/v1/pods":                 pods("list", "", ""),
		"/api/v1//pods":                {Cluster: "prod", Verb: "get", Version: "v1", Name: "pods"},
		"/api/v1/namespaces/shop/pods": pods("list", "shop", ""),
		"/api/v1/namespaces//pods":     pods("list", "", ""),
		"/api/v1/pods?fieldSelector=metadata.namespace=shop":       pods("list", "", ""),
		"/api/v1/pods?fieldSelector=metadata.name=web":             pods("list", "", "web"),
		"/api/v1/pods?fieldSelector=metadata.name!=web":            pods("list", "", ""),
		"/api/v1/pods?watch=true":                                  pods("watch", "", ""),
		"/api/v1/pods?watch=1&fieldSelector=metadata.name=web":     pods("watch", "", "web"),
		"/api/v1/pods?watch=false":                                 pods("list", "", ""),
		"/api/v1/pods?fieldSelector=spec.nodeName=a":               pods("list", "", ""),
		"/api/v1/namespaces/shop/pods/web":                         pods("get", "shop", "web"),
		"/api/v1/namespaces/shop/pods/web?watch=true":              pods("get", "shop", "web"),
		"/api/v1/namespaces/shop/pods/web/log":                     log,
		"/at/50/api/v1/pods":                                       pods("list", "", ""),
		"/clusters/test/at/50/api/v1/namespaces/shop/pods":         test,
		"/clusters/prod/clusters/test/api/v1/namespaces/shop/pods": test,
		"/api/v1/namespaces/shop":                                  {Cluster: "prod", Verb: "get", Version: "v1", Resource: "namespaces", Namespace: "shop", Name: "shop"},
		"/api/v1/namespaces":                                       {Cluster: "prod", Verb: "list", Version: "v1", Resource: "namespaces"},
		"/apis/apps/v1/deployments":                                {Cluster: "prod", Verb: "list", Group: "apps", Version: "v1", Resource: "deployments"},
		"/api":                                                     {Cluster: "prod", Verb: "get", Path: "/api"},
		"/at/50/apis/apps/v1":                                      {Cluster: "prod", Verb: "get", Path: "/apis/apps/v1"},
		"/version":                                                 {Cluster: "prod", Verb: "get", Path: "/version"},
		"/openapi/v3":                                              {Cluster: "prod", Verb: "get", Path: "/openapi/v3"},
		"/none":                                                    {Cluster: "prod", Verb: "get", Path: "/none"},
	} {
		last.Store(nil)
		status, _, body := b.get(t, path, "")
		if status != 403 || strings.Contains(body, "resourceVersion") {
			t.Errorf("%s: %d %s", path, status, body)
		}
		if diff := cmp.Diff(&want, last.Load()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	if status, _, _ := b.get(t, "/readyz", ""); status != 200 {
		t.Errorf("a probe: %d", status)
	}
}

// TestImpersonation: a request that is to be answered as another user's is refused for every user.
func TestImpersonation(t *testing.T) {
	b := threePods(t)
	for _, name := range []string{"Impersonate-User", "impersonate-group", "Impersonate-Extra-Scopes"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/api/v1/pods", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(name, "eve")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if a.StatusCode != 403 {
			t.Errorf("%s: %d", name, a.StatusCode)
		}
	}
}

// TestReasonsOfOtherNamespaces: a client that may read one namespace gets the reason why changes are missing, without the names of other namespaces.
func TestReasonsOfOtherNamespaces(t *testing.T) {
	b := newBus(t)
	b.edits["pods"] = map[string]uint64{"pods@shop": 1, "pods@infra": 1}
	b.snapshot("pods@shop", 50, web)
	b.snapshot("pods@infra", 50, log)
	all, shop := "/api/v1/pods", "/api/v1/namespaces/shop/pods"
	answer := func(path string) string {
		t.Helper()
		code, header, body := b.get(t, path, "")
		return fmt.Sprint(code, header.Values("Warning"), body)
	}
	asks := func(prefix, query, named, unnamed string) {
		t.Helper()
		if got := answer(prefix + all + query); !strings.Contains(got, named) {
			t.Errorf("%s%s of all: %s, want %s", prefix, query, got, named)
		}
		if got := answer(prefix + shop + query); strings.Contains(got, "infra") || !strings.Contains(got, unnamed) {
			t.Errorf("%s%s of shop: %s, want %s", prefix, query, got, unnamed)
		}
	}
	w, err := b.client("").Resource(podsResource).Namespace("shop").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "50"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	b.gap("pods@infra", event.ReasonExpired)
	e := <-w.ResultChan()
	if st, ok := e.Object.(*metav1.Status); !ok || strings.Contains(st.Message, "infra") || !strings.Contains(st.Message, "a gap began in a collection of another namespace (expired)") {
		t.Errorf("the watch ends with %v", e.Object)
	}
	asks("", "", "a gap began in the collection pods@infra (expired)", "a gap began in a collection of another namespace (expired)")
	asks("/at/"+b.clock.Format(time.RFC3339), "", "in the collection pods@infra (expired)", "in a collection of another namespace (expired)")
	b.synced("pods@infra", 60, event.ReasonExpired)
	asks("", "?watch=true&resourceVersion=50", "in the collection pods@infra (expired)", "in a collection of another namespace (expired)")
	b.gap("pods@infra", event.ReasonReset)
	asks("", "", "the collection pods@infra", "a collection of another namespace")
}

// TestForgedContinue: a continue token is written by the client, who may read one namespace. It must not show what is behind another one.
func TestForgedContinue(t *testing.T) {
	b := threePods(t)
	at := b.mirror.Resource(store.Resource{Cluster: "prod", Name: "pods"}).Served
	id, err := b.mirror.Store().ID()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path  string
		token token
		want  int
	}{
		{"/api/v1/namespaces/shop/pods", token{At: at, Namespace: "infra", Name: "a"}, 400},
		{"/api/v1/namespaces/shop/pods", token{At: at}, 400},
		{"/api/v1/namespaces/shop/pods", token{At: at, Namespace: "shop", Name: "d"}, 200},
		{"/api/v1/namespaces/shop/pods", token{Newest: true, Namespace: "infra", Name: "a"}, 400},
		{"/api/v1/pods", token{At: at, Namespace: "infra", Name: "a"}, 200},
	} {
		c.token.List, c.token.Copy = "prod/pods/at", id
		status, _, body := b.get(t, c.path+"?limit=9&continue="+c.token.String(), "")
		if status != c.want || strings.Contains(c.path, "shop") && strings.Contains(body, "u-3") {
			t.Errorf("%s with %+v: %d %s", c.path, c.token, status, body)
		}
	}
}

// TestRevokedWatch: a watch ends if its client may not read any more, at once or, if that is not known, after a time. A short failure of
// the check does not end it.
func TestRevokedWatch(t *testing.T) {
	b := threePods(t)
	b.server.rechecks = rechecks{every: 20 * time.Millisecond, retry: 10 * time.Millisecond, last: 300 * time.Millisecond}
	var answer atomic.Pointer[apierrors.StatusError]
	var checks atomic.Int32
	b.server.Check = func(*http.Request, *auth.Attributes) error {
		checks.Add(1)
		if err := answer.Load(); err != nil {
			return err
		}
		return nil
	}
	passes := func(n int32) {
		t.Helper()
		until := time.Now().Add(20 * time.Second)
		for from := checks.Load(); checks.Load() < from+n; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatal("an open watch is not checked")
			}
		}
	}
	away := apierrors.NewServiceUnavailable("away")
	for _, c := range []struct {
		err  *apierrors.StatusError
		want string
	}{
		{apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", fmt.Errorf("no more")), "ERROR 403"},
		{apierrors.NewUnauthorized("Unauthorized"), "ERROR 401"},
		{away, "ERROR 503"},
		{apierrors.NewTooManyRequests("too many questions", 1), "ERROR 429"},
	} {
		answer.Store(nil)
		w, err := b.client("").Resource(podsResource).Watch(context.Background(), metav1.ListOptions{ResourceVersion: "50"})
		if err != nil {
			t.Fatal(err)
		}
		passes(2)
		answer.Store(away)
		passes(2)
		answer.Store(nil)
		passes(2)
		answer.Store(apierrors.NewTooManyRequests("too many questions", 1))
		passes(2)
		answer.Store(nil)
		passes(2)
		answer.Store(c.err)
		wantNext(t, w, c.want, "end")
		w.Stop()
	}
}

// TestSlowCheck: a check that does not end counts as one without an answer, so the watch ends after the same time.
func TestSlowCheck(t *testing.T) {
	b := threePods(t)
	b.server.rechecks = rechecks{every: 20 * time.Millisecond, retry: 10 * time.Millisecond, last: 300 * time.Millisecond}
	var slow atomic.Bool
	b.server.Check = func(r *http.Request, _ *auth.Attributes) error {
		if !slow.Load() {
			return nil
		}
		<-r.Context().Done()
		return apierrors.NewServiceUnavailable("no answer")
	}
	w, err := b.client("").Resource(podsResource).Watch(context.Background(), metav1.ListOptions{ResourceVersion: "50"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	slow.Store(true)
	wantNext(t, w, "ERROR 503", "end")
}

// rbac sends an RBAC object.
func (b *bus) rbac(t event.Type, origin event.Origin, kind, namespace, name string, version int, fields string) {
	b.t.Helper()
	ns := ""
	if namespace != "" {
		ns = fmt.Sprintf(`"namespace":%q,`, namespace)
	}
	e := event.Event{
		Type: t, Origin: origin, APIVersion: "rbac.authorization.k8s.io/v1", Kind: kind, Namespace: namespace, Name: name, UID: kind + namespace + name, ResourceVersion: fmt.Sprint(version),
		Object: fmt.Appendf(nil, `{"kind":%q,"apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":%q,%s"uid":%q,"resourceVersion":"%d"},%s}`, kind, name, ns, kind+namespace+name, version, fields),
	}
	if t == event.Deleted {
		e.DeletionVersion = e.ResourceVersion
	}
	b.send(strings.ToLower(kind)+"s.rbac.authorization.k8s.io", e)
}

// rightsOf returns an authorizer that reads rights from a bus.
func rightsOf(b *bus, o auth.BusOptions) *auth.Bus {
	b.t.Helper()
	o.Mirror = b.mirror
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	a := auth.NewBus(o)
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	})
	return a
}

// asksOf asks whether ann may list pods in the namespace shop. want is true, false, or a part of the reason why that is not known.
func asksOf(t *testing.T, authorizer *auth.Bus, want string) {
	t.Helper()
	st, err := authorizer.Review(t.Context(), &auth.User{UserInfo: authenticationv1.UserInfo{Username: "ann"}}, &auth.Attributes{Cluster: "prod", Verb: "list", Resource: "pods", Namespace: "shop"})
	got := fmt.Sprint(st.Allowed)
	if err != nil {
		got = err.Error()
	}
	if want == "true" || want == "false" {
		if got != want {
			t.Errorf("it is %s, want %s", got, want)
		}
	} else if !strings.Contains(got, want) || st.Allowed {
		t.Errorf("it is %s, want %s", got, want)
	}
}

// TestRightsOfAllPartitions: a partition that is read late has revoked rights that another one does not show. So rights count once the bus was read
// to its ends, and while every partition has a recent event of each resource.
func TestRightsOfAllPartitions(t *testing.T) {
	b := newBus(t)
	b.parts, b.clock = 2, time.Now().Add(-2*time.Hour)
	unread := errors.New("the bus was not read yet")
	authorizer := rightsOf(b, auth.BusOptions{Ready: func() error { return unread }, MaxAge: time.Hour})
	asks := func(want string) { t.Helper(); asksOf(t, authorizer, want) }
	all := auth.RBACResources()
	for _, name := range all {
		b.snapshot(name, 50)
	}
	b.clock = time.Now().Add(-time.Minute)
	beat := func(version int, parts ...int) {
		t.Helper()
		b.only = parts
		for _, name := range all {
			b.synced(name, version, event.ReasonPeriodic)
		}
	}
	beat(60, 0)
	unread = nil
	asks("may lack changes: the last event of them is 1h59m")
	beat(60, 1)
	asks("false")
	unread = errors.New("the bus was not read yet")
	asks("may lack changes: the bus was not read yet")
	authorizer.MaxAge = 0
	asks("may lack changes: the bus was not read yet")
}

// TestRightsOfTheFuture: an event of a wrong clock does not switch the largest age off. Once the clock is right, rights count again.
func TestRightsOfTheFuture(t *testing.T) {
	b := newBus(t)
	authorizer := rightsOf(b, auth.BusOptions{MaxAge: time.Hour})
	b.clock = time.Now().Add(-time.Minute)
	for _, name := range auth.RBACResources() {
		b.snapshot(name, 50)
	}
	asksOf(t, authorizer, "false")
	clock := b.clock
	b.clock = time.Now().Add(23 * time.Hour) // more than a day: it is ignored
	b.synced("roles.rbac.authorization.k8s.io", 60, event.ReasonPeriodic)
	asksOf(t, authorizer, "in the future, by the bridge's clock")
	b.clock = clock
	b.synced("roles.rbac.authorization.k8s.io", 70, event.ReasonPeriodic)
	asksOf(t, authorizer, "false")
}

// TestRightsOnTheBus: the RBAC objects on the bus say what users may read, as soon as they change, and only if they are whole and as they are now.
func TestRightsOnTheBus(t *testing.T) {
	b := threePods(t)
	b.clock = time.Now().Add(-time.Minute)
	var skipped skips
	authorizer := rightsOf(b, auth.BusOptions{MaxAge: time.Hour, Skipped: skipped.add})
	asks := func(want string) { t.Helper(); asksOf(t, authorizer, want) }
	asks("clusterrolebindings.rbac.authorization.k8s.io of cluster \"prod\" are not on the bus")
	rules, ref := `"rules":[{"verbs":["list"],"apiGroups":[""],"resources":["pods"]}]`, `"subjects":[{"kind":"User","name":"ann"}],"roleRef":{"kind":"Role","name":"reader"}`
	b.snapshot("clusterrolebindings.rbac.authorization.k8s.io", 50)
	b.snapshot("clusterroles.rbac.authorization.k8s.io", 50)
	b.snapshot("rolebindings.rbac.authorization.k8s.io", 50)
	b.gap("roles.rbac.authorization.k8s.io", event.ReasonReset)
	b.rbac(event.Present, event.Snapshot, "Role", "shop", "reader", 40, rules)
	asks("roles.rbac.authorization.k8s.io of cluster \"prod\" cannot be used: not complete: the first list has not ended")
	b.synced("roles.rbac.authorization.k8s.io", 50, event.ReasonReset)
	asks("false")
	b.rbac(event.Added, event.Watch, "RoleBinding", "shop", "ann", 60, ref)
	asks("true")
	b.rbac(event.Deleted, event.Watch, "RoleBinding", "shop", "ann", 61, ref)
	asks("false")
	b.rbac(event.Added, event.Watch, "RoleBinding", "infra", "ann", 62, ref)
	asks("false")
	b.rbac(event.Added, event.Watch, "RoleBinding", "shop", "ann", 63, ref)
	asks("true")
	alters := func(s event.Selection) {
		t.Helper()
		b.selections["roles.rbac.authorization.k8s.io"] = s
		b.gap("roles.rbac.authorization.k8s.io", event.ReasonReset)
		b.rbac(event.Present, event.Snapshot, "Role", "shop", "reader", 40, rules)
		b.synced("roles.rbac.authorization.k8s.io", 64, event.ReasonReset)
	}
	alters(event.Selection{Dropped: true})
	asks("are not whole: rules take values out of objects of roles")
	alters(event.Selection{})
	asks("true")
	b.gap("rolebindings.rbac.authorization.k8s.io", event.ReasonExpired)
	asks("may lack changes: a gap began")
	b.synced("rolebindings.rbac.authorization.k8s.io", 70, event.ReasonExpired)
	asks("true")
	b.send("roles.rbac.authorization.k8s.io", event.Event{
		Type: event.Added, Origin: event.Watch, APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role", Namespace: "infra", Name: "large", UID: "large", ResourceVersion: "71",
		Object:    []byte(`{"kind":"Role","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"large","namespace":"infra","uid":"large","resourceVersion":"71"}}`),
		Truncated: &event.Truncation{Size: 2 << 20, Limit: 1 << 20},
	})
	asks("true") // a large Role of one namespace does not take away the rights of others
	skipped.want(t, "roles.rbac.authorization.k8s.io infra/large: the bus has only a part of it, because it is too large")
	authorizer.MaxAge = time.Second
	asks("may lack changes: the last event of them is")
}

// skips are the Roles and bindings that give no rights.
type skips struct {
	mu  sync.Mutex
	all []string
}

func (s *skips) add(id store.Resource, o store.Name, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, fmt.Sprintf("%s %s/%s: %s", id.Name, o.Namespace, o.Name, why))
}

func (s *skips) want(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.all, want) {
		t.Errorf("what gives no rights: %q, want %q", s.all, want)
	}
	s.all = nil
}

// subjects returns a RoleBinding's fields that name ann and enough others for a size.
func subjects(bytes int) string {
	var b strings.Builder
	b.WriteString(`"roleRef":{"kind":"Role","name":"reader"},"subjects":[{"kind":"User","name":"ann"}`)
	for b.Len() < bytes {
		fmt.Fprintf(&b, `,{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"user-%d"}`, b.Len())
	}
	b.WriteByte(']')
	return b.String()
}

// TestLargeRights: what users write into one namespace does not take rights in others, neither memory and time without a bound. An object that is too large,
// or that cannot be read, gives no rights, and the objects of a namespace that are too large together give none until they are small enough.
func TestLargeRights(t *testing.T) {
	b := newBus(t)
	b.clock = time.Now().Add(-time.Minute)
	for _, name := range auth.RBACResources() {
		b.snapshot(name, 50)
	}
	var skipped skips
	authorizer := rightsOf(b, auth.BusOptions{MaxAge: time.Hour, Skipped: skipped.add})
	asks := func(namespace, want string) {
		t.Helper()
		st, err := authorizer.Review(t.Context(), &auth.User{UserInfo: authenticationv1.UserInfo{Username: "ann"}}, &auth.Attributes{Cluster: "prod", Verb: "list", Resource: "pods", Namespace: namespace})
		if got := fmt.Sprint(st.Allowed, err); got != want+" <nil>" {
			t.Errorf("in %s: %s, want %s", namespace, got, want)
		}
	}
	version := 50
	send := func(typ event.Type, kind, namespace, name, fields string) {
		t.Helper()
		version++
		b.rbac(typ, event.Watch, kind, namespace, name, version, fields)
	}
	rules := `"rules":[{"verbs":["list"],"apiGroups":[""],"resources":["pods"]}]`
	for _, namespace := range []string{"shop", "evil"} {
		send(event.Added, "Role", namespace, "reader", rules)
		send(event.Added, "RoleBinding", namespace, "small", subjects(0))
		asks(namespace, "true")
	}
	const bindings = "rolebindings.rbac.authorization.k8s.io evil/"
	send(event.Deleted, "RoleBinding", "evil", "small", subjects(0))
	asks("evil", "false")
	send(event.Added, "RoleBinding", "evil", "large", subjects(600<<10))
	asks("evil", "false")
	asks("shop", "true")
	send(event.Modified, "RoleBinding", "evil", "large", `"subjects":"all"`)
	asks("evil", "false")
	asks("shop", "true")
	skipped.mu.Lock()
	if len(skipped.all) != 2 || !strings.HasPrefix(skipped.all[0], bindings+"large: it has 6") || !strings.HasPrefix(skipped.all[1], bindings+"large: it cannot be read: ") {
		t.Errorf("what gives no rights: %q", skipped.all)
	}
	skipped.all = nil
	skipped.mu.Unlock()

	for i := range 9 {
		send(event.Added, "RoleBinding", "evil", fmt.Sprint("b", i), subjects(480<<10))
	}
	asks("evil", "false")
	asks("shop", "true")
	skipped.want(t, bindings+": Roles and RoleBindings of the namespace have more than 4194304 bytes together")
	again := rightsOf(b, auth.BusOptions{MaxAge: time.Hour}) // after a restart it is the same
	first := authorizer
	authorizer = again
	asks("evil", "false")
	asks("shop", "true")
	for _, a := range []*auth.Bus{first, again} {
		authorizer = a
		send(event.Deleted, "RoleBinding", "evil", "b0", subjects(480<<10))
		asks("evil", "true")
		asks("shop", "true")
		send(event.Added, "RoleBinding", "evil", "b0", subjects(480<<10))
		asks("evil", "false")
	}
}

// TestRightsAreReadOutsideOfRequests: a request does not read what others have written. It waits for the index, and no longer than its client.
func TestRightsAreReadOutsideOfRequests(t *testing.T) {
	b := newBus(t)
	b.clock = time.Now().Add(-time.Minute)
	for _, name := range auth.RBACResources() {
		b.snapshot(name, 50)
	}
	authorizer := auth.NewBus(auth.BusOptions{Mirror: b.mirror, Ready: func() error { return nil }})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := authorizer.Review(ctx, &auth.User{UserInfo: authenticationv1.UserInfo{Username: "ann"}}, &auth.Attributes{Cluster: "prod", Verb: "list", Resource: "pods"})
	if unanswered := new(auth.UnansweredError); !errors.As(err, &unanswered) || !strings.Contains(unanswered.Reason, `Roles and bindings of cluster "prod" are being read`) {
		t.Errorf("before the rights were read: %v", err)
	}
}

// TestMetrics: requests count by verb and code, an open watch shows, and a resource in a gap is not current.
func TestMetrics(t *testing.T) {
	b := threePods(t)
	r := prometheus.NewRegistry()
	b.server.Metrics = NewMetrics(r)
	b.server.Exported = promhttp.HandlerFor(r, promhttp.HandlerOpts{})
	r.MustRegister(NewCollector(func() []State { return States(b.mirror, "prod") }))
	ready := errors.New("the bus was not read")
	b.server.Ready = func() error { return ready }
	for path, want := range map[string]int{"/livez": 200, "/healthz": 200, "/readyz": 503, "/api/v1/pods": 200, "/api/v1/nodes": 503, "/api/v1/namespaces/shop/pods/web": 200} {
		if status, _, body := b.get(t, path, ""); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	w, err := b.client("").Resource(podsResource).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	wantNext(t, w, "ADDED log@43")
	has := func(lines ...string) {
		t.Helper()
		_, _, body := b.get(t, "/metrics", "")
		for _, line := range lines {
			if !strings.Contains(body, line+"\n") {
				t.Errorf("the metrics lack %s:\n%s", line, body)
			}
		}
	}
	has(`kubebridge_serve_requests_total{code="200",verb="list"} 1`, `kubebridge_serve_requests_total{code="503",verb="list"} 1`,
		`kubebridge_serve_requests_total{code="200",verb="get"} 1`, `kubebridge_serve_watches{resource="pods"} 1`,
		`kubebridge_serve_current{resource="pods"} 1`, `kubebridge_serve_last_event_timestamp_seconds{resource="pods"} 1.773478805e+09`)
	b.gap("pods", event.ReasonExpired)
	has(`kubebridge_serve_current{resource="pods"} 0`)
	ready = nil
	if status, _, _ := b.get(t, "/readyz", ""); status != 200 {
		t.Errorf("when it is ready: %d", status)
	}
}
