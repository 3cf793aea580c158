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

// pinPrefix begins the keys in the checkpoint under which a Transactional keeps
// its pins.
const pinPrefix = "!topic/"

// pin records a topic in the checkpoint, as it was when it was first written to.
type pin struct {
	partitions int
	// id is the topic's id (KIP-516). A topic that was deleted and created again has
	// another id. "" if Kafka does not send ids, or if an older bridge wrote the pin.
	id string
}

// parsePin parses the result of String.
func parsePin(s string) (p pin, err error) {
	var n string
	n, p.id, _ = strings.Cut(s, " ")
	p.partitions, err = strconv.Atoi(n)
	return p, err
}

// String is "<partitions> <id>", or "<partitions>".
func (p pin) String() string { return strings.TrimSuffix(strconv.Itoa(p.partitions)+" "+p.id, " ") }

// remade reports whether a topic with the pin p and the present state is was deleted and created again.
func (p pin) remade(is pin) bool { return p.id != is.id && p.id != "" && is.id != "" }

// remadeError is the error of a topic that was deleted and created again.
type remadeError struct{ topic string }

func (e *remadeError) Error() string {
	return fmt.Sprintf("topic %q was deleted and made again: what it held is gone", e.topic)
}

// pins are the pins by topic. A Transactional keeps
// each pin under its own key in the checkpoint. A Sink keeps the numbers of partitions in its mark.
type pins map[string]pin

// scanPins reads the pins of a Transactional.
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

// compare compares the pins with the found topics. It returns, in order, the topics that were deleted and
// created again, and the other topics whose number of partitions has changed.
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

// recorded is the encoding of a mark.
type recorded struct {
	Partitions map[string]int `json:"partitions"`
}

// decodePins reads the pins in the mark of a Sink.
func decodePins(mark []byte) (pins, error) {
	all, r := pins{}, recorded{}
	if mark == nil {
		return all, nil
	}
	if err := json.Unmarshal(mark, &r); err != nil || r.Partitions == nil {
		return nil, &sink.RefusedError{
			What: fmt.Sprintf("the recorded mark %.40q", mark),
			Err:  errors.New("it is not one of a Kafka sink with delivery at-least-once"),
			Hint: "give the sink another name, or run `bridge checkpoint reset`",
		}
	}
	for name, n := range r.Partitions {
		all[name] = pin{partitions: n}
	}
	return all, nil
}

// encode returns the mark of a Sink.
func (p pins) encode() ([]byte, error) {
	r := recorded{Partitions: make(map[string]int, len(p))}
	for name, one := range p {
		r.Partitions[name] = one.partitions
	}
	return json.Marshal(r)
}

// refuse converts the error of a changed number of partitions to a [sink.RefusedError], because retries do not help.
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
