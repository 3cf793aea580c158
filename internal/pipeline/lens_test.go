package pipeline

import (
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// bodies are the objects that were told, by id.
func (s *script) bodies() map[string]string {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	out := map[string]string{}
	for _, r := range s.bus.records {
		out[r.ID] = string(r.Event.Object)
	}
	return out
}

func optioned(o CollectionOptions) Wanted {
	w := configMapsOf(event.Collection{})
	w.Options = o
	return w
}

// TestOtherValuesAreHidden: what was told with other rules is no longer what would
// be told, so that collection is reset, and told again as the rules now say, whether
// they change while it runs or between two runs; no other collection is, and nothing
// is told again at the next start.
func TestOtherValuesAreHidden(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(map[bool]string{true: "restarted", false: "running"}[restart], func(t *testing.T) {
			s := newScript(t, openMem(t))
			defer func() { s.finish() }()
			s.set([]Wanted{optioned(CollectionOptions{})}, nil)
			first := s.collection("configmaps", nil)
			first.lists("", source.ReasonSnapshot, "10", objectAt("n", "a", "u", "5", "planted"))
			s.told("configmaps:1:0:gap snapshot", "u:5:added", "configmaps:1:10:synced snapshot")
			if !strings.Contains(s.bodies()["u:5:added"], "planted") {
				t.Fatal("nothing to hide yet")
			}
			s.forgetTold()
			if restart {
				s.finish()
				s.run()
			}
			hidden := optioned(CollectionOptions{Redact: []shape.Rule{{Paths: []string{"data.*"}}}})
			s.set([]Wanted{hidden}, nil)
			next := s.collection("configmaps", first)
			if next.from.Resumable() {
				t.Fatalf("resumes from %+v", next.from)
			}
			next.lists("", source.ReasonInterrupted, "11", objectAt("n", "a", "u", "5", "planted"))
			s.await("the reset", func(id string) bool { return strings.Contains(id, ":gap:") })
			run := s.runOf("gap")
			s.told("configmaps:1:0:gap:"+run+" reset", "u:5:present:"+run, "configmaps:1:11:synced:"+run+" reset")
			if body := s.bodies()["u:5:present:"+run]; strings.Contains(body, "planted") || !strings.Contains(body, "redacted") {
				t.Errorf("told %s", body)
			}
			s.bus.mu.Lock()
			if !s.bus.records[0].Event.Report.Reset {
				t.Error("consumers are not told to drop their copy")
			}
			s.bus.mu.Unlock()
			s.finish()
			s.run()
			s.set([]Wanted{hidden}, nil)
			if again := s.collection("configmaps", next); !again.from.Resumable() {
				t.Errorf("the next start begins from %+v", again.from)
			}
		})
	}
}
