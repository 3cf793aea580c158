package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// spread is how long it may take until every broker knows a new topic.
const spread = 2 * time.Second

// look asks Kafka for topics. Those that it does not know are in neither result, and
// hidden are those that we may not describe: what it says of one topic is no matter of
// the others.
func (x *Transactional) look(ctx context.Context, names []string) (found pins, hidden []string, err error) {
	meta, err := x.ask(ctx, names)
	if err != nil {
		return nil, nil, fmt.Errorf("look up topic %q: %w", names[0], x.topics.explain(fromFranz(err)))
	}
	found = pins{}
	for i := range meta.Topics {
		t := &meta.Topics[i]
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			hidden = append(hidden, *t.Topic)
		case err == nil:
			p := pin{partitions: len(t.Partitions)}
			if id := kadm.TopicID(t.TopicID); id != (kadm.TopicID{}) {
				p.id = id.String()
			}
			found[*t.Topic] = p
		}
	}
	return found, hidden, nil
}

// ask asks for the metadata of topics with a client of its own: a request's own
// context does not end the wait for a broker that hangs.
func (x *Transactional) ask(ctx context.Context, names []string) (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := kgo.NewClient(append(slices.Clone(x.client), kgo.WithContext(ctx))...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return askTopics(ctx, c, names)
}

// forbidden is the refusal of a topic that we may not describe or write to.
func (x *Transactional) forbidden(topic string) error {
	return &refusal{topic, fmt.Errorf("topic %q: %w", topic, x.topics.explain(fromFranz(kerr.TopicAuthorizationFailed)))}
}

// blame returns the refusal of the topic that made a transaction fail with
// TOPIC_AUTHORIZATION_FAILED. Before Kafka 4.0, topics are added to a transaction in
// one request, and the client fails the records of all of them when one is refused.
// nil: the brokers do not say which one it is.
func (x *Transactional) blame(ctx context.Context, names []string) error {
	meta, err := x.ask(ctx, names)
	if err != nil {
		return nil // the failure at hand says more
	}
	for i := range meta.Topics {
		t := &meta.Topics[i]
		if errors.Is(kerr.ErrorForCode(t.ErrorCode), kerr.TopicAuthorizationFailed) || !mayWrite(t.AuthorizedOperations) {
			return x.forbidden(*t.Topic)
		}
	}
	return nil
}

// readPins compares the topics with what the checkpoint has of them. Where one
// was made anew, the checkpoint then asks for a declared reset.
func (x *Transactional) readPins(ctx context.Context) error {
	clear(x.seen)
	var err error
	if x.pins, err = scanPins(x.journal.Scan); err != nil || len(x.pins) == 0 {
		return err
	}
	found, _, err := x.look(ctx, slices.Sorted(maps.Keys(x.pins)))
	if err != nil {
		return err
	}
	remade, moved := x.pins.compare(found) // one that is gone or hidden is dealt with when it is written to
	if len(moved) > 0 {
		return refuse(moved[0])
	}
	var changes []event.KV
	for _, name := range remade {
		x.topics.log.Warn("a declared reset is due", zap.Error(remadeError(name)))
		changes = append(changes, event.KV{Key: []byte(pinPrefix + name)})
	}
	if changes == nil {
		return nil
	}
	changes = append(changes, event.KV{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()})
	if err := x.journal.Transact(ctx, 0, changes, nil); err != nil {
		return err
	}
	for _, name := range remade {
		delete(x.pins, name)
	}
	return nil
}

// identify looks at the topics, and at all that are pinned, if one of them has not
// been looked at since a request failed, or in the last minute. [sink.ErrReset] says
// that one was made anew.
func (x *Transactional) identify(ctx context.Context, names []string) error {
	if time.Since(x.looked) > metadataTTL {
		clear(x.seen)
	}
	unknown := map[string]bool{}
	for _, name := range names {
		if _, ok := x.seen[name]; !ok && checkTopicName(name) == nil {
			unknown[name] = true
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	for name := range x.pins {
		unknown[name] = true
	}
	found, hidden, err := x.look(ctx, slices.Sorted(maps.Keys(unknown)))
	if err != nil {
		return err
	}
	x.looked = time.Now()
	maps.Copy(x.seen, found)
	for name, is := range found {
		if !x.pins[name].remade(is) {
			continue
		}
		delete(x.pins, name) // it is pinned anew
		delete(x.topics.topics, name)
		x.journal.Release() // its client does not write to a topic under two ids
		err = fmt.Errorf("%w: %w", sink.ErrReset, remadeError(name))
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.Contains(hidden, name) {
			return x.forbidden(name)
		}
	}
	return nil
}

// pin returns the batch's changes, those that pin the topics, which are its own, that
// it is the first to write to, and what they pin.
func (x *Transactional) pin(ctx context.Context, b *event.Batch, names []string) ([]event.KV, pins, error) {
	changes, fresh := b.Commit.Changes[:len(b.Commit.Changes):len(b.Commit.Changes)], pins{}
	if err := x.awaitKnown(ctx, names); err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		is := pin{len(x.topics.topics[name].partitions), x.seen[name].id}
		was, ok := x.pins[name]
		is.id = cmp.Or(is.id, was.id)
		if ok && was.partitions != is.partitions {
			return nil, nil, refuse(&partitionsError{topic: name, was: was.partitions, is: is.partitions})
		}
		fresh[name] = is
		if was != is {
			changes = append(changes, event.KV{Key: []byte(pinPrefix + name), Value: []byte(is.String())})
		}
	}
	return changes, fresh, nil
}

// awaitKnown looks until Kafka says what the topics are, which have just been found or
// made.
func (x *Transactional) awaitKnown(ctx context.Context, names []string) error {
	for until := time.Now().Add(spread); ; {
		if err := x.identify(ctx, names); err != nil {
			return err
		}
		missing := slices.IndexFunc(names, func(name string) bool {
			_, ok := x.seen[name]
			return !ok
		})
		if missing < 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("topic %q is not known to every broker yet", names[missing])
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(spread / 20):
		}
	}
}
