package kafka

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
)

// Topic is a topic that a sink, or its checkpoint, needs.
type Topic struct {
	Name       string
	Partitions int
	Replicas   int               // 0: the broker's default
	Configs    map[string]string // the topic's configuration
}

// ACL allows operations on a Kafka resource.
type ACL struct {
	Resource   string // "topic" or "transactional-id"
	Name       string // "*" stands for all names
	Prefixed   bool   // Name is a prefix
	Operations []string
	Why        string
}

// Needs is what a Kafka sink needs of its brokers.
type Needs struct {
	Brokers []string
	Topics  []Topic
	ACLs    []ACL
	Readers []ACL // ACLs for reading the events: for state, history and consumers
	Notes   []string
}

// permissions returns the function that prints what the sink needs.
func (c *Config) permissions(s *bus.Setup) func(io.Writer, *bus.PermissionOptions) error {
	return func(w io.Writer, o *bus.PermissionOptions) error {
		needs, err := c.Needs(s, o)
		if err != nil {
			return err
		}
		whom := Principal(o, c.SASL)
		if whom == "User:NAME" {
			fmt.Fprintln(w, "# NAME stands for the bridge's user on Kafka: set it with --principal.")
		}
		return needs.WriteShell(w, whom, o.Reader)
	}
}

// Principal is the bridge's user in ACLs.
func Principal(o *bus.PermissionOptions, login kafka.SASL) string {
	return cmp.Or(o.Principal, "User:"+cmp.Or(login.Username, "NAME"))
}

// Needs returns what the sink needs. Its errors are those of the targets.
func (c *Config) Needs(s *bus.Setup, o *bus.PermissionOptions) (Needs, error) {
	out, k := Needs{Brokers: c.Brokers}, c.sink()
	id := o.Identity(s)
	targets, err := o.Targets()
	if err != nil {
		return out, err
	}
	add := func(topic string, dead bool) {
		out.Topics = append(out.Topics, Topic{topic, c.Create.Partitions, max(c.Create.ReplicationFactor, 0), k.TopicConfigs(dead)})
	}
	names, open := c.topics(s, targets)
	for _, n := range names {
		add(n, false)
	}
	if open {
		out.note("Patterns have more topics than are listed here: one for each resource that they find.")
	}
	ops := []string{"Write", "Describe", "DescribeConfigs"}
	if *c.Create.Enabled {
		ops = append(ops, "Create")
		out.note("Create is for topics that are missing: leave it out where all are made beforehand, and set `create.enabled: false`.")
	}
	for _, template := range c.templates(s) {
		prefix, whole := literal(template, s.Identity.Cluster)
		if prefix == "" {
			out.note("The topic's template %q begins with a name: there is no prefix that is the bridge's own, and the ACL is on all topics.", template)
		}
		acl := ACL{"topic", cmp.Or(prefix, all), !whole && prefix != "", ops, "events"}
		if slices.ContainsFunc(out.ACLs, acl.within) {
			continue
		}
		out.ACLs = append(out.ACLs, acl)
		acl.Operations = []string{"Read", "Describe"}
		out.Readers = append(out.Readers, acl)
	}
	if dead := k.DeadTopic(id); dead != "" {
		add(dead, true)
		out.ACLs = append(out.ACLs, ACL{"topic", dead, false, ops, "dead letters"})
	}
	if !c.keepsCheckpoint(s) {
		return out, nil
	}
	checkpoint := kafka.CheckpointTopic(s.Topic, id)
	out.Topics = append(out.Topics, Topic{checkpoint, 1, s.Replicas, kafka.CheckpointTopicConfigs()})
	writer := ACL{"transactional-id", kafka.TransactionalID(id), false, []string{"Write", "Describe"}, "the bridge's transactions: a new bridge fences its predecessor"}
	if o.ClusterUID == "" {
		writer.Name, writer.Prefixed = strings.TrimSuffix(writer.Name, bus.UnknownUID+"."+s.Identity.Sink), true
		out.note("The transactional id is %s: with --cluster-uid, or --connect, the ACL is on it alone.", kafka.TransactionalID(id))
	}
	out.ACLs = append(out.ACLs, ACL{"topic", checkpoint, false, []string{"Read", "Write", "Describe", "DescribeConfigs", "Create"}, "the checkpoint"}, writer)
	return out, nil
}

