// Package config reads and checks the program's configuration: defaults, then
// the file, then the environment, then flags.
package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubebridge/kubebridge/internal/plan"
	"github.com/kubebridge/kubebridge/pkg/sink/file"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

// Off is written in place of an address where nothing shall listen.
const Off = "off"

// Config is the whole configuration. [Load] fills in every default.
type Config struct {
	Name       string     `yaml:"name"`    // this bridge; two in one cluster need two names. Default: kubebridge
	Cluster    string     `yaml:"cluster"` // its name in every event; required
	Kubernetes Kubernetes `yaml:"kubernetes"`
	Resources  []Resource `yaml:"resources"` // what every sink gets that does not name its own
	// Exclude names resources, or patterns of them, that no pattern under Resources
	// takes in.
	Exclude    []string   `yaml:"exclude"`
	Sinks      []Sink     `yaml:"sinks"` // one pipeline each; at least one
	Checkpoint Checkpoint `yaml:"checkpoint"`
	Secrets    Secrets    `yaml:"secrets"`
	// Redact hides values of other objects, and more of Secrets.
	Redact []Redaction `yaml:"redact"`
	// ManagedFields is "drop" (default) or "keep".
	ManagedFields string   `yaml:"managedFields"`
	Status        Status   `yaml:"status"`
	Admin         Admin    `yaml:"admin"`
	Log           Log      `yaml:"log"`
	Shutdown      Shutdown `yaml:"shutdown"`
	// LeaderElection lets several replicas run, of which one writes.
	LeaderElection LeaderElection `yaml:"leaderElection"`

	places   map[string]string // where entries of resources are in the file, by their paths
	warnings []string
}

// Kubernetes says where the API server is. Both empty: in-cluster, else the
// usual kubeconfig rules.
type Kubernetes struct {
	Kubeconfig      string `yaml:"kubeconfig"`      // path of a file. Default: the pod's service account, else the usual rules
	Context         string `yaml:"context"`         // in that file. Default: its current one
	ClusterUID      string `yaml:"clusterUID"`      // of the kube-system namespace, where the bridge may not get it
	ConcurrentLists int    `yaml:"concurrentLists"` // lists under way at once. Default: 4
}

// Sink is where events go. Exactly one of Kafka, NATS, File and Stdout is set.
type Sink struct {
	Name      string        `yaml:"name"`      // the checkpoint is kept under it; required
	Resources []Resource    `yaml:"resources"` // none: the bridge's
	Linger    time.Duration `yaml:"linger"`    // how long a batch waits for company. Default: 0
	// Oversize says what becomes of an event that the bus does not take: "truncate"
	// (default), "dead-letter" or "fail".
	Oversize string `yaml:"oversize"`
	// Format is "structured" (default): a value is the whole event; "binary": its
	// data, the attributes are in headers alone; or "plain": the object. file and
	// stdout have no headers: structured or plain.
	Format string `yaml:"format"`
	// Headers are templates of headers beside the attributes, by name. Only for kafka
	// and nats.
	Headers map[string]string `yaml:"headers"`
	Kafka   *kafka.Config     `yaml:"kafka"`
	NATS    *nats.Config      `yaml:"nats"`
	File    *file.Config      `yaml:"file"`
	Stdout  *stdout.Config    `yaml:"stdout"`
}

// Checkpoint says where positions and inventories are kept. What is left out is
// kept on the sink's own bus where that can do it, see [Config.InKafka].
type Checkpoint struct {
	File  File            `yaml:"file"`
	Kafka CheckpointTopic `yaml:"kafka"`
	NATS  NATSCheckpoint  `yaml:"nats"`
}

// CheckpointTopic is the compacted topic that a Kafka sink keeps its checkpoint in.
type CheckpointTopic struct {
	// Topic is a template of its name: {name}, {cluster} and {sink}.
	// Default: kubebridge.{name}.{cluster}.{sink}
	Topic    string `yaml:"topic"`
	Replicas int    `yaml:"replicas"` // of a topic that is created. Default: the broker's own
}

// NATSCheckpoint is the key-value bucket that a NATS sink keeps its checkpoint in.
type NATSCheckpoint struct {
	// Scratch is a directory for working copies. Empty: they are in memory.
	Scratch string `yaml:"scratch"`
}

// File keeps checkpoints in a directory, one below it for each sink.
type File struct {
	Path string `yaml:"path"` // of the directory. Default: the checkpoint is kept on the bus, where that can do it
}

