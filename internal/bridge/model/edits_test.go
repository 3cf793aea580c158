package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

// outcomes has the events that a sink writes after an edit, by the edit's effect and the way in which it is made.
// "gap{there}, synced" is a gap, the events of objects that differ, and synced. "reset on one" is a gap with reset, a
// present for each object, and synced, on that route. Immediate repeats are written once. "or" separates outcomes of
// different delivery modes.
//
// Each way begins with a bridge in step. There are four ways without a restart and four with one: the edit is made; it
// is made, and undone after it is complete; it is undone before anything is committed; it is undone before its list is
// read.
var outcomes = map[Effect]written{
	Difference:  {there: "gap{there}, synced", back: "gap{back}, synced", blocked: "gap{there}, synced, gap{back}, synced", held: "gap, synced"},
	Reset:       {there: "reset on one", back: "reset on one", blocked: "reset on one", held: "reset on one"},
	Reroute:     {there: "closed on one, reset on {to}", back: "closed on {to}, reset on one", blocked: "reset on one or closed on one, reset on one", held: "closed on one, reset on one"},
	Replacement: {there: "reset on one, closed on one", back: "reset on one, closed on one", blocked: "reset on one, closed on one", held: "gap, synced"},
	NoEffect:    {},
}

// removal is the outcome if nothing replaces a removed collection.
var removal = written{there: "closed on one", back: "reset on one", blocked: "reset on one or closed on one, reset on one", held: "closed on one, reset on one"}

// left is the outcome if a namespace leaves the selection. The synced event of another collection publishes the number
// of the plan, unless the closed event is written while it waits for its samples.
var left = written{there: "synced, closed on one or closed on one", back: "reset on one", blocked: "synced, reset on one", held: "synced, closed on one, reset on one or closed on one, reset on one"}

type written struct{ there, back, blocked, held string }

// ways are the ways in which an edit is made, with the outcome of each.
var ways = []struct {
	name   string
	make   func(w *editWorld, base, next *edited)
	want   func(o written) string
	undone bool
}{
	{"made", func(w *editWorld, _, next *edited) { w.edit(next) }, func(o written) string { return o.there }, false},
	{"made and undone", func(w *editWorld, base, next *edited) { w.through(next); w.edit(base) }, func(o written) string { return o.back }, true},
	{"undone before a commit", func(w *editWorld, base, next *edited) {
		w.blocks(true)
		w.edit(next)
		w.sleep(5 * time.Second)
		w.edit(base)
		w.blocks(false)
	}, func(o written) string { return o.blocked }, true},
	{"undone before its list", func(w *editWorld, base, next *edited) {
		w.holds(true)
		w.edit(next)
		w.sleep(5 * time.Second)
		w.edit(base)
		w.holds(false)
	}, func(o written) string { return o.held }, true},
	{"made by a restart", func(w *editWorld, _, next *edited) { w.halt(); w.starts(next) }, func(o written) string { return o.there }, false},
	{"made and undone by restarts", func(w *editWorld, base, next *edited) {
		w.halt()
		w.starts(next)
		w.said()
		w.halt()
		w.starts(base)
	}, func(o written) string { return o.back }, true},
	{"killed before a commit, and undone", func(w *editWorld, base, next *edited) {
		w.halt()
		w.blocks(true)
		w.starts(next)
		w.bury()
		w.blocks(false)
		w.starts(base)
	}, func(written) string { return "" }, true},
	{"killed before its list, and undone", func(w *editWorld, base, next *edited) {
		w.halt()
		w.holds(true)
		w.starts(next)
		w.bury()
		w.holds(false)
		w.starts(base)
	}, func(o written) string { return o.held }, true},
}

// afterRestart is the index of the first way with a restart. Settings of a sink are only edited in these ways.
const afterRestart = 4

// example is an edit of a setting. Before the edit, consumers have a, b and c.
type example struct {
	base        func(*edited) // what the setting needs in the configuration; nil: nothing
	make        func(*edited)
	has         string   // what consumers have after the edit; "": as before
	there, back string   // events of objects that differ
	to          string   // the route after the edit; "": one
	outcome     *written // nil: the outcome of the effect
	elsewhere   string   // the test that covers the edit, if this package cannot read its events
}

