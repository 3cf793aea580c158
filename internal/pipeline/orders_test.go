package pipeline

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// endless is a script whose lists beside a watch hand on objects until they are stopped,
// as the list of a large collection does: the lane stops them in the middle. They are
// late to notice it, so that objects still come when the lane is past it.
type endless struct{ *script }

func (endless) survey(ctx context.Context, _ source.Target, h source.Handler) (string, error) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(10*time.Millisecond, cancel) })()
	for i := 0; ; i++ {
		o := objectAt("n", strconv.Itoa(i), "listed", "1000", "")
		if err := h.Handle(late, source.Signal{Kind: source.Listed, Object: o}); err != nil {
			return "", err
		}
	}
}

// inLane waits until what is asked for in the lane's goroutine is true.
func (s *script) inLane(what string, is func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(endsHang); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		done := false
		if err := s.lane.do(s.t.Context(), func(context.Context) error { done = is(); return nil }); err != nil {
			s.t.Fatal(err)
		}
		if done {
			return
		}
	}
	s.t.Fatalf("%s does not come", what)
}

// orders are the permutations of steps.
func orders(steps []string) (all [][]string) {
	if len(steps) == 0 {
		return [][]string{nil}
	}
	for i, first := range steps {
		for _, rest := range orders(slices.Delete(slices.Clone(steps), i, i+1)) {
			all = append(all, append([]string{first}, rest...))
		}
	}
	return all
}

// TestResetBesideOtherLists: a resync, a verification, a relist and resets may come in
// any order, each while those before it are under way. The program goes on, and the
// memory that frames may take is all there afterwards.
func TestResetBesideOtherLists(t *testing.T) {
	for _, order := range orders([]string{"resync", "verification", "relist", "reset"}) {
		order = append(order, "reset") // so that each of them is under way in one
		t.Run(strings.Join(order, ","), func(t *testing.T) {
			s, lose := forgetful(t)
			defer s.finish()
			if err := s.lane.do(t.Context(), func(context.Context) error { s.lane.cluster = endless{s}; return nil }); err != nil {
				t.Fatal(err)
			}
			s.set([]Wanted{inA, inB}, nil)
			a, b := s.collection(idA, nil), s.collection(idB, nil)
			rv := 10
			next := func() string { rv += 10; return strconv.Itoa(rv) }
			lists := func() {
				a.lists("", source.ReasonSnapshot, next(), objectAt("a", "x", "u1", "5", ""))
				b.lists("", source.ReasonSnapshot, next(), objectAt("b", "y", "u2", "6", ""))
			}
			beside := func(c *collectionScript, run string) {
				m := c.h.member
				s.inLane("the first list's end", m.inStep)
				if err := s.lane.do(t.Context(), func(ctx context.Context) error {
					if m.survey != nil {
						return nil
					}
					return s.lane.beginSurvey(ctx, m, run)
				}); err != nil {
					t.Fatal(err)
				}
				s.inLane("its first object", func() bool { return m.survey != nil && m.survey.counts.Listed > 0 })
			}
			lists()
			for _, step := range order {
				switch step {
				case "resync":
					beside(a, newRun())
				case "verification":
					beside(b, "")
				case "relist":
					from := strconv.Itoa(rv)
					a.lists(from, source.ReasonExpired, next(), objectAt("a", "x", "u1", "5", ""))
				case "reset":
					s.inLane("the list's end", a.h.member.inStep)
					lose()
					// If another event was the first one to be refused, nobody reads here any more.
					_ = a.h.Handle(a.ctx, source.Signal{Kind: source.Modified, Object: objectAt("a", "x", "u1", next(), step), Resume: strconv.Itoa(rv)})
					a, b = s.collection(idA, a), s.collection(idB, b)
					lists()
				}
			}
			s.inLane("the budget that is free again", func() bool {
				l := s.lane
				free := len(l.in) == 0 && !l.writing && l.idle() && l.budget.TryAcquire(frameBudget)
				if free {
					l.budget.Release(frameBudget)
				}
				return free
			})
		})
	}
}

// away is a store that fails, or does not answer, while it is told to.
type away struct {
	checkpoint.Store
	commits, reads atomic.Bool
	hangs          atomic.Pointer[chan struct{}] // commits wait for it
}

