package kafka

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
)

// Complete implements [bus.Config].
func (c *Config) Complete(s *bus.Setup) error {
	unused := bus.CompleteDeadLetter(s, &c.DeadLetter)
	done, err := c.sink().Complete()
	*c = Config(done)
	return errors.Join(unused, err)
}

// Check implements [bus.Config].
func (c *Config) Check(k *bus.Checker) {
	c.checkRoutes(k)
	c.checkRetention(k)
	if c.Tombstones && !c.ExactlyOnce() {
		k.Warn(k.At+".tombstones", "topics are compacted, and with `delivery: at-least-once` an event that is written late replaces a newer one of its key: use exactly-once, or leave tombstones out")
	}
	CheckSecurity(k, k.At, c.sink())
}

// CheckSecurity warns of a login that others on the network can read. at is the path of the connection.
func CheckSecurity(k bus.Mistakes, at string, c *kafka.Config) {
	sends := map[string]string{"PLAIN": "the password", "OAUTHBEARER": "the token"}[c.SASL.Mechanism]
	if sends != "" && !c.TLS.Enabled && slices.ContainsFunc(c.Brokers, func(b string) bool { return !bus.IsLocal(b) }) {
		k.Warn(at+".sasl", "%s sends %s as it is, and TLS is off: others on the network can read it: set tls.enabled: true", c.SASL.Mechanism, sends)
	}
}

// checkRetention warns of topics that forget objects which have not changed for long: state and history then do not have them.
func (c *Config) checkRetention(k *bus.Checker) {
	kept := c.sink().EventRetention()
	for _, r := range k.Resources {
		if kept != 0 && (r.Resync == 0 || r.Resync > kept) {
			k.Warn(k.At+".create", "topics keep events for %s, and `bridge state` and `history` do not have objects of %s that have not changed for longer: set `resync` of the resource to less than that, or a longer retention",
				kept, r.Name)
			return
		}
	}
}

func (c *Config) checkRoutes(k *bus.Checker) {
	k.Parse(k.At+".topic", c.Topic, shape.TopicNames)
	k.Parse(k.At+".key", c.Key, shape.KeyNames)
	for i := range k.Resources {
		r := &k.Resources[i]
		topic, key := c.Topic, c.Key
		if r.Topic != "" {
			topic = r.Topic
			c.checkTopic(k, r.Path+".topic", topic)
		}
		if r.Key != "" {
			key = r.Key
			k.Use(r.Path + ".key")
			if k.Parse(r.Path+".key", key, shape.KeyNames) {
				k.Bad(r.Path+".key", c.sink().CheckKey(key, topic))
			}
		} else if r.Topic != "" {
			k.Bad(r.Path+".topic", c.sink().CheckKey(key, topic))
		}
		checkLength(k, r, topic)
	}
}

func (c *Config) checkTopic(k *bus.Checker, at, template string) {
	k.Use(at)
	if !k.Parse(at, template, shape.TopicNames) {
		return
	}
	k.Bad(at, kafka.CheckTopic(template))
	if c.DeadLetter != nil && c.DeadLetter.Topic == template {
		k.Bad(at, fmt.Errorf("%q is where sink %q puts its dead letters: set another", template, k.Identity.Sink))
	}
}

// checkLength checks the length of the topic of a named resource. If the name has no group, the group may be any.
func checkLength(k *bus.Checker, r *bus.Resource, template string) {
	t, err := shape.ParseTemplate(template, shape.TopicNames)
	if err != nil || r.Parsed.IsPattern() || k.IsWrong("") {
		return
	}
	group, _ := r.Parsed.Group()
	k.Bad(r.Path, kafka.CheckTopic(t.Topic(shape.Values{
		Cluster: k.Identity.Cluster, Group: group, Resource: r.Parsed.Resource(), Entry: r.Entry,
	})))
}
