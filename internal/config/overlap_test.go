package config

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// A cluster with thousands of tenants has thousands of entries. They are checked in time that
// grows with their number, not with its square: 16 times as many may take 64 times as
// long, not 256 times.
func TestManyEntriesAreCheckedQuickly(t *testing.T) {
	check := func(entry func(i int) Resource, n int) time.Duration {
		list := make([]Resource, n)
		for i := range list {
			list[i] = entry(i)
		}
		best := time.Hour
		for range 3 {
			began := processorTime(t)
			p := problems{}
			p.resources("resources", list)
			best = min(best, processorTime(t)-began)
			if len(p.list) > 0 {
				t.Fatal(p.list)
			}
		}
		return best
	}
	for name, entry := range map[string]func(i int) Resource{
		"resources":  func(i int) Resource { return Resource{Resource: fmt.Sprintf("r%d.example.com", i)} },
		"namespaces": func(i int) Resource { return Resource{Resource: "pods", Namespaces: []string{fmt.Sprintf("n%d", i)}} },
	} {
		few, many := check(entry, 500), check(entry, 8000)
		if many > 64*few {
			t.Errorf("%s: 500 entries take %v, 8000 take %v", name, few, many)
		}
	}
}

// processorTime is what this process has used: other programs on the machine do not count.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano())
}

// The entry that is named is the first one that overlaps, wherever it is found.
func TestFirstOverlapIsNamed(t *testing.T) {
	list := selections{}
	for i, r := range []Resource{
		{Resource: "pods", Namespaces: []string{"a"}},
		{Resource: "pods", Namespaces: []string{"b"}, LabelSelector: "x=1"},
		{Resource: "nodes"},
		{Resource: "pods", NamespaceSelector: "env=prod", LabelSelector: "x=2"},
	} {
		if first, found := list.add(i, &r); found {
			t.Fatalf("entry %d overlaps %d", i, first)
		}
	}
	for _, test := range []struct {
		r    Resource
		want int
	}{
		{Resource{Resource: "pods", Namespaces: []string{"c", "b", "a"}}, 0},
		{Resource{Resource: "pods", LabelSelector: "x=2"}, 0},
		{Resource{Resource: "pods", Namespaces: []string{"b"}}, 1},
		{Resource{Resource: "nodes", LabelSelector: "a"}, 2},
	} {
		if first, found := list.add(9, &test.r); !found || first != test.want {
			t.Errorf("%v: found is %t with %d, want %d", test.r, found, first, test.want)
		}
	}
}
