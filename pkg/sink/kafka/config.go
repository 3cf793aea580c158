package kafka

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Config says which Kafka a sink writes to and how.
type Config struct {
	Brokers []string `yaml:"brokers"` // a list of host:port; required
	// Topic is the template of a collection's topic. Default: k8s.{cluster}.{group}.{resource}
	Topic string `yaml:"topic"`
	// Key is the template of an object's key. Events with one key are in one partition, in order; another key is a
	// reset. Default: {cluster}/{group}/{resource}/{namespace}/{name}, and /{entry} if that has a value
	Key string `yaml:"key"`
	// Delivery is exactly-once (default), or at-least-once: a crash repeats at most two batches, with the same
	// ids.
	Delivery string `yaml:"delivery"`
	// Compression is none (default), snappy, lz4, zstd or gzip.
	Compression string `yaml:"compression"`
	// Tombstones adds a null value of the same key to a deletion, so that a compacted topic forgets the object.
	// Topics are then created with cleanup.policy=compact. Default: false.
	Tombstones bool   `yaml:"tombstones"`
	Create     Create `yaml:"create"`
	// DeadLetter is where events go that their topic does not take; nil: there is
	// no such place.
	DeadLetter *DeadLetter `yaml:"deadLetter"`
	SASL       SASL        `yaml:"sasl"`
	TLS        TLS         `yaml:"tls"`
}

// DeadLetter is the topic of dead letters. When the sink creates it, it keeps them
// for 30 days, and is never compacted.
type DeadLetter struct {
	// Topic is a template of its name: {name} (of the bridge), {cluster}, {sink}. Only with oversize: dead-letter.
	// If the bridge creates the topic, it keeps dead letters for 30 days. Default:
	// kubebridge.{name}.{cluster}.{sink}.dead
	Topic string `yaml:"topic"`
}

// Create says how missing topics are created.
type Create struct {
	Enabled           *bool `yaml:"enabled"`           // create missing topics, with max.message.bytes of 8 MiB. Default: true
	Partitions        int   `yaml:"partitions"`        // of a topic that is created. Default: 12
	ReplicationFactor int   `yaml:"replicationFactor"` // of a topic that is created. Default: the broker's own
	// Retention is how long a topic of events that is created keeps them, not with tombstones. A warning if a resource has no resync, or a
	// longer one: `bridge state` and `bridge history` then lack objects that have not changed for longer. Default: the broker's own
	Retention time.Duration `yaml:"retention"`
	// MinInsyncReplicas is how many replicas must have a record of a created topic before it is acknowledged. Default: the broker's own
	MinInsyncReplicas int `yaml:"minInsyncReplicas"`
	// Config has further settings of created topics of events, as Kafka names them.
	Config map[string]string `yaml:"config"`
}

// SASL holds credentials. No mechanism means no authentication.
type SASL struct {
	Mechanism string `yaml:"mechanism"` // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM. Default: none
	Username  string `yaml:"username"`  // for PLAIN and SCRAM
	Password  string `yaml:"password"`  // for PLAIN and SCRAM; never printed
	// PasswordFile is a file with the password, instead of Password. It is read for every connection, so a new
	// password needs no restart.
	PasswordFile string `yaml:"passwordFile"`
	// TokenFile is a file with the token of OAUTHBEARER. It is read for every authentication.
	TokenFile string `yaml:"tokenFile"`
	// Region of the cluster, for AWS_MSK_IAM, which needs TLS. The credentials are AWS's own: environment, service
	// account (IRSA), shared files, EKS Pod Identity, the instance's role. Default: AWS_REGION.
	Region string `yaml:"region"`
}

// TLS encrypts the connections.
type TLS struct {
	Enabled bool `yaml:"enabled"` // encrypt the connections. Default: false
	// CA is a PEM file of the authority of the brokers' certificates, read for every connection. Default: the
	// system's.
	CA string `yaml:"ca"`
	// ServerName is the name that every broker's certificate must have. Default: the broker's host.
	ServerName string `yaml:"serverName"`
	// Cert and Key are PEM files of a client certificate, read for every connection.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"` // beside Cert
}

const (
	defaultTopic      = "k8s.{cluster}.{group}.{resource}"
	defaultKey        = "{cluster}/{group}/{resource}/{namespace}/{name}"
	defaultDeadTopic  = "kubebridge.{name}.{cluster}.{sink}.dead"
	defaultPartitions = 12

	atLeastOnce = "at-least-once"
	exactlyOnce = "exactly-once"
)

// The SASL mechanisms that [SASL] takes.
const (
	mechanismPlain    = "PLAIN"
	mechanismScram256 = "SCRAM-SHA-256"
	mechanismScram512 = "SCRAM-SHA-512"
	mechanismOAuth    = "OAUTHBEARER"
	mechanismAWS      = "AWS_MSK_IAM"
)

