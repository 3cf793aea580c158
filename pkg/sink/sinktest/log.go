package sinktest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// needLog skips a test that is about sinks that can read back.
func needLog(t *testing.T, h *Harness) {
	t.Helper()
	s := h.New(t)
	_, ok := s.(sink.Log)
	if err := s.Close(); err != nil {
		t.Fatalf("Close of a sink that was never opened: %v", err)
	}
	if !ok {
		t.Skip("the sink is no Log")
	}
}

// stateful makes a batch whose states have every shape that a checkpoint uses.
func (l *ledger) stateful(n int) *event.Batch {
	b := l.round(n, "a", "b", "c")
	for i := range b.Records {
		r := &b.Records[i]
		switch i % 4 {
		case 0:
			r.State = append(r.State,
				event.KV{Key: []byte("p/pods"), Value: []byte("at 1 " + r.ID)},
				event.KV{Key: []byte{0, 0xff, '\n'}, Value: []byte{0, 1, 2, 0xfe, '\r', '\n'}})
		case 1:
			r.State = []event.KV{{Key: []byte("gone")}, {Key: []byte("empty"), Value: []byte{}}}
		case 2:
			r.State = nil
		}
	}
	return b
}

// checkTail compares what Tail gave with the records it should have come from.
func checkTail(t *testing.T, got []tailed, want []event.Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("Tail gave %d records, want %d", len(got), len(want))
	}
	for i := range want {
		if len(got[i].mark) == 0 {
			t.Errorf("record %d came without a mark", i)
		}
		a, b := got[i].state, want[i].State
		if len(a) == 0 && len(b) == 0 {
			continue
		}
		// cmp distinguishes a nil value (a deletion) from an empty one
		if d := cmp.Diff(b, a); d != "" {
			t.Fatalf("state of record %d (%s) differs (-want +got):\n%s", i, want[i].ID, d)
		}
	}
}

func testTailFromStart(t *testing.T, h *Harness) {
	needLog(t, h)
	l := newLedger(h)
	s, got := open(t, h, nil)
	checkTail(t, got, nil)
	var want []event.Record
	for _, n := range []int{1, 9, 1300} {
		b := l.stateful(n)
		want = append(want, b.Records...)
		mustWrite(t, s, b)
	}
	_, got = open(t, h, nil)
	checkTail(t, got, want)
}

func testTailFromMark(t *testing.T, h *Harness) {
	needLog(t, h)
	l := newLedger(h)
	s, _ := open(t, h, nil)
	begun := s.(sink.Log).Mark()
	first, second := l.stateful(7), l.stateful(12)
	mark := mustWrite(t, s, first)
	if now := s.(sink.Log).Mark(); !bytes.Equal(now, mark) {
		t.Errorf("Mark is %q, that of the batch just written %q", now, mark)
	}
	if again := mustWrite(t, s, l.batch()); len(again) > 0 {
		mark = again // of a batch without records: the same place
	}
	end := mustWrite(t, s, second)

	_, got := open(t, h, begun)
	checkTail(t, got, slices.Concat(first.Records, second.Records))
	_, got = open(t, h, mark)
	checkTail(t, got, second.Records)
	_, rest := open(t, h, got[4].mark) // a fold-in that was cut short
	checkTail(t, rest, second.Records[5:])
	_, none := open(t, h, end)
	checkTail(t, none, nil)
	s, none = open(t, h, rest[len(rest)-1].mark)
	checkTail(t, none, nil)

	third := l.stateful(3)
	mustWrite(t, s, third)
	_, got = open(t, h, end)
	checkTail(t, got, third.Records)
	l.check(t, h.Read(t))
}

// The process dies after Write and before the checkpoint's commit.
func testTailAfterCrash(t *testing.T, h *Harness) {
	needLog(t, h)
	l := newLedger(h)
	s, _ := open(t, h, nil)
	mark := mustWrite(t, s, l.stateful(5))
	lost := l.stateful(8)
	mustWrite(t, s, lost)

	s, got := open(t, h, mark)
	checkTail(t, got, lost.Records)
	mustWrite(t, s, l.stateful(4))
	l.check(t, h.Read(t))
}

// The process dies while a batch is half written: Tail must give exactly what
// consumers have seen of it.
func testTailAfterCrashInTheMiddle(t *testing.T, h *Harness) {
	needLog(t, h)
	l := newLedger(h)
	s, _ := open(t, h, nil)
	var written []event.Record
	w := startWriter(t, s, func() *event.Batch {
		b := l.stateful(400)
		written = append(written, b.Records...)
		return b
	})
	await(t, "batches to be acknowledged", func() bool { return w.acked.Load() > 3 || w.ended() })
	h.Stop(t)
	await(t, "Write to return an error", func() bool { return w.failed.Load() > 0 || w.ended() })
	w.abandon()
	h.Start(t)

	_, got := open(t, h, nil)
	msgs := h.Read(t)
	l.inspect(t, msgs)
	checkTail(t, got, written[:min(len(msgs), len(written))])
	if len(msgs) < 400*int(w.acked.Load()) {
		t.Errorf("the bus holds %d records, %d were acknowledged", len(msgs), 400*w.acked.Load())
	}
	_, got = open(t, h, w.mark)
	checkTail(t, got, written[400*int(w.acked.Load()):len(msgs)])
}
