package encode_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

var update = flag.Bool("update", false, "rewrite testdata")

var deployments = event.Collection{Group: "apps", Resource: "deployments", Entry: "canary", Namespace: "shop"}

func deployment(name, uid, version string, replicas string) string {
	return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"` + name + `","namespace":"shop","uid":"` + uid + `","resourceVersion":"` + version +
		`","annotations":{"note":"` + name + `"},"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"apps/v1","time":"2026-11-23T09:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}}}]},"spec":{"replicas":` + replicas + `}}`
}

// reports returns the data that the caller of the encoder adds to events about a collection.
func reports() encode.Reports {
	return encode.Reports{
		Plan: func(string) *event.Plan {
			digest := event.PlanDigest(map[string]uint64{"deployments.apps:canary@shop": 1790000000001})
			return &event.Plan{Number: 1790000000009, Digest: digest, Edit: 1790000000001, Birth: 1789000000000}
		},
		Counts: func(*reconcile.Item) *event.Counts { return &event.Counts{Listed: 2, Present: 2} },
	}
}

// goldens makes a collection emit every kind of event, and gives the records names.
func goldens(t *testing.T) map[string]event.Record {
	named := map[string]event.Record{}
	everything := encode.Settings{Before: true, Patch: true, ChangedBy: true, Filter: "object.spec.replicas < 9"}
	r := newRig(t, deployments, everything, func(o *encode.Options) {
		o.Oversize, o.DeadLetters, o.Reports = encode.ToDeadLetters, template(t, "dead.{cluster}"), reports()
	})
	name := func(names ...string) {
		t.Helper()
		got := r.records[len(r.records)-len(names):]
		for i, n := range names {
			if n != "" {
				named[n] = got[i]
			}
		}
		r.commit()
	}
	r.list("snapshot", "100", reconcile.Gone, deployment("web", "u-1", "90", "1"), deployment("api", "u-2", "95", "1"))
	name("gap-reset", "present", "", "synced")
	r.watch(deployment("job", "u-3", "110", "1"))
	name("added")
	r.watch(deployment("web", "u-1", "111", "2"))
	name("modified-diff")
	r.deleted(deployment("web", "u-1", "112", "2"))
	name("deleted")
	r.watch(deployment("job", "u-3", "113", "9"))
	name("deleted-left")
	r.step(&reconcile.Input{Kind: reconcile.Bookmark, Resume: "113"})
	r.list("expired", "120", reconcile.Unknown, deployment("job", "u-3", "119", "3"))
	name("gap", "added-reconcile", "deleted-unknown", "synced-reconcile")
	r.watch(deployment("job", "u-4", "130", "4")) // the watch has not seen the end of the first object of this name
	name("deleted-replaced", "")
	r.step(&reconcile.Input{Kind: reconcile.Demand})
	r.step(&reconcile.Input{Kind: reconcile.SideBegun})
	r.step(&reconcile.Input{Kind: reconcile.Sighted, Sighting: sighting(deployment("job", "u-4", "130", "4"), reconcile.Resync)})
	name("gap-resync", "present-resync")
	side := r.core.Reading(r.id).Side
	r.step(&reconcile.Input{Kind: reconcile.SideEnded, Side: side, Version: "131"})
	name("synced-resync")
	for range 2 { // first the event loses its patch
		r.watch(deployment("job", "u-4", "140", "5"))
		r.reject(tooLarge)
	}
	r.watch(deployment("job", "u-4", "140", "5"))
	name("dead-letter")
	r.watch(deployment("job", "u-4", "141", "6"))
	name("modified")
	r.deleted(deployment("job", "u-4", "142", "6"))
	r.reject(tooLarge)
	r.deleted(deployment("job", "u-4", "142", "6"))
	name("deleted-truncated")
	r.step(&reconcile.Input{Kind: reconcile.Remove})
	r.step(&reconcile.Input{Kind: reconcile.Release})
	r.commit()
	r.step(&reconcile.Input{Kind: reconcile.Forgot})
	name("closed")
	return named
}

