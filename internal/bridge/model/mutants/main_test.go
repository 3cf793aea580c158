package main

import (
	"testing"
)

// A mutation that no longer fits the source is found by this test, and not only when all mutations are run.
func TestChangesFitTheSource(t *testing.T) {
	t.Chdir("../../../..")
	mutants, err := read("")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, m := range mutants {
		if _, err := m.overlay(dir); err != nil {
			t.Errorf("%s: %v", m.what, err)
		}
	}
}
