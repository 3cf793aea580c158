package loop_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// mapStore is a store without goroutines of its own. A test in a synctest bubble then waits only for the loop.
type mapStore struct {
	mu     sync.Mutex
	values map[string][]byte
}

// Get implements [checkpoint.Store].
func (s *mapStore) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.values[string(key)]), nil
}

// Scan implements [checkpoint.Store].
func (s *mapStore) Scan(prefix []byte, fn func(key, value []byte) error) error {
	s.mu.Lock()
	var changes []event.KV
	for key, value := range s.values {
		if bytes.HasPrefix([]byte(key), prefix) {
			changes = append(changes, event.KV{Key: []byte(key), Value: value})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(changes, func(a, b event.KV) int { return bytes.Compare(a.Key, b.Key) })
	for _, kv := range changes {
		if err := fn(kv.Key, kv.Value); err != nil {
			return err
		}
	}
	return nil
}

// Commit implements [checkpoint.Store].
func (s *mapStore) Commit(_ context.Context, changes []event.KV) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kv := range changes {
		if kv.Value == nil {
			delete(s.values, string(kv.Key))
		} else {
			s.values[string(kv.Key)] = bytes.Clone(kv.Value)
		}
	}
	return nil
}

// gated is a bus that accepts nothing until its gate is closed. It records the size of each batch.
type gated struct {
	*bus
	gate    chan struct{}
	records []int
	bytes   []int
}

func (g *gated) Write(ctx context.Context, batch *event.Batch) ([]byte, error) {
	size := 0
	for _, r := range batch.Records {
		size += len(r.Value)
	}
	g.records, g.bytes = append(g.records, len(batch.Records)), append(g.bytes, size)
	select {
	case <-g.gate:
		return g.bus.Write(ctx, batch)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// feeder is a reader that lists objects of one size. The API server answers it twice a second, unless it is away.
type feeder struct {
	objects, size int
	pause         time.Duration // between the gap, which is committed meanwhile, and the first object
	mu            sync.Mutex
	taken         int // number of objects that the loop has accepted
	away          bool
	read          []time.Time
}

// Read implements [loop.Reader].
func (f *feeder) Read(ctx context.Context, _ string, want reconcile.Read, h *loop.Handler) error {
	if want.From == "" {
		if err := h.Input(ctx, &reconcile.Input{Kind: reconcile.ListBegun, Reason: "snapshot"}, 0, nil); err != nil {
			return err
		}
		time.Sleep(f.pause)
		for i := range f.objects {
			s := sighting(fmt.Sprintf("name-%06d", i), state{i + 1, i + 1}, reconcile.List)
			f.mu.Lock()
			f.read = append(f.read, time.Now())
			f.mu.Unlock()
			if err := h.Input(ctx, &reconcile.Input{Kind: reconcile.Sighted, Sighting: s}, f.size, nil); err != nil {
				return err
			}
			f.mu.Lock()
			f.taken++
			f.mu.Unlock()
		}
		for _, in := range []*reconcile.Input{{Kind: reconcile.ListEnded, Version: fmt.Sprint(f.objects)}, {Kind: reconcile.ListDone}} {
			if err := h.Input(ctx, in, 0, nil); err != nil {
				return err
			}
		}
	}
	for {
		f.mu.Lock()
		away := f.away
		f.mu.Unlock()
		if !away {
			if err := h.InStep(ctx, time.Now()); err != nil {
				return err
			}
		}
		select {
		case <-time.After(time.Second / 2):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave makes the API server answer no more, or again.
func (f *feeder) leave(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

// Side implements [loop.Reader].
func (*feeder) Side(ctx context.Context, _ string, _ reconcile.Read, _ *loop.Handler) error {
	return ctx.Err()
}

func (f *feeder) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken
}

// padding is an encoder whose records all have one size.
type padding struct {
	encoder
	size int
}

func (p *padding) Encode(i *reconcile.Item, detail string, at time.Time) (event.Record, []event.KV) {
	r, changes := p.encoder.Encode(i, detail, at)
	if missing := p.size - len(r.Value); i.Event == nil && missing > 0 {
		r.Value = append(r.Value, bytes.Repeat([]byte(" "), missing)...)
	}
	return r, changes
}

// runs starts a loop with the collection pods.
func runs(t *testing.T, b sink.Sink, store checkpoint.Store, r loop.Reader, e loop.Encoder) *program {
	t.Helper()
	p := &program{done: make(chan error, 1), seen: &observer{objects: map[string]int64{}}}
	p.loop = loop.New(loop.Options{
		Delivery: delivery.New(delivery.Options{Sink: b, Store: store}), Store: store, Reader: r, Encoder: e, Observer: p.seen, Log: zap.NewNop(),
	})
	p.seen.loop = p.loop
	var ctx context.Context
	ctx, p.kill = context.WithCancel(t.Context())
	go func() { p.done <- p.loop.Run(ctx, ctx) }()
	p.set(t, nil, "pods")
	return p
}

// docs/scaling.md: while the bus is down, the events that wait for it take at most 32 MiB, and each collection holds
// one more object.
func TestWhatWaitsIsBounded(t *testing.T) {
	for name, x := range map[string]struct{ size, want int }{
		"objects of 1 MiB":                              {1 << 20, 32},
		"objects of 100 KiB":                            {100 << 10, 32 << 10 / 100},
		"objects of 16 MiB, each of which counts 8 MiB": {16 << 20, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, f := &gated{bus: &bus{}, gate: make(chan struct{})}, &feeder{objects: 500, size: x.size}
				p := runs(t, b, &mapStore{values: map[string][]byte{}}, f, &encoder{rejected: map[string]bool{}})
				time.Sleep(time.Hour)
				if got := f.count(); got != x.want {
					t.Errorf("%d objects wait for the bus, want %d", got, x.want)
				}
				close(b.gate)
				time.Sleep(time.Hour)
				if names, synced := b.copied("pods"); len(names) != f.objects || !synced {
					t.Errorf("when the bus is back it gets %d of %d objects, synced %t", len(names), f.objects, synced)
				}
				p.kill()
				<-p.done
			})
		})
	}
}

// slow is an encoder that takes a second for each object, and records the times of the events.
type slow struct {
	encoder
	times []time.Time
}

func (s *slow) Encode(i *reconcile.Item, detail string, at time.Time) (event.Record, []event.KV) {
	if i.Object != nil {
		time.Sleep(time.Second)
		s.times = append(s.times, at)
	}
	return s.encoder.Encode(i, detail, at)
}

// docs/events.md: the time of an event is when the bridge saw the change. It is never earlier than the change, however
// long the loop was busy with earlier inputs.
func TestTimeIsNotBeforeTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f, e := &gated{bus: &bus{}, gate: make(chan struct{})}, &feeder{objects: 300}, &slow{encoder: encoder{rejected: map[string]bool{}}}
		close(b.gate)
		p := runs(t, b, &mapStore{values: map[string][]byte{}}, f, e)
		time.Sleep(time.Hour)
		p.kill()
		<-p.done
		if len(e.times) != f.objects {
			t.Fatalf("%d events, want %d", len(e.times), f.objects)
		}
		for i, at := range e.times {
			if at.Before(f.read[i]) {
				t.Fatalf("event %d has a time that is %s before its object was read", i, f.read[i].Sub(at))
			}
		}
	})
}

