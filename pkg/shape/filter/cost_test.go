package filter

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/hostiletest"
)

// linearSteps bounds the steps per byte of expressions that read everything a fixed number of times. They take four, or fewer if they
// find the result early, which depends on the order in which CEL reads a map.
const linearSteps = 8

// TestCostOfHostileObjects: the steps of an evaluation are proportional to the size of the objects, or the evaluation is aborted.
func TestCostOfHostileObjects(t *testing.T) {
	for expression, linear := range map[string]bool{
		`object.spec.items.exists(i, i.name == object.metadata.uid)`:           true,
		`object.spec.items.exists(i, i.name == object.metadata.annotations.x)`: true,
		`object.spec.all(k, object.spec[k] == "2" || before.spec[k] == "1")`:   true,
		`object.spec != before.spec`:                                           false,
		`object.spec.items.exists(i, object.spec == before.spec && i == 1)`:    false,
		`object.spec.items.exists(i, i in before.spec.items && i.v == 2)`:      false,
		`object.spec.env.all(e, before.spec.env.exists(b, b == e))`:            false,
		`object.spec.items.exists(i, i.v == 2 && object.spec == before.spec)`:  false,
		`object == before`: false,
		`object.spec.a.a.a.a.a.a.a.a.a.a.a.a.a == before.spec.a.a.a.a.a.a.a.a.a.a.a.a.a`: false,
	} {
		f, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range hostiletest.Changes(50_000) {
			pass, steps, err := f.match(&Input{Object: c.After, Before: c.Before})
			switch {
			case errors.Is(err, errCostly):
				if !pass || steps > 66*int64(c.Size())+1<<18 {
					t.Errorf("%s, %s: given up after %d steps, passes: %t", expression, c.Name, steps, pass)
				}
			case linear && steps > linearSteps*int64(c.Size()):
				t.Errorf("%s, %s: %d steps for %d bytes", expression, c.Name, steps, c.Size())
			}
		}
	}
}

// TestGivenUp evaluates expressions that compare the whole object for each of its items, on objects for which that exceeds the
// budget. The evaluation is aborted even if the expression ignores the error.
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

// costlyCalls returns calls, single ones and in loops, that take far more steps than the object has bytes. CEL counts their cost
// too late or not at all.
func costlyCalls() map[string]string {
	return map[string]string{
		`object.ints.distinct().size() == 1`:                                                                                                 "ints",
		`object.ints.map(i, i).distinct().size() == 1`:                                                                                       "ints",
		`sets.equivalent(object.ints.map(i, i), before.ints.map(i, i))`:                                                                      "ints",
		`sets.contains(object.ints.map(i, i), before.ints)`:                                                                                  "ints",
		`sets.intersects(object.ints, before.ints.map(i, -i))`:                                                                               "ints",
		`object.ints.map(i, i).hasAny(before.ints.map(i, -i))`:                                                                               "ints",
		`object.ints.map(i, i).hasOnly(before.ints)`:                                                                                         "ints",
		`cel.bind(l, object.ints.map(i, i), object.ints.exists(i, sets.contains(l, []) && i < 0))`:                                           "ints",
		`object.ints.map(i, object.ints).flatten().size() == 1`:                                                                              "text",
		`object.ints.exists(i, object == before && i < 0)`:                                                                                   "equal",
		`object.ints.exists(i, object.ints == before.ints && i < 0)`:                                                                         "equal",
		`object.ints.exists(i, [object.ints] == [before.ints] && i < 0)`:                                                                     "equal",
		`cel.bind(a, object.ints.map(i, object.text), cel.bind(b, before.ints.map(i, before.text), object.ints.exists(i, a == b && i < 0)))`: "equal",
		`cel.bind(l, before.ints.map(i, before.text), object.ints.exists(i, object.pattern in l))`:                                           "equal",
		`object.text.indexOf(object.pattern) == 0`:                                                                                           "text",
		`object.text.lastIndexOf(object.pattern) == 0`:                                                                                       "text",
		`object.text.indexOf(object.pattern, 1) == 0`:                                                                                        "text",
		`object.text.replace("a", object.pattern) == ""`:                                                                                     "text",
		`object.text.replace("", object.pattern) == ""`:                                                                                      "text",
		`object.text.split("").join(object.pattern) == ""`:                                                                                   "text",
		`object.ints.map(i, object.text).join() == ""`:                                                                                       "text",
		`"%s".format([object.ints.map(i, object.text)]) == ""`:                                                                               "text",
		`object.text.matches(object.pattern)`:                                                                                                "text",
		`object.text.matches(object.repeat)`:                                                                                                 "text",
		`regex.extract(object.text, object.pattern).hasValue()`:                                                                              "text",
		`regex.extractAll(object.text, object.pattern) == []`:                                                                                "text",
		`regex.replace(object.text, "a", object.pattern) == ""`:                                                                              "text",
		`object.ints.exists(i, object.text.size() == i)`:                                                                                     "text",
		`object.ints.exists(i, int(object.text) == i)`:                                                                                       "text",
		`object.ints.exists(i, object[object.text] == -1)`:                                                                                   "text",
	}
}

