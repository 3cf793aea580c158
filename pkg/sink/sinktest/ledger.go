package sinktest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// ledger makes records and remembers them, to be compared with the bus. The
// records of one key are numbered from 1.
//
// The records have the present time: Kafka deletes records by the time that they
// have, and removes those that are older than the topic's retention within minutes.
type ledger struct {
	h     *Harness
	time  time.Time // of every record: one that is made again is the same
	seq   uint64
	next  map[string]int
	value map[string][]byte // by id
}

func newLedger(h *Harness) *ledger {
	return &ledger{h: h, time: time.Now().UTC().Truncate(time.Second), next: map[string]int{}, value: map[string][]byte{}}
}

// payload is the data of a test record's CloudEvent.
type payload struct {
	Key string `json:"key"`
	N   int    `json:"n"`
	Pad string `json:"pad,omitempty"`
}

type envelope struct {
	SpecVersion string  `json:"specversion"`
	ID          string  `json:"id"`
	Source      string  `json:"source"`
	Type        string  `json:"type"`
	Subject     string  `json:"subject"`
	Time        string  `json:"time"`
	Data        payload `json:"data"`
}

// record makes the next record of a key, pad bytes larger than it need be.
func (l *ledger) record(key string, pad int) event.Record {
	l.next[key]++
	return l.make(key, l.next[key], pad)
}

// shrink makes a record again, its padding cut by n bytes.
func (l *ledger) shrink(r event.Record, n int) event.Record {
	data, err := l.read(r.Value)
	if err != nil {
		panic(err) // made by make
	}
	return l.make(data.Key, data.N, len(data.Pad)-n)
}

// read is the data of a value that make has made.
func (l *ledger) read(value []byte) (data payload, err error) {
	if l.h.Format != event.Structured {
		err = json.Unmarshal(value, &data)
		return data, err
	}
	var e envelope
	err = json.Unmarshal(value, &e)
	return e.Data, err
}

func recordID(key string, n int) string { return fmt.Sprintf("%s:%d:modified", key, n) }

func (l *ledger) make(key string, n, pad int) event.Record {
	e := envelope{
		SpecVersion: "1.0",
		ID:          recordID(key, n),
		Source:      "/clusters/test/core/pods",
		Type:        event.Modified.CloudEvent(),
		Subject:     "default/" + key,
		Time:        l.time.Format(time.RFC3339Nano),
		Data:        payload{Key: key, N: n, Pad: strings.Repeat("x", pad)},
	}
	var content any = e
	if l.h.Format != event.Structured {
		content = e.Data
	}
	value, err := json.Marshal(content)
	if err != nil {
		panic(err) // plain strings and numbers
	}
	l.value[e.ID] = value
	rv := fmt.Sprint(n)
	return event.Record{
		ID: e.ID, Route: l.h.Route, Key: key, Value: value, Format: l.h.Format,
		Attributes: []event.Attribute{
			{Name: "specversion", Value: e.SpecVersion},
			{Name: "id", Value: e.ID},
			{Name: "source", Value: e.Source},
			{Name: "type", Value: e.Type},
			{Name: "subject", Value: e.Subject},
			{Name: "time", Value: e.Time},
		},
		State: []event.KV{{Key: []byte("e/pods/default/" + key), Value: []byte(rv)}},
		Event: &event.Event{
			Type: event.Modified, Origin: event.Watch, Time: l.time, Collection: pods,
			APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: key, UID: key, ResourceVersion: rv,
			Object: []byte(`{"apiVersion":"v1","kind":"Pod"}`),
		},
	}
}

var pods = &event.Collection{Resource: "pods"}

func (l *ledger) broadcast(t event.Type) event.Record {
	r := l.record("_collection", 0)
	r.Key, r.Broadcast = "", true
	r.Event = &event.Event{
		Type: t, Origin: event.Reconcile, Time: l.time, Collection: pods, ResourceVersion: "1",
		Report: &event.Report{Reason: "expired"},
	}
	return r
}

