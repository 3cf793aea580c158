package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/operate/leader"
	"github.com/kubebridge/kubebridge/internal/operate/recent"
	"github.com/kubebridge/kubebridge/internal/operate/status"
)

// reporter adds facts that the program has to the status of a bridge.
type reporter struct {
	bridge  *bridge.Bridge
	last    *recent.Changes // nil: changes are not kept
	digest  func() string
	started time.Time
	listen  string // address of the status
}

func (r *reporter) report() status.Report {
	out := r.bridge.Status()
	out.Version, out.Started, out.ConfigDigest = currentVersion().Version, r.started, r.digest()
	if e := out.Election; e != nil && e.Role == status.Standby && e.Holder != "" {
		namespace, _ := os.ReadFile(ownNamespace) // absent outside of pods
		out.LeaderStatus = leaderStatus(leader.Host(e.Holder), r.listen, strings.TrimSpace(string(namespace)))
	}
	return out
}

// leaderStatus says how to reach the status of the replica on a host. In a namespace the host is a pod.
func leaderStatus(host, listen, namespace string) string {
	if namespace == "" {
		return "run bridge status on host " + host
	}
	_, port, _ := net.SplitHostPort(listen)
	return fmt.Sprintf("run kubectl -n %s port-forward %s %s, or kubectl -n %s exec %s -- bridge status", namespace, host, port, namespace, host)
}

// changes returns the last changes of a collection. The bool is false if there is no such collection.
func (r *reporter) changes(sink, collection string) ([]status.Change, bool) {
	report := r.bridge.Status()
	for _, e := range report.Entries() {
		if e.Sink.Name == sink && e.Collection.ID == collection {
			return r.last.Of(sink, collection, e.Collection.Diffs), true
		}
	}
	return nil, false
}
