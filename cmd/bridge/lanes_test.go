package main

import (
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/pipeline"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
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
    redact: [podEnv]
    drop: [status]
    filter: ns != "x"
    ignore: [leases]
    diff: both
    changedBy: true
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
					Redact: []shape.Rule{{Preset: shape.PodEnv, With: shape.WithHash}, {Paths: []string{"status"}, With: shape.WithRemove}},
					Filter: `ns != "x"`, Ignore: []string{"leases"},
					Before: true, Patch: true, ChangedBy: true,
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

// Where a sink can keep its checkpoint on its bus, it does; a directory is used
// where one is named and the guarantee allows it.
func TestWhereTheCheckpointIsKept(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text           string
		atOnce, loaded bool
	}{
		"exactly once":                  {"sinks: [{name: a, kafka: {brokers: ['k:9092']}}]", true, true},
		"at least once":                 {"sinks: [{name: a, kafka: {brokers: ['k:9092'], delivery: at-least-once}}]", false, true},
		"at least once, in a directory": {"sinks: [{name: a, kafka: {brokers: ['k:9092'], delivery: at-least-once}}]\ncheckpoint: {file: {path: " + dir + "}}", false, false},
		"exactly once, beside another":  {"sinks: [{name: b, kafka: {brokers: ['k:9092']}}, {name: c, stdout: {}}]\ncheckpoint: {file: {path: " + dir + "}}", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			conf, err := config.Parse("test", []byte("cluster: prod\nresources: [pods]\n"+c.text), nil)
			if err != nil {
				t.Fatal(err)
			}
			spec, err := laneSpec(conf, &conf.Sinks[0], zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			bus, store, _, err := spec.Open(event.Identity{Bridge: "kubebridge", Cluster: "prod", ClusterUID: "u", Sink: conf.Sinks[0].Name})
			if err != nil {
				t.Fatal(err)
			}
			defer store.(io.Closer).Close()
			_, atOnce := bus.(sink.Transactional)
			_, loaded := store.(checkpoint.Loader)
			if atOnce != c.atOnce || loaded != c.loaded {
				t.Errorf("transactions: %t, read from the bus: %t, want %t, %t", atOnce, loaded, c.atOnce, c.loaded)
			}
		})
	}
}
