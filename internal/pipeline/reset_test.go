package pipeline

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// forgetful is a script whose bus loses what it had at the next write after lose.
func forgetful(t *testing.T) (s *script, lose func()) {
	var lost atomic.Bool
	b := &choosy{answer: func(*event.Batch) error {
		if lost.CompareAndSwap(true, false) {
			return sink.ErrReset
		}
		return nil
	}}
	s = &script{t: t, store: openMem(t), bus: &b.bus, sink: b, started: map[string]*collectionScript{}, done: make(chan error, 1)}
	s.run()
	return s, func() {
		s.forgetTold()
		lost.Store(true)
	}
}

// knows reports whether the lane knows a collection that it does not watch.
func (s *script) knows(id string) bool {
	s.t.Helper()
	known, err := s.lane.Known(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return slices.ContainsFunc(known, func(c event.Collection) bool { return c.ID() == id })
}

var (
	inA, inB = configMapsOf(event.Collection{Namespace: "a"}), configMapsOf(event.Collection{Namespace: "b"})
	idA, idB = inA.Target.Collection.ID(), inB.Target.Collection.ID()
)

// TestClosedInAReset: a collection is taken out of the configuration and the bus loses
// what it had, that word included. Consumers hear of both, whatever comes between, and
// once: nothing that is said when it is put back has been said before.
func TestClosedInAReset(t *testing.T) {
	for _, fate := range []Fate{Removed, Unselected} {
		for _, restart := range []bool{false, true} {
			t.Run(fateReasons[fate]+map[bool]string{true: " restart"}[restart], func(t *testing.T) {
				s, lose := forgetful(t)
				defer func() { s.finish() }()
				s.set([]Wanted{inA, inB}, nil)
				a, b := s.collection(idA, nil), s.collection(idB, nil)
				a.lists("", source.ReasonSnapshot, "10", objectAt("a", "x", "u1", "5", ""))
				b.lists("", source.ReasonSnapshot, "10", objectAt("b", "y", "u2", "6", ""))
				s.await("both", func(id string) bool { return id == idB+":1:10:synced" })
				lose()
				s.set([]Wanted{inA}, map[string]Fate{idB: fate})
				a = s.collection(idA, a)
				<-s.lane.poke
				if restart {
					s.finish()
					s.run()
				}
				if !s.knows(idB) {
					t.Fatal("the reset forgot a collection that it did not close")
				}
				s.set([]Wanted{inA}, map[string]Fate{idB: fate})
				if restart {
					a = s.collection(idA, a)
				}
				a.lists("", source.ReasonSnapshot, "12", objectAt("a", "x", "u1", "5", ""))
				s.await("the end", func(id string) bool { return id == idB+":1:0:closed" })
				want := []string{
					idA + ":1:0:gap:RUN reset", "u1:5:present:RUN", idA + ":1:12:synced:RUN reset",
					idB + ":1:0:gap:RUN reset", idB + ":1:0:closed " + fateReasons[fate],
				}
				if fate == Removed { // it waits for nobody
					want = append(want[3:], want[:3]...)
				}
				s.told(want...)
				s.settle() // the bus has it before the store
				if s.knows(idB) {
					t.Error("a collection that was closed is still known")
				}
				s.forgetTold()
				s.set([]Wanted{inA, inB}, nil)
				s.collection(idB, b).lists("", source.ReasonSnapshot, "14", objectAt("b", "y", "u2", "6", ""))
				s.told(idB+":1:0:gap:2 snapshot", "u2:6.2:added", idB+":1:14:synced:2 snapshot")
			})
		}
	}
}

// TestPutBackInAReset: what was closed before the bus lost what it had, perhaps with
// that word, and is put back after all others are through, begins with a reset as they
// did. Closed and put back while others still are, it has been told by then.
func TestPutBackInAReset(t *testing.T) {
	s, lose := forgetful(t)
	defer func() { s.finish() }()
	s.set([]Wanted{inA, inB}, nil)
	a, b := s.collection(idA, nil), s.collection(idB, nil)
	one, two := objectAt("a", "x", "u1", "5", ""), objectAt("b", "y", "u2", "6", "")
	a.lists("", source.ReasonSnapshot, "10", one)
	b.lists("", source.ReasonSnapshot, "10", two)
	s.set([]Wanted{inA}, map[string]Fate{idB: Removed})
	s.await("the end", func(id string) bool { return id == idB+":1:10:closed" })
	lose()
	a.says(source.Signal{Kind: source.Modified, Object: objectAt("a", "x", "u1", "11", "new"), Resume: "11"})
	a = s.collection(idA, a)
	if s.knows(idB) {
		t.Error("a collection that was closed is known")
	}
	a.lists("", source.ReasonSnapshot, "12", one)
	s.await("all others", func(id string) bool { return strings.HasPrefix(id, idA+":1:12:synced") })
	err := s.lane.do(t.Context(), func(context.Context) error {
		if s.lane.resetRun != "" {
			t.Error("the reset is not over")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	run := s.runOf("gap")
	s.forgetTold()
	s.set([]Wanted{inA, inB}, nil)
	b = s.collection(idB, b)
	b.lists("", source.ReasonSnapshot, "14", two)
	s.told(idB+":1:0:gap:"+run+" reset", "u2:6:present:"+run, idB+":1:14:synced:"+run+" reset")

	lose()
	a.says(source.Signal{Kind: source.Modified, Object: objectAt("a", "x", "u1", "15", "new"), Resume: "15"})
	b = s.collection(idB, b)
	b.says(source.Signal{Kind: source.ListBegun, Reason: source.ReasonSnapshot})
	s.set([]Wanted{inA}, map[string]Fate{idB: Removed})
	s.set([]Wanted{inA, inB}, nil)
	s.collection(idB, b).says(source.Signal{Kind: source.ListBegun, Reason: source.ReasonSnapshot})
	s.told(idB+":1:0:gap:RUN reset", idB+":1:0:closed:2 removed", idB+":1:0:gap:3 snapshot")
}

// TestResetBeforeItsFirstWord kills a lane that has noted the first gap of a collection of
// which nothing was known, and not told it: the next one says what was to be said.
func TestResetBeforeItsFirstWord(t *testing.T) {
	s := &script{t: t, store: openMem(t), bus: &bus{stuck: true}, started: map[string]*collectionScript{}, done: make(chan error, 1)}
	defer func() { s.finish() }()
	if err := s.store.Commit(t.Context(), []event.KV{{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()}}); err != nil {
		t.Fatal(err)
	}
	s.run()
	s.set([]Wanted{inA}, nil)
	a := s.collection(idA, nil)
	a.says(source.Signal{Kind: source.ListBegun, Reason: source.ReasonSnapshot})
	for deadline := time.Now().Add(endsHang); ; time.Sleep(time.Millisecond) {
		if at, err := s.store.Get(checkpoint.PositionKey(idA)); err != nil || time.Now().After(deadline) {
			t.Fatalf("the position is not noted: %v", err)
		} else if at != nil {
			break
		}
	}
	s.kill()
	<-s.done
	s.bus.stuck = false
	s.run()
	s.set([]Wanted{inA}, nil)
	s.collection(idA, a).lists("", source.ReasonInterrupted, "10", objectAt("a", "x", "u", "5", ""))
	s.told(idA+":1:0:gap:RUN reset", "u:5:present:RUN", idA+":1:10:synced:RUN reset")
}
