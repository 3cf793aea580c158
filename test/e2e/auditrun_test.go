package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// The forms of TestNoWrongUser. The defaults are the short form of make test-all; make audit runs the long ones.
var (
	auditForms      = flag.String("audit.forms", "complete-two,dropped", "forms of TestNoWrongUser, separated by commas")
	auditWrites     = flag.Int("audit.writes", 3000, "writes in each form")
	auditRate       = flag.Int("audit.rate", 100, "writes per second")
	auditKills      = flag.Int("audit.kills", 2, "times that the bridge is killed in each form; every second time the bus is stopped, too")
	auditIdentities = flag.Int("audit.identities", 50, "users")
	auditSeed       = flag.Uint64("audit.seed", 1, "chooses the writes, and which records are dropped")
)

// auditForm is how records get to the bridge.
type auditForm struct {
	servers  int
	webhook  string // the mode of the API server's webhook backend; "": it writes a file
	complete bool
	kafka    bool // Kafka exactly once; otherwise NATS exactly once
	dropped  int  // of so many records one is lost on the way; 0: none. Some batches come twice, too
	yaml     bool // with apply patches of which the API server loses the records
}

var auditFormsByName = map[string]auditForm{
	"batch":         {servers: 1, webhook: "batch"},
	"two":           {servers: 2, webhook: "batch"},
	"complete":      {servers: 1, webhook: "blocking-strict", complete: true},
	"complete-two":  {servers: 2, webhook: "blocking-strict", complete: true},
	"file":          {servers: 1, kafka: true},
	"complete-file": {servers: 1, complete: true},
	"dropped":       {servers: 2, webhook: "batch", dropped: 10, yaml: true},
	"dropped-file":  {servers: 1, dropped: 10},
}

// auditRun is one form of TestNoWrongUser.
type auditRun struct {
	*world
	form    auditForm
	dir     string // of files
	servers []*clustertest.Cluster
	types   []kube.Type
	users   []*identity
	admin   *http.Client
	truth   *auditTruth
	mutator *httptest.Server
	first   time.Time // when the bridge was killed for the first time, or the load ended
	killed  int
	stopped int // times that the bus was stopped
}

// The user whom an attributed event names has made the change, whatever is lost, repeated or late. Clients as many users write to several types,
// in all ways that the API has, while the bridge is killed and the bus is stopped. What each request has changed is known by a number
// that it leaves in the object, or by its answer.
func TestNoWrongUser(t *testing.T) {
	t.Parallel()
	for name := range strings.SplitSeq(*auditForms, ",") {
		form, ok := auditFormsByName[name]
		if !ok {
			t.Fatalf("-audit.forms: there is no form %q", name)
		}
		t.Run(name, func(t *testing.T) {
			(&auditRun{form: form, truth: newAuditTruth()}).run(t)
		})
	}
}

const (
	auditSettle = 12 * time.Second
	auditToken  = "the-token-of-the-bridge-in-this-test"
	// auditRequestTimeout is that of the API servers, if records are complete: with the usual minute, the first minutes would be without
	// exact answers.
	auditRequestTimeout = 4 * time.Second
)

func (a *auditRun) run(t *testing.T) {
	began := time.Now()
	a.dir = t.TempDir()
	widgets := kube.Widgets("audited.kubebridge.io")
	a.types = []kube.Type{kube.ConfigMaps, kube.Secrets, kube.Deployments, kube.Pods, widgets}
	audit, serverFlags := a.backend(t, widgets)
	a.servers = []*clustertest.Cluster{clustertest.Start(t, clustertest.Options{ExtraArgs: serverFlags})}
	for len(a.servers) < a.form.servers {
		a.servers = append(a.servers, clustertest.Start(t, clustertest.Options{Beside: a.servers[0], ExtraArgs: serverFlags}))
	}
	o := options{cluster: a.servers[0]}
	if a.form.kafka {
		o.bus = busApacheKafka
	}
	a.world = newWorld(t, o)
	a.widgets = widgets
	a.install()
	a.bridges(a.types...)
	a.config.Audit = audit
	a.config.Audit["path"] = filepath.Join(a.world.dir, "audit")
	if !a.form.kafka {
		a.config.Sinks[0].NATS["delivery"] = "exactly-once"
		a.config.Checkpoint = map[string]any{"nats": map[string]any{"scratch": a.world.dir}}
	}
	a.admin = a.httpClient(a.servers[0].RESTConfig())
	a.identities(*auditIdentities)
	a.mutates()
	a.start()
	a.listed()
	a.trusted()
	a.logf("%d API servers, %d users, ready after %s", len(a.servers), len(a.users), time.Since(began).Round(time.Second))

	load := a.startAuditLoad(*auditRate, *auditSeed)
	begun := time.Now()
	for i := range *auditKills {
		load.await(t, int64(*auditWrites*(i+1)/(*auditKills+1)), a.time())
		if a.first.IsZero() {
			a.first = time.Now()
		}
		a.disturb(load, i%2 == 1)
	}
	load.await(t, int64(*auditWrites), a.time())
	a.must(load.stop())
	a.logf("%d writes in %s, %d kills of the bridge, the bus was stopped %d times", load.made.Load(), time.Since(begun).Round(time.Second), a.killed, a.stopped)
	if a.first.IsZero() {
		a.first = time.Now()
	}
	a.settled()
	a.serversDropped()
	a.judge()
}

