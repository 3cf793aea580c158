package attribution

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// losesAll is a bus that accepts batches, until it does not answer. Then it loses all messages.
type losesAll struct {
	nowhere
	mu     sync.Mutex
	stuck  chan struct{} // closed when a write does not answer; nil: writes answer
	loses  chan struct{} // closed when the bus loses all messages
	lost   int           // losses of records that were published
	denied int           // refused requests that were published
}

func (b *losesAll) Write(_ context.Context, batch *event.Batch) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stuck != nil {
		close(b.stuck)
		b.stuck = nil
		<-b.loses
		return nil, fmt.Errorf("%w: the stream is empty", sink.ErrReset)
	}
	for _, r := range batch.Records {
		if r.Event != nil && r.Event.Type == event.Denied {
			b.denied++
		}
		if r.Event != nil && r.Event.Loss != nil && r.Key == "" {
			b.lost++
		}
	}
	return nil, nil
}

// losesLog is losesAll in the mode Log.
type losesLog struct {
	losesAll
	logs
}

// Refused requests and losses that are read while the bus does not answer are published once if the bus then loses all messages: the reset may not
// commit that their records were read without them.
func TestResetKeepsRefusedRequests(t *testing.T) {
	for _, log := range []bool{false, true} {
		store, err := file.OpenMem(identity)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		a := newInputs(t, nil)
		a.spec.Denied, a.spec.Join = true, patient
		inLog := &losesLog{}
		bus := &inLog.losesAll
		var to sink.Sink = bus
		if log {
			to = inLog
		}
		r := newRig(t, to, store, a.spec, configMaps)
		end := r.followsAudit(a)
		r.snapshot("10")
		r.shows("the snapshot", func(s shown) bool { return s.Objects == 0 })
		stuck := make(chan struct{})
		bus.mu.Lock()
		bus.stuck, bus.loses = stuck, make(chan struct{})
		bus.mu.Unlock()
		r.reads(watched("new", "11", "10"))
		<-stuck
		denied := created("x", "", "carol")
		denied.Code, denied.Decision, denied.Answer = 403, "forbid", nil
		if err := a.Append([]audit.Record{denied, {ID: "lost", Lost: newLoss(time.Time{}, "lost")}}); err != nil {
			t.Fatal(err)
		}
		r.shows("what is read waits", func(s shown) bool {
			return s.DeniedWaiting == 2
		})
		end() // the reader continues when the next batch is committed
		close(bus.loses)
		r.snapshot("10")
		await(t, "it is not committed that the records were read", func() bool {
			text, err := store.Get([]byte("n/audit"))
			if err != nil || text == nil {
				return false
			}
			at, err := decodePosition(text)
			return err == nil && at.Taken == 2
		})
		end = r.followsAudit(a)
		r.shows("the refused request", func(s shown) bool {
			return s.DeniedWaiting == 0 && s.Denied == 1
		})
		end()
		r.stop()
		if bus.denied != 1 || bus.lost != 1 {
			t.Errorf("mode Log %v: %d refused requests and %d losses are published, want 1 of each", log, bus.denied, bus.lost)
		}
	}
}
