package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// requestTimeout is how long a request may take beyond Kafka's own timeout, if a broker hangs.
const requestTimeout = 30 * time.Second

// seeds returns the addresses of an external Kafka, or the superuser's addresses of the brokers that answer.
func (c *Cluster) seeds() []string {
	seeds := slices.Clone(c.external)
	for _, b := range c.brokers {
		if b.answers() {
			seeds = append(seeds, b.admin)
		}
	}
	return seeds
}

// admin calls do with a client of the superuser, connected to the brokers that answer.
func (c *Cluster) admin(do func(*kadm.Client) error) error {
	seeds := c.seeds()
	if len(seeds) == 0 {
		return errors.New("no broker is up")
	}
	return administer(seeds, do)
}

func administer(seeds []string, do func(*kadm.Client) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.RequestTimeoutOverhead(requestTimeout))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	defer client.Close()
	return do(kadm.NewClient(client))
}

// metadata returns the metadata of the cluster as this broker has it.
func (b *Broker) metadata(ctx context.Context) (meta kadm.Metadata, err error) {
	err = administer([]string{b.admin}, func(a *kadm.Client) (err error) {
		meta, err = a.Metadata(ctx)
		return err
	})
	return meta, err
}

// CreateTopic creates a topic, and returns when every broker that is up knows its leaders. If replicas is 0, the cluster's default applies:
// all brokers, but at most three.
func (c *Cluster) CreateTopic(ctx context.Context, name string, partitions, replicas int, configs map[string]string) error {
	if replicas == 0 {
		replicas = -1
	}
	values := map[string]*string{}
	for k, v := range configs {
		values[k] = &v
	}
	err := c.admin(func(a *kadm.Client) error {
		_, err := a.CreateTopic(ctx, int32(partitions), int16(replicas), values, name)
		return err
	})
	if err != nil {
		return fmt.Errorf("create topic %q: %w", name, err)
	}
	return c.everywhere(ctx, fmt.Sprintf("leaders of topic %q", name), func(meta kadm.Metadata) bool {
		all := meta.Topics[name].Partitions.Sorted()
		return len(all) == partitions && !slices.ContainsFunc(all, func(p kadm.PartitionDetail) bool { return p.Leader < 0 })
	})
}

