package event

import (
	"strconv"
	"strings"
)

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }

// Identity names a lane: everything it owns on a bus or in a store carries it.
type Identity struct {
	Bridge     string // the bridge's name
	Cluster    string // the cluster's configured name
	ClusterUID string // UID of the cluster's kube-system namespace
	Sink       string // the sink's name
}

// Expand fills in the template of a name that the lane owns: {name} is the
// bridge's, {cluster} the cluster's configured one, {sink} the sink's.
func (id Identity) Expand(template string) string {
	return strings.NewReplacer("{name}", id.Bridge, "{cluster}", id.Cluster, "{sink}", id.Sink).Replace(template)
}

// Collection is one watched set of a lane. Its identity leaves the version out:
// going from v1beta1 to v1 announces nothing again.
type Collection struct {
	Group         string // "" is the core group
	Resource      string // plural, lower case
	Namespace     string // "" is all namespaces, or a cluster-scoped resource
	LabelSelector string
	FieldSelector string
	MetadataOnly  bool // bodies are PartialObjectMetadata: no spec, no status

	// ByEntry says that resource, Entry and Namespace alone identify the collection: the contract
	// of docs/adr/0017. Selectors and MetadataOnly are then properties, which [Collection.ID]
	// leaves out.
	ByEntry bool
	Entry   string // the configured name of the entry; "": it has none
}

// ResourceID is "pods" or "deployments.apps": the key under which inventory is
// kept, shared by all collections of the resource.
func (c *Collection) ResourceID() string {
	if c.Group == "" {
		return c.Resource
	}
	return c.Resource + "." + c.Group
}

// ID is the collection's name in positions, events, logs and metrics, for
// example "pods", "secrets?namespace=payments&labels=audit=true"; with ByEntry
// "deployments.apps:canary@shop".
func (c *Collection) ID() string {
	if c.ByEntry {
		return c.entryID()
	}
	var b strings.Builder
	b.WriteString(c.ResourceID())
	sep := byte('?')
	add := func(name, value string) {
		if value != "" {
			b.WriteByte(sep)
			b.WriteString(name)
			b.WriteByte('=')
			b.WriteString(value)
			sep = '&'
		}
	}
	if c.MetadataOnly {
		add("body", "metadata")
	}
	add("namespace", c.Namespace)
	add("labels", c.LabelSelector)
	add("fields", c.FieldSelector)
	return b.String()
}

// entryID is the ID of a collection that is identified by its entry. Neither a resource's nor an
// entry's name has a colon or an at sign.
func (c *Collection) entryID() string {
	id := c.ResourceID()
	if c.Entry != "" {
		id += ":" + c.Entry
	}
	if c.Namespace != "" {
		id += "@" + c.Namespace
	}
	return id
}

// ParseEntryCollection reverses [Collection.ID] of a collection with ByEntry.
func ParseEntryCollection(id string) Collection {
	c := Collection{ByEntry: true}
	id, c.Namespace, _ = strings.Cut(id, "@")
	id, c.Entry, _ = strings.Cut(id, ":")
	c.Resource, c.Group, _ = strings.Cut(id, ".")
	return c
}

// ParseCollection reverses [Collection.ID] of a collection without ByEntry.
func ParseCollection(id string) Collection {
	var c Collection
	resource, rest, _ := strings.Cut(id, "?")
	c.Resource, c.Group, _ = strings.Cut(resource, ".")
	if rest, c.MetadataOnly = strings.CutPrefix(rest, "body=metadata"); c.MetadataOnly {
		rest = strings.TrimPrefix(rest, "&")
	}
	rest, c.FieldSelector, _ = cutPart(rest, "fields=")
	rest, c.LabelSelector, _ = cutPart(rest, "labels=")
	_, c.Namespace, _ = cutPart(rest, "namespace=")
	return c
}

// cutPart cuts "…&name" off the end of an ID's selection.
func cutPart(s, name string) (before, value string, found bool) {
	if value, found = strings.CutPrefix(s, name); found {
		return "", value, true
	}
	return strings.Cut(s, "&"+name)
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
	Epoch uint64 // 0 and 1 are the first history of a cluster
	// RV is the resourceVersion that may be resumed from. When the position is
	// void it is the last one known to have been complete, or "" if none was.
	RV string
	// Void forbids resuming: the collection must be reconciled.
	Void bool
}

// Resumable reports whether a watch may start at the position.
func (p Position) Resumable() bool { return !p.Void && p.RV != "" }
