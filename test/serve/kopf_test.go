package serve

import (
	"encoding/json"
	"fmt"
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

// handled returns the events that the operator's handlers had, by object.
func (w *world) handled(p *process) map[string][]string {
	w.t.Helper()
	out := map[string][]string{}
	for line := range strings.Lines(p.output()) {
		text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "seen ")
		if !ok || !strings.HasSuffix(line, "\n") {
			continue
		}
		var event struct {
			Object struct {
				Kind     string
				Metadata struct{ Name, UID string }
			}
		}
		w.must(json.Unmarshal([]byte(text), &event))
		key := event.Object.Kind + " " + event.Object.Metadata.Name + " " + event.Object.Metadata.UID // kopf handles objects in parallel, also those of one name
		out[key] = append(out[key], text)
	}
	return out
}

// Operators written with kopf that only read must be able to read from `bridge serve`: their handlers have the same events, in the same order for
// each object, also over a kill of `bridge serve`.
func TestKopf(t *testing.T) {
	script := exec.CommandContext(t.Context(), filepath.Join("..", "..", "scripts", "python.sh"), "test/serve/kopf/requirements.txt")
	script.Stderr = os.Stderr
	path, err := script.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, streamed := range []bool{false, true} {
		t.Run(fmt.Sprintf("streamed=%t", streamed), func(t *testing.T) {
			w := newWorld(t)
			w.change(0)
			w.ready()
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			w.must(os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}], users: [{name: x, user: {}}], clusters: [{name: x, cluster: {server: %q}}]}`, w.url), 0o600))
			python := strings.TrimSpace(string(path))
			real, served := w.kopf(python, cluster.Kubeconfig(), streamed), w.kopf(python, kubeconfig, streamed)
			same := func(when string, atLeast int) {
				t.Helper()
				w.eventually("the handlers had the same events "+when+" (-API server +bridge serve)", func() string {
					want, n := w.handled(real), 0
					for _, events := range want {
						n += len(events)
					}
					if n < atLeast {
						return fmt.Sprintf("%d events only", n)
					}
					return cmp.Diff(want, w.handled(served))
				})
			}
			same("at first", 7)
			w.change(1)
			same("after changes", 26)
			w.kill()
			w.change(2)
			w.restart()
			same("after bridge serve was killed", 45)
		})
	}
}