// docs/faults.md: nothing is added to a batch that has 2,000 events or 4 MiB.
func TestBatchesAreBounded(t *testing.T) {
	for name, x := range map[string]struct{ objects, size int }{"by their number": {9000, 0}, "by their bytes": {200, 100_000}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, f := &gated{bus: &bus{}, gate: make(chan struct{})}, &feeder{objects: x.objects, size: 1}
				p := runs(t, b, &mapStore{values: map[string][]byte{}}, f, &padding{encoder{rejected: map[string]bool{}}, x.size})
				time.Sleep(time.Hour)
				close(b.gate)
				time.Sleep(time.Hour)
				if names, _ := b.copied("pods"); len(names) != f.objects {
					t.Errorf("the bus has %d of %d objects", len(names), f.objects)
				}
				p.kill()
				<-p.done
				if n := slices.Max(b.records); n > loop.BatchRecords || x.size == 0 && n < loop.BatchRecords {
					t.Errorf("the largest batch has %d events", n)
				}
				if n := slices.Max(b.bytes); n >= loop.BatchBytes+max(x.size, 1000) || x.size > 0 && n < loop.BatchBytes {
					t.Errorf("the largest batch has %d bytes", n)
				}
			})
		})
	}
}

// transactional is a bus that writes records and commits in one transaction. The gate is before every write but the first.
type transactional struct{ *gated }

