package bridge

import "sigs.k8s.io/yaml"

// Config has the parts of a configuration file that tests vary.
type Config struct {
	Name       string         `json:"name,omitempty"`
	Cluster    string         `json:"cluster"`
	Kubernetes map[string]any `json:"kubernetes"`
	Resources  []Resource     `json:"resources"`
	Exclude    []string       `json:"exclude,omitempty"`
	Sinks      []Sink         `json:"sinks"`
	Checkpoint map[string]any `json:"checkpoint"`
	Secrets    map[string]any `json:"secrets,omitempty"`
	Buffer     map[string]any `json:"buffer,omitempty"`
	Audit      map[string]any `json:"audit,omitempty"`
	Status     map[string]any `json:"status"`
	Shutdown   map[string]any `json:"shutdown,omitempty"`
	Admin      map[string]any `json:"admin,omitempty"`

	LeaderElection map[string]any `json:"leaderElection,omitempty"`
}

// Resource is an entry of resources.
type Resource struct {
	Resource      string   `json:"resource"`
	Name          string   `json:"name,omitempty"`
	Group         string   `json:"group,omitempty"`
	Version       string   `json:"version,omitempty"`
	Namespaces    []string `json:"namespaces,omitempty"`
	LabelSelector string   `json:"labelSelector,omitempty"`
	FieldSelector string   `json:"fieldSelector,omitempty"`

	NamespaceSelector string   `json:"namespaceSelector,omitempty"`
	ExcludeNamespaces []string `json:"excludeNamespaces,omitempty"`
	MetadataOnly      bool     `json:"metadataOnly,omitempty"`
	Snapshot          string   `json:"snapshot,omitempty"`
	Types             []string `json:"types,omitempty"`
	SyncedEvery       string   `json:"syncedEvery,omitempty"`
	Resync            string   `json:"resync,omitempty"`
	VerifyEvery       string   `json:"verifyEvery,omitempty"`
	Diff              string   `json:"diff,omitempty"`
	ChangedBy         bool     `json:"changedBy,omitempty"`
	Ignore            []string `json:"ignore,omitempty"`
	Filter            string   `json:"filter,omitempty"`
	Topic             string   `json:"topic,omitempty"`
	Key               string   `json:"key,omitempty"`
	Subject           string   `json:"subject,omitempty"`
}

// Sink is the configuration of a sink.
type Sink struct {
	Name      string         `json:"name"`
	Resources []Resource     `json:"resources,omitempty"`
	Linger    string         `json:"linger,omitempty"`
	Oversize  string         `json:"oversize,omitempty"`
	NATS      map[string]any `json:"nats,omitempty"`
	Kafka     map[string]any `json:"kafka,omitempty"`
	File      map[string]any `json:"file,omitempty"`
	Stdout    map[string]any `json:"stdout,omitempty"`
	HTTP      map[string]any `json:"http,omitempty"`
}

// YAML returns the file's text.
func (c Config) YAML() ([]byte, error) { return yaml.Marshal(c) }
