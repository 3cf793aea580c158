package event

import (
	"strconv"
	"strings"
)

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }

// Identity names a pipeline: everything it owns on a bus or in a store carries it.
type Identity struct {
	Bridge     string // the bridge's name
	Cluster    string // the cluster's configured name
	ClusterUID string // UID of the cluster's kube-system namespace
	Sink       string // the sink's name
}

// Expand fills in the template of a name that the pipeline owns: {name} is the
// bridge's, {cluster} the cluster's configured one, {sink} the sink's.
func (id Identity) Expand(template string) string {
	return strings.NewReplacer("{name}", id.Bridge, "{cluster}", id.Cluster, "{sink}", id.Sink).Replace(template)
}

// Collection is what an entry of the configuration means on a cluster. Resource, Entry and Namespace
// identify it. The other fields are properties, which may change: [Collection.ID] leaves them out.
type Collection struct {
	Group     string // "" is the core group
	Resource  string // plural, lower case
	Entry     string // the configured name of the entry; "": it has none
	Namespace string // "" is all namespaces, or a cluster-scoped resource

	LabelSelector string
	FieldSelector string
	MetadataOnly  bool // bodies are PartialObjectMetadata: no spec, no status
}

// ResourceID is "pods" or "deployments.apps".
func (c *Collection) ResourceID() string {
	if c.Group == "" {
		return c.Resource
	}
	return c.Resource + "." + c.Group
}

// ID is the collection's name in events, checkpoints, logs and metrics, for example "pods",
// "pods@shop" or "deployments.apps:canary@shop". Neither a resource's nor an entry's name has a colon
// or an at sign.
func (c *Collection) ID() string {
	id := c.ResourceID()
	if c.Entry != "" {
		id += ":" + c.Entry
	}
	if c.Namespace != "" {
		id += "@" + c.Namespace
	}
	return id
}

// ParseCollection reverses [Collection.ID]. The result has no properties. It also takes the name of
// a resource.
func ParseCollection(id string) Collection {
	var c Collection
	id, c.Namespace, _ = strings.Cut(id, "@")
	id, c.Entry, _ = strings.Cut(id, ":")
	c.Resource, c.Group, _ = strings.Cut(id, ".")
	return c
}

// GroupOrCore is the group, or "core" for the empty one.
func (c *Collection) GroupOrCore() string {
	if c.Group == "" {
		return "core"
	}
	return c.Group
}

// Position is how far a collection has been delivered.
type Position struct {
	// RV is the resourceVersion that may be resumed from. When the position is
	// void it is the last one known to have been complete, or "" if none was.
	RV string
	// Void forbids resuming: the collection must be reconciled.
	Void bool
}
