package shape

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/hostiletest"
)

// costlyRules returns rules that hide many values at all depths.
func costlyRules(t testing.TB) *Shaper {
	rules, err := Compile([]Rule{
		{Paths: []string{`**[~"^m[0-9]"]`, `**.items[*].v`, `**.x`, `**.b`, `**.n`, `spec.env`, `**.a.**.a.c`}},
		{Paths: []string{`**.v`}, With: WithRemove},
	}, Secrets{Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	return rules.Of("example.com", "widgets")
}

// redactSteps returns the number of bytes that are read or hashed to redact an object.
func redactSteps(s *Shaper, object []byte) (int64, error) {
	w := s.walkers.New().(*walker)
	_, _, err := w.walk(nil, object, "ns/a")
	return w.Steps() + w.cost, err
}

// maxSteps bounds the steps for objects with values of six bytes, each of which is hashed with its path.
func maxSteps(bytes int) int64 { return 128*int64(bytes) + 10_000 }

func TestCostOfHostileObjects(t *testing.T) {
	s := costlyRules(t)
	for i, small := range hostiletest.Changes(50_000) {
		half, err := redactSteps(s, small.After)
		if err != nil {
			t.Fatalf("%s: %v", small.Name, err)
		}
		c := hostiletest.Changes(100_000)[i]
		steps, err := redactSteps(s, c.After)
		if err != nil || steps > maxSteps(len(c.After)) || steps > 3*half {
			t.Errorf("%s: %d steps for %d bytes, %d for half of them, %v", c.Name, steps, len(c.After), half, err)
		}
	}
}

// TestLongPaths: below a long path, the hash of a value still depends on its path and on the value.
func TestLongPaths(t *testing.T) {
	rules, err := Compile([]Rule{{Paths: []string{"**.x"}}}, Secrets{Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	s := rules.Of("", "pods")
	seen := map[string]string{}
	for _, name := range []string{"n", strings.Repeat("n", longPath-1), strings.Repeat("n", longPath), strings.Repeat("n", longPath+1), strings.Repeat("m", 5000)} {
		for _, inner := range []string{"a", strings.Repeat("b", 600)} {
			for value := range 2 {
				one := fmt.Sprintf(`{%q:{%q:{"x":%d}}}`, name, inner, value)
				both := fmt.Sprintf(`{"first":{"y":1},%q:{"other":{"z":[1]},%q:{"x":%d}}}`, name, inner, value)
				hash := func(object string) string {
					out, err := s.Append(nil, []byte(object), "ns/a")
					if err != nil {
						t.Fatal(err)
					}
					return string(out[bytes.LastIndex(out, []byte(hashPrefix)):])
				}
				place := fmt.Sprintf("%d %d %d", len(name), len(inner), value)
				if hash(one) != hash(both) {
					t.Errorf("%s: the hash depends on what stands beside", place)
				}
				if other := seen[hash(one)]; other != "" {
					t.Errorf("%s has the hash of %s", place, other)
				}
				seen[hash(one)] = place
			}
		}
	}
}

// TestOrderedHash: up to maxOrdered levels, the hash does not depend on the order of members.
func TestOrderedHash(t *testing.T) {
	rules, err := Compile([]Rule{{Paths: []string{"spec"}}}, Secrets{Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	s := rules.Of("", "pods")
	for levels, same := range map[int]bool{1: true, 60: true, 70: false} {
		hash := func(members string) string {
			text := strings.Repeat(`{"a\"{":`, levels) + members + strings.Repeat("}", levels)
			out, err := s.Append(nil, []byte(`{"spec":`+text+`}`), "ns/a")
			if err != nil {
				t.Fatal(err)
			}
			return string(out)
		}
		if got := hash(`{"b":1,"c":"{{"}`) == hash(`{"c":"{{","b":1}`); got != same {
			t.Errorf("%d levels: the same hash: %t", levels, got)
		}
	}
}

func FuzzRedactCost(f *testing.F) {
	for _, c := range hostiletest.Changes(2000) {
		f.Add(c.After)
	}
	s := costlyRules(f)
	f.Fuzz(func(t *testing.T, object []byte) {
		if !json.Valid(object) {
			return
		}
		list := append(bytes.Repeat(append(bytes.Clone(object), ','), max(1, 1<<16/len(object))), object...)
		object = append(append([]byte(`{"spec":{"items":[`), list...), `]}}`...)
		if steps, err := redactSteps(s, object); err == nil && steps > maxSteps(len(object)) {
			t.Fatalf("%d steps for %d bytes", steps, len(object))
		}
	})
}
