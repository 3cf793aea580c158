package kafka

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	got, err := Config{Brokers: []string{"kafka:9092"}, Delivery: "at-least-once"}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Brokers: []string{"kafka:9092"}, Delivery: "at-least-once", Topic: "k8s.{cluster}.{group}.{resource}", Key: defaultKey, Compression: "none",
		Create: Create{Enabled: new(true), Partitions: 12, ReplicationFactor: -1},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Complete (-want +got):\n%s", d)
	}
}

func TestConfigRejected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no brokers", func(c *Config) { c.Brokers = nil }, "brokers: none given"},
		{"broker without port", func(c *Config) { c.Brokers = []string{"kafka"} }, `brokers: "kafka" is not host:port`},
		{"broker with a bad port", func(c *Config) { c.Brokers = []string{"kafka:70000"} }, `brokers: "kafka:70000"`},
		{"unknown delivery", func(c *Config) { c.Delivery = "twice" }, `delivery: "twice"`},
		{"version in the topic", func(c *Config) { c.Topic = "k8s.{version}" }, "topic: "},
		{"illegal topic", func(c *Config) { c.Topic = "k8s/{cluster}" }, "topic: "},
		{"a key of two collections in compacted topics", func(c *Config) { c.Tombstones, c.Key = true, "{namespace}/{name}" }, "key: \"{namespace}/{name}\": with tombstones a key is one object's in one collection"},
		{"partitions", func(c *Config) { c.Create.Partitions = -1 }, "create.partitions: -1"},
		{"retention", func(c *Config) { c.Create.Retention = -time.Hour }, "create.retention: -1h"},
		{"retention of a compacted topic", func(c *Config) { c.Create.Retention, c.Tombstones = time.Hour, true }, "create.retention: with tombstones"},
		{"min in-sync", func(c *Config) { c.Create.MinInsyncReplicas = -1 }, "create.minInsyncReplicas: -1"},
		{"too many in-sync", func(c *Config) { c.Create.MinInsyncReplicas, c.Create.ReplicationFactor = 3, 2 }, "no more than create.replicationFactor, which is 2"},
		{"cleanup policy", func(c *Config) { c.Create.Config = map[string]string{"cleanup.policy": "delete"} }, "create.config.cleanup.policy: tombstones decides"},
		{"retention twice", func(c *Config) {
			c.Create.Retention, c.Create.Config = time.Hour, map[string]string{"retention.ms": "1"}
		}, "create.config.retention.ms: create.retention decides"},
		{"replication", func(c *Config) { c.Create.ReplicationFactor = -2 }, "create.replicationFactor: -2"},
		{"credentials without mechanism", func(c *Config) { c.SASL.Username = "u" }, "sasl.mechanism: missing"},
		{"unknown mechanism", func(c *Config) { c.SASL = SASL{Mechanism: "GSSAPI", Username: "u", Password: "hunter2"} }, `sasl.mechanism: "GSSAPI"`},
		{"no password", func(c *Config) { c.SASL = SASL{Mechanism: "PLAIN", Username: "u"} }, "sasl: username and password"},
		{"two passwords", func(c *Config) {
			c.SASL = SASL{Mechanism: "PLAIN", Username: "u", Password: "hunter2", PasswordFile: "/does/not/exist"}
		}, "sasl: password and passwordFile"},
		{"password missing", func(c *Config) {
			c.SASL = SASL{Mechanism: "PLAIN", Username: "u", PasswordFile: "/does/not/exist"}
		}, "sasl.passwordFile: open /does/not/exist"},
		{"CA without TLS", func(c *Config) { c.TLS.CA = "/ca.pem" }, "tls.ca: "},
		{"CA missing", func(c *Config) { c.TLS = TLS{Enabled: true, CA: "/does/not/exist.pem"} }, "tls.ca: open /does/not/exist.pem"},
		{"CA is no certificate", func(c *Config) { c.TLS = TLS{Enabled: true, CA: "config_test.go"} }, "holds no PEM certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Config{Brokers: []string{"kafka:9092"}, Delivery: atLeastOnce}
			c.change(&config)
			_, err := New(Options{Config: config})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q shows the password", err)
			}
		})
	}
}

// The configured topic settings apply to the topics that the sink creates. Dead letters keep their own retention.
func TestTopicConfigs(t *testing.T) {
	t.Parallel()
	c := Config{Create: Create{Retention: 48 * time.Hour, MinInsyncReplicas: 2, Config: map[string]string{"segment.ms": "3600000", "max.message.bytes": "9000000"}}}
	want := map[string]string{"cleanup.policy": "delete", "retention.ms": "172800000", "min.insync.replicas": "2", "segment.ms": "3600000", "max.message.bytes": "9000000"}
	if got := c.TopicConfigs(false); !maps.Equal(got, want) {
		t.Errorf("events: %v, want %v", got, want)
	}
	want = map[string]string{"cleanup.policy": "delete", "retention.ms": "2592000000", "min.insync.replicas": "2", "max.message.bytes": "8388608"}
	if got := c.TopicConfigs(true); !maps.Equal(got, want) {
		t.Errorf("dead letters: %v, want %v", got, want)
	}
}
