package e2e

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/faultproxy"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// noticed bounds the time until a stalled watch is reported.
const noticed = 2 * time.Minute

// If a conversion webhook is down, watches stall: they stay open and send nothing, like those of a quiet collection.
// The bridge reports that, publishes no deletions, and recovers when the webhook answers again.
func TestDeadConversionWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.install()
	webhook := w.convertible()
	v2 := w.widgets
	v2.Version = "v2"
	w.config.Resources = []bridge.Resource{{Resource: v2.Resource + "." + v2.Version + "." + v2.Group, Namespaces: []string{w.ns}}}
	for _, name := range []string{"kept", "patched", "deleted"} {
		_, err := w.kube.Create(w.soon(), v2, name, sample(v2, "created"))
		w.must(err)
	}
	w.start()
	before := len(w.settle(v2))

	webhook.Refuse()
	began := time.Now()
	v1, err := kube.New(w.cluster.RESTConfig(), w.ns) // v1 is the stored version and needs no conversion
	w.must(err)
	_, err = v1.Patch(w.soon(), w.widgets, "patched", change("in the dark"))
	w.must(err)
	w.must(v1.Delete(w.soon(), w.widgets, "deleted"))
	w.must(w.bridge.Await(w.within(noticed), func(s bridge.Status) bool {
		c := s.Find(w.collection(v2))
		return (c.State == "stalled" || c.State == "waiting") && c.Error != ""
	}))
	t.Logf("seen after %s", time.Since(began).Round(time.Second))
	w.must(w.bridge.Await(w.within(noticed), func(s bridge.Status) bool { // the watch's own error does not name it
		return strings.Contains(s.Find(w.collection(v2)).Error, "conversion webhook for")
	}))
	if log := w.bridge.Log(); strings.Contains(log, "the API server is lost") {
		t.Errorf("one resource's webhook is blamed on the API server:\n%s", log)
	}
	for _, m := range w.since(before) {
		if m.Is("deleted") && m.Attributes["name"] != "deleted" {
			t.Errorf("published while nothing could be known: %s", &m)
		}
	}

	webhook.Pass()
	for _, o := range w.kube.Ledger.Objects(v2) {
		if o.Name == "deleted" {
			w.kube.Ledger.Deleted(o.UID)
			_, err := w.log.Wait(w.within(noticed), func(all []bus.Message) bool {
				types := typesOf(all, o.UID)
				return len(types) > 0 && types[len(types)-1] == "deleted"
			})
			w.must(err)
		}
	}
	w.must(w.bridge.Await(w.within(noticed), w.isWatching(v2)))
	all := w.settle(v2)
	objects, _, err := w.kube.List(w.soon(), v2, metav1.ListOptions{})
	w.must(err)
	w.none(check.State(all, objects, v2.ResourceID()), all)
}

// convertible adds a second version, v2, to the world's type, with a conversion webhook behind a proxy.
func (w *world) convertible() *faultproxy.Proxy {
	w.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(convert))
	w.t.Cleanup(server.Close)
	proxy, err := faultproxy.Start(server.Listener.Addr().String())
	w.must(err)
	w.t.Cleanup(func() { _ = proxy.Close() })
	w.converts(w.widgets, proxy.Addr(), server.Certificate())
	return proxy
}

// converts adds a second version, v2, to a type, with a conversion webhook at an address. v1 stays the stored version.
func (w *world) converts(of kube.Type, webhook string, certificate *x509.Certificate) {
	w.t.Helper()
	ca, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	w.must(err)
	schema := `"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}`
	_, err = w.kube.Patch(w.soon(), kube.CRDs, of.ResourceID(), fmt.Sprintf(`{"spec":{"preserveUnknownFields":false,"versions":[
		{"name":"v1","served":true,"storage":true,%s},{"name":"v2","served":true,"storage":false,%s}],
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],
			"clientConfig":{"url":"https://%s/convert","caBundle":%s}}}}}`, schema, schema, webhook, ca))
	w.must(err)
}

// Eight resources, twice as many as there are list slots, have a conversion webhook that accepts connections and never answers. Other
// resources are still published.
func TestHangingConversionWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	hanging := make(chan struct{})
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hanging }))
	t.Cleanup(func() {
		close(hanging)
		webhook.Close()
	})
	w.config.Resources = nil
	for i := range 8 {
		v1 := kube.Widgets(fmt.Sprintf("h%d.%s.kubebridge.io", i, w.ns))
		w.must(w.kube.Install(w.soon(), v1))
		t.Cleanup(func() {
			if err := w.kube.Uninstall(context.Background(), v1); err != nil {
				t.Error(err)
			}
		})
		_, err := w.kube.Create(w.soon(), v1, "stored", sample(v1, "created"))
		w.must(err)
		w.converts(v1, webhook.Listener.Addr().String(), webhook.Certificate())
		w.config.Resources = append(w.config.Resources, bridge.Resource{Resource: v1.Resource + ".v2." + v1.Group, Namespaces: []string{w.ns}})
	}
	healthy := w.widgets // is installed below
	for _, r := range []kube.Type{kube.ConfigMaps, healthy} {
		w.config.Resources = append(w.config.Resources, bridge.Resource{Resource: r.ResourceID(), Namespaces: []string{w.ns}})
	}
	published := func(of kube.Type) {
		t.Helper()
		began := time.Now()
		o, err := w.kube.Create(w.soon(), of, "o", sample(of, "created"))
		w.must(err)
		_, err = w.log.Wait(w.within(patience), func(all []bus.Message) bool { return len(typesOf(all, string(o.GetUID()))) > 0 })
		w.must(err)
		t.Logf("%s: published after %s", of.ResourceID(), time.Since(began).Round(time.Second))
	}
	w.run()
	published(kube.ConfigMaps)
	w.install()
	published(healthy)
}

// convert answers a ConversionReview. The versions differ only in their names.
func convert(rw http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Request    struct {
			UID               string           `json:"uid"`
			DesiredAPIVersion string           `json:"desiredAPIVersion"`
			Objects           []map[string]any `json:"objects"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	for _, o := range review.Request.Objects {
		o["apiVersion"] = review.Request.DesiredAPIVersion
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind, "response": map[string]any{
		"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": map[string]any{"status": "Success"},
	}})
}
