package bridge

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution"
	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// newInputs returns inputs of audit records, of which refused requests are published and changes wait for their records.
func newInputs(t *testing.T) (*attribution.Spec, *attribution.Inputs) {
	t.Helper()
	dir := t.TempDir()
	spec := &attribution.Spec{
		Path: filepath.Join(dir, "inbox"), Denied: true,
		Join: join.Options{Settle: time.Hour, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 100, MaxRequests: 100},
	}
	in, err := attribution.Open(attribution.Options{Spec: spec, Sinks: []string{"sink"}, Log: zap.NewNop()}, inbox.Options{MaxBytes: inbox.LeastMaxBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	in.ForgetNeeds(time.Now())
	return spec, in
}

// followsAudit lets the rig read audit records until the returned function is called.
func (r *rig) followsAudit(in *attribution.Inputs) (end func()) {
	ctx, stop := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.audit.Follow(ctx, in, r.loop) }()
	return func() {
		stop()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	}
}

// created is the record of the creation of a ConfigMap.
func created(name, version, user string) audit.Record {
	return audit.Record{
		ID: user, Stage: audit.Complete, Level: audit.RequestResponse, Verb: "create", Resource: "configmaps", Namespace: "a", Name: name, Code: 201,
		Answer:   &audit.Answer{Namespace: "a", Name: name, UID: "uid-" + name, Version: version},
		Received: time.Now(), Reached: time.Now(), Actor: audit.Actor{User: audit.User{Name: user}},
	}
}

// All reasons are in the status, so that metrics begin at 0.
func TestAttributionStatus(t *testing.T) {
	got := attributionStatus(attribute.New(attribute.Options{}).Counts(), false)
	if len(got.Candidates) != len(join.Reasons()) || got.Candidates[string(join.Several)] != 0 {
		t.Errorf("candidates %v", got.Candidates)
	}
	got = attributionStatus(attribute.Counts{Waiting: 1, Exact: 2, Candidates: map[join.Reason]uint64{join.Several: 3}, Unknown: 4, Dropped: 5}, false)
	want := status.Attribution{Waiting: 1, Exact: 2, NoRecord: 4, Dropped: 5}
	if got.Candidates["several"] != 3 || got.Waiting != want.Waiting || got.Exact != want.Exact || got.NoRecord != want.NoRecord || got.Dropped != want.Dropped {
		t.Errorf("got %+v", got)
	}
}

// A published change waits in the status until its record comes. Then it is counted as exact.
func TestAttributionFollowsAChange(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	spec, a := newInputs(t)
	r := newAuditedRig(t, &nowhere{}, store, CollectionOptions{}, spec)
	defer r.stop()
	defer r.followsAudit(a)()
	r.reads(append([]*reconcile.Input{{Kind: reconcile.ListBegun, Reason: source.ReasonSnapshot}}, listEnd("10")...)...)
	r.reads(watched(reconcile.Seen, "new", "11", "10"))
	r.shows("published", func(s status.Sink, _ status.Collection) bool {
		return s.Attribution != nil && s.Attribution.Waiting == 1 && s.Attribution.Exact == 0
	})
	if err := a.Append([]audit.Record{created("new", "11", "alice")}); err != nil {
		t.Fatal(err)
	}
	r.shows("attributed", func(s status.Sink, _ status.Collection) bool {
		return s.Attribution.Waiting == 0 && s.Attribution.Exact == 1
	})
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(NewCollector(func() status.Report {
		return status.Report{Audit: auditStatus(a.Status()), Sinks: []status.Sink{r.Status()}}
	}))
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	results := 0
	for _, f := range families {
		if f.GetName() == "kubebridge_attributions_total" {
			results = len(f.GetMetric())
		}
	}
	if want := len(join.Reasons()) + 4; results != want {
		t.Errorf("kubebridge_attributions_total has %d series, want %d", results, want)
	}
}