// NeedsOfReader returns what a reader of one topic needs. There is no consumer group.
func NeedsOfReader(brokers []string, topic, why string) Needs {
	return Needs{Brokers: brokers, ACLs: []ACL{{"topic", topic, false, []string{"Read", "Describe"}, why}}}
}

func (n *Needs) note(format string, args ...any) { n.Notes = bus.AddNote(n.Notes, format, args...) }

// within reports whether other, another ACL for events, allows everything that a allows.
func (a ACL) within(other ACL) bool {
	return other.Name == all || a.Name == other.Name && a.Prefixed == other.Prefixed || other.Prefixed && strings.HasPrefix(a.Name, other.Name)
}

// templates returns the templates of the topics that a sink's events go to, the sink's own template first.
func (c *Config) templates(s *bus.Setup) []string {
	out, own := []string{}, false
	for _, r := range s.Resources {
		own = own || r.Topic == ""
		if r.Topic != "" && !slices.Contains(out, r.Topic) {
			out = append(out, r.Topic)
		}
	}
	if own {
		out = append([]string{c.Topic}, out...)
	}
	return out
}

// topics returns the topics that the events of targets go to. open is true if patterns may add more.
func (c *Config) topics(s *bus.Setup, targets []bus.Target) (names []string, open bool) {
	for _, of := range targets {
		t := bus.Template(cmp.Or(of.Entry.Topic, c.Topic), shape.TopicNames)
		name := t.Topic(shape.Values{Cluster: s.Identity.Cluster, Group: mark(of.Group), Resource: mark(of.Resource), Entry: of.Entry.Entry})
		if strings.Contains(name, unknown) {
			open = true
		} else {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), open
}

// unknown takes the place of a group or resource that a pattern leaves open. No resource has this name.
const unknown = "?"

func mark(s string) string {
	if s == bus.Open {
		return unknown
	}
	return s
}

// all stands for all topics in an ACL.
const all = "*"

// literal returns the prefix that all topics of a template have, and whether it is the whole topic.
func literal(template, cluster string) (prefix string, whole bool) {
	prefix, _, found := strings.Cut(strings.ReplaceAll(template, "{cluster}", cluster), "{")
	return prefix, !found
}

// WriteShell prints the topics and ACLs as commands of Kafka's tools. principal is
// the bridge's, as in "User:bridge"; reader is the principal of readers of the events.
func (n Needs) WriteShell(w io.Writer, principal, reader string) error {
	var b strings.Builder
	for _, note := range n.Notes {
		bus.Comment(&b, "", note)
	}
	servers := " --bootstrap-server " + bus.Quote(strings.Join(n.Brokers, ","))
	for _, t := range n.Topics {
		fmt.Fprintf(&b, "kafka-topics.sh%s --create --if-not-exists --topic %s --partitions %d", servers, bus.Quote(t.Name), t.Partitions)
		if t.Replicas > 0 {
			fmt.Fprintf(&b, " --replication-factor %d", t.Replicas)
		}
		for _, key := range slices.Sorted(maps.Keys(t.Configs)) {
			fmt.Fprintf(&b, " --config %s", bus.Quote(key+"="+t.Configs[key]))
		}
		b.WriteString("\n")
	}
	acls := func(list []ACL, principal string) {
		for _, a := range list {
			a.write(&b, servers, principal)
		}
	}
	acls(n.ACLs, principal)
	if len(n.Readers) == 0 {
		_, err := io.WriteString(w, b.String())
		return err
	}
	b.WriteString("\n")
	bus.Comment(&b, "", bus.ReadersHead)
	bus.Comment(&b, "", "A consumer in a group also needs Read on the group: --operation Read --group GROUP. Read the events of exactly-once delivery with isolation.level=read_committed.")
	acls(n.Readers, reader)
	_, err := io.WriteString(w, b.String())
	return err
}

func (a ACL) write(b *strings.Builder, servers, principal string) {
	bus.Comment(b, "", a.Why)
	fmt.Fprintf(b, "kafka-acls.sh%s --add --allow-principal %s", servers, bus.Quote(principal))
	for _, op := range a.Operations {
		b.WriteString(" --operation " + op)
	}
	fmt.Fprintf(b, " --%s %s", a.Resource, bus.Quote(a.Name))
	if a.Prefixed {
		b.WriteString(" --resource-pattern-type prefixed")
	}
	b.WriteString("\n")
}
