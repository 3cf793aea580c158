package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// If a bridge is killed at any moment of a reconciliation, the bus has the state of the cluster in the end, and on NATS no event is repeated.
// TestKilledWhileComparing kills at chosen moments, this test at random ones: before the list, during it, or after its end.
func TestKilledAtRandomWhileComparing(t *testing.T) {
	t.Parallel()
	const kills, objects, changed = 15, 300, 200
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv(seedEnv); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", seedEnv, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, options{})
	w.install()
	w.bridges(w.widgets)
	// The objects are large, so that the difference takes several batches, and a kill can fall between two of them.
	large := kube.Fields{"spec": map[string]any{"pad": strings.Repeat("x", 40<<10)}}
	w.bulkOf(w.widgets, "o", objects, large)
	w.start()
	before := len(w.settle(w.widgets))
	w.stop()
	synced := before
	killed := map[string]int{}
	for round := range kills {
		if round == 0 || slices.ContainsFunc(w.since(synced), isSynced) { // otherwise the reconciliation is not complete yet
			synced = len(w.since(0))
			w.expire()
		}
		first := random.IntN(objects - changed)
		w.bulkPatch(w.widgets, "o", fmt.Sprint(round), first, first+changed)
		for i := range 10 {
			name := fmt.Sprintf("o-%d", first+i)
			w.delete(w.widgets, name)
			_, err := w.kube.Create(w.soon(), w.widgets, name, large)
			w.must(err)
		}
		had := len(w.since(0))
		w.run()
		if random.IntN(4) == 0 { // possibly before the first event
			time.Sleep(time.Duration(random.Int64N(int64(150 * time.Millisecond))))
		} else {
			wanted := 1 + random.IntN(changed)
			w.onBus("the point to kill at", func(all []bus.Message) bool {
				more := after(all, had)
				return len(more) >= wanted || slices.ContainsFunc(more, isSynced)
			})
		}
		w.bridge.Kill()
		switch more := w.since(had); {
		case len(more) == 0:
			killed["before the first word"]++
		case slices.ContainsFunc(more, isSynced):
			killed["after the end"]++
		default:
			killed["in the middle"]++
		}
	}
	t.Logf("killed %v", killed)
	if killed["in the middle"] < kills/3 {
		t.Errorf("only %d kills fell into a comparison", killed["in the middle"])
	}
	w.start()
	w.verify(check.Options{Types: []kube.Type{w.widgets}, Gap: true})
}
