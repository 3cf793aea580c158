package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// Two sinks are two pipelines, each with resources of its own. An outage of one bus does not affect the other sink, and
// the first one catches up afterwards.
func TestTwoSinksAreIndependent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps, kube.Deployments}})
	live := *w // the second one's bus; its share is the Deployments
	w.startNATSIn("second")
	w.config.Sinks[0].Name = "audit-too"
	live.config.Sinks[0].Name = "live"
	live.config.Sinks[0].Resources = []bridge.Resource{{Resource: kube.Deployments.ResourceID(), Namespaces: []string{w.ns}}}
	w.config.Sinks = append(w.config.Sinks, live.config.Sinks...)
	w.run()
	w.awaitStatus(func(s bridge.Status) bool { return s.Ready && len(s.Sinks) == 2 })
	w.settle(kube.ConfigMaps, kube.Deployments)

	w.busDown()
	const changes = 200
	w.create(kube.ConfigMaps, "o")
	w.create(kube.Deployments, "o")
	for i := range changes {
		w.patch(kube.ConfigMaps, "o", fmt.Sprint(i))
		uid, rv := w.patch(kube.Deployments, "o", fmt.Sprint(i))
		if i%50 == 0 {
			live.published(uid, rv) // while the other bus is down
		}
	}
	w.awaitStatus(func(s bridge.Status) bool {
		return slices.ContainsFunc(s.Sinks, func(k bridge.SinkStatus) bool { return k.Name == "audit-too" && k.Failing != "" }) &&
			slices.ContainsFunc(s.Sinks, func(k bridge.SinkStatus) bool { return k.Name == "live" && k.Ready && k.Failing == "" })
	})
	w.busUp()
	w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps, kube.Deployments}})
	all := live.settle(kube.Deployments)
	live.none(check.History(w.kube.Ledger, all, check.Options{Types: []kube.Type{kube.Deployments}}), all)
	if slices.ContainsFunc(all, func(m bus.Message) bool { return m.Attributes["resource"] == kube.ConfigMaps.Resource }) {
		t.Error("the second sink received what is not its share")
	}
}
