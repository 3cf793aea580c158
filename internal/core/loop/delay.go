package loop

import (
	"cmp"
	"time"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
)

const (
	// maxDelayed bounds the bytes of messages that are delayed, and maxDelayedMessages their number.
	maxDelayed         = frameBudget / 2
	maxDelayedMessages = 100_000
)

// delays are messages of collections that are handled later, because a change of the collection waits until it is known who made it: see
// [Delayer]. The core does not have them yet, so nothing of them is in the store, and they are read again after a restart.
// Only Run's goroutine uses them.
//
//	message of a collection                      the collection has no delayed message   it has some
//	change that a watch has seen                 handled, if its verdict is known;       delayed
//	                                             else delayed
//	any other                                    handled                                 delayed
//
//	first delayed message of a collection        then
//	change: its verdict becomes known            handled
//	change: its time is over                     handled
//	change: too many messages are delayed        handled
//	any other                                    handled
//	its read is stopped                          dropped, with all that are delayed
type delays struct {
	queues   map[string][]delayedMessage // by collection, in order; none is empty
	messages int
	bytes    int64
	pages    uint64 // calls of [Loop.Page], after which the delayer may know more
}

// delayedMessage is a message that is delayed.
type delayedMessage struct {
	message
	until time.Time // zero: the message itself has nothing to wait for
	pages uint64    // delays.pages when the witness was asked last
}

func newDelays() *delays { return &delays{queues: map[string][]delayedMessage{}} }

// has reports whether messages of a collection are delayed.
func (d *delays) has(collection string) bool { return len(d.queues[collection]) > 0 }

func (d *delays) add(collection string, m delayedMessage) {
	d.queues[collection] = append(d.queues[collection], m)
	d.messages++
	d.bytes += m.bytes
}

// take removes the first message of a collection.
func (d *delays) take(collection string) message {
	q := d.queues[collection]
	m := q[0].message
	q[0] = delayedMessage{}
	if d.queues[collection] = q[1:]; len(q) == 1 {
		delete(d.queues, collection)
	}
	d.messages--
	d.bytes -= m.bytes
	return m
}

// full reports whether there is no room for another message.
func (d *delays) full() bool { return d.bytes > maxDelayed || d.messages > maxDelayedMessages }

// due returns a channel that fires when the time of a message is over; nil: none is delayed.
func (d *delays) due() <-chan time.Time {
	var first time.Time
	for _, q := range d.queues {
		if until := q[0].until; first.IsZero() || until.Before(first) {
			first = until
		}
	}
	if first.IsZero() {
		return nil
	}
	return time.After(max(0, time.Until(first)))
}

// delay delays a message, if it or one before it has to wait. It returns false if the message can be handled.
func (l *Loop) delay(m message) bool {
	id, d := m.collection, l.reads.delays
	if id == "" || l.Delayer == nil {
		return false
	}
	var wait time.Duration
	if l.isChange(&m) {
		wait = l.hold(&m)
	}
	if wait == 0 && !d.has(id) {
		return false
	}
	m.received = cmp.Or(m.received, l.at)
	one := delayedMessage{message: m}
	if wait > 0 {
		one.until, one.pages = l.at.Add(wait), d.pages
	}
	d.add(id, one)
	return true
}

// release handles delayed messages that wait no longer, while the batch has room.
func (l *Loop) release() error {
	d := l.reads.delays
	for id := range d.queues {
		for d.has(id) && !l.batches.full() && !l.waits(&d.queues[id][0]) {
			if err := l.handleNow(d.take(id)); err != nil {
				return err
			}
		}
	}
	return nil
}

// waits reports whether the first delayed message of a collection still waits.
func (l *Loop) waits(m *delayedMessage) bool {
	d := l.reads.delays
	if !l.at.Before(m.until) || d.full() {
		return false
	}
	if m.pages == d.pages {
		return true
	}
	m.pages = d.pages
	return l.isChange(&m.message) && l.hold(&m.message) > 0
}

// isChange reports whether a message is about a change that a watch has seen, and that a request can have made.
func (l *Loop) isChange(m *message) bool {
	in := m.input
	if in == nil || in.Kind != reconcile.Sighted || in.Side != 0 || in.Sighting.Origin != reconcile.Watch || in.Read != l.core.Reading(in.Collection).Number {
		return false
	}
	return in.Sighting.Form != reconcile.Ended || in.Sighting.Fate != reconcile.Unknown
}

// hold returns for how long a change may wait: see [Delayer].
func (l *Loop) hold(m *message) time.Duration {
	known, _ := l.core.Object(m.collection, m.input.Sighting.Key)
	return l.Delayer.MayWait(m.collection, m.input.Sighting, known, cmp.Or(m.received, l.at))
}