// The content of messages is a public contract, because consumers parse it.
func TestGolden(t *testing.T) {
	records := goldens(t)
	var want []string
	for name, r := range records {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := json.Indent(&got, r.Value, "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			path := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(golden), got.String()); diff != "" {
				t.Errorf("the event has changed (-golden +got):\n%s", diff)
			}
			e, err := event.Parse(golden)
			if err != nil {
				t.Fatal(err)
			}
			if e.Collection != "deployments.apps:canary@shop" || e.Entry != "canary" || e.Run == 0 || e.Incarnation == 0 || e.ID != r.ID {
				t.Errorf("consumers read %+v", e)
			}
			if e.Type.OfCollection() != (e.Plan != nil) || e.Type.OfCollection() != r.Broadcast {
				t.Errorf("plan %+v, broadcast %t", e.Plan, r.Broadcast)
			}
		})
		want = append(want, filepath.Join("testdata", name+".json"))
	}
	got, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("testdata has other files than the test makes (-want +got):\n%s", diff)
	}
}

// A consumer that reads one partition or subject sees all events of an object there. It sees the events of the
// collection in every partition or subject.
func TestRoute(t *testing.T) {
	records := goldens(t)
	for name, r := range records {
		switch {
		case name == "dead-letter":
			if r.Route != "dead.prod" || r.Event.DeadLetter.Route != "k8s.prod.deployments" {
				t.Errorf("%s goes to %q instead of %q", name, r.Route, r.Event.DeadLetter.Route)
			}
		case r.Route != "k8s.prod.deployments":
			t.Errorf("%s goes to %q", name, r.Route)
		}
		if want := "prod/apps/deployments/shop/" + r.Event.Name + "/canary@"; !r.Broadcast && r.Key != want {
			t.Errorf("%s has the key %q, want %q", name, r.Key, want)
		}
	}
}

// Whatever name a tenant gives an object, each of its events has a form that every bus accepts. All parts except the
// body are bounded, on Kafka and on NATS, also for dead letters.
func TestLongNames(t *testing.T) {
	for _, format := range []event.Format{event.Structured, event.Binary, event.Plain} {
		for name, route := range map[string]encode.Route{
			"kafka": {Topic: template(t, "k8s.{cluster}.{resource}")}, "nats": {Subject: template(t, shape.DefaultSubject)},
		} {
			t.Run(format.String()+", "+name, func(t *testing.T) {
				r := newRig(t, event.Collection{Resource: "configmaps", Entry: "canary"}, both, func(o *encode.Options) {
					o.Encoder.Format, o.Oversize = format, encode.ToDeadLetters
					o.Route, o.DeadLetters = route, template(t, "dead.{group}.{resource}.{namespace}.{name}")
					if route.Topic != nil {
						o.DeadLetters = template(t, "dead")
					}
				})
				r.unread = format != event.Structured
				r.list("snapshot", "10", reconcile.Gone)
				r.commit()
				seen := map[string]bool{}
				for i, name := range []string{strings.Repeat("n", 1100), strings.Repeat("n", 180_000), strings.Repeat("n", 180_000) + "m", strings.Repeat("\u2028", 250_000)} {
					body := configMap(name, fmt.Sprint("u", i), strconv.Itoa(11+i), "1")
					for range 4 { // the whole event, and three forms of a dead letter
						r.watch(body)
						x := r.records[len(r.records)-1]
						size := len(x.Value) + len(x.Key)
						for _, a := range x.Attributes {
							size += len(a.Name) + 3*len(a.Value) // percent-encoded
						}
						if x.Event.Object == nil && size > 48<<10 || size > len(body)*3/2+48<<10 {
							t.Errorf("the event of a name of %d bytes has %d, %d of them its value's", len(name), size, len(x.Value))
						}
						if len(x.Route) > 1024 || x.Event.Name != event.BoundName(name) || x.Event.DeadLetter == nil && seen[x.Route+x.Key] {
							t.Errorf("a name of %d bytes goes to %.80q with the key %.80q as %.80q", len(name), x.Route, x.Key, x.Event.Name)
						}
						seen[x.Route+x.Key] = true
						r.reject(&sink.RecordError{Err: errors.New("not valid")})
					}
					if x := r.records[len(r.records)-1]; x.Event.DeadLetter == nil || x.Event.Object != nil {
						t.Errorf("the last form of the event of a name of %d bytes is %+v", len(name), x.Event)
					}
				}
			})
		}
	}
}