// batch numbers the records as the next batch.
func (l *ledger) batch(records ...event.Record) *event.Batch {
	l.seq++
	return &event.Batch{Seq: l.seq, Records: records}
}

// round is a batch of n records that go round the keys.
func (l *ledger) round(n int, keys ...string) *event.Batch {
	records := make([]event.Record, n)
	for i := range records {
		records[i] = l.record(keys[i%len(keys)], 0)
	}
	return l.batch(records...)
}

// counts is how many records of each key there are.
func (l *ledger) counts() map[string]int {
	c := make(map[string]int, len(l.next))
	for k, n := range l.next {
		c[k] = n
	}
	return c
}

// check fails the test unless the bus holds everything that was made: complete
// and in order per key, unaltered, and once where that is promised.
func (l *ledger) check(t *testing.T, msgs []Message) {
	t.Helper()
	l.checkUpTo(t, msgs, l.next)
}

// checkUpTo is check for the first records of each key.
func (l *ledger) checkUpTo(t *testing.T, msgs []Message, want map[string]int) {
	t.Helper()
	got := l.inspect(t, msgs)
	for key, n := range want {
		if got[key] != n {
			t.Fatalf("key %q: the bus holds the first %d records, want %d", key, got[key], n)
		}
	}
	for key, n := range got {
		if n > want[key] {
			t.Fatalf("key %q: the bus holds %d records, want %d", key, n, want[key])
		}
	}
}

// inspect checks what must hold at any time, and returns how many records of
// each key the bus holds.
func (l *ledger) inspect(t *testing.T, msgs []Message) map[string]int {
	t.Helper()
	last := map[string]int{}
	where := map[string]int{}
	for i, m := range msgs {
		data, err := l.read(m.Value)
		if err != nil {
			t.Fatalf("message %d: %v: %q", i, err, m.Value)
		}
		key, n := data.Key, data.N
		if id := recordID(key, n); !bytes.Equal(m.Value, l.value[id]) {
			t.Fatalf("message %d: %s altered on the way: %q", i, id, m.Value)
		}
		if m.Route != "" && m.Route != l.h.Route {
			t.Fatalf("message %d: on route %q, want %q", i, m.Route, l.h.Route)
		}
		if m.Key != "" && m.Key != key {
			t.Fatalf("message %d: has key %q, want %q", i, m.Key, key)
		}
		if key == "_collection" {
			key = fmt.Sprintf("_collection of partition %d", m.Partition)
		} else if p, seen := where[key]; seen && p != m.Partition {
			t.Fatalf("message %d: key %q is in the partitions %d and %d", i, key, p, m.Partition)
		}
		where[key] = m.Partition
		switch {
		case n == last[key]+1:
			last[key] = n
		case n > last[key]:
			t.Fatalf("message %d: key %q: %d follows %d: out of order, or a hole", i, key, n, last[key])
		case l.h.ExactlyOnce:
			t.Fatalf("message %d: key %q: %d after %d: repeated", i, key, n, last[key])
		}
	}
	for p := range max(l.h.Partitions, 1) {
		name := fmt.Sprintf("_collection of partition %d", p)
		n := last[name]
		delete(last, name)
		if p == 0 {
			last["_collection"] = n
		} else if last["_collection"] != n {
			t.Fatalf("partition 0 holds %d collection events, partition %d holds %d", last["_collection"], p, n)
		}
	}
	return last
}

// noteOf is the key and number that a test record was made with.
func (l *ledger) noteOf(t *testing.T, m Message) (key string, n int) {
	t.Helper()
	data, err := l.read(m.Value)
	if err != nil {
		t.Fatalf("message: %v: %q", err, m.Value)
	}
	return data.Key, data.N
}

// final reports whether a pipeline would not simply try again.
func final(err error) bool {
	var rec *sink.RecordError
	var refused *sink.RefusedError
	return errors.Is(err, sink.ErrFenced) || errors.Is(err, sink.ErrReset) ||
		errors.As(err, &rec) || errors.As(err, &refused)
}