// Commit implements [sink.Transactional].
func (transactional) Commit(context.Context, uint64, []event.KV) error { return nil }

func (b transactional) Write(ctx context.Context, batch *event.Batch) ([]byte, error) {
	if len(b.ids) == 0 {
		return b.bus.Write(ctx, batch)
	}
	return b.gated.Write(ctx, batch)
}

// A rejected record takes the events of its collection out of the next batch, too. If they had made it full, the loop must not wait for the delivery of a
// batch that is now empty.
func TestNextBatchIsFullWhenARecordIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &gated{bus: &bus{}, gate: make(chan struct{})}
		b.reject = durable.ObjectKey("shop", "name-000000")
		p := runs(t, transactional{b}, &mapStore{values: map[string][]byte{}}, &feeder{objects: 200, size: 1, pause: 5 * time.Second}, &padding{encoder{rejected: map[string]bool{}}, 100_000})
		time.Sleep(time.Hour) // the next batch is full
		close(b.gate)
		time.Sleep(time.Hour)
		if names, synced := b.copied("pods"); len(names) < 199 || !synced {
			t.Errorf("the bus has %d of 200 objects; synced: %t", len(names), synced)
		}
		p.kill()
		<-p.done
	})
}

// Periodic synced events that are due while the bus is down wait until it takes a batch.
func TestPeriodicSyncedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &gated{bus: &bus{}, gate: make(chan struct{})}
		p := runs(t, transactional{b}, &mapStore{values: map[string][]byte{}}, &feeder{}, &encoder{rejected: map[string]bool{}})
		p.syncedEvery = time.Second
		p.set(t, nil, "pods")
		time.Sleep(5 * time.Hour)
		close(b.gate)
		time.Sleep(time.Minute)
		p.kill()
		<-p.done
		if n := slices.Max(b.records); n > loop.BatchRecords || n < loop.BatchRecords/2 {
			t.Errorf("the largest batch has %d events, want at most %d", n, loop.BatchRecords)
		}
	})
}

// A periodic synced event says that the collection is complete up to its time: while the API server does not answer, nobody knows that.
func TestNoPeriodicSyncedOutOfStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := openGate(), &feeder{objects: 3}
		p := runs(t, b, &mapStore{values: map[string][]byte{}}, f, &encoder{rejected: map[string]bool{}})
		p.syncedEvery = time.Second
		p.set(t, nil, "pods")
		syncedIn := func(d time.Duration) int {
			before := b.count("synced")
			time.Sleep(d)
			return b.count("synced") - before
		}
		if n := syncedIn(time.Minute); n < 55 {
			t.Errorf("%d synced events in a minute, want about 60", n)
		}
		f.leave(true)
		time.Sleep(10 * time.Second) // what follows from the last answer is published
		if n := syncedIn(time.Hour); n > 0 {
			t.Errorf("%d synced events in an hour without an answer of the API server", n)
		}
		f.leave(false)
		if n := syncedIn(time.Minute); n < 55 {
			t.Errorf("%d synced events in the minute after the API server is back, want about 60", n)
		}
		p.syncedEvery = time.Hour
		p.set(t, nil, "pods")
		time.Sleep(3 * time.Hour)
		time.Sleep(10 * time.Minute) // the API server answers since the last synced event
		f.leave(true)
		if n := syncedIn(3 * time.Hour); n > 0 {
			t.Errorf("%d synced events long after the last answer of the API server", n)
		}
		p.kill()
		<-p.done
	})
}

