package kube

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// Frame is a change as a watch shows it. A deletion has the resourceVersion of the deletion.
type Frame struct {
	UID, RV string
	Deleted bool
}

// Hole is a part of the history that a recorder has not seen: the changes after From, up to To. State is what existed at To: the
// resourceVersion of each object, by UID.
type Hole struct {
	From, To string
	State    map[string]string
}

// Recording is what a recorder has seen of one type in one namespace, in order. Its first hole is what was before the recorder.
type Recording struct {
	Frames []Frame
	Holes  []Hole
}

// Recorder watches one type in one namespace, and records each frame. After a 410 it lists, and records a hole.
type Recorder struct {
	client *Client
	of     Type

	mu   sync.Mutex
	rec  Recording
	seen string // every change up to here is in rec, or in a hole
	last error
	more chan struct{} // closed and replaced when seen changes
}

// NewRecorder returns a recorder of a type in the client's namespace. It records while Run runs.
func NewRecorder(c *Client, t Type) *Recorder {
	return &Recorder{client: c, of: t, more: make(chan struct{})}
}

// Run records until ctx ends. While the API server is away it tries again.
func (r *Recorder) Run(ctx context.Context) {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		err := r.follow(ctx)
		r.mu.Lock()
		r.last = err
		r.mu.Unlock()
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// follow lists if it must, and then watches until the watch ends.
func (r *Recorder) follow(ctx context.Context) error {
	from := r.position()
	if from == "" {
		var err error
		if from, err = r.list(ctx); err != nil {
			return err
		}
	}
	w, err := r.client.of(r.of).Watch(ctx, metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true})
	if isGone(err) {
		_, err = r.list(ctx)
	}
	if err != nil || w == nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			err := apierrors.FromObject(e.Object)
			if isGone(err) {
				_, err = r.list(ctx)
			}
			return err
		}
		if o, ok := e.Object.(*unstructured.Unstructured); ok {
			r.add(e.Type, o)
		}
	}
	return nil
}

func isGone(err error) bool { return apierrors.IsGone(err) || apierrors.IsResourceExpired(err) }

func (r *Recorder) position() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// list records that everything between the last frame and the list was not seen.
func (r *Recorder) list(ctx context.Context) (string, error) {
	items, rv, err := r.client.List(ctx, r.of, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	state := map[string]string{}
	for i := range items {
		state[string(items[i].GetUID())] = items[i].GetResourceVersion()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec.Holes = append(r.rec.Holes, Hole{r.seen, rv, state})
	r.reach(rv)
	return rv, nil
}

func (r *Recorder) add(t watch.EventType, o *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t != watch.Bookmark {
		r.rec.Frames = append(r.rec.Frames, Frame{string(o.GetUID()), o.GetResourceVersion(), t == watch.Deleted})
	}
	r.reach(o.GetResourceVersion())
}

// reach records that everything up to rv was seen, or is in a hole. r.mu is held.
func (r *Recorder) reach(rv string) {
	r.seen = rv
	close(r.more)
	r.more = make(chan struct{})
}

// Await waits until the recorder has reached a resourceVersion of its type.
func (r *Recorder) Await(ctx context.Context, rv string) error {
	for {
		r.mu.Lock()
		seen, last, more := r.seen, r.last, r.more
		r.mu.Unlock()
		if CompareRV(seen, rv) >= 0 {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("%w: waiting for the recorder of %s to reach %s; it is at %q (last: %v)", context.Cause(ctx), r.of.ResourceID(), rv, seen, last)
		}
	}
}

// Count returns the number of frames so far.
func (r *Recorder) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.rec.Frames)
}

// Recording returns what was recorded so far.
func (r *Recorder) Recording() Recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Recording{r.rec.Frames[:len(r.rec.Frames):len(r.rec.Frames)], r.rec.Holes[:len(r.rec.Holes):len(r.rec.Holes)]}
}

// Sees reports whether the recording has every change at a resourceVersion: it is not in a hole.
func (r Recording) Sees(rv string) bool {
	for _, h := range r.Holes {
		if CompareRV(h.From, rv) < 0 && CompareRV(rv, h.To) <= 0 {
			return false
		}
	}
	return true
}

// State returns what existed at a resourceVersion: the resourceVersion of each object, by UID. It returns false if that is in a hole, but
// at its end.
func (r Recording) State(rv string) (map[string]string, bool) {
	state, from := map[string]string{}, ""
	for _, h := range r.Holes {
		switch {
		case CompareRV(h.To, rv) <= 0:
			state, from = maps.Clone(h.State), h.To
		case CompareRV(h.From, rv) < 0:
			return nil, false
		}
	}
	for _, f := range r.Frames {
		switch {
		case CompareRV(f.RV, from) <= 0, CompareRV(f.RV, rv) > 0:
		case f.Deleted:
			delete(state, f.UID)
		default:
			state[f.UID] = f.RV
		}
	}
	return state, true
}
