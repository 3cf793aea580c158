package model

import (
	"context"
	"errors"
	"sync"
	"time"
)

// life is one process of the bridge, from its start until it ended or was killed.
type life struct {
	mu     sync.Mutex
	killed bool
	crash  chan struct{} // closed when an armed crash happens
}

func newLife() *life { return &life{crash: make(chan struct{})} }

// kill has the effect of kill -9: from now on the process cannot change anything.
func (l *life) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.killed {
		l.killed = true
		close(l.crash)
	}
}

func (l *life) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.killed
}

// armed has the faults that happen at the next write or commit.
type armed struct {
	// The number of the write or commit that is the last of the process: 1 is the next one, 0 none.
	crashBeforeWrite, crashAfterWrite   int
	crashBeforeCommit, crashAfterCommit int
	loseAnswer                          bool
	failCommit                          bool
	refuse                              int // 1 + the index of the record to refuse; 0: none
}

// due counts down to the write or commit at which a fault happens, and reports whether this is it.
func due(n *int) bool {
	if *n == 0 {
		return false
	}
	*n--
	return *n == 0
}

// bus is the bus of one sink: a log of messages, and the faults that the run requests. The checkpoint store of the
// sink shares the crash faults.
type bus struct {
	mu       sync.Mutex
	changed  chan struct{}
	messages []message
	kept     int            // number of messages when the bus was last emptied
	stopped  bool           // connections are refused
	blocked  bool           // no call is answered
	refused  map[string]int // topics that are refused, after this number of further records
	limit    int            // maximum size of a value in bytes; 0: none
	armed    armed
	written  func(message) // called with each message, in order
	// sent has, by message id, when and where a message was written. A server drops repeats of an id.
	sent map[string]sent
}

// sent has the time at which a message was written, and its number among the messages.
type sent struct {
	at     time.Time
	number int
}

// duplicateWindow is the time in which a NATS server drops messages with an id that it has already seen.
const duplicateWindow = 2 * time.Minute

func newBus() *bus {
	return &bus{changed: make(chan struct{}), refused: map[string]int{}, sent: map[string]sent{}}
}

// set changes the bus and wakes the goroutines that wait for a change.
func (b *bus) set(f func(*bus)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b)
	close(b.changed)
	b.changed = make(chan struct{})
}

// refuses reports whether a topic is refused now.
func (b *bus) refuses(topic string) bool {
	n, refused := b.refused[topic]
	return refused && n == 0
}

var (
	errBusDown  = errors.New("the bus does not answer")
	errNoAnswer = errors.New("the answer was lost")
	errStore    = errors.New("the store does not answer")
)

// ready waits until the bus answers, or returns an error if it refuses connections.
func (b *bus) ready(ctx context.Context, l *life) error {
	for {
		b.mu.Lock()
		blocked, stopped, changed := b.blocked || l.dead(), b.stopped, b.changed
		b.mu.Unlock()
		switch {
		case blocked:
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		case stopped:
			return errBusDown
		default:
			return nil
		}
	}
}

// hang blocks a call of a killed process until the process is gone.
func hang(ctx context.Context, l *life) error {
	l.kill()
	<-ctx.Done()
	return ctx.Err()
}

// append makes messages durable.
func (b *bus) append(messages ...message) {
	for _, m := range messages {
		b.messages = append(b.messages, m)
		b.written(m)
	}
}

// dropped returns the number of the message that has an id and was written within the
// duplicate window.
func (b *bus) dropped(id string) (number int, repeat bool) {
	was, known := b.sent[id]
	return was.number, known && time.Since(was.at) < duplicateWindow
}
