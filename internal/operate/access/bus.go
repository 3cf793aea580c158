package access

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// unknownUID stands for the cluster's UID if it is not known.
const unknownUID = "CLUSTER-UID"

// BusOptions say what is known in addition to the configuration.
type BusOptions struct {
	ClusterOptions
	ClusterUID string // "": not known
}

func (o BusOptions) identity(c *config.Config, s *config.Sink) event.Identity {
	return event.Identity{Bridge: c.Name, Cluster: c.Cluster, ClusterUID: cmp.Or(o.ClusterUID, unknownUID), Sink: s.Name}
}

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

// Kafka is what a Kafka sink needs of its brokers.
type Kafka struct {
	Brokers []string
	Topics  []Topic
	ACLs    []ACL
	Readers []ACL // ACLs for reading the events: for state, history and consumers
	Notes   []string
}

// ForKafka returns what a Kafka sink needs. Its errors are those of [ForCluster], because the
// topics depend on the resources that are watched.
func ForKafka(c *config.Config, s *config.Sink, o BusOptions) (Kafka, error) {
	out := Kafka{Brokers: s.Kafka.Brokers}
	id := o.identity(c, s)
	names, open, err := Topics(c, s, o.ClusterOptions)
	if err != nil {
		return out, err
	}
	for _, n := range names {
		out.Topics = append(out.Topics, Topic{n, s.Kafka.Create.Partitions, max(s.Kafka.Create.ReplicationFactor, 0), s.Kafka.TopicConfigs(false)})
	}
	if open {
		out.note("Patterns have more topics than are listed here: one for each resource that they find.")
	}
	ops := []string{"Write", "Describe", "DescribeConfigs"}
	if *s.Kafka.Create.Enabled {
		ops = append(ops, "Create")
		out.note("Create is for topics that are missing: leave it out where all are made beforehand, and set `create.enabled: false`.")
	}
	for _, template := range templates(c, s) {
		prefix, whole := literal(template, c.Cluster)
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
	if dead := s.Kafka.DeadTopic(id); dead != "" {
		out.Topics = append(out.Topics, Topic{dead, s.Kafka.Create.Partitions, max(s.Kafka.Create.ReplicationFactor, 0), s.Kafka.TopicConfigs(true)})
		out.ACLs = append(out.ACLs, ACL{"topic", dead, false, ops, "dead letters"})
	}
	if !c.InKafka(s) {
		return out, nil
	}
	checkpoint := kafka.CheckpointTopic(c.Checkpoint.Kafka.Topic, id)
	out.Topics = append(out.Topics, Topic{checkpoint, 1, c.Checkpoint.Kafka.Replicas, kafka.CheckpointTopicConfigs()})
	writer := ACL{"transactional-id", kafka.TransactionalID(id), false, []string{"Write", "Describe"}, "the bridge's transactions: a new bridge fences its predecessor"}
	if o.ClusterUID == "" {
		writer.Name, writer.Prefixed = strings.TrimSuffix(writer.Name, unknownUID+"."+s.Name), true
		out.note("The transactional id is %s: with --cluster-uid, or --connect, the ACL is on it alone.", kafka.TransactionalID(id))
	}
	out.ACLs = append(out.ACLs, ACL{"topic", checkpoint, false, []string{"Read", "Write", "Describe", "DescribeConfigs", "Create"}, "the checkpoint"}, writer)
	return out, nil
}

// ForAuditTopic returns what the bridge needs to read the topic with audit records. There is one in the configuration.
func ForAuditTopic(c *config.Config) Kafka {
	t := c.Audit.Kafka
	return Kafka{Brokers: t.Brokers, ACLs: []ACL{{"topic", t.Topic, false, []string{"Read", "Describe"}, "audit records; there is no consumer group"}}}
}

func (k *Kafka) note(format string, args ...any) { k.Notes = addNote(k.Notes, format, args...) }

// within reports whether other, another ACL for events, allows everything that a allows.
func (a ACL) within(other ACL) bool {
	return other.Name == all || a.Name == other.Name && a.Prefixed == other.Prefixed || other.Prefixed && strings.HasPrefix(a.Name, other.Name)
}

// templates returns the templates of the topics that a sink's events go to, the sink's own template first.
func templates(c *config.Config, s *config.Sink) []string {
	out, own := []string{}, false
	for _, r := range c.ResourcesOf(s) {
		own = own || r.Topic == ""
		if r.Topic != "" && !slices.Contains(out, r.Topic) {
			out = append(out, r.Topic)
		}
	}
	if own {
		out = append([]string{s.Kafka.Topic}, out...)
	}
	return out
}

// literal returns the prefix that all topics of a template have, and whether it is the whole topic.
func literal(template, cluster string) (prefix string, whole bool) {
	prefix, _, found := strings.Cut(strings.ReplaceAll(template, "{cluster}", cluster), "{")
	return prefix, !found
}

// Topics returns the topics that the events of the sink's resources go to. open is true if patterns
// may add more.
func Topics(c *config.Config, s *config.Sink, o ClusterOptions) (names []string, open bool, err error) {
	o.Everything = true // this grants no permission in the cluster
	a := newAsker(c, o)
	named, err := a.named(c.ResourcesOf(s))
	if err != nil {
		return nil, false, err
	}
	for _, r := range c.ResourcesOf(s) {
		t, err := shape.ParseTemplate(cmp.Or(r.Topic, s.Kafka.Topic), shape.TopicNames)
		if err != nil {
			return nil, false, err
		}
		list, err := a.resolve(r)
		if err != nil {
			return nil, false, err
		}
		for _, gr := range list {
			if discovery.Parse(r.Name()).IsPattern() && slices.Contains(named, gr) {
				continue // it goes where its own entry says
			}
			name := t.Topic(shape.Values{Cluster: c.Cluster, Group: mark(gr.Group), Resource: mark(gr.Resource), Entry: r.Entry})
			if strings.Contains(name, unknown) {
				open = true
			} else {
				names = append(names, name)
			}
		}
	}
	return sorted(names), open, nil
}

// named returns the resources that have an entry of their own.
func (a *asker) named(list []config.Resource) (out []schema.GroupResource, err error) {
	for _, r := range list {
		if discovery.Parse(r.Name()).IsPattern() {
			continue
		}
		found, err := a.resolve(r)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// unknown takes the place of a group or resource that a pattern leaves open. No resource has this name.
const unknown = "?"

func mark(s string) string {
	if s == all {
		return unknown
	}
	return s
}

// NATS is what a NATS sink needs of its servers.
type NATS struct {
	User     string        // the bridge's user
	Writer   nats.Grants   // its permissions
	Accounts nats.Accounts // what readers need: state, history and consumers
	Streams  [][]byte      // JSON, as `nats stream add --config` takes it
	Notes    []string
}

// ForNATS returns what a NATS sink needs.
func ForNATS(c *config.Config, s *config.Sink, o BusOptions) (out NATS, err error) {
	if s.NATS.Embedded != nil {
		out.Notes = addNote(out.Notes, "The server is embedded: nothing has to be granted.")
		return out, nil
	}
	id := o.identity(c, s)
	if out.Writer, err = s.NATS.Grants(id); err != nil {
		return out, err
	}
	if out.Accounts, err = s.NATS.Accounts(id); err != nil {
		return out, err
	}
	out.User = cmp.Or(s.NATS.Auth.Username, "bridge")
	unowned := id
	unowned.ClusterUID = o.ClusterUID
	if err := out.stream(s.NATS.StreamDefinition(unowned)); err != nil {
		return out, err
	}
	if c.InNATS(s) {
		out.Writer.Publish = append(out.Writer.Publish, s.NATS.CheckpointGrants(id)...)
		if err := out.stream(nats.BucketDefinition(id, s.NATS.Stream.Replicas)); err != nil {
			return out, err
		}
	}
	if o.ClusterUID == "" && s.NATS.IsLog() {
		out.Notes = addNote(out.Notes, "Put the UID of the namespace kube-system in place of %s, or give --cluster-uid, or --connect.", unknownUID)
	}
	return out, nil
}

func (n *NATS) stream(text []byte, err error) error {
	if text == nil || err != nil {
		return err
	}
	n.Streams = append(n.Streams, text)
	return nil
}
