package listwatch

import (
	"testing"
	"testing/synctest"
	"time"
)

// A bound grows while pages are fast, and ends when it is not needed.
func TestPageBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Bounds[string]
		const target, other = "one", "another"
		steps := []struct {
			do   func()
			want int // limit of a page that should have MaxPage objects
		}{
			{func() {}, MaxPage},
			{func() { b.Failed(target, 1, time.Minute) }, MaxPage},
			{func() { b.Failed(target, 400, time.Minute) }, 100},
			{func() { b.Failed(target, 800, time.Minute) }, 100}, // a former page
			{func() { b.Arrived(target, 99, 100, true, time.Second) }, 100},
			{func() { b.Arrived(target, 50, 50, true, time.Second) }, 100},
			{func() { b.Arrived(target, 100, 100, true, 30*time.Second) }, 100},
			{func() { b.Arrived(target, 100, 100, true, 29*time.Second) }, 200},
			{func() { b.Arrived(target, 150, 150, false, time.Second) }, MaxPage},
			{func() { b.Failed(target, 3, 0) }, 1},
			{func() { b.Arrived(target, 1, 1, true, CutAfter/2-1) }, 2},
			{func() { b.Failed(target, MaxPage, time.Minute); b.Failed(target, 2, time.Minute) }, 1},
		}
		for n := 2; n < MaxPage; n *= 2 {
			steps = append(steps, struct {
				do   func()
				want int
			}{func() { b.Arrived(target, n/2, n/2, true, 0) }, n})
		}
		for i, s := range steps {
			s.do()
			if got := b.Limit(target, MaxPage); got != s.want {
				t.Errorf("step %d: limit %d, want %d", i, got, s.want)
			}
		}
		b.Arrived(target, 512, 512, true, 0)
		if len(b.of) != 0 {
			t.Errorf("a bound of more than %d objects is left", MaxPage)
		}
		b.Failed(target, 100, time.Minute)
		time.Sleep(BoundFor + 1)
		b.Failed(other, 100, time.Minute)
		if len(b.of) != 1 {
			t.Errorf("%d bounds, want one", len(b.of))
		}
	})
}
