package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kopf starts an operator that reads from the server of a kubeconfig.
func (w *world) kopf(python, kubeconfig string, streamed bool) *process {
	w.t.Helper()
	return w.startWith([]string{"KUBECONFIG=" + kubeconfig, fmt.Sprintf("STREAMED=%t", streamed), "PYTHONDONTWRITEBYTECODE=1"},
		python, "-m", "kopf", "run", "--standalone", "--namespace", w.ns, "--quiet", filepath.Join("kopf", "handlers.py"))
}

// handledEvent is an event that a handler had. Its type is "null" if kopf has listed the object.
type handledEvent struct{ Type, Version, Object string }

// handled returns the events that the operator's handlers had, by object, in order.
func (w *world) handled(p *process) map[string][]handledEvent {
	w.t.Helper()
	out := map[string][]handledEvent{}
	for line := range strings.Lines(p.output()) {
		text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "seen ")
		if !ok || !strings.HasSuffix(line, "\n") {
			continue
		}
		var event struct{ Type, Object json.RawMessage }
		w.must(json.Unmarshal([]byte(text), &event))
		var object struct {
			Kind     string
			Metadata struct{ Name, UID, ResourceVersion string }
		}
		w.must(json.Unmarshal(event.Object, &object))
		// kopf handles objects in parallel, also those of one name, and the events of one object one after another.
		key := object.Kind + " " + object.Metadata.Name + " " + object.Metadata.UID
		out[key] = append(out[key], handledEvent{strings.Trim(string(event.Type), `"`), object.Metadata.ResourceVersion, string(event.Object)})
	}
	return out
}

// relist returns the events of an operator that had those of before, then listed what exists after those of listed, and then had the rest of all.
func relist(before, listed, all map[string][]handledEvent) map[string][]handledEvent {
	out := map[string][]handledEvent{}
	for key, events := range all {
		n := len(listed[key])
		got := append([]handledEvent(nil), before[key]...)
		if n > 0 && events[n-1].Type != "DELETED" {
			last := events[n-1]
			last.Type = "null"
			got = append(got, last)
		}
		if got = append(got, events[n:]...); len(got) > 0 {
			out[key] = got
		}
	}
	return out
}

func count(events map[string][]handledEvent) (n int) {
	for of := range maps.Values(events) {
		n += len(of)
	}
	return n
}

// Operators written with kopf that only read must be able to read from `bridge serve`: their handlers have every creation, change and deletion of an
// object once, in order, also over a kill of `bridge serve`. Where changes may be missing, kopf lists again, and goes on.
func TestKopf(t *testing.T) {
	script := exec.CommandContext(t.Context(), filepath.Join("..", "..", "scripts", "python.sh"), "test/serve/kopf/requirements.txt")
	script.Stderr = os.Stderr
	path, err := script.Output()
	if err != nil {
		t.Fatal(err)
	}
	python := strings.TrimSpace(string(path))
	for _, streamed := range []bool{false, true} {
		t.Run(fmt.Sprintf("streamed=%t", streamed), func(t *testing.T) {
			w := newWorld(t)
			w.change(0)
			w.ready()
			real, served := w.kopf(python, cluster.Kubeconfig(), streamed), w.kopf(python, w.kubeconfig(w.url, "", ""), streamed)
			// same waits until the operator of the API server has handled as many events as there were, and that of bridge serve has handled what it should.
			same := func(when string, events int, want func(map[string][]handledEvent) map[string][]handledEvent) map[string][]handledEvent {
				t.Helper()
				var all map[string][]handledEvent
				w.eventually("the handlers had the same events "+when+" (-API server +bridge serve)", func() string {
					all = w.handled(real)
					if n := count(all); n != events {
						return fmt.Sprintf("at the API server they had %d events, want %d", n, events)
					}
					return cmp.Diff(want(all), w.handled(served))
				})
				return all
			}
			all := func(events map[string][]handledEvent) map[string][]handledEvent { return events }
			const objects, changes = 7, 19 // of w.change
			same("at first", objects, all)
			w.change(1)
			same("after changes", objects+changes, all)
			w.kill()
			w.change(2)
			w.restart()
			before := same("after bridge serve was killed", objects+2*changes, all)
			for key, events := range before {
				for i := 1; i < len(events); i++ {
					if events[i].Type != "MODIFIED" && events[i].Type != "DELETED" || events[i].Version == events[i-1].Version {
						t.Errorf("%s: event %d is %s of version %s after %s of version %s", key, i, events[i].Type, events[i].Version, events[i-1].Type, events[i-1].Version)
					}
				}
			}

			w.expire(func() { w.change(3) })
			listed := same("after a reset", objects+3*changes, func(events map[string][]handledEvent) map[string][]handledEvent {
				return relist(before, events, events)
			})
			w.change(4)
			same("after a reset and more changes", objects+4*changes, func(events map[string][]handledEvent) map[string][]handledEvent {
				return relist(before, listed, events)
			})
		})
	}
}
