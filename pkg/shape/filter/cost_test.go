package filter

import (
	"errors"
	"testing"

	"github.com/kubebridge/kubebridge/internal/hostiletest"
)

// TestCostOfHostileObjects: an evaluation costs steps in proportion to the bytes of the objects, or is given up.
func TestCostOfHostileObjects(t *testing.T) {
	for expression, linear := range map[string]bool{
		`object.spec.items.exists(i, i.name == object.metadata.uid)`:           true,
		`object.spec.items.exists(i, i.name == object.metadata.annotations.x)`: true,
		`object.spec.all(k, object.spec[k] == "2" || before.spec[k] == "1")`:   true,
		`object.spec != before.spec`:                                           false,
		`object.spec.items.exists(i, object.spec == before.spec && i == 1)`:    false,
		`object.spec.items.exists(i, i in before.spec.items && i.v == 2)`:      false,
		`object.spec.env.all(e, before.spec.env.exists(b, b == e))`:            false,
		`object == before`: false,
		`object.spec.a.a.a.a.a.a.a.a.a.a.a.a.a == before.spec.a.a.a.a.a.a.a.a.a.a.a.a.a`: false,
	} {
		f, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		for i, small := range hostiletest.Changes(25_000) {
			_, half, _ := f.match(&Input{Object: small.After, Before: small.Before})
			c := hostiletest.Changes(50_000)[i]
			pass, steps, err := f.match(&Input{Object: c.After, Before: c.Before})
			switch {
			case errors.Is(err, errCostly):
				if !pass || steps > 66*int64(c.Size())+1<<20 {
					t.Errorf("%s, %s: given up after %d steps, passes: %t", expression, c.Name, steps, pass)
				}
			case linear && steps > 3*half+1000:
				t.Errorf("%s, %s: %d steps for %d bytes, %d for half of them", expression, c.Name, steps, c.Size(), half)
			}
		}
	}
}

// TestGivenUp has an expression that compares the whole object for each of its items, and objects for which that is
// too much. An error that the expression itself ignores counts, too.
func TestGivenUp(t *testing.T) {
	for _, expression := range []string{
		`object.spec.items.exists(i, object.spec == before.spec && i == 1)`,
		`object.spec.items.exists(i, object.spec == before.spec && i == 1) || false`,
		`object.spec.items.exists(i, object.spec == before.spec && i == 1) && false`,
	} {
		f, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range hostiletest.Changes(200_000) {
			if c.Name != "items" {
				continue
			}
			if pass, steps, err := f.match(&Input{Object: c.After, Before: c.Before}); !pass || !errors.Is(err, errCostly) {
				t.Errorf("%s: passes: %t after %d steps, %v", expression, pass, steps, err)
			}
		}
	}
}

// TestOrdinaryObjects are never too costly for expressions that somebody may write.
func TestOrdinaryObjects(t *testing.T) {
	for _, expression := range []string{
		`object.?spec != before.?spec`,
		`object == before`,
		`object.?spec.containers.orValue([]).exists(c, c.env.exists(e, e.name == object.metadata.name))`,
		`object.?data.orValue({}).exists(k, object.data[k] == "x")`,
		`object.?endpoints.orValue([]).all(e, e.conditions.ready && object.metadata.name != "")`,
	} {
		f, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range hostiletest.Ordinary(t) {
			if _, steps, err := f.match(&Input{Object: c.After, Before: c.Before}); err != nil || steps > 64*int64(c.Size()) {
				t.Errorf("%s, %s: %d steps for %d bytes, %v", expression, c.Name, steps, c.Size(), err)
			}
		}
	}
}
