package config

import (
	"strings"
	"testing"
)

// There is a warning if a topic deletes old messages of unchanged objects, unless the objects are published again
// before that.
func TestRetentionWarning(t *testing.T) {
	for name, test := range map[string]struct {
		resource, create string
		warns            bool
	}{
		"never published again":     {"pods", "{retention: 168h}", true},
		"published again too late":  {"{resource: pods, resync: 200h}", "{retention: 168h}", true},
		"in Kafka's own words":      {"pods", `{config: {retention.ms: "3600000"}}`, true},
		"published again in time":   {"{resource: pods, resync: 24h}", "{retention: 168h}", false},
		"without an end":            {"pods", `{config: {retention.ms: "-1"}}`, false},
		"somebody makes the topics": {"pods", "{enabled: false, retention: 168h}", false},
		"the broker's own":          {"pods", "{}", false},
	} {
		t.Run(name, func(t *testing.T) {
			text := "cluster: c\nresources: [" + test.resource + "]\nsinks: [{name: a, kafka: {brokers: ['kafka:9092'], create: " + test.create + "}}]\n"
			c, err := Parse("bridge.yaml", []byte(text), nil)
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(c.Warnings(), "\n"); strings.Contains(all, "`bridge state` and `history` do not have objects of pods") != test.warns {
				t.Errorf("it warns %q", all)
			}
		})
	}
}
