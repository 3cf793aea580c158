package history_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/internal/history"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// TestEveryTime compares the state at every time with what was told by then, whatever
// came before: lists, changes, deletions, copies that land late.
func TestEveryTime(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBus(1 + int(seed%3))
		b.snapshot("a", "b", "c")
		live := map[string]int{}
		for i, n := range []string{"a", "b", "c"} {
			live[n] = 101 + i
		}
		type moment struct {
			at   time.Time
			want []string
		}
		var moments []moment
		var told []*event.Event
		note := func() {
			var want []string
			for n, rv := range live {
				want = append(want, fmt.Sprintf("%s:%d", n, rv))
			}
			slices.Sort(want)
			moments = append(moments, moment{b.tick(), want})
		}
		for range 60 {
			n := string(rune('a' + r.IntN(8)))
			switch _, exists := live[n]; {
			case exists && r.IntN(3) == 0:
				told = append(told, b.watch(event.Deleted, n))
				delete(live, n)
			case exists:
				told = append(told, b.watch(event.Modified, n))
				live[n] = b.rv
			default:
				b.uids[n] = fmt.Sprintf("uid-%s-%d", n, b.rv) // another life
				told = append(told, b.watch(event.Added, n))
				live[n] = b.rv
			}
			if r.IntN(8) == 0 && len(told) > 0 { // a copy lands late, delivered at least once
				b.put(told[r.IntN(len(told))])
			}
			note()
		}
		for _, m := range moments {
			s := b.at(t, m.at)
			if err := s.Err(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if diff := cmp.Diff(m.want, names(s)); diff != "" {
				t.Fatalf("seed %d at %s (-want +got):\n%s", seed, m.at, diff)
			}
		}
	}
}

