package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/kubebridge/kubebridge/internal/bus"
)

// NoCheckpoint describes the consequences for a sink without a checkpoint.
const NoCheckpoint = "every start publishes all objects again as present, and deletions while the bridge is stopped are not published"

var (
	topicForm   = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
	placeholder = regexp.MustCompile(`\{(name|cluster|sink)\}`)
)

// checkpoint checks that every sink has a place for its checkpoint, and that every configured place is used.
func (p *problems) checkpoint(c *Config) {
	var inKafka, exact, inNATS, elsewhere []string
	for i := range c.Sinks {
		s := &c.Sinks[i]
		keeps := s.traits().Keeps
		if keeps == bus.InTransaction {
			exact = append(exact, s.Name)
		}
		switch onBus := c.OnBus(s); {
		case onBus && s.Kafka != nil:
			inKafka = append(inKafka, s.Name)
		case onBus && s.NATS != nil:
			inNATS = append(inNATS, s.Name)
		case onBus:
		case keeps == bus.Nowhere && c.Checkpoint.File.Path == "":
			p.warn(fmt.Sprintf("sinks[%d]", i), "it has no checkpoint, since checkpoint.file.path is not set: "+NoCheckpoint)
		default:
			elsewhere = append(elsewhere, s.Name)
		}
	}
	path, topic := c.Checkpoint.File.Path, c.Checkpoint.Kafka
	switch {
	case path == "" && len(elsewhere) > 0 && c.LeaderElection.Enabled: // leaderElection reports this case
	case path == "" && len(elsewhere) > 0:
		p.add("checkpoint.file.path", "it is required for sink %q: a directory where the bridge remembers how far it got", elsewhere[0])
	case path != "" && len(exact) > 0 && len(elsewhere) == 0:
		p.add("checkpoint.file.path", "sink %q delivers exactly once, and its checkpoint stands in the same Kafka transactions: leave checkpoint.file out, or set `delivery: at-least-once`", exact[0])
	}
	if c.Checkpoint.NATS != (NATSCheckpoint{}) && len(inNATS) == 0 && len(c.Sinks) > 0 {
		p.add("checkpoint.nats", "no sink keeps its checkpoint on NATS: that is beside nats with `delivery: exactly-once`, without checkpoint.file.path: leave it out")
	}
	switch literal := placeholder.ReplaceAllString(topic.Topic, "x"); {
	case topic == CheckpointTopic{}:
	case len(inKafka) == 0 && len(c.Sinks) > 0:
		p.add("checkpoint.kafka", "no sink keeps its checkpoint in Kafka: leave it out")
	case topic.Topic != "" && !topicForm.MatchString(literal):
		p.add("checkpoint.kafka.topic", "%q is not a topic name: letters, digits, '.', '_', '-', and {name}, {cluster}, {sink}", topic.Topic)
	case topic.Topic != "" && len(inKafka) > 1 && !strings.Contains(topic.Topic, "{sink}"):
		p.add("checkpoint.kafka.topic", "sinks %q and %q would share it: put {sink} into it", inKafka[0], inKafka[1])
	case topic.Replicas < 0:
		p.add("checkpoint.kafka.replicas", "%d: at least 1, or leave it out for the broker's default", topic.Replicas)
	}
}