// Secrets says what becomes of the values of core Secrets.
type Secrets struct {
	// Values is "hash" (default): keyed hashes; "redact"; or "plain".
	Values string `yaml:"values"`
	// HashKeySecret is namespace/name of a Secret of Kubernetes that exists, in the cluster that is
	// watched. The bridge puts a random key into its entry `key` if there is none. It needs get and
	// patch on it.
	HashKeySecret string `yaml:"hashKeySecret"`
	// HashKeyFile holds the key, at least 16 bytes. With neither of both the bridge makes one in
	// checkpoint.file.path; without that, values are redacted.
	HashKeyFile string `yaml:"hashKeyFile"`
}

// Status is the HTTP server of the status page, /metrics, /healthz and /readyz.
type Status struct {
	// Listen is host:port; "off" for none. Default: :8080 in a pod, 127.0.0.1:8080 elsewhere.
	Listen string `yaml:"listen"`
	// Hosts are the names that requests may be sent to, beside IP addresses, localhost
	// and the host of Listen: of a Service or an Ingress, for example.
	Hosts []string  `yaml:"hosts"`
	TLS   ServerTLS `yaml:"tls"`
	Login Login     `yaml:"login"`
	// History has the page show the last changes of every collection, with names, and
	// with diffs where the resource has `diff`. Default: false.
	History bool `yaml:"history"`
}

// ServerTLS has an endpoint speak HTTPS. Files are read again for every connection.
type ServerTLS struct {
	Cert string `yaml:"cert"` // path of a PEM file: the certificate and those that sign it. Default: no TLS
	Key  string `yaml:"key"`  // path of a PEM file: its key
}

// Login says whose requests an endpoint answers: at most one of its fields is set. Default: everybody's.
type Login struct {
	// TokenFile is the path of a file with a token, at least 16 bytes. It is read for
	// each request.
	TokenFile string `yaml:"tokenFile"`
	// Kubernetes asks the API server whose a token is (TokenReview) and whether RBAC lets
	// them get /metrics, or any other path behind /kubebridge (SubjectAccessReview with
	// nonResourceURLs). Default: false.
	Kubernetes bool `yaml:"kubernetes"`
}

// Required reports whether requests need a token.
func (l Login) Required() bool { return l != Login{} }

// Admin is the local socket that takes commands: `bridge resync` speaks to it.
type Admin struct {
	// Socket is its path; "off" for none. Default: admin.sock in checkpoint.file.path;
	// off without that, or where it would be too long a path for a socket.
	Socket string `yaml:"socket"`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level"`  // debug, info (default), warn, error
	Format string `yaml:"format"` // json, console, auto (default: console on a terminal)
}

// Shutdown bounds the end of the program.
type Shutdown struct {
	Timeout time.Duration `yaml:"timeout"` // to deliver what was read. Default: 20s
}

// LeaderElection is a Lease in the cluster that is watched.
type LeaderElection struct {
	Enabled       bool          `yaml:"enabled"`       // default: one process, no Lease
	LeaseName     string        `yaml:"leaseName"`     // default: kubebridge-<name>
	Namespace     string        `yaml:"namespace"`     // of the Lease. Default: the pod's own
	LeaseDuration time.Duration `yaml:"leaseDuration"` // a silent leader is believed in for so long; whole seconds. Default: 10s
	RenewDeadline time.Duration `yaml:"renewDeadline"` // a leader that cannot renew gives up after it. Default: 7s
	RetryPeriod   time.Duration `yaml:"retryPeriod"`   // between two attempts. Default: 1s
}

// Warnings are what the file may not mean, a line each with its place. [Config.Reloaded] has none.
func (c *Config) Warnings() []string { return c.warnings }

// ResourcesOf are the resources of a sink.
func (c *Config) ResourcesOf(s *Sink) []Resource {
	if len(s.Resources) > 0 {
		return s.Resources
	}
	return c.Resources
}

// Entries are the resources of a sink as internal/plan takes them, without the options that do not
// matter there. Each has its place in the file, but not after [Config.Reloaded].
func (c *Config) Entries(s *Sink) (all []plan.Entry) {
	list := "resources"
	if len(s.Resources) > 0 {
		at := slices.IndexFunc(c.Sinks, func(other Sink) bool { return other.Name == s.Name })
		list = fmt.Sprintf("sinks[%d].resources", at)
	}
	for i, r := range c.ResourcesOf(s) {
		all = append(all, r.planned(c.places[fmt.Sprintf("%s[%d]", list, i)]))
	}
	return all
}

func defaults() *Config {
	return &Config{
		Name:          "kubebridge",
		Kubernetes:    Kubernetes{ConcurrentLists: 4},
		Secrets:       Secrets{Values: "hash"},
		ManagedFields: "drop",
		Log:           Log{Level: "info", Format: "auto"},
		Shutdown:      Shutdown{Timeout: 20 * time.Second},
		LeaderElection: LeaderElection{
			LeaseDuration: 10 * time.Second, RenewDeadline: 7 * time.Second, RetryPeriod: time.Second,
		},
	}
}
