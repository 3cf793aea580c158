package manager_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/shape/manager"
	"github.com/kubebridge/kubebridge/test/hostiletest"
)

// givenUp is an object that identifies each element of a list by another set of keys, so that the list is read for each of them.
const givenUp = "env with many sets of keys"

// TestCostOfHostileObjects: the steps are proportional to the size of the two states, or the comparison is aborted. So one
// object cannot delay all others.
func TestCostOfHostileObjects(t *testing.T) {
	for i, small := range hostiletest.Changes(25_000) {
		if small.Name == givenUp {
			continue // see TestGivenUp
		}
		var f manager.Finder
		if _, err := f.By(small.Before, small.After); err != nil {
			t.Errorf("%s: %v", small.Name, err)
		}
		half, c := f.Steps(), hostiletest.Changes(50_000)[i]
		if _, err := f.By(c.Before, c.After); err != nil || f.Steps() > 3*half+1000 {
			t.Errorf("%s: %d steps for %d bytes, %d for half of them, %v", c.Name, f.Steps(), c.Size(), half, err)
		}
		if _, err := f.Newest(c.After, time.Time{}); err != nil || f.Steps() > 3*int64(len(c.After)) {
			t.Errorf("%s: newest: %d steps for %d bytes, %v", c.Name, f.Steps(), len(c.After), err)
		}
	}
}

func TestGivenUp(t *testing.T) {
	for _, c := range hostiletest.Changes(200_000) {
		if c.Name != givenUp {
			continue
		}
		var f manager.Finder
		changes, err := f.By(c.Before, c.After)
		if !errors.Is(err, manager.ErrCostly) || changes != nil || f.Steps() > 14*int64(c.Size())+1<<18 {
			t.Errorf("%d steps for %d bytes: %v, %v", f.Steps(), c.Size(), changes, err)
		}
		return
	}
	t.Error("there is no such change")
}

// TestOrdinaryObjects: ordinary objects never exceed the budget.
func TestOrdinaryObjects(t *testing.T) {
	for _, c := range hostiletest.Ordinary(t) {
		var f manager.Finder
		if _, err := f.By(c.Before, c.After); err != nil || f.Steps() > 10*int64(c.Size())+10_000 {
			t.Errorf("%s, %d bytes: %d steps, %v", c.Name, c.Size(), f.Steps(), err)
		}
	}
}

func FuzzCost(f *testing.F) {
	for _, c := range hostiletest.Changes(2000) {
		f.Add(c.Before, c.After)
	}
	var finder manager.Finder
	f.Fuzz(func(t *testing.T, before, after []byte) {
		_, err := finder.By(before, after)
		// Objects of a few thousand bytes never reach the budget, so bound their steps here: most are read about ten times.
		if steps := finder.Steps(); err == nil && steps > 256*int64(len(before)+len(after))+10_000 {
			t.Fatalf("%d steps for %d bytes", steps, len(before)+len(after))
		}
	})
}
