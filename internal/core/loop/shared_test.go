package loop_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
)

// feed reads a cluster once and passes the frames to several loops. Each loop starts at a frame and reads at its own
// pace.
type feed struct {
	*cluster
	begin sync.Once
	lists int // number of lists of the cluster

	mu     sync.Mutex
	frames []reconcile.Input // a list, then a watch
	more   chan struct{}     // closed when there are more frames
}

// Read implements [loop.Reader]. A loop does not need to know whether others read the same frames.
func (f *feed) Read(ctx context.Context, _ string, want reconcile.Read, h *loop.Handler) error {
	f.begin.Do(f.list)
	for n := f.after(want.From); ; {
		f.mu.Lock()
		fresh, more := f.frames[n:], f.more
		f.mu.Unlock()
		for i := range fresh {
			if err := f.pass(ctx, fresh[i], h); err != nil {
				return err
			}
		}
		n += len(fresh)
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Side implements [loop.Reader].
func (f *feed) Side(ctx context.Context, id string, want reconcile.Read, h *loop.Handler) error {
	return f.cluster.Side(ctx, id, want, h)
}

// pass passes a frame to a loop. An input belongs to one loop, so it is copied.
func (f *feed) pass(ctx context.Context, in reconcile.Input, h *loop.Handler) error {
	if in.Sighting != nil {
		s := *in.Sighting
		in.Sighting = &s
	}
	if in.Kind == reconcile.ListDone {
		if err := lacking(ctx, h); err != nil {
			return err
		}
	}
	return h.Input(ctx, &in, 100, nil)
}

// lacking passes on the objects of a loop that the list lacks.
func lacking(ctx context.Context, h *loop.Handler) error {
	for {
		missing, err := h.Missing(ctx, 100)
		if err != nil || len(missing) == 0 {
			return err
		}
		for _, a := range missing {
			s := &reconcile.Sighting{Form: reconcile.Lacking, Origin: reconcile.List, Key: a.Key}
			if err := h.Input(ctx, &reconcile.Input{Kind: reconcile.ListLacks, Key: a.Key, Sighting: s}, 0, nil); err != nil {
				return err
			}
		}
	}
}

// after returns the number of the first frame behind a position; "": the list.
func (f *feed) after(position string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if position == "" {
		return 0
	}
	n := slices.IndexFunc(f.frames, func(in reconcile.Input) bool { return in.Resume == position })
	return max(n, 0)
}

// list lists the cluster.
func (f *feed) list() {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	f.frames = []reconcile.Input{{Kind: reconcile.ListBegun, Reason: "snapshot"}}
	for name, s := range f.objects {
		f.frames = append(f.frames, reconcile.Input{Kind: reconcile.Sighted, Sighting: sighting(name, s, reconcile.List)})
	}
	version := strconv.Itoa(len(f.history))
	f.frames = append(f.frames, reconcile.Input{Kind: reconcile.ListEnded, Version: version}, reconcile.Input{Kind: reconcile.ListDone})
	f.more = make(chan struct{})
}

// wrote appends a frame for the last write.
func (f *feed) wrote() {
	f.cluster.mu.Lock()
	last := len(f.history)
	w := f.history[last-1]
	f.cluster.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frames = append(f.frames, reconcile.Input{
		Kind: reconcile.Sighted, Sighting: sighting(w.name, state{w.uid, last}, reconcile.Watch), Resume: strconv.Itoa(last - 1),
	})
	close(f.more)
	f.more = make(chan struct{})
}

// TestOneFeedForTwoLoops: several sinks can share one read without a change of the core. A blocked sink does not delay
// the other one.
func TestOneFeedForTwoLoops(t *testing.T) {
	c := newCluster()
	for i := range 20 {
		c.write("name-"+strconv.Itoa(i), false)
	}
	f := &feed{cluster: c}
	slow, fast := &bus{}, &bus{}
	slow.mu.Lock() // its writes block
	one := start(t, f, slow, memory(t), "pods")
	two := start(t, f, fast, memory(t), "pods")
	defer one.kill()
	defer two.kill()
	wait(t, c, fast, "pods")
	for i := range 10 {
		c.write("name-"+strconv.Itoa(i), false)
		f.wrote()
	}
	wait(t, c, fast, "pods")
	slow.mu.Unlock()
	wait(t, c, slow, "pods")
	if f.lists != 1 {
		t.Errorf("the cluster was listed %d times", f.lists)
	}
	for _, p := range []*program{one, two} {
		p.stop()
		if err := <-p.done; err != nil {
			t.Error(err)
		}
	}
}