// time bounds each wait that depends on the load.
func (a *auditRun) time() time.Duration {
	return 4*time.Duration(*auditWrites / *auditRate)*time.Second + 3*time.Minute
}

func (a *auditRun) logf(format string, args ...any) {
	a.t.Helper()
	a.t.Logf("%s  %s", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

func (a *auditRun) file(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// backend returns the bridge's inputs, and the flags of the API servers for them, with the audit policy that the bridge prints.
func (a *auditRun) backend(t *testing.T, widgets kube.Type) (inputs map[string]any, flags []string) {
	t.Helper()
	inputs = map[string]any{"settle": auditSettle.String(), "keep": "2m", "complete": a.form.complete}
	if a.form.dropped > 0 {
		inputs["keep"] = "20s"
	}
	if a.form.complete {
		inputs["requestTimeout"] = auditRequestTimeout.String()
		flags = append(flags, "--request-timeout="+auditRequestTimeout.String())
	}
	if a.form.webhook != "" {
		certificate, key := newCertificate(t)
		listen, address := freeAddress(t), ""
		inputs["webhook"] = map[string]any{
			"listen": listen, "certFile": a.file(t, "tls.crt", certificate), "keyFile": a.file(t, "tls.key", key), "tokenFile": a.file(t, "token", []byte(auditToken)),
		}
		if address = listen; a.form.dropped > 0 {
			address = startDropper(t, listen, certificate, key, a.form.dropped)
		}
		config := strings.Replace(fmt.Sprintf(webhookConfig, address, base64.StdEncoding.EncodeToString(certificate)), "the-token-of-the-bridge", auditToken, 1)
		flags = append(flags, "--audit-webhook-config-file="+a.file(t, "webhook.yaml", []byte(config)), "--audit-webhook-mode="+a.form.webhook,
			"--audit-webhook-batch-max-wait=1s", "--audit-webhook-initial-backoff=2s", "--audit-webhook-truncate-enabled")
	} else {
		log := filepath.Join(a.dir, "audit.log")
		inputs["file"] = log
		flags = append(flags, "--audit-log-path="+log, "--audit-log-mode=blocking", "--audit-log-maxsize=5")
		if a.form.dropped > 0 {
			inputs["file"] = filepath.Join(a.dir, "filtered.log")
			flags[len(flags)-1] = "--audit-log-maxsize=1000"
			startFilter(t, log, inputs["file"].(string), a.form.dropped)
		}
	}
	c := bridge.Config{Cluster: "audited", Sinks: []bridge.Sink{{Name: "audit", NATS: map[string]any{"url": "nats://127.0.0.1"}}}, Audit: map[string]any{"path": filepath.Join(a.dir, "unused")}}
	c.Checkpoint = map[string]any{"file": map[string]any{"path": filepath.Join(a.dir, "no-checkpoint")}}
	for name, value := range inputs {
		c.Audit[name] = value
	}
	for _, typ := range append(slices.Clone(a.types[:4]), widgets) {
		c.Resources = append(c.Resources, bridge.Resource{Resource: typ.ResourceID()})
	}
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	policy, err := exec.Command(binary, "rbac", "--audit-policy", "-c", a.file(t, "policy-of.yaml", text)).CombinedOutput()
	if err != nil {
		t.Fatalf("bridge rbac --audit-policy: %v: %s", err, policy)
	}
	return inputs, append(flags, "--audit-policy-file="+a.file(t, "policy.yaml", policy))
}

// freeAddress returns a free address below Linux's ephemeral range, in which another program, or the bridge itself, would get its port before the
// test uses it.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		free, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(6000)))
		if err == nil {
			defer free.Close()
			return free.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// listed waits until all first lists are on the bus: what a list finds is no change.
func (a *auditRun) listed() {
	a.t.Helper()
	a.onBus("the end of the first lists", func(all []bus.Message) bool {
		n := 0
		for _, m := range all {
			if m.Is("synced") {
				n++
			}
		}
		return n >= len(a.types)
	})
}

// trusted waits until complete records are known to be complete: until a patch is attributed exactly.
func (a *auditRun) trusted() {
	a.t.Helper()
	if !a.form.complete {
		return
	}
	deadline := time.Now().Add(10*auditRequestTimeout + patience)
	seen := 0
	for i := 0; ; i++ {
		name := fmt.Sprintf("trust-%d", i)
		a.create(kube.ConfigMaps, name)
		uid, rv := a.patch(kube.ConfigMaps, name, "trusted")
		var exact bool
		a.must(func() error {
			_, err := a.log.Wait(a.within(time.Minute), func(all []bus.Message) bool {
				from := seen
				seen = len(all)
				return slices.ContainsFunc(all[from:], func(m bus.Message) bool {
					if !m.Is("attributed") || m.UID() != uid || m.RV() != rv {
						return false
					}
					exact = len(m.Data.Request) > 0
					return true
				})
			})
			return err
		}())
		if exact {
			return
		}
		if time.Now().After(deadline) {
			a.t.Fatal("no patch is attributed exactly, although the records are complete")
		}
	}
}

// disturb kills the bridge and starts it again, while requests go on. If stopBus, the bus is stopped before, and until the bridge runs again.
func (a *auditRun) disturb(load *auditLoad, stopBus bool) {
	a.t.Helper()
	resume := func() {}
	if stopBus {
		resume = a.stopBus()
		a.stopped++
		load.await(a.t, load.made.Load()+50, a.time()) // their records come, and their events cannot
	}
	a.bridge.Kill()
	a.killed++
	a.world.run()
	if stopBus {
		a.awaitStatus(func(bridge.Status) bool { return true }) // it runs without the bus
	}
	resume()
	a.awaitStatus(func(s bridge.Status) bool {
		return s.Ready && !slices.ContainsFunc(a.types, func(typ kube.Type) bool { return s.Find(a.collection(typ)).State != "watching" })
	})
}

func (a *auditRun) stopBus() (start func()) {
	a.t.Helper()
	if a.form.kafka {
		proxy := a.apacheKafka.Broker(1).Proxy()
		proxy.Refuse()
		return proxy.Pass
	}
	a.nats.Stop()
	return func() { a.must(a.nats.Start()) }
}

// settled waits until all changes are on the bus, and what can be said about them.
func (a *auditRun) settled() {
	a.t.Helper()
	for _, typ := range a.types {
		for range 2 { // the first one may be found by a list
			uid, rv := a.create(typ, fmt.Sprintf("end-%x", time.Now().UnixNano()))
			a.published(uid, rv)
		}
	}
	end := time.Now().Add(3*time.Minute + 2*auditSettle)
	for {
		waiting, err := a.metric(a.t.Context(), "kubebridge_attributions_waiting")
		if err == nil && waiting == 0 {
			break
		}
		if time.Now().After(end) {
			a.t.Fatalf("%.0f changes still wait for their records (%v)", waiting, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	marker := fmt.Sprintf("after-%x", time.Now().UnixNano())
	a.published(a.create(kube.ConfigMaps, marker)) // so the reader of the bus has all that was before
}

// metric returns the sum of a metric of the bridge.
func (a *auditRun) metric(ctx context.Context, name string) (float64, error) {
	_, body, err := a.bridge.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	total, found := bridge.Sum(body, name)
	if !found {
		return 0, fmt.Errorf("there is no metric %s", name)
	}
	return total, nil
}

// serversDropped checks by the counters of the API servers that they have not dropped records themselves. An API server that
// cannot deliver the record that a request has begun rejects the request: that is an error, and nothing is lost.
func (a *auditRun) serversDropped() {
	a.t.Helper()
	for i, server := range a.servers {
		config := server.RESTConfig()
		req, err := http.NewRequestWithContext(a.soon(), http.MethodGet, config.Host+"/metrics", nil)
		a.must(err)
		res, err := a.httpClient(config).Do(req)
		a.must(err)
		text, err := io.ReadAll(res.Body)
		a.must(err)
		a.must(res.Body.Close())
		events, found := bridge.Sum(text, "apiserver_audit_event_total")
		if !found || events == 0 {
			a.t.Errorf("API server %d counts no audit events", i)
		}
		failed, _ := bridge.Sum(text, "apiserver_audit_error_total")
		rejected, _ := bridge.Sum(text, "apiserver_audit_requests_rejected_total")
		a.logf("API server %d: apiserver_audit_event_total %.0f, apiserver_audit_error_total %.0f, apiserver_audit_requests_rejected_total %.0f", i, events, failed, rejected)
		if failed > rejected && !a.form.yaml {
			a.t.Errorf("API server %d has dropped %.0f events itself", i, failed-rejected)
		}
	}
}

// dropper is a receiver between API servers and the bridge: it loses some events, and sends some batches twice.
type dropper struct {
	to      string
	client  *http.Client
	of      int
	batches atomic.Int64
}

// isDropped chooses one of so many texts, always the same ones, so that a repeated batch loses the same events.
func isDropped(text []byte, of int) bool {
	var key struct{ AuditID, Stage, StageTimestamp string }
	if json.Unmarshal(text, &key) != nil {
		return false
	}
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, *auditSeed, key.AuditID, key.Stage, key.StageTimestamp)
	return h.Sum64()%uint64(of) == 0
}

// startDropper starts a dropper, and returns its address.
func startDropper(t *testing.T, to string, certificate, key []byte, of int) string {
	t.Helper()
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} // a test checks the bridge's certificate elsewhere
	d := &dropper{to: "https://" + to + "/audit", client: &http.Client{Transport: transport, Timeout: 20 * time.Second}, of: of}
	s := httptest.NewUnstartedServer(d)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func (d *dropper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var list struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Items      []json.RawMessage `json:"items"`
	}
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err == nil {
		list.Items = slices.DeleteFunc(list.Items, func(one json.RawMessage) bool { return isDropped(one, d.of) })
		body, err = json.Marshal(list)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	times := 1
	if d.batches.Add(1)%10 == 0 {
		times = 2
	}
	for range times {
		code, err := d.send(r.Context(), body)
		if err != nil || code != http.StatusOK {
			http.Error(w, fmt.Sprint("the bridge answered ", code, err), http.StatusServiceUnavailable)
			return
		}
	}
}

func (d *dropper) send(ctx context.Context, body []byte) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.to, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+auditToken)
	res, err := d.client.Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// startFilter copies a log to another file while it grows, without some of its lines.
func startFilter(t *testing.T, from, to string, of int) {
	t.Helper()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { copyLog(ctx, from, out, of) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		_ = out.Close()
	})
}

func copyLog(ctx context.Context, from string, out io.Writer, of int) {
	var in *os.File
	var lines *bufio.Reader
	var line []byte
	for ctx.Err() == nil {
		if in == nil {
			if f, err := os.Open(from); err == nil {
				in, lines = f, bufio.NewReader(f)
				defer f.Close()
			}
		}
		if in != nil {
			part, err := lines.ReadBytes('\n')
			if line = append(line, part...); err == nil {
				if !isDropped(line, of) {
					_, _ = out.Write(line)
				}
				line = line[:0]
				continue
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var mutatingWebhooks = kube.Type{GroupVersionResource: schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}, Kind: "MutatingWebhookConfiguration"}

// mutates installs an admission webhook that changes some ConfigMaps at each request, so that requests which change nothing by themselves do.
func (a *auditRun) mutates() {
	a.t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct{ UID string }
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		patch := fmt.Sprintf(`[{"op":"add","path":"/metadata/annotations/mutated","value":%q}]`, review.Request.UID)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true,"patchType":"JSONPatch","patch":%q}}`,
			review.Request.UID, base64.StdEncoding.EncodeToString([]byte(patch)))
	}))
	a.t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	_, err := a.kube.Create(a.soon(), mutatingWebhooks, "mutates", kube.Fields{"webhooks": []any{map[string]any{
		"name": "mutates.kubebridge.io", "admissionReviewVersions": []any{"v1"}, "sideEffects": "None", "failurePolicy": "Ignore", "timeoutSeconds": int64(3),
		"clientConfig":   map[string]any{"url": s.URL, "caBundle": base64.StdEncoding.EncodeToString(ca)},
		"objectSelector": map[string]any{"matchLabels": map[string]any{"mutate": "yes"}},
		"rules": []any{map[string]any{
			"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"configmaps"}, "operations": []any{"CREATE", "UPDATE"}, "scope": "*",
		}},
	}}})
	a.must(err)
}
