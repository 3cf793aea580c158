package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// replicaAt starts one more bridge, with a host name and directory of its own. Its webhook listens at that host.
func (w *world) replicaAt(host string, webhook map[string]any, port string) *bridge.Process {
	w.t.Helper()
	own := map[string]any{"listen": net.JoinHostPort(host, port)}
	for key, value := range webhook {
		if key != "listen" {
			own[key] = value
		}
	}
	w.config.Audit = map[string]any{
		"path": filepath.Join(w.dir, "audit-"+host), "webhook": own, "settle": "60s",
		"replicas": map[string]any{"address": net.JoinHostPort("{host}", port), "caFile": webhook["certFile"]},
	}
	config := w.writeConfig(w.config)
	p, err := bridge.Start("unshare", "--uts", "sh", "-c", `hostname "$0" && exec "$@"`, host, binary, "run", "-c", config)
	w.must(err)
	w.t.Cleanup(func() {
		p.Kill()
		if w.t.Failed() {
			log := p.Log()
			w.t.Logf("log of %s:\n%s", host, log[max(0, len(log)-16<<10):])
		}
	})
	return p
}

// API servers send their records to whichever replica they reach. Each change is attributed once, whichever replica leads, and also if the one that has
// accepted the records is killed, and leads or does not when it comes back.
func TestAuditReplicas(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may give processes other host names")
	}
	own, webhook := startSending(t, "200ms")
	_, port, err := net.SplitHostPort(fmt.Sprint(webhook["listen"]))
	if err != nil {
		t.Fatal(err)
	}
	const receiver, other = "127.0.0.1", "127.0.0.2" // the API server sends to the first one
	for _, on := range []string{busNATS, busApacheKafka} {
		t.Run(on, func(t *testing.T) {
			w := newWorld(t, options{cluster: own, bus: on, types: []kube.Type{kube.ConfigMaps}})
			w.elects()
			w.config.LeaderElection["leaseDuration"], w.config.LeaderElection["renewDeadline"], w.config.LeaderElection["retryPeriod"] = "3s", "2s", "300ms"
			if on == busApacheKafka {
				w.config.Checkpoint = map[string]any{"kafka": map[string]any{"replicas": 1}}
			}
			second := w.replicaAt(other, webhook, port)
			w.leads(second)
			first := w.replicaAt(receiver, webhook, port)
			w.waits(first)
			w.attributesChanges(own, map[int]func(){
				4: func() { second.Kill() },
				6: func() { w.leads(first) },
				8: func() { second = w.replicaAt(other, webhook, port) },
				12: func() {
					w.waits(second)
					first.Kill()
					first = w.replicaAt(receiver, webhook, port) // before the Lease of the killed one has expired: either may lead next
					w.leads(first, second)
				},
				16: func() {
					second.Kill()
					w.leads(first)
					second = w.replicaAt(other, webhook, port) // what it has accepted and not used is on its disk
				},
			})
			first.Kill() // the next bridge listens on the same address
		})
	}
}
