package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// identity is a user whom the API servers authenticate, or whom the admin impersonates.
type identity struct {
	name         string
	impersonated bool
	clients      []*http.Client // by server
	header       map[string]string
}

// identities makes n identities that may do everything: by client certificate, by token of a service account, and by impersonation.
func (a *auditRun) identities(n int) {
	a.t.Helper()
	a.must(a.bindServiceAccounts())
	for i := range n {
		var id identity
		var kubeconfig func(*clustertest.Cluster) (string, error)
		switch i % 3 {
		case 0:
			id.name = fmt.Sprintf("user-%d@example.com", i)
			if i == 0 {
				id.name = "user\t\u202e\"0\"\x01" // certificates can have such names
			}
			kubeconfig = func(c *clustertest.Cluster) (string, error) { return c.KubeconfigFor(id.name, "system:masters") }
		case 1:
			account := fmt.Sprintf("account-%d", i)
			id.name = "system:serviceaccount:" + a.ns + ":" + account
			kubeconfig = func(c *clustertest.Cluster) (string, error) {
				return c.KubeconfigForServiceAccount(a.soon(), a.ns, account)
			}
		default:
			id.name, id.impersonated = fmt.Sprintf("impersonated-%d", i), true
			id.header = map[string]string{"Impersonate-User": id.name, "Impersonate-Group": "system:masters"}
			if i == 2 {
				id.header["Impersonate-Extra-Long"] = strings.Repeat("x", 16<<10)
			}
			kubeconfig = func(c *clustertest.Cluster) (string, error) { return c.Kubeconfig(), nil }
		}
		for _, server := range a.servers {
			path, err := kubeconfig(server)
			a.must(err)
			config, err := clientcmd.BuildConfigFromFlags("", path)
			a.must(err)
			id.clients = append(id.clients, a.httpClient(config))
		}
		a.users = append(a.users, &id)
	}
}

func (a *auditRun) httpClient(config *rest.Config) *http.Client {
	a.t.Helper()
	client, err := rest.HTTPClientFor(config)
	a.must(err)
	a.t.Cleanup(client.CloseIdleConnections)
	return client
}

func (a *auditRun) bindServiceAccounts() error {
	_, err := a.kube.Create(a.soon(), clusterRoleBindings, "accounts-of-"+a.ns, kube.Fields{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:" + a.ns}},
	})
	return err
}

// callKind is what a call can do to an object without leaving its number there.
type callKind uint8

const (
	kindOther callKind = iota
	kindDelete
	kindEvict
	kindFinalize // it removes the finalizers
)

// call is a request of the load. Its number is its user agent, and each value that it writes has the number, too.
type call struct {
	n          int
	who        *identity
	what       string // for people
	kind       callKind
	name       string // resource/name of the object; "resource/" for a deletecollection
	uid        string // of the object that it must be, if the request says so, or that the answer names
	begun      time.Time
	ended      time.Time
	code       int  // 0: no answer
	provable   bool // its record alone is a proof, if it has a body and the call has written
	private    bool // nobody else writes to the object meanwhile
	conditions bool // its record says which version it replaces
	accept     string
}

// mayHaveDone reports whether the call has succeeded, or may have.
func (c *call) mayHaveDone() bool {
	return c.code == 0 || c.code < 300 || c.code >= 429
}

// auditTruth is what the clients know of their calls.
type auditTruth struct {
	mu       sync.Mutex
	calls    []*call
	made     map[string]*call   // by uid/resourceVersion
	ended    map[string]*call   // by uid: the call that has removed a private object
	answered map[string][]*call // by uid/resourceVersion: those that were answered with it
	ending   map[string][]*call // by uid: writes that were answered with an object that nothing keeps, as the one that removes it between the two steps of a deletion
	removers map[string][]*call // by resource/name: deletions, evictions, removals of finalizers
	unmoved  int                // calls that were answered with 2xx and have changed nothing, for certain
}

func newAuditTruth() *auditTruth {
	return &auditTruth{answered: map[string][]*call{}, ending: map[string][]*call{}, made: map[string]*call{}, ended: map[string]*call{}, removers: map[string][]*call{}}
}

func (t *auditTruth) begin(c *call) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.n, c.begun = len(t.calls)+1, time.Now()
	t.calls = append(t.calls, c)
	if c.kind != kindOther {
		t.removers[c.name] = append(t.removers[c.name], c)
	}
	return c
}

func (t *auditTruth) lock(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

// number returns the call with a number; nil: there is none.
func (t *auditTruth) number(n int) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n < 1 || n > len(t.calls) {
		return nil
	}
	return t.calls[n-1]
}

// auditType is a resource of the load.
type auditType struct {
	kube.Type
	path      string
	strategic bool // it has strategic merge patches
	blindPut  bool // it takes a PUT without a resourceVersion
}

