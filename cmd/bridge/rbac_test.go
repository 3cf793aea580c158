package main

import (
	"strings"
	"testing"
)

// The audit policy of the example is printed with the flags of the API servers, and nothing beside it, so that it can go to a file.
func TestAuditPolicy(t *testing.T) {
	out := bridge(t, "rbac", "--audit-policy", "-c", "../../configs/attribution.yaml").ok(t)
	for _, line := range []string{"kind: Policy\n", "omitStages: [\"RequestReceived\"]\n", "#   --audit-webhook-config-file=webhook.yaml\n", `resources: ["secrets", "secrets/*"]`, "deployments/*"} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is missing in\n%s", line, out)
		}
	}
	if strings.Contains(out, "ClusterRole") {
		t.Errorf("prints roles, too:\n%s", out)
	}
}
