package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
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
	edited := func(path, from, to string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), from) {
			t.Fatalf("%s lacks %s (%v)", text, from, err)
		}
		other := filepath.Join(t.TempDir(), "bridge.yaml")
		write(t, other, strings.Replace(string(text), from, to, 1))
		return other
	}
	deadLetters := edited(whole, "{name: audit,", "{name: audit, oversize: dead-letter,")
	quiet := conf(all("roles.rbac.authorization.k8s.io"))
	kafka := func(path, delivery string) string {
		t.Helper()
		if delivery == "exactly-once" { // its checkpoint is in Kafka
			path = edited(path, "checkpoint:", "#")
		}
		return edited(path, `nats: {url: "nats://127.0.0.1:1"}`, `kafka: {brokers: ["127.0.0.1:1"], delivery: `+delivery+`}`)
	}
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
		{"--data D --max-connections 1", whole, exitConfig, "--max-connections 1: it must be at least 2"},
		{"--data D --allow-origin http://127.0.0.1:4466,https://dashboard.example.com/", whole, exitConfig, `--allow-origin "https://dashboard.example.com/": give the scheme`},
		{"--data D --allow-origin *", whole, exitConfig, `--allow-origin "*": give the scheme`},
		{"--data D --retain -1s", whole, exitConfig, "--retain -1s"},
		{"--data D --tls-cert c --tls-key k --authorization cluster", whole, exitConfig, "no cluster"},
		{"--data D --tls-cert c --tls-key k --authorization bus", whole, exitConfig, "no cluster"},
		{"--data D --tls-cert c --tls-key k --authorization bus --client-ca /nope", whole, exitEnvironment, "--client-ca: CA of client certificates: open /nope"},
		{"--data D --tls-cert c --tls-key k --authorization bus", conf("services"), exitConfig, "does not publish clusterrolebindings.rbac.authorization.k8s.io"},
		{"--data D --tls-cert c --tls-key k --authorization bus", quiet, exitConfig, "the entry of roles.rbac.authorization.k8s.io needs syncedEvery: 1m0s or less"},
		{"--data D --tls-cert c --tls-key k --authorization bus --rights-max-age 0", kafka(quiet, "at-least-once"), exitConfig, "the entry of roles.rbac.authorization.k8s.io has no syncedEvery, and the sink audit has delivery: at-least-once"},
		{"--data D --tls-cert c --tls-key k --authorization bus --rights-max-age 0", kafka(whole, "at-least-once"), exitConfig, "no cluster"},
		{"--data D --tls-cert c --tls-key k --authorization bus --rights-max-age 0", kafka(quiet, "exactly-once"), exitConfig, "no cluster"},
		{"--data D --tls-cert c --tls-key k --authorization bus --rights-max-age 0", quiet, exitConfig, "no cluster"},
		{"--data D --tls-cert c --tls-key k --authorization bus --rights-max-age 1m", whole, exitConfig, "--rights-max-age 1m0s: use at least 2m0s"},
		{"--data D --tls-cert c --tls-key k --authorization bus", deadLetters, exitConfig, "the sink audit has oversize: dead-letter"},
	} {
		t.Run(c.flags+" "+c.says, func(t *testing.T) {
			flags := strings.Fields(strings.Replace(c.flags, "--data D", "--data "+t.TempDir(), 1))
			r := command(t, append([]string{"serve", "-c", c.config}, flags...)...)
			if lines := strings.Split(strings.TrimSpace(r.err), "\n"); r.code != c.code || !strings.Contains(lines[len(lines)-1], c.says) {
				t.Errorf("code %d: %s", r.code, r.err)
			}
		})
	}
}

// TestServeOtherCluster: an API server is asked about users only if it is of the cluster on the bus: its namespace kube-system has that UID, or it
// refuses to show it and the configuration has the UID.
func TestServeOtherCluster(t *testing.T) {
	for name, c := range map[string]struct {
		answer   string // the UID; "": it is refused
		expected string // kubernetes.clusterUID
		says     string // "": the cluster is confirmed
		ends     bool
	}{
		"the same":                      {"c", "", "", false},
		"another":                       {"d", "", "set kubernetes.kubeconfig or kubernetes.context to the cluster that the bus has", true},
		"secret":                        {"", "", "or set kubernetes.clusterUID", false},
		"secret, and the same expected": {"", "c", "", false},
		"secret, and another expected":  {"", "d", "kubernetes.context", true},
		"another than expected":         {"d", "c", "kubernetes.context", true},
	} {
		t.Run(name, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if c.answer == "" {
					w.WriteHeader(http.StatusForbidden)
					_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
					return
				}
				fmt.Fprintf(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"kube-system","uid":%q}}`, c.answer)
			}))
			t.Cleanup(api.Close)
			kubeconfig := filepath.Join(t.TempDir(), "config")
			write(t, kubeconfig, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: c}}], users: [{name: c}], clusters: [{name: c, cluster: {server: "`+api.URL+`"}}]}`)
			p := &past{config: &config.Config{Cluster: "prod", Kubernetes: config.Kubernetes{Kubeconfig: kubeconfig, ClusterUID: c.expected}}}
			f := &serveFlags{authorization: authorizeCluster}
			_, from, err := f.guard(p, mirrorOf(t, "c"), nil, zaptest.NewLogger(t))
			if err != nil {
				t.Fatal(err)
			}
			if c.ends {
				err := f.confirm(t.Context(), from)
				var exit *exitError
				if !errors.As(err, &exit) || exit.code != exitConfig || !strings.Contains(err.Error(), c.says) {
					t.Errorf("it ends with %v", err)
				}
			}
			switch err := from.Check(t.Context()); {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && err == nil, !c.ends && err != nil && !strings.Contains(err.Error(), c.says):
				t.Errorf("it is %v, want %s", err, c.says)
			}
		})
	}
}

// mirrorOf returns a mirror with an event of a cluster.
func mirrorOf(t *testing.T, uid string) *mirror.Mirror {
	t.Helper()
	s, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := mirror.Open(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	if m.ClusterUID() != "" {
		t.Errorf("without an event it is of %q", m.ClusterUID())
	}
	pods := event.ParseCollection("pods")
	e := event.Event{
		Type: event.Gap, Origin: event.Reconcile, Collection: &pods, Time: time.Now(), Run: "1", Epoch: 1, Incarnation: 1,
		Report: &event.Report{Reason: event.ReasonReset, Reset: true}, Plan: &event.Plan{Number: 1, Digest: event.PlanDigest(map[string]uint64{"pods": 1}), Edit: 1, Birth: 1},
	}
	encoder := event.Encoder{Cluster: "prod", ClusterUID: uid, Format: event.Structured}
	message := consumer.Message{Topic: "K8S", Value: event.Structured.Append(nil, encoder.Attributes(&e), &e)}
	received, err := consumer.Decode(message)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Apply(message, received), m.Commit(nil)); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestCopyProgress: the copy is ready once everything that the bus had at the start is committed, and stays so until messages are lost and
// everything is read again.
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
	p.drop()
	if p.note(1); p.check() == nil {
		t.Error("it is ready while everything is read again")
	}
	if p.note(0); p.check() != nil {
		t.Errorf("after that: %v", p.check())
	}
}
