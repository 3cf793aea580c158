package bridge

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	planning "github.com/kubebridge/kubebridge/internal/core/plan"
)

// slowFollower records what it was set to last. Its first call of Set runs during before it sets anything.
type slowFollower struct {
	during func()
	set    string
}

func (f *slowFollower) Set(entries []planning.Entry, _ []string) {
	if during := f.during; during != nil {
		f.during = nil
		during()
	}
	f.set = entries[0].Resource
}

// A configuration that is reloaded while a sink begins to follow its resources is not replaced by the one before.
func TestReconfigureWhileAFollowerBegins(t *testing.T) {
	reloaded := make(chan struct{})
	resources := func(resource string) []SinkResources {
		return []SinkResources{{Sink: "s", Entries: []planning.Entry{{Resource: resource}}}}
	}
	b := New(Options{})
	b.Reconfigure(resources("pods"))
	f := &slowFollower{during: func() {
		go func() {
			defer close(reloaded)
			b.Reconfigure(resources("secrets"))
		}()
		select {
		case <-reloaded:
		case <-time.After(100 * time.Millisecond): // it waits for this call
		}
	}}
	ended := b.follow("s", f)
	<-reloaded
	if f.set != "secrets" {
		t.Errorf("the sink follows %q, want secrets", f.set)
	}
	ended()
	b.Reconfigure(resources("nodes"))
	if f.set != "secrets" {
		t.Errorf("a follower that has ended was set to %q", f.set)
	}
}

// However many plans have collections that are not served, only one more plan is requested at a time: otherwise each change of the cluster would add
// one that repeats without end.
func TestOnePlanIsRequestedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requested atomic.Int64
		p := &Pipeline{again: func() { requested.Add(1) }}
		for range 5 {
			p.replanLater(true)
			time.Sleep(replanAfter / 10)
		}
		time.Sleep(2 * replanAfter)
		if n := requested.Load(); n != 1 {
			t.Errorf("%d plans were requested, want 1", n)
		}
		p.replanLater(true)
		p.replanLater(false)
		time.Sleep(2 * replanAfter)
		if requested.Load() != 1 {
			t.Error("a plan was requested although everything is served")
		}
	})
}
