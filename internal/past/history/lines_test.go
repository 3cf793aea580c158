package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/hostiletest"
)

// check applies the differences to a. The result must be b.
func (d *differ) check(t *testing.T, a, b []string) {
	t.Helper()
	var got []string
	at := 0
	for _, x := range d.found {
		if x.a < at || x.aEnd < x.a || x.bEnd < x.b || x.a == x.aEnd && x.b == x.bEnd {
			t.Fatalf("differences %v", d.found)
		}
		got = append(append(got, a[at:x.a]...), b[x.b:x.bEnd]...)
		at = x.aEnd
	}
	if got = append(got, a[at:]...); !slices.Equal(got, b) {
		t.Fatalf("got %q, want %q, of %q by %v", got, b, a, d.found)
	}
}

func TestLines(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n, kinds int) (lines []string) {
		for range n {
			lines = append(lines, fmt.Sprintf("%d\n", r.IntN(kinds)))
		}
		return lines
	}
	for range 300 {
		for _, size := range [][2]int{{5, 3}, {30, 10}, {800, 3}, {800, 400}, {800, 5000}} {
			a, b := random(r.IntN(size[0]), size[1]), random(r.IntN(size[0]), size[1])
			if r.IntN(2) == 0 { // a few edits
				b = slices.Clone(a)
				for range min(len(b), 4) {
					b = slices.Insert(b, r.IntN(len(b)), "new\n")
					i := r.IntN(len(b))
					b = slices.Delete(b, i, i+1)
				}
			}
			compareLines(a, b).check(t, a, b)
		}
	}
}

func TestUnified(t *testing.T) {
	a := strings.SplitAfter("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20\n", "\n")
	a = a[:20]
	for _, c := range []struct {
		b    []string
		want string
	}{
		{a, ""},
		{append(slices.Clone(a), "21\n"), "@@ -18,3 +18,4 @@\n 18\n 19\n 20\n+21\n"},
		{slices.Concat(a[:4], []string{"x\n"}, a[5:11], a[12:]), "@@ -2,14 +2,13 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n 9\n 10\n 11\n-12\n 13\n 14\n 15\n"},
		{slices.Concat(a[1:10], a[10:19], []string{"x\n"}), "@@ -1,4 +1,3 @@\n-1\n 2\n 3\n 4\n@@ -17,4 +16,4 @@\n 17\n 18\n 19\n-20\n+x\n"},
		{nil, "@@ -1,20 +0,0 @@\n-" + strings.Join(a, "-")},
	} {
		if got := compareLines(a, c.b).unified(a, c.b); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
	if got := compareLines(nil, a[:1]).unified(nil, a[:1]); got != "@@ -0,0 +1 @@\n+1\n" {
		t.Errorf("got %s", got)
	}
}

// TestCostOfLines: the number of steps is proportional to the number of lines, and the result is right.
func TestCostOfLines(t *testing.T) {
	for _, c := range hostiletest.Changes(100_000) {
		a, err := lines(c.Before)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		b, err := lines(c.After)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		d := compareLines(a, b)
		d.check(t, a, b)
		if most := 512 * (len(a) + len(b)); d.steps > most {
			t.Errorf("%s: %d steps for %d lines", c.Name, d.steps, len(a)+len(b))
		}
	}
}

// TestOrdinaryLines: the diff of an ordinary object consists of the changed lines and few others.
func TestOrdinaryLines(t *testing.T) {
	for _, c := range hostiletest.Ordinary(t) {
		if !strings.HasPrefix(c.Name, "config map") {
			continue
		}
		a, err := lines(c.Before)
		if err != nil {
			t.Fatal(err)
		}
		b, err := lines(c.After)
		if err != nil {
			t.Fatal(err)
		}
		d, differ := compareLines(a, b), 0
		for _, x := range d.found {
			differ += x.aEnd - x.a
		}
		if differ > len(a)/20 {
			t.Errorf("%s: %d of %d lines differ", c.Name, differ, len(a))
		}
	}
}
