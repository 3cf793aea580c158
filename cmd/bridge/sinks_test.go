package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/operate/recent"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// TestNoSpaceForTheHashKey: a bridge whose disk is full at its first start waits, as it does later.
func TestNoSpaceForTheHashKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := fmt.Errorf("hash key: %w", syscall.ENOSPC)
		calls := 0
		key, err := onceThereIsSpace(t.Context(), zaptest.NewLogger(t), func() ([]byte, error) {
			if calls++; calls < 4 {
				return nil, full
			}
			return []byte("key"), nil
		})
		if string(key) != "key" || err != nil || calls != 4 {
			t.Errorf("after %d calls the key is %q (%v)", calls, key, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := onceThereIsSpace(ctx, zaptest.NewLogger(t), func() ([]byte, error) { return nil, full }); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("at the end it returns %v", err)
		}
		other := errors.New("not allowed")
		if _, err := onceThereIsSpace(t.Context(), zaptest.NewLogger(t), func() ([]byte, error) { return nil, other }); !errors.Is(err, other) {
			t.Errorf("another error becomes %v", err)
		}
	})
}

// Every option of the configuration reaches the pipeline. Otherwise it would silently have
// no effect.
func TestEveryOptionReachesThePipeline(t *testing.T) {
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
  - {resource: pods, name: rest, labelSelector: audit!=true}
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
	exclude, plain := []string{"deployments.apps"}, bridge.CollectionOptions{}
	want := []bridge.SinkResources{
		{Sink: "all", Exclude: exclude, Entries: []plan.Entry{
			{Resource: "*.apps", Options: plain},
			{
				Resource: "pods", NamespaceSelector: "env=prod", ExcludeNamespaces: []string{"kube-system"},
				LabelSelector: "audit=true", FieldSelector: "spec.nodeName=n1", MetadataOnly: true, Required: true,
				Options: bridge.CollectionOptions{
					Settings: encode.Settings{
						SkipSnapshot: true, Types: []event.Type{event.Added, event.Deleted},
						Redact: []shape.Rule{{Preset: shape.PodEnv, With: shape.WithHash}, {Paths: []string{"status"}, With: shape.WithRemove}},
						Filter: `ns != "x"`, Ignore: []string{"leases"},
						Before: true, Patch: true, ChangedBy: true,
					},
					SyncedEvery: 30 * time.Second, ResyncEvery: 24 * time.Hour, VerifyEvery: 6 * time.Hour,
				},
			},
			{Resource: "pods", Name: "rest", LabelSelector: "audit!=true", Options: plain},
			{
				Resource: "jobs.v1.batch", Namespaces: []string{"a", "b"}, Options: plain,
				Meaning: discovery.NameOf(schema.GroupResource{Group: "batch", Resource: "jobs"}, "v1"),
			},
			{Resource: "events", Options: plain},
		}},
		{Sink: "own", Exclude: exclude, Entries: []plan.Entry{{Resource: "nodes", Options: plain}}},
	}
	var got []bridge.SinkResources
	for i := range c.Sinks {
		got = append(got, sinkResources(c, &c.Sinks[i]))
	}
	unexported := cmp.Exporter(func(t reflect.Type) bool { return strings.HasSuffix(t.PkgPath(), "/pkg/shape") })
	if diff := cmp.Diff(want, got, unexported); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A resource's route reaches the pipelines of all sinks that use such routes.
func TestRoutesReachThePipeline(t *testing.T) {
	c, err := config.Parse("test", []byte(`cluster: prod
resources:
  - pods
  - {resource: nodes, topic: "t.{entry}", key: "{name}/{entry}", subject: "k8s.prod.n.{name}.{entry}", headers: {x: "{label:a}"}}
checkpoint: {file: {path: /cp}}
sinks:
  - {name: kafka, format: binary, headers: {y: z}, kafka: {brokers: ["k:1"], key: "{namespace}", delivery: at-least-once}}
  - {name: nats, format: plain, nats: {url: "nats://n:4222", delivery: at-least-once}}
  - {name: lines, stdout: {}}
  - {name: compacted, kafka: {brokers: ["k:1"], tombstones: true}, resources: [pods, {resource: nodes, key: "{cluster}/{group}/{resource}/{namespace}/{name}/{entry}"}]}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	type way struct{ topic, key, subject, headers any }
	of := func(r encode.Route) way {
		show := func(t *shape.Template) any {
			if t == nil {
				return nil
			}
			return t.String()
		}
		return way{show(r.Topic), show(r.Key), show(r.Subject), r.Headers.Len()}
	}
	for i, want := range []struct {
		format      event.Format
		shared, own way
		tombstones  bool
	}{
		{event.Binary, way{"k8s.{cluster}.{group}.{resource}", "{namespace}", nil, 1}, way{"t.{entry}", "{name}/{entry}", nil, 1}, false},
		{event.Plain, way{nil, nil, "k8s.{cluster}.{group}.{resource}.{namespace}.{name}", 0}, way{nil, nil, "k8s.prod.n.{name}.{entry}", 1}, false},
		{event.Structured, way{nil, nil, nil, 0}, way{nil, nil, nil, 0}, false},
		{event.Structured, way{"k8s.{cluster}.{group}.{resource}", shape.DefaultKey, nil, 0}, way{nil, shape.DefaultKey + "/{entry}", nil, 0}, true},
	} {
		s := &c.Sinks[i]
		form, err := encodeConfig(c, s)
		if err != nil {
			t.Fatal(err)
		}
		var own []encode.Route
		for _, e := range sinkResources(c, s).Entries {
			own = append(own, e.Options.(bridge.CollectionOptions).Route)
		}
		if got := of(form.Route); got != want.shared || form.Encoder.Format != want.format || form.Tombstones != want.tombstones {
			t.Errorf("%s: %+v, %s, tombstones %t; want %+v", s.Name, got, form.Encoder.Format, form.Tombstones, want)
		}
		if got := of(own[0]); got != (way{nil, nil, nil, 0}) {
			t.Errorf("%s: pods have a route of their own: %+v", s.Name, got)
		}
		if got := of(own[1]); got != want.own {
			t.Errorf("%s: nodes go %+v, want %+v", s.Name, got, want.own)
		}
	}
}

// The checkpoint is on the bus if the sink supports that. It is in a directory if the configuration names one
// and the delivery guarantee allows it.
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
			spec, err := sinkSpec(conf, &conf.Sinks[0], zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			bus, store, _, err := spec.Open(t.Context(), event.Identity{Bridge: "kubebridge", Cluster: "prod", ClusterUID: "u", Sink: conf.Sinks[0].Name})
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

// Without status.history no pipeline has a listener. With it, --follow still
// prints, and a pipeline that is opened again, as by a replica
// that leads again, starts with an empty history.
func TestWhoListens(t *testing.T) {
	c, err := config.Parse("test", []byte("cluster: prod\nresources: [pods]\nsinks: [{name: a, stdout: {}}]\ncheckpoint: {file: {path: "+t.TempDir()+"}}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if specs, err := sinkSpecs(c, zap.NewNop(), nil, nil); err != nil || specs[0].Delivered != nil {
		t.Errorf("somebody listens who was not asked for (%v)", err)
	}
	var out strings.Builder
	last := recent.New()
	specs, err := sinkSpecs(c, zap.NewNop(), &out, last)
	if err != nil {
		t.Fatal(err)
	}
	ev := &event.Event{Type: event.Added, Origin: event.Watch, Name: "web-1", Collection: &event.Collection{Resource: "pods"}}
	specs[0].Delivered([]event.Record{{Event: ev, Value: []byte("{}")}})
	if n := len(last.Of("a", "pods", false)); n != 1 || !strings.Contains(out.String(), "web-1") {
		t.Errorf("%d changes are kept, and printed is %q", n, out.String())
	}
	_, store, _, err := specs[0].Open(t.Context(), event.Identity{Bridge: "kubebridge", Cluster: "prod", ClusterUID: "u", Sink: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.(io.Closer).Close()
	if n := len(last.Of("a", "pods", false)); n != 0 {
		t.Errorf("%d changes of another term are kept", n)
	}
}

// A missing key is no error if no Secret is watched and no other value is hashed.
func TestMissingKeyMattersOnlyWhereItIsUsed(t *testing.T) {
	for resources, want := range map[string]bool{
		"[pods]": false, `["*.*"]`: false, `["*.core"]`: false,
		"[secrets]": true, "[secret]": true, "[{resource: secrets, group: '', version: v1}]": true,
		"[{resource: pods, redact: [podEnv]}]": true, "[{resource: pods, redact: [{preset: podEnv, with: mask}]}]": false,
	} {
		c, err := config.Parse("test", []byte("cluster: prod\nresources: "+resources+"\nsinks: [{name: all, kafka: {brokers: ['127.0.0.1:1']}}]\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := hashes(c, &c.Sinks[0]); got != want {
			t.Errorf("%s: a key is used: %t, want %t", resources, got, want)
		}
	}
}

// With tombstones, the end of a collection removes its objects from a compacted topic. The pipeline writes these
// null values, so it must have the option of the sink.
func TestTombstonesReachThePipeline(t *testing.T) {
	for setting, want := range map[string]bool{"": false, ", tombstones: true": true} {
		c, err := config.Parse("test", []byte("cluster: prod\nresources: [pods]\nsinks:\n  - {name: k, kafka: {brokers: [\"b:9092\"]"+setting+"}}\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		form, err := encodeConfig(c, &c.Sinks[0])
		if err != nil || form.Tombstones != want {
			t.Errorf("with %q: %t, %v", setting, form.Tombstones, err)
		}
	}
}

// kindOf recognizes every kind of sink of the configuration.
func TestEveryKindOfSinkIsKnown(t *testing.T) {
	kinds := 0
	for i := range reflect.TypeFor[config.Sink]().NumField() {
		var s config.Sink
		field, kind := reflect.ValueOf(&s).Elem().Field(i), reflect.TypeFor[config.Sink]().Field(i).Tag.Get("yaml")
		if field.Kind() != reflect.Pointer {
			continue
		}
		kinds++
		field.Set(reflect.New(field.Type().Elem()))
		if got := kindOf(&config.Config{}, &s).Kind; got != kind {
			t.Errorf("a sink of kind %s is opened as %s", kind, got)
		}
	}
	if kinds < 4 {
		t.Errorf("%d kinds of sinks were found", kinds)
	}
}
