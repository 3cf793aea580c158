package kafka

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Config says which Kafka a sink writes to and how.
type Config struct {
	Brokers []string `yaml:"brokers"` // host:port, at least one
	// Topic is the template of a collection's topic.
	// Default: k8s.{cluster}.{group}.{resource}
	Topic string `yaml:"topic"`
	// Delivery is at-least-once.
	Delivery string `yaml:"delivery"`
	Create   Create `yaml:"create"`
	SASL     SASL   `yaml:"sasl"`
	TLS      TLS    `yaml:"tls"`
}

// Create says how missing topics are created.
type Create struct {
	Enabled           *bool `yaml:"enabled"`           // default true
	Partitions        int   `yaml:"partitions"`        // default 12
	ReplicationFactor int   `yaml:"replicationFactor"` // default -1, the broker's own default
}

// SASL holds credentials. No mechanism means no authentication.
type SASL struct {
	Mechanism string `yaml:"mechanism"` // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
	Username  string `yaml:"username"`
	Password  string `yaml:"password"`
}

// TLS encrypts the connections.
type TLS struct {
	Enabled bool   `yaml:"enabled"`
	CA      string `yaml:"ca"` // path of a PEM file; empty: the system's
}

const (
	defaultTopic      = "k8s.{cluster}.{group}.{resource}"
	defaultPartitions = 12

	atLeastOnce = "at-least-once"
	exactlyOnce = "exactly-once"
)

// The SASL mechanisms that [SASL] takes.
const (
	mechanismPlain    = "PLAIN"
	mechanismScram256 = "SCRAM-SHA-256"
	mechanismScram512 = "SCRAM-SHA-512"
)

// Complete returns the configuration with every default filled in. The error
// joins everything that is wrong with it; each line starts with the field.
func (c Config) Complete() (Config, error) {
	if c.Topic == "" {
		c.Topic = defaultTopic
	}
	if c.Create.Enabled == nil {
		c.Create.Enabled = new(true)
	}
	if c.Create.Partitions == 0 {
		c.Create.Partitions = defaultPartitions
	}
	if c.Create.ReplicationFactor == 0 {
		c.Create.ReplicationFactor = -1
	}
	return c, errors.Join(c.checkBrokers(), c.checkTopic(), c.checkDelivery(), c.checkCreate(), c.checkSecurity())
}

func (c Config) checkBrokers() error {
	if len(c.Brokers) == 0 {
		return errors.New("brokers: none given: list at least one host:port")
	}
	for _, b := range c.Brokers {
		host, port, err := net.SplitHostPort(b)
		if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || host == "" || n == 0 {
			return fmt.Errorf("brokers: %q is not host:port, for example kafka:9092", b)
		}
	}
	return nil
}

func (c Config) checkTopic() error {
	for _, name := range []string{"{type}", "{version}", "{kind}"} {
		if strings.Contains(c.Topic, name) {
			return fmt.Errorf("topic: %q: %s would spread one object over several topics and lose its order: leave it out", c.Topic, name)
		}
	}
	literal := regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(c.Topic, "x")
	if err := checkTopicName(literal); err != nil {
		return fmt.Errorf("topic: %w", err)
	}
	return nil
}

func (c Config) checkDelivery() error {
	switch c.Delivery {
	case atLeastOnce:
		return nil
	case "", exactlyOnce:
		return errors.New("delivery: exactly-once (also meant when delivery is left out) is not in this version: set `delivery: at-least-once`")
	default:
		return fmt.Errorf("delivery: %q is not known: set `delivery: at-least-once`", c.Delivery)
	}
}

func (c Config) checkCreate() error {
	if n := c.Create.Partitions; n < 1 {
		return fmt.Errorf("create.partitions: %d: at least 1, or leave it out for %d", n, defaultPartitions)
	}
	if n := c.Create.ReplicationFactor; n < -1 {
		return fmt.Errorf("create.replicationFactor: %d: at least 1, or leave it out for the broker's default", n)
	}
	return nil
}

func (c Config) checkSecurity() error {
	known := []string{mechanismPlain, mechanismScram256, mechanismScram512}
	switch s := c.SASL; {
	case s.Mechanism == "" && (s.Username != "" || s.Password != ""):
		return fmt.Errorf("sasl.mechanism: missing beside the credentials: set one of %s", strings.Join(known, ", "))
	case s.Mechanism != "" && !slices.Contains(known, s.Mechanism):
		return fmt.Errorf("sasl.mechanism: %q is not known: set one of %s", s.Mechanism, strings.Join(known, ", "))
	case s.Mechanism != "" && (s.Username == "" || s.Password == ""):
		return errors.New("sasl: username and password are both needed")
	case c.TLS.CA != "" && !c.TLS.Enabled:
		return errors.New("tls.ca: set, but TLS is off: set `tls.enabled: true`")
	}
	return nil
}
