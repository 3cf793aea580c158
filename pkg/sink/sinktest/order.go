package sinktest

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

func testOrderPerKey(t *testing.T, h *Harness) {
	l := newLedger(h)
	s, _ := open(t, h, nil)
	for _, size := range []int{1, 2, 100, 1, 1500, 7} {
		mustWrite(t, s, l.round(size, "a", "b", "c", "d", "e"))
	}
	mustWrite(t, s, l.round(50, "a")) // one key alone

	pad := 60 << 10 // nearly the 4 MiB that a batch may have
	if h.MaxRecord > 0 {
		pad = min(pad, h.MaxRecord/2)
	}
	big := make([]event.Record, 60)
	for i := range big {
		big[i] = l.record([]string{"a", "b", "c"}[i%3], pad)
	}
	mustWrite(t, s, l.batch(big...))
	l.check(t, h.Read(t))
}

// Write must not return before the bus has the batch: the pipeline moves the
// checkpoint right after it.
func testAcknowledgedIsThere(t *testing.T, h *Harness) {
	l := newLedger(h)
	s, _ := open(t, h, nil)
	for range 10 {
		mustWrite(t, s, l.round(40, "a", "b", "c"))
		l.check(t, h.Read(t))
	}
}

// A batch without records carries only a commit.
func testEmptyBatch(t *testing.T, h *Harness) {
	l := newLedger(h)
	s, _ := open(t, h, nil)
	mustWrite(t, s, l.batch())
	mustWrite(t, s, l.round(3, "a"))
	mustWrite(t, s, l.batch())
	mustWrite(t, s, l.round(3, "a"))
	l.check(t, h.Read(t))
}

// A gap must stand before what it announces, and a synced behind what it closes,
// for the reader of any one partition.
func testBroadcast(t *testing.T, h *Harness) {
	l := newLedger(h)
	s, _ := open(t, h, nil)
	keys := strings.Split("abcdefghijklmnop", "")
	mustWrite(t, s, l.round(32, keys...))
	before := l.counts()
	first := l.broadcast(event.Gap)
	records := []event.Record{first}
	for _, k := range keys {
		records = append(records, l.record(k, 0))
	}
	second := l.broadcast(event.Synced)
	mustWrite(t, s, l.batch(append(records, second)...))

	msgs := h.Read(t)
	l.check(t, msgs)
	seen := map[int]int{} // collection events, by partition
	for i, m := range msgs {
		switch {
		case string(m.Value) == string(first.Value), string(m.Value) == string(second.Value):
			seen[m.Partition]++
		default:
			key, n := l.noteOf(t, m)
			if inside := n > before[key]; inside != (seen[m.Partition] == 1) {
				t.Fatalf("message %d: %s %d stands on the wrong side of a collection event of partition %d", i, key, n, m.Partition)
			}
		}
	}
	for p := range max(h.Partitions, 1) {
		if seen[p] != 2 {
			t.Errorf("partition %d has %d collection events, want 2", p, seen[p])
		}
	}
}

func testHeaders(t *testing.T, h *Harness) {
	l := newLedger(h)
	s, _ := open(t, h, nil)
	r := l.record("a", 0)
	r.Attributes = append(r.Attributes,
		event.Attribute{Name: "name", Value: `system:"ünïcode" 100%`},
		event.Attribute{Name: "collection", Value: "secrets?namespace=payments&labels=audit=true"},
		event.Attribute{Name: "lines", Value: "one\r\ntwo"},
		event.Attribute{Name: "datacontenttype", Value: event.DataContentType})
	r.Headers = []event.Attribute{{Name: "x-team", Value: "payments"}, {Name: "X-Empty", Value: ""}}
	mustWrite(t, s, l.batch(r))
	msgs := h.Read(t)
	l.check(t, msgs)
	got := msgs[0].Headers
	for _, a := range r.Attributes {
		name, want := h.Header(a)
		if r.Format != event.Structured && a.Name == "datacontenttype" {
			continue // a bus may say that in content-type
		}
		if got[name] != want {
			t.Errorf("header %q is %q, want %q", name, got[name], want)
		}
	}
	contentType := ""
	for name, v := range got {
		if strings.EqualFold(name, "content-type") {
			contentType = v
		}
	}
	if contentType != h.Format.ContentType() {
		t.Errorf("content type is %q, want %q", contentType, h.Format.ContentType())
	}
	for _, a := range r.Headers {
		if value, there := got[a.Name]; !there || value != a.Value {
			t.Errorf("header %q is %q (there: %t), want %q", a.Name, value, there, a.Value)
		}
	}
}

// The pipeline replaces the record that is too large by a smaller one; what came
// before must not be repeated, what comes after must not have overtaken.
func testOversize(t *testing.T, h *Harness) {
	l := newLedger(h)
	s, _ := open(t, h, nil)
	mustWrite(t, s, l.round(4, "a", "b"))
	replaceOversize(t, l, s, 10, 5)
	replaceOversize(t, l, s, 2000, 1500) // where a sink writes in parts, not in the first one
}

// replaceOversize writes a batch of n records of which the one at index is too large.
func replaceOversize(t *testing.T, l *ledger, s sink.Sink, n, index int) {
	t.Helper()
	h := l.h
	before := l.counts()
	records := make([]event.Record, n)
	for i := range records {
		pad := 0
		if i == index {
			pad = h.MaxRecord
		}
		records[i] = l.record("a", pad)
	}
	b := l.batch(records...)
	_, err := s.Write(t.Context(), b)
	var rec *sink.RecordError
	if !errors.As(err, &rec) {
		t.Fatalf("Write of a record of %d bytes: %v, want a RecordError", len(records[index].Value), err)
	}
	if rec.Index != index || rec.Limit <= 0 || rec.Limit > h.MaxRecord || rec.Size <= rec.Limit {
		t.Fatalf("RecordError has index %d, size %d, limit %d; the record is %d and has %d bytes, the bus takes %d",
			rec.Index, rec.Size, rec.Limit, index, len(records[index].Value), h.MaxRecord)
	}
	n = l.inspect(t, h.Read(t))["a"]
	if _, log := s.(sink.Log); log && n != before["a"]+index {
		t.Fatalf("the bus holds %d records of the key, want %d: of a Log everything before the record counts as written", n, before["a"]+index)
	}
	if n < before["a"] || n > before["a"]+index {
		t.Fatalf("the bus holds %d records of the key, want at least %d, and nothing from record %d of the batch on", n, before["a"], index)
	}

	records[index] = l.shrink(records[index], rec.Size-rec.Limit)
	mustWrite(t, s, b)
	l.check(t, h.Read(t))
}
