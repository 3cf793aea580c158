package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
	"github.com/kubebridge/kubebridge/test/hostiletest"
)

// tenantFor is how long changes of others are timed, each time.
var tenantFor = flag.Duration("tenant.for", 0, "time others' changes without the tenant, beside its ordinary objects, and beside its hostile ones, for so long each")

const (
	hostileSize  = 200 << 10       // bytes of a state
	hostileEvery = 2 * time.Second // between two of its updates
)

// A tenant that may write in one namespace sends the most costly objects that are known. All changes of others are published, the
// liveness probe is always answered, and the tenant's own changes are published, too.
func TestHostileTenant(t *testing.T) {
	if *tenantFor == 0 {
		t.Parallel()
	}
	w := newWorld(t, options{})
	w.install()
	tenant := w.kube.In(w.namespace())
	w.config.Resources = []bridge.Resource{{
		Resource: w.widgets.ResourceID(), Diff: "patch", ChangedBy: true, Ignore: []string{"metadata.annotations.ignored"},
		Filter: `!has(object.spec.items) || !object.spec.items.exists(i, i == "nothing")`,
	}}
	w.start()
	_, err := w.kube.Create(w.soon(), w.widgets, "quiet", sample(w.widgets, "created"))
	w.must(err)
	var ordinary time.Duration
	if *tenantFor > 0 {
		w.latency(*tenantFor, "without the tenant")
		ordinary = w.besideOrdinary(tenant)
	}

	end := make(chan struct{})
	var beside sync.WaitGroup
	stop := sync.OnceFunc(func() { close(end); beside.Wait() })
	t.Cleanup(stop)
	beside.Go(func() { w.alive(end) })
	var last []string // UID and last resourceVersion of each hostile object
	var hostile sync.WaitGroup
	hostile.Go(func() { last = w.write(tenant, "hostile", hostiletest.Changes(hostileSize)) })
	if *tenantFor > 0 {
		if with := w.latency(*tenantFor, "beside its hostile objects"); with > 3*ordinary {
			t.Errorf("99 of 100 changes of others take up to %s beside hostile objects, and %s beside ordinary ones of the same size: want at most three times as long", with, ordinary)
		}
	}
	hostile.Wait()
	for range 10 {
		o, err := w.kube.Patch(w.soon(), w.widgets, "quiet", change(fmt.Sprint(time.Now().UnixNano())))
		w.must(err)
		w.published(string(o.GetUID()), o.GetResourceVersion())
	}
	for i := 0; i < len(last); i += 2 {
		w.published(last[i], last[i+1])
	}
	stop()
}

// besideOrdinary returns within what time 99 of 100 changes are on the bus while the tenant writes ordinary objects of the same size:
// see docs/adr/0024-a-hostile-object-and-an-ordinary-one.md.
func (w *world) besideOrdinary(tenant *kube.Client) time.Duration {
	w.t.Helper()
	var writing sync.WaitGroup
	writing.Go(func() {
		for begun, n := time.Now(), 0; time.Since(begun) < *tenantFor && w.t.Context().Err() == nil; n++ {
			w.write(tenant, fmt.Sprint("ordinary-", n), hostiletest.Large())
		}
	})
	took := w.latency(*tenantFor, "beside its ordinary objects")
	writing.Wait()
	return took
}

// write makes every change as an object of the tenant's, one after the other. It returns the UID and the last resourceVersion of each.
func (w *world) write(tenant *kube.Client, prefix string, changes []hostiletest.Change) (last []string) {
	for i, c := range changes {
		name := fmt.Sprint(prefix, "-", i)
		if _, err := tenant.Create(w.soon(), w.widgets, name, w.writable(c.Before)); err != nil {
			w.t.Errorf("%s: %v", c.Name, err)
			continue
		}
		o, err := tenant.Replace(w.soon(), w.widgets, name, w.writable(c.After))
		if err != nil {
			w.t.Errorf("%s: %v", c.Name, err)
			continue
		}
		last = append(last, string(o.GetUID()), o.GetResourceVersion())
		if *tenantFor > 0 {
			select {
			case <-time.After(hostileEvery):
			case <-w.t.Context().Done():
				return last
			}
		}
	}
	return last
}

// writable returns the fields that the tenant writes for a state of a widget.
func (w *world) writable(state []byte) kube.Fields {
	w.t.Helper()
	fields, err := hostiletest.Writable(state, w.widgets.GroupVersion().String())
	w.must(err)
	return fields
}

// alive checks the liveness probe until end is closed.
func (w *world) alive(end <-chan struct{}) {
	for {
		select {
		case <-end:
			return
		case <-time.After(500 * time.Millisecond):
		}
		code, body, err := w.bridge.Get(w.t.Context(), "/healthz")
		select {
		case <-end:
			return
		default:
		}
		if err != nil || code != http.StatusOK {
			w.t.Errorf("/healthz: %d %s, %v", code, body, err)
		}
	}
}

// latency changes an object ten times a second, and returns the 99th percentile of the time until a change is on the bus.
func (w *world) latency(d time.Duration, name string) time.Duration {
	w.t.Helper()
	var took []time.Duration
	for begun := time.Now(); time.Since(begun) < d; time.Sleep(100 * time.Millisecond) {
		at := time.Now()
		o, err := w.kube.Patch(w.soon(), w.widgets, "quiet", change(fmt.Sprint(at.UnixNano())))
		w.must(err)
		at = time.Now()
		_, err = w.log.Wait(w.soon(), func(all []bus.Message) bool { return holdsRV(all, o.GetResourceVersion()) })
		w.must(err)
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	w.t.Logf("%s: %d changes, half of them within %s, 99 of 100 within %s, all within %s", name, len(took), took[len(took)/2], p99, took[len(took)-1])
	return p99
}

func holdsRV(all []bus.Message, rv string) bool {
	return slices.ContainsFunc(all[max(0, len(all)-100):], func(m bus.Message) bool { return m.RV() == rv })
}
