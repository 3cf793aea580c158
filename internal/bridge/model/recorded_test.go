package model

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

// TestRecordedWhileNotServed: during an outage of the bus, the bridge is killed, and when it starts again the API server does not serve the resource. What
// was recorded before is published, each state once, before any gap.
func TestRecordedWhileNotServed(t *testing.T) {
	const recorded = "put 0 1 1 0\nsleep 1\nbus-stops 0\nput 0 2 1 0\nsecond\nsecond\nsecond\nput 0 1 1 0\nput 0 2 1 0\nput 1 1 1 0\nsecond\n"
	for name, then := range map[string]string{
		"the group is not known yet":    "kill\ngroup 0\nforget\nstart\nsleep 2\ngroup 1\nsleep 0\nbus-heals 0\nsettle",
		"the definition is deleted":     "crd-delete\nsecond\nkill\nstart\nsleep 2\nbus-heals 0\nsettle",
		"the bus is first":              "kill\ngroup 0\nforget\nstart\nbus-heals 0\nsleep 2\ngroup 1\nsettle",
		"a suspension ends meanwhile":   "refuse-route 0 0 0\nbus-heals 0\nsleep 0\ngroup 0\nforget\nsleep 1\nheal-routes 0\nsleep 2\ngroup 1\nsettle",
		"the bridge starts before that": "group 0\nsecond\nkill\nforget\nstart\nsleep 2\nkill\nstart\ngroup 1\nbus-heals 0\nsettle",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(&setup{page: 1000, buffer: ample, sinks: []sinkSetup{{}}}, nil)
				defer w.end()
				w.does(t, recorded+then)
				var got []string
				for _, m := range w.sinks[0].bus.messages {
					switch {
					case !m.ofCollection():
						got = append(got, m.short()+" "+m.Name)
					case m.short() == "gap" && len(got) > 0:
						got = append(got, "gap")
					}
				}
				want := []string{"added a", "modified a", "modified a", "modified a", "added a"}
				if !slices.Equal(got[:min(len(got), len(want))], want) {
					t.Errorf("got %q, want %q first", got, want)
				}
				if len(w.problems) > 0 {
					t.Error(fmt.Sprint(w.problems))
				}
			})
		})
	}
}

// TestRecordedOfAnotherCluster: during an outage of the bus, the bridge is started with another cluster, and then with its own again. It publishes what it
// has recorded of its own cluster, and nothing of the other one.
func TestRecordedOfAnotherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&setup{page: 1000, buffer: ample, sinks: []sinkSetup{{}}}, nil)
		defer w.end()
		w.does(t, "put 0 1 1 0\nsleep 1\nbus-stops 0\nput 0 2 1 0\nsecond\nsecond\nsecond\nput 0 1 1 0\nput 0 2 1 0\nsecond\nkill\nforget")
		own := w.api
		w.api = &server{cluster: newCluster(), uid: "-other", pageSize: 1000, held: map[string]int{}, sent: map[string]int{}, refusals: map[string]refusal{}, burst: 1, most: -1}
		w.sinks[0].away = true
		w.does(t, "start\nsleep 2\nkill")
		w.api, w.sinks[0].away = own, false
		w.does(t, "start\nsleep 1\nbus-heals 0\nsettle")
		var got []string
		for _, m := range w.sinks[0].bus.messages {
			if !m.ofCollection() {
				got = append(got, m.short())
			}
		}
		if want := []string{"added", "modified", "modified", "modified"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if len(w.problems) > 0 {
			t.Error(fmt.Sprint(w.problems))
		}
	})
}
