package e2e

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/faultproxy"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// noticed is how soon a watch that has stalled is to be seen.
const noticed = 2 * time.Minute

// A conversion webhook that is down makes watches stall: they stay open, HTTP 200, and say nothing, which a quiet collection does
// too. It must be seen, nobody may conclude that objects are gone, and it heals by itself.
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
	v1, err := kube.New(w.cluster.RESTConfig(), w.ns) // which is stored, and needs no conversion
	w.must(err)
	_, err = v1.Patch(w.soon(), w.widgets, "patched", change("in the dark"))
	w.must(err)
	w.must(v1.Delete(w.soon(), w.widgets, "deleted"))
	w.must(w.bridge.Await(w.within(noticed), func(s bridge.Status) bool {
		c := s.Find(w.collection(v2))
		return (c.State == "stalled" || c.State == "waiting") && c.Error != ""
	}))
	t.Logf("seen after %s", time.Since(began).Round(time.Second))
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

// convertible gives the world's type a second version, v2, and a webhook that converts between the two, behind a proxy.
func (w *world) convertible() *faultproxy.Proxy {
	w.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(convert))
	w.t.Cleanup(server.Close)
	proxy, err := faultproxy.Start(server.Listener.Addr().String())
	w.must(err)
	w.t.Cleanup(func() { _ = proxy.Close() })
	ca, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	w.must(err)
	schema := `"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}`
	_, err = w.kube.Patch(w.soon(), kube.CRDs, w.widgets.ResourceID(), fmt.Sprintf(`{"spec":{"preserveUnknownFields":false,"versions":[
		{"name":"v1","served":true,"storage":true,%s},{"name":"v2","served":true,"storage":false,%s}],
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],
			"clientConfig":{"url":"https://%s/convert","caBundle":%s}}}}}`, schema, schema, proxy.Addr(), ca))
	w.must(err)
	return proxy
}

// convert answers a ConversionReview: the versions differ by nothing but their names.
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
