package sinktest

import (
	"bytes"
	"context"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// memory is that of a pipeline's batches: each is made in what the one before was made in,
// all of which is overwritten first.
type memory struct {
	bytes      []byte
	attributes []event.Attribute
	kvs        []event.KV
	events     []event.Event
	batch      event.Batch
}

// lend returns a copy of b in the memory. What it returned before must have been
// written.
func (m *memory) lend(b *event.Batch) *event.Batch {
	m.spoil()
	m.bytes, m.attributes, m.kvs, m.events = m.bytes[:0], m.attributes[:0], m.kvs[:0], m.events[:0]
	m.batch.Seq, m.batch.Records = b.Seq, append(m.batch.Records[:0], b.Records...)
	for i := range m.batch.Records {
		r := &m.batch.Records[i]
		r.Value, r.State = m.copy(r.Value), m.copyAll(r.State)
		r.Attributes, r.Headers = m.copyAttributes(r.Attributes), m.copyAttributes(r.Headers)
		m.events = append(m.events, *r.Event)
		r.Event = &m.events[len(m.events)-1]
		r.Event.Object = m.copy(r.Event.Object)
	}
	m.batch.Commit.Changes = m.copyAll(b.Commit.Changes)
	return &m.batch
}

// spoil overwrites everything.
func (m *memory) spoil() {
	for i := range m.bytes {
		m.bytes[i] = '#'
	}
	for i := range m.attributes {
		m.attributes[i] = event.Attribute{Name: "spoilt", Value: "spoilt"}
	}
	for i := range m.kvs {
		m.kvs[i] = event.KV{Key: []byte("spoilt"), Value: []byte("spoilt")}
	}
	other := &event.Collection{Resource: "spoilt"}
	for i := range m.events {
		m.events[i] = event.Event{Type: event.Closed, Collection: other, Report: &event.Report{Reason: "spoilt"}}
	}
	for i := range m.batch.Records {
		m.batch.Records[i] = event.Record{ID: "spoilt", Route: "spoilt", Key: "spoilt", Value: []byte("spoilt"), Event: &event.Event{Collection: other}}
	}
	m.batch.Seq = 1 << 60
}

func (m *memory) copy(b []byte) []byte {
	if b == nil {
		return nil
	}
	at := len(m.bytes)
	m.bytes = append(m.bytes, b...)
	return m.bytes[at:len(m.bytes):len(m.bytes)]
}

func (m *memory) copyAttributes(list []event.Attribute) []event.Attribute {
	at := len(m.attributes)
	m.attributes = append(m.attributes, list...)
	return m.attributes[at:len(m.attributes):len(m.attributes)]
}

func (m *memory) copyAll(list []event.KV) []event.KV {
	at := len(m.kvs)
	for _, kv := range list {
		m.kvs = append(m.kvs, event.KV{Key: m.copy(kv.Key), Value: m.copy(kv.Value)})
	}
	return m.kvs[at:len(m.kvs):len(m.kvs)]
}

// Once Write has returned nil the pipeline makes another batch in the same memory: what the
// sink still held of it would reach the bus, or come back from Tail, as another event's.
// After an error the memory stays as it is until the batch was written.
func testMemoryIsUsedAgain(t *testing.T, h *Harness) {
	l := newLedger(h)
	s, _ := open(t, h, nil)
	var (
		m     memory
		want  []event.Record
		marks [][]byte
		same  [][]byte // copies of marks
	)
	for round, size := range []int{1, 700, 40, 1, 1500, 3} {
		b := l.stateful(size)
		if h.ExactlyOnce && round%2 == 1 {
			b.Records = append(b.Records, l.broadcast(event.Synced))
		}
		b.Commit.Changes = []event.KV{{Key: []byte("p/pods"), Value: []byte{byte(round)}}}
		want = append(want, b.Records...)
		lent := m.lend(b)
		if round == 2 {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := s.Write(ctx, lent); err == nil {
				t.Error("Write with an ended context returned no error")
			}
		}
		mark := mustWrite(t, s, lent)
		marks, same = append(marks, mark), append(same, bytes.Clone(mark))
		m.spoil()
	}
	l.check(t, h.Read(t))
	for i := range marks {
		if !bytes.Equal(marks[i], same[i]) {
			t.Errorf("the mark of batch %d is in the batch's memory", i+1)
		}
	}
	attributes := map[string][]event.Attribute{}
	for i := range want {
		attributes[want[i].ID] = want[i].Attributes
	}
	for i, msg := range h.Read(t) {
		if h.Header == nil {
			break
		}
		key, n := l.noteOf(t, msg)
		for _, a := range attributes[recordID(key, n)] {
			if name, value := h.Header(a); msg.Headers[name] != value {
				t.Fatalf("message %d: header %s is %q, want %q", i, name, msg.Headers[name], value)
			}
		}
	}
	if _, isLog := s.(sink.Log); isLog {
		_, got := open(t, h, nil)
		checkTail(t, got, want)
	}
}
