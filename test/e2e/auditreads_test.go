package e2e

import (
	"bytes"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

var auditReads = flag.Duration("audit.reads", 3*time.Second, "how long TestReadsCostLittle sends records of reads")

const (
	readsPerSecond = 10_000
	readsPerBatch  = 400 // of the API server's webhook backend
	// mostCores is the CPU that the records may cost. The limit is for a busy machine; the figure is in the log.
	mostCores = 0.25
)

// readRecord is what an API server sends at level Metadata about a read of a controller.
const readRecord = `{"level":"Metadata","auditID":"%08d-0000-4000-8000-000000000000","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication",` +
	`"verb":%q,"user":{"username":"system:serviceaccount:kube-system:deployment-controller","uid":"0d3a6b2e-7f55-4a39-8f0e-3d3b7a1f4c11","groups":["system:serviceaccounts","system:serviceaccounts:kube-system","system:authenticated"],` +
	`"extra":{"authentication.kubernetes.io/credential-id":["JTI=4d1dfd0a-95b5-4d9e-a9d1-8d5b5be4f5a7"]}},"sourceIPs":["192.0.2.17"],"userAgent":"kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/7b1a5d4/system:serviceaccount:kube-system:deployment-controller",` +
	`"objectRef":{"resource":"configmaps","namespace":"kube-system","name":"extension-apiserver-authentication","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},` +
	`"requestReceivedTimestamp":"2026-11-26T02:19:22.123456Z","stageTimestamp":"2026-11-26T02:19:22.125456Z","annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: allowed by ClusterRoleBinding \"system:controller:deployment-controller\" of ClusterRole \"system:controller:deployment-controller\" to ServiceAccount \"deployment-controller/kube-system\""}}`

// An audit policy that does not leave reads out sends thousands of records a second that say nothing about changes. They cost the bridge little.
func TestReadsCostLittle(t *testing.T) {
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	certificate, key := newCertificate(t)
	file := func(name string, text []byte) string {
		path := filepath.Join(w.dir, name)
		w.must(os.WriteFile(path, text, 0o600))
		return path
	}
	address := freeAddress(t)
	w.config.Audit = map[string]any{"path": filepath.Join(w.dir, "audit"), "webhook": map[string]any{
		"listen": address, "certFile": file("tls.crt", certificate), "keyFile": file("tls.key", key), "tokenFile": file("token", []byte(auditToken)),
	}}
	w.start()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	send := func(body string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(w.soon(), http.MethodPost, "https://"+address+"/audit", strings.NewReader(body))
		w.must(err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+auditToken)
		res, err := client.Do(req)
		w.must(err)
		_, err = io.Copy(io.Discard, res.Body)
		w.must(err)
		w.must(res.Body.Close())
		return res.StatusCode
	}
	var items []string
	for i := range readsPerBatch {
		items = append(items, fmt.Sprintf(readRecord, i, []string{"get", "list", "watch"}[i%3]))
	}
	body := `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[` + strings.Join(items, ",") + `]}`
	send(body)

	idle := w.cpuOf(func() { time.Sleep(*auditReads / 3) }) / (*auditReads / 3).Seconds()
	sent := 0
	var took time.Duration
	busy := w.cpuOf(func() {
		begun := time.Now()
		tick := time.NewTicker(time.Second * readsPerBatch / readsPerSecond)
		defer tick.Stop()
		for ; time.Since(begun) < *auditReads; <-tick.C {
			if code := send(body); code != http.StatusOK {
				t.Fatalf("got %d", code)
			}
			sent += readsPerBatch
		}
		took = time.Since(begun)
	})
	rate := float64(sent) / took.Seconds()
	cores := (busy/took.Seconds() - idle) / rate * readsPerSecond
	t.Logf("%d records of %d bytes in %s (%.0f/s): %.3f cores more than without them, which is %.3f cores for 10,000/s", sent, len(items[0]), took.Round(time.Millisecond), rate, busy/took.Seconds()-idle, cores)
	if cores > mostCores {
		t.Errorf("10,000 records of reads a second cost %.2f cores, want at most %.2f", cores, mostCores)
	}
	w.storesNoReads(float64(sent))
}

// storesNoReads checks that records of reads are counted as dropped, and that none is on disk.
func (w *world) storesNoReads(sent float64) {
	w.t.Helper()
	_, metrics, err := w.bridge.Get(w.soon(), "/metrics")
	w.must(err)
	if dropped, _ := bridge.Sum(metrics, "kubebridge_audit_dropped_total"); dropped < sent {
		w.t.Errorf("%.0f records are counted as dropped, want at least %.0f", dropped, sent)
	}
	if stored, found := bridge.Sum(metrics, "kubebridge_audit_records_total"); !found || stored > 0 {
		w.t.Errorf("%.0f records were stored (%v), want none", stored, found)
	}
}

// cpuOf returns the seconds of CPU that the bridge uses while f runs.
func (w *world) cpuOf(f func()) float64 {
	w.t.Helper()
	before := w.cpu()
	f()
	return w.cpu() - before
}

// cpu returns the seconds of CPU that the bridge has used.
func (w *world) cpu() float64 {
	w.t.Helper()
	const ticksPerSecond = 100 // USER_HZ on Linux
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.bridge.PID()))
	w.must(err)
	_, rest, _ := bytes.Cut(text, []byte(") ")) // the name can have spaces
	fields := bytes.Fields(rest)
	user, err := strconv.ParseFloat(string(fields[11]), 64)
	w.must(err)
	system, err := strconv.ParseFloat(string(fields[12]), 64)
	w.must(err)
	return (user + system) / ticksPerSecond
}
