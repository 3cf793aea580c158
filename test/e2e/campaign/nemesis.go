package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// nemesis inflicts faults for a time: one on the bridge and, in parallel, one on its surroundings. If entries share a resource, it also
// edits these entries in parallel. If the bridge has an audit input, records are disturbed in parallel, and `bridge serve` has faults of its own.
type nemesis struct {
	*world
	begun     time.Time
	two       bool // the CRD has had a second version
	defaulted bool // the CRD has had a default: bodies changed without a version
	load      *workload
	tenant    *tenant // nil without [Spec.Hostile]

	calms [calms][]span // when each calm took place

	record   sync.Mutex
	schedule []string
	happened []happening
	delayed  []string // events that were missing on the first sink while the second one was blocked
	hurt     bool     // there was an outage of the bus
}

// mayHaveLost reports whether consumers may lack events: with at-most-once delivery, those during an outage of the bus, and the last batch
// before a kill (docs/faults.md).
func (n *nemesis) mayHaveLost() bool {
	return n.pair.lossy() && (n.hurt || len(n.processes) > n.replicas)
}

// inDoubt reports whether a bridge was killed, or a route was suspended: its collections go on from the checkpoint, as after a kill.
func (n *nemesis) inDoubt() bool {
	return len(n.processes) > n.replicas || n.happenedAny(routesRefused)
}

// run inflicts faults for the time d. It undoes all of them before it returns.
func (n *nemesis) run(ctx context.Context, d time.Duration) error {
	n.begun = time.Now()
	if n.replicas > 1 { // on a busy machine a Lease may expire without a fault
		n.happened = append(n.happened, happening{name: "two replicas"})
	}
	until := n.begun.Add(d)
	around := append(n.kubeFaults(), n.bus.faults...)
	if n.disk != "" {
		around = append(around, fault{name: "checkpoint's disk full", do: n.fillDisk})
	}
	if n.spec.Harm { // the seed is for faults of the API server itself, so most other faults are left out
		around = append(append(n.serverFaults(), fault{name: "etcd restored from a backup", do: n.restoreEtcd, once: true}), around[len(around)-2:]...)
	}
	results := make(chan error, 5)
	go func() { results <- n.harm(ctx, until, 1, n.bridgeFaults()) }()
	go func() { results <- n.harm(ctx, until, 2, around) }()
	if n.gadgets == nil {
		results <- nil
	} else {
		go func() { results <- n.harm(ctx, until, entriesStream, n.entriesFaults()) }()
	}
	go func() { results <- n.harm(ctx, until, auditStream, n.auditFaults()) }()
	if n.serving == nil {
		results <- nil
	} else {
		go func() { results <- n.harm(ctx, until, servedStream, n.servedFaults()) }()
	}
	return errors.Join(<-results, <-results, <-results, <-results, <-results)
}

// entriesStream is the number of the random stream for edits of entries.
const entriesStream = 6

// harm inflicts faults until a time. The seed selects up to six kinds and their order.
func (n *nemesis) harm(ctx context.Context, until time.Time, stream uint64, faults []fault) error {
	r := newChance(n.spec.Seed, stream)
	faults = slices.DeleteFunc(faults, func(f fault) bool { return !strings.Contains(f.name, n.spec.Only) })
	r.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	kinds := 1 + r.IntN(4)
	if stream == entriesStream { // errors with entries need several kinds of edits together
		kinds += 2
	}
	if i := slices.IndexFunc(faults, func(f fault) bool { return f.often }); i > 0 && r.IntN(2) == 0 {
		faults[0], faults[i] = faults[i], faults[0]
	}
	faults = faults[:min(len(faults), kinds)]
	r.wait(ctx, time.Second)
	for time.Now().Before(until) && len(faults) > 0 && ctx.Err() == nil {
		i := r.IntN(len(faults))
		f := faults[i]
		if err := n.inflict(ctx, r, f); err != nil {
			return err
		}
		if f.once {
			faults = append(faults[:i:i], faults[i+1:]...)
		}
		r.wait(ctx, 1500*time.Millisecond)
	}
	return nil
}

// inflict inflicts one fault, and records it.
func (n *nemesis) inflict(ctx context.Context, r *chance, f fault) error {
	from := time.Since(n.begun)
	n.record.Lock()
	n.happened = append(n.happened, happening{f.name, time.Now()})
	n.record.Unlock()
	err := f.do(ctx, r)
	n.record.Lock()
	defer n.record.Unlock()
	n.schedule = append(n.schedule, fmt.Sprintf("%5.2fs-%5.2fs %s", from.Seconds(), time.Since(n.begun).Seconds(), f.name))
	n.hurt = n.hurt || f.hurts
	if err != nil {
		return fmt.Errorf("fault %s: %w", f.name, err)
	}
	return nil
}

