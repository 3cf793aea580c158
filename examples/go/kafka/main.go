// Command kafka keeps a copy of the cluster's objects from Kafka topics. It prints
// a line at every change and, when it is interrupted, what the copy holds.
//
//	go run ./kafka localhost:9092 '^k8s\.'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: kafka BROKER TOPICS, where TOPICS is a regular expression")
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(args[0]), kgo.ConsumeRegex(), kgo.ConsumeTopics(args[1]),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // others see aborted transactions
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // to skip what is lost would falsify the copy
	)
	if err != nil {
		return err
	}
	defer client.Close()

	var state consumer.State
	var attributions consumer.Attributions
	for change, err := range state.Changes(ctx, &source{client: client, partitions: map[string]int{}}) {
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, event.ErrNotEvent) { // somebody else wrote it
			fmt.Fprintln(os.Stderr, "message ignored:", err)
			continue
		}
		if err != nil {
			return err
		}
		e := change.Event
		attributions.Take(e)
		fmt.Println(e.Type, e.Collection, e.Name, e.ResourceVersion)
	}
	for name, object := range state.All() {
		by := ""
		if a := attributions.Of(object); a != nil && a.Request != nil {
			by = fmt.Sprintf(" by %q", a.Request.EffectiveUser().Name)
		}
		fmt.Printf("copy %s %s/%s %s %s%s\n", name.Resource, name.Namespace, name.Name, object.UID, object.ResourceVersion, by)
	}
	for cluster, resource := range state.Resources() {
		if at, ok := state.Complete(cluster, resource); ok {
			fmt.Println("complete", resource, at.ResourceVersion, at.Time)
		}
	}
	return nil
}

// source reads Kafka.
type source struct {
	client     *kgo.Client
	partitions map[string]int // by topic
	fetched    []*kgo.Record
}

// Next implements consumer.Source.
func (s *source) Next(ctx context.Context) (consumer.Message, error) {
	for len(s.fetched) == 0 {
		fetches := s.client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return consumer.Message{}, err
		}
		s.fetched = fetches.Records()
	}
	r := s.fetched[0]
	if s.partitions[r.Topic] == 0 { // the bridge never changes how many there are
		topics, err := kadm.NewClient(s.client).ListTopics(ctx, r.Topic)
		if err != nil {
			return consumer.Message{}, err
		}
		s.partitions[r.Topic] = len(topics[r.Topic].Partitions)
	}
	s.fetched = s.fetched[1:]
	headers := make(map[string]string, len(r.Headers))
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	return consumer.Message{
		Topic: r.Topic, Partition: int(r.Partition), Partitions: s.partitions[r.Topic], Headers: headers, Value: r.Value,
	}, nil
}