// compressions are the codecs of both clients, in the protocol's order.
var compressions = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// ExactlyOnce reports whether the sink is one of [NewTransactional].
func (c *Config) ExactlyOnce() bool { return c.Delivery == "" || c.Delivery == exactlyOnce }

// Complete returns the configuration with every default filled in. The error
// joins everything that is wrong with it; each line starts with the field.
func (c Config) Complete() (Config, error) {
	if c.Topic == "" {
		c.Topic = defaultTopic
	}
	if c.Key == "" {
		c.Key = defaultKey
	}
	if c.DeadLetter != nil && c.DeadLetter.Topic == "" {
		c.DeadLetter = &DeadLetter{Topic: defaultDeadTopic}
	}
	if c.Delivery == "" {
		c.Delivery = exactlyOnce
	}
	if c.Compression == "" {
		c.Compression = compressions[0]
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
	return c, errors.Join(c.checkBrokers(), CheckTopic(c.Topic), c.CheckKey(c.Key, c.Topic), c.checkDeadLetter(), c.checkDelivery(), c.checkCompression(), c.checkCreate(), c.checkSecurity())
}

func (c Config) checkBrokers() error {
	if len(c.Brokers) == 0 {
		return errors.New("brokers: none given: list at least one host:port")
	}
	for _, b := range c.Brokers {
		host, port, err := net.SplitHostPort(b)
		if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || host == "" || n == 0 {
			return fmt.Errorf("brokers: %q is not host:port, for example kafka:9092, with each address as an item of its own", b)
		}
	}
	return nil
}

// CheckTopic says what is wrong with a template of a collection's topic. Its error
// begins with the field.
func CheckTopic(template string) error {
	if err := oneWay("topic", "topics", template); err != nil {
		return err
	}
	if err := checkTopicName(placeholder.ReplaceAllString(template, "x")); err != nil {
		return fmt.Errorf("topic: %w", err)
	}
	return nil
}

// CheckKey says what is wrong with a template of the keys in topics of another. Its
// error begins with the field.
func (c Config) CheckKey(template, topic string) error {
	if err := oneWay("key", "partitions", template); err != nil {
		return err
	}
	if !c.Tombstones {
		return nil
	}
	for _, name := range []string{"{namespace}", "{name}", "{cluster}", "{group}", "{resource}"} {
		if !strings.Contains(template, name) && !strings.Contains(topic, name) {
			return fmt.Errorf("key: %q: with tombstones a key is one object's, and %s is neither in it nor in the topic: another object's deletion would remove this one", template, name)
		}
	}
	between := placeholder.Split(template, -1)
	for i, literal := range between {
		if i > 0 && i < len(between)-1 && !strings.Contains(literal, "/") {
			return fmt.Errorf("key: %q: with tombstones a key is one object's: put a / between two names, which no name holds: else two objects could have one key", template)
		}
	}
	if template != defaultKey && !strings.Contains(template, "{entry}") {
		return fmt.Errorf("key: %q: with tombstones a key is one object's in one collection, and {entry} is not in it: append /{entry}: else the end of one entry's collection would remove objects of another's", template)
	}
	return nil
}

// placeholder is a {name} in a template.
var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// oneWay refuses what would send events of one object different ways.
func oneWay(field, places, template string) error {
	for _, name := range []string{"{type}", "{version}", "{kind}"} {
		if strings.Contains(template, name) {
			return fmt.Errorf("%s: %q: %s would spread one object over several %s and lose its order: leave it out", field, template, name, places)
		}
	}
	return nil
}

func (c Config) checkDeadLetter() error {
	if c.DeadLetter == nil {
		return nil
	}
	if err := checkTopicName(c.DeadTopic(event.Identity{Bridge: "x", Cluster: "x", Sink: "x"})); err != nil {
		return fmt.Errorf("deadLetter.topic: %w, beside {name}, {cluster} and {sink}", err)
	}
	if c.DeadLetter.Topic == c.Topic {
		return fmt.Errorf("deadLetter.topic: %q is the events' own: set another", c.Topic)
	}
	return nil
}

// DeadTopic is the topic of a sink's dead letters, "" for none.
func (c Config) DeadTopic(id event.Identity) string {
	if c.DeadLetter == nil {
		return ""
	}
	return id.Expand(c.DeadLetter.Topic)
}

func (c Config) checkDelivery() error {
	if c.Delivery != exactlyOnce && c.Delivery != atLeastOnce {
		return fmt.Errorf("delivery: %q is not known: set %s or %s", c.Delivery, exactlyOnce, atLeastOnce)
	}
	return nil
}

func (c Config) checkCompression() error {
	if !slices.Contains(compressions, c.Compression) {
		return fmt.Errorf("compression: %q is not known: set one of %s", c.Compression, strings.Join(compressions, ", "))
	}
	return nil
}

func (c Config) checkCreate() error {
	if n := c.Create.Partitions; n < 1 {
		return fmt.Errorf("create.partitions: %d: at least 1, or leave it out for %d", n, defaultPartitions)
	}
	if n := c.Create.ReplicationFactor; n < -1 {
		return fmt.Errorf("create.replicationFactor: %d: at least 1, or leave it out for the broker's default", n)
	}
	return c.Create.checkSettings(c.Tombstones)
}

// checkSettings checks the settings of topics.
func (c Create) checkSettings(compacted bool) error {
	switch {
	case c.Retention != 0 && c.Retention < time.Millisecond:
		return fmt.Errorf("create.retention: %s: at least 1ms, or leave it out for the broker's default", c.Retention)
	case c.Retention != 0 && compacted:
		return errors.New("create.retention: with tombstones the topics are compacted, and keep the last event of an object whatever its age: leave it out")
	case c.MinInsyncReplicas < 0:
		return fmt.Errorf("create.minInsyncReplicas: %d: at least 1, or leave it out for the broker's default", c.MinInsyncReplicas)
	case c.ReplicationFactor > 0 && c.MinInsyncReplicas > c.ReplicationFactor:
		return fmt.Errorf("create.minInsyncReplicas: %d: no more than create.replicationFactor, which is %d, or nothing can be written", c.MinInsyncReplicas, c.ReplicationFactor)
	}
	for _, taken := range []struct {
		key, instead string
		set          bool
	}{
		{cleanupPolicy, "tombstones", true}, {retentionMS, "create.retention", c.Retention != 0}, {minInsyncReplicas, "create.minInsyncReplicas", c.MinInsyncReplicas != 0},
	} {
		if _, has := c.Config[taken.key]; has && taken.set {
			return fmt.Errorf("create.config.%s: %s decides that: leave it out", taken.key, taken.instead)
		}
	}
	return nil
}

// EventRetention is how long topics that the sink creates keep events; 0: it is not known, or without an end.
func (c Config) EventRetention() time.Duration {
	if c.Tombstones || c.Create.Enabled != nil && !*c.Create.Enabled {
		return 0
	}
	if ms, err := strconv.ParseInt(c.Create.Config[retentionMS], 10, 64); err == nil && ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return c.Create.Retention
}

func (c Config) checkSecurity() error {
	known := []string{mechanismPlain, mechanismScram256, mechanismScram512, mechanismOAuth, mechanismAWS}
	byPassword := slices.Contains(known[:3], c.SASL.Mechanism)
	switch s := c.SASL; {
	case s.Mechanism == "" && s != SASL{}:
		return fmt.Errorf("sasl.mechanism: missing beside the credentials: set one of %s", strings.Join(known, ", "))
	case s.Mechanism != "" && !slices.Contains(known, s.Mechanism):
		return fmt.Errorf("sasl.mechanism: %q is not known: set one of %s", s.Mechanism, strings.Join(known, ", "))
	case s.Mechanism == mechanismOAuth && (s.TokenFile == "" || s.Username != "" || s.Password+s.PasswordFile != ""):
		return errors.New("sasl: OAUTHBEARER takes a tokenFile, and no username and password")
	case s.Mechanism == mechanismAWS && (s.Username != "" || s.Password+s.PasswordFile != ""):
		return errors.New("sasl: AWS_MSK_IAM takes a region, and no username and password: credentials come from AWS's environment")
	case s.Mechanism == mechanismAWS && !c.TLS.Enabled:
		return errors.New("sasl.mechanism: AWS_MSK_IAM goes over TLS only: set `tls.enabled: true`")
	case s.Mechanism != mechanismOAuth && s.TokenFile != "":
		return errors.New("sasl.tokenFile: only OAUTHBEARER takes one")
	case s.Mechanism != mechanismAWS && s.Region != "":
		return errors.New("sasl.region: only AWS_MSK_IAM takes one")
	case s.Password != "" && s.PasswordFile != "":
		return errors.New("sasl: password and passwordFile: keep one")
	case byPassword && (s.Username == "" || s.Password+s.PasswordFile == ""):
		return errors.New("sasl: username and password are both needed")
	case c.TLS.CA != "" && !c.TLS.Enabled:
		return errors.New("tls.ca: set, but TLS is off: set `tls.enabled: true`")
	case c.TLS.ServerName != "" && !c.TLS.Enabled:
		return errors.New("tls.serverName: set, but TLS is off: set `tls.enabled: true`")
	case c.TLS.Cert != "" && !c.TLS.Enabled:
		return errors.New("tls.cert: set, but TLS is off: set `tls.enabled: true`")
	case (c.TLS.Cert == "") != (c.TLS.Key == ""):
		return errors.New("tls: cert and key go together: set both or none")
	}
	return nil
}
