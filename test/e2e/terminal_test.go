package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// printed waits until a program has printed an event, as uid:resourceversion:type, and returns all that it has printed.
func (w *world) printed(p *bridge.Process, event string) []string {
	w.t.Helper()
	ctx := w.soon()
	for {
		var events []string
		for line := range strings.Lines(p.Output()) {
			if !strings.HasSuffix(line, "\n") {
				break
			}
			var e struct{ ID, UID, ResourceVersion, Type string }
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.ID == "" {
				w.t.Fatalf("not an event: %q (%v)", line, err)
			}
			if kind, ok := strings.CutPrefix(e.Type, "io.kubebridge.resource."); ok {
				events = append(events, e.UID+":"+e.ResourceVersion+":"+strings.TrimSuffix(kind, ".v1"))
			} else {
				events = append(events, e.Type)
			}
		}
		if slices.Contains(events, event) {
			return events
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			w.t.Fatalf("%v: waiting for %s to be printed:\n%s", context.Cause(ctx), event, p.Output())
		}
	}
}

// With a stdout sink there is one line per event, and after a restart only new events.
func TestStandardOutput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	w.config.Sinks = []bridge.Sink{{Name: "pipe", Stdout: map[string]any{"format": "json"}}}
	uid, rv := w.create(kube.ConfigMaps, "o")
	w.start()
	w.printed(w.bridge, uid+":"+rv+":present")
	w.stop()
	_, rv = w.patch(kube.ConfigMaps, "o", "while down")
	w.start()
	if got, want := w.printed(w.bridge, uid+":"+rv+":modified"), []string{uid + ":" + rv + ":modified"}; !slices.Equal(got, want) {
		t.Errorf("after the restart it printed %q, want %q", got, want)
	}
	w.stop()
}

// `bridge tail` needs no configuration and leaves no files.
func TestTail(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	uid, listed := w.create(kube.ConfigMaps, "o")
	p := w.launch("tail", "cm", "-n", w.ns, "--kubeconfig", w.cluster.Kubeconfig(), "-o", "json")
	w.printed(p, uid+":"+listed+":present")
	_, rv := w.patch(kube.ConfigMaps, "o", "live")
	w.printed(p, uid+":"+rv+":modified")
	w.delete(kube.ConfigMaps, "o")
	w.printed(p, uid+":"+rv+":deleted")
	p.Signal(syscall.SIGTERM)
	w.exits(p, 0)
}

// `bridge tail` ends with an error if a resource cannot be read, instead of waiting for permissions.
func TestTailRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"cm", "--field-selector", "data.colour=red"}, "does not support this selector"},
		{[]string{"cm", "gadgets.nowhere.io"}, "gadgets.nowhere.io"},
		{[]string{"cm", "-l", "a in ("}, "does not parse"},
	} {
		p := w.launch(append([]string{"tail", "-n", w.ns, "--kubeconfig", w.cluster.Kubeconfig()}, test.args...)...)
		w.exits(p, 3)
		if !strings.Contains(p.Log(), test.says) {
			t.Errorf("%q: it says %s", test.args, p.Log())
		}
	}
}