func (s *away) Commit(ctx context.Context, changes []event.KV) error {
	if back := s.hangs.Load(); back != nil {
		select {
		case <-*back:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.commits.Load() {
		return syscall.EIO
	}
	return s.Store.Commit(ctx, changes)
}

func (s *away) Get(key []byte) ([]byte, error) {
	if s.reads.Load() {
		return nil, syscall.EIO
	}
	return s.Store.Get(key)
}

func (s *away) Scan(prefix []byte, fn func(key, value []byte) error) error {
	if s.reads.Load() {
		return syscall.EIO
	}
	return s.Store.Scan(prefix, fn)
}

// withStore is a bus that takes the checkpoint's changes with the records.
type withStore struct {
	*choosy
	store checkpoint.Store
}

func (withStore) Transactional() {}

func (b withStore) Write(ctx context.Context, batch *event.Batch) ([]byte, error) {
	if err := b.answer(batch); err != nil {
		return nil, err
	}
	if err := b.store.Commit(ctx, batch.Commit.Changes); err != nil {
		return nil, err
	}
	return b.bus.Write(ctx, batch)
}

// TestAliveWhileBusOrStoreIsAway: Kubernetes restarts a process whose liveness probe
// gets no answer. A bus or a store that is away is no reason for it: a restart would
// begin the reset again, and wait in the same place.
func TestAliveWhileBusOrStoreIsAway(t *testing.T) {
	for name, x := range map[string]struct {
		reset            bool
		atomic           bool
		leave, comesBack func(store *away, busAway *atomic.Bool)
	}{
		"commits fail in a reset": {
			reset:     true,
			leave:     func(store *away, _ *atomic.Bool) { store.commits.Store(true) },
			comesBack: func(store *away, _ *atomic.Bool) { store.commits.Store(false) },
		},
		"commits hang in a reset": {
			reset:     true,
			leave:     func(store *away, _ *atomic.Bool) { back := make(chan struct{}); store.hangs.Store(&back) },
			comesBack: func(store *away, _ *atomic.Bool) { close(*store.hangs.Swap(nil)) },
		},
		"reads fail in a reset": {
			reset:     true,
			leave:     func(store *away, _ *atomic.Bool) { store.reads.Store(true) },
			comesBack: func(store *away, _ *atomic.Bool) { store.reads.Store(false) },
		},
		"a transactional bus fails in a reset": {
			reset:     true,
			atomic:    true,
			leave:     func(_ *away, busAway *atomic.Bool) { busAway.Store(true) },
			comesBack: func(_ *away, busAway *atomic.Bool) { busAway.Store(false) },
		},
		"reads fail in a watch": {
			leave:     func(store *away, _ *atomic.Bool) { store.reads.Store(true) },
			comesBack: func(store *away, _ *atomic.Bool) { store.reads.Store(false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lost, busAway atomic.Bool
				store := &away{Store: openMem(t)}
				b := &choosy{}
				b.answer = func(*event.Batch) error {
					switch {
					case busAway.Load():
						return errors.New("broken pipe")
					case lost.CompareAndSwap(true, false):
						x.leave(store, &busAway)
						return sink.ErrReset
					}
					return nil
				}
				s := &script{t: t, store: store, bus: &b.bus, sink: b, started: map[string]*collectionScript{}, done: make(chan error, 1)}
				if x.atomic {
					s.sink = withStore{b, store}
				}
				s.run()
				defer s.finish()
				s.set([]Wanted{inA}, nil)
				a := s.collection(idA, nil)
				a.lists("", source.ReasonSnapshot, "10", objectAt("a", "x", "u1", "5", ""))
				s.told(idA+":1:0:gap snapshot", "u1:5:added", idA+":1:10:synced snapshot")
				s.settle()
				s.forgetTold()
				if lost.Store(x.reset); !x.reset {
					x.leave(store, &busAway)
				}
				a.says(source.Signal{Kind: source.Modified, Object: objectAt("a", "x", "u1", "11", "new"), Resume: "10"})
				synctest.Wait() // until the lane waits, too
				alive, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if !s.lane.Alive(alive) {
					t.Error("the lane does not answer")
				}
				x.comesBack(store, &busAway)
				if !x.reset {
					s.told("u1:11:modified")
					return
				}
				s.collection(idA, a).lists("", source.ReasonSnapshot, "12", objectAt("a", "x", "u1", "11", "new"))
				s.told(idA+":1:0:gap:RUN reset", "u1:11:present:RUN", idA+":1:12:synced:RUN reset")
			})
		})
	}
}

// TestSuspendedGivesItsMemoryBack: what is enqueued of a collection whose route is
// refused is dropped, and with it what its frames took of the budget of all collections.
// Else refusals would use it up, one after another.
func TestSuspendedGivesItsMemoryBack(t *testing.T) {
	w := &waiting{begun: make(chan struct{}), release: make(chan struct{}), free: make(chan struct{})}
	w.answer = func(*event.Batch) error {
		return &sink.RouteError{Route: "configmaps", Err: errors.New("the test says so")}
	}
	s := &script{t: t, store: openMem(t), bus: &w.bus, started: map[string]*collectionScript{}, done: make(chan error, 1)}
	s.sink = w
	s.policy = Truncate // for a lane with a topic
	s.run()
	defer s.finish()
	s.set(wantConfigMaps, nil)
	c := s.collection("configmaps", nil)
	c.says(source.Signal{Kind: source.ListBegun, Reason: source.ReasonSnapshot})
	<-w.begun // the gap; what follows is another batch
	c.says(source.Signal{Kind: source.Listed, Object: objectAt("n", "a", "u", "5", "")})
	s.handled()
	close(w.free)
	w.release <- struct{}{}
	s.inLane("the suspension", func() bool { return !c.h.member.resumes.IsZero() })
	s.inLane("the lane at rest", func() bool { return !s.lane.writing && s.lane.idle() })
	if err := s.lane.do(t.Context(), func(context.Context) error {
		if !s.lane.budget.TryAcquire(frameBudget) {
			t.Error("frames that were dropped still count")
			return nil
		}
		s.lane.budget.Release(frameBudget)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
