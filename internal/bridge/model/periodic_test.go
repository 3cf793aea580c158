package model

import (
	"encoding/json"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// A periodic synced event says that the collection is complete up to its time. While the API server is away, or denies lists and watches, the bridge
// does not know that.
func TestNoPeriodicSyncedWithoutTheServer(t *testing.T) {
	for name, c := range map[string]struct{ leave, heal func(s *server) }{
		"denied": {
			func(s *server) { s.denied = 403; s.mu.Unlock(); s.cut(io.EOF); s.mu.Lock() },
			func(s *server) { s.denied = 0 },
		},
		"away": {
			func(s *server) { s.down = true; s.mu.Unlock(); s.drop(); s.cut(io.ErrUnexpectedEOF); s.mu.Lock() },
			func(s *server) { s.down = false },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newEditWorld(t, log, unedited(func(e *edited) { e.options.SyncedEvery = time.Second }))
				change := func(f func(s *server)) {
					w.api.mu.Lock()
					defer w.api.mu.Unlock()
					f(w.api)
				}
				periodicIn := func(d time.Duration) (n int) {
					before := len(w.sink.bus.messages)
					w.sleep(d)
					for _, m := range w.sink.bus.messages[before:] {
						if m.short() == "synced" && m.Data.Reason == string(event.ReasonPeriodic) {
							n++
						}
					}
					return n
				}
				if n := periodicIn(10 * time.Minute); n < 9 {
					t.Errorf("%d periodic synced events in ten minutes, want one for each bookmark", n)
				}
				change(c.leave)
				w.pump()
				periodicIn(2 * time.Second) // one may be due
				if n := periodicIn(30 * time.Minute); n > 0 {
					t.Errorf("%d periodic synced events without the API server", n)
				}
				change(c.heal)
				if n := periodicIn(10 * time.Minute); n < 6 {
					t.Errorf("%d periodic synced events in the ten minutes after the API server is back", n)
				}
				w.end()
			})
		})
	}
}

// A sink that publishes from its disk buffer what is long ago does not know either what the API server has now.
func TestNoPeriodicSyncedFromTheBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&setup{page: 1000, buffer: ample, sinks: []sinkSetup{{}}}, nil)
		defer w.end()
		s := w.sinks[0]
		w.does(t, "put 0 1 1 0\nsleep 1")
		s.edited = unedited(func(e *edited) { e.options.SyncedEvery = time.Second })
		w.process.edit(s)
		w.does(t, "sleep 1\nbus-stops 0\nput 0 2 1 0\nsecond\nsecond\nsecond\nput 0 1 1 0\nput 0 2 1 0\nput 1 1 1 0\nsleep 2")
		w.api.mu.Lock()
		w.api.down = true
		w.api.mu.Unlock()
		w.api.drop()
		w.api.cut(io.ErrUnexpectedEOF)
		w.sleep(10 * time.Second) // a synced event may be due
		away := time.Now()
		w.sleep(30 * time.Minute)
		before := len(s.bus.messages)
		w.does(t, "bus-heals 0")
		w.sleep(30 * time.Minute)
		changes, periodic := 0, 0
		for _, m := range s.bus.messages[before:] {
			switch {
			case !m.ofCollection():
				changes++
			case m.short() == "synced" && m.Data.Reason == string(event.ReasonPeriodic) && timeOf(t, &m).After(away):
				periodic++
			}
		}
		if changes < 3 || periodic > 0 {
			t.Errorf("%d changes, and %d periodic synced events that claim to know what the API server has", changes, periodic)
		}
	})
}

func timeOf(t *testing.T, m *message) time.Time {
	var e struct{ Time time.Time }
	if err := json.Unmarshal(m.Value, &e); err != nil || e.Time.IsZero() {
		t.Fatalf("an event without a time: %s: %v", m.Value, err)
	}
	return e.Time
}
