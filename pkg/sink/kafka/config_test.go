package kafka

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConfigDefaults(t *testing.T) {
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
