// Package config reads and checks the program's configuration: defaults, then
// the file, then the environment, then flags.
package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubebridge/kubebridge/internal/bus/file"
	"github.com/kubebridge/kubebridge/internal/bus/http"
	"github.com/kubebridge/kubebridge/internal/bus/kafka"
	"github.com/kubebridge/kubebridge/internal/bus/nats"
	"github.com/kubebridge/kubebridge/internal/bus/stdout"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/pkg/sink"
	kafkasink "github.com/kubebridge/kubebridge/pkg/sink/kafka"
)

// Off is written in place of an address where nothing shall listen.
const Off = "off"

// Config is the whole configuration. [LoadPart] fills in every default.
type Config struct {
	Name       string     `yaml:"name"`    // this bridge. Two bridges in one cluster need two names: what they own on the bus is named after them. Default: kubebridge
	Cluster    string     `yaml:"cluster"` // the cluster's name, in every event; required
	Kubernetes Kubernetes `yaml:"kubernetes"`
	Resources  []Resource `yaml:"resources"` // what every sink publishes that has no list of its own
	// Exclude has names and patterns that patterns leave out, in every sink. A name has no version.
	Exclude    []string   `yaml:"exclude"`
	Sinks      []Sink     `yaml:"sinks"` // one pipeline each; at least one
	Checkpoint Checkpoint `yaml:"checkpoint"`
	Buffer     Buffer     `yaml:"buffer"`
	Audit      Audit      `yaml:"audit"`
	Secrets    Secrets    `yaml:"secrets"`
	// Redact replaces or removes values of objects, also of Secrets.
	Redact []Redaction `yaml:"redact"`
	// ManagedFields is "drop" (default), or "keep" to leave metadata.managedFields in the objects.
	ManagedFields string   `yaml:"managedFields"`
	Status        Status   `yaml:"status"`
	Admin         Admin    `yaml:"admin"`
	Log           Log      `yaml:"log"`
	Shutdown      Shutdown `yaml:"shutdown"`
	// LeaderElection lets several replicas run, of which one writes.
	LeaderElection LeaderElection `yaml:"leaderElection"`

	places   map[string]string // where entries of resources are in the file, by their paths
	warnings []string
	digest   string
}

// Kubernetes says where the API server is.
type Kubernetes struct {
	// Kubeconfig is the path of a kubeconfig. Default: KUBECONFIG, else ~/.kube/config if it exists, else the pod's
	// service account. It is read again within ten seconds, and when the API server refuses the credentials: only another
	// server needs a restart.
	Kubeconfig string `yaml:"kubeconfig"`
	Context    string `yaml:"context"` // context in that kubeconfig. Default: the current one
	// ClusterUID is the UID of the namespace kube-system, for a bridge that may not get it. For a cluster without this
	// namespace, choose a text that no other cluster has.
	ClusterUID string `yaml:"clusterUID"`
	// ConcurrentLists is how many lists run at once. Lists that the API server did not answer in time before get
	// at most half of it, rounded down but at least one. Default: 4
	ConcurrentLists int `yaml:"concurrentLists"`
}

// Sink is where events go. Exactly one of the fields that implement [bus.Config] is set: they are the table of all kinds of buses.
type Sink struct {
	Name      string     `yaml:"name"`      // names the checkpoint: another name begins another one; required
	Resources []Resource `yaml:"resources"` // this sink's own list. Default: the bridge's
	// Linger is how long a batch waits for more events. While one batch is written the next one fills; a longer
	// time makes fewer, larger writes. Default: 0s
	Linger time.Duration `yaml:"linger"`
	// Oversize is what happens to an event that Kafka or NATS does not take: "truncate" (default), "dead-letter"
	// or "fail".
	Oversize string `yaml:"oversize"`
	// Format is "structured" (default): a message is the whole event; "binary": its data, with the attributes in
	// headers only; or "plain": the object. file and stdout have no headers: structured or plain. Another format
	// is a reset.
	Format string `yaml:"format"`
	// Headers are templates of headers besides the attributes, by name. Only for kafka and nats.
	Headers map[string]string `yaml:"headers"`
	Kafka   *kafka.Config     `yaml:"kafka"`
	NATS    *nats.Config      `yaml:"nats"`
	File    *file.Config      `yaml:"file"`
	Stdout  *stdout.Config    `yaml:"stdout"`
	HTTP    *http.Config      `yaml:"http"`
}

