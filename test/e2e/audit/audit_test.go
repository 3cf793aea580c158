// Package audit_test lets a real kube-apiserver send its audit events to the webhook, and write them to a file.
package audit_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/logfile"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
)

// patience bounds every wait for something that should happen soon.
const patience = 45 * time.Second

const (
	token = "the-token-of-the-receiver"

	policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
omitManagedFields: true
rules:
- level: RequestResponse
  users: ["admin"]
- level: None
`
	kubeconfig = `apiVersion: v1
kind: Config
clusters:
- name: receiver
  cluster: {server: "https://%s/audit", certificate-authority-data: %s}
users:
- name: apiserver
  user: {token: %s}
contexts:
- name: receiver
  context: {cluster: receiver, user: apiserver}
current-context: receiver
`
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(receiverDir); dir != "" {
		if err := receive(context.Background(), dir, os.Getenv(receiverListen)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Every write that the API server has answered has its record in the inbox, also if the receiver is killed again and again: the API server
// repeats what was not answered. The log file, which rotates meanwhile, has the same records.
func TestEveryWriteHasARecord(t *testing.T) {
	for _, mode := range []string{"batch", "blocking-strict"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			everyWriteHasARecord(t, mode)
		})
	}
}

func everyWriteHasARecord(t *testing.T, mode string) {
	dir := t.TempDir()
	certificate := writeFiles(t, dir)
	r := newReceiver(t, dir)
	files := map[string]string{
		"policy.yaml":  policy,
		"webhook.yaml": fmt.Sprintf(kubeconfig, r.address, base64.StdEncoding.EncodeToString(certificate), token),
	}
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	log := filepath.Join(dir, "audit.log")
	cluster := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{
		"--audit-policy-file=" + filepath.Join(dir, "policy.yaml"), "--audit-webhook-config-file=" + filepath.Join(dir, "webhook.yaml"),
		"--audit-webhook-mode=" + mode, "--audit-webhook-batch-max-wait=200ms", "--audit-webhook-initial-backoff=1s",
		"--audit-log-path=" + log, "--audit-log-mode=blocking", "--audit-log-maxsize=1",
	}})
	s := newScript(t, cluster.RESTConfig())
	f := logfile.Open(logfile.Options{Path: log, Parser: audit.NewParser(audit.Options{})}, logfile.Position{})
	defer func() { must(t, f.Close()) }()
	s.begin()
	r.await(s.agents())
	inFile := followed(t, f, len(s.calls)) // from here on the follower knows the file

	stopped := make(chan int)
	go func() {
		kills := 0
		for range s.disturb {
			r.kill()
			if err := r.start(); err != nil {
				t.Error(err)
			}
			kills++
		}
		stopped <- kills
	}()
	s.run()
	close(s.disturb)
	if kills := <-stopped; kills == 0 {
		t.Error("the receiver was not killed")
	}
	r.await(s.agents())
	r.kill()

	box, err := inbox.Open(filepath.Join(dir, "inbox"), inbox.Options{})
	must(t, err)
	defer func() { must(t, box.Close()) }()
	inBox := map[string]audit.Record{}
	for reader := box.Reader(inbox.Position{}); ; {
		item, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if item.Record != nil {
			inBox[item.Record.Actor.UserAgent] = *item.Record
		}
	}
	for agent, record := range followed(t, f, len(s.agents())-len(inFile)) {
		inFile[agent] = record
	}
	s.check("inbox", inBox)
	s.check("log file", inFile)
	if backups, _ := filepath.Glob(filepath.Join(dir, "audit-*.log")); len(backups) == 0 {
		t.Error("the log was not rotated")
	}
	s.checkDropped()
}

// followed returns the next records of the log file by user agent, at least n of them.
func followed(t *testing.T, f *logfile.Follower, n int) map[string]audit.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	records := map[string]audit.Record{}
	for len(records) < n {
		c, err := f.Next()
		if errors.Is(err, io.EOF) {
			must(t, f.Wait(ctx))
			continue
		}
		must(t, err)
		if c.Unparsable > 0 {
			t.Error(c.Err)
		}
		for _, r := range c.Records {
			records[r.Actor.UserAgent] = r
		}
	}
	return records
}

// writeFiles writes the files of a receiver, and returns its certificate.
func writeFiles(t *testing.T, dir string) (certificate []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "receiver"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	key, err := x509.MarshalECPrivateKey(private)
	must(t, err)
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(t, os.WriteFile(filepath.Join(dir, "cert"), certificate, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600))
	return certificate
}

// meta is the metadata of an answer.
type meta struct{ Name, UID, ResourceVersion string }

// call is a request and what the API server has answered. Its name is the user agent.
type call struct {
	name, verb, subresource string
	code                    int
	dryRun                  bool
	impersonated            string
	answer                  meta // of an object; else empty
	removed                 string
}

// script makes calls.
type script struct {
	t      *testing.T
	client *http.Client
	host   string
	calls  []call
	// disturb receives a value at some calls, unless nobody is ready for it.
	disturb chan struct{}
}

func newScript(t *testing.T, config *rest.Config) *script {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	must(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return &script{t: t, client: client, host: config.Host, disturb: make(chan struct{})}
}

const (
	maps        = "/api/v1/namespaces/default/configmaps"
	pods        = "/api/v1/namespaces/default/pods"
	deployments = "/apis/apps/v1/namespaces/default/deployments"

	jsonType  = "application/json"
	mergeType = "application/merge-patch+json"
	applyType = "application/apply-patch+yaml"
)

// do makes a request, and returns the answer. The header is of the form "name: value".
func (s *script) do(c call, method, path, contentType, body string, header ...string) (text []byte) {
	s.t.Helper()
	if len(s.calls)%15 == 14 {
		select {
		case s.disturb <- struct{}{}:
		default:
		}
	}
	c.name = fmt.Sprintf("call/%d-%s", len(s.calls), c.name)
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.host+path, strings.NewReader(body))
	must(s.t, err)
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("User-Agent", c.name)
	for _, h := range header {
		name, v, _ := strings.Cut(h, ": ")
		req.Header.Set(name, v)
	}
	res, err := s.client.Do(req)
	must(s.t, err)
	defer res.Body.Close()
	text, err = io.ReadAll(res.Body)
	must(s.t, err)
	if res.StatusCode != c.code {
		s.t.Fatalf("%s: got %s, want %d: %s", c.name, res.Status, c.code, text)
	}
	var o struct {
		Kind     string
		Metadata meta
		Details  struct{ UID string }
	}
	must(s.t, json.Unmarshal(text, &o))
	c.answer, c.removed = o.Metadata, o.Details.UID
	if o.Metadata.UID == "" {
		c.answer = meta{}
	}
	s.calls = append(s.calls, c)
	return text
}

// agents returns the user agents of the calls that have a record.
func (s *script) agents() (list []string) {
	for _, c := range s.calls {
		if c.isRecorded() {
			list = append(list, c.name)
		}
	}
	return list
}

func (c *call) isRecorded() bool { return c.verb != "" && c.code < 400 }

func configMap(name, data string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{%s},"data":{"a":%q}}`, name, data)
}

