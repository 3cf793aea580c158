package main

import (
	"os"
	"strings"
	"testing"
)

// The audit policy of the example is printed with the flags of the API servers, and nothing beside it, so that it can go to a file.
func TestAuditPolicy(t *testing.T) {
	out := command(t, "rbac", "--audit-policy", "-c", "../../configs/attribution.yaml").ok(t)
	for _, line := range []string{"kind: Policy\n", "omitStages: [\"RequestReceived\"]\n", "#   --audit-webhook-config-file=webhook.yaml\n", `resources: ["secrets", "secrets/*"]`, "deployments/*"} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is missing in\n%s", line, out)
		}
	}
	page, err := os.ReadFile("../../docs/attribution.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```yaml\n"+out+"```\n") {
		t.Errorf("docs/attribution.md has another policy than\n%s", out)
	}
	if strings.Contains(out, "ClusterRole") {
		t.Errorf("prints roles, too:\n%s", out)
	}
}
