package e2e

import (
	"path/filepath"
	"testing"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// replicaWithBuffer starts one more bridge, with a directory of its own for its disk buffer.
func (w *world) replicaWithBuffer(dir string, standby bool) *bridge.Process {
	w.t.Helper()
	w.config.Buffer = map[string]any{"path": filepath.Join(w.dir, dir), "standby": standby}
	return w.replica()
}

// eventsInBetween makes 42 changes whose states in between only a watch can see, and makes the API server forget them once each of the
// bridges has received them. Core Events have no watch cache, so a compaction of etcd removes their history.
func (w *world) eventsInBetween(step string, recorders ...*bridge.Process) {
	w.t.Helper()
	before := make([]uint64, len(recorders))
	for i, p := range recorders {
		s, err := p.Status(w.soon())
		w.must(err)
		before[i] = s.Buffer.Frames
	}
	w.bulkPatch(kube.Events, "o", step, 0, 20)
	w.bulkPatch(kube.Events, "o", step+" again", 0, 20)
	w.create(kube.Events, "brief")
	w.delete(kube.Events, "brief")
	for i, p := range recorders {
		w.must(p.Await(w.soon(), func(s bridge.Status) bool { return s.Buffer != nil && s.Buffer.Frames >= before[i]+changes }))
	}
	_, err := w.cluster.CompactEtcd(w.soon())
	w.must(err)
}

// The bus is away, the API server loses its history, and then the leader is killed. A standby that buffers what the leader buffers publishes
// every state once, in order, and without a gap. One that does not has to list.
func TestStandbyBuffers(t *testing.T) {
	t.Parallel()
	own := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{"--etcd-compaction-interval=0"}})
	for _, c := range []struct {
		name, bus string
		standby   bool
	}{{"nats", busNATS, true}, {"kafka", busKafka, true}, {"nats, and the standby does not buffer", busNATS, false}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorldOfEvents(t, own, c.bus)
			w.elects()
			leader := w.replicaWithBuffer("one", c.standby)
			w.awaitStatus(func(s bridge.Status) bool {
				return s.Election.Role == "leader" && s.Find(w.collection(kube.Events)).State == "watching"
			})
			standby := w.replicaWithBuffer("two", c.standby)
			w.waits(standby)
			w.bridge = leader
			w.bulk(kube.Events, "o", 20)
			before := len(w.settle(kube.Events))
			w.busDown()
			w.patch(kube.Events, "o-0", "first")
			w.awaitStatus(func(s bridge.Status) bool { return s.Find(w.collection(kube.Events)).State == "buffered" })
			recorders := []*bridge.Process{leader}
			if c.standby {
				w.must(standby.Await(w.soon(), func(s bridge.Status) bool { return s.Buffer != nil && s.Buffer.Frames > 0 }))
				recorders = append(recorders, standby)
			}
			w.eventsInBetween("one", recorders...)
			leader.Kill()
			w.bridge = standby
			w.eventsInBetween("nobody leads", recorders[1:]...)
			w.awaitStatus(func(s bridge.Status) bool { return s.Election.Role == "leader" })
			w.eventsInBetween("the other one leads", recorders[1:]...)
			w.busUp()
			all := after(w.verify(check.Options{Types: []kube.Type{kube.Events}, Gap: !c.standby}), before)
			gaps := 0
			for i := range all {
				if all[i].Is("gap") {
					gaps++
				}
			}
			if c.standby == (gaps > 0) {
				t.Errorf("there are %d gaps", gaps)
			}
			w.awaitStatus(func(s bridge.Status) bool { return s.Find(w.collection(kube.Events)).State == "watching" })
		})
	}
}
