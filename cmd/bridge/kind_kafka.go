package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/operate/access"
	"github.com/kubebridge/kubebridge/internal/operate/inspect"
	"github.com/kubebridge/kubebridge/internal/operate/move"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

func kafkaKind(c *config.Config, s *config.Sink) sinkKind {
	k := sinkKind{
		shown: status.Sink{Bus: "kafka", Address: strings.Join(s.Kafka.Brokers, ", "), Delivery: cmp.Or(s.Kafka.Delivery, "exactly-once")},
		open: func(id event.Identity, log *zap.Logger) (sink.Sink, error) {
			return kafka.New(kafka.Options{Config: *s.Kafka, Identity: id, Logger: log})
		},
		templates:   config.Resource{Topic: s.Kafka.Topic, Key: s.Kafka.Key, Headers: s.Headers},
		deadLetters: s.Kafka.DeadTopic(sinkIdentity(c, s)),
		tombstones:  s.Kafka.Tombstones,
		headers:     kafka.Headers,
		route: func(r config.Resource) encode.Route {
			headers, _ := shape.ParseHeaders(r.Headers)
			return encode.Route{Topic: template(r.Topic, shape.TopicNames), Key: template(r.Key, shape.KeyNames), Headers: headers}
		},
		check: checkKafka,
		read: func(ctx context.Context, w wanted) (sink.Reader, error) {
			return readKafka(ctx, c, s, w)
		},
		permissions: func(w io.Writer, o access.BusOptions, who principals) error { return printKafka(w, c, s, o, who) },
	}
	k.onBus = func(id event.Identity) (string, move.Bus) {
		o := kafkaStore(c, s, id)
		return "topic " + o.Topic, kafkaBus{o}
	}
	if c.InKafka(s) {
		k.store = &busStore{
			open: func(id event.Identity, log *zap.Logger) (sink.Sink, bridge.OpenStore, error) {
				return openKafka(c, s, id, log)
			},
			place: kafkaTopic(c, s),
		}
	}
	return k
}

// openKafka opens a Kafka sink whose checkpoint is kept in Kafka too.
func openKafka(c *config.Config, s *config.Sink, id event.Identity, log *zap.Logger) (sink.Sink, bridge.OpenStore, error) {
	o := kafkaStore(c, s, id)
	o.Logger = log
	store, err := kafka.NewStore(o)
	if err != nil {
		return nil, nil, err
	}
	if s.Kafka.ExactlyOnce() {
		return kafka.NewTransactional(store), store, nil
	}
	bus, err := kafka.New(o.Options)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return bus, store, nil
}

// kafkaStore returns the options of a sink's checkpoint on Kafka.
func kafkaStore(c *config.Config, s *config.Sink, id event.Identity) kafka.StoreOptions {
	return kafka.StoreOptions{
		Options: kafka.Options{Config: *s.Kafka, Identity: id},
		Topic:   kafka.CheckpointTopic(c.Checkpoint.Kafka.Topic, id), Replicas: c.Checkpoint.Kafka.Replicas,
		StandAlone: !s.Kafka.ExactlyOnce(),
	}
}

func kafkaTopic(c *config.Config, s *config.Sink) place {
	o := kafkaStore(c, s, sinkIdentity(c, s))
	return place{
		called("topic " + o.Topic),
		func(ctx context.Context) (info inspect.Checkpoint, err error) {
			store, id, err := kafka.ReadStore(ctx, o)
			if err != nil {
				return info, err
			}
			defer func() { err = errors.Join(err, store.Close()) }()
			return inspect.Describe("topic "+o.Topic, id, store)
		},
		func(ctx context.Context, empty bool) error { return kafka.ResetStore(ctx, o, empty) },
	}
}

func checkKafka(ctx context.Context, b *busCheck) {
	o := kafka.Options{Config: *b.sink.Kafka, Identity: b.id}
	if _, err := kafka.Check(ctx, o, nil); err != nil { // the other checks need a connection
		b.found(nil, err)
		return
	}
	// Resources that cannot be resolved have been reported by the check of the cluster.
	topics, _, _ := access.Topics(b.config, b.sink, b.known.ClusterOptions)
	if dead := b.sink.Kafka.DeadTopic(b.id); dead != "" {
		topics = append(topics, dead)
	}
	b.found(kafka.Check(ctx, o, topics))
	if !b.config.InKafka(b.sink) {
		return
	}
	store, weak, err := kafka.CheckStore(ctx, kafkaStore(b.config, b.sink, b.id))
	b.found(weak, err)
	if store == nil {
		return
	}
	mark, err := store.Get(checkpoint.MarkKey())
	if err == nil {
		weak, err = kafka.CheckPins(ctx, o, mark, store.Scan)
		b.found(weak, nil)
	}
	b.found(nil, errors.Join(err, store.Close()))
}

// topicRoutes returns the topics that a sink's events may be in. The sink's own topic template also covers resources that are
// no longer configured.
func topicRoutes(c *config.Config, s *config.Sink) []history.Route {
	out := []history.Route{{Template: s.Kafka.Topic}}
	for _, e := range c.ResourcesOf(s) {
		r := history.Route{Template: cmp.Or(e.Topic, s.Kafka.Topic), Resource: resourceID(e.Parsed())}
		if r.Template != s.Kafka.Topic && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// resourceID returns the ID of the one of Kubernetes' own resources that a name means. It returns "" for a pattern, and for other names: only the cluster can
// resolve short names, and distinguish a version from a group.
func resourceID(n discovery.Name) string {
	r, served, err := discovery.Builtin().Identify(n)
	if n.IsPattern() || err != nil || !served {
		return ""
	}
	c := event.Collection{Group: r.Group, Resource: r.Resource}
	return c.ResourceID()
}

func readKafka(ctx context.Context, c *config.Config, s *config.Sink, w wanted) (sink.Reader, error) {
	routes := topicRoutes(c, s)
	configured := history.Topics(routes, c.Cluster, w.resources)
	r, err := kafka.NewReader(ctx, kafka.Options{Config: *s.Kafka, Identity: sinkIdentity(c, s)}, func(topic string) bool {
		return configured(topic) || slices.Contains(w.logs, topic)
	})
	if err != nil {
		return nil, err
	}
	if len(r.Parts()) > 0 {
		return r, nil
	}
	r.Close()
	var like []string
	for _, of := range routes {
		if !slices.Contains(like, of.Template) {
			like = append(like, of.Template)
		}
	}
	return nil, fmt.Errorf("not covered: there is no topic like %s for %s", strings.Join(like, ", "), orAll(w.resources))
}

func printKafka(w io.Writer, c *config.Config, s *config.Sink, o access.BusOptions, who principals) error {
	need, err := access.ForKafka(c, s, o)
	if err != nil {
		return &exitError{exitConfig, fmt.Errorf("sink %q: %w", s.Name, err)}
	}
	whom := cmp.Or(who.bridge, "User:"+cmp.Or(s.Kafka.SASL.Username, "NAME"))
	if whom == "User:NAME" {
		fmt.Fprintln(w, "# NAME stands for the bridge's user on Kafka: set it with --principal.")
	}
	return need.WriteShell(w, whom, who.reader)
}
