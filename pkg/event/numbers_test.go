package event_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// A consumer reads the runs, incarnations and plans that the encoder writes.
func TestNumbers(t *testing.T) {
	col := &event.Collection{Group: "apps", Resource: "deployments", Entry: "canary", Namespace: "shop"}
	encoder := event.Encoder{Cluster: "prod", ClusterUID: "uid"}
	now := time.Date(2026, 3, 14, 9, 26, 0, 0, time.UTC)
	object := event.Event{
		Origin: event.Watch, Time: now, Collection: col, Epoch: 1, APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "u-1",
		ResourceVersion: "1041", Run: "1790000000000", Incarnation: 1780000000000, Object: []byte(`{"kind":"Deployment"}`),
	}
	report := event.Event{
		Origin: event.Reconcile, Time: now, Collection: col, Epoch: 1, ResourceVersion: "1041", Run: "1790000000000", Incarnation: 1780000000000,
		Plan: &event.Plan{Number: 7, Digest: "0123456789abcdef", Edit: 5, Birth: 1770000000000}, Report: &event.Report{Reason: "expired"},
	}
	of := func(e event.Event, change func(e *event.Event)) *event.Event {
		change(&e)
		return &e
	}
	for id, e := range map[string]*event.Event{
		"deployments.apps:canary@shop:1790000000000:u-1:1041:added": of(object, func(e *event.Event) { e.Type = event.Added }),
		"deployments.apps:canary@shop:1790000000000:u-1:1041:deleted": of(object, func(e *event.Event) {
			e.Type, e.DeletionVersion, e.Reason = event.Deleted, "1050", "unknown"
		}),
		"deployments.apps:canary@shop:1790000000000:gap":      of(report, func(e *event.Event) { e.Type = event.Gap }),
		"deployments.apps:canary@shop:1790000000000:2:synced": of(report, func(e *event.Event) { e.Type, e.Nth = event.Synced, 2 }),
		"deployments.apps:canary@shop:1790000000000:closed":   of(report, func(e *event.Event) { e.Type = event.Closed }),
	} {
		t.Run(id, func(t *testing.T) {
			got, err := event.Parse(event.Structured.Append(nil, encoder.Attributes(e), e))
			if err != nil {
				t.Fatal(err)
			}
			if got.ID != id {
				t.Errorf("the ID is %q, want %q", got.ID, id)
			}
			type numbers struct {
				Run, Incarnation                                    uint64
				Entry, DeletionVersion, Collection, Reason, Version string
				Plan                                                *event.Plan
			}
			want := numbers{1790000000000, 1780000000000, "canary", e.DeletionVersion, "deployments.apps:canary@shop", e.Reason, "1041", e.Plan}
			if diff := cmp.Diff(want, numbers{got.Run, got.Incarnation, got.Entry, got.DeletionVersion, got.Collection, got.Reason, got.ResourceVersion, got.Plan}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The digest is part of the contract: consumers compute it.
func TestPlanDigest(t *testing.T) {
	if got, want := event.PlanDigest(map[string]uint64{"pods:b": 7, "pods:a": 5}), "db2b0e748747026a"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
