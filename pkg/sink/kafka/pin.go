package kafka

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Keys and values of the checkpoint that are written here as well: those of
// pkg/checkpoint/kafka's TopicPrefix, and of pkg/checkpoint's ResetKey and
// ResetRequested.
const (
	pinPrefix      = "!topic/"
	resetKey       = "!reset"
	resetRequested = "requested"
)

// spread is how long it may take until every broker knows a new topic.
const spread = 2 * time.Second

// pin is what the checkpoint holds of a topic since it was first written to.
type pin struct {
	partitions int
	// id is the topic's own (KIP-516): one that was deleted and made again has
	// another. "" where Kafka does not tell, or an older bridge wrote the pin.
	id string
}

// parsePin reads what String returns.
func parsePin(s string) (p pin, err error) {
	var n string
	n, p.id, _ = strings.Cut(s, " ")
	p.partitions, err = strconv.Atoi(n)
	return p, err
}

// String is "<partitions> <id>", or "<partitions>".
func (p pin) String() string { return strings.TrimSuffix(strconv.Itoa(p.partitions)+" "+p.id, " ") }

// remade reports whether is the topic that was pinned as p has been made anew.
func (p pin) remade(is pin) bool { return p.id != is.id && p.id != "" && is.id != "" }

// remadeError is a topic that no longer is what was written to.
func remadeError(topic string) error {
	return fmt.Errorf("topic %q was deleted and made again: what it held is gone", topic)
}

// look asks Kafka for topics. Those that it does not know are left out.
func (x *Transactional) look(ctx context.Context, names []string) (map[string]pin, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	// A request's own context does not end the wait for a broker that hangs.
	c, err := kgo.NewClient(append(slices.Clone(x.client), kgo.WithContext(ctx))...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	found, err := kadm.NewClient(c).ListTopics(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("look up topic %q: %w", names[0], x.topics.explain(fromFranz(err)))
	}
	pins := map[string]pin{}
	for name, t := range found {
		if t.Err != nil {
			continue
		}
		p := pin{partitions: len(t.Partitions)}
		if t.ID != (kadm.TopicID{}) {
			p.id = t.ID.String()
		}
		pins[name] = p
	}
	return pins, nil
}

// readPins compares the topics with what the checkpoint has of them. Where one
// was made anew, the checkpoint then asks for a declared reset.
func (x *Transactional) readPins(ctx context.Context) error {
	clear(x.pins)
	clear(x.seen)
	err := x.journal.Scan([]byte(pinPrefix), func(key, value []byte) error {
		if p, err := parsePin(string(value)); err == nil {
			x.pins[strings.TrimPrefix(string(key), pinPrefix)] = p
		}
		return nil
	})
	if err != nil || len(x.pins) == 0 {
		return err
	}
	found, err := x.look(ctx, slices.Sorted(maps.Keys(x.pins)))
	if err != nil {
		return err
	}
	var changes []event.KV
	for name, is := range found { // one that is gone is dealt with when it is written to
		switch was := x.pins[name]; {
		case was.remade(is):
			x.topics.log.Warn("a declared reset is due", zap.Error(remadeError(name)))
			changes = append(changes, event.KV{Key: []byte(pinPrefix + name)})
		case was.partitions != is.partitions:
			return refuse(&partitionsError{topic: name, was: was.partitions, is: is.partitions})
		}
	}
	if changes == nil {
		return nil
	}
	changes = append(changes, event.KV{Key: []byte(resetKey), Value: []byte(resetRequested)})
	if err := x.journal.Transact(ctx, 0, changes, nil); err != nil {
		return err
	}
	for _, kv := range changes {
		delete(x.pins, strings.TrimPrefix(string(kv.Key), pinPrefix))
	}
	return nil
}

// identify looks at the batch's topics, and all that are pinned, if one of the
// batch's has not been looked at since a request failed, or in the last minute.
// [sink.ErrReset] says that one was made anew.
func (x *Transactional) identify(ctx context.Context, b *event.Batch) error {
	if time.Since(x.looked) > metadataTTL {
		clear(x.seen)
	}
	unknown := map[string]bool{}
	for i := range b.Records {
		name := b.Records[i].Route
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
	found, err := x.look(ctx, slices.Sorted(maps.Keys(unknown)))
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
	return err
}

// pin returns the batch's changes, those that pin the topics that it is the first
// to write to, and what they pin.
func (x *Transactional) pin(ctx context.Context, b *event.Batch) ([]event.KV, map[string]pin, error) {
	changes, pins := b.Commit.Changes[:len(b.Commit.Changes):len(b.Commit.Changes)], map[string]pin{}
	for i := range b.Records {
		name := b.Records[i].Route
		if _, ok := pins[name]; ok {
			continue
		}
		if err := x.awaitKnown(ctx, b, name); err != nil {
			return nil, nil, err
		}
		is := pin{len(x.topics.topics[name].partitions), x.seen[name].id}
		was, ok := x.pins[name]
		is.id = cmp.Or(is.id, was.id)
		if ok && was.partitions != is.partitions {
			return nil, nil, refuse(&partitionsError{topic: name, was: was.partitions, is: is.partitions})
		}
		pins[name] = is
		if was != is {
			changes = append(changes, event.KV{Key: []byte(pinPrefix + name), Value: []byte(is.String())})
		}
	}
	return changes, pins, nil
}

// awaitKnown looks until Kafka says what the topic is, which has just been found or
// made.
func (x *Transactional) awaitKnown(ctx context.Context, b *event.Batch, name string) error {
	for until := time.Now().Add(spread); ; {
		if err := x.identify(ctx, b); err != nil {
			return err
		}
		if _, ok := x.seen[name]; ok {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("topic %q is not known to every broker yet", name)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(spread / 20):
		}
	}
}