// TestClockWasSetBack: a time that came twice is the first of the two, never some of both,
// which the cluster never was; what comes after both is as told.
func TestClockWasSetBack(t *testing.T) {
	b := newBus(1)
	b.snapshot("a", "b", "c")
	services := &event.Collection{Resource: "services"} // of which nothing is told before the clock is set
	b.of(services, event.Gap, "", event.Report{Reason: "snapshot"})
	b.of(services, event.Synced, "", event.Report{Reason: "snapshot", Counts: &event.Counts{}})
	twice := b.tick()
	b.watch(event.Modified, "a")
	b.watch(event.Deleted, "b")
	b.now = b.now.Add(-time.Hour)
	b.watch(event.Modified, "c")
	b.watch(event.Added, "d")
	for what, c := range map[string]struct {
		at   time.Time
		want []string
	}{
		"twice": {twice, []string{"a:101", "b:102", "c:103"}},
		"after": {twice.Add(time.Minute), []string{"a:104", "c:106", "d:107"}},
	} {
		s, err := history.Rebuild(t.Context(), history.Query{Reader: b, Cluster: "prod", At: history.Point{Time: c.at}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, names(s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// TestChangesAfterTheClockWasSetBack: no change shows what another one did, whose time is
// not among those asked for.
func TestChangesAfterTheClockWasSetBack(t *testing.T) {
	b := newBus(1)
	b.snapshot("a")
	since := b.watch(event.Modified, "a").Time
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		b.now = b.now.Add(by)
		b.watch(event.Modified, "a")
	}
	var got []string
	q := history.ChangesQuery{Reader: b, Cluster: "prod", Resource: "pods", Object: history.Name{Namespace: "shop", Name: "a"}, Since: since}
	if _, err := history.Changes(t.Context(), q, func(c history.Change) error {
		got = append(got, c.ResourceVersion)
		if c.ResourceVersion == "104" && (!strings.Contains(c.Diff, `-  "n": 103`) || !strings.Contains(c.Diff, `+  "n": 104`)) {
			t.Errorf("the last change is\n%s", c.Diff)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"102", "104"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestNotCovered: what the bus does not hold whole is never answered.
func TestNotCovered(t *testing.T) {
	full := func(b *bus) { b.snapshot("a", "b", "c") }
	for name, c := range map[string]struct {
		make func(b *bus)
		want string // in the error; "": it is covered
	}{
		"a snapshot":          {full, ""},
		"nothing":             {func(*bus) {}, "the bus holds nothing of it"},
		"retention cut it":    {func(b *bus) { full(b); b.watch(event.Modified, "a"); b.from[0], b.from[1] = 1, 1 }, "no snapshot, reset or resync"},
		"half written":        {func(b *bus) { full(b); b.parts[0] = b.parts[0][:len(b.parts[0])-1] }, "no snapshot, reset or resync"},
		"a list under way":    {func(b *bus) { b.of(pods, event.Gap, "", event.Report{Reason: "snapshot"}); b.watch(event.Added, "a") }, "was not through"},
		"a dead letter":       {func(b *bus) { full(b); lose(b) }, "of the 3 objects of "},
		"not announced":       {func(b *bus) { list(b, "snapshot", event.Counts{Listed: 2, Skipped: 2}) }, "no snapshot, reset or resync"},
		"a silent heir":       {func(b *bus) { list(b, "snapshot", event.Counts{Listed: 2, Unchanged: 2}) }, "no snapshot, reset or resync"},
		"a resync in part":    {func(b *bus) { list(b, "resync", event.Counts{Listed: 2}) }, "no snapshot, reset or resync"},
		"an empty collection": {func(b *bus) { list(b, "snapshot", event.Counts{}) }, ""},
		"removed from config": {func(b *bus) { full(b); b.of(pods, event.Closed, "", event.Report{Reason: "removed"}) }, "not watched since"},
		"gone with its type":  {func(b *bus) { full(b); b.of(pods, event.Closed, "", event.Report{Reason: "gone"}) }, ""},
		"told again":          {func(b *bus) { full(b); b.from[0], b.from[1] = 2, 2; reset(b) }, ""},
		"a broken-off reset":  {func(b *bus) { full(b); b.from[0], b.from[1] = 2, 2; brokenReset(b) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBus(2)
			c.make(b)
			err := b.at(t, b.tick()).Err()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("the error is %v", err)
			case c.want != "" && (!errors.Is(err, history.ErrNotCovered) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("the error is %v, want one with %q", err, c.want)
			}
		})
	}
}

func list(b *bus, reason string, c event.Counts) {
	b.of(pods, event.Gap, "r", event.Report{Reason: reason})
	b.of(pods, event.Synced, "r", event.Report{Reason: reason, Counts: &c})
}

// lose takes an object of the list off the bus.
func lose(b *bus) {
	part := &b.parts[int('b')%2]
	*part = slices.DeleteFunc(*part, func(m message) bool { return bytes.Contains(m.value, []byte(`"name":"b"`)) })
}

func reset(b *bus) {
	b.of(pods, event.Gap, "r", event.Report{Reason: "reset", Reset: true})
	b.tell(event.Present, event.Snapshot, "a", 101, "r")
	b.of(pods, event.Synced, "r", event.Report{Reason: "reset", Counts: &event.Counts{Listed: 1, Present: 1}})
}

// brokenReset is a reset whose list was broken off after one of two objects.
func brokenReset(b *bus) {
	b.of(pods, event.Gap, "r", event.Report{Reason: "reset", Reset: true})
	b.tell(event.Present, event.Snapshot, "a", 101, "r")
	b.of(pods, event.Gap, "", event.Report{Reason: "interrupted"})
	b.tell(event.Added, event.Reconcile, "b", 102, "")
	b.of(pods, event.Synced, "", event.Report{Reason: "interrupted", Counts: &event.Counts{Listed: 2, Added: 1, Unchanged: 1}})
}

// TestGoneInAReset: what came before a reset is no state of a collection that ended
// in it.
func TestGoneInAReset(t *testing.T) {
	b := newBus(2)
	b.snapshot("a", "b")
	b.of(pods, event.Gap, "r", event.Report{Reason: "reset", Reset: true})
	b.of(pods, event.Closed, "", event.Report{Reason: "gone"})
	s := b.at(t, b.tick())
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if got := names(s); len(got) > 0 {
		t.Errorf("objects that consumers have dropped: %s", got)
	}
}

// TestResourceVersion: an object that a list told at an older version is part of the
// state then; a list that saw more is no base.
func TestResourceVersion(t *testing.T) {
	b := newBus(1)
	b.snapshot("a", "b")
	b.watch(event.Modified, "a") // 103
	b.of(pods, event.Gap, "", event.Report{Reason: "expired", From: "103"})
	b.tell(event.Added, event.Reconcile, "c", 110, "")
	b.tell(event.Modified, event.Reconcile, "b", 120, "")
	b.rv = 130
	b.of(pods, event.Synced, "", event.Report{Reason: "expired", From: "103", To: "130", Counts: &event.Counts{Listed: 3, Added: 1, Modified: 1, Unchanged: 1}})
	for rv, want := range map[uint64][]string{102: {"a:101", "b:102"}, 103: {"a:103", "b:102"}, 115: {"a:103", "b:102", "c:110"}, 130: {"a:103", "b:120", "c:110"}} {
		s, err := history.Rebuild(t.Context(), history.Query{Reader: b, Cluster: "prod", At: history.Point{RV: rv}, Resources: []string{"pods"}})
		if err != nil || s.Err() != nil {
			t.Fatal(err, s.Err())
		}
		if diff := cmp.Diff(want, names(s)); diff != "" {
			t.Errorf("at %d (-want +got):\n%s", rv, diff)
		}
		if gap := s.Collections[0].Gap != nil; gap != (rv == 115) {
			t.Errorf("at %d the gap is open: %v", rv, gap)
		}
	}
	s, err := history.Rebuild(t.Context(), history.Query{Reader: b, Cluster: "prod", At: history.Point{RV: 101}})
	if err != nil || !errors.Is(s.Err(), history.ErrNotCovered) {
		t.Errorf("before the first list: %v, %v", err, s.Err())
	}
}

// TestForeign: what is not ours, or newer than this program, is named with its place.
func TestForeign(t *testing.T) {
	header := func(typ string) []sink.Header { return []sink.Header{{Name: "ce_type", Value: []byte(typ)}} }
	for name, c := range map[string]struct {
		message message
		want    error
	}{
		"no CloudEvent":   {message{value: []byte("hello")}, history.ErrForeign},
		"another's event": {message{headers: header("com.example.created"), value: []byte("{}")}, history.ErrForeign},
		"a newer version": {message{headers: header("io.kubebridge.resource.added.v2"), value: []byte("{}")}, history.ErrNewer},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBus(1)
			b.snapshot("a")
			c.message.time = b.tick()
			b.parts[0] = append(b.parts[0], c.message)
			_, err := history.Rebuild(t.Context(), history.Query{Reader: b, Cluster: "prod", At: history.Point{Time: b.now.Add(time.Second)}, Resources: []string{"pods"}})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), "message 3 of t/0") {
				t.Errorf("the error is %v", err)
			}
		})
	}
	b := newBus(1)
	b.snapshot("a")
	other := encoder
	encoder.ClusterUID = "c2"
	b.watch(event.Added, "b")
	encoder = other
	if _, err := history.Rebuild(t.Context(), history.Query{Reader: b, Cluster: "prod", At: history.Point{Time: b.tick()}}); !errors.Is(err, history.ErrClusters) {
		t.Errorf("of two clusters the error is %v", err)
	}
}

// TestLooksBackOnly: a base near the time is found without reading what lies before.
func TestLooksBackOnly(t *testing.T) {
	b := newBus(1)
	b.snapshot("a")
	for range 50_000 {
		b.watch(event.Modified, "a")
	}
	reset(b)
	s := b.at(t, b.tick())
	if err := s.Err(); err != nil || len(s.Objects) != 1 {
		t.Fatal(err, names(s))
	}
	if b.read > 10_000 {
		t.Errorf("%d messages were read", b.read)
	}
}

func TestRoutes(t *testing.T) {
	topics := history.Topics([]history.Route{{Template: "k8s.{cluster}.{group}.{resource}"}}, "prod", []string{"pods", "deployments.apps"}, &history.Name{Namespace: "shop", Name: "web"})
	for topic, want := range map[string]string{
		"k8s.prod.core.pods": "prod/core/pods/shop/web", "k8s.prod.apps.deployments": "prod/apps/deployments/shop/web",
		"k8s.prod.metrics.k8s.io.pods": "prod/metrics.k8s.io/pods/shop/web", "k8s.prod.core.nodes": "-", "k8s.dev.core.pods": "-", "k8s.prod.extensions.deployments": "-",
	} {
		key, ok := topics(topic)
		if !ok {
			key = "-"
		}
		if key != want {
			t.Errorf("topic %s has the key %q, want %q", topic, key, want)
		}
	}
	all, collections := history.Subjects([]history.Route{{Template: "k8s.{cluster}.{group}.{resource}.{namespace}.{name}"}}, "prod", []string{"pods", "deployments.apps"}, nil)
	if !slices.Equal(all, []string{"k8s.prod.*.pods.*.*", "k8s.prod.apps.deployments.*.*"}) ||
		!slices.Equal(collections, []string{"k8s.prod.*.pods._collection.*", "k8s.prod.apps.deployments._collection.*"}) {
		t.Errorf("the subjects are %v and %v", all, collections)
	}
	// Secrets are in a topic with others, nodes keep the sink's topic with keys of their own.
	routes := []history.Route{
		{Template: "k8s.{cluster}.{group}.{resource}"},
		{Template: "audit.{cluster}", Resource: "secrets"},
		{Template: "audit.{cluster}", Resource: "configmaps", OwnKey: true},
		{Template: "k8s.{cluster}.{group}.{resource}", Resource: "nodes", OwnKey: true},
	}
	for ask, want := range map[string]string{
		"secrets audit.prod": "prod/core/secrets/shop/web", "configmaps audit.prod": "", "nodes k8s.prod.core.nodes": "", "pods audit.prod": "-",
		"pods k8s.prod.core.pods": "prod/core/pods/shop/web", "nodes audit.prod": "-", "secrets k8s.prod.core.secrets": "prod/core/secrets/shop/web",
	} {
		resource, topic, _ := strings.Cut(ask, " ")
		key, ok := history.Topics(routes, "prod", []string{resource}, &history.Name{Namespace: "shop", Name: "web"})(topic)
		if !ok {
			key = "-"
		}
		if key != want {
			t.Errorf("%s: the key is %q, want %q", ask, key, want)
		}
	}
	if _, ok := history.Topics(routes, "prod", nil, nil)("audit.prod"); !ok {
		t.Error("who asks for everything does not get what has a topic of its own")
	}
	all, collections = history.Subjects([]history.Route{
		{Template: "k8s.{cluster}.{group}.{resource}.{namespace}.{name}"}, {Template: "k8s.{cluster}.audit.{kind}.{namespace}.{name}"}, {Template: "k8s.{cluster}.{type}"},
	}, "prod", []string{"secrets"}, nil)
	if !slices.Equal(all, []string{"k8s.prod.*", "k8s.prod.*.*.*.*", "k8s.prod.*._collection.*"}) ||
		!slices.Equal(collections, []string{"k8s.prod.*.*._collection.*", "k8s.prod.*._collection.*"}) {
		t.Errorf("the subjects are %v and %v", all, collections)
	}
	all, _ = history.Subjects([]history.Route{{Template: "k8s.{resource}"}}, "prod", nil, &history.Name{Name: "a.b"})
	if !slices.Equal(all, []string{"k8s.*", "k8s.*._collection.*"}) {
		t.Errorf("the subjects are %v", all)
	}
}

// TestUnknownPoint: what never was is no question that the bus answers. A resourceVersion of another resource is.
func TestUnknownPoint(t *testing.T) {
	first := newBus(2)
	first.snapshot("a", "b") // 101 and 102
	other := newBus(1)
	other.rv = 150
	other.of(&event.Collection{Resource: "services"}, event.Synced, "", event.Report{Reason: "periodic"})
	second := newBus(1)
	second.snapshot("a", "b")
	second.epoch, second.rv = 2, 50
	second.of(pods, event.Gap, "r", event.Report{Reason: "history", Reset: true})
	second.tell(event.Present, event.Snapshot, "a", 48, "r")
	second.of(pods, event.Synced, "r", event.Report{Reason: "history", Counts: &event.Counts{Listed: 1, Present: 1}})
	for name, c := range map[string]struct {
		bus, whole *bus
		at         string
		want       []string
		says       string // in the error; "": it is answered
	}{
		"as new as the bus":              {first, nil, "102", []string{"a:101", "b:102"}, ""},
		"newer than the bus":             {first, nil, "103", nil, "resourceVersion 103 is not on the bus, which holds epoch 1 up to resourceVersion 102"},
		"of another resource":            {first, other, "150", []string{"a:101", "b:102"}, ""},
		"newer than every resource":      {first, other, "151", nil, "which holds epoch 1 up to resourceVersion 150"},
		"of an epoch that never was":     {first, nil, "e7:101", nil, "resourceVersion 101 of epoch 7 is not on the bus, which holds epoch 1 up to resourceVersion 102"},
		"epoch 1":                        {second, nil, "e1:102", []string{"a:101", "b:102"}, ""},
		"newer than epoch 1 became":      {second, nil, "e1:103", nil, "which holds epoch 1 up to resourceVersion 102 and epoch 2 up to resourceVersion 50"},
		"epoch 2":                        {second, nil, "e2:50", []string{"a:48"}, ""},
		"newer than epoch 2":             {second, nil, "e2:51", nil, "resourceVersion 51 of epoch 2 is not on the bus"},
		"before the bus knew of epoch 2": {second, nil, "e2:49", nil, "its first list of epoch 2 was not complete at resourceVersion 49"},
		"no epoch":                       {second, nil, "50", nil, "write e2:50, or a time"},
		"before the bus begins":          {first, nil, "99", nil, "begins after resourceVersion 99, at 2026-03-14T09:00:01Z"},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := history.ParsePoint(c.at)
			if err != nil {
				t.Fatal(err)
			}
			q := history.Query{Reader: c.bus, Cluster: "prod", At: at, Resources: []string{"pods"}}
			if c.whole != nil {
				q.Whole = func(context.Context) (sink.Reader, error) { return c.whole, nil }
			}
			s, err := history.Rebuild(t.Context(), q)
			if err == nil {
				err = s.Err()
			}
			switch {
			case c.says != "":
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("the error is %v, want one with %q", err, c.says)
				}
			case err != nil:
				t.Error(err)
			default:
				if diff := cmp.Diff(c.want, names(s)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestLeavesOut: a resource of which no state can be rebuilt, such as core Events, spoils no answer for which nobody
// named it. Named, or alone, it is an error.
func TestLeavesOut(t *testing.T) {
	b := newBus(1)
	b.snapshot("a")
	events := &event.Collection{Resource: "events"}
	b.of(events, event.Gap, "", event.Report{Reason: "snapshot"})
	b.of(events, event.Synced, "", event.Report{Reason: "snapshot", Counts: &event.Counts{}})
	alone := newBus(1)
	alone.of(events, event.Gap, "", event.Report{Reason: "snapshot"})
	alone.of(events, event.Synced, "", event.Report{Reason: "snapshot", Counts: &event.Counts{}})
	for name, c := range map[string]struct {
		bus     *bus
		named   []string
		covered bool
	}{
		"all": {b, nil, true}, "pods": {b, []string{"pods"}, true}, "events": {b, []string{"events"}, false}, "nothing else": {alone, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := history.Rebuild(t.Context(), history.Query{
				Reader: c.bus, Cluster: "prod", At: history.Point{Time: c.bus.tick()}, Resources: c.named,
				Untold: func(resource string) string { return map[string]string{"events": "deleted"}[resource] },
			})
			if err != nil {
				t.Fatal(err)
			}
			err = s.Err()
			if covered := err == nil; covered != c.covered || !covered && !strings.Contains(err.Error(), "not covered: events: its deleted events are not published") {
				t.Errorf("the error is %v", err)
			}
			if name == "all" && (len(names(s)) != 1 || len(s.Missing) != 1 || !s.Missing[0].LeftOut || s.Missing[0].Name != "events") {
				t.Errorf("the state has %v, and lacks %+v", names(s), s.Missing)
			}
		})
	}
}
