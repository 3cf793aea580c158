package mirror

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestUnpublishedTypes: without deleted events, as with core Events by default, a copy would hold every object since the last reset, and show those that
// have expired. Nothing of such a collection is kept or served. The events say so, so what follows the reset of a bridge with other types is served,
// whatever serve was started with.
func TestUnpublishedTypes(t *testing.T) {
	b := openBacklog(t)
	b.partitions = 1
	refused := func(past int64) {
		t.Helper()
		b.commit()
		b.readUntil(past)
		r := b.mirror.Resource(pods)
		_, err := r.Latest()
		if !errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), "deleted events are not published") {
			t.Errorf("the present: %v", err)
		}
		if _, err := b.mirror.AtTime(r, time.Unix(past, 0)); !errors.Is(err, ErrExpired) || !strings.Contains(err.Error(), "types: [added, modified, deleted]") {
			t.Errorf("a time: %v", err)
		}
		if _, err := r.AtVersion(r.Served.Version, 0); !errors.Is(err, ErrExpired) {
			t.Errorf("a resourceVersion: %v", err)
		}
	}
	without := event.Selection{Types: event.Types(0).Without(event.Deleted)}
	b.selection = without
	b.gap(0, 10, "100", event.ReasonReset)
	b.pod(0, 11, event.Present, 20)
	b.synced(0, 12, "100", 1, 30)
	b.pod(0, 13, event.Modified, 40)
	b.synced(0, 14, "100", 2, 50)
	refused(14)
	r := b.mirror.Resource(pods)
	if r.Kind.Kind != "Pod" || r.Served.Version != 50 || !r.LastEvent.Equal(time.Unix(14, 0)) {
		t.Errorf("the resource is %+v", r)
	}
	b.wantAt(r.Served, nil)

	b.reopen()
	b.pod(0, 15, event.Modified, 60)
	refused(14)
	b.selection, b.incarnation = event.Selection{}, 200
	b.gap(0, 20, "200", event.ReasonReset)
	b.pod(0, 21, event.Present, 60)
	b.synced(0, 22, "200", 1, 70)
	b.commit()
	b.latest(70, 60)

	b.reopen()
	b.latest(70, 60)
	refusedBefore, err := b.mirror.Resource(pods).AtVersion(50, 0)
	if !errors.Is(err, ErrExpired) {
		t.Errorf("before the reset: %v (%v)", refusedBefore, err)
	}
	b.selection, b.incarnation = without, 300
	b.gap(0, 30, "300", event.ReasonReset)
	b.pod(0, 31, event.Present, 60)
	b.synced(0, 32, "300", 1, 80)
	refused(32)
}

// TestCovers: a namespace is covered in the eras in which a collection with its objects was published.
func TestCovers(t *testing.T) {
	b := openBacklog(t)
	b.partitions = 1
	all := func(string) bool { return true }
	covers := func(version uint64, want map[string]bool) {
		t.Helper()
		b.commit()
		r := b.mirror.Resource(pods)
		at, err := r.AtVersion(version, 0)
		if err != nil {
			t.Error(err)
			return
		}
		for namespace, want := range want {
			if got := r.Covers(namespace, at.Era); got != want {
				t.Errorf("at %d, %s is covered: %t, want %t", version, namespace, got, want)
			}
		}
	}
	b.gap(0, 10, "100", event.ReasonReset)
	b.synced(0, 12, "100", 1, 30)
	b.selection = event.Selection{Fields: "metadata.namespace!=a,metadata.namespace!=b"}
	b.gap(0, 20, "200", event.ReasonSelection)
	b.synced(0, 22, "200", 1, 40)
	b.selection = event.Selection{Fields: "metadata.namespace=a", Filtered: true}
	b.gap(0, 30, "300", event.ReasonInterrupted)
	b.gap(0, 31, "310", event.ReasonSelection)
	b.synced(0, 32, "310", 1, 50)
	want := func() {
		t.Helper()
		covers(30, map[string]bool{"a": true, "b": true, "c": true})
		covers(40, map[string]bool{"a": false, "b": false, "c": true})
		covers(50, map[string]bool{"a": true, "b": false, "c": false})
	}
	want()
	b.incarnation = 400
	b.gap(0, 40, "400", event.ReasonReset)
	b.synced(0, 42, "400", 1, 60)
	want()
	covers(60, map[string]bool{"a": true, "b": false, "c": false})
	if spans := len(b.mirror.Resource(pods).spans); spans != 3 {
		t.Errorf("%d spans, want that of a reset with the same selection to be the span before", spans)
	}
	b.reopen()
	want()
	r := b.mirror.Resource(pods)
	if diff := cmp.Diff([]string{"a filter leaves objects of pods out", "objects of pods are selected by the fields metadata.namespace=a"}, r.Notes(r.Served.Era, all)); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if notes := r.Notes(1, all); notes != nil {
		t.Errorf("notes of the first era: %q", notes)
	}
}

// TestNotes: warnings name what the events say that is left out or changed.
func TestNotes(t *testing.T) {
	all := func(string) bool { return true }
	for _, c := range []struct {
		collection string
		selection  event.Selection
		sees       func(string) bool
		want       []string
	}{
		{collection: "pods", sees: all},
		{"pods:some@b", event.Selection{Labels: "app=web", Filtered: true}, all, []string{
			"objects of pods:some are those of some namespaces", "a filter leaves objects of pods:some out", "objects of pods:some are selected by the labels app=web",
		}},
		{"pods:some@b", event.Selection{Filtered: true}, func(namespace string) bool { return namespace == "a" }, nil},
		{"nodes", event.Selection{MetadataOnly: true}, all, []string{"objects of nodes have metadata only"}},
		{"deployments.apps@a", event.Selection{Dropped: true, StatusDropped: true}, all, []string{
			"objects of deployments.apps are those of some namespaces", "rules take values out of objects of deployments.apps",
			"rules take the status out of objects of deployments.apps, or a part of it",
		}},
		{"events", event.Selection{Types: event.Types(0).Without(event.Modified)}, all, []string{"events of events are not all published: modified are left out"}},
		{"configmaps", event.Selection{Redacted: true}, all, []string{"values in objects of configmaps are redacted"}},
		{"leases.coordination.k8s.io", event.Selection{Ignores: true}, all, []string{
			"changes of objects of leases.coordination.k8s.io are not published if ignore covers them: these fields can be older",
		}},
		{"pods", event.Selection{Fields: "metadata.namespace!=a,metadata.namespace!=b,spec.nodeName=n\\,1"}, func(namespace string) bool { return namespace == "a" }, []string{
			"objects of pods are selected by the fields metadata.namespace!=a,spec.nodeName=n\\,1",
		}},
		{"pods", event.Selection{Fields: "metadata.namespace!=b"}, func(namespace string) bool { return namespace == "a" }, nil},
	} {
		r := &Resource{spans: []Span{{Collection: c.collection, Since: 1, Selection: c.selection}}}
		if diff := cmp.Diff(c.want, r.Notes(1, c.sees)); diff != "" {
			t.Errorf("%s %+v (-want +got):\n%s", c.collection, c.selection, diff)
		}
	}
}

// reopen commits, and continues with what the store holds.
func (b *backlog) reopen() {
	b.Helper()
	b.commit()
	m, err := Open(b.mirror.Store())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close() })
	b.mirror = m
}