// torn is a store that rejects commits after the bus has a batch.
type torn struct {
	checkpoint.Store
	bus     *bus
	reached chan struct{} // receives one value when the bus has a batch
}

// Commit implements [checkpoint.Store].
func (s *torn) Commit(ctx context.Context, changes []event.KV) error {
	s.bus.mu.Lock()
	written := len(s.bus.ids) > 0
	s.bus.mu.Unlock()
	if !written {
		return s.Store.Commit(ctx, changes)
	}
	s.reached <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// docs/faults.md: without exactly-once delivery, at most two batches are written again after the bridge was
// killed. Their events have the same ids.
func TestRepeatedAfterAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{values: map[string][]byte{}}
		b, f := &gated{bus: &bus{}, gate: make(chan struct{})}, &feeder{objects: 5000, size: 1}
		close(b.gate)
		half := &torn{Store: store, bus: b.bus, reached: make(chan struct{})}
		p := runs(t, b, half, f, &encoder{rejected: map[string]bool{}})
		<-half.reached
		time.Sleep(time.Hour) // the next batch is filled in the meantime
		p.kill()
		<-p.done
		first := slices.Clone(b.ids)

		p = runs(t, b, store, f, &encoder{rejected: map[string]bool{}})
		time.Sleep(time.Hour)
		if names, synced := b.copied("pods"); len(names) != f.objects || !synced {
			t.Errorf("after the start the bus has %d of %d objects, synced %t", len(names), f.objects, synced)
		}
		p.kill()
		<-p.done
		times := map[string]int{}
		for _, id := range b.ids {
			times[id]++
		}
		repeated := 0
		for id, n := range times {
			if n == 1 {
				continue
			}
			if repeated++; n > 2 || !slices.Contains(first, id) {
				t.Errorf("%s comes %d times", id, n)
			}
		}
		if repeated == 0 || repeated > 2*loop.BatchRecords {
			t.Errorf("%d events come again", repeated)
		}
	})
}

// losing is a store that loses its content each time a reset is written to it, a number of times.
type losing struct {
	*mapStore
	left int
	at   []time.Time
}

// Commit implements [checkpoint.Store].
func (s *losing) Commit(ctx context.Context, changes []event.KV) error {
	if slices.ContainsFunc(changes, func(kv event.KV) bool { return bytes.Equal(kv.Key, checkpoint.ResetKey()) }) {
		s.at = append(s.at, time.Now())
		if s.left--; s.left >= 0 {
			return fmt.Errorf("%w: the bucket was deleted", sink.ErrReset)
		}
	}
	return s.mapStore.Commit(ctx, changes)
}

// A reset that the bus loses again and again is repeated after longer and longer pauses, and the loop says that it is alive meanwhile.
func TestResetThatIsLostIsRepeatedWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, store := openGate(), &losing{mapStore: &mapStore{values: map[string][]byte{}}, left: 4}
		b.loses = 1
		p := runs(t, b, store, &feeder{objects: 3}, &encoder{rejected: map[string]bool{}})
		time.Sleep(10 * time.Second)
		alive, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if !p.loop.Alive(alive) {
			t.Error("the loop does not answer during a pause")
		}
		time.Sleep(time.Hour)
		var pauses []time.Duration
		for i := range store.at[1:] {
			pauses = append(pauses, store.at[i+1].Sub(store.at[i]))
		}
		if want := []time.Duration{time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second}; !slices.Equal(pauses, want) {
			t.Errorf("the reset was repeated after %v, want %v", pauses, want)
		}
		if names, synced := b.copied("pods"); len(names) != 3 || !synced {
			t.Errorf("a consumer's copy is %v, synced %t", names, synced)
		}
		p.kill()
		<-p.done
	})
}