// examples has an edit of each setting in [Effects]. Settings of the sink begin with "sink ".
var examples = map[string]example{
	"labelSelector":     {make: func(e *edited) { e.plan.LabelSelector = "x in (0,1)" }, has: "things.model.test: a b", there: "deleted c left", back: "added c"},
	"fieldSelector":     {make: func(e *edited) { e.plan.FieldSelector = "metadata.name=a" }, has: "things.model.test: a", there: "deleted b left, deleted c left", back: "added b, added c"},
	"excludeNamespaces": {make: func(e *edited) { e.plan.ExcludeNamespaces = []string{"n2"} }, has: "things.model.test: a b", there: "deleted c left", back: "added c"},
	"filter":            {make: func(e *edited) { e.options.Filter = "object.?spec.?keep.orValue(true) == true" }, has: "things.model.test: a b", there: "deleted c left", back: "added c"},
	"ignore":            {make: func(e *edited) { e.options.Ignore = []string{"spec.padding"} }},
	"version":           {make: func(e *edited) { e.plan.Resource = "things.v2.model.test" }},

	"redact": {make: func(e *edited) { e.options.Redact = []shape.Rule{{Paths: []string{"spec.padding"}}} }},
	"drop": {make: func(e *edited) {
		e.options.Redact = []shape.Rule{{Paths: []string{"spec.padding"}, With: shape.WithRemove}}
	}},
	"metadataOnly":       {make: func(e *edited) { e.plan.MetadataOnly = true }},
	"types":              {make: func(e *edited) { e.options.Types = []event.Type{event.Added, event.Deleted} }},
	"sink redact":        {make: func(e *edited) { e.options.Redact = []shape.Rule{{Preset: shape.LastApplied}} }},
	"sink managedFields": {make: func(e *edited) { e.form.KeepManagedFields = true }},

	"topic":        {make: func(e *edited) { e.options.Route.Topic = template("two") }, to: "two"},
	"key":          {make: func(e *edited) { e.options.Route.Key = parsed("{namespace}/{name}", shape.KeyNames) }},
	"subject":      {base: subjects, make: func(e *edited) { e.options.Route.Subject = subject("two") }, to: "two"},
	"sink topic":   {make: func(e *edited) { e.form.Route.Topic = template("two") }, to: "two"},
	"sink key":     {make: func(e *edited) { e.form.Route.Key = parsed("{namespace}/{name}", shape.KeyNames) }},
	"sink subject": {base: subjects, make: func(e *edited) { e.form.Route.Subject = subject("two") }, to: "two"},

	"name":              {make: func(e *edited) { e.plan.Name = "x" }, has: "things.model.test:x: a b c"},
	"namespaces":        {make: func(e *edited) { e.plan.Namespaces = []string{"n1"} }, has: "things.model.test@n1: a b"},
	"namespaceSelector": {make: func(e *edited) { e.plan.NamespaceSelector = "team=a" }, has: "things.model.test@n1: a b; things.model.test@n2: c"},
	"resource":          {make: func(e *edited) { e.plan.Resource = "others.model.test" }, has: "nothing", outcome: &removal},
	"group":             {make: func(e *edited) { e.plan.Resource = "things.v1.others.test" }, has: "nothing", outcome: &removal},

	"snapshot":     {make: func(e *edited) { e.options.SkipSnapshot = true }},
	"syncedEvery":  {make: func(e *edited) { e.options.SyncedEvery = time.Hour }},
	"resync":       {make: func(e *edited) { e.options.ResyncEvery = time.Hour }},
	"verifyEvery":  {make: func(e *edited) { e.options.VerifyEvery = time.Hour }},
	"diff":         {make: func(e *edited) { e.options.Before, e.options.Patch = true, true }},
	"changedBy":    {make: func(e *edited) { e.options.ChangedBy = true }},
	"required":     {make: func(e *edited) { e.plan.Required = true }},
	"buffer":       {make: func(e *edited) { e.options.Unbuffered = true }},
	"headers":      {make: func(e *edited) { e.options.Route.Headers = headers() }},
	"sink headers": {make: func(e *edited) { e.form.Route.Headers = headers() }},

	"sink format":         {elsewhere: "internal/core/encode: TestProperties"},
	"sink secrets.values": {elsewhere: "internal/core/encode: TestProperties"},
}

