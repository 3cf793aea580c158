package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// Patches and authors of changes are right, also after a kill. Changes of ignored fields are not published, and
// an object that no longer passes the filter is published as deleted with the reason "left".
func TestWhatChanged(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{busKafka, busNATS} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{bus: kind})
			w.bridges(kube.ConfigMaps)
			r := &w.config.Resources[0]
			r.Diff, r.ChangedBy, r.Ignore, r.Filter = "both", true, []string{"data.noise"}, `object.data.?step.orValue("") != "hidden"`
			w.start()
			o, err := w.kube.Create(w.soon(), kube.ConfigMaps, "watched", kube.Fields{
				"data": map[string]any{"step": "1", "noise": "0", "rest": strings.Repeat("so much that data is not replaced as a whole", 10)},
			})
			w.must(err)
			uid, base := string(o.GetUID()), o.GetResourceVersion()
			w.published(uid, base)
			patch := func(body string) string {
				t.Helper()
				o, err := w.kube.Patch(w.soon(), kube.ConfigMaps, "watched", body)
				w.must(err)
				return o.GetResourceVersion()
			}
			change := func(step string) {
				t.Helper()
				patch(`{"data":{"noise":"` + step + `"}}`)
				rv := patch(`{"data":{"step":"` + step + `"}}`)
				all := about(w.published(uid, rv), uid)
				var m struct {
					Data struct {
						Base      string
						Before    struct{ Data map[string]string }
						Patch     []struct{ Op, Path string }
						ChangedBy []struct {
							Manager string
							Paths   []string
						} `json:"changedby"`
					}
				}
				w.must(json.Unmarshal(all[len(all)-1].Raw, &m))
				d, paths := m.Data, ""
				for _, op := range d.Patch {
					paths += op.Path + " "
				}
				if d.Base != base || !strings.Contains(paths, "/data/step ") || d.Before.Data["step"] == step || len(d.ChangedBy) != 1 ||
					!strings.Contains(strings.Join(d.ChangedBy[0].Paths, " "), "data.step") {
					t.Errorf("after %s: %s", base, all[len(all)-1].Raw)
				}
				base = rv
			}
			change("2")
			w.committed() // former bodies are only in the checkpoint, so the body must be committed before the kill
			w.bridge.Kill()
			patch(`{"data":{"noise":"while it was down"}}`)
			w.start()
			change("3")
			patch(`{"data":{"step":"hidden"}}`)
			all := w.onBus("that it left", func(all []bus.Message) bool {
				mine := about(all, uid)
				return mine[len(mine)-1].Data.Reason == "left"
			})
			types := ""
			for _, m := range about(all, uid) {
				types += strings.TrimSuffix(strings.TrimPrefix(m.Attributes["type"], "io.kubebridge.resource."), ".v1") + " "
			}
			if types != "added modified modified deleted " {
				t.Errorf("published %s", types)
			}
		})
	}
}
