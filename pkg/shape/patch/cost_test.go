package patch_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/kubebridge/kubebridge/internal/hostiletest"
	"github.com/kubebridge/kubebridge/pkg/shape/patch"
)

// maxSteps is what a patch may cost: the budget, and one reading of the texts beyond it.
func maxSteps(bytes int) int64 { return 14*int64(bytes) + 1<<20 }

// TestCostOfHostileObjects keeps one object from taking the time of all others: a patch costs steps in proportion to
// its bytes, and is right.
func TestCostOfHostileObjects(t *testing.T) {
	for i := range hostiletest.Changes(1000) {
		var last int64
		for _, n := range []int{100_000, 200_000} {
			c := hostiletest.Changes(n)[i]
			m := patch.Maker{WithoutManagedFields: true}
			if _, err := m.Append(nil, c.Before, c.After); err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			steps := m.Steps()
			if steps > maxSteps(c.Size()) || last > 0 && steps > 3*last+1000 {
				t.Errorf("%s: %d steps for %d bytes, %d for half of them", c.Name, steps, c.Size(), last)
			}
			last = steps
		}
	}
}

// TestHostileObjects has patches that are right all the same.
func TestHostileObjects(t *testing.T) {
	for _, c := range hostiletest.Changes(3000) {
		check(t, c.Before, c.After)
	}
}

// TestOrdinaryObjects are never too costly.
func TestOrdinaryObjects(t *testing.T) {
	for _, c := range hostiletest.Ordinary(t) {
		m := patch.Maker{WithoutManagedFields: true}
		if _, err := m.Append(nil, c.Before, c.After); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if perByte := m.Steps() / int64(c.Size()); m.Coarse() || perByte > 6 {
			t.Errorf("%s, %d bytes: %d steps per byte, coarse: %t", c.Name, c.Size(), perByte, m.Coarse())
		}
	}
}

func FuzzCost(f *testing.F) {
	for _, c := range hostiletest.Changes(2000) {
		f.Add(c.Before, c.After)
	}
	f.Fuzz(func(t *testing.T, before, after []byte) {
		// Texts this small are within the budget of any object. So repeat them until they are not.
		before, after = repeat(before), repeat(after)
		if !json.Valid(before) || !json.Valid(after) {
			return
		}
		var m patch.Maker
		if _, err := m.Append(nil, before, after); err != nil {
			t.Fatal(err)
		}
		if steps := m.Steps(); steps > 128*int64(len(before)+len(after))+1<<16 {
			t.Fatalf("%d steps for %d bytes", steps, len(before)+len(after))
		}
	})
}

// repeat is a list of a text as often as makes a quarter of a megabyte.
func repeat(text []byte) []byte {
	text = append(bytes.Clone(text), ',')
	list := append([]byte("["), bytes.Repeat(text, max(1, 1<<16/len(text)))...)
	return append(list[:len(list)-1], ']')
}