// removals are edits after which a collection is not wanted and no other one begins.
var removals = map[string]example{
	"entry removed":                      {make: func(e *edited) { e.removed = true }, has: "nothing"},
	"namespace leaves namespaces":        {base: inBoth, make: func(e *edited) { e.plan.Namespaces = []string{"n1"} }, has: "things.model.test@n1: a b", outcome: &left},
	"namespace leaves namespaceSelector": {base: selected, make: func(e *edited) { e.plan.ExcludeNamespaces = []string{"n2"} }, has: "things.model.test@n1: a b", outcome: &left},
}

func inBoth(e *edited) { e.plan.Namespaces = []string{"n1", "n2"} }

func selected(e *edited) { e.plan.NamespaceSelector = "team=a" }

func subjects(e *edited) { e.form.Route = encode.Route{Subject: subject("one")} }

func subject(first string) *shape.Template {
	return parsed(first+".{namespace}.{name}", shape.SubjectNames)
}

func parsed(text string, names []string) *shape.Template {
	t, err := shape.ParseTemplate(text, names)
	if err != nil {
		panic(err)
	}
	return t
}

func headers() shape.Headers {
	h, err := shape.ParseHeaders(map[string]string{"team": "a"})
	if err != nil {
		panic(err)
	}
	return h
}

// An edit must not lose or repeat events, in whichever way it is made. The test covers each row of [Effects].
func TestEdits(t *testing.T) {
	for _, row := range Effects() {
		t.Run(strings.Join(row.Settings, ", "), func(t *testing.T) {
			for _, setting := range row.Settings {
				t.Run(setting, func(t *testing.T) { testEdit(t, outcomes[row.Effect], examples[setting], 0) })
			}
			for _, setting := range row.Outer {
				setting = "sink " + setting
				t.Run(setting, func(t *testing.T) { testEdit(t, outcomes[row.Effect], examples[setting], afterRestart) })
			}
		})
	}
	for name, x := range removals {
		t.Run(name, func(t *testing.T) { testEdit(t, removal, x, 0) })
	}
}

func testEdit(t *testing.T, o written, x example, firstWay int) {
	switch {
	case x.make == nil && x.elsewhere == "":
		t.Fatal("it has no example")
	case x.make == nil:
		return
	}
	if x.outcome != nil {
		o = *x.outcome
	}
	to := x.to
	if to == "" {
		to = "one"
	}
	fill := strings.NewReplacer("{there}", join(x.there), "{back}", join(x.back), "{to}", to)
	for _, way := range ways[firstWay:] {
		want := strings.Split(fill.Replace(way.want(o)), " or ")
		for _, mode := range []delivery{transaction, log, intents} {
			synctest.Test(t, func(t *testing.T) {
				base, next := unedited(x.base), unedited(x.base)
				x.make(next)
				w := newEditWorld(t, mode, base)
				has := w.has()
				if !way.undone && x.has != "" {
					has = x.has
				}
				way.make(w, base, next)
				w.settles()
				if said := w.said(); !slices.Contains(want, said) {
					t.Errorf("%s, %s: %q, want %q", way.name, mode, said, want)
				}
				if got := w.has(); got != has {
					t.Errorf("%s, %s: consumers have %s, want %s", way.name, mode, got, has)
				}
				w.end()
			})
		}
	}
}

func join(events string) string {
	if events == "" {
		return ""
	}
	return ", " + events
}

// edited is a configuration of one entry, and of others beside it.
type edited struct {
	plan    plan.Entry
	options bridge.CollectionOptions
	form    encode.Config // of the sink
	removed bool          // there is no entry
	beside  []plan.Entry  // other entries
}

func unedited(base func(*edited)) *edited {
	e := &edited{plan: plan.Entry{Resource: resource + "." + group}, form: encode.Config{Oversize: encode.Truncate, Route: encode.Route{Topic: template("one")}}}
	if base != nil {
		base(e)
	}
	return e
}

