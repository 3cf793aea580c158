package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// A checkpoint tells by the clock of then when the last resync was: where that has been
// set back since, no resync would come for as long as it went wrong.
func TestResyncAfterTheClockWasSet(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			store := openMem(t)
			s := newScript(t, store)
			w := configMapsOf(event.Collection{})
			s.set([]Wanted{w}, nil)
			c := s.collection("configmaps", nil)
			one := objectAt("n", "1", "u1", "5", "")
			c.lists("", source.ReasonSnapshot, "10", one)
			s.told("configmaps:1:0:gap snapshot", "u1:5:added", "configmaps:1:10:synced snapshot")
			s.finish()
			s.forgetTold()
			note := checkpoint.EncodeNote(checkpoint.Note{Resynced: time.Now().Add(ahead)})
			if err := store.Commit(t.Context(), []event.KV{{Key: checkpoint.NoteKey("configmaps"), Value: note}}); err != nil {
				t.Fatal(err)
			}
			s.run()
			defer s.finish()
			w.Options.Resync = 10 * time.Millisecond
			s.listed, s.rv = []*source.Object{one}, "10"
			s.set([]Wanted{w}, nil)
			s.watching(s.collection("configmaps", c))
			s.await("a resync", func(id string) bool { return strings.HasPrefix(id, "configmaps:1:10:gap:") })
		})
	}
}

// Whatever becomes of the clock, what is old grows old.
func TestAged(t *testing.T) {
	now := time.Now()
	for stored, want := range map[time.Duration]time.Duration{-time.Hour: time.Hour, 0: 0, time.Hour: 0} {
		got := aged(now.Add(stored).Round(0), now)
		if old := now.Sub(got); old.Round(time.Millisecond) != want {
			t.Errorf("%s from now: %s old, want %s", stored, old, want)
		}
		if !strings.Contains(got.String(), " m=") {
			t.Errorf("%s from now: it is %s, by the wall clock alone", stored, got)
		}
	}
}
