package kafka

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// pinPrefix starts the keys of the checkpoint under which a Transactional keeps
// what it knows of the topics it writes to.
const pinPrefix = "!topic/"

// pin is what the checkpoint holds of a topic since it was first written to.
type pin struct {
	partitions int
	// id is the topic's own (KIP-516): one that was deleted and made again has
	// another. "" where Kafka does not say, or an older bridge wrote the pin.
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

// remade reports whether the topic that was pinned as p, and is now is, was deleted and made again.
func (p pin) remade(is pin) bool { return p.id != is.id && p.id != "" && is.id != "" }

// remadeError is a topic that no longer is what was written to.
type remadeError struct{ topic string }

func (e *remadeError) Error() string {
	return fmt.Sprintf("topic %q was deleted and made again: what it held is gone", e.topic)
}

// pins are the topics that were written to, as they were then. A Transactional keeps
// each under a key of its own in the checkpoint, a Sink the numbers in its mark.
type pins map[string]pin

// scanPins reads a Transactional's.
func scanPins(scan func(prefix []byte, fn func(key, value []byte) error) error) (pins, error) {
	all := pins{}
	err := scan([]byte(pinPrefix), func(key, value []byte) error {
		if p, err := parsePin(string(value)); err == nil {
			all[strings.TrimPrefix(string(key), pinPrefix)] = p
		}
		return nil
	})
	return all, err
}

// compare says what has become of the topics among those that were found: which were
// deleted and made again, and of which others the number of partitions has changed, in order.
func (p pins) compare(found map[string]*topic) (remade []string, moved []*partitionsError) {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		was := p[name]
		is, ok := found[name]
		switch {
		case !ok:
		case was.remade(is.pin()):
			remade = append(remade, name)
		case was.partitions != len(is.partitions):
			moved = append(moved, &partitionsError{topic: name, was: was.partitions, is: len(is.partitions)})
		}
	}
	return remade, moved
}

// recorded is a mark.
type recorded struct {
	Partitions map[string]int `json:"partitions"`
}

// decodePins reads a Sink's.
func decodePins(mark []byte) (pins, error) {
	all, r := pins{}, recorded{}
	if mark == nil {
		return all, nil
	}
	if err := json.Unmarshal(mark, &r); err != nil || r.Partitions == nil {
		return nil, &sink.RefusedError{
			What: fmt.Sprintf("the recorded mark %.40q", mark),
			Err:  errors.New("it is not one of a Kafka sink with delivery at-least-once"),
			Hint: "give the sink another name, or let `bridge checkpoint reset` begin anew",
		}
	}
	for name, n := range r.Partitions {
		all[name] = pin{partitions: n}
	}
	return all, nil
}

// encode makes a Sink's mark of them.
func (p pins) encode() ([]byte, error) {
	r := recorded{Partitions: make(map[string]int, len(p))}
	for name, one := range p {
		r.Partitions[name] = one.partitions
	}
	return json.Marshal(r)
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
		Hint: "create it again as it was, or run `bridge checkpoint reset`: consumers then receive a reset and drop their copy",
	}
}
