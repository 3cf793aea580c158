package bridge

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	planning "github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// attributed is a bus that keeps what audit records lead to.
type attributed struct {
	nowhere
	mu       sync.Mutex
	accepted []string // users of changes
	losses   int
}

func (b *attributed) Write(_ context.Context, batch *event.Batch) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range batch.Records {
		switch e := r.Event; {
		case e == nil:
		case e.Loss != nil && r.Key == "":
			b.losses++
		case e.Type == event.Attributed:
			b.accepted = append(b.accepted, e.Attribution.Request.User.Name)
		}
	}
	return nil, nil
}

// After a restart, the first plan may not be able to name a collection of the checkpoint, for example because namespaces cannot be listed. Audit records
// that are read meanwhile explain the changes that the collection publishes later, refused requests and losses wait, and nothing is published about the collection,
// since its settings are not known.
func TestRecordsOfUnnamedCollections(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	spec, a := newInputs(t)
	bus := &attributed{}
	read := func(r *rig, collections int, is func(a *status.Attribution) bool) {
		t.Helper()
		r.showsSink("records are read", func(s status.Sink) bool {
			return len(s.Collections) == collections && s.Attribution != nil && is(s.Attribution)
		})
	}
	run := func(do func(r *rig)) {
		t.Helper()
		r := newUnplannedRig(t, bus, store, spec)
		defer r.stop()
		defer r.followsAudit(a)()
		do(r)
	}
	run(func(r *rig) {
		r.set(CollectionOptions{})
		r.reads(append([]*reconcile.Input{{Kind: reconcile.ListBegun, Reason: source.ReasonSnapshot}}, listEnd("10")...)...)
		r.reads(watched(reconcile.Seen, "before", "11", "10"))
		read(r, 1, func(a *status.Attribution) bool { return a.Waiting == 1 })
	})
	run(func(r *rig) {
		known, err := r.known(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		made := &planning.Plan{}
		if err := r.apply(t.Context(), made, made.Outcomes(known, nil), known); err != nil {
			t.Fatal(err)
		}
		denied := created("x", "", "carol")
		denied.Code, denied.Decision, denied.Answer = 403, "forbid", nil
		if err := a.Append([]audit.Record{created("before", "11", "alice"), created("after", "12", "bob"), denied, {ID: "lost", Lost: &audit.Loss{Until: time.Now(), Detail: "lost"}}}); err != nil {
			t.Fatal(err)
		}
		read(r, 0, func(a *status.Attribution) bool { return a.DeniedWaiting == 2 })
		bus.mu.Lock()
		if len(bus.accepted) > 0 {
			t.Errorf("published is %q before a plan has named the collection", bus.accepted)
		}
		bus.mu.Unlock()
		r.set(CollectionOptions{})
		r.reads(watched(reconcile.Seen, "after", "12", "11"))
		read(r, 1, func(a *status.Attribution) bool {
			return a.Waiting == 0 && a.Exact == 2 && a.DeniedWaiting == 0 && a.Denied["published"] == 1
		})
		bus.mu.Lock()
		defer bus.mu.Unlock()
		if bus.losses != 1 {
			t.Errorf("%d losses are published, want 1", bus.losses)
		}
	})
}

// What was recorded of a collection waits until a plan has named it: the recordings of collections that nobody wants are deleted some minutes after
// that.
func TestNameLater(t *testing.T) {
	p := newPipeline(pipelineOptions{Identity: identity, Sink: &nowhere{}, Log: zap.NewNop(), Metrics: NewMetrics(prometheus.NewRegistry())})
	known := []planning.Known{{ID: "pods@a", Storage: "core"}, {ID: "gadgets.example.com@b", Storage: "crds"}, {ID: "jobs.batch"}}
	p.setTarget("pods@a", target{selection: "s"})
	if p.nameLater(known, []string{"pods@a", "gadgets.example.com@b"}) {
		t.Error("all collections are named, before a plan has named one of them")
	}
	if !p.nameLater(known, []string{"pods@a"}) {
		t.Error("not all collections are named, although the plan has the last one")
	}
	p.setTarget("gadgets.example.com@b", target{selection: "s"})
	if !p.nameLater(known, []string{"pods@a", "gadgets.example.com@b"}) {
		t.Error("not all collections are named, after plans have named all")
	}
}