// Checkpoint says where positions and inventories are kept. What is left out is
// kept on the sink's own bus where that can do it, see [Config.OnBus].
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
	Replicas int    `yaml:"replicas"` // replication factor of the topic when it is created. Default: the broker's own
}

// NATSCheckpoint is the key-value bucket that a NATS sink keeps its checkpoint in.
type NATSCheckpoint struct {
	// Scratch is a directory for working copies of checkpoints, some 100 bytes per object. Default: in memory.
	Scratch string `yaml:"scratch"`
}

// File keeps checkpoints in a directory, one below it for each sink.
type File struct {
	Path string `yaml:"path"` // directory of the checkpoint, with one below it for each sink. Default: on the bus, where the sink can do that
}

// Buffer keeps on disk what the API server sends while a sink is behind, because its bus is away or slow. A change needs a restart.
type Buffer struct {
	Path string `yaml:"path"` // directory of the buffer, for one bridge alone. Default: nothing is buffered
	// MaxBytes is how much it may hold. When it is full, nothing more is buffered, and a gap may follow.
	// Default: 10Gi
	MaxBytes sink.Bytes    `yaml:"maxBytes"`
	MaxAge   time.Duration `yaml:"maxAge"` // what is older is deleted, also if a sink has not published it. Default: 24h
	// Standby makes the standbys of leaderElection buffer what the leader buffers, each in a directory of its own,
	// so that a takeover does not lose it. Default: false
	Standby bool `yaml:"standby"`
}

// BufferList is the name of the ConfigMap in which the leader lists what it buffers, in the namespace of the Lease; "": standbys do not
// buffer.
func (c *Config) BufferList() string {
	if !c.Buffer.Standby {
		return ""
	}
	return c.LeaderElection.LeaseName + "-buffer"
}

// Audit says who made changes, by the audit log of the API server. A change needs a restart.
type Audit struct {
	// Path is the directory in which records are kept until every sink has used them, for one bridge alone. Default: nobody asks who
	// made changes
	Path     string       `yaml:"path"`
	MaxBytes sink.Bytes   `yaml:"maxBytes"` // how much it may hold. When it is full, API servers have to wait. Default: 1Gi
	Webhook  AuditWebhook `yaml:"webhook"`
	// File is the file of the API server's log backend (--audit-log-path), which is followed when it is rotated.
	File string `yaml:"file"`
	// Kafka is a topic with audit events, from which every partition is read. The position is kept in Path, without a consumer group.
	// Default: none
	Kafka *AuditTopic `yaml:"kafka"`
	// Replicas lets every replica accept records, with leaderElection: those that do not lead send them to the leader.
	Replicas AuditReplicas `yaml:"replicas"`
	// Complete says that the inputs get the records of all API servers, about all requests that change objects, with the stage
	// RequestReceived, and in time: from the webhook or the file in the mode blocking-strict. Then patches and deletions can be
	// attributed exactly, too: see docs/attribution.md. Not with Kafka. Default: false
	Complete bool `yaml:"complete"`
	// Denied publishes requests that were refused because their user may not do them, reads too, for the resources that a sink publishes:
	// see docs/attribution.md. Default: false
	Denied bool `yaml:"denied"`
	// RequestTimeout is that of the API servers (--request-timeout): after twice this time, a request that has not ended does not change
	// anything any more. Default: 1m
	RequestTimeout time.Duration `yaml:"requestTimeout"`
	// Settle is how long a change waits for its records before candidates are published: longer than the API server waits before it sends
	// a batch (--audit-webhook-batch-max-wait). Default: 40s
	Settle time.Duration `yaml:"settle"`
	// Wait is how long a change waits for its records before it is published, at most 1m: longer than the API server waits before it sends
	// a batch. If it is known by then who made the change, its event says so (actor), and no other event follows. Default: a change
	// does not wait
	Wait time.Duration `yaml:"wait"`
	// Keep is how long a change waits for its first record, and a record for its change. Default: 10m
	Keep time.Duration `yaml:"keep"`
	// Omit has what is not published, and not kept, of users: "groups", "sourceIPs", "extra".
	Omit []string `yaml:"omit"`
}