func (n *nemesis) bridgeFaults() []fault {
	one := func(do func(ctx context.Context, r *chance, i int) error) func(context.Context, *chance) error {
		return func(ctx context.Context, r *chance) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if err := n.revive(); err != nil {
				return err
			}
			return do(ctx, r, r.IntN(n.replicas))
		}
	}
	freeze := func(d time.Duration) func(context.Context, *chance, int) error {
		return func(ctx context.Context, r *chance, i int) error {
			n.current[i].Signal(syscall.SIGSTOP)
			r.wait(ctx, d)
			n.current[i].Signal(syscall.SIGCONT)
			return nil
		}
	}
	faults := []fault{
		{name: "bridge kill -9", do: one(func(ctx context.Context, r *chance, i int) error {
			n.current[i].Kill()
			if r.IntN(2) == 0 {
				r.wait(ctx, time.Second)
			}
			return n.relaunch(i)
		})},
		{name: "bridge killed while answers are held", do: one(func(ctx context.Context, r *chance, i int) error {
			for _, p := range n.bus.proxies {
				p.Hold()
			}
			r.wait(ctx, time.Second)
			n.current[i].Kill()
			for _, p := range n.bus.proxies {
				p.Pass()
			}
			return n.relaunch(i)
		})},
		{name: "bridge stopped", do: one(func(ctx context.Context, r *chance, i int) error {
			n.current[i].Signal(syscall.SIGTERM)
			if _, err := n.current[i].Wait(time.Duration(r.Int64N(int64(3 * time.Second)))); err != nil {
				n.current[i].Kill() // it did not stop in time
			}
			return n.relaunch(i)
		})},
		{name: "bridge frozen", do: one(freeze(2 * time.Second))},
		{name: "resync requested", do: one(n.askResync)},
		{name: "configuration without a resource", do: n.withoutOne},
	}
	faults = append(faults, n.bufferFaults(one)...)
	if n.pair.shared() { // not with a checkpoint in a file, because its lock does not let a second bridge start
		faults = append(faults, fault{name: "second bridge while the first is frozen", do: one(func(ctx context.Context, r *chance, i int) error {
			if n.replicas > 1 { // the Lease of the frozen one expires, and the other one becomes the leader
				return freeze(6*time.Second)(ctx, r, i)
			}
			n.second, n.other = true, !n.other
			first := n.current[i]
			first.Signal(syscall.SIGSTOP)
			if err := n.relaunch(i); err != nil {
				return err
			}
			r.wait(ctx, 3*time.Second)
			first.Signal(syscall.SIGCONT)
			r.wait(ctx, time.Second)
			first.Kill()
			return n.revive()
		})})
	}
	return faults
}

// kubeFaults returns the faults that affect only this world's part of the cluster.
func (n *nemesis) kubeFaults() []fault {
	return append(connection("API", n.api),
		fault{name: "history expired (410)", do: n.forget},
		fault{name: "CRD gains a default", do: func(ctx context.Context, _ *chance) error {
			return n.editCRD(ctx, `[`+crdVersion("v1", true, `,"`+defaulted+`":{"type":"string","default":"yes"}`)+`]`)
		}},
		fault{name: "CRD gains a version", do: func(ctx context.Context, _ *chance) error {
			return n.editCRD(ctx, `[`+crdVersion("v2", true, "")+`,`+crdVersion("v1", false, "")+`]`)
		}},
		fault{name: "permissions revoked and restored", do: func(ctx context.Context, r *chance) error {
			if err := n.kube.Delete(ctx, clusterRoleBindings, n.ns); err != nil {
				return err
			}
			r.wait(ctx, 2*time.Second)
			return n.bind(ctx)
		}},
	)
}

func crdVersion(name string, storage bool, property string) string {
	return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true,
		"properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"stamp":{"type":"string"}%s}}}}}}`, name, storage, property)
}

func (n *nemesis) editCRD(ctx context.Context, versions string) error {
	n.defaulted = n.defaulted || strings.Contains(versions, defaulted)
	if strings.Contains(versions, `"v2"`) {
		n.two = true
	} else if n.two { // a CRD must keep each version that was stored
		versions = strings.TrimSuffix(versions, "]") + "," + crdVersion("v2", false, "") + "]"
	}
	_, err := n.kube.Patch(ctx, kube.CRDs, n.widgets.GroupResource().String(), `{"spec":{"versions":`+versions+`}}`)
	return err
}

// forget changes the CRD, so that the API server loses the history of the custom type, as after a compaction.
func (n *nemesis) forget(ctx context.Context, _ *chance) error {
	_, rv, err := n.kube.List(ctx, n.widgets.Type, metav1.ListOptions{Limit: 1})
	if err != nil {
		return ignoreAway(err)
	}
	column := time.Now().Format("150405.000000")
	return n.editCRD(ctx, fmt.Sprintf(`[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},
		"additionalPrinterColumns":[{"name":%q,"type":"string","jsonPath":".spec.stamp"}]}]`, column+"-"+rv))
}

// fillDisk fills the checkpoint's file system for a time.
func (n *nemesis) fillDisk(ctx context.Context, r *chance) error {
	ballast := filepath.Join(n.disk, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		return ignoreAway(err) // the disk is already full
	}
	chunk := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(chunk)
	}
	r.wait(ctx, 2*time.Second)
	return errors.Join(f.Close(), os.Remove(ballast))
}

// serverFaults returns the faults of a whole API server with its etcd. No other seed may use that server.
func (n *nemesis) serverFaults() []fault {
	return []fault{
		{name: "API server kill -9, compaction", do: func(ctx context.Context, r *chance) error {
			if _, err := n.cluster.CompactEtcd(ctx); err != nil {
				return err
			}
			n.cluster.Kill()
			r.wait(ctx, time.Second)
			return n.cluster.Restart(ctx)
		}, once: true},
		{name: "API server restart", do: func(ctx context.Context, _ *chance) error { return n.cluster.Restart(ctx) }, once: true},
		{name: "API server frozen", do: func(ctx context.Context, r *chance) error {
			if err := n.cluster.Pause(); err != nil {
				return err
			}
			r.wait(ctx, 3*time.Second)
			return n.cluster.Resume()
		}},
		{name: "API answers held", do: connection("API", n.api)[2].do},
	}
}