func (a *auditRun) loadTypes() []*auditType {
	path := func(t kube.Type) string {
		prefix := "/apis/" + t.Group
		if t.Group == "" {
			prefix = "/api"
		}
		return prefix + "/" + t.Version + "/namespaces/" + a.ns + "/" + t.Resource
	}
	var out []*auditType
	for _, t := range a.types {
		builtin := t != a.widgets
		out = append(out, &auditType{t, path(t), builtin, builtin})
	}
	return out
}

// object is an object as a client knows it.
type object struct {
	typ         *auditType
	name        string
	uid, rv     string
	body        map[string]any
	applied     string // the body of the last apply
	bound       bool
	terminating bool
	finalizers  bool
	mutated     bool // the admission webhook changes it at each request
}

// auditLoad writes as many users at once.
type auditLoad struct {
	*auditRun
	types []*auditType
	made  atomic.Int64
	stop  func() error
	ended context.Context
}

const (
	auditWriters  = 16
	sharedObjects = 6 // of each type, to which all writers write
	jsonType      = "application/json"
	mergeType     = "application/merge-patch+json"
	jsonPatchType = "application/json-patch+json"
	strategicType = "application/strategic-merge-patch+json"
	applyType     = "application/apply-patch+yaml"
)

// writer is one of the goroutines of a load. It changes user at each request.
type writer struct {
	*auditLoad
	number  int
	random  *rand.Rand
	objects []*object // private ones
	names   int
}

// startAuditLoad writes until it is stopped.
func (a *auditRun) startAuditLoad(perSecond int, seed uint64) *auditLoad {
	a.t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &auditLoad{auditRun: a, types: a.loadTypes(), ended: ctx}
	var g errgroup.Group
	tokens, end := make(chan struct{}, auditWriters), make(chan struct{})
	g.Go(func() error {
		defer close(tokens)
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-end:
				return nil
			case <-ctx.Done():
				return nil
			}
			select {
			case tokens <- struct{}{}:
			default: // all writers are busy
			}
		}
	})
	for i := range auditWriters {
		g.Go(func() error {
			w := &writer{auditLoad: l, number: i, random: rand.New(rand.NewPCG(seed, uint64(i)))}
			for range tokens {
				if err := w.step(); err != nil {
					cancel(err)
					return err
				}
				l.made.Add(1)
			}
			return nil
		})
	}
	l.stop = sync.OnceValue(func() error {
		defer cancel(nil)
		close(end)
		return g.Wait()
	})
	a.t.Cleanup(func() { _ = l.stop() }) // its error is reported where the test waits for the load
	return l
}

// await waits until the load has made so many writes in all.
func (l *auditLoad) await(t *testing.T, made int64, within time.Duration) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(within); l.made.Load() < made; {
		select {
		case <-tick.C:
		case <-l.ended.Done():
			t.Fatal(context.Cause(l.ended))
		}
		if time.Now().After(end) {
			t.Fatalf("%d writes were made within %s, want %d", l.made.Load(), within, made)
		}
	}
}

// step makes one write.
func (w *writer) step() error {
	if w.random.IntN(3) == 0 {
		return w.shared()
	}
	if len(w.objects) < 4 || len(w.objects) < 12 && w.random.IntN(4) == 0 {
		return w.create()
	}
	return w.change(w.objects[w.random.IntN(len(w.objects))])
}

func (w *writer) user() *identity { return w.users[w.random.IntN(len(w.users))] }

func (w *writer) chance(percent int) bool { return w.random.IntN(100) < percent }

// answer is the answer to a call.
type answer struct {
	code int // 0: none came
	body map[string]any
}

func (r answer) ok() bool { return r.code >= 200 && r.code < 300 }

func (r answer) meta(name string) string {
	meta, _ := r.body["metadata"].(map[string]any)
	s, _ := meta[name].(string)
	return s
}

// isEnding reports whether the answer is an object that is being removed, and that no finalizer and no grace period keeps.
func (r answer) isEnding() bool {
	meta, _ := r.body["metadata"].(map[string]any)
	seconds, _ := meta["deletionGracePeriodSeconds"].(float64)
	return meta["deletionTimestamp"] != nil && meta["finalizers"] == nil && seconds == 0
}

// callTimeout is longer than the API server's, also in the form with blocked requests.
const callTimeout = 75 * time.Second