func (e *edited) entries() []plan.Entry {
	if e.removed {
		return nil
	}
	p := e.plan
	p.Options = e.options
	return append([]plan.Entry{p}, e.beside...)
}

// editWorld is a bridge with one sink whose configuration is edited.
type editWorld struct {
	*world
	t    *testing.T
	sink *sinkWorld
	read int // number of messages that were read
}

// newEditWorld starts a bridge and waits until its collections are in step.
func newEditWorld(t *testing.T, mode delivery, base *edited) *editWorld {
	c := newCluster()
	for i, key := range [][2]string{{"n1", "a"}, {"n1", "b"}, {"n2", "c"}} {
		c.put(key[0], key[1], func(o *object) { o.x, o.keep = i, i < 2 })
	}
	s := &sinkWorld{name: "s", mode: mode, mayRepeat: mode == intents, bus: newBus(), store: newMemory()}
	s.bus.written = func(message) {}
	w := &editWorld{t: t, sink: s, world: &world{
		cluster: c, sinks: []*sinkWorld{s}, logger: zap.NewNop(), restored: -1,
		api: &server{cluster: c, pageSize: 1000, held: map[string]int{}, sent: map[string]int{}, refusals: map[string]refusal{}, burst: 1},
	}}
	w.starts(base)
	w.said()
	return w
}

// starts starts a bridge and waits until it has nothing left to do.
func (w *editWorld) starts(e *edited) {
	w.sink.edited = e
	p, err := start(w.api, w.sinks, nil, nil, w.logger)
	if err != nil {
		w.t.Fatal(err)
	}
	w.process = p
	w.pump()
	w.settles()
}

// edit changes the configuration of the running bridge.
func (w *editWorld) edit(e *edited) {
	w.sink.edited = e
	w.process.edit(w.sink)
	w.pump()
}

// through makes an edit, waits until the bridge has nothing left to do, and skips the messages that it has written.
func (w *editWorld) through(e *edited) {
	w.edit(e)
	w.settles()
	w.said()
}

func (w *editWorld) settles() {
	w.sleep(10 * time.Second)
	if len(w.problems) > 0 {
		w.t.Fatal(w.problems)
	}
}

func (w *editWorld) blocks(blocked bool) {
	w.sink.bus.set(func(b *bus) { b.blocked = blocked })
	w.pump()
}

// holds makes the server hold back the answers to lists of the resource.
func (w *editWorld) holds(held bool) {
	for _, labels := range []string{"", "x in (0,1)"} {
		if held {
			w.api.hold(heldList+labels, 0)
		} else {
			w.api.mu.Lock()
			delete(w.api.held, heldList+labels)
			w.api.mu.Unlock()
		}
	}
	w.pump()
}

// said returns the events since the last call, in the notation of [outcomes].
func (w *editWorld) said() string {
	var all []string
	resets := map[string]bool{} // resets without a synced event so far, by collection
	for _, m := range w.sink.bus.messages[w.read:] {
		first, _, _ := strings.Cut(m.Route, ".")
		word := strings.TrimSpace(m.short() + " " + m.Name + " " + m.Data.Reason)
		switch m.short() {
		case "gap":
			if word = "gap"; m.Data.Reset {
				word, resets[m.Collection] = "reset on "+first, true
			}
		case "closed":
			word = "closed on " + first
		case "present":
			if resets[m.Collection] {
				continue
			}
		case "synced":
			if word = "synced"; resets[m.Collection] {
				delete(resets, m.Collection)
				continue
			}
		}
		all = append(all, word)
	}
	w.read = len(w.sink.bus.messages)
	if len(resets) > 0 {
		all = append(all, fmt.Sprintf("no synced of %v", resets))
	}
	return strings.Join(slices.Compact(all), ", ")
}

// has returns the copy of consumers that read one partition after the other.
func (w *editWorld) has() string {
	copied := byPartition(w.sink.bus.messages)
	var parts []string
	for _, id := range sortedKeys(copied.parts) {
		var names []string
		for _, h := range copied.parts[id].objects {
			_, name, _ := strings.Cut(h.name, "/")
			names = append(names, name)
		}
		slices.Sort(names)
		if len(names) > 0 {
			parts = append(parts, id+": "+strings.Join(names, " "))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}
