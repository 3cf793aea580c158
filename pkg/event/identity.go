package event

import (
	"strconv"
	"strings"
)

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }

// Identity identifies a pipeline. Everything that the pipeline owns on a bus or in a store has its identity.
type Identity struct {
	Bridge     string // the bridge's name
	Cluster    string // the cluster's configured name
	ClusterUID string // the UID of the cluster's kube-system namespace
	Sink       string // the sink's name
}

// Expand fills the template of a name that the pipeline owns: {name} is the
// bridge's name, {cluster} the cluster's configured name, {sink} the sink's name.
func (id Identity) Expand(template string) string {
	return strings.NewReplacer("{name}", id.Bridge, "{cluster}", id.Cluster, "{sink}", id.Sink).Replace(template)
}

// Collection is published as one unit: a resource, restricted by an entry of the configuration. Group, Resource, Entry and Namespace
// identify it. The other fields are properties, which may change and are not part of [Collection.ID].
type Collection struct {
	Group     string // "" is the core group
	Resource  string // plural, lower case
	Entry     string // the configured name of the entry; "": it has none
	Namespace string // "" is all namespaces, or a cluster-scoped resource

	LabelSelector string
	FieldSelector string
	MetadataOnly  bool // bodies are PartialObjectMetadata: no spec, no status
}

// ResourceID returns, for example, "pods" or "deployments.apps".
func (c Collection) ResourceID() string {
	if c.Group == "" {
		return c.Resource
	}
	return c.Resource + "." + c.Group
}

// ID returns the collection's name in events, checkpoints, logs and metrics, for example "pods",
// "pods@shop" or "deployments.apps:canary@shop". Names of resources and entries have neither a colon
// nor an at sign.
func (c Collection) ID() string {
	id := c.ResourceID()
	if c.Entry != "" {
		id += ":" + c.Entry
	}
	if c.Namespace != "" {
		id += "@" + c.Namespace
	}
	return id
}

// ParseCollection reverses [Collection.ID]. The result has no properties. A resource without
// entry and namespace is a valid ID.
func ParseCollection(id string) Collection {
	var c Collection
	id, c.Namespace, _ = strings.Cut(id, "@")
	id, c.Entry, _ = strings.Cut(id, ":")
	c.Resource, c.Group, _ = strings.Cut(id, ".")
	return c
}

// GroupOrCore returns the group, or "core" for the core group.
func (c Collection) GroupOrCore() string {
	if c.Group == "" {
		return "core"
	}
	return c.Group
}

// Position is how far a collection has been delivered.
type Position struct {
	// RV is the resourceVersion from which a watch may be resumed. If the position is
	// void, it is the last version up to which the collection is known to be complete, or "".
	RV string
	// Void means that a watch must not be resumed: the collection must be reconciled.
	Void bool
}