// DeleteTopic deletes a topic with all its records.
func (c *Cluster) DeleteTopic(ctx context.Context, name string) error {
	err := c.admin(func(a *kadm.Client) error {
		_, err := a.DeleteTopic(ctx, name)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete topic %q: %w", name, err)
	}
	return nil
}

// partition returns the metadata of a partition.
func (c *Cluster) partition(ctx context.Context, topic string, id int32) (p kadm.PartitionDetail, err error) {
	err = c.admin(func(a *kadm.Client) error {
		meta, err := a.Metadata(ctx, topic)
		if err != nil {
			return err
		}
		t := meta.Topics[topic]
		if t.Err != nil {
			return t.Err
		}
		var ok bool
		if p, ok = t.Partitions[id]; !ok {
			return errors.New("no such partition")
		}
		return nil
	})
	if err != nil {
		return p, fmt.Errorf("look up topic %q, partition %d: %w", topic, id, err)
	}
	return p, nil
}

// Partitions returns the number of partitions of a topic.
func (c *Cluster) Partitions(ctx context.Context, topic string) (n int, err error) {
	err = c.admin(func(a *kadm.Client) error {
		meta, err := a.Metadata(ctx, topic)
		if err == nil {
			err = meta.Topics[topic].Err
		}
		n = len(meta.Topics[topic].Partitions)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("look up topic %q: %w", topic, err)
	}
	return n, nil
}

// Grow increases the number of partitions of a topic, and returns when every broker that is up knows the new ones.
func (c *Cluster) Grow(ctx context.Context, topic string, partitions int) error {
	err := c.admin(func(a *kadm.Client) error {
		results, err := a.UpdatePartitions(ctx, partitions, topic)
		if err == nil {
			err = results.Error()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("grow topic %q to %d partitions: %w", topic, partitions, err)
	}
	return c.everywhere(ctx, fmt.Sprintf("partitions of topic %q", topic), func(meta kadm.Metadata) bool {
		return len(meta.Topics[topic].Partitions) == partitions
	})
}

// Transaction is what the coordinator of a transactional id says of its latest transaction.
type Transaction struct {
	State string // Ongoing, CompleteCommit, CompleteAbort or another
	Start int64  // milliseconds since 1970; -1 if it is over
	Epoch int16  // of the producer
}

// Transaction returns the latest transaction of a transactional id.
func (c *Cluster) Transaction(ctx context.Context, id string) (last Transaction, err error) {
	err = c.admin(func(a *kadm.Client) error {
		all, err := a.DescribeTransactions(ctx, id)
		if err != nil {
			return err
		}
		last = Transaction{all[id].State, all[id].StartTimestamp, all[id].ProducerEpoch}
		return all[id].Err
	})
	if err != nil {
		return Transaction{}, fmt.Errorf("look up transactional id %q: %w", id, err)
	}
	return last, nil
}

// Leader returns the id of the broker that leads a partition; -1 if the partition has no leader.
func (c *Cluster) Leader(ctx context.Context, topic string, partition int32) (int32, error) {
	p, err := c.partition(ctx, topic, partition)
	return p.Leader, err
}

// MoveLeader makes the next replica the leader of a partition. It returns the id of the new leader when every broker that is up knows it.
func (c *Cluster) MoveLeader(ctx context.Context, topic string, partition int32) (int32, error) {
	p, err := c.partition(ctx, topic, partition)
	if err != nil {
		return -1, err
	}
	if len(p.Replicas) < 2 {
		return -1, fmt.Errorf("move the leader of topic %q, partition %d: it has one replica", topic, partition)
	}
	order := slices.Sorted(slices.Values(p.Replicas)) // the first one becomes the preferred leader
	next := (slices.Index(order, p.Leader) + 1) % len(order)
	order = slices.Concat(order[next:], order[:next])
	what := fmt.Sprintf("broker %d to lead topic %q, partition %d", order[0], topic, partition)
	err = await(ctx, what, func(ctx context.Context) (bool, error) {
		return c.prefer(ctx, topic, partition, order)
	})
	if err != nil {
		return -1, err
	}
	return order[0], c.everywhere(ctx, what, func(meta kadm.Metadata) bool {
		return meta.Topics[topic].Partitions[partition].Leader == order[0]
	})
}

// prefer makes the first broker of order the preferred leader, requests an election, and reports whether this broker leads.
func (c *Cluster) prefer(ctx context.Context, topic string, partition int32, order []int32) (bool, error) {
	err := c.admin(func(a *kadm.Client) error {
		var req kadm.AlterPartitionAssignmentsReq
		req.Assign(topic, partition, order)
		resp, err := a.AlterPartitionAssignments(ctx, req)
		if err == nil {
			err = resp.Error()
		}
		if err != nil {
			return err
		}
		var set kadm.TopicsSet
		set.Add(topic, partition)
		_, err = a.ElectLeaders(ctx, kadm.ElectPreferredReplica, set) // ignore the result, because it may lead already; the metadata below decides
		return err
	})
	if err != nil {
		return false, err
	}
	p, err := c.partition(ctx, topic, partition)
	return p.Leader == order[0], err
}

// SetTopicConfig changes one setting of a topic; an empty value restores the broker's default. It returns when the change is in force on all
// brokers that are up.
func (c *Cluster) SetTopicConfig(ctx context.Context, topic, name, value string) error {
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value}
	if value == "" {
		change = kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name}
	}
	err := c.admin(func(a *kadm.Client) error {
		resp, err := a.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, topic)
		for _, r := range resp {
			err = errors.Join(err, r.Err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("set %s of topic %q: %w", name, topic, err)
	}
	return c.Settle(ctx)
}

// Settle returns when the brokers that are up have applied everything that the controller has decided so far: changes are in force, and a
// broker that was paused knows which partitions it no longer leads. Brokers apply the controller's decisions in order. Settle therefore
// creates and deletes a topic: a broker that no longer has the topic has applied everything before.
func (c *Cluster) Settle(ctx context.Context) error {
	marker := fmt.Sprintf("kafkatest.settled.%x", rand.Uint64())
	if err := c.CreateTopic(ctx, marker, 1, 1, nil); err != nil {
		return err
	}
	if err := c.DeleteTopic(ctx, marker); err != nil {
		return err
	}
	return c.everywhere(ctx, "the brokers to settle", func(meta kadm.Metadata) bool { return !meta.Topics.Has(marker) })
}

// everywhere waits until so returns true for the metadata of every broker that is up, or of every address of an external Kafka.
func (c *Cluster) everywhere(ctx context.Context, what string, so func(kadm.Metadata) bool) error {
	for _, seed := range c.seeds() {
		err := await(ctx, what, func(ctx context.Context) (ok bool, err error) {
			err = administer([]string{seed}, func(a *kadm.Client) error {
				meta, err := a.Metadata(ctx)
				ok = so(meta)
				return err
			})
			return ok, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
