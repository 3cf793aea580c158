package config

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// Resource asks for a resource, as kubectl names it, or for all that a pattern
// matches. In the file it is a string or a map.
type Resource struct {
	// Entry distinguishes entries of one resource in one sink, and is part of the identity of their collections.
	// It has lower-case letters, digits and "-", at most 63, with a letter or digit at both ends. Default: none,
	// which one entry of a resource can have.
	Entry string `yaml:"name"`
	// Resource is a name such as "pods", "deployments.apps" or "deployments.v1.apps", or a pattern: "*.*" is
	// everything that can be watched, "*.apps" a group, "*.core" (or "*.") the core group.
	Resource string `yaml:"resource"`
	Group    string `yaml:"group"`   // the long form of a name, with or without Version
	Version  string `yaml:"version"` // default: the version that the server prefers

	Namespaces        []string `yaml:"namespaces"`        // only these, one collection each. Default: all
	NamespaceSelector string   `yaml:"namespaceSelector"` // only namespaces whose labels match, one collection each; it follows the labels. Not beside Namespaces
	ExcludeNamespaces []string `yaml:"excludeNamespaces"` // all but these; alone or with NamespaceSelector
	LabelSelector     string   `yaml:"labelSelector"`     // only objects whose labels match: audit=true,tier in (a, b)
	FieldSelector     string   `yaml:"fieldSelector"`     // only objects whose fields match, where the server supports it: spec.nodeName=n1

	// MetadataOnly asks the server for metadata only: no spec, no status. Default: false.
	MetadataOnly bool `yaml:"metadataOnly"`
	// Snapshot is what happens to objects that exist when the entry is new: "publish" (default) publishes them as
	// present, "skip" publishes only their changes.
	Snapshot string `yaml:"snapshot"`
	// Types are the changes that are published: added, modified, deleted. Default: all, but no deleted of events,
	// because they expire.
	Types []string `yaml:"types"`

	SyncedEvery time.Duration `yaml:"syncedEvery"` // publish synced this often, while the API server answers; at least 1s. Default: never
	Resync      time.Duration `yaml:"resync"`      // publish every object again, as present, this often; at least 1m. Default: never
	VerifyEvery time.Duration `yaml:"verifyEvery"` // list this often, and publish what differs from what was published; at least 1m. Default: never

	Redact []Redaction `yaml:"redact"` // values of these objects to redact, besides those of the bridge's redact
	Drop   []string    `yaml:"drop"`   // paths of values to leave out; the same as redact with remove
	// Ignore has paths, or the presets status-heartbeats, leases and metadata-only: a change of nothing else is
	// not published. With any of them, resourceVersion, generation and managedFields are ignored as well.
	Ignore []string `yaml:"ignore"`
	// Diff is what a modified event has of the state before: patch, before or both; the checkpoint then keeps the
	// bodies. Default: none.
	Diff string `yaml:"diff"`
	// ChangedBy names the field managers in added and modified events. Default: false.
	ChangedBy bool `yaml:"changedBy"`
	// Filter is a CEL expression over object, before, type, resource, group, ns, name, labels, annotations and
	// origin: only objects for which it is true are published. Default: all.
	Filter string `yaml:"filter"`

	Topic   string            `yaml:"topic"`   // template in place of kafka.topic of its sinks
	Key     string            `yaml:"key"`     // template in place of kafka.key of its sinks
	Subject string            `yaml:"subject"` // template in place of nats.subject of its sinks, within the subjects of that
	Headers map[string]string `yaml:"headers"` // templates besides the headers of its sinks, and in place of those with the same names

	// Buffer is false if the objects are not to be buffered on disk. Default: true.
	Buffer *bool `yaml:"buffer"`
	// Required exits with code 3 if the server has no such resource, instead of waiting for it. Default: false.
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
	switch {
	case r.Version == "" && r.Group == "":
		return r.Resource
	case r.Version == "":
		return r.Resource + "." + r.Group
	}
	return r.Resource + "." + r.Version + "." + r.Group // "pods.v1." is the core group's
}

// Parsed returns the name. That of the long form has one reading, whatever its group looks like.
func (r Resource) Parsed() discovery.Name {
	if r.Group == "" && r.Version == "" || r.Resource == "*" {
		return discovery.Parse(r.Name())
	}
	return discovery.NameOf(schema.GroupResource{Group: r.Group, Resource: r.Resource}, r.Version)
}

// planned returns the entry for internal/core/plan, without options that do not matter there.
func (r *Resource) planned(place string) plan.Entry {
	var meaning discovery.Name
	if r.Group != "" || r.Version != "" {
		meaning = r.Parsed()
	}
	return plan.Entry{
		Place: place, Resource: r.Name(), Name: r.Entry, Namespaces: r.Namespaces, NamespaceSelector: r.NamespaceSelector, ExcludeNamespaces: r.ExcludeNamespaces,
		LabelSelector: r.LabelSelector, FieldSelector: r.FieldSelector, MetadataOnly: r.MetadataOnly, Required: r.Required, Meaning: meaning,
	}
}
