package attribution

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// refusesUsers is a bus that refuses the route of events that say who made a change.
type refusesUsers struct {
	nowhere
	mu       sync.Mutex
	accepts  bool
	accepted []string // users
	losses   int      // that were published
}

func (b *refusesUsers) Write(_ context.Context, batch *event.Batch) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range batch.Records {
		if r.Event != nil && r.Event.Loss != nil && r.Key == "" {
			b.losses++
		}
		if r.Event == nil || r.Event.Type != event.Attributed {
			continue
		}
		if !b.accepts {
			return nil, &sink.RouteError{Route: r.Route, Index: i, Err: errors.New("no write access")}
		}
		b.accepted = append(b.accepted, r.Event.Attribution.Request.User.Name)
	}
	return nil, nil
}

// While the bus refuses a route, the records of its changes do not stay in audit.path. After a restart, which reads none of them, the events have the
// users.
func TestSuspendedRouteNeedsNoRecords(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	a := newInputs(t, nil)
	a.spec.Join = patient
	bus := &refusesUsers{}
	run := func(do func(r *rig)) {
		t.Helper()
		r := newRig(t, bus, store, a.spec, configMaps)
		end := r.followsAudit(a)
		do(r)
		end()
		r.stop()
	}
	run(func(r *rig) {
		r.snapshot("10")
		r.reads(watched("new", "11", "10"))
		r.shows("published", func(s shown) bool {
			return s.Waiting == 1
		})
		if err := a.Append([]audit.Record{created("new", "11", "alice")}); err != nil {
			t.Fatal(err)
		}
		for deadline := time.After(endsHang); ; {
			var at storedPosition
			text, err := store.Get([]byte("n/audit"))
			if err == nil && text != nil {
				at, err = decodePosition(text)
			}
			if err != nil {
				t.Fatal(err)
			}
			if at.Number == a.inbox.Last() {
				return
			}
			select {
			case <-time.After(time.Millisecond):
			case <-deadline:
				t.Fatalf("the position is %+v: the record of the change is needed", at)
			}
		}
	})
	bus.mu.Lock()
	bus.accepts = true
	bus.mu.Unlock()
	run(func(r *rig) {
		r.shows("attributed", func(s shown) bool { return s.Exact == 1 })
	})
	if len(bus.accepted) != 1 || bus.accepted[0] != "alice" {
		t.Errorf("published are the users %q", bus.accepted)
	}
}
