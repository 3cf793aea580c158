package model

import (
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
			func(s *server) { s.down = true; s.mu.Unlock(); s.drop(); s.mu.Lock() },
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