// An object that was cut down because it is nested too deeply is published without the deepest levels, and its event
// says so. It is never compared with another state, because the difference would be one of the levels that were left
// out.
func TestDeepObject(t *testing.T) {
	r := newRig(t, configMaps, encode.Settings{Patch: true, Before: true, ChangedBy: true, Ignore: []string{"metadata.resourceVersion"}}, nil)
	cut := func(version string) *reconcile.Sighting {
		s := sighting(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","uid":"ua","resourceVersion":"`+version+`"}}`, reconcile.Watch)
		s.Body.(*source.Object).CutFrom = 20_000
		return s
	}
	r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "1"))
	for _, version := range []string{"11", "12"} { // the second state may differ only in what was left out
		r.step(&reconcile.Input{Kind: reconcile.Sighted, Sighting: cut(version)})
	}
	r.watch(configMap("a", "ua", "13", "2"))
	whole := r.last()
	ended := cut("14")
	ended.Form = reconcile.Ended
	r.step(&reconcile.Input{Kind: reconcile.Sighted, Sighting: ended})
	if got, want := r.said(0), "present a@5, modified a@11, modified a@12, modified a@13, deleted a@13"; got != want {
		t.Errorf("published are %s, want %s", got, want)
	}
	for _, e := range r.values[len(r.values)-4:] {
		if e == whole {
			continue
		}
		if form(e) != "truncated" || !reflect.DeepEqual(*e.Truncated, event.Truncation{Size: 20_000, Levels: event.MaxLevels}) || e.ChangedBy != nil {
			t.Errorf("%s has: %s, %+v", e.ID, form(e), e.Truncated)
		}
	}
	if form(whole) != "body" {
		t.Errorf("the event after it has: %s", form(whole))
	}
	if n := r.counted[encode.Truncated]; n != 3 {
		t.Errorf("%d events are counted as truncated", n)
	}
}

