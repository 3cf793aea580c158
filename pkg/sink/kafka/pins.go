package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// pins are how many partitions each topic had when it was first written to. They
// are a Sink's mark.
type pins map[string]int

// recorded is a mark.
type recorded struct {
	Partitions pins `json:"partitions"`
}

func decodePins(mark []byte) (pins, error) {
	r := recorded{Partitions: pins{}}
	if mark == nil {
		return r.Partitions, nil
	}
	if err := json.Unmarshal(mark, &r); err != nil || r.Partitions == nil {
		return nil, &sink.RefusedError{
			What: fmt.Sprintf("the recorded mark %.40q", mark),
			Err:  errors.New("it is not one of a Kafka sink with delivery at-least-once"),
			Hint: "give the sink another name, or let `bridge checkpoint reset` begin anew",
		}
	}
	return r.Partitions, nil
}

func (p pins) encode() ([]byte, error) { return json.Marshal(recorded{p}) }

// checkPins compares the topics with what they were.
func (s *Sink) checkPins(ctx context.Context) error {
	if len(s.pins) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(s.pins))
	meta, err := s.metadata(ctx, names)
	if err != nil {
		return fmt.Errorf("look up topic %q: %w", names[0], s.explain(err))
	}
	for _, t := range meta.Topics {
		// One that is gone or not to be seen is dealt with when it is written to.
		if was, is := s.pins[t.Name], len(t.Partitions); t.Error == nil && is != was {
			return &partitionsError{topic: t.Name, was: was, is: is}
		}
	}
	return nil
}

// pin takes up the topics that b is the first to write to.
func (s *Sink) pin(b *event.Batch) error {
	for i := range b.Records {
		name := b.Records[i].Route
		t := s.topics[name]
		if t == nil {
			continue // all of it is durable since before the topic was last looked up
		}
		switch was, ok := s.pins[name]; {
		case !ok:
			s.pins[name] = len(t.partitions)
		case was != len(t.partitions):
			return &partitionsError{topic: name, was: was, is: len(t.partitions)}
		}
	}
	return nil
}

// refuse makes a changed number of partitions what no retry heals.
func refuse(err error) error {
	var moved *partitionsError
	if !errors.As(err, &moved) {
		return err
	}
	return &sink.RefusedError{
		What: fmt.Sprintf("topic %q", moved.topic),
		Err:  fmt.Errorf("it has %d partitions and had %d when it was first written to: keys would move and lose their order", moved.is, moved.was),
		Hint: "make it again as it was, or let `bridge checkpoint reset` begin anew: consumers are then told to drop their copy",
	}
}