// AuditTopic is a topic of Kafka, or of Azure Event Hubs, to which something else writes audit events.
type AuditTopic struct {
	Brokers []string       `yaml:"brokers"` // a list of host:port; required
	Topic   string         `yaml:"topic"`   // its name; required
	SASL    kafkasink.SASL `yaml:"sasl"`
	TLS     kafkasink.TLS  `yaml:"tls"`
	// AzureResourceID is the resource ID of the AKS cluster (/subscriptions/…/managedClusters/NAME), required if Azure Monitor writes to the topic:
	// records of other clusters are left out. Default: no records of Azure Monitor are used
	AzureResourceID string `yaml:"azureResourceId"`
}

// Connection returns how to connect to the brokers.
func (t *AuditTopic) Connection() kafkasink.Config {
	return kafkasink.Config{Brokers: t.Brokers, SASL: t.SASL, TLS: t.TLS}
}

// AuditReplicas says how a replica reaches the leader. Not with audit.complete.
type AuditReplicas struct {
	// Address is host:port of a replica's webhook, with {host} for its host name, which is the name of the pod. Default: only the leader
	// accepts records
	Address string `yaml:"address"`
	CAFile  string `yaml:"caFile"` // certificates that issue those of the webhooks, PEM
}

// AuditWebhook is the endpoint for the webhook backend of API servers (--audit-webhook-config-file). Clients need a certificate or a
// token, or both if both are configured.
type AuditWebhook struct {
	Listen       string   `yaml:"listen"`       // host:port. Default: there is no endpoint
	CertFile     string   `yaml:"certFile"`     // the endpoint's certificate, PEM; read again for new connections
	KeyFile      string   `yaml:"keyFile"`      // its private key, PEM
	ClientCAFile string   `yaml:"clientCAFile"` // certificates that issue those of clients, PEM
	ClientNames  []string `yaml:"clientNames"`  // common names and DNS names that a client's certificate may have. Default: any
	TokenFile    string   `yaml:"tokenFile"`    // the bearer token of clients
}

// Secrets says what becomes of the values of core Secrets.
type Secrets struct {
	// Values is what replaces values of core Secrets: "hash" (default), a keyed hash; "redact", the text redacted;
	// or "plain", the values themselves.
	Values string `yaml:"values"`
	// HashKeySecret is namespace/name of an existing Secret in the watched cluster. If its entry `key` is missing,
	// the bridge puts 32 random bytes there. The bridge needs get and patch on it. The chart sets it.
	HashKeySecret string `yaml:"hashKeySecret"`
	// HashKeyFile is a file with the key instead: at least 16 bytes, better 32 random ones; only with hash. A key
	// that can be guessed, or a file that everyone may write, is refused. With neither key the bridge makes one in
	// checkpoint.file.path; without that directory, values are redacted.
	HashKeyFile string `yaml:"hashKeyFile"`
}

// Status is the HTTP server of the status page, /metrics, /healthz and /readyz.
type Status struct {
	// Listen is host:port, or "off". Default: :8080 in a pod, 127.0.0.1:8080 elsewhere.
	Listen string `yaml:"listen"`
	// Hosts are names that requests may be sent to, of a Service or an Ingress for example. IP addresses,
	// localhost and the host of Listen are always allowed. Any other Host header is answered with 421.
	Hosts []string  `yaml:"hosts"`
	TLS   ServerTLS `yaml:"tls"`
	Login Login     `yaml:"login"`
	// History shows the last changes of every collection, with diffs where the resource has `diff`, to everybody
	// who can open the page. Default: false.
	History bool `yaml:"history"`
}