func costlyObjects() map[string]Input {
	ints := func(first, n int) string {
		return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(sequence(first, n))), ","), "[]")
	}
	text := strings.Repeat("a", 40_000)
	with := func(first, n int) []byte {
		return fmt.Appendf(nil, `{"ints":[%s],"text":"%s","pattern":"%sb","repeat":"(%sb)","%s":1}`,
			ints(first, n), text, text[:10_000], strings.Repeat("a{1000}", 20), text)
	}
	return map[string]Input{
		"ints":  {Object: []byte(`{"ints":[` + ints(0, 35_000) + `]}`), Before: []byte(`{"ints":[` + ints(1, 35_000) + `]}`)},
		"equal": {Object: with(0, 3000), Before: with(0, 3000)},
		"text":  {Object: with(0, 3000), Before: with(0, 3000)},
	}
}

func sequence(first, n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = first + i
	}
	return numbers
}

// TestCostlyCalls: a call that would exceed the budget is not made.
func TestCostlyCalls(t *testing.T) {
	objects := costlyObjects()
	for expression, name := range costlyCalls() {
		f, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		in := objects[name]
		if pass, steps, err := f.match(&in); !pass || !errors.Is(err, errCostly) || steps > 66*int64(len(in.Object)+len(in.Before))+1<<18 {
			t.Errorf("%s: passes: %t after %d steps, %v", expression, pass, steps, err)
		}
	}
}

// TestCallsThatCost: ordinary uses of the bounded functions have the same result as in CEL.
func TestCallsThatCost(t *testing.T) {
	in := Input{
		Object: []byte(`{"s":"aaa","p":"a+","l":[3,1,3],"o":[{"n":"b","e":[1]},{"n":"a","e":[2]}],"i":1}`),
		Before: []byte(`{"o":[{"n":"a","e":[2]},{"n":"b","e":[1]}]}`),
	}
	for _, expression := range []string{
		`object.i in object.l && !(2 in object.l.map(i, i)) && object.i in {1: 2} && "s" in object`,
		`object.l == [3, 1, 3] && [3, 1, 3] == object.l && object.l.map(i, i) != [3, 1] && object.?l == optional.of([3, 1, 3])`,
		`object.l.sort() == [1, 3, 3] && object.l.distinct() == [3, 1] && object.o.sortBy(o, o.n)[0].n == "a"`,
		`object.o.map(o, o.e).flatten() == [1, 2] && [[1], [2, [3]]].flatten(2) == [1, 2, 3]`,
		`sets.equivalent(object.o.map(o, o.n), before.o.map(o, o.n)) && sets.equivalent(object.o, before.o)`,
		`object.l.hasAny([1]) && object.l.hasOnly([1, 2, 3]) && [1].hasAll([1]) && [1, 1].hasExactly([1])`,
		`object.s.indexOf("a", 1) == 1 && object.s.lastIndexOf("a") == 2 && object.s.replace("a", "b", 1) == "baa"`,
		`["a", "b"].join(",") == "a,b" && object.s.split("").join() == "aaa" && "%s %d".format([object.l, 1]) == "[3, 1, 3] 1"`,
		`object.s.matches("^a+$") && object.s.matches(object.p) && matches(object.s, object.p)`,
		`regex.replace(object.s, "a", "b") == "bbb" && regex.extract(object.s, object.p).value() == "aaa"`,
		`object.s.size() == 3 && size(object.l) == 3 && int("1") == object.i && timestamp("2026-01-01T00:00:00Z") > timestamp(0)`,
	} {
		f, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		if pass, _, err := f.match(&in); !pass || err != nil {
			t.Errorf("%s: %t, %v", expression, pass, err)
		}
	}
}

// FuzzCost evaluates the calls on any object: no evaluation exceeds its budget.
func FuzzCost(f *testing.F) {
	for _, in := range costlyObjects() {
		f.Add(in.Object[:min(len(in.Object), 2000)], in.Before[:min(len(in.Before), 2000)])
	}
	f.Add([]byte(`{"ints":[1,2],"text":"a","pattern":"(a","repeat":"a{1000}"}`), []byte(`{"ints":[[1],{"a":1}],"text":1}`))
	var filters []*Filter
	for expression := range costlyCalls() {
		compiled, err := Compile(expression)
		if err != nil {
			f.Fatal(err)
		}
		filters = append(filters, compiled)
	}
	f.Fuzz(func(t *testing.T, object, before []byte) {
		for _, compiled := range filters {
			size := int64(len(object) + len(before))
			if pass, steps, err := compiled.match(&Input{Object: object, Before: before}); steps > 66*size+1<<18 || err != nil && !pass {
				t.Errorf("passes: %t after %d steps for %d bytes, %v", pass, steps, size, err)
			}
		}
	})
}

// TestOrdinaryObjects: ordinary expressions never exceed the budget on ordinary objects.
func TestOrdinaryObjects(t *testing.T) {
	for _, expression := range []string{
		`object.?spec != before.?spec`,
		`object == before`,
		`object.?spec.containers.orValue([]).exists(c, c.env.exists(e, e.name == object.metadata.name))`,
		`object.?data.orValue({}).exists(k, object.data[k] == "x")`,
		`sets.contains(object.?endpoints.orValue([]).map(e, e.addresses[0]), before.?endpoints.orValue([]).map(e, e.addresses[0]))`,
		`object.?data.orValue({}).exists(k, object.data[k].indexOf("x") >= 0 || object.data[k].matches("x[0-9]+$"))`,
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
