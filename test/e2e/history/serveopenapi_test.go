package history_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// TestServeOpenAPI: kubectl explains a custom resource from the copy as it does at the API server, and says of another resource that its fields
// are not known. The metrics show the requests.
func TestServeOpenAPI(t *testing.T) {
	t.Parallel()
	w := newBus(t, false)
	widgets := kube.Widgets(w.ns + ".example.com")
	text := func(description string) map[string]any {
		return map[string]any{"type": "string", "description": description}
	}
	w.create(kube.CRDs, widgets.ResourceID(), kube.Fields{"spec": map[string]any{
		"group": widgets.Group, "scope": "Namespaced",
		"names": map[string]any{"plural": widgets.Resource, "singular": "widget", "kind": widgets.Kind, "listKind": "WidgetList"},
		"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "description": "A widget is part of a shop.", "required": []any{"spec"},
			"properties": map[string]any{"spec": map[string]any{
				"type": "object", "description": "What the widget should be.", "required": []any{"size"},
				"properties": map[string]any{
					"size": map[string]any{"type": "integer", "minimum": 1, "description": "How large it is, in mm."}, "color": text("Its color."),
					"parts": map[string]any{"type": "array", "items": map[string]any{"type": "object", "properties": map[string]any{"name": text("The part's name.")}}},
				},
			}},
		}}}},
	}})
	w.conf.Resources = []bridge.Resource{{Resource: widgets.ResourceID()}, {Resource: kube.CRDs.ResourceID()}, {Resource: "pods"}}
	w.configure()
	t.Cleanup(func() { _ = w.kube.Uninstall(w.ctx, widgets) })
	w.start()
	s := w.serve()
	w.eventually("the server is ready", func() string {
		if status, body := w.page(s, "/readyz"); status != 200 {
			return body
		}
		_, body := w.page(s, "/openapi/v3")
		if !strings.Contains(body, widgets.GroupVersion().String()) || !strings.Contains(body, "api/v1") {
			return body
		}
		return ""
	})
	path, err := exec.LookPath("kubectl")
	if err != nil {
		t.Log("without kubectl: ", err)
		return
	}
	run := func(server []string, args ...string) string {
		cmd := exec.CommandContext(w.ctx, path, append(append(server, "--cache-dir", t.TempDir()), args...)...)
		cmd.Env = []string{"HOME=" + t.TempDir()}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run() // the output says how it ends
		return out.String()
	}
	real, served := []string{"--kubeconfig", cluster.Kubeconfig()}, []string{"--kubeconfig", "/dev/null", "--server", s.url}
	w.eventually("the API server publishes the schema, which takes it longer than to accept objects", func() string {
		if got := run(real, "get", "--raw", "/openapi/v3/apis/"+widgets.GroupVersion().String()); !strings.Contains(got, "How large it is") {
			return got
		}
		return ""
	})
	for _, args := range []string{"widgets", "widgets.spec", "widgets.spec.parts.name", "widgets.metadata", "widgets.metadata.ownerReferences", "widgets --recursive", "widgets.none"} {
		explain := append([]string{"explain", "--api-version", widgets.GroupVersion().String()}, strings.Fields(args)...)
		if diff := cmp.Diff(run(real, explain...), run(served, explain...)); diff != "" {
			t.Errorf("explain %s (-API server +bridge serve):\n%s", args, diff)
		}
	}
	if got := run(served, "explain", "pods"); !strings.Contains(got, "The fields are not known: the bus has no schema of this resource.") {
		t.Errorf("explain pods prints\n%s", got)
	}
	_, metrics := w.page(s, "/metrics")
	for _, want := range []string{`kubebridge_serve_requests_total{code="200",verb="get"}`, "kubebridge_serve_behind_messages ", "kubebridge_serve_ready 1", `kubebridge_serve_current{resource="pods"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s:\n%s", want, metrics)
		}
	}
}
