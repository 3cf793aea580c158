package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestServeFlags: a server that everybody can reach needs TLS and says who may read what, and rights are read from the bus only if it can have
// all of them.
func TestServeFlags(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	conf := func(resources string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "bridge.yaml")
		write(t, path, `cluster: prod
resources: [pods, `+resources+`]
sinks: [{name: audit, nats: {url: "nats://127.0.0.1:1"}}]
checkpoint: {file: {path: `+t.TempDir()+`}}
`)
		return path
	}
	all := func(last string) string {
		return `{resource: clusterrolebindings.rbac.authorization.k8s.io, syncedEvery: 30s}, {resource: clusterroles.rbac.authorization.k8s.io, syncedEvery: 30s},` +
			`{resource: rolebindings.rbac.authorization.k8s.io, syncedEvery: 30s}, ` + last
	}
	whole := conf(all(`{resource: roles.rbac.authorization.k8s.io, syncedEvery: 1m}`))
	for _, c := range []struct {
		flags, config string
		code          int
		says          string
	}{
		{"", whole, exitConfig, "--data is required"},
		{"--data D --listen :8443", whole, exitConfig, "--listen :8443: with --authorization none everybody who reaches the port sees everything"},
		{"--data D --listen :8443 --tls-cert c --tls-key k", whole, exitConfig, "with --authorization none everybody"},
		{"--data D --listen :8443 --authorization cluster", whole, exitConfig, "--authorization cluster: it needs --tls-cert and --tls-key"},
		{"--data D --authorization bus", whole, exitConfig, "--authorization bus: it needs --tls-cert and --tls-key"},
		{"--data D --authorization rbac", whole, exitConfig, "--authorization rbac: use none, cluster or bus"},
		{"--data D --tls-cert c", whole, exitConfig, "belong together"},
		{"--data D --client-ca c", whole, exitConfig, "--client-ca: it needs --authorization"},
		{"--data D --retain -1s", whole, exitConfig, "--retain -1s"},
		{"--data D --tls-cert c --tls-key k --authorization cluster", whole, exitEnvironment, "no cluster"},
		{"--data D --tls-cert c --tls-key k --authorization bus", whole, exitEnvironment, "no cluster"},
		{"--data D --tls-cert c --tls-key k --authorization bus --client-ca /nope", whole, exitEnvironment, "--client-ca: CA of client certificates: open /nope"},
		{"--data D --tls-cert c --tls-key k --authorization bus", conf("services"), exitConfig, "does not publish clusterrolebindings.rbac.authorization.k8s.io"},
		{"--data D --tls-cert c --tls-key k --authorization bus", conf(all("roles.rbac.authorization.k8s.io")), exitConfig, "the entry of roles.rbac.authorization.k8s.io needs syncedEvery: 1m0s or less"},
		{"--data D --tls-cert c --tls-key k --authorization bus --rights-max-age 1m", whole, exitConfig, "the entry of roles.rbac.authorization.k8s.io needs syncedEvery: 30s or less"},
		{"--data D --tls-cert c --tls-key k --authorization bus", conf(all("{resource: roles.rbac.authorization.k8s.io, syncedEvery: 30s, ignore: [rules]}")), exitConfig, "are not published if ignore covers them"},
		{"--data D --tls-cert c --tls-key k --authorization bus", conf(all("{resource: roles.rbac.authorization.k8s.io, syncedEvery: 30s, labelSelector: a=b}")), exitConfig, "are selected by the labels"},
		{"--data D --tls-cert c --tls-key k --authorization bus", conf(all("{resource: roles.rbac.authorization.k8s.io, syncedEvery: 30s, types: [added, modified]}")), exitConfig, "deleted are left out"},
		{"--data D --tls-cert c --tls-key k --authorization bus", conf(all("{resource: roles.rbac.authorization.k8s.io, syncedEvery: 30s, metadataOnly: true}")), exitConfig, "have metadata only"},
	} {
		t.Run(c.flags+" "+c.says, func(t *testing.T) {
			flags := strings.Fields(strings.Replace(c.flags, "--data D", "--data "+t.TempDir(), 1))
			r := bridge(t, append([]string{"serve", "-c", c.config}, flags...)...)
			if lines := strings.Split(strings.TrimSpace(r.err), "\n"); r.code != c.code || !strings.Contains(lines[len(lines)-1], c.says) {
				t.Errorf("code %d: %s", r.code, r.err)
			}
		})
	}
}

// TestCopyProgress: the copy is ready once everything that the bus had at the start is committed, and stays so.
func TestCopyProgress(t *testing.T) {
	p := &copyProgress{}
	if p.check() == nil || p.looked.Load() {
		t.Error("it is ready before the bus is known")
	}
	for _, x := range []struct {
		behind int64
		ready  bool
	}{{3, false}, {0, true}, {2, true}} {
		if p.note(x.behind); p.behind.Load() != x.behind || !p.looked.Load() || (p.check() == nil) != x.ready {
			t.Errorf("%d behind: %v", x.behind, p.check())
		}
	}
}
