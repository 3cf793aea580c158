package model

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

// TestRecordedBeforeAResync: a resync is due during an outage of the bus, and it is not known whether the bus has its gap. The position before it is
// valid, so what was recorded from there is published, each state once. Otherwise a gap would declare states lost that the disk buffer has.
func TestRecordedBeforeAResync(t *testing.T) {
	const recorded = "put 0 1 1 0\nsleep 1\nbus-stops 0\nput 0 2 1 0\nsecond\nsecond\nsecond\nput 0 1 1 0\nput 0 2 1 0\nput 1 1 1 0\nsecond\nresync 0\nsecond\nsecond\n"
	for name, then := range map[string]string{
		"killed":            "crash-before-write 0 1\nbus-heals 0\nsecond\nsecond\nforget\nstart\nsettle",
		"a rejected record": "forget\nrefuse-record 0 1\nbus-heals 0\nsettle",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(&setup{page: 1000, buffer: ample, sinks: []sinkSetup{{mode: intents}}}, nil)
				defer w.end()
				w.does(t, recorded+then)
				var got []string
				for _, m := range w.sinks[0].bus.messages {
					text := fmt.Sprint(m.short(), " ", m.Name, " ", m.Version)
					repeated := slices.Contains(got, text) // in this mode, events may be repeated
					lists := m.short() == "gap" && m.Data.Reason != "resync" && !m.Data.Reset
					if lists || !m.ofCollection() && !repeated {
						got = append(got, text)
					}
				}
				want := []string{"added a 13", "modified a 14", "modified a 15", "modified a 16", "added a 17"}
				if !slices.Equal(got[:min(len(got), len(want))], want) {
					t.Errorf("got %q, want %q first", got, want)
				}
				for _, p := range w.problems {
					t.Errorf("%s: %s", p.invariant, p.text)
				}
			})
		})
	}
}