// ServerTLS has an endpoint speak HTTPS. Files are read again for every connection.
type ServerTLS struct {
	Cert string `yaml:"cert"` // PEM file: the certificate and those that sign it, read for every connection. Default: no TLS
	Key  string `yaml:"key"`  // PEM file: its key, read for every connection
}

// Login says whose requests an endpoint answers: at most one of its fields is set. Default: everybody's.
type Login struct {
	// TokenFile is a file with the token that requests must send, at least 16 bytes. It is read for each request.
	TokenFile string `yaml:"tokenFile"`
	// Kubernetes lets the API server (TokenReview) and RBAC (SubjectAccessReview) decide which path a token may
	// get. Default: false.
	Kubernetes bool `yaml:"kubernetes"`
}

// Required reports whether requests need a token.
func (l Login) Required() bool { return l != Login{} }

// Admin is the local socket that takes commands: `bridge resync` speaks to it.
type Admin struct {
	// Socket is the path of a Unix socket for commands to the running bridge, such as bridge resync; "off" for
	// none. Only the bridge's user can open it. Default: admin.sock in checkpoint.file.path; none without that
	// directory, or if the path would be longer than 90 bytes.
	Socket string `yaml:"socket"`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level"`  // debug, info (default), warn or error
	Format string `yaml:"format"` // json, console, or auto (default): console on a terminal
}

// Shutdown bounds the end of the program.
type Shutdown struct {
	Timeout time.Duration `yaml:"timeout"` // how long a stop may take to deliver what was read; the rest is delivered after the next start. Default: 20s
}

// LeaderElection is a Lease in the cluster that is watched.
type LeaderElection struct {
	Enabled   bool   `yaml:"enabled"`   // run several replicas, of which one writes. Default: false
	LeaseName string `yaml:"leaseName"` // name of the Lease, in the watched cluster. Default: kubebridge-<name>
	Namespace string `yaml:"namespace"` // namespace of the Lease. Default: the pod's own; required outside a pod
	// LeaseDuration is how long a leader keeps the Lease without renewing it: whole seconds, more than
	// RenewDeadline and RetryPeriod together. Default: 10s
	LeaseDuration time.Duration `yaml:"leaseDuration"`
	// RenewDeadline is how long a leader goes on that cannot renew the Lease: more than 1.2 times RetryPeriod.
	// Default: 7s
	RenewDeadline time.Duration `yaml:"renewDeadline"`
	RetryPeriod   time.Duration `yaml:"retryPeriod"` // between two attempts to renew or get the Lease. Default: 1s
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

// Entries are the resources of a sink as internal/core/plan takes them, without the options that do not
// matter there. Each has its place in the file, but not after [Config.Reloaded].
func (c *Config) Entries(s *Sink) (all []plan.Entry) {
	list := "resources"
	if len(s.Resources) > 0 {
		at := slices.IndexFunc(c.Sinks, func(other Sink) bool { return other.Name == s.Name })
		list = fmt.Sprintf("sinks[%d].resources", at)
	}
	var redacted []string
	for i := range c.Redact {
		redacted = append(redacted, c.Redact[i].Resources...)
	}
	for i, r := range c.ResourcesOf(s) {
		e := r.planned(c.places[fmt.Sprintf("%s[%d]", list, i)])
		e.Redacted = redacted
		all = append(all, e)
	}
	return all
}

func defaults() *Config {
	return &Config{
		Name:          "kubebridge",
		Kubernetes:    Kubernetes{ConcurrentLists: 4},
		Buffer:        Buffer{MaxBytes: 10 << 30, MaxAge: 24 * time.Hour},
		Audit:         Audit{MaxBytes: 1 << 30, Settle: 40 * time.Second, Keep: 10 * time.Minute, RequestTimeout: time.Minute},
		Secrets:       Secrets{Values: "hash"},
		ManagedFields: "drop",
		Log:           Log{Level: "info", Format: "auto"},
		Shutdown:      Shutdown{Timeout: 20 * time.Second},
		LeaderElection: LeaderElection{
			LeaseDuration: 10 * time.Second, RenewDeadline: 7 * time.Second, RetryPeriod: time.Second,
		},
	}
}
