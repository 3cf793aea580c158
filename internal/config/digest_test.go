package config

import "testing"

// The status page shows the digest. Nobody can try passwords with it, and it differs for everything else.
func TestDigest(t *testing.T) {
	const text = `cluster: x
resources: [pods]
checkpoint: {file: {path: /cp}}
sinks:
  - {name: a, kafka: {brokers: ["k:1"], delivery: at-least-once, sasl: {mechanism: PLAIN, username: u, password: `
	digest := func(rest string) string { return mustParse(t, text+rest).Digest() }
	was := digest(`hunter2}}}`)
	for _, same := range []string{"other}}}", "hunter2}}} # a comment"} {
		if digest(same) != was {
			t.Errorf("the digest depends on %s", same)
		}
	}
	const nats = "hunter2}}}\n  - {name: b, nats: {delivery: at-least-once, url: \"nats://"
	if digest(nats+`u:one@n:4222"}}`) != digest(nats+`u:two@n:4222"}}`) {
		t.Error("the digest depends on a password in a URL")
	}
	for _, other := range []string{"hunter2}}}\nlog: {level: debug}", "hunter2}}}\n  - {name: b, stdout: {}}", "hunter2}, topic: y}}"} {
		if digest(other) == was {
			t.Errorf("the digest does not depend on %s", other)
		}
	}
	c, topic := mustParse(t, text+"hunter2}}}"), mustParse(t, text+"hunter2}, topic: y}}")
	if c.Reloaded(topic).Digest() != was {
		t.Error("the digest is of a configuration that waits for a restart")
	}
	nodes := mustParse(t, text+"hunter2}}, resources: [nodes]}")
	if c.Reloaded(nodes).Digest() != nodes.Digest() {
		t.Error("the digest is not of the reloaded configuration")
	}
}