// do makes a call, and notes its answer.
func (w *writer) do(c *call, method, path, contentType, body string) (answer, error) {
	server := w.random.IntN(len(w.servers))
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.servers[server].Server()+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("User-Agent", fmt.Sprintf("call/%d", c.n))
	if c.accept != "" {
		req.Header.Set("Accept", c.accept)
	}
	if c.n%50 == 0 {
		req.Header.Set("Audit-ID", strings.Repeat("a", 5000)) // a client may choose it
	}
	for name, value := range c.who.header {
		req.Header.Set(name, value)
	}
	r := roundTrip(c.who.clients[server], req)
	w.truth.lock(func() {
		c.ended, c.code = time.Now(), r.code
		details, _ := r.body["details"].(map[string]any)
		if uid, _ := details["uid"].(string); uid != "" && c.kind == kindDelete && r.ok() {
			c.uid = uid
		}
		uid := r.meta("uid")
		if uid != "" && c.kind != kindOther && r.ok() {
			c.uid = uid
		}
		if uid != "" && r.ok() {
			at := uid + "/" + r.meta("resourceVersion")
			w.truth.answered[at] = append(w.truth.answered[at], c)
			if c.kind == kindOther && method != http.MethodGet && r.isEnding() {
				w.truth.ending[uid] = append(w.truth.ending[uid], c)
			}
		}
	})
	return r, nil
}

// roundTrip sends a request. Without a whole answer, the code is 0.
func roundTrip(client *http.Client, req *http.Request) (r answer) {
	res, err := client.Do(req)
	if err != nil {
		return r
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return r
	}
	if json.Unmarshal(text, &r.body) != nil {
		r.body = nil
	}
	r.code = res.StatusCode
	return r
}

// read gets an object. No user but the admin reads, and reads have no record.
func (w *writer) read(t *auditType, name string) answer {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.servers[0].Server()+t.path+"/"+name, nil)
	if err != nil {
		return answer{}
	}
	return roundTrip(w.admin, req)
}

// newBody returns an object of a type.
func newBody(t *auditType, name string, stamp string) map[string]any {
	o := map[string]any{"apiVersion": t.GroupVersion().String(), "kind": t.Kind}
	maps.Copy(o, sample(t.Type, "created"))
	if t.Type == kube.Secrets {
		delete(o, "stringData") // it is not returned
	}
	o["metadata"] = map[string]any{"name": name, "labels": map[string]any{"fixed": "1"}, "annotations": map[string]any{"stamp": stamp}}
	return o
}

func text(v any) string {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		panic(err) // maps of strings always encode
	}
	return b.String()
}

// copyOf returns a deep copy of a body.
func copyOf(body map[string]any) (out map[string]any) {
	if err := json.Unmarshal([]byte(text(body)), &out); err != nil {
		panic(err) // it was encoded before
	}
	return out
}

func metaOf(body map[string]any) map[string]any {
	m, _ := body["metadata"].(map[string]any)
	return m
}

// setStamp sets the annotation of a call in a body.
func setStamp(body map[string]any, stamp string) {
	m := metaOf(body)
	annotations, _ := m["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		m["annotations"] = annotations
	}
	annotations["stamp"] = stamp
}

func stampOf(c *call) string { return fmt.Sprintf("s%d", c.n) }

// wrote notes the answer to a write of a private object, and whether it has changed the object.
func (w *writer) wrote(o *object, c *call, r answer) {
	rv := r.meta("resourceVersion")
	switch {
	case !r.ok() || rv == "" || r.meta("uid") != o.uid:
		return
	case rv == o.rv:
		w.truth.lock(func() { w.truth.unmoved++ })
		return
	}
	w.truth.lock(func() { w.truth.made[o.uid+"/"+rv] = c })
	o.rv = rv
	if r.body["kind"] != "Scale" {
		o.body = r.body
	}
}

// wroteShared notes the answer to a write of a shared object. Only an answer with the call's own stamp says that it has written.
func (w *writer) wroteShared(c *call, r answer) {
	if r.ok() && holds(r.body, c) {
		w.truth.lock(func() { w.truth.made[r.meta("uid")+"/"+r.meta("resourceVersion")] = c })
	}
}

// holds reports whether an object has the stamp of a call.
func holds(body map[string]any, c *call) bool {
	for _, s := range stampsOf(body) {
		if s == stampOf(c) {
			return true
		}
	}
	return false
}

// stampsOf returns the stamps in an object: the annotation, the replicas, the node, the message of the status.
func stampsOf(body map[string]any) (s [4]string) {
	annotations, _ := metaOf(body)["annotations"].(map[string]any)
	s[0], _ = annotations["stamp"].(string)
	spec, _ := body["spec"].(map[string]any)
	if n, ok := spec["replicas"].(float64); ok && n > 1 {
		s[1] = fmt.Sprintf("s%.0f", n)
	}
	s[2], _ = spec["nodeName"].(string)
	status, _ := body["status"].(map[string]any)
	s[3], _ = status["message"].(string)
	if list, _ := status["conditions"].([]any); s[3] == "" && len(list) > 0 {
		for _, one := range list {
			condition, _ := one.(map[string]any)
			if condition["type"] == "Stamp" {
				s[3], _ = condition["message"].(string)
			}
		}
	}
	return s
}

// lose forgets a private object: it is not known what has become of it.
func (w *writer) lose(o *object) {
	for i, other := range w.objects {
		if other == o {
			w.objects = append(w.objects[:i], w.objects[i+1:]...)
			return
		}
	}
}
