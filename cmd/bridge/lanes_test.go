package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/pipeline"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// An option that is checked but never reaches the lane would be one that silently
// does nothing.
func TestEveryOptionReachesTheLane(t *testing.T) {
	c, err := config.Parse("test", []byte(`cluster: prod
resources:
  - "*.apps"
  - resource: pods
    namespaceSelector: env=prod
    excludeNamespaces: [kube-system]
    labelSelector: audit=true
    fieldSelector: spec.nodeName=n1
    metadataOnly: true
    snapshot: skip
    types: [deleted, added]
    syncedEvery: 30s
    resync: 24h
    verifyEvery: 6h
    required: true
  - {group: batch, version: v1, resource: jobs, namespaces: [a, b]}
  - events
exclude: [deployments.apps]
checkpoint: {file: {path: /cp}}
sinks:
  - {name: all, stdout: {}}
  - {name: own, stdout: {}, resources: [nodes]}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	exclude := []string{"deployments.apps"}
	want := []pipeline.LaneResources{
		{Sink: "all", Exclude: exclude, Resources: []pipeline.ResourceSpec{
			{Name: "*.apps"},
			{
				Name: "pods", NamespaceSelector: "env=prod", ExcludeNamespaces: []string{"kube-system"},
				LabelSelector: "audit=true", FieldSelector: "spec.nodeName=n1", MetadataOnly: true, Required: true,
				CollectionOptions: pipeline.CollectionOptions{
					SkipSnapshot: true, Types: []event.Type{event.Added, event.Deleted},
					SyncedEvery: 30 * time.Second, Resync: 24 * time.Hour, VerifyEvery: 6 * time.Hour,
				},
			},
			{Name: "jobs.v1.batch", Namespaces: []string{"a", "b"}},
			{Name: "events"},
		}},
		{Sink: "own", Exclude: exclude, Resources: []pipeline.ResourceSpec{{Name: "nodes"}}},
	}
	var got []pipeline.LaneResources
	for i := range c.Sinks {
		got = append(got, laneResources(c, &c.Sinks[i]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
