package bus

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// Log has all messages of a bus, in the order in which a reader received them. The reader runs in the background.
type Log struct {
	mu       sync.Mutex
	messages []Message
	err      error // the error of the first invalid message
	grown    chan struct{}
}

func newLog() *Log { return &Log{grown: make(chan struct{})} }

func (l *Log) add(m Message, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("%s: %w: %.2000s", m.Place, err, m.Raw)
	}
	l.messages = append(l.messages, m)
	close(l.grown)
	l.grown = make(chan struct{})
}

// Messages returns the messages that were read so far. The error is about the first message that is not a valid event.
func (l *Log) Messages() ([]Message, error) {
	messages, _, err := l.read()
	return messages, err
}

func (l *Log) read() ([]Message, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.messages[:len(l.messages):len(l.messages)], l.grown, l.err
}

// Wait waits until done returns true for the messages that were read, and returns them. It returns an error, with the last messages, when
// ctx is cancelled or a message is not a valid event.
func (l *Log) Wait(ctx context.Context, done func([]Message) bool) ([]Message, error) {
	for {
		messages, grown, err := l.read()
		if err != nil {
			return messages, err
		}
		if done(messages) {
			return messages, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return messages, fmt.Errorf("%w; the bus holds %d messages:\n%s", context.Cause(ctx), len(messages), Tail(messages, 40))
		}
	}
}

// Tail formats the last n messages, one per line.
func Tail(messages []Message, n int) string {
	var b strings.Builder
	for i := max(0, len(messages)-n); i < len(messages); i++ {
		fmt.Fprintf(&b, "%6d %s\n", i, &messages[i])
	}
	return b.String()
}
