package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// Two pieces that shared a byte would be two events in one.
func TestSlabGivesNothingOutTwice(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var s slab[byte]
	for round := range 40 {
		s.reset(1 << 10)
		for _, c := range s.chunks {
			if cap(c) > 1<<10 || len(c) > 0 {
				t.Fatalf("round %d begins with a chunk of %d, %d of it in use", round, cap(c), len(c))
			}
		}
		var pieces [][]byte
		for i := range 400 {
			n := random.IntN(60)
			if random.IntN(50) == 0 {
				n = 3 << 10 // larger than chunks are kept
			}
			var piece []byte
			if i%2 == 0 {
				piece = s.take(n)
			} else { // more room than is kept of it, and what is not is another's
				room := s.room(n+random.IntN(20), 32, 1<<10)
				piece = room[:n:n]
				s.keep(n)
			}
			if len(piece) != n || cap(piece) != n {
				t.Fatalf("a piece of %d has %d, and room for %d", n, len(piece), cap(piece))
			}
			for j := range piece {
				piece[j] = byte(i)
			}
			pieces = append(pieces, piece)
		}
		for i, piece := range pieces {
			if n := bytes.Count(piece, []byte{byte(i)}); n != len(piece) {
				t.Fatalf("round %d: piece %d of %d bytes has %d of its own", round, i, len(piece), n)
			}
		}
	}
	room := s.room(10, 32, 1<<10)
	if again := s.room(10, 32, 1<<10); &room[:1][0] != &again[:1][0] {
		t.Error("room that was not kept is lost")
	}
}

// A value that outgrew its room is elsewhere: none of the room is taken for it.
func TestAValueOutgrowsItsRoom(t *testing.T) {
	b := newBatch(1)
	room := b.room(8)
	large := b.keep(room, append(room, strings.Repeat("x", 2*cap(room))...))
	room = b.room(8)
	small := b.keep(room, append(room, "small"...))
	_ = append(small, "behind"...)
	room = b.room(8)
	next := b.keep(room, append(room, "next"...))
	if string(small) != "small" || string(next) != "next" || strings.Trim(string(large), "x") != "" {
		t.Errorf("they are %q, %q and %d bytes of %.5q", small, next, len(large), large)
	}
}

// watchful is a bus that looks whether what it was given changes while it has it, and, where
// it failed, afterwards.
type watchful struct {
	*bus
	entered chan *event.Batch // a Write begins
	leave   chan error        // and how it ends

	mu     sync.Mutex
	wrong  []string
	failed []given
}

type given struct {
	batch   event.Batch // in the lane's memory
	records []event.Record
	changes []event.KV
}

func look(b *event.Batch) given {
	g := given{batch: *b}
	for i := range b.Records {
		if b.Records[i].Event == nil { // no longer a record
			g.records = append(g.records, b.Records[i])
			continue
		}
		g.records = append(g.records, kept(&b.Records[i]))
	}
	for _, kv := range b.Commit.Changes {
		g.changes = append(g.changes, event.KV{Key: bytes.Clone(kv.Key), Value: bytes.Clone(kv.Value)})
	}
	return g
}

func (h *watchful) compare(g given) {
	now := look(&g.batch)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range g.records {
		if !reflect.DeepEqual(g.records[i], now.records[i]) {
			h.wrong = append(h.wrong, fmt.Sprintf("record %d was %+v and is %+v", i, g.records[i], now.records[i]))
		}
	}
	if !reflect.DeepEqual(g.changes, now.changes) {
		h.wrong = append(h.wrong, fmt.Sprintf("the commit was %s and is %s", g.changes, now.changes))
	}
}

func (h *watchful) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	g := look(b)
	h.entered <- b
	if err := <-h.leave; err != nil {
		h.mu.Lock()
		h.failed = append(h.failed, g)
		h.mu.Unlock()
		return nil, err
	}
	h.compare(g)
	return h.bus.Write(ctx, b)
}

// While a batch is written another one fills, and a third is made in the first one's
// memory: none may be in another's. What a sink has failed with is never used again,
// since it may still be held.
func TestBatchesInFlightShareNothing(t *testing.T) {
	s := &script{t: t, store: openMem(t), bus: &bus{}, started: map[string]*collectionScript{}, done: make(chan error, 1)}
	h := &watchful{bus: s.bus, entered: make(chan *event.Batch), leave: make(chan error)}
	s.sink = h
	s.run()
	s.set([]Wanted{configMapsOf(event.Collection{})}, nil)
	c := s.collection("configmaps", nil)
	data := func(n int) string { return strings.Repeat(fmt.Sprintf("%d-", n), 1+n*37%900) }
	c.lists("", source.ReasonSnapshot, "10")
	objects, memory := 0, map[*event.Record]int{}
	for round, size := range []int{1, 40, 200, 3, 1, 90, 350, 2, 60, 1, 130, 5} {
		b := <-h.entered
		if len(b.Records) > 0 {
			memory[&b.Records[:1][0]]++
		}
		for range size {
			objects++
			c.says(source.Signal{Kind: source.Added, Object: objectAt("n", fmt.Sprint("o", objects), fmt.Sprint("u", objects), fmt.Sprint(100+objects), data(objects)), Resume: fmt.Sprint(99 + objects)})
		}
		s.handled()
		if round%5 == 4 {
			h.leave <- errNoAck
			<-h.entered
		}
		h.leave <- nil
	}
	go func() {
		for range h.entered {
			h.leave <- nil
		}
	}()
	s.settle()
	s.finish()
	close(h.entered)
	for _, g := range h.failed {
		h.compare(g)
	}
	if len(h.failed) == 0 || len(h.wrong) > 0 {
		t.Fatalf("%d writes failed, %d things changed under the bus: %.2000s", len(h.failed), len(h.wrong), strings.Join(h.wrong, "\n"))
	}
	again := 0
	for _, n := range memory {
		again += n - 1
	}
	if again == 0 {
		t.Error("no batch was made in the memory of another: this test shows nothing")
	}
	told := map[string]bool{}
	for _, r := range s.bus.records {
		if r.Event.Type != event.Added {
			continue
		}
		n := 0
		if _, err := fmt.Sscanf(r.Event.Name, "o%d", &n); err != nil {
			t.Fatal(err)
		}
		told[r.Event.Name] = true
		if want := fmt.Appendf(nil, `"data":{"x":%q}`, data(n)); !bytes.Contains(r.Value, want) || !bytes.Contains(r.Value, fmt.Appendf(nil, `"uid":"u%d"`, n)) {
			t.Errorf("the event of %s is %s", r.Event.Name, r.Value)
		}
	}
	if len(told) != objects {
		t.Errorf("%d objects are told, want %d", len(told), objects)
	}
}
