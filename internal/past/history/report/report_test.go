package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/event"
)

func TestPrintChange(t *testing.T) {
	var out bytes.Buffer
	c := history.Change{
		Type: "modified", Resource: "pods", Namespace: "shop", Name: "web", UID: "2", FormerUID: "1",
		By: []history.Who{{Manager: "kubectl"}, {Manager: "kubelet", Subresource: "status"}}, Note: "updates in between are not known",
		Diff:        "@@ -1 +1 @@\n a: b\n-c: d\n---gone: 1\n+c: e\n",
		Attribution: &event.Attribution{Request: &event.Request{User: event.User{Name: "alice"}, SourceIPs: []string{"10.0.0.12"}}},
	}
	if err := Change(&out, &c, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"by kubectl, kubelet/status", "uid was 1", "(updates in between are not known)", "\n  user alice, from 10.0.0.12\n", red + "-c: d" + plainText, green + "+c: e" + plainText, red + "---gone: 1" + plainText, "   a: b\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, out.String())
		}
	}
}
