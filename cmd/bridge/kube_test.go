package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Replicas whose Leases are in different namespaces would all lead.
func TestLeaseNamespace(t *testing.T) {
	dir := t.TempDir()
	pod, empty := filepath.Join(dir, "pod"), filepath.Join(dir, "empty")
	write(t, pod, "audit\n")
	write(t, empty, "")
	for _, test := range []struct{ configured, pod, want string }{
		{"", pod, "audit"},
		{"other", pod, "other"},
		{"", filepath.Join(dir, "absent"), ""},
		{"", empty, ""},
	} {
		got, err := leaseNamespace(test.configured, test.pod)
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%+v: %q, %v", test, got, err)
		}
		if err != nil && (exitCode(err) != exitConfig || !strings.Contains(err.Error(), "leaderElection.namespace")) {
			t.Errorf("%+v: exit code %d, %v", test, exitCode(err), err)
		}
	}
}
