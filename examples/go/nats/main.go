// Command nats keeps a copy of the cluster's objects from a JetStream stream. It
// prints a line at every change and, when it is interrupted, what the copy holds.
//
//	go run ./nats nats://localhost:4222 K8S_prod-eu-1
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
		return errors.New("usage: nats URL STREAM")
	}
	conn, err := nats.Connect(args[0], nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	stream, err := js.Stream(ctx, args[1])
	if err != nil {
		return err
	}
	// An ordered consumer begins with the stream's first message, and goes on where
	// it was after a disconnect.
	ordered, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{"k8s.>"}})
	if err != nil {
		return err
	}
	messages, err := ordered.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()

	var state consumer.State
	var attributions consumer.Attributions
	for change, err := range state.Changes(ctx, &source{stream: stream, created: stream.CachedInfo().Created, messages: messages}) {
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

// source reads JetStream.
type source struct {
	stream   jetstream.Stream
	created  time.Time
	messages jetstream.MessagesContext
	consumer string // the server's name of the consumer, which is another one after each reconnect
	last     uint64 // sequence
}

// Next implements consumer.Source.
func (s *source) Next(ctx context.Context) (consumer.Message, error) {
	m, err := s.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return consumer.Message{}, err
	}
	at, err := m.Metadata()
	if err != nil {
		return consumer.Message{}, err
	}
	if s.last > 0 && (at.Sequence.Stream != s.last+1 || at.Consumer != s.consumer) {
		if err := s.check(ctx); err != nil {
			return consumer.Message{}, err
		}
	}
	s.consumer, s.last = at.Consumer, at.Sequence.Stream
	headers := make(map[string]string, len(m.Headers()))
	for name := range m.Headers() {
		headers[name] = m.Headers().Get(name)
	}
	return consumer.Message{Topic: s.stream.CachedInfo().Config.Name, Headers: headers, Value: m.Data()}, nil
}

// check returns an error if messages behind the last one may be lost: to skip them would falsify the copy.
func (s *source) check(ctx context.Context) error {
	now, err := s.stream.Info(ctx)
	switch {
	case err != nil:
		return err
	case !now.Created.Equal(s.created), now.State.FirstSeq > s.last+1, now.State.LastSeq < s.last:
		return errors.New("the stream does not have the next message any more: begin again with an empty copy")
	}
	return nil
}
