package clustertest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// A stale binary would test an old server, and a new binary for every edited test would take minutes.
func TestFingerprintFollowsSources(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sum := func() string {
		t.Helper()
		s, err := fingerprint(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	write("go.mod", "module x\n\ngo 1.26.0\n")
	write("main.go", "package main")
	first := sum()
	for _, tc := range []struct {
		file    string
		changes bool
	}{{"main_test.go", false}, {"README.md", false}, {"main.go", true}, {"go.sum", true}, {"other.go", true}} {
		before := sum()
		write(tc.file, "package other")
		if changed := sum() != before; changed != tc.changes {
			t.Errorf("edit of %s: fingerprint changed = %v, want %v", tc.file, changed, tc.changes)
		}
	}
	if sum() == first {
		t.Error("fingerprint is back where it was after different edits")
	}
}

// The tests of several packages run at the same time and all request the program.
func TestBuildConcurrently(t *testing.T) {
	var wg sync.WaitGroup
	paths := make([]string, 4)
	for i := range paths {
		wg.Go(func() {
			p, err := Build(t.Context())
			if err != nil {
				t.Error(err)
			}
			paths[i] = p
		})
	}
	wg.Wait()
	if len(slices.Compact(paths)) != 1 {
		t.Errorf("different binaries: %q", paths)
	}
	if info, err := os.Stat(paths[0]); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("no program at %s: %v, %v", paths[0], info, err)
	}
}

func TestPruneKeepsTheLastUsed(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for i := range keepBinaries + 2 {
		p := filepath.Join(dir, fmt.Sprintf("cluster-%d", i))
		if err := os.WriteFile(p, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		used := now.Add(time.Duration(i) * time.Hour)
		if err := os.Chtimes(p, used, used); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cluster.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := prune(filepath.Join(dir, "cluster-*")); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if want := []string{"cluster-2", "cluster-3", "cluster-4", "cluster.lock"}; !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
}
