package config

import (
	"time"

	"github.com/kubebridge/kubebridge/internal/plan"
)

// Resource asks for a resource, as kubectl names it, or for all that a pattern
// matches. In the file it is a string or a map.
type Resource struct {
	// Entry distinguishes entries of one resource in one sink. It is part of the identity of their
	// collections: an entry with another name has other collections. A DNS label. Default: none,
	// which only one of the entries of a resource can have.
	Entry string `yaml:"name"`
	// Resource is "pods", "deployments.apps", "deployments.v1.apps", or a pattern:
	// "*.*" is everything that can be watched, "*.apps" a group, "*.core" (or "*.")
	// the core group.
	Resource string `yaml:"resource"`
	Group    string `yaml:"group"`   // with Version: the long form of a GVR
	Version  string `yaml:"version"` // empty: the server's preferred one

	Namespaces        []string `yaml:"namespaces"`        // none: all of them
	NamespaceSelector string   `yaml:"namespaceSelector"` // label selector of namespaces; not beside Namespaces
	ExcludeNamespaces []string `yaml:"excludeNamespaces"` // not beside Namespaces
	LabelSelector     string   `yaml:"labelSelector"`     // only objects whose labels match
	FieldSelector     string   `yaml:"fieldSelector"`     // only objects whose fields match, where the server can do that

	// MetadataOnly asks the server for metadata alone: no spec, no status.
	MetadataOnly bool `yaml:"metadataOnly"`
	// Snapshot says what becomes of objects that exist when the entry is new:
	// "publish" (default) publishes them as present, "skip" does not.
	Snapshot string `yaml:"snapshot"`
	// Types are the types of change that are published: added, modified, deleted. nil:
	// all of them, but no deletions of events: those are mere expiry.
	Types []string `yaml:"types"`

	SyncedEvery time.Duration `yaml:"syncedEvery"` // repeats "complete up to here"; at least 1s. 0: never
	Resync      time.Duration `yaml:"resync"`      // publishes every object again; at least 1m. 0: never
	VerifyEvery time.Duration `yaml:"verifyEvery"` // compares with a fresh list; at least 1m. 0: never

	Redact []Redaction `yaml:"redact"` // values to hide, beside those that the bridge's redact hides
	Drop   []string    `yaml:"drop"`   // paths of values to leave out
	// Ignore are paths, or the presets status-heartbeats, leases and metadata-only: a
	// change of nothing else is not published. With any of them, resourceVersion,
	// generation and managedFields do not count either.
	Ignore []string `yaml:"ignore"`
	// Diff is what a modified event says of the state before: "patch", "before" or
	// "both"; the bodies are then kept in the checkpoint. "none" (default): nothing.
	Diff string `yaml:"diff"`
	// ChangedBy has added and modified events say by which field managers.
	ChangedBy bool `yaml:"changedBy"`
	// Filter is a CEL expression over object, before, type, resource, group, ns, name,
	// labels, annotations and origin: only objects for which it is true are published. "": all.
	Filter string `yaml:"filter"`

	Topic   string            `yaml:"topic"`   // template; instead of kafka.topic of its sinks
	Key     string            `yaml:"key"`     // template; instead of kafka.key of its sinks
	Subject string            `yaml:"subject"` // template; instead of nats.subject of its sinks, and within what their streams take
	Headers map[string]string `yaml:"headers"` // templates; beside those of its sinks, instead of those of the same names

	// Required makes the resource's absence an error instead of something to wait for.
	Required bool `yaml:"required"`
}

// UnmarshalYAML takes the short form, a string, or the map.
func (r *Resource) UnmarshalYAML(unmarshal func(any) error) error {
	var name string
	if unmarshal(&name) == nil {
		*r = Resource{Resource: name}
		return nil
	}
	type plain Resource
	return unmarshal((*plain)(r))
}

// Name is the resource with its version and group, as kubectl takes it, or the
// pattern.
func (r Resource) Name() string {
	if r.Version == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Version + "." + r.Group // "pods.v1." is the core group's
}

// planned returns the entry for internal/plan, without options that do not matter there.
func (r *Resource) planned(place string) plan.Entry {
	return plan.Entry{
		Place: place, Resource: r.Name(), Name: r.Entry, Namespaces: r.Namespaces, NamespaceSelector: r.NamespaceSelector, ExcludeNamespaces: r.ExcludeNamespaces,
		LabelSelector: r.LabelSelector, FieldSelector: r.FieldSelector, MetadataOnly: r.MetadataOnly, Required: r.Required,
	}
}
