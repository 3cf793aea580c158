package patch_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/shape/patch"
	"github.com/kubebridge/kubebridge/test/hostiletest"
)

// maxSteps bounds the steps of a patch: the budget, and one more reading of the texts.
func maxSteps(bytes int) int64 { return 10*int64(bytes) + 1<<18 }

// TestCostOfHostileObjects: the steps of a patch are proportional to the size of the texts, and the patch is right. So one
// object cannot delay all others.
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

// TestHostileObjects: patches of hostile objects are right.
func TestHostileObjects(t *testing.T) {
	for _, c := range hostiletest.Changes(3000) {
		check(t, c.Before, c.After)
	}
}

// TestOrdinaryObjects: ordinary objects never exceed the budget.
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
		// Small texts never reach the budget, so repeat them until they could.
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

// repeat returns a list of copies of a text, a quarter of a megabyte in total.
func repeat(text []byte) []byte {
	text = append(bytes.Clone(text), ',')
	list := append([]byte("["), bytes.Repeat(text, max(1, 1<<16/len(text)))...)
	return append(list[:len(list)-1], ']')
}
