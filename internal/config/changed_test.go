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
`, reloadable: []string{"resources"}, restart: []string{
			"name", "cluster", "kubernetes.context", "checkpoint.file.path", "buffer.path", "buffer.maxBytes", "buffer.maxAge", "admin.socket", "log.format",
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

// Until the restart that removes a sink, the sink must not receive closed events for its collections.
func TestReloadedKeepsARemovedSink(t *testing.T) {
	c := mustParse(t, base)
	next := mustParse(t, `cluster: x
checkpoint: {file: {path: /cp}}
sinks: [{name: b, stdout: {}, resources: [nodes]}]
`)
	merged := c.Reloaded(next)
	if got := merged.ResourcesOf(&merged.Sinks[0]); len(got) != 1 || got[0].Resource != "pods" {
		t.Errorf("the removed sink has %v", got)
	}
	if got := merged.ResourcesOf(&merged.Sinks[1]); len(got) != 1 || got[0].Resource != "nodes" {
		t.Errorf("the kept sink has %v", got)
	}
}
