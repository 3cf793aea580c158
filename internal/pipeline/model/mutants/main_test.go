package main

import (
	"testing"
)

// A change that does not fit the source any more is noticed here, and not when somebody runs them all.
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
