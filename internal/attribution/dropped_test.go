package attribution

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// slowBus is a bus that accepts all batches. A write can be made to wait.
type slowBus struct {
	nowhere
	mu      sync.Mutex
	stuck   chan struct{} // closed when a write waits; nil: writes do not wait
	goOn    chan struct{} // closed when it may end
	waiting []string      // keys of changes that wait, which a reader of the bus would have
}

func (b *slowBus) Write(_ context.Context, batch *event.Batch) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stuck != nil {
		close(b.stuck)
		b.stuck = nil
		<-b.goOn
	}
	for _, r := range batch.Records {
		for _, kv := range r.State {
			if bytes.HasPrefix(kv.Key, []byte("a/")) && kv.Value != nil {
				b.waiting = append(b.waiting, string(kv.Key))
			}
		}
	}
	return []byte("1"), nil
}

// logs is embedded in a bus that is to be in the mode Log.
type logs struct{}

func (logs) Tail(context.Context, []byte, func([]event.KV, []byte) error) error { return nil }

func (logs) Mark() []byte { return []byte("1") }

// slowLog is slowBus in the mode Log.
type slowLog struct {
	slowBus
	logs
}

// slowTransactions is slowBus in the mode Transaction.
type slowTransactions struct{ slowBus }

func (*slowTransactions) Commit(context.Context, uint64, []event.KV) error { return nil }

// A change on which there is a verdict, and about which nothing is published, leaves the checkpoint also if its own event is not committed yet. If it
// stayed there, it would wait again after each restart, and later requests would count as its candidates.
func TestDroppedChangesDoNotStay(t *testing.T) {
	intents, inLog, inTransactions := &slowBus{}, &slowLog{}, &slowTransactions{}
	for _, x := range []struct {
		mode string
		to   sink.Sink
		bus  *slowBus
	}{
		{"intents", intents, intents},
		{"log", inLog, &inLog.slowBus},
		{"transaction", inTransactions, &inTransactions.slowBus},
	} {
		t.Run(x.mode, func(t *testing.T) {
			store, err := file.OpenMem(identity)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			a := newInputs(t, nil)
			a.spec.Join = join.Options{Settle: time.Millisecond, Keep: time.Millisecond, MaxOpen: time.Minute, MaxChanges: 100, MaxRequests: 100}
			r := newRig(t, x.to, store, a.spec, configMaps)
			defer r.stop()
			defer r.followsAudit(a)()
			r.snapshot("10")
			r.shows("the snapshot", func(s shown) bool { return s.Objects == 0 })
			stuck := make(chan struct{})
			x.bus.mu.Lock()
			x.bus.stuck, x.bus.goOn = stuck, make(chan struct{})
			x.bus.mu.Unlock()
			r.reads(watched("first", "11", "10"))
			<-stuck
			r.reads(watched("second", "12", "11"))
			r.shows("there is no record", func(s shown) bool {
				a.hasRead(fromFile, time.Now())
				return s.Waiting == 0 && s.NoRecord == 2
			})
			close(x.bus.goOn)
			r.shows("both are committed", func(s shown) bool { return s.Objects == 2 })
			await(t, "changes stay in the checkpoint", func() bool {
				n := 0
				err := store.Scan([]byte("a/"), func(_, _ []byte) error { n++; return nil })
				return err == nil && n == 0
			})
			x.bus.mu.Lock()
			defer x.bus.mu.Unlock()
			if n := len(x.bus.waiting); x.mode == "log" && n > 1 || x.mode != "log" && n > 0 {
				t.Errorf("readers of the bus would have %q", x.bus.waiting)
			}
		})
	}
}
