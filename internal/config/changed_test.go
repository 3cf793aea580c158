package config

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const base = `cluster: x
resources: [pods]
checkpoint: {file: {path: /cp}}
sinks:
  - {name: a, kafka: {brokers: ["k:1"], delivery: at-least-once, sasl: {mechanism: PLAIN, username: u, password: hunter2}}}
  - {name: b, stdout: {}, resources: [secrets]}
`

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := parse("test", []byte(text), nil, testEnv)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A running bridge must apply every change that it can apply, and must not seem to have applied any other.
func TestChanged(t *testing.T) {
	for _, test := range []struct {
		name, next          string
		reloadable, restart []string
	}{
		{name: "nothing", next: base},
		{name: "order of the sinks, and defaults written out", next: `cluster: x
name: kubebridge
resources: [{resource: pods, snapshot: publish}]
checkpoint: {file: {path: /cp}}
admin: {socket: /cp/admin.sock}
sinks:
  - {name: b, stdout: {format: json}, resources: [secrets], linger: 0s}
  - {name: a, kafka: {brokers: ["k:1"], delivery: at-least-once, create: {enabled: true}, sasl: {mechanism: PLAIN, username: u, password: hunter2}}}
`},
		{name: "resources, exclude and the level", next: `cluster: x
resources: ["*.*"]
exclude: [nodes]
log: {level: debug}
checkpoint: {file: {path: /cp}}
sinks:
  - {name: a, kafka: {brokers: ["k:1"], delivery: at-least-once, sasl: {mechanism: PLAIN, username: u, password: hunter2}}}
  - {name: b, stdout: {}, resources: [{resource: secrets, metadataOnly: true}]}
`, reloadable: []string{"resources", "exclude", "log.level", "sinks[b].resources"}},
		{name: "everything else", next: `cluster: y
name: other
kubernetes: {context: c}
resources: [{resource: nodes, buffer: false}]
checkpoint: {file: {path: /other}}
buffer: {path: /buffer, maxBytes: 1Gi, maxAge: 1h}
log: {format: json}
sinks:
  - {name: a, linger: 1s, kafka: {brokers: ["k:1", "k:2"], delivery: at-least-once, create: {enabled: false}, sasl: {mechanism: PLAIN, username: u, password: hunter3}}}
  - {name: c, stdout: {}}
`, restart: []string{
			"name", "cluster", "kubernetes.context", "resources", "checkpoint.file.path", "buffer.path", "buffer.maxBytes", "buffer.maxAge", "admin.socket", "log.format",
			"sinks[a].linger", "sinks[a].kafka.brokers", "sinks[a].kafka.create.enabled", "sinks[a].kafka.sasl.password",
			"sinks[b]", "sinks[c]",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, next := mustParse(t, base), mustParse(t, test.next)
			reloadable, restart := c.Changed(next)
			if diff := cmp.Diff(test.reloadable, reloadable); diff != "" {
				t.Errorf("reloadable (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.restart, restart); diff != "" {
				t.Errorf("restart (-want +got):\n%s", diff)
			}
			merged := c.Reloaded(next)
			if left, still := merged.Changed(next); len(left) > 0 || !slices.Equal(still, restart) {
				t.Errorf("after the reload %q and %q are left", left, still)
			}
			if changed, more := c.Changed(mustParse(t, base)); changed != nil || more != nil {
				t.Errorf("the old configuration is not what it was: %q, %q", changed, more)
			}
		})
	}
}

// A running bridge applies every change of an entry, also of its route: the collection ends its incarnation on the old
// route and begins another one on the new route. A sink's settings for all its resources wait for the restart.
func TestRoutesOfEntriesAreReloaded(t *testing.T) {
	text := func(resources, own string) string {
		return `cluster: x
resources: ` + resources + `
checkpoint: {file: {path: /cp}}
sinks:
  - {name: a, kafka: {brokers: ["k:1"], delivery: at-least-once}}
  - {name: b, nats: {url: "nats://n:4222", delivery: at-least-once}, resources: ` + own + `}
`
	}
	c := mustParse(t, text(`[{resource: pods, topic: one}]`, `[{resource: nodes, subject: k8s.x.n}]`))
	next := mustParse(t, text(`[{resource: pods, name: a, topic: two, key: "{name}", headers: {x: y}, resync: 1h}]`, `[{resource: nodes}]`))
	reloadable, restart := c.Changed(next)
	if diff := cmp.Diff([]string{"resources", "sinks[b].resources"}, reloadable); diff != "" || restart != nil {
		t.Errorf("restart for %q; reloadable (-want +got):\n%s", restart, diff)
	}
	merged := c.Reloaded(next)
	if diff := cmp.Diff(next.Resources, merged.Resources); diff != "" || merged.Sinks[1].Resources[0].Subject != "" {
		t.Errorf("taken over: %+v, and (-want +got):\n%s", merged.Sinks[1].Resources, diff)
	}
	if left, still := merged.Changed(next); left != nil || still != nil {
		t.Errorf("after the reload %q and %q are left", left, still)
	}
}

// A rule that hides values moves from an entry to the bridge, where it needs a restart: the entry keeps its rule until then.
func TestEntriesWaitForRulesOfTheBridge(t *testing.T) {
	text := func(bridge, entry string) string {
		return `cluster: x
` + bridge + `
resources: [{resource: configmaps` + entry + `}]
checkpoint: {file: {path: /cp}}
sinks: [{name: a, stdout: {}}]
`
	}
	was := mustParse(t, text("log: {level: info}", ", redact: [data.password]"))
	for name, next := range map[string]*Config{
		"redact":         mustParse(t, text("log: {level: warn}\nredact: [data.password]", "")),
		"secrets.values": mustParse(t, text("log: {level: warn}\nsecrets: {values: plain}", "}, {resource: secrets")),
	} {
		if reloadable, restart := was.Changed(next); !slices.Equal(reloadable, []string{"log.level"}) || !slices.Contains(restart, name) || !slices.Contains(restart, "resources") {
			t.Errorf("%s: reloadable are %q, a restart needs %q", name, reloadable, restart)
		}
		merged := was.Reloaded(next)
		if diff := cmp.Diff(was.Resources, merged.Resources); diff != "" || merged.Log.Level != "warn" {
			t.Errorf("%s: taken over are the level %s and (-want +got):\n%s", name, merged.Log.Level, diff)
		}
	}
}

// Until the restart that removes or adds a sink, the sinks keep what they have. A removed one must not receive closed events for its collections.
func TestReloadedKeepsARemovedSink(t *testing.T) {
	c := mustParse(t, base)
	next := mustParse(t, `cluster: x
checkpoint: {file: {path: /cp}}
sinks: [{name: b, stdout: {}, resources: [nodes]}]
`)
	merged := c.Reloaded(next)
	for i, want := range []string{"pods", "secrets"} {
		if got := merged.ResourcesOf(&merged.Sinks[i]); len(got) != 1 || got[0].Resource != want {
			t.Errorf("sink %d has %v", i, got)
		}
	}
}

// A sink moves to a bus of its own, and gets entries that only that bus may have. Until the restart it still writes to the old bus, so the entries
// wait.
func TestEntriesWaitForTheDestination(t *testing.T) {
	text := func(sink, resources, top string) string {
		return "cluster: x\n" + top + "\ncheckpoint: {file: {path: /cp}}\nsinks: [{name: a, " + sink + resources + "}]\n"
	}
	const kafka = `kafka: {brokers: ["shared:1"], topic: one, delivery: at-least-once}`
	was := mustParse(t, text(kafka, "", "exclude: [configmaps]\nresources: ['*.core']"))
	for name, sink := range map[string]string{
		"sinks[a].kafka.topic":   `kafka: {brokers: ["shared:1"], topic: two, delivery: at-least-once}`,
		"sinks[a].kafka.brokers": `kafka: {brokers: ["own:1"], topic: one, delivery: at-least-once}`,
		"sinks[a].nats":          `nats: {url: "nats://own:4222", delivery: at-least-once}`,
	} {
		for _, resources := range []struct{ own, top, wait string }{
			{", resources: [configmaps]", "resources: ['*.core']", "sinks[a].resources"},
			{"", "resources: [configmaps]", "resources"},
			{"", "resources: ['*.core']", "exclude"},
		} {
			next := mustParse(t, text(sink, resources.own, resources.top+"\nlog: {level: debug}"))
			reloadable, restart := was.Changed(next)
			if !slices.Equal(reloadable, []string{"log.level"}) || !slices.Contains(restart, name) || !slices.Contains(restart, resources.wait) {
				t.Errorf("%s, %s: reloadable are %q, a restart needs %q", name, resources.wait, reloadable, restart)
			}
			merged := was.Reloaded(next)
			if diff := cmp.Diff(was.Resources, merged.Resources); diff != "" || merged.Sinks[0].Resources != nil || !slices.Equal(merged.Exclude, was.Exclude) {
				t.Errorf("%s, %s: taken over was %+v", name, resources.wait, merged)
			}
		}
	}
}

// What a running bridge has after a reload is correct: no file is applied in part.
func TestReloadedIsCorrect(t *testing.T) {
	const tombstones = `kafka: {brokers: ["k:1"], delivery: at-least-once, tombstones: true}`
	var all []*Config
	for _, sink := range []string{tombstones, `kafka: {brokers: ["k:1"], delivery: at-least-once}`, `kafka: {brokers: ["k:1"]}`, "stdout: {}", `nats: {url: "nats://n:4222", delivery: at-least-once}`} {
		for _, entry := range []string{"pods", `{resource: pods, key: "{name}"}`, `{resource: pods, topic: x}`, `{resource: pods, subject: k8s.x.n}`, "'*.*'"} {
			for _, more := range []string{"", "exclude: [nodes]", "redact: [spec.x]", "log: {level: debug}", "sinks[b]"} {
				text := "cluster: x\nresources: [" + entry + "]\ncheckpoint: {file: {path: /cp}}\n"
				if more == "sinks[b]" {
					text += "sinks: [{name: b, stdout: {}, resources: [nodes]}, {name: a, " + sink + "}]\n"
				} else {
					text += more + "\nsinks: [{name: a, " + sink + "}]\n"
				}
				if c, err := parse("test", []byte(text), nil, testEnv); err == nil {
					all = append(all, c)
				}
			}
		}
	}
	if len(all) < 60 {
		t.Fatalf("only %d configurations", len(all))
	}
	for i, was := range all {
		for j, next := range all {
			merged := was.Reloaded(next)
			p := problems{}
			p.check(merged)
			if err := p.errors(); err != nil {
				t.Fatalf("%d, then %d: %v", i, j, err)
			}
		}
	}
}