func named(name string) string { return fmt.Sprintf(`"name":%q`, name) }

// begin makes a call whose record is awaited before the others.
func (s *script) begin() {
	s.do(call{name: "first", verb: "create", code: 201}, "POST", maps, jsonType, configMap(named("first"), ""))
}

// run makes calls of every kind, and updates of a large object, which fill the log.
func (s *script) run() {
	s.objects()
	s.subresources()
	s.deletions()
	text := s.do(call{name: "create-large", verb: "create", code: 201}, "POST", maps, jsonType, configMap(named("large"), ""))
	for i := range 40 {
		var o map[string]any
		must(s.t, json.Unmarshal(text, &o))
		o["data"] = map[string]string{"a": strings.Repeat(fmt.Sprint(i%10), 20<<10)}
		body, err := json.Marshal(o)
		must(s.t, err)
		text = s.do(call{name: "update-large", verb: "update", code: 200}, "PUT", maps+"/large", jsonType, string(body))
	}
}

func (s *script) objects() {
	created := s.do(call{name: "create", verb: "create", code: 201}, "POST", maps, jsonType, configMap(named("a"), "1"))
	s.do(call{name: "create-generated", verb: "create", code: 201}, "POST", maps, jsonType, configMap(`"generateName":"g-"`, "1"))
	s.do(call{name: "create-dry-run", verb: "create", code: 201, dryRun: true}, "POST", maps+"?dryRun=All", jsonType, configMap(named("b"), "1"))
	s.do(call{name: "create-again", verb: "create", code: 409}, "POST", maps, jsonType, configMap(named("a"), "1"))
	s.do(call{name: "create-impersonated", verb: "create", code: 201, impersonated: "alice"}, "POST", maps, jsonType, configMap(named("i"), "1"),
		"Impersonate-User: alice", "Impersonate-Group: system:masters")
	s.do(call{name: "create-forbidden", verb: "create", code: 403}, "POST", maps, jsonType, configMap(named("j"), "1"), "Impersonate-User: alice")
	s.do(call{name: "update-unchanged", verb: "update", code: 200}, "PUT", maps+"/a", jsonType, string(created))
	s.do(call{name: "update", verb: "update", code: 200}, "PUT", maps+"/a", jsonType, strings.Replace(string(created), `"a":"1"`, `"a":"2"`, 1))
	s.do(call{name: "update-conflict", verb: "update", code: 409}, "PUT", maps+"/a", jsonType, string(created))
	s.do(call{name: "patch", verb: "patch", code: 200}, "PATCH", maps+"/a", mergeType, `{"data":{"b":"1"}}`)
	s.do(call{name: "apply", verb: "patch", code: 201}, "PATCH", maps+"/applied?fieldManager=script", applyType, configMap(named("applied"), "1"))
	s.do(call{name: "get", code: 200}, "GET", maps+"/a", jsonType, "")
	s.do(call{name: "list", code: 200}, "GET", maps, jsonType, "")
	s.do(call{name: "version", code: 200}, "GET", "/version", jsonType, "")
	s.do(call{name: "review", code: 201}, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", jsonType, `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`)
}

func (s *script) subresources() {
	s.do(call{name: "create-deployment", verb: "create", code: 201}, "POST", deployments, jsonType,
		`{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	s.do(call{name: "scale", verb: "patch", subresource: "scale", code: 200}, "PATCH", deployments+"/d/scale", mergeType, `{"spec":{"replicas":4}}`)
	s.do(call{name: "status", verb: "patch", subresource: "status", code: 200}, "PATCH", deployments+"/d/status", mergeType, `{"status":{"observedGeneration":1}}`)
	s.do(call{name: "create-pod", verb: "create", code: 201}, "POST", pods, jsonType, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	s.do(call{name: "bind", verb: "create", subresource: "binding", code: 201}, "POST", pods+"/p/binding", jsonType, `{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`)
	eviction := `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"},"deleteOptions":{%s}}`
	s.do(call{name: "evict-dry-run", verb: "create", subresource: "eviction", code: 201, dryRun: true}, "POST", pods+"/p/eviction", jsonType, fmt.Sprintf(eviction, `"dryRun":["All"]`))
	s.do(call{name: "evict", verb: "create", subresource: "eviction", code: 201}, "POST", pods+"/p/eviction", jsonType, fmt.Sprintf(eviction, ""))
}

func (s *script) deletions() {
	const options = `{"kind":"DeleteOptions","apiVersion":"v1"}`
	dryRun := strings.Replace(options, "}", `,"dryRun":["All"]}`, 1)
	s.do(call{name: "delete-dry-run", verb: "delete", code: 200, dryRun: true}, "DELETE", maps+"/a", jsonType, dryRun)
	s.do(call{name: "delete-despite-query", verb: "delete", code: 200}, "DELETE", maps+"/a?dryRun=All", jsonType, options)
	s.do(call{name: "delete-absent", verb: "delete", code: 404}, "DELETE", maps+"/a", jsonType, "")
	s.do(call{name: "create-with-finalizer", verb: "create", code: 201}, "POST", maps, jsonType, configMap(named("f")+`,"finalizers":["example.com/f"]`, ""))
	s.do(call{name: "delete-with-finalizer", verb: "delete", code: 200}, "DELETE", maps+"/f", jsonType, "")
	s.do(call{name: "remove-finalizer", verb: "patch", code: 200}, "PATCH", maps+"/f", mergeType, `{"metadata":{"finalizers":null}}`)
	s.do(call{name: "delete-several", verb: "deletecollection", code: 200}, "DELETE", maps+"?fieldSelector=metadata.name%3Dapplied", jsonType, "")
}

// check compares the records with the calls.
func (s *script) check(where string, records map[string]audit.Record) {
	s.t.Helper()
	for _, c := range s.calls {
		r, ok := records[c.name]
		delete(records, c.name)
		if ok != c.isRecorded() {
			s.t.Errorf("%s: record of %s: %v, want %v", where, c.name, ok, c.isRecorded())
		}
		if !ok {
			continue
		}
		got := call{name: c.name, verb: r.Verb, subresource: r.Subresource, code: r.Code, dryRun: r.DryRun, removed: r.StatusUID}
		if r.Answer != nil {
			got.answer = meta{r.Answer.Name, r.Answer.UID, r.Answer.Version}
		}
		if r.Actor.Impersonated != nil {
			got.impersonated = r.Actor.Impersonated.Name
		}
		if got != c || r.MaybeDryRun || r.Actor.User.Name != "admin" || r.Level != audit.RequestResponse || r.Stage != audit.Complete {
			s.t.Errorf("%s: got %+v (%+v), want %+v", where, got, r, c)
		}
	}
	for agent := range records {
		s.t.Errorf("%s: a record of %s", where, agent)
	}
}

// checkDropped checks that the API server has dropped no event, by its own counters.
func (s *script) checkDropped() {
	s.t.Helper()
	res, err := s.client.Get(s.host + "/metrics")
	must(s.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(s.t, err)
	sent := false
	for line := range bytes.Lines(text) {
		sent = sent || bytes.HasPrefix(line, []byte("apiserver_audit_event_total ")) && !bytes.HasSuffix(line, []byte(" 0\n"))
		if bytes.HasPrefix(line, []byte("apiserver_audit_error_total{")) && !bytes.HasSuffix(line, []byte(" 0\n")) {
			s.t.Errorf("the API server has dropped events: %s", line)
		}
	}
	if !sent {
		s.t.Error("the API server counts no audit events")
	}
}