// If a bus keeps the last message of each key or subject, two collections must not replace each other's objects, and a
// gap must not replace the reset before it.
func TestRouteOfAnEntry(t *testing.T) {
	named := event.Collection{Resource: "configmaps", Entry: "canary"}
	split := event.Collection{Resource: "configmaps", Entry: "canary", Namespace: "shop"}
	unnamed := event.Collection{Resource: "configmaps", Namespace: "shop"}
	subject := func(text string) encode.Route { return encode.Route{Subject: template(t, text)} }
	key := func(text string) encode.Route {
		return encode.Route{Topic: template(t, "k8s.{resource}.{entry}"), Key: template(t, text)}
	}
	for _, c := range []struct {
		of    event.Collection
		route encode.Route
		want  []string // of the reset, the object, synced, a gap and closed
	}{
		{configMaps, subject(shape.DefaultSubject), []string{
			"k8s.prod.core.configmaps._collection.reset._._", "k8s.prod.core.configmaps.shop.a", "k8s.prod.core.configmaps._collection.synced._._",
			"k8s.prod.core.configmaps._collection.gap._._", "k8s.prod.core.configmaps._collection.reset._._",
		}},
		{named, subject(shape.DefaultSubject), []string{
			"k8s.prod.core.configmaps._collection.reset._.canary", "k8s.prod.core.configmaps.shop.a.canary", "k8s.prod.core.configmaps._collection.synced._.canary",
			"k8s.prod.core.configmaps._collection.gap._.canary", "k8s.prod.core.configmaps._collection.reset._.canary",
		}},
		{split, subject(shape.DefaultSubject), []string{
			"k8s.prod.core.configmaps._collection.reset.shop.canary=40", "k8s.prod.core.configmaps.shop.a.canary=40",
			"k8s.prod.core.configmaps._collection.synced.shop.canary=40", "k8s.prod.core.configmaps._collection.gap.shop.canary=40",
			"k8s.prod.core.configmaps._collection.reset.shop.canary=40",
		}},
		{split, subject("x.{entry}.{namespace}.{name}"), []string{
			"x.canary=40._collection.reset.shop", "x.canary=40.shop.a", "x.canary=40._collection.synced.shop", "x.canary=40._collection.gap.shop",
			"x.canary=40._collection.reset.shop",
		}},
		{configMaps, key(shape.DefaultKey), []string{"k8s.configmaps._ ", "k8s.configmaps._ prod/core/configmaps/shop/a", "k8s.configmaps._ ", "k8s.configmaps._ ", "k8s.configmaps._ "}},
		{unnamed, key(shape.DefaultKey), []string{"k8s.configmaps._ ", "k8s.configmaps._ prod/core/configmaps/shop/a/@", "k8s.configmaps._ ", "k8s.configmaps._ ", "k8s.configmaps._ "}},
		{split, key("{entry}/{name}"), []string{
			"k8s.configmaps.canary ", "k8s.configmaps.canary canary@/a", "k8s.configmaps.canary ", "k8s.configmaps.canary ", "k8s.configmaps.canary ",
		}},
	} {
		r := newRig(t, c.of, encode.Settings{}, func(o *encode.Options) { o.Route = c.route })
		a := configMap("a", "u-1", "90", "1")
		r.list("snapshot", "100", reconcile.Gone, a)
		r.commit()
		r.step(&reconcile.Input{Kind: reconcile.ListBegun, Reason: "expired"})
		r.step(&reconcile.Input{Kind: reconcile.Remove})
		r.step(&reconcile.Input{Kind: reconcile.Release})
		r.commit()
		r.step(&reconcile.Input{Kind: reconcile.Forgot})
		var got []string
		for _, x := range r.records {
			if c.route.Subject != nil {
				got = append(got, x.Route)
			} else {
				got = append(got, x.Route+" "+x.Key)
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%+v (-want +got):\n%s", c.of, d)
		}
	}
}

// An incarnation ends on the route on which it began. Otherwise consumers of the former topic would keep its objects.
func TestClosedOnTheFormerRoute(t *testing.T) {
	r := newRig(t, configMaps, encode.Settings{}, nil)
	r.list("snapshot", "100", reconcile.Gone, configMap("a", "u-1", "90", "1"))
	r.commit()
	r.configure(encode.Settings{Route: encode.Route{Topic: template(t, "other.{resource}"), Key: template(t, "{name}")}})
	r.commit()
	for keys, done := r.core.Forgettable(r.id, 10); !done; keys, done = r.core.Forgettable(r.id, 10) {
		for _, key := range keys {
			r.step(&reconcile.Input{Kind: reconcile.Forget, Key: key})
		}
	}
	r.step(&reconcile.Input{Kind: reconcile.Forgot})
	if e, got := r.last(), r.records[len(r.records)-1]; e.Type != event.Closed || got.Route != "k8s.prod.configmaps" || e.Report.Reason != "route" {
		t.Errorf("%s %s goes to %s", e.Type, e.Report.Reason, got.Route)
	}
	r.commit()
	r.list("snapshot", "100", reconcile.Gone, configMap("a", "u-1", "90", "1"))
	if got := r.records[len(r.records)-2]; got.Route != "other.configmaps" || got.Key != "a" {
		t.Errorf("the next incarnation goes to %s, with the key %s", got.Route, got.Key)
	}
}

// On a compacted topic an incarnation that ends leaves no messages, also under its former keys. The closed event comes
// before the null values, because a copy whose objects disappear must not claim to be complete.
func TestNullValues(t *testing.T) {
	r := newRig(t, configMaps, encode.Settings{}, func(o *encode.Options) { o.Tombstones = true })
	r.list("snapshot", "100", reconcile.Gone, configMap("a", "u-1", "90", "1"))
	r.commit()
	begun := len(r.records)
	r.configure(encode.Settings{Route: encode.Route{Topic: template(t, "other.{resource}")}})
	r.commit()
	for keys, done := r.core.Forgettable(r.id, 10); !done; keys, done = r.core.Forgettable(r.id, 10) {
		for _, key := range keys {
			r.step(&reconcile.Input{Kind: reconcile.Forget, Key: key})
		}
	}
	r.step(&reconcile.Input{Kind: reconcile.Forgot})
	if len(r.records) != begun+2 {
		t.Fatalf("%d records end the incarnation, want closed and a null value", len(r.records)-begun)
	}
	closed, null := r.records[begun], r.records[begun+1]
	if e := closed.Event; e.Type != event.Closed || e.Report.Reason != "route" {
		t.Errorf("first comes %s", closed.Value)
	}
	e := null.Event
	if null.Value != nil || null.Route != "k8s.prod.configmaps" || null.Key != "prod/core/configmaps/shop/a" || null.Broadcast {
		t.Errorf("then comes %+v", null)
	}
	if e.Type != event.Deleted || e.UID != "u-1" || e.ResourceVersion != "90" || e.Incarnation != closed.Event.Incarnation || null.ID != e.ID() {
		t.Errorf("it describes %+v", e)
	}
}

// For a collection that is not configured, the redaction rules are not known, so its values are not published.
func TestNotConfigured(t *testing.T) {
	r := newRig(t, event.Collection{Resource: "secrets"}, encode.Settings{}, nil)
	r.list("snapshot", "100", reconcile.Gone)
	r.encoder = newEncoder(r.options)
	s := sighting(strings.ReplaceAll(configMap("a", "u-1", "110", "planted"), "ConfigMap", "Secret"), reconcile.Watch)
	r.step(&reconcile.Input{Kind: reconcile.Sighted, Sighting: s})
	if e := r.last(); e.BodyKnown || bytes.Contains(e.Data, []byte("planted")) || !s.Digest.IsZero() {
		t.Errorf("published %s, digest %x", e.Data, s.Digest)
	}
}

// A removed collection publishes events as before until it is closed. Its redaction rules are still known, so bodies
// are published.
func TestRemoved(t *testing.T) {
	for _, back := range []bool{false, true} {
		r := newRig(t, event.Collection{Resource: "secrets"}, encode.Settings{}, nil)
		r.list("snapshot", "100", reconcile.Gone)
		r.commit()
		r.encoder.Remove(r.id)
		r.watch(secret("110", "planted", "a"))
		if e := r.last(); !e.BodyKnown || bytes.Contains(e.Data, []byte("planted")) {
			t.Errorf("published %s", e.Data)
		}
		r.step(&reconcile.Input{Kind: reconcile.Remove})
		r.step(&reconcile.Input{Kind: reconcile.Release})
		r.commit()
		r.step(&reconcile.Input{Kind: reconcile.Forget, Key: "shop/x"})
		r.step(&reconcile.Input{Kind: reconcile.Forgot})
		if e := r.last(); e.Type != event.Closed || e.Report.Reason != "removed" {
			t.Errorf("%s, reason %s", e.Type, e.Report.Reason)
		}
		if back {
			r.configure(encode.Settings{})
		}
		r.commit()
		s := sighting(secret("120", "planted", "a"), reconcile.Watch)
		if r.encoder.Prepare(r.id, s, nil, false); s.Digest.IsZero() == back {
			t.Errorf("after closed, configured %t: the digest is %x", back, s.Digest)
		}
	}
}

// These digests decide about an edit. If a digest does not change, the edit is lost. If it changes without need, a
// collection is reset or listed again.
func TestProperties(t *testing.T) {
	encoderOf := func(change func(o *encode.Options)) *encode.Encoder {
		o := encode.Options{Config: encode.Config{Encoder: event.Encoder{Cluster: "prod"}, Route: encode.Route{Topic: template(t, "k8s.{resource}")}}}
		if change != nil {
			change(&o)
		}
		return encode.New(o)
	}
	base := encode.Settings{Redact: []shape.Rule{{Paths: []string{"data.x"}}}, Filter: "true", Ignore: []string{"status"}}
	with := func(change func(s *encode.Settings)) encode.Settings { s := base; change(&s); return s }
	key := func(k string) func(o *encode.Options) {
		return func(o *encode.Options) { o.Secrets.Key = []byte(k) }
	}
	for name, x := range map[string]struct {
		options  func(o *encode.Options)
		settings encode.Settings
		target   event.Collection
		want     string
	}{
		"nothing": {settings: base},
		"diffs":   {settings: with(func(s *encode.Settings) { s.Before, s.Patch, s.ChangedBy = true, true, true })},
		"a rule for others": {settings: with(func(s *encode.Settings) {
			s.Redact = append(slices.Clone(s.Redact), shape.Rule{Paths: []string{"a"}, Resources: []string{"pods"}})
		})},
		"headers":                {settings: base, options: func(o *encode.Options) { o.Route.Headers, _ = shape.ParseHeaders(map[string]string{"a": "b"}) }},
		"how Secrets are hidden": {settings: base, options: func(o *encode.Options) { o.Secrets.Plain = true }},
		"redact":                 {settings: with(func(s *encode.Settings) { s.Redact = nil }), want: "shape"},
		"key":                    {settings: base, options: key("one"), want: "shape"},
		"format":                 {settings: base, options: func(o *encode.Options) { o.Encoder.Format = event.Binary }, want: "shape"},
		"managedFields":          {settings: base, options: func(o *encode.Options) { o.KeepManagedFields = true }, want: "shape"},
		"metadataOnly":           {settings: base, target: event.Collection{Resource: "configmaps", MetadataOnly: true}, want: "shape"},
		"filter":                 {settings: with(func(s *encode.Settings) { s.Filter = "false" }), want: "filter"},
		"ignore":                 {settings: with(func(s *encode.Settings) { s.Ignore = nil }), want: "filter"},
		"topic":                  {settings: with(func(s *encode.Settings) { s.Route.Topic = template(t, "other") }), want: "route"},
		"record key":             {settings: with(func(s *encode.Settings) { s.Route.Key = template(t, "{name}") }), want: "route"},
		"cluster in the key":     {settings: base, options: func(o *encode.Options) { o.Encoder.Cluster = "other" }, want: "route"},
		"types":                  {settings: with(func(s *encode.Settings) { s.Types = []event.Type{event.Added} }), want: "types"},
		"skip":                   {settings: with(func(s *encode.Settings) { s.SkipSnapshot = true }), want: "skip"},
	} {
		t.Run(name, func(t *testing.T) {
			was, err := configure(encoderOf(nil), configMaps, base)
			if err != nil {
				t.Fatal(err)
			}
			if x.target.Resource == "" {
				x.target = configMaps
			}
			is, err := configure(encoderOf(x.options), x.target, x.settings)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for name, differs := range map[string]bool{
				"shape": was.Shape != is.Shape, "filter": was.Filter != is.Filter, "route": was.Route != is.Route, "types": was.Types != is.Types, "skip": was.Skip != is.Skip,
			} {
				if differs {
					got = append(got, name)
				}
			}
			if strings.Join(got, " ") != x.want {
				t.Errorf("%v changes, want %q: %+v, %+v", got, x.want, was, is)
			}
		})
	}
}

// After a restart with another filter, events that were received before are judged by the filter in the checkpoint. What the settings say otherwise is
// not affected.
func TestWithFilter(t *testing.T) {
	next := encode.Settings{Filter: "other", Ignore: []string{"spec"}, Before: true}
	long := strings.Repeat("true && ", 1000) + "true"
	for name, x := range map[string]struct {
		was  encode.Settings
		edit func(p *reconcile.Properties)
		want bool
	}{
		"nothing":          {want: true},
		"filter":           {was: encode.Settings{Filter: `object.metadata.name != "<\"x>"`}, want: true},
		"ignore":           {was: encode.Settings{Ignore: []string{"status", "leases"}}, want: true},
		"both":             {was: encode.Settings{Filter: "true", Ignore: []string{"status"}}, want: true},
		"too long":         {was: encode.Settings{Filter: long}},
		"an older release": {was: encode.Settings{Filter: "true"}, edit: func(p *reconcile.Properties) { p.FilterText = "" }},
		"damaged":          {was: encode.Settings{Filter: "true"}, edit: func(p *reconcile.Properties) { p.FilterText = "{" }},
		"of another":       {was: encode.Settings{Filter: "true"}, edit: func(p *reconcile.Properties) { p.FilterText = `{"filter":"false"}` }},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := configure(encode.New(encode.Options{Config: encode.Config{Route: encode.Route{Topic: template(t, "t")}}}), configMaps, x.was)
			if err != nil {
				t.Fatal(err)
			}
			if x.edit != nil {
				x.edit(&p)
			}
			got, ok := next.WithFilter(p)
			if ok != x.want {
				t.Fatalf("known: %t", ok)
			}
			if ok && (got.Filter != x.was.Filter || !slices.Equal(got.Ignore, x.was.Ignore) || !got.Before) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// The error for a collection has all mistakes, so that a user sees them at once.
func TestConfigureErrors(t *testing.T) {
	_, err := configure(encode.New(encode.Options{}), configMaps, encode.Settings{
		Redact: []shape.Rule{{Paths: []string{"metadata.name"}}}, Filter: "objec", Ignore: []string{"["},
	})
	for _, want := range []string{"configmaps", "redact", "metadata.name", "filter", "objec", "ignore"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}

// The records of a batch in flight do not change while the next batch is filled. The memory of a committed batch is
// reused.
func TestMemoryOfBatches(t *testing.T) {
	for _, reuse := range []bool{false, true} {
		r := newRig(t, configMaps, encode.Settings{}, nil)
		e := r.encoder
		encoded := func(version string) (reconcile.Item, event.Record) {
			s := sighting(configMap("a", "u-1", version, strings.Repeat(version, 50)), reconcile.Watch)
			e.Prepare(r.id, s, nil, false)
			i := reconcile.Item{Collection: r.id, Run: 7, Incarnation: 7, Object: &reconcile.ObjectEvent{
				Type: event.Modified, Key: durable.ObjectKey("shop", "a"), Object: reconcile.Object{UID: "u-1"}, Version: version, Body: s.Body,
			}}
			record, _ := e.Encode(&i, "", start)
			return i, record
		}
		places := map[*byte]bool{}
		again := false
		for batch := range 20 {
			var items []reconcile.Item
			var records []event.Record
			var copies []string
			for n := range 200 {
				i, record := encoded(string(rune('a'+batch)) + string(rune('a'+n%26)))
				again = again || places[&record.Value[0]]
				places[&record.Value[0]] = true
				items, records, copies = append(items, i), append(records, record), append(copies, string(record.Value))
			}
			if reuse {
				e.Sealed()
			}
			for range 200 {
				encoded("next")
			}
			for i := range records {
				if string(records[i].Value) != copies[i] || records[i].Event.ResourceVersion != items[i].Object.Version {
					t.Fatalf("record %d of batch %d is %s, want %s", i, batch, records[i].Value, copies[i])
				}
			}
			e.Committed(items)
		}
		if again != reuse {
			t.Errorf("with Sealed %t, memory is used again: %t", reuse, again)
		}
	}
}

// Versions of another history say nothing about the history that begins.
func TestGapOfAnotherHistory(t *testing.T) {
	r := newRig(t, configMaps, encode.Settings{}, nil)
	r.list("snapshot", "100", reconcile.Gone)
	r.commit()
	r.step(&reconcile.Input{Kind: reconcile.ListBegun, Reason: "history", NewEpoch: true})
	if e := r.last(); e.Type != event.Gap || e.Epoch != 2 || e.ResourceVersion != "" || e.Report.From != "100" || e.Report.Reason != "history" {
		t.Errorf("%s of epoch %d at %q: %+v", e.Type, e.Epoch, e.ResourceVersion, e.Report)
	}
}
