package attribution

import (
	"testing"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
)

// A change whose collection was removed from the configuration does not wait without end for the publication of its user: its record could never leave
// audit.path, and its entry never the checkpoint.
func TestClosedCollectionWaitsForNobody(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	a := newInputs(t, nil)
	a.spec.Join = patient
	r := newRig(t, new(nowhere), store, a.spec, configMaps)
	defer r.stop()
	defer r.followsAudit(a)()
	r.snapshot("10")
	r.reads(watched("new", "11", "10"))
	r.shows("published", func(s shown) bool { return s.Waiting == 1 })
	if err := r.loop.Set(t.Context(), loop.Plan{Outcomes: &plan.Outcomes{Removed: []string{configMaps.ID()}}}); err != nil {
		t.Fatal(err)
	}
	r.shows("closed", func(s shown) bool { return s.Objects <= 0 })
	if err := a.Append([]audit.Record{created("new", "11", "alice")}); err != nil {
		t.Fatal(err)
	}
	r.shows("dropped", func(s shown) bool { return s.Waiting == 0 })
}
